//! PURE: sets of networks, asked on every request.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Networks as sorted ranges that do not touch: a look-up is one binary search and allocates nothing.
///
/// An IPv4 address and its IPv4-mapped IPv6 spelling (`::ffff:192.0.2.1`) are one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkSet {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl NetworkSet {
    /// The set of everything in `networks`.
    #[must_use]
    pub fn new(networks: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match unmapped(*network) {
                IpNet::V4(net) => v4.push((net.network().to_bits(), net.broadcast().to_bits())),
                IpNet::V6(net) => v6.push((net.network().to_bits(), net.broadcast().to_bits())),
            }
        }
        Self { v4: merged(v4, |n| n.checked_add(1)), v6: merged(v6, |n| n.checked_add(1)) }
    }

    /// Whether `address` belongs to one of the networks.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => holds(&self.v4, v4.to_bits()),
            IpAddr::V6(v6) => holds(&self.v6, v6.to_bits()),
        }
    }

    /// Whether there is no network in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// A network of IPv4-mapped addresses as the IPv4 network it means.
fn unmapped(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else { return network };
    match (v6.network().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (Some(base), Some(prefix)) => Ipv4Net::new(base, prefix).map_or(network, IpNet::V4),
        _ => network,
    }
}

fn merged<N: Copy + Ord>(mut ranges: Vec<(N, N)>, next: impl Fn(N) -> Option<N>) -> Box<[(N, N)]> {
    ranges.sort_unstable();
    let mut kept: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match kept.last_mut() {
            Some(before) if next(before.1).is_none_or(|next| first <= next) => before.1 = before.1.max(last),
            _ => kept.push((first, last)),
        }
    }
    kept.into()
}

fn holds<N: Copy + Ord>(ranges: &[(N, N)], wanted: N) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= wanted);
    after.checked_sub(1).is_some_and(|index| wanted <= ranges[index].1)
}

/// Reads one network: `192.0.2.0/24`, `2001:db8::/32`, or a single address.
///
/// # Errors
/// What is wrong, with the text. Bits beyond the prefix are refused: they are a slip of the pen that would widen or
/// narrow what was meant.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let network: IpNet = text.parse().map_err(|_| format!("'{text}' is no network in CIDR notation"))?;
    if network.addr() != network.network() {
        return Err(format!("'{text}' has bits beyond its prefix; the network is {}", network.trunc()));
    }
    Ok(network)
}

/// Reads networks separated by commas; empty text is none.
///
/// # Errors
/// As [`parse_network`].
pub fn parse_networks(text: &str) -> Result<Vec<IpNet>, String> {
    text.split(',').filter(|part| !part.trim().is_empty()).map(parse_network).collect()
}

/// This machine itself: 127.0.0.0/8 and ::1.
#[must_use]
pub fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new(Ipv4Addr::new(127, 0, 0, 0), 8).map(IpNet::V4);
    v4.into_iter().chain([IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST))]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network() -> impl Strategy<Value = IpNet> {
        // Few distinct leading bits, so that networks nest, touch and repeat.
        let v4 = (0u32..16, 24u8..=32).prop_map(|(n, prefix)| {
            Ipv4Net::new(Ipv4Addr::from_bits(n << 4), prefix).unwrap().trunc().into()
        });
        let v6 = (0u128..16, 60u8..=128).prop_map(|(n, prefix)| {
            ipnet::Ipv6Net::new(Ipv6Addr::from_bits((0x2001 << 112) | (n << 62)), prefix)
                .unwrap()
                .trunc()
                .into()
        });
        prop_oneof![v4, v6]
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = (0u32..300).prop_map(|n| IpAddr::V4(Ipv4Addr::from_bits(n)));
        let v6 =
            (0u128..80).prop_map(|n| IpAddr::V6(Ipv6Addr::from_bits((0x2001 << 112) | (n << 60) | (n & 3))));
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn the_set_holds_what_one_of_its_networks_holds(
            networks in proptest::collection::vec(network(), 0..12),
            address in address(),
        ) {
            let set = NetworkSet::new(&networks);
            prop_assert_eq!(set.contains(address), networks.iter().any(|net| net.contains(&address)));
        }
    }

    #[test]
    fn ends_of_the_address_space_and_mapped_spellings() {
        let all_v4 = NetworkSet::new(&parse_networks("0.0.0.0/1, 128.0.0.0/1").unwrap());
        for text in ["0.0.0.0", "255.255.255.255", "::ffff:192.0.2.1"] {
            assert!(all_v4.contains(text.parse().unwrap()), "{text}");
        }
        assert!(!all_v4.contains("2001:db8::1".parse().unwrap()));
        let all_v6 = NetworkSet::new(&parse_networks("::/0").unwrap());
        assert!(all_v6.contains("ffff::".parse().unwrap()));
        assert!(!all_v6.contains("192.0.2.1".parse().unwrap()), "::/0 means IPv6 only");
        let mapped = NetworkSet::new(&parse_networks("::ffff:10.0.0.0/104").unwrap());
        assert!(mapped.contains("10.1.2.3".parse().unwrap()));
        assert!(NetworkSet::default().is_empty());
    }

    #[test]
    fn slips_are_named() {
        assert!(parse_network("192.0.2.1/24").unwrap_err().contains("192.0.2.0/24"));
        for wrong in ["10.0.0.0/33", "10.0.0/8", "shop.example", "10.0.0.0/8 10.1.0.0/16"] {
            assert!(parse_network(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert_eq!(parse_networks(" , ").unwrap(), []);
    }
}
