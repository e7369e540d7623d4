//! Rate limits per client network and per account, by governor's generic cell rate algorithm over bounded tables.
//!
//! - An IPv4 address may stand for thousands of people (a carrier's NAT), so a limit is written for one of those.
//! - An IPv6 /64 is one home or one phone, within which a host changes its address at will: it shares one bucket, of a
//!   tenth of the limit. Whoever rotates through many of them meets wider buckets: a /56 has four tenths of the limit,
//!   and a whole /48 as much as one IPv4 address.
//! - The tables are bounded. When one is full, networks it does not know share a bucket. Entries that are as good as
//!   none are dropped by [`NetworkLimit::forget`], off the way of requests.

use std::{
    fmt,
    hash::Hash,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    str::FromStr,
};

use governor::{
    NotUntil, Quota, RateLimiter,
    clock::{Clock, DefaultClock, Reference},
    middleware::NoOpMiddleware,
};
use http::StatusCode;

use super::table::BoundedTable;
use crate::{ids::AccountHash, problem::Problem};

/// Most IPv4 addresses, and most IPv6 /64 networks, of one limit.
pub const NETWORKS_MAX: usize = 65_536;
/// Most /56 networks, and most /48 networks, of one limit.
pub const WIDE_NETWORKS_MAX: usize = 16_384;
/// Most accounts of one limit.
pub const ACCOUNTS_MAX: usize = 262_144;

const _: () = assert!(WIDE_NETWORKS_MAX <= NETWORKS_MAX);

/// So many requests a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests a second, in the long run.
    pub per_second: NonZeroU32,
    /// Requests at once, after a time without any.
    pub burst: NonZeroU32,
}

impl Limit {
    /// A limit; what is 0 counts as 1.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second: at_least_one(per_second), burst: at_least_one(burst) }
    }

    /// So many tenths of it.
    #[must_use]
    const fn tenths(self, tenths: u32) -> Self {
        Self::new(share(self.per_second, tenths), share(self.burst, tenths))
    }

    fn quota(self) -> Quota {
        Quota::per_second(self.per_second).allow_burst(self.burst)
    }
}

const fn at_least_one(n: u32) -> NonZeroU32 {
    match NonZeroU32::new(n) {
        Some(n) => n,
        None => NonZeroU32::MIN,
    }
}

const fn share(n: NonZeroU32, tenths: u32) -> u32 {
    // Rounded up, and within 32 bits because it is at most the number itself.
    let n = n.get() as u64;
    (n * tenths as u64).div_ceil(10) as u32
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s burst {}", self.per_second, self.burst)
    }
}

impl FromStr for Limit {
    type Err = String;

    /// `200/s burst 10000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no limit");
        let (rate, burst) = text.split_once(" burst ").ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n <= PER_SECOND_MAX);
        let per_second = rate.trim().strip_suffix("/s").and_then(number).ok_or_else(wrong)?;
        let burst = number(burst).ok_or_else(wrong)?;
        match (NonZeroU32::new(per_second), NonZeroU32::new(burst)) {
            (Some(per_second), Some(burst)) => Ok(Self { per_second, burst }),
            _ => Err(format!("'{text}' lets nobody through")),
        }
    }
}

/// Highest number in a limit that can be configured: far above what one process serves.
const PER_SECOND_MAX: u32 = 10_000_000;

type Buckets<K, C> = RateLimiter<K, BoundedTable<K>, C, NoOpMiddleware<<C as Clock>::Instant>>;

fn take<K: Hash + Eq + Clone, C: Clock>(buckets: &Buckets<K, C>, key: &K) -> Result<(), u32> {
    buckets.check_key(key).map_err(|refused| wait_seconds(&refused, buckets.clock().now()))
}

fn wait_seconds<P: Reference>(refused: &NotUntil<P>, now: P) -> u32 {
    u32::try_from(refused.wait_time_from(now).as_secs() + 1).unwrap_or(u32::MAX)
}

