//! The edge's decisions about one request, in the order of what they cost: who calls, may anybody call here, is the
//! address refused, is its network above its limit, is there more work than can be done.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::extract::Request;
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;

use super::{
    class::Class,
    client::{Caller, ForwardingHeader, client_address},
    lists::{Listed, LiveLists},
    load::{Begun, Load},
    networks::NetworkSet,
    origin::OriginSecrets,
    rate_limit::{AccountLimit, NetworkLimit, rate_limited},
    request_id,
    settings::EdgeSettings,
    slots::{Slot, Slots},
};
use crate::problem::Problem;

/// How often networks that are below their limits again are forgotten.
const FORGET_SECONDS: u64 = 1;

/// The edge of one process: its settings, and what it has seen so far. Listeners share it.
pub struct Edge {
    trusted: NetworkSet,
    forwarding_header: ForwardingHeader,
    unlimited: NetworkSet,
    origin_secrets: OriginSecrets,
    limits: [Option<NetworkLimit>; Class::ALL.len()],
    connections: Arc<Slots>,
    load: Load,
    lists: Arc<LiveLists>,
    accounts: Arc<AccountLimit>,
    is_https: bool,
    has_warned: AtomicBool,
}

/// A request that may go on.
pub(super) struct Passage {
    /// Its name.
    pub(super) id: HeaderValue,
    /// Whether it may, and the work it is until this is dropped.
    pub(super) verdict: Result<Option<Begun>, Problem>,
}

impl Default for Edge {
    fn default() -> Self {
        Self::new(EdgeSettings::default(), Arc::default())
    }
}

impl Edge {
    /// An edge with these settings, which asks `lists` on every request.
    #[must_use]
    pub fn new(settings: EdgeSettings, lists: Arc<LiveLists>) -> Self {
        let limits = Class::ALL.map(|class| {
            let limit = match class {
                Class::Enter => settings.enter_limit,
                Class::Turn => settings.turn_limit,
                Class::Checkout => settings.checkout_limit,
                Class::Pay => settings.pay_limit,
                Class::Callback => settings.callback_limit,
                Class::Health | Class::Operator | Class::Service | Class::Page | Class::Order => None,
            };
            limit.map(NetworkLimit::new)
        });
        Self {
            trusted: NetworkSet::new(&settings.trusted_proxies),
            forwarding_header: settings.forwarding_header,
            unlimited: NetworkSet::new(&settings.unlimited_networks),
            origin_secrets: settings.origin_secrets,
            limits,
            connections: Slots::new(settings.connections_per_network_max),
            load: Load::new(settings.in_flight_max),
            lists,
            accounts: Arc::new(AccountLimit::new(settings.account_limit)),
            is_https: settings.is_https,
            has_warned: AtomicBool::new(false),
        }
    }

    /// What each account is held to by the services that read its ticket or token.
    #[must_use]
    pub fn accounts(&self) -> Arc<AccountLimit> {
        Arc::clone(&self.accounts)
    }

    /// Whether browsers are told to come by HTTPS only.
    pub(super) fn is_https(&self) -> bool {
        self.is_https
    }

    /// A connection of `peer`: `Some(None)` when it is not counted, `None` when its network has as many as it may. A
    /// trusted proxy's connections are many people's.
    pub(super) fn connect(&self, peer: IpAddr) -> Option<Option<Slot>> {
        if self.trusted.contains(peer) || self.unlimited.contains(peer) {
            return Some(None);
        }
        self.connections.take(peer).map(Some)
    }

    /// Decides about a request, fills in its [`Caller`], and takes away what only we may say.
    pub(super) fn inspect(&self, request: &mut Request, class: Class) -> Passage {
        let caller = request.extensions().get::<Caller>().copied();
        let is_from_proxy = caller.is_some_and(|caller| self.trusted.contains(caller.peer.ip()));
        let given = if is_from_proxy { request_id::given(request.headers()) } else { None };
        let id = given.unwrap_or_else(request_id::made);
        let origin = if class.is_shoppers() { self.origin_secrets.check(request.headers()) } else { Ok(()) };
        strip_own_headers(request.headers_mut());
        let verdict = origin
            .and_then(|()| self.admit_caller(request, caller, class))
            .and_then(|()| self.load.begin(class, request.body_mut()));
        Passage { id, verdict }
    }

