//! What the local Stripe knows: sessions, payments, refunds; how calls change them, and what buyers do.

use std::collections::BTreeMap;

use http::{StatusCode, Uri};
use serde_json::{Value, json};

use crate::bank::{Bank, Refused, invalid, members, refused};

#[derive(Clone, Debug)]
pub struct Session {
    pub id: String,
    pub status: &'static str,
    pub payment_status: &'static str,
    pub amount: i64,
    pub currency: String,
    pub expires_at: i64,
    pub intent: Option<String>,
    pub metadata: Value,
    pub name: String,
    pub success_url: String,
    reference: String,
}

#[derive(Clone, Debug)]
pub struct Intent {
    pub status: &'static str,
    pub amount: i64,
    metadata: Value,
}

#[derive(Clone, Debug)]
pub struct Refund {
    pub intent: String,
    pub amount: i64,
    pub status: &'static str,
    /// What its metadata says.
    pub payment: String,
}

#[derive(Default)]
pub struct Books {
    pub sessions: Vec<Session>,
    pub intents: BTreeMap<String, Intent>,
    pub refunds: Vec<Refund>,
    /// How the next refund ends; it succeeds where nothing is said.
    pub next_refund: Option<&'static str>,
    /// The least that is charged.
    pub least: i64,
    events: u32,
}

type Answer = Result<(StatusCode, Value), Refused>;

fn missing(what: &str) -> Refused {
    refused(404, "invalid_request_error", Some("resource_missing"), Some(what), "No such thing")
}

fn ok(value: Value) -> Answer {
    Ok((StatusCode::OK, value))
}

fn list(data: &[Value]) -> Answer {
    ok(json!({"object": "list", "data": data, "has_more": false}))
}

const AMOUNT: &str = "line_items[0][price_data][unit_amount]";
const CURRENCY: &str = "line_items[0][price_data][currency]";
const NAME: &str = "line_items[0][price_data][product_data][name]";

type Form = BTreeMap<String, String>;

/// What is not known is refused, as Stripe does.
fn refuse_strangers(form: &Form) -> Result<(), Refused> {
    const KNOWN: [&str; 9] = [
        "mode",
        "client_reference_id",
        "line_items[0][quantity]",
        "success_url",
        "cancel_url",
        "expires_at",
        AMOUNT,
        CURRENCY,
        NAME,
    ];
    const BEGIN: [&str; 3] = ["metadata[", "payment_intent_data[metadata][", "payment_method_types["];
    let is_known = |key: &str| KNOWN.contains(&key) || BEGIN.iter().any(|begin| key.starts_with(begin));
    match form.keys().find(|key| !is_known(key)) {
        None => Ok(()),
        Some(stranger) => {
            let code = Some("parameter_unknown");
            Err(refused(400, "invalid_request_error", code, Some(stranger), "Received unknown parameter"))
        }
    }
}

fn need(form: &Form, key: &str) -> Result<String, Refused> {
    let found = form.get(key).filter(|value| !value.is_empty()).cloned();
    let code = Some("parameter_missing");
    found.ok_or_else(|| refused(400, "invalid_request_error", code, Some(key), "missing"))
}

fn number(form: &Form, key: &str) -> Result<i64, Refused> {
    need(form, key)?.parse().map_err(|_| invalid(key, "Invalid integer"))
}

fn metadata(form: &Form, begin: &str) -> Value {
    let inside = |(key, value): (&String, &String)| {
        let key = key.strip_prefix(begin)?.strip_suffix(']')?;
        Some((key.to_owned(), Value::String(value.clone())))
    };
    Value::Object(form.iter().filter_map(inside).collect())
}

impl Session {
    fn shown(&self, intent: Option<Value>) -> Value {
        let url = format!("https://checkout.stripe.example/c/pay/{}#fidkdWxOYHwnPyd1", self.id);
        json!({
            "id": self.id, "object": "checkout.session", "status": self.status, "mode": "payment",
            "payment_status": self.payment_status, "amount_total": self.amount, "currency": self.currency,
            "url": (self.status == "open").then_some(url), "expires_at": self.expires_at, "livemode": false,
            "payment_intent": intent.or_else(|| self.intent.clone().map(Value::String)),
            "metadata": self.metadata, "client_reference_id": self.reference,
            "customer_details": {"email": "buyer@example.org", "name": "Somebody"},
        })
    }
}

impl Books {
    pub fn expire_until(&mut self, now: i64) {
        for session in &mut self.sessions {
            if session.status == "open" && session.expires_at <= now {
                session.status = "expired";
            }
        }
    }

    fn session(&mut self, id: &str) -> Result<&mut Session, Refused> {
        self.sessions.iter_mut().find(|session| session.id == id).ok_or_else(|| missing("session"))
    }

