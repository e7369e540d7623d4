//! PURE: who calls. The client's address is found by walking the forwarding header from its right end, as far as
//! trusted proxies wrote it; whatever stands further left anybody may have written.

use core::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};

use super::networks::NetworkSet;

/// Most entries of the forwarding header that are looked at.
pub const HOPS_MAX: usize = 16;

/// The header in which trusted proxies say whom they speak for. One of the two, never both: a proxy that writes one
/// lets the other through as the client sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: client, proxy1, proxy2`.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=client, for=proxy1` (RFC 7239).
    Forwarded,
}

impl ForwardingHeader {
    /// The header's name.
    #[must_use]
    pub fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => header::FORWARDED,
        }
    }
}

/// Who calls, as far as the edge knows: an extension of every request that came through a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The other end of the connection: a client or a proxy.
    pub peer: SocketAddr,
    /// The client. Until the edge has looked, the peer.
    pub address: IpAddr,
    /// Set where the client's network is above its limit of entries, on routes that may ask for proof of work before
    /// they refuse: in how many seconds the network is below it again.
    pub crowded_seconds: Option<u32>,
}

impl Caller {
    /// A caller of whom only the connection is known.
    #[must_use]
    pub fn new(peer: SocketAddr) -> Self {
        Self { peer, address: peer.ip().to_canonical(), crowded_seconds: None }
    }
}

/// The client's address: the first address from the right that is no trusted proxy's. Without trusted proxies the
/// peer. An entry that is no address ends the walk at the proxy that passed it on, and so does the bound of
/// [`HOPS_MAX`] entries.
#[must_use]
pub fn client_address(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &NetworkSet,
    header: ForwardingHeader,
) -> IpAddr {
    let mut believed = peer.to_canonical();
    if !trusted.contains(believed) {
        return believed;
    }
    // A line that is no text holds one entry that is no address.
    let lines = headers.get_all(header.name()).iter().rev().map(|line| line.to_str().unwrap_or("?"));
    for entry in lines.flat_map(|line| line.rsplit(',')).take(HOPS_MAX) {
        let named = match header {
            ForwardingHeader::XForwardedFor => node(entry.trim()),
            ForwardingHeader::Forwarded => forwarded_for(entry).and_then(node),
        };
        let Some(address) = named else { return believed };
        believed = address;
        if !trusted.contains(believed) {
            return believed;
        }
    }
    believed
}

