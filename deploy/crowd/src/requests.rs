//! PURE. Each step as an HTTP request.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use crate::{
    board::Board,
    buy::Purchase,
    shopper::{Garbage, Shopper, Step},
};

/// A request ready to be sent.
pub type Ready = Request<Full<Bytes>>;

/// What every request of a run has in common.
pub struct Requests {
    host: HeaderValue,
    sale: String,
    keys: String,
    enter: Uri,
    status: Uri,
    admit: Uri,
    leave: Uri,
    checkout: Uri,
    nowhere: Uri,
}

/// A body one byte above the contract's bound.
const TOO_LARGE_BYTES: usize = 16 * 1024 + 1;

impl Requests {
    /// Requests of this run: `keys` begins every idempotency key.
    ///
    /// # Errors
    /// The sale's name does not fit an address.
    pub fn new(authority: &str, sale: &str, keys: String) -> Result<Self, String> {
        let uri = |path: &str| {
            format!("/sale/{sale}/{path}")
                .parse::<Uri>()
                .map_err(|error| format!("the sale '{sale}': {error}"))
        };
        Ok(Self {
            host: HeaderValue::try_from(authority)
                .map_err(|error| format!("the target '{authority}': {error}"))?,
            sale: sale.to_owned(),
            keys,
            enter: uri("enter")?,
            status: uri("status")?,
            admit: uri("admit")?,
            leave: uri("leave")?,
            checkout: uri("checkout")?,
            nowhere: Uri::from_static("/sale/no-such-sale-here/status"),
        })
    }

