//! The listener: hyper's HTTP/1 server with bounds on connections, heads and time, and a drain on stop.
//!
//! `axum::serve` sets no limit on how long a client may take over its headers; this loop does.

use std::{io, time::Duration};

use axum::{Router, extract::connect_info::MockConnectInfo};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

use crate::limits::{CONNECTIONS_MAX, DRAIN_SECONDS_MAX, HEAD_BYTES_MAX, HEAD_SECONDS_MAX, HEADERS_MAX};

/// Serves `router` on `listener` until `stop` turns true, then lets open requests end, for a bounded time.
///
/// # Errors
/// The listener broke.
pub async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) -> io::Result<()> {
    let connections = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone().layer(MockConnectInfo(peer)));
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
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS_MAX), drain.shutdown()).await;
    Ok(())
}
