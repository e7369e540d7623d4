//! How much of something each client network holds at a time, so that one that takes much leaves room for all others.

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

/// Slots by network. As big as there are slots taken, which whoever hands them out bounds.
#[derive(Debug)]
pub struct Slots {
    per_network_max: u32,
    taken: Mutex<HashMap<Network, u32>>,
}

/// A slot that counts until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    networks: [Option<Network>; 2],
}

impl Slots {
    /// Allows `per_network_max` to an IPv4 address and to an IPv6 /48, and a tenth of it to a /64.
    #[must_use]
    pub fn new(per_network_max: u32) -> Arc<Self> {
        Arc::new(Self { per_network_max, taken: Mutex::default() })
    }

    /// One more, or `None` when the network has as many as it may.
    #[must_use]
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let networks = match address.to_canonical() {
            IpAddr::V4(v4) => [Some(Network::V4(v4.to_bits())), None],
            IpAddr::V6(v6) => {
                let upper = (v6.to_bits() >> 64) as u64;
                [Some(Network::V6Home(upper)), Some(Network::V6Site(upper >> 16))]
            }
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |network: &Network| {
            let most = match network {
                Network::V6Home(_) => self.per_network_max.div_ceil(10),
                Network::V4(_) | Network::V6Site(_) => self.per_network_max,
            };
            taken.get(network).is_some_and(|count| *count >= most)
        };
        if networks.iter().flatten().any(is_full) {
            return None;
        }
        for network in networks.into_iter().flatten() {
            *taken.entry(network).or_default() += 1;
        }
        Some(Slot { slots: Arc::clone(self), networks })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for network in self.networks.into_iter().flatten() {
            if let Some(count) = taken.get_mut(&network) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(&network);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f4_a_network_has_so_many_and_gets_them_back() {
        let slots = Slots::new(20);
        let take = |text: &str| slots.take(text.parse().unwrap());
        let mut held: Vec<_> = (0..20).map(|_| take("192.0.2.1").unwrap()).collect();
        assert!(take("::ffff:192.0.2.1").is_none());
        assert!(take("192.0.2.2").is_some(), "others are unaffected");
        held.pop();
        assert!(take("192.0.2.1").is_some());
        drop(held);
        assert!(slots.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn f4_a_64_has_a_tenth_and_its_48_the_whole() {
        let slots = Slots::new(20);
        let mut held = Vec::new();
        let mut take = |upper: u16, lower: u16| {
            let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, upper, 0, 0, 0, lower);
            held.extend(slots.take(IpAddr::V6(address)));
            held.len()
        };
        assert_eq!((0..50).map(|n| take(0, n)).last(), Some(2));
        assert_eq!((1..100).map(|n| take(n, 1)).last(), Some(20));
    }
}