    /// The public status; with the tag of a copy at hand, or with a cookie that must not matter.
    #[must_use]
    pub fn public_status(&self, etag: Option<&str>, cookie: bool) -> Ready {
        let mut request = self.request(Method::GET, self.status.clone(), Bytes::new());
        if let Some(value) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
            request.headers_mut().insert(header::IF_NONE_MATCH, value);
        }
        if cookie {
            let text = format!("__Host-lockgate-ticket-{}=somebody; theme=dark", self.sale);
            if let Ok(value) = HeaderValue::try_from(text) {
                request.headers_mut().insert(header::COOKIE, value);
            }
        }
        request
    }

    /// Taking a place: under the key of the `who`-th, or as somebody without one; with the work done for it.
    #[must_use]
    pub fn enter(&self, who: Option<u32>, proof: Option<&str>) -> Ready {
        let request = match proof {
            Some(proof) => self.json(self.enter.clone(), Bytes::from(format!("{{\"proof\":\"{proof}\"}}"))),
            None => self.post(self.enter.clone(), None),
        };
        match who {
            Some(who) => self.keyed(request, who),
            None => request,
        }
    }

    /// The shopper's pending step.
    #[must_use]
    pub fn of(
        &self,
        who: u32,
        shopper: &Shopper,
        board: &Board,
        purchases: &HashMap<u32, Purchase>,
    ) -> Ready {
        let ticket = shopper.ticket.as_deref();
        let purchase = purchases.get(&who);
        match shopper.step {
            Step::Garbage(kind) => self.garbage(kind),
            Step::Enter | Step::EnterByKey => self.keyed(self.post(self.enter.clone(), None), who),
            Step::EnterByTicket => self.post(self.enter.clone(), ticket),
            Step::Status | Step::LastStatus => {
                bearing(self.request(Method::GET, self.status.clone(), Bytes::new()), ticket)
            }
            Step::Admit | Step::AdmitAgain | Step::AdmitAfterLeaving => self.post(self.admit.clone(), ticket),
            Step::Leave => self.post(self.leave.clone(), ticket),
            Step::Claim => {
                let item =
                    purchase.and_then(|purchase| board.items.get(purchase.item)).map_or("", String::as_str);
                let body = format!("{{\"item\":\"{item}\",\"quantity\":1}}");
                let request = self.json(self.checkout.clone(), Bytes::from(body));
                self.keyed(bearing(request, purchase.map(|purchase| purchase.token.as_str())), who)
            }
            Step::Pay => bearing(
                self.request(Method::POST, order_uri(purchase, "/pay"), Bytes::new()),
                key_of(purchase),
            ),
            Step::Order => {
                bearing(self.request(Method::GET, order_uri(purchase, ""), Bytes::new()), key_of(purchase))
            }
            Step::PayAtGateway => {
                let page = purchase.and_then(|purchase| purchase.page.parse().ok()).unwrap_or_default();
                let body = Bytes::from_static(b"outcome=paid");
                typed(self.request(Method::POST, page, body), "application/x-www-form-urlencoded")
            }
        }
    }

    fn garbage(&self, kind: Garbage) -> Ready {
        match kind {
            Garbage::Ticket => bearing(
                self.request(Method::GET, self.status.clone(), Bytes::new()),
                Some("bm90LWEtdGlja2V0"),
            ),
            Garbage::Body => self.json(self.enter.clone(), Bytes::from_static(b"{\"first_in_line\":true}")),
            Garbage::MediaType => typed(
                self.request(Method::POST, self.enter.clone(), Bytes::from_static(b"please")),
                "text/plain",
            ),
            Garbage::NoTicket => self.post(self.admit.clone(), None),
            Garbage::TooLarge => self.json(self.enter.clone(), Bytes::from(vec![b' '; TOO_LARGE_BYTES])),
            Garbage::NoSuchSale => self.request(Method::GET, self.nowhere.clone(), Bytes::new()),
        }
    }

    /// Taking the place of a code on the sale's list.
    #[must_use]
    pub fn enter_with_code(&self, code: &str, email: &str) -> Ready {
        let body = serde_json::json!({ "code": code, "email": email }).to_string();
        self.json(self.enter.clone(), Bytes::from(body))
    }

    /// The personal status of a ticket.
    #[must_use]
    pub fn personal_status(&self, ticket: &str) -> Ready {
        bearing(self.request(Method::GET, self.status.clone(), Bytes::new()), Some(ticket))
    }

    /// Being admitted.
    #[must_use]
    pub fn admit(&self, ticket: &str) -> Ready {
        self.post(self.admit.clone(), Some(ticket))
    }

    /// The `nth` claim of the `who`-th.
    #[must_use]
    pub fn claim(&self, token: &str, item: &str, quantity: u32, (who, nth): (u32, u32)) -> Ready {
        let body = serde_json::json!({ "item": item, "quantity": quantity }).to_string();
        let mut request = bearing(self.json(self.checkout.clone(), Bytes::from(body)), Some(token));
        if let Ok(value) = HeaderValue::try_from(format!("{}-{who}-{nth}", self.keys)) {
            request.headers_mut().insert("idempotency-key", value);
        }
        request
    }

    /// An order (`rest` is empty), or something done to it, by its access key.
    #[must_use]
    pub fn order(&self, method: Method, id: &str, rest: &str, access_key: &str) -> Ready {
        let uri = format!("/orders/{id}{rest}").parse().unwrap_or_default();
        bearing(self.request(method, uri, Bytes::new()), Some(access_key))
    }

    /// Paying on the gateway's page.
    #[must_use]
    pub fn pay_at(&self, page: &str) -> Ready {
        let page = page.parse().unwrap_or_default();
        let body = Bytes::from_static(b"outcome=paid");
        typed(self.request(Method::POST, page, body), "application/x-www-form-urlencoded")
    }

    /// Following a link.
    #[must_use]
    pub fn get(&self, path: &str) -> Ready {
        self.request(Method::GET, path.parse().unwrap_or_default(), Bytes::new())
    }

    fn request(&self, method: Method, uri: Uri, body: Bytes) -> Ready {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        request.headers_mut().insert(header::HOST, self.host.clone());
        request
    }

    fn post(&self, uri: Uri, ticket: Option<&str>) -> Ready {
        bearing(self.request(Method::POST, uri, Bytes::new()), ticket)
    }

    fn json(&self, uri: Uri, body: Bytes) -> Ready {
        typed(self.request(Method::POST, uri, body), "application/json")
    }

    fn keyed(&self, mut request: Ready, who: u32) -> Ready {
        if let Ok(value) = HeaderValue::try_from(format!("{}-{who}", self.keys)) {
            request.headers_mut().insert("idempotency-key", value);
        }
        request
    }
}

fn typed(mut request: Ready, media_type: &'static str) -> Ready {
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    request
}

fn bearing(mut request: Ready, credential: Option<&str>) -> Ready {
    if let Some(value) = credential.and_then(|text| HeaderValue::try_from(format!("Bearer {text}")).ok()) {
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    request
}

fn order_uri(purchase: Option<&Purchase>, rest: &str) -> Uri {
    let id = purchase.map_or("", |purchase| purchase.order_id.as_str());
    format!("/orders/{id}{rest}").parse().unwrap_or_default()
}

fn key_of(purchase: Option<&Purchase>) -> Option<&str> {
    purchase.map(|purchase| purchase.access_key.as_str())
}
