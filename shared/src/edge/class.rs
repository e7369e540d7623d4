//! PURE: what kind of work a request asks for. Limits and load shedding are kept by class, so that one kind of flood
//! does not take what another needs.

use http::Method;

/// A class of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Health checks: never refused, whatever happens.
    Health,
    /// Operators, by their own key: never shed, so that a sale can be steered while it is stormed.
    Operator,
    /// Other services and gateways, by their own credentials.
    Service,
    /// Pages, assets and polls: cheap, and never the victims of our own limits.
    Page,
    /// Taking a place in line.
    Enter,
    /// Taking up a turn, leaving, renewing an admission and giving it back.
    Turn,
    /// Claiming units.
    Checkout,
    /// Looking at an order: a page that refreshes itself, but each time asks the orders' store.
    Order,
    /// Starting and cancelling payments.
    Pay,
    /// Coming back from the gateway: each asks the gateway something.
    Callback,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 10] = [
        Self::Health,
        Self::Operator,
        Self::Service,
        Self::Page,
        Self::Enter,
        Self::Turn,
        Self::Checkout,
        Self::Order,
        Self::Pay,
        Self::Callback,
    ];

    /// The class of a request, by its method and the pattern of its route; without a route nothing is there to do.
    #[must_use]
    pub fn of(method: &Method, route: Option<&str>) -> Self {
        let Some(route) = route else { return Self::Page };
        match (method, route) {
            (_, "/healthz" | "/readyz") => Self::Health,
            (&Method::POST, "/sale/{sale}/enter") => Self::Enter,
            (&Method::POST, "/sale/{sale}/checkout") => Self::Checkout,
            (&Method::POST, "/orders/{order_id}/pay" | "/orders/{order_id}/cancel") => Self::Pay,
            (_, "/orders/{order_id}") => Self::Order,
            (_, "/payment/callback") => Self::Callback,
            (_, "/payment/webhook") => Self::Service,
            (_, "/metrics" | "/simulated-gateway/behaviour" | "/simulated-gateway/paid-ahead") => {
                Self::Operator
            }
            (_, route) if route.starts_with("/operator") => Self::Operator,
            (_, route) if route.starts_with("/gate/") || route.starts_with("/simulated-gateway/") => {
                Self::Service
            }
            // Only what is looked at is a page. Whatever else comes to a sale's addresses changes something.
            (&Method::GET | &Method::HEAD, _) => Self::Page,
            (_, route) if route.starts_with("/sale/") => Self::Turn,
            _ => Self::Page,
        }
    }

    /// Whether it is a shopper who asks: only they are told apart by address, pass the content delivery network, and
    /// have a use for a later answer.
    #[must_use]
    pub fn is_shoppers(self) -> bool {
        !matches!(self, Self::Health | Self::Operator | Self::Service)
    }

    /// Its place in tables by class.
    #[must_use]
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_polls_and_assets_are_pages() {
        for route in [
            "/",
            "/sale/{sale}",
            "/sale/{sale}/status",
            "/sale/{sale}/queue",
            "/sale/{sale}/draw",
            "/sale/{sale}/challenge",
            "/sale/{sale}/checkout",
            "/assets/lockgate.css",
            "/assets/{file}",
        ] {
            assert_eq!(Class::of(&Method::GET, Some(route)), Class::Page, "{route}");
        }
        assert_eq!(Class::of(&Method::GET, None), Class::Page);
    }

    #[test]
    fn each_kind_of_work_has_its_class() {
        let of = |method: Method, route: &str| Class::of(&method, Some(route));
        assert_eq!(of(Method::POST, "/sale/{sale}/enter"), Class::Enter);
        for verb in ["admit", "leave", "renew", "release", "whatever-comes-next"] {
            assert_eq!(of(Method::POST, &format!("/sale/{{sale}}/{verb}")), Class::Turn, "{verb}");
        }
        assert_eq!(of(Method::POST, "/sale/{sale}/checkout"), Class::Checkout);
        assert_eq!(of(Method::POST, "/orders/{order_id}/cancel"), Class::Pay);
        assert_eq!(of(Method::GET, "/orders/{order_id}"), Class::Order);
        assert_eq!(of(Method::GET, "/operator"), Class::Operator);
        assert_eq!(of(Method::PUT, "/operator/v1/sales/{sale}"), Class::Operator);
        assert_eq!(of(Method::POST, "/gate/v1/sales/{sale}/claims"), Class::Service);
        assert_eq!(of(Method::POST, "/payment/webhook"), Class::Service);
        assert_eq!(of(Method::GET, "/readyz"), Class::Health);
        for (place, class) in Class::ALL.iter().enumerate() {
            assert_eq!(class.index(), place);
        }
    }
}
