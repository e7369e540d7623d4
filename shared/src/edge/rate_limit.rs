//! Rate limits per client network, by governor's generic cell rate algorithm.
//!
//! A network is an IPv4 address or an IPv6 /64: within a /64 one host may change its address at will. The table of
//! networks is bounded; when it is full, networks it does not know share one last bucket.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};
use http::StatusCode;

use crate::problem::Problem;

/// Most networks one limiter remembers.
const NETWORKS_MAX: usize = 100_000;

/// A limit per client network.
pub struct NetworkLimit {
    buckets: DefaultKeyedRateLimiter<Ipv6Addr>,
}

impl NetworkLimit {
    /// Allows `per_second` requests a second and `burst` at once, to each network.
    #[must_use]
    pub fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Arc<Self> {
        Arc::new(Self { buckets: RateLimiter::keyed(Quota::per_second(per_second).allow_burst(burst)) })
    }

    /// Takes one request of `address`, or says in how many seconds one will be free.
    fn take(&self, address: IpAddr) -> Result<(), u32> {
        let mut network = network(address);
        if self.buckets.len() >= NETWORKS_MAX {
            self.buckets.retain_recent();
            if self.buckets.len() >= NETWORKS_MAX {
                network = Ipv6Addr::UNSPECIFIED;
            }
        }
        self.buckets.check_key(&network).map_err(|refused| {
            let wait = refused.wait_time_from(governor::clock::DefaultClock::default().now());
            u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX)
        })
    }
}

fn network(address: IpAddr) -> Ipv6Addr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)),
    }
}

/// The middleware: 429 `rate_limited` with Retry-After above the limit. A call inside this process came through no
/// listener, so it has no network and no limit.
pub async fn limited(State(limit): State<Arc<NetworkLimit>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    match peer.map_or(Ok(()), |ConnectInfo(peer)| limit.take(peer.ip())) {
        Ok(()) => next.run(request).await,
        Err(seconds) => {
            let detail = "Too many requests came from your network. Wait as long as Retry-After says.";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail)
                .retry_after(seconds)
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Arc<NetworkLimit> {
        NetworkLimit::new(NonZeroU32::MIN, NonZeroU32::new(3).unwrap())
    }

    #[test]
    fn f1_addresses_of_one_64_share_a_bucket() {
        let limit = limit();
        let address = |n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, n, n, n, n));
        let taken = (0..100).filter(|n| limit.take(address(*n)).is_ok()).count();
        assert_eq!(taken, 3);
        assert!(limit.take("2001:db8:0:1::1".parse().unwrap()).is_ok(), "the next /64 has its own");
    }

    #[test]
    fn ipv4_counts_the_same_in_both_spellings() {
        let limit = limit();
        for text in ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"] {
            assert!(limit.take(text.parse().unwrap()).is_ok());
        }
        assert!(limit.take("192.0.2.1".parse().unwrap()).unwrap_err() >= 1);
        assert!(limit.take("192.0.2.2".parse().unwrap()).is_ok());
    }
}