/// A limit per client network.
pub struct NetworkLimit<C: Clock = DefaultClock> {
    v4: Buckets<Ipv4Addr, C>,
    v6: [Tier<C>; 3],
}

struct Tier<C: Clock> {
    prefix: u32,
    networks: Buckets<u64, C>,
}

impl NetworkLimit {
    /// Allows `limit` to each network.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self::with_clock(limit, &DefaultClock::default())
    }
}

impl<C: Clock + Clone> NetworkLimit<C> {
    fn with_clock(limit: Limit, clock: &C) -> Self {
        let tier = |prefix, tenths, networks_max| Tier {
            prefix,
            networks: RateLimiter::new(
                limit.tenths(tenths).quota(),
                BoundedTable::new(networks_max),
                clock.clone(),
            ),
        };
        Self {
            v4: RateLimiter::new(limit.quota(), BoundedTable::new(NETWORKS_MAX), clock.clone()),
            v6: [tier(64, 1, NETWORKS_MAX), tier(56, 4, WIDE_NETWORKS_MAX), tier(48, 10, WIDE_NETWORKS_MAX)],
        }
    }

    /// Takes one request of `address`.
    ///
    /// # Errors
    /// In how many seconds one will be free. What a narrow network is refused costs the wider ones nothing, so a
    /// flood from one /64 leaves its neighbours alone.
    pub fn take(&self, address: IpAddr) -> Result<(), u32> {
        match address.to_canonical() {
            IpAddr::V4(v4) => take(&self.v4, &v4),
            IpAddr::V6(v6) => {
                let upper = (v6.to_bits() >> 64) as u64;
                self.v6.iter().try_for_each(|tier| take(&tier.networks, &(upper >> (64 - tier.prefix))))
            }
        }
    }

    /// Forgets networks that have their whole limit again.
    pub fn forget(&self) {
        self.v4.retain_recent();
        for tier in &self.v6 {
            tier.networks.retain_recent();
        }
    }

    /// How many networks are remembered.
    #[must_use]
    pub fn networks(&self) -> usize {
        self.v4.len() + self.v6.iter().map(|tier| tier.networks.len()).sum::<usize>()
    }
}

/// A limit per account, for calls with a ticket or a token. Whoever is behind one address with thousands of others is
/// held to their own share by this one.
pub struct AccountLimit {
    buckets: Option<Buckets<AccountHash, DefaultClock>>,
}

impl AccountLimit {
    /// Allows `limit` to each account; `None`: whatever they ask for.
    #[must_use]
    pub fn new(limit: Option<Limit>) -> Self {
        let buckets = |limit: Limit| {
            RateLimiter::new(limit.quota(), BoundedTable::new(ACCOUNTS_MAX), DefaultClock::default())
        };
        Self { buckets: limit.map(buckets) }
    }

    /// Takes one call of `account`.
    ///
    /// # Errors
    /// In how many seconds one will be free.
    pub fn take(&self, account: AccountHash) -> Result<(), u32> {
        self.buckets.as_ref().map_or(Ok(()), |buckets| take(buckets, &account))
    }

    /// Forgets accounts that have their whole limit again.
    pub fn forget(&self) {
        if let Some(buckets) = &self.buckets {
            buckets.retain_recent();
        }
    }
}

/// 429 `rate_limited`, for a network.
#[must_use]
pub fn rate_limited(seconds: u32) -> Problem {
    let detail = "Too many requests came from your network. Wait as long as Retry-After says, then try again; \
                  a place you have is kept.";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(seconds)
}

