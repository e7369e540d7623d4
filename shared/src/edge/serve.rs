//! The listener: hyper's HTTP/1 server with bounds on connections (all, and of one network), heads, idle time and slow
//! readers, and a drain on stop.
//!
//! `axum::serve` sets no limit on how long a client may take over its headers; this loop does. The same limit ends
//! connections that are kept open and say nothing: hyper's clock for a head runs from the end of the answer before it.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{Semaphore, watch},
};
use tower::ServiceExt as _;

use super::{client::Caller, policy::Edge, stall::Stalling};
use crate::limits::{
    BACKLOG_MAX, CONNECTIONS_MAX, DRAIN_SECONDS_MAX, HEAD_BYTES_MAX, HEAD_SECONDS_MAX, HEADERS_MAX,
    SEND_BUFFER_BYTES, WRITE_SECONDS_MAX,
};

/// A listener on `address` whose connections leave little in the kernel: by itself it would keep megabytes for each
/// client that does not read.
///
/// # Errors
/// The address cannot be had.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_MAX)
}

/// As [`serve_by`], with the default bounds.
///
/// # Errors
/// The listener broke.
pub async fn serve(listener: TcpListener, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
    serve_by(Arc::default(), listener, router, stop).await
}

/// Serves `router` on `listener` within the bounds of `edge` until `stop` turns true, then lets open requests end, for
/// a bounded time.
///
/// # Errors
/// The listener broke.
pub async fn serve_by(
    edge: Arc<Edge>,
    listener: TcpListener,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let drain = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            permit = connections.clone().acquire_owned() => permit.map_err(io::Error::other)?,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors or a client gone before we looked: neither may end the listener, and
                // the first would spin without a pause.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        // Closed without a word: an answer would cost more than the connection.
        let Some(counted) = edge.connect(peer.ip()) else { continue };
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let service = TowerToHyperService::new(tower::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Caller::new(peer));
            router.clone().oneshot(request)
        }));
        let stream = Stalling::new(stream, Duration::from_secs(WRITE_SECONDS_MAX));
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(HEAD_SECONDS_MAX))
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let watched = drain.watch(connection);
        tokio::spawn(async move {
            // A client that breaks off is its own affair.
            let _ = watched.await;
            drop((permit, counted));
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS_MAX), drain.shutdown()).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{Extension, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn handlers_see_the_peer_and_stop_drains_what_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (entered, mut inside) = tokio::sync::mpsc::channel::<()>(1);
        let (release, released) = watch::channel(false);
        let slow = get(move |Extension(caller): Extension<Caller>| {
            let (entered, mut released) = (entered.clone(), released.clone());
            async move {
                entered.send(()).await.unwrap();
                released.wait_for(|go| *go).await.unwrap();
                caller.address.to_string()
            }
        });
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve(listener, Router::new().route("/", slow), stopped));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        inside.recv().await.unwrap();
        stop.send(true).unwrap();
        release.send(true).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("127.0.0.1"), "{answer}");
        server.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err(), "a stopped listener takes nobody");
    }
}
