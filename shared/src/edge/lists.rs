//! Networks that are always let through or always refused: changed by operators while sales run, read by every
//! request without a lock.

use std::net::IpAddr;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::networks::{NetworkSet, parse_network};

/// Most networks in the two lists together.
pub const LISTED_NETWORKS_MAX: usize = 2_000;

/// The two lists as operators write them. Allowing outranks denying.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLists {
    /// Networks that no limit holds back and that are never refused by address.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Networks that are refused with 403 `address_denied`.
    #[serde(default)]
    pub deny: Vec<String>,
}

impl NetworkLists {
    /// The lists in their plain form: one spelling for each network, sorted, none twice.
    ///
    /// # Errors
    /// Every entry that is no network, by list and text; or that there are too many.
    pub fn checked(&self) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if self.allow.len() + self.deny.len() > LISTED_NETWORKS_MAX {
            problems.push(format!(
                "the lists hold {} networks, more than {LISTED_NETWORKS_MAX}: use wider ones",
                self.allow.len() + self.deny.len()
            ));
            return Err(problems);
        }
        let mut read = |name: &str, list: &[String]| {
            let mut networks: Vec<IpNet> = Vec::with_capacity(list.len());
            for text in list {
                match parse_network(text) {
                    Ok(network) => networks.push(network),
                    Err(problem) => problems.push(format!(
                        "{name}: {problem}; write a network such as 192.0.2.0/24 or 2001:db8::/32"
                    )),
                }
            }
            networks.sort_unstable();
            networks.dedup();
            networks.iter().map(ToString::to_string).collect()
        };
        let lists = Self { allow: read("allow", &self.allow), deny: read("deny", &self.deny) };
        if problems.is_empty() { Ok(lists) } else { Err(problems) }
    }

    fn sets(&self) -> Sets {
        let set = |list: &[String]| {
            let networks: Vec<IpNet> = list.iter().filter_map(|text| parse_network(text).ok()).collect();
            NetworkSet::new(&networks)
        };
        Sets { allow: set(&self.allow), deny: set(&self.deny) }
    }
}

#[derive(Debug, Default)]
struct Sets {
    allow: NetworkSet,
    deny: NetworkSet,
}

/// The lists as requests ask them.
#[derive(Debug, Default)]
pub struct LiveLists(ArcSwap<Sets>);

/// What the lists say about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Let through.
    Allowed,
    /// Refused.
    Denied,
    /// In neither.
    No,
}

impl LiveLists {
    /// From now on these count.
    pub fn set(&self, lists: &NetworkLists) {
        self.0.store(lists.sets().into());
    }

    /// What they say about `address`.
    #[must_use]
    pub fn ask(&self, address: IpAddr) -> Listed {
        let sets = self.0.load();
        if sets.allow.contains(address) {
            Listed::Allowed
        } else if sets.deny.contains(address) {
            Listed::Denied
        } else {
            Listed::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allow: &[&str], deny: &[&str]) -> NetworkLists {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        NetworkLists { allow: texts(allow), deny: texts(deny) }
    }

    #[test]
    fn allowing_outranks_denying() {
        let live = LiveLists::default();
        let ask = |text: &str| live.ask(text.parse().unwrap());
        assert_eq!(ask("192.0.2.1"), Listed::No);
        live.set(&lists(&["192.0.2.1"], &["192.0.2.0/24", "2001:db8::/32"]));
        assert_eq!(ask("192.0.2.1"), Listed::Allowed);
        assert_eq!(ask("192.0.2.2"), Listed::Denied);
        assert_eq!(ask("2001:db8::9"), Listed::Denied);
        assert_eq!(ask("198.51.100.1"), Listed::No);
        live.set(&NetworkLists::default());
        assert_eq!(ask("192.0.2.2"), Listed::No);
    }

    #[test]
    fn every_wrong_entry_is_named_and_right_ones_get_one_spelling() {
        let problems = lists(&["x"], &["192.0.2.1/24", "10.0.0.0/8"]).checked().unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("allow: 'x'") && problems[1].contains("192.0.2.0/24"),
            "{problems:?}"
        );
        let checked =
            lists(&[], &[" 10.0.0.0/8", "2001:DB8::/32", "10.0.0.0/8", "9.9.9.9"]).checked().unwrap();
        assert_eq!(checked.deny, ["9.9.9.9/32", "10.0.0.0/8", "2001:db8::/32"]);
        let many =
            NetworkLists { deny: vec!["10.0.0.0/8".into(); LISTED_NETWORKS_MAX + 1], ..lists(&[], &[]) };
        assert_eq!(many.checked().unwrap_err().len(), 1);
    }
}
