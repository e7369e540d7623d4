//! A connection whose client must take its answers within a time: what a slow reader leaves lying is memory here. And
//! one that closes so that a client which is still sending a refused body can read why.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use crate::limits::{LINGER_BYTES_MAX, LINGER_SECONDS_MAX};

/// A stream that breaks when what was written is not taken for `limit`. The time runs from the first write that had to
/// wait until everything written is taken (a flush), so that a client that takes a byte now and then wins nothing.
pub(super) struct Stalling<S> {
    inner: S,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Our side is closed; what the client still sends is thrown away for a while.
    lingering: Option<Lingering>,
}

struct Lingering {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> Stalling<S> {
    pub(super) fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, deadline: None, lingering: None }
    }

    /// The outcome of a write, or an error once it has waited too long.
    fn waited<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.waited(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.waited(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.deadline = None;
        }
        self.waited(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let closed = Pin::new(&mut self.inner).poll_shutdown(context);
            ready!(self.waited(closed, context))?;
        }
        let Self { inner, lingering, .. } = &mut *self;
        let lingering = lingering.get_or_insert_with(|| Lingering {
            until: Box::pin(sleep_until(Instant::now() + Duration::from_secs(LINGER_SECONDS_MAX))),
            bytes_left: LINGER_BYTES_MAX,
        });
        // Closing while bytes are unread makes the kernel reset the connection, and the answer is lost with it.
        let mut scratch = [0; 8 * 1024];
        while lingering.bytes_left > 0 && lingering.until.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *inner).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    lingering.bytes_left = lingering.bytes_left.saturating_sub(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn f4_a_client_that_does_not_read_is_cut() {
        let (ours, _theirs) = duplex(10);
        let mut stream = Stalling::new(ours, LIMIT);
        let error = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn f4_a_client_that_takes_a_byte_now_and_then_is_cut() {
        let (ours, mut theirs) = duplex(10);
        tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let error = Stalling::new(ours, LIMIT).write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_takes_what_is_still_sent_up_to_a_bound_and_a_time() {
        for (sent, is_taken) in [(LINGER_BYTES_MAX / 2, true), (LINGER_BYTES_MAX * 2, false)] {
            let (ours, mut theirs) = duplex(1_024);
            let sender = tokio::spawn(async move {
                let all = theirs.write_all(&vec![0; sent]).await;
                (all.is_ok(), theirs)
            });
            let mut stream = Stalling::new(ours, LIMIT);
            let began = Instant::now();
            stream.shutdown().await.unwrap();
            assert!(began.elapsed() <= Duration::from_secs(LINGER_SECONDS_MAX + 1));
            drop(stream);
            assert_eq!(sender.await.unwrap().0, is_taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_in_time_may_take_as_many_answers_as_it_likes() {
        let (ours, mut theirs) = duplex(10);
        let mut stream = Stalling::new(ours, LIMIT);
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            while taken < 1_000 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut buffer = [0; 10];
                taken += theirs.read(&mut buffer).await.unwrap();
            }
        });
        for _ in 0..10 {
            stream.write_all(&[0; 100]).await.unwrap();
            stream.flush().await.unwrap();
        }
        reader.await.unwrap();
    }
}
