//! What every connection is made with.

use std::{io, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, io::tcp::TcpSettings};

/// Scripts and commands waiting on one connection at a time.
pub(super) const PIPELINE_DEPTH: usize = 4_096;

pub(super) fn tcp() -> TcpSettings {
    // Nagle's delay would add 40 ms to a lone command; without a user timeout a dead peer is noticed in minutes.
    TcpSettings::default().set_nodelay(true).set_user_timeout(Duration::from_secs(5))
}

pub(super) fn with_tcp(info: ConnectionInfo) -> ConnectionInfo {
    match info.addr() {
        ConnectionAddr::Tcp(..) => info.set_tcp_settings(tcp()),
        _ => info,
    }
}

/// A connection is not made, for this reason.
pub(super) fn refused(words: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, words))
}

pub(super) fn timed_out() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::TimedOut))
}