    pub fn get(&mut self, uri: &Uri) -> Answer {
        let query = members(uri.query().unwrap_or_default());
        let path: Vec<&str> = uri.path().split('/').skip(2).collect();
        match path.as_slice() {
            ["checkout", "sessions", id] => {
                let session = self.session(id)?.clone();
                let expands = query.get("expand[]").map(String::as_str) == Some("payment_intent");
                let intent = session.intent.as_ref().filter(|_| expands).map(
                    |id| json!({"id": id, "object": "payment_intent", "status": self.intents[id].status}),
                );
                ok(session.shown(intent))
            }
            ["payment_intents", "search"] => {
                let wanted = |intent: &Intent| {
                    let payment = intent.metadata["lockgate_payment"].as_str().unwrap_or_default();
                    query["query"]
                        == format!(
                            "metadata[\"lockgate_payment\"]:\"{payment}\" AND status:\"{}\"",
                            intent.status
                        )
                };
                let found = self.intents.iter().filter(|(_, intent)| wanted(intent));
                let shown = found.map(|(id, _)| json!({"id": id, "object": "payment_intent"}));
                list(&shown.collect::<Vec<_>>())
            }
            ["refunds"] => {
                let of = |refund: &&Refund| refund.intent == query["payment_intent"];
                list(&self.refunds.iter().filter(of).map(Refund::shown).collect::<Vec<_>>())
            }
            _ => Err(missing("path")),
        }
    }

    pub fn post(&mut self, path: &str, form: &BTreeMap<String, String>, now: i64) -> Answer {
        let path: Vec<&str> = path.split('/').skip(2).collect();
        match path.as_slice() {
            ["checkout", "sessions"] => self.create(form, now),
            ["checkout", "sessions", id, "expire"] => {
                let session = self.session(id)?;
                if session.status != "open" {
                    let message = format!(
                        "Only Checkout Sessions with a status in [\"open\"] can be expired. This Session has a status \
                         of `{}`.",
                        session.status
                    );
                    return Err(refused(400, "invalid_request_error", None, None, &message));
                }
                session.status = "expired";
                ok(session.shown(None))
            }
            ["payment_intents", id, "cancel"] => {
                let intent = self.intents.get_mut(*id).ok_or_else(|| missing("intent"))?;
                if intent.status != "requires_payment_method" {
                    let code = Some("payment_intent_unexpected_state");
                    return Err(refused(400, "invalid_request_error", code, None, "You cannot cancel it"));
                }
                intent.status = "canceled";
                ok(json!({"id": id, "object": "payment_intent", "status": "canceled"}))
            }
            ["refunds"] => self.refund(form),
            _ => Err(missing("path")),
        }
    }

    fn create(&mut self, form: &BTreeMap<String, String>, now: i64) -> Answer {
        refuse_strangers(form)?;
        let amount = number(form, AMOUNT)?;
        if amount < self.least {
            let code = Some("amount_too_small");
            return Err(refused(400, "invalid_request_error", code, None, "Amount must be at least €0.50"));
        }
        let expires_at = number(form, "expires_at")?;
        if !(now + 1_800..=now + 86_400).contains(&expires_at) {
            return Err(invalid("expires_at", "The timestamp must be 30 minutes to 24 hours ahead"));
        }
        if need(form, "mode")? != "payment" || need(form, "line_items[0][quantity]")? != "1" {
            return Err(invalid("mode", "not what Lockgate sells"));
        }
        need(form, "cancel_url")?;
        let n = self.sessions.len() + 1;
        let intent = format!("pi_{n}");
        let behind = Intent {
            status: "requires_payment_method",
            amount,
            metadata: metadata(form, "payment_intent_data[metadata]["),
        };
        self.intents.insert(intent.clone(), behind);
        let session = Session {
            id: format!("cs_test_a{n}"),
            status: "open",
            payment_status: "unpaid",
            amount,
            currency: need(form, CURRENCY)?,
            expires_at,
            intent: Some(intent),
            metadata: metadata(form, "metadata["),
            name: need(form, NAME)?,
            success_url: need(form, "success_url")?,
            reference: need(form, "client_reference_id")?,
        };
        self.sessions.push(session.clone());
        ok(session.shown(None))
    }