/// 429 `rate_limited`, for an account.
#[must_use]
pub fn account_rate_limited(seconds: u32) -> Problem {
    let detail = "Too many requests were made with this ticket or token. Wait as long as Retry-After says, then try \
                  again; your place is kept.";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv6Addr, time::Duration};

    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limit() -> (NetworkLimit<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (NetworkLimit::with_clock(Limit::new(10, 30), &clock), clock)
    }

    fn v6(upper: u64, lower: u64) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from_bits((u128::from(upper) << 64) | u128::from(lower)))
    }

    const BASE: u64 = 0x2001_0db8_0000_0000;

    #[test]
    fn f1_addresses_of_one_64_share_a_bucket() {
        let (limit, clock) = limit();
        let taken = |n: u64| (0..n).filter(|n| limit.take(v6(BASE, *n)).is_ok()).count();
        assert_eq!(taken(1_000), 3);
        clock.advance(Duration::from_secs(1));
        assert_eq!(taken(1_000), 1, "a tenth of ten a second");
    }

    #[test]
    fn f1_whoever_rotates_networks_meets_wider_buckets() {
        let (limit, _) = limit();
        let taken = (0..256).filter(|n| limit.take(v6(BASE + n, 1)).is_ok()).count();
        assert_eq!(taken, 12, "the /64s of one /56 have four tenths of the limit together");
        let taken = (1..256).filter(|n| limit.take(v6(BASE + (n << 8), 1)).is_ok()).count();
        assert_eq!(taken, 30 - 12, "the /56s of one /48 have the limit together");
        assert!(limit.take(v6(BASE + (1 << 16), 1)).is_ok(), "the next /48 has its own");
    }

    #[test]
    fn f1_a_flood_from_one_64_leaves_its_neighbours_alone() {
        let (limit, _) = limit();
        for n in 0..10_000 {
            let _ = limit.take(v6(BASE, n));
        }
        assert!(limit.take(v6(BASE + 1, 1)).is_ok());
    }

    #[test]
    fn f1_the_table_is_bounded_and_forgets_who_is_gone() {
        let (limit, clock) = limit();
        for n in 0..200_000u32 {
            let _ = limit.take(IpAddr::V4(Ipv4Addr::from_bits(n)));
        }
        assert!(limit.networks() <= NETWORKS_MAX, "{}", limit.networks());
        assert!(limit.take("198.51.100.1".parse().unwrap()).is_err(), "unknown networks share what is left");
        clock.advance(Duration::from_secs(60));
        limit.forget();
        assert_eq!(limit.networks(), 0);
        assert!(limit.take("198.51.100.1".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_network_above_its_limit_is_not_forgotten() {
        let (limit, clock) = limit();
        let address = "192.0.2.1".parse().unwrap();
        while limit.take(address).is_ok() {}
        clock.advance(Duration::from_millis(50));
        limit.forget();
        assert!(limit.take(address).is_err());
    }

    #[test]
    fn ipv4_counts_the_same_in_both_spellings_and_says_when() {
        let (limit, clock) = limit();
        let spellings = ["192.0.2.1", "::ffff:192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        for n in 0..30 {
            assert!(limit.take(spellings[n % 2]).is_ok());
        }
        assert_eq!(limit.take(spellings[0]), Err(1));
        assert!(limit.take("192.0.2.2".parse().unwrap()).is_ok());
        clock.advance(Duration::from_millis(100));
        assert!(limit.take(spellings[1]).is_ok());
    }

    #[test]
    fn accounts_have_their_own() {
        let limit = AccountLimit::new(Some(Limit::new(1, 5)));
        let account = |n| AccountHash::from_bytes([n; 16]);
        assert_eq!((0..50).filter(|_| limit.take(account(1)).is_ok()).count(), 5);
        assert!(limit.take(account(2)).is_ok());
        let off = AccountLimit::new(None);
        assert!((0..50).all(|_| off.take(account(1)).is_ok()));
    }

    #[test]
    fn limits_are_read_and_written_alike() {
        let limit: Limit = "200/s burst 10000".parse().unwrap();
        assert_eq!(limit, Limit::new(200, 10_000));
        assert_eq!(limit.to_string().parse::<Limit>().unwrap(), limit);
        for wrong in
            ["", "200", "200/s", "200/s burst", "0/s burst 1", "1/s burst 0", "-1/s burst 5", "1/m burst 2"]
        {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }
}
