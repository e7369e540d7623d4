//! Keep-alive connections: each takes calls one at a time, and opens itself again when the server closed it.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc},
    time::timeout,
};

use crate::{answer::Answer, requests::Ready};

/// Longest a call may take: a little more than the server gives itself.
const CALL_SECONDS_MAX: u64 = 30;
/// Largest body read.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// Who asked: a shopper's index, or the watcher of the public status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The shopper with this index.
    Shopper(u32),
    /// The one who watches the board for all.
    Watcher,
}

/// A call to be made.
pub struct Call {
    /// For whom.
    pub caller: Caller,
    /// What to send.
    pub request: Ready,
}

/// What became of it.
pub struct Outcome {
    /// Which connection is free again.
    pub connection: usize,
    /// For whom it was.
    pub caller: Caller,
    /// How long it took.
    pub took: Duration,
    /// The answer, or why there is none.
    pub answer: Result<Answer, Fault>,
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No connection could be made.
    Refused,
    /// The connection broke.
    Broken,
    /// No answer came in time.
    TimedOut,
}

/// Makes calls until there are no more to come.
pub async fn run(
    connection: usize,
    address: SocketAddr,
    mut calls: mpsc::Receiver<Call>,
    outcomes: mpsc::Sender<Outcome>,
) {
    let mut sender: Option<SendRequest<Full<Bytes>>> = None;
    while let Some(Call { caller, request }) = calls.recv().await {
        let started = Instant::now();
        let exchanged =
            timeout(Duration::from_secs(CALL_SECONDS_MAX), exchange(&mut sender, address, request)).await;
        let answer = exchanged.unwrap_or(Err(Fault::TimedOut));
        if answer.is_err() {
            sender = None;
        }
        let outcome = Outcome { connection, caller, took: started.elapsed(), answer };
        if outcomes.send(outcome).await.is_err() {
            return;
        }
    }
}

/// A few connections for many callers, who wait in line for one.
pub struct Connections {
    address: SocketAddr,
    room: Semaphore,
    free: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Connections {
    /// At most `count` to this address.
    #[must_use]
    pub fn new(address: SocketAddr, count: u16) -> Self {
        Self { address, room: Semaphore::new(usize::from(count)), free: Mutex::default() }
    }

    /// Makes one call, once a connection is free.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn call(&self, request: Ready) -> Result<Answer, Fault> {
        self.timed(request).await.0
    }

    /// The same, with the time from sending to the whole answer.
    pub async fn timed(&self, request: Ready) -> (Result<Answer, Fault>, Duration) {
        let Ok(_room) = self.room.acquire().await else { return (Err(Fault::Refused), Duration::ZERO) };
        let mut sender = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (limit, sent) = (Duration::from_secs(CALL_SECONDS_MAX), Instant::now());
        let exchanged = timeout(limit, exchange(&mut sender, self.address, request)).await;
        let answer = exchanged.unwrap_or(Err(Fault::TimedOut));
        if answer.is_ok() {
            self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(sender);
        }
        (answer, sent.elapsed())
    }
}

async fn exchange(
    sender: &mut Option<SendRequest<Full<Bytes>>>,
    address: SocketAddr,
    request: Ready,
) -> Result<Answer, Fault> {
    // A server may close an idle connection at any time; that is seen here, before anything is sent.
    let is_open = match sender {
        Some(open) => open.ready().await.is_ok(),
        None => false,
    };
    if !is_open {
        *sender = Some(open(address).await?);
    }
    let Some(open) = sender else { return Err(Fault::Refused) };
    let response = open.send_request(request).await.map_err(|_| Fault::Broken)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Fault::Broken)?;
    Ok(Answer::new(head.status.as_u16(), &head.headers, body.to_bytes()))
}

async fn open(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Fault> {
    let stream = TcpStream::connect(address).await.map_err(|_| Fault::Refused)?;
    let _ = stream.set_nodelay(true);
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| Fault::Broken)?;
    // How a connection ends is seen by whoever has a call on it.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