    fn refund(&mut self, form: &BTreeMap<String, String>) -> Answer {
        let intent = form.get("payment_intent").ok_or_else(|| missing("payment_intent"))?.clone();
        let amount: i64 = form["amount"].parse().map_err(|_| invalid("amount", "Invalid integer"))?;
        let charged = self.intents.get(&intent).filter(|intent| intent.status == "succeeded");
        let charged = charged.ok_or_else(|| missing("charge"))?.amount;
        let given = self.given(&intent);
        if given == charged {
            let code = Some("charge_already_refunded");
            return Err(refused(
                400,
                "invalid_request_error",
                code,
                None,
                "Charge has already been refunded.",
            ));
        }
        if amount < 1 || given + amount > charged {
            return Err(invalid("amount", "Refund amount is greater than unrefunded amount on charge"));
        }
        let status = self.next_refund.take().unwrap_or("succeeded");
        let payment = form.get("metadata[lockgate_payment]").cloned().unwrap_or_default();
        self.refunds.push(Refund { intent, amount, status, payment });
        ok(self.refunds[self.refunds.len() - 1].shown())
    }

    /// What went back of a payment.
    pub fn given(&self, intent: &str) -> i64 {
        let of = |refund: &&Refund| refund.intent == intent && refund.status != "failed";
        self.refunds.iter().filter(of).map(|refund| refund.amount).sum()
    }

    fn event(&mut self, kind: &str, session: &Session) -> Value {
        self.event_of(&format!("checkout.session.{kind}"), &session.shown(None))
    }

    fn event_of(&mut self, kind: &str, object: &Value) -> Value {
        self.events += 1;
        json!({
            "id": format!("evt_{}", self.events), "object": "event", "api_version": crate::bank::VERSION,
            "type": kind, "livemode": false, "data": {"object": object},
        })
    }

    fn finish(
        &mut self,
        n: usize,
        kind: &str,
        session: (&'static str, &'static str),
        intent: &'static str,
    ) -> Value {
        let found = &mut self.sessions[n];
        (found.status, found.payment_status) = session;
        let copy = found.clone();
        let behind = self.intents.get_mut(copy.intent.as_ref().unwrap()).unwrap();
        (behind.status, behind.amount) = (intent, copy.amount);
        self.event(kind, &copy)
    }
}

impl Refund {
    fn shown(&self) -> Value {
        let metadata = json!({"lockgate_payment": self.payment});
        json!({"id": "re_1", "object": "refund", "amount": self.amount, "status": self.status, "metadata": metadata})
    }
}

/// What buyers and banks do. Each answers the event that tells of it; a test delivers it, or not.
impl Bank {
    fn open_session(&self, url: &str) -> usize {
        self.with(|inner| {
            let at = inner.books.sessions.iter().position(|s| url.contains(&s.id)).expect("no such page");
            assert_eq!(
                inner.books.sessions[at].status, "open",
                "Stripe's page says that the session is over"
            );
            at
        })
    }

    /// The buyer pays on the page at `url`.
    pub fn pay(&self, url: &str) -> Value {
        let n = self.open_session(url);
        self.with(|inner| inner.books.finish(n, "completed", ("complete", "paid"), "succeeded"))
    }

    /// The same, but another amount is charged.
    pub fn pay_other(&self, url: &str, amount: i64, currency: &str) -> Value {
        let n = self.open_session(url);
        self.with(|inner| {
            let session = &mut inner.books.sessions[n];
            (session.amount, session.currency) = (amount, currency.to_owned());
            inner.books.finish(n, "completed", ("complete", "paid"), "succeeded")
        })
    }

    /// The buyer chooses a method that takes its time.
    pub fn pay_slowly(&self, url: &str) -> Value {
        let n = self.open_session(url);
        self.with(|inner| inner.books.finish(n, "completed", ("complete", "unpaid"), "processing"))
    }

    /// What was paid slowly arrives.
    pub fn arrive(&self, n: usize) -> Value {
        self.with(|i| i.books.finish(n, "async_payment_succeeded", ("complete", "paid"), "succeeded"))
    }

    /// What was paid slowly does not arrive.
    pub fn bounce(&self, n: usize) -> Value {
        let intent = "requires_payment_method";
        self.with(|i| i.books.finish(n, "async_payment_failed", ("complete", "unpaid"), intent))
    }

    /// The event of a session that expired.
    pub fn expired(&self, n: usize) -> Value {
        self.with(|inner| {
            let session = inner.books.sessions[n].clone();
            assert_eq!(session.status, "expired");
            inner.books.event("expired", &session)
        })
    }

    pub fn session(&self, n: usize) -> Session {
        self.with(|inner| inner.books.sessions[n].clone())
    }

    pub fn sessions(&self) -> usize {
        self.with(|inner| inner.books.sessions.len())
    }

    /// The event of a refund that was taken on and then came back.
    pub fn refund_came_back(&self, n: usize) -> Value {
        self.with(|inner| {
            let refund = &mut inner.books.refunds[n];
            refund.status = "failed";
            let shown = refund.shown();
            inner.books.event_of("refund.failed", &shown)
        })
    }

    pub fn refunds(&self) -> Vec<Refund> {
        self.with(|inner| inner.books.refunds.clone())
    }
}
