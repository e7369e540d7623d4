//! What an operator may set about the edge, with defaults that suit a shop whose shoppers come through carriers' NATs.

use ipnet::IpNet;

use super::{client::ForwardingHeader, networks::loopback, origin::OriginSecrets, rate_limit::Limit};
use crate::limits::{CONNECTIONS_PER_NETWORK_MAX, IN_FLIGHT_MAX};

/// The edge's settings. A limit that is `None` is off.
#[derive(Clone, Debug)]
pub struct EdgeSettings {
    /// Proxies that say the truth about whom they speak for.
    pub trusted_proxies: Vec<IpNet>,
    /// Where they say it.
    pub forwarding_header: ForwardingHeader,
    /// Networks without rate limits and without a bound on their connections. This machine, unless set: what stands
    /// between it and the shoppers is a proxy, and one bucket for all of them would shut out the crowd.
    pub unlimited_networks: Vec<IpNet>,
    /// Without one of these nobody is served but operators, services and health checks.
    pub origin_secrets: OriginSecrets,
    /// Entering, per network.
    pub enter_limit: Option<Limit>,
    /// Taking up a turn and leaving, per network.
    pub turn_limit: Option<Limit>,
    /// Claiming units, per network.
    pub checkout_limit: Option<Limit>,
    /// Starting and cancelling payments, per network.
    pub pay_limit: Option<Limit>,
    /// Returns from the gateway, per network.
    pub callback_limit: Option<Limit>,
    /// Calls with one ticket's or token's account.
    pub account_limit: Option<Limit>,
    /// Most connections of an IPv4 address.
    pub connections_per_network_max: u32,
    /// Most requests of one class that a process works on at a time.
    pub in_flight_max: usize,
    /// Whether browsers are told to come by HTTPS only; shoppers' addresses begin with `https`.
    pub is_https: bool,
}

/// What entering is limited to without a setting: five thousand people behind one address get in at once, twice.
pub const ENTER_LIMIT: Limit = Limit::new(200, 10_000);
/// What taking up turns is limited to without a setting.
pub const TURN_LIMIT: Limit = Limit::new(1_000, 20_000);
/// What claiming is limited to without a setting.
pub const CHECKOUT_LIMIT: Limit = Limit::new(500, 10_000);
/// What starting payments is limited to without a setting.
pub const PAY_LIMIT: Limit = Limit::new(200, 5_000);
/// What returns from the gateway are limited to without a setting.
pub const CALLBACK_LIMIT: Limit = Limit::new(200, 2_000);
/// What one account is limited to without a setting: fifty tabs may all come at once, and again.
pub const ACCOUNT_LIMIT: Limit = Limit::new(10, 200);

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            forwarding_header: ForwardingHeader::default(),
            unlimited_networks: loopback(),
            origin_secrets: OriginSecrets::default(),
            enter_limit: Some(ENTER_LIMIT),
            turn_limit: Some(TURN_LIMIT),
            checkout_limit: Some(CHECKOUT_LIMIT),
            pay_limit: Some(PAY_LIMIT),
            callback_limit: Some(CALLBACK_LIMIT),
            account_limit: Some(ACCOUNT_LIMIT),
            connections_per_network_max: CONNECTIONS_PER_NETWORK_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            is_https: false,
        }
    }
}
