//! What the edge costs before a handler is asked: nanoseconds for each of its parts, in one thread.
//!
//! `cargo bench -p lockgate-shared` prints medians of `ROUNDS` rounds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Instant,
};

use http::HeaderMap;
use lockgate_shared::edge::{
    client::{ForwardingHeader, client_address},
    lists::{LiveLists, NetworkLists},
    networks::{NetworkSet, parse_networks},
    rate_limit::{Limit, NetworkLimit},
};

const CALLS: u32 = 200_000;

fn median_nanoseconds(mut call: impl FnMut(u32)) -> f64 {
    let rounds = std::env::var("ROUNDS").ok().map_or(15, |text| text.parse().expect("a number"));
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let started = Instant::now();
            (0..CALLS).for_each(&mut call);
            started.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn headers(forwarded: &str) -> HeaderMap {
    // A request as a browser sends it: the header is one among many.
    let given = [
        ("host", "shop.example"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("accept", "application/json"),
        ("accept-language", "en;q=0.9"),
        ("accept-encoding", "gzip"),
        ("x-forwarded-for", forwarded),
        ("connection", "keep-alive"),
    ];
    given.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn v6(n: u32) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | (u128::from(n) << 64) | 1))
}

fn report(name: &str, call: impl FnMut(u32)) {
    println!("{name:<64} {:>7.0}", median_nanoseconds(call));
}

fn lists() -> LiveLists {
    let lists = LiveLists::default();
    let deny = (0..2_000).map(|n| format!("203.{}.{}.0/24", n / 250, n % 250)).collect();
    lists.set(&NetworkLists { allow: Vec::new(), deny });
    lists
}

/// A limit that remembers about as many networks as it can, so that look-ups miss caches as they do in a crowd.
fn crowded_limit() -> NetworkLimit {
    let limit = NetworkLimit::new(Limit::new(10_000_000, 10_000_000));
    for n in 0..60_000 {
        let _ = limit.take(IpAddr::V4(Ipv4Addr::from_bits(n)));
        let _ = limit.take(v6(n));
    }
    limit
}

fn main() {
    // `cargo test` builds benchmarks too, and must not run them.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let networks = parse_networks("10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fd00::/8").unwrap();
    let (trusted, peer) = (NetworkSet::new(&networks), "10.0.0.1".parse().unwrap());
    let address =
        |headers: &HeaderMap| client_address(peer, headers, &trusted, ForwardingHeader::XForwardedFor);
    let (one_v4, one_v6) = (headers("198.51.100.7, 10.0.0.9"), headers("2001:db8:1:2:3:4:5:6, 10.0.0.9"));
    let (lists, limit, least) = (lists(), crowded_limit(), NetworkLimit::new(Limit::new(1, 1)));
    let mut next = 0u32;
    let mut somebody = move || {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        next % 60_000
    };
    let together = |headers: &HeaderMap, limit: &NetworkLimit| {
        let address = address(headers);
        let _ = black_box((lists.ask(address), limit.take(address)));
    };
    println!("\nthe edge before a handler is asked, nanoseconds");
    report("client address, IPv4 behind two proxies", |_| {
        black_box(address(&one_v4));
    });
    report("client address, IPv6 behind two proxies", |_| {
        black_box(address(&one_v6));
    });
    report("2,000 listed networks asked", |n| {
        black_box(lists.ask(IpAddr::V4(Ipv4Addr::from_bits(n))));
    });
    report("rate limit, one of 60,000 IPv4 addresses", |_| {
        let _ = black_box(limit.take(IpAddr::V4(Ipv4Addr::from_bits(somebody()))));
    });
    report("rate limit, one of 60,000 IPv6 networks, three tiers", |_| {
        let _ = black_box(limit.take(v6(somebody())));
    });
    report("address, lists and rate limit together, IPv4", |_| together(&one_v4, &limit));
    report("address, lists and rate limit together, IPv6", |_| together(&one_v6, &limit));
    report("the same, refused, IPv4", |_| together(&one_v4, &least));
}