    fn admit_caller(
        &self,
        request: &mut Request,
        caller: Option<Caller>,
        class: Class,
    ) -> Result<(), Problem> {
        // A call inside this process came through no listener: it has no address.
        let Some(mut caller) = caller else { return Ok(()) };
        let peer = caller.peer.ip();
        caller.address = client_address(peer, request.headers(), &self.trusted, self.forwarding_header);
        self.warn_of_unknown_proxy(&caller, request.headers());
        let verdict = if class.is_shoppers() { self.limit(&mut caller, class) } else { Ok(()) };
        if let Some(kept) = request.extensions_mut().get_mut::<Caller>() {
            *kept = caller;
        }
        verdict
    }

    fn limit(&self, caller: &mut Caller, class: Class) -> Result<(), Problem> {
        match self.lists.ask(caller.address) {
            Listed::Allowed => return Ok(()),
            Listed::Denied => return Err(address_denied()),
            Listed::No => {}
        }
        let Some(limit) = &self.limits[class.index()] else { return Ok(()) };
        if self.unlimited.contains(caller.address) {
            return Ok(());
        }
        match limit.take(caller.address) {
            Ok(()) => Ok(()),
            // Whether an entry above the limit is refused depends on the sale: it may ask for proof of work first.
            Err(seconds) if class == Class::Enter => {
                caller.crowded_seconds = Some(seconds);
                Ok(())
            }
            Err(seconds) => Err(rate_limited(seconds)),
        }
    }

    /// Says once that a proxy on this machine is not trusted: then all shoppers look like one, and limits cannot work.
    fn warn_of_unknown_proxy(&self, caller: &Caller, headers: &HeaderMap) {
        let is_silent = !caller.peer.ip().is_loopback()
            || self.has_warned.load(Ordering::Relaxed)
            || self.trusted.contains(caller.peer.ip())
            || !headers.contains_key(self.forwarding_header.name());
        if !is_silent && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                header = self.forwarding_header.name().as_str(),
                "a proxy on this machine says for whom it speaks, but edge.trusted_proxies does not name it: every \
                 shopper counts as this machine, and limits hold nobody back"
            );
        }
    }

    /// Forgets who is below every limit again, once a second until `stop` is true: what requests must not wait for.
    pub async fn upkeep(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(FORGET_SECONDS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            for limit in self.limits.iter().flatten() {
                limit.forget();
            }
            self.accounts.forget();
            for class in Class::ALL {
                let in_flight = self.load.in_flight(class);
                if in_flight > 0 {
                    tracing::debug!(?class, in_flight, "requests being worked on");
                }
            }
        }
    }
}

fn address_denied() -> Problem {
    let detail = "Requests from your network are not accepted here. If that is a mistake, ask the shop.";
    Problem::forbidden("address_denied", detail)
}

/// Headers named `X-Lockgate-…` are ours to say: what a client sends under such a name is nobody's to believe.
fn strip_own_headers(headers: &mut HeaderMap) {
    // Names are lower-case already. Nearly always there is none, and nothing is allocated.
    while let Some(name) = headers.keys().find(|name| name.as_str().starts_with(OWN_PREFIX)).cloned() {
        headers.remove(name);
    }
}

