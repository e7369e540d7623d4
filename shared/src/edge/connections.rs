//! How many connections each client network holds, so that one that opens many and says nothing leaves room for all
//! others.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

/// A network that is counted: an IPv4 address, the /64 of an IPv6 address, and the /48 around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Network {
    V4(u32),
    V6Home(u64),
    V6Site(u64),
}

/// Connections by network. As big as there are connections, which the listener bounds.
#[derive(Debug)]
pub(super) struct Connections {
    per_network_max: u32,
    open: Mutex<HashMap<Network, u32>>,
}

/// An open connection that counts until it is dropped.
#[derive(Debug)]
pub(super) struct OpenConnection {
    connections: Arc<Connections>,
    networks: [Option<Network>; 2],
}

impl Connections {
    /// Allows `per_network_max` to an IPv4 address and to an IPv6 /48, and a tenth of it to a /64.
    pub(super) fn new(per_network_max: u32) -> Arc<Self> {
        Arc::new(Self { per_network_max, open: Mutex::default() })
    }

    /// Counts one more connection, or `None` when its network has as many as it may.
    pub(super) fn open(self: &Arc<Self>, address: IpAddr) -> Option<OpenConnection> {
        let networks = match address.to_canonical() {
            IpAddr::V4(v4) => [Some(Network::V4(v4.to_bits())), None],
            IpAddr::V6(v6) => {
                let upper = (v6.to_bits() >> 64) as u64;
                [Some(Network::V6Home(upper)), Some(Network::V6Site(upper >> 16))]
            }
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |network: &Network| {
            let most = match network {
                Network::V6Home(_) => self.per_network_max.div_ceil(10),
                Network::V4(_) | Network::V6Site(_) => self.per_network_max,
            };
            open.get(network).is_some_and(|count| *count >= most)
        };
        if networks.iter().flatten().any(is_full) {
            return None;
        }
        for network in networks.into_iter().flatten() {
            *open.entry(network).or_default() += 1;
        }
        Some(OpenConnection { connections: Arc::clone(self), networks })
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        for network in self.networks.into_iter().flatten() {
            if let Some(count) = open.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    open.remove(&network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f4_a_network_has_so_many_connections_and_gets_them_back() {
        let connections = Connections::new(20);
        let open = |text: &str| connections.open(text.parse().unwrap());
        let mut held: Vec<_> = (0..20).map(|_| open("192.0.2.1").unwrap()).collect();
        assert!(open("::ffff:192.0.2.1").is_none());
        assert!(open("192.0.2.2").is_some(), "others are unaffected");
        held.pop();
        assert!(open("192.0.2.1").is_some());
        drop(held);
        assert!(connections.open.lock().unwrap().is_empty());
    }

    #[test]
    fn f4_a_64_has_a_tenth_and_its_48_the_whole() {
        let connections = Connections::new(20);
        let mut held = Vec::new();
        let mut open = |upper: u16, lower: u16| {
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, upper, 0, 0, 0, lower);
            held.extend(connections.open(IpAddr::V6(address)));
            held.len()
        };
        assert_eq!((0..50).map(|n| open(0, n)).last(), Some(2));
        assert_eq!((1..100).map(|n| open(n, 1)).last(), Some(20));
    }
}