/// The `for` of one element, without its quotes. A quoted comma cuts an element in two halves of which none names a
/// node, which only ends the walk.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut found = None;
    for pair in element.split(';') {
        let (name, value) = pair.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("for") {
            if found.is_some() {
                return None;
            }
            let value = value.trim();
            let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            found = Some(inner.unwrap_or(value));
        }
    }
    found
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn node(text: &str) -> Option<IpAddr> {
    let address = match text.as_bytes().first()? {
        b'[' => match text.strip_prefix('[')?.strip_suffix(']') {
            Some(inner) => IpAddr::V6(inner.parse().ok()?),
            None => text.parse::<SocketAddr>().ok()?.ip(),
        },
        _ => match text.parse() {
            Ok(address) => address,
            Err(_) => IpAddr::V4(*text.parse::<core::net::SocketAddrV4>().ok()?.ip()),
        },
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::networks::parse_networks, *};

    fn trusted() -> NetworkSet {
        NetworkSet::new(&parse_networks("10.0.0.0/8, fd00::/8").unwrap())
    }

    fn headers(name: &str, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(HeaderName::try_from(name).unwrap(), line.parse().unwrap());
        }
        headers
    }

    fn walk(peer: &str, lines: &[&str]) -> String {
        let headers = headers("x-forwarded-for", lines);
        client_address(peer.parse().unwrap(), &headers, &trusted(), ForwardingHeader::XForwardedFor)
            .to_string()
    }

    fn walk_forwarded(lines: &[&str]) -> String {
        let headers = headers("forwarded", lines);
        client_address("10.0.0.1".parse().unwrap(), &headers, &trusted(), ForwardingHeader::Forwarded)
            .to_string()
    }

    #[test]
    fn the_walk_ends_at_the_first_address_that_is_no_proxy() {
        assert_eq!(walk("192.0.2.9", &["1.1.1.1"]), "192.0.2.9", "an untrusted peer is the client");
        assert_eq!(walk("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(walk("10.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        assert_eq!(walk("10.0.0.1", &["8.8.8.8, 192.0.2.7, 10.0.0.2"]), "192.0.2.7");
        assert_eq!(walk("10.0.0.1", &["8.8.8.8", "192.0.2.7,10.0.0.2"]), "192.0.2.7");
        assert_eq!(walk("::ffff:10.0.0.1", &["[2001:db8::7]:443"]), "2001:db8::7");
        assert_eq!(walk("fd00::1", &["2001:db8::7"]), "2001:db8::7");
        assert_eq!(walk("10.0.0.1", &["192.0.2.7:50000"]), "192.0.2.7");
        assert_eq!(walk("10.0.0.1", &["10.0.0.5, 10.0.0.4"]), "10.0.0.5", "proxies all the way");
    }

    #[test]
    fn what_is_no_address_ends_the_walk() {
        for wrong in [
            "unknown",
            "",
            " ",
            "1.2.3",
            "2001:db8::7:",
            "[2001:db8::7",
            "a, ",
            "1.1.1.1 2.2.2.2",
            "[1.1.1.1]",
        ] {
            assert_eq!(walk("10.0.0.1", &[&format!("1.1.1.1, {wrong}")]), "10.0.0.1", "{wrong:?}");
            assert_eq!(walk("10.0.0.1", &[&format!("1.1.1.1, {wrong}, 10.0.0.2")]), "10.0.0.2", "{wrong:?}");
        }
        let bytes = http::HeaderValue::from_bytes(b"1.1.1.1, \xff").unwrap();
        let headers = HeaderMap::from_iter([(HeaderName::from_static("x-forwarded-for"), bytes)]);
        let peer = "10.0.0.1".parse().unwrap();
        assert_eq!(client_address(peer, &headers, &trusted(), ForwardingHeader::XForwardedFor), peer);
        let many = vec!["10.0.0.9"; 5_000].join(",");
        assert_eq!(walk("10.0.0.1", &["192.0.2.7", &many]), "10.0.0.9", "bounded");
    }

    #[test]
    fn forwarded_is_read_by_its_own_rules() {
        assert_eq!(walk_forwarded(&["for=192.0.2.7;proto=https;by=10.0.0.1"]), "192.0.2.7");
        assert_eq!(walk_forwarded(&["For=\"[2001:db8::7]:4711\""]), "2001:db8::7");
        assert_eq!(walk_forwarded(&["for=8.8.8.8, proto=https; for=192.0.2.7, for=10.0.0.2"]), "192.0.2.7");
        // The client opened a quote in the hope to swallow what the proxy appends.
        assert_eq!(walk_forwarded(&["for=\"8.8.8.8, for=192.0.2.7"]), "192.0.2.7");
        for wrong in
            ["for=_hidden", "for=unknown", "proto=https", "for", "for=192.0.2.7;for=8.8.8.8", "by=\"a,b\""]
        {
            assert_eq!(walk_forwarded(&[&format!("for=8.8.8.8, {wrong}")]), "10.0.0.1", "{wrong}");
        }
    }

    #[test]
    fn the_header_that_the_proxies_do_not_write_is_not_read() {
        let mut headers = headers("x-forwarded-for", &["192.0.2.7"]);
        headers.insert("forwarded", "for=8.8.8.8".parse().unwrap());
        let peer = "10.0.0.1".parse().unwrap();
        let address = client_address(peer, &headers, &trusted(), ForwardingHeader::XForwardedFor);
        assert_eq!(address.to_string(), "192.0.2.7");
    }

    fn client() -> impl Strategy<Value = IpAddr> {
        let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(bits.into()));
        let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()).to_canonical());
        prop_oneof![v4, v6].prop_filter("no proxy", |address| !trusted().contains(*address))
    }

    proptest! {
        #[test]
        fn forged_entries_are_never_believed(
            client in client(),
            forged in proptest::collection::vec("[ -~]{0,40}", 0..4),
            proxies in proptest::collection::vec(0u8..255, 0..8),
        ) {
            let mut lines: Vec<String> = forged;
            let own = std::iter::once(client.to_string())
                .chain(proxies.iter().map(|n| format!("10.1.2.{n}")))
                .collect::<Vec<_>>();
            lines.push(own.join(", "));
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(walk("10.0.0.1", &lines), client.to_string());
        }

        #[test]
        fn without_trusted_proxies_the_peer_is_the_client(
            peer in client(),
            lines in proptest::collection::vec("[0-9a-f:., \\[\\]]{0,60}", 0..4),
        ) {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let headers = headers("x-forwarded-for", &lines);
            let nobody = NetworkSet::default();
            for header in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded] {
                prop_assert_eq!(client_address(peer, &headers, &nobody, header), peer);
            }
        }
    }
}