const OWN_PREFIX: &str = "x-lockgate-";

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Method;

    use super::{super::rate_limit::Limit, *};

    fn edge() -> Edge {
        let networks = |text: &str| super::super::networks::parse_networks(text).unwrap();
        let settings = EdgeSettings {
            trusted_proxies: networks("127.0.0.0/8"),
            enter_limit: Some(Limit::new(1, 2)),
            turn_limit: Some(Limit::new(1, 2)),
            ..EdgeSettings::default()
        };
        Edge::new(settings, Arc::default())
    }

    fn request(peer: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(Method::POST).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Caller::new(peer.parse().unwrap()));
        request
    }

    fn caller(request: &Request) -> Caller {
        *request.extensions().get::<Caller>().unwrap()
    }

    #[test]
    fn s5_our_own_headers_are_taken_away_in_any_spelling() {
        let edge = edge();
        let given = [
            ("X-Lockgate-Account", "a"),
            ("x-lockgate-account", "b"),
            ("X-LOCKGATE-SALE", "c"),
            ("x-other", "d"),
        ];
        let mut request = request("127.0.0.1:9", &given);
        assert!(edge.inspect(&mut request, Class::Page).verdict.is_ok());
        let left: Vec<_> = request.headers().keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(left, ["x-other"]);
    }

    #[test]
    fn an_entry_above_the_limit_goes_on_and_says_so() {
        let edge = edge();
        let crowded = |address: &str| {
            let mut request = request("127.0.0.1:9", &[("x-forwarded-for", address)]);
            assert!(edge.inspect(&mut request, Class::Enter).verdict.is_ok());
            let caller = caller(&request);
            assert_eq!(caller.address.to_string(), address);
            caller.crowded_seconds
        };
        assert_eq!([crowded("192.0.2.1"), crowded("192.0.2.1")], [None, None]);
        assert_eq!(crowded("192.0.2.1"), Some(1));
        assert_eq!(crowded("192.0.2.2"), None);
    }

    #[test]
    fn what_a_stranger_says_about_itself_is_not_believed() {
        let edge = edge();
        let refused = (0..100)
            .filter(|n| {
                let forged = format!("203.0.113.{n}");
                let mut request =
                    request("192.0.2.1:9", &[("x-forwarded-for", &forged), ("x-request-id", "chosen-by-me")]);
                let passage = edge.inspect(&mut request, Class::Turn);
                assert_ne!(passage.id, "chosen-by-me");
                passage.verdict.is_err_and(|problem| problem.code == "rate_limited")
            })
            .count();
        assert_eq!(refused, 98);
        let mut request = request("127.0.0.1:9", &[("x-request-id", "chosen-by-the-proxy")]);
        assert_eq!(edge.inspect(&mut request, Class::Turn).id, "chosen-by-the-proxy");
    }

    #[test]
    fn c3_pages_and_operators_are_never_limited_and_operators_never_denied() {
        let edge = edge();
        let denied =
            super::super::lists::NetworkLists { deny: vec!["192.0.2.0/24".into()], ..Default::default() };
        edge.lists.set(&denied);
        let ask = |peer: &str, class| {
            edge.inspect(&mut request(peer, &[]), class).verdict.map(|_| ()).map_err(|p| p.code)
        };
        for _ in 0..1_000 {
            assert_eq!(ask("198.51.100.1:9", Class::Page), Ok(()));
        }
        assert_eq!(ask("192.0.2.7:9", Class::Page), Err("address_denied"));
        for class in [Class::Operator, Class::Health, Class::Service] {
            assert_eq!(ask("192.0.2.7:9", class), Ok(()));
        }
    }

    #[test]
    fn only_shoppers_need_the_origin_secret() {
        let mut settings = EdgeSettings::default();
        let secret = "s".repeat(32);
        settings.origin_secrets.add(&secret).unwrap();
        let edge = Edge::new(settings, Arc::default());
        let mut with = request("192.0.2.1:9", &[("x-lockgate-origin", &secret)]);
        assert!(edge.inspect(&mut with, Class::Page).verdict.is_ok());
        assert!(!with.headers().contains_key("x-lockgate-origin"), "nothing behind the edge sees it");
        for class in Class::ALL {
            let without = edge.inspect(&mut request("192.0.2.1:9", &[]), class).verdict.map_err(|p| p.code);
            assert_eq!(without.err(), class.is_shoppers().then_some("origin_required"), "{class:?}");
        }
    }

    #[test]
    fn this_machine_is_not_limited_unless_it_speaks_for_others() {
        let edge = Edge::new(
            EdgeSettings { turn_limit: Some(Limit::new(1, 1)), ..EdgeSettings::default() },
            Arc::default(),
        );
        for _ in 0..10 {
            assert!(edge.inspect(&mut request("127.0.0.1:9", &[]), Class::Turn).verdict.is_ok());
        }
        assert!(matches!(edge.connect("127.0.0.1".parse().unwrap()), Some(None)));
        assert!(matches!(edge.connect("192.0.2.1".parse().unwrap()), Some(Some(_))));
    }
}
