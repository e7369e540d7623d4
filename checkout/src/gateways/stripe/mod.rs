//! Stripe Checkout: the buyer pays on Stripe's page, Stripe says so by webhook.
//!
//! | to find | look in |
//! |---|---|
//! | calls, their bounds, the version of the API | [`API_VERSION`], `api` |
//! | what a session is asked for with, and what one means | `session` |
//! | what an event means | `events` |
//! | how webhooks are signed | [`signature`] |
//! | amounts as Stripe counts them | [`amounts`] |
//! | giving money back once | `refunds` |
//!
//! Source: Stripe's public API reference (Checkout Sessions, PaymentIntents, Refunds, Idempotent requests, Errors), in
//! the version named by [`API_VERSION`].
//!
//! Two facts carry the design. The address of a session is given to its buyer only after it was stored together with the
//! session's id, and only while the order takes payments; so a session whose id is not known was never shown to anybody.
//! And the same call under the same key is done once; so a session whose id was lost comes back when it is asked for again,
//! and one that was never made is made and expired at once: a start still on its way then finds it expired.

pub mod amounts;
mod api;
mod events;
mod refunds;
mod session;
pub mod signature;

pub use self::api::API_VERSION;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use http::HeaderMap;
use lockgate_shared::{clock::Timestamp, ids::SaleId, sale::DEMO_SALE_ID};

use self::{
    api::Api,
    session::{Intent, Session, Standing, form, is_id},
};
use super::{CancelOutcome, Gateway, GatewayError, Notification, PaymentOrder, PaymentStatus, WebhookError};
use crate::payment::{Money, Outcome, PaymentId};

/// Where Stripe's API stands.
pub const API_URL: &str = "https://api.stripe.com";
/// Longest a call takes, unless set. Shorter than a request to checkout may last.
pub const CALL_LIMIT: Duration = Duration::from_secs(15);
const SESSIONS: &str = "/v1/checkout/sessions";
/// Keys tried for a call that Stripe goes on answering with an old failure of its own.
const KEYS_MAX: usize = 3;

/// What the gateway is set up with.
#[derive(Clone)]
pub struct Settings {
    /// The account's secret key, or a restricted one.
    pub secret_key: String,
    /// The webhook endpoint's secrets, two during a rotation.
    pub webhook_secrets: Vec<String>,
    /// Where the API stands; [`API_URL`] but for tests.
    pub api_url: String,
    /// The payment methods that are offered, by Stripe's names.
    pub payment_methods: Vec<String>,
    /// Longest a call takes.
    pub call_limit: Duration,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("api_url", &self.api_url).field("payment_methods", &self.payment_methods);
        shown.field("is_live", &is_live(&self.secret_key)).finish_non_exhaustive()
    }
}

/// Whether a key moves real money.
#[must_use]
pub fn is_live(secret_key: &str) -> bool {
    secret_key.starts_with("sk_live_") || secret_key.starts_with("rk_live_")
}

/// Stripe as checkout sees it.
pub struct Stripe {
    api: Api,
    webhook_secrets: Vec<String>,
    payment_methods: Vec<String>,
    is_live: bool,
}

/// What came of asking for a session.
enum Created {
    /// It is there. One that is answered again is answered as it was then.
    Session { session: Session, is_replayed: bool },
    /// No session can be had under this attempt's key any more, and none was shown to anybody.
    Gone,
    /// Stripe refuses to make one.
    Refused(GatewayError),
}

fn key(payment: PaymentId, what: &str) -> String {
    format!("lockgate-{payment}-{what}")
}

impl Stripe {
    /// The gateway as `settings` have it.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(settings)?,
            webhook_secrets: settings.webhook_secrets.clone(),
            payment_methods: settings.payment_methods.clone(),
            is_live: is_live(&settings.secret_key),
        })
    }

    async fn create(&self, verb: &'static str, order: &PaymentOrder) -> Result<Created, GatewayError> {
        let form = match form(order, &self.payment_methods) {
            Ok(form) => form,
            Err(cause) => return Ok(Created::Refused(GatewayError { verb, cause })),
        };
        let reply = self.api.post(verb, SESSIONS, &key(order.payment, "start"), &form).await?;
        if reply.is_success() {
            let session = checked(verb, order, reply.read(verb)?)?;
            return Ok(Created::Session { session, is_replayed: reply.is_replayed });
        }
        // Stripe failed at it, and goes on saying so.
        if reply.is_spent() {
            return Ok(Created::Gone);
        }
        let refusal = reply.refusal();
        match (reply.status, refusal.kind.as_str(), refusal.param.as_deref()) {
            // It was asked for in other words (by another release, or set up otherwise), and that answer was lost.
            (400, "idempotency_error", _) => Ok(Created::Gone),
            // Too late to make one, and Stripe remembers none.
            (400, _, Some("expires_at")) => Ok(Created::Gone),
            (400, ..) => Ok(Created::Refused(reply.refused(verb))),
            _ => Err(reply.refused(verb)),
        }
    }

    async fn retrieve(
        &self,
        verb: &'static str,
        order: &PaymentOrder,
        id: &str,
    ) -> Result<Session, GatewayError> {
        let reply = self.api.get(verb, &format!("{SESSIONS}/{id}?expand%5B%5D=payment_intent")).await?;
        checked(verb, order, reply.read(verb)?)
    }

    /// Expires a session; `false` if Stripe did not.
    async fn expire(&self, order: &PaymentOrder, id: &str) -> Result<bool, GatewayError> {
        for n in 1..=KEYS_MAX {
            let key = key(order.payment, &format!("expire-{n}"));
            let reply = self.api.post("cancel", &format!("{SESSIONS}/{id}/expire"), &key, &[]).await?;
            if reply.is_spent() {
                continue;
            }
            if !reply.is_success() {
                return Ok(false);
            }
            let session = checked("cancel", order, reply.read("cancel")?)?;
            return Ok(session.standing().is_ok_and(|standing| standing == Standing::Expired));
        }
        Ok(false)
    }

    /// The buyer is through, and the money is on its way, or will not come: stops it, if that can be done.
    async fn stop(&self, order: &PaymentOrder, session: &Session) -> Result<CancelOutcome, GatewayError> {
        let failed = |cause: &str| GatewayError { verb: "cancel", cause: cause.to_owned() };
        let intent = session.intent().ok_or_else(|| failed("the session names no payment"))?;
        let path = format!("/v1/payment_intents/{intent}/cancel");
        for n in 1..=KEYS_MAX {
            let key = key(order.payment, &format!("stop-{n}"));
            let reply = self.api.post("cancel", &path, &key, &[]).await?;
            if reply.is_spent() {
                continue;
            }
            if reply.is_success() && reply.read::<Intent>("cancel")?.status == "canceled" {
                return Ok(CancelOutcome::Unpayable);
            }
            break;
        }
        let latest = self.retrieve("cancel", order, &session.id).await?;
        match latest.standing() {
            Ok(Standing::Paid(money)) => Ok(CancelOutcome::Paid(money)),
            Ok(Standing::Failed) if is_stopped(&latest) => Ok(CancelOutcome::Unpayable),
            _ => Err(failed(
                "the buyer pays by a method that takes its time; the units stay held until it is known",
            )),
        }
    }
}

fn is_stopped(session: &Session) -> bool {
    matches!(&session.payment_intent, Some(session::Expandable::Shown(intent)) if intent.status == "canceled")
}

/// A session that is the attempt's own, and whose ids may stand in an address.
fn checked(verb: &'static str, order: &PaymentOrder, session: Session) -> Result<Session, GatewayError> {
    let cause = if !is_id(&session.id) || !session.intent().is_none_or(is_id) {
        "the answer holds an id of no known form"
    } else if session.payment() != Some(order.payment) {
        "the answer is about another payment"
    } else {
        return Ok(session);
    };
    Err(GatewayError { verb, cause: cause.to_owned() })
}

fn status(verb: &'static str, order: &PaymentOrder, session: Session) -> Result<PaymentStatus, GatewayError> {
    let standing = session.standing().map_err(|cause| GatewayError { verb, cause })?;
    Ok(match standing {
        Standing::Open { url } => PaymentStatus::Open { redirect_url: url, reference: Some(session.id) },
        // Nothing is left to do at Stripe's: the order's page says what is known.
        Standing::Pending => {
            PaymentStatus::Open { redirect_url: order.return_url.clone(), reference: Some(session.id) }
        }
        Standing::Paid(money) => PaymentStatus::Ended(Outcome::Paid(money)),
        Standing::Failed => PaymentStatus::Ended(Outcome::Failed),
        Standing::Expired => PaymentStatus::Ended(Outcome::Unpayable),
    })
}

#[async_trait]
impl Gateway for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn refuses(&self, sale: &SaleId) -> Option<String> {
        let is_play = self.is_live && sale.as_str() == DEMO_SALE_ID;
        is_play.then(|| "Nothing of the demo sale is sold: the payment service has a live key.".to_owned())
    }

    async fn start(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        match self.create("start", order).await? {
            Created::Session { session, is_replayed: false } => status("start", order, session),
            Created::Session { session, is_replayed: true } => {
                let now = self.retrieve("start", order, &session.id).await?;
                status("start", order, now)
            }
            Created::Gone => Ok(PaymentStatus::Unknown),
            Created::Refused(error) => Err(error),
        }
    }

    async fn cancel(&self, order: &PaymentOrder) -> Result<CancelOutcome, GatewayError> {
        let id = match &order.reference {
            Some(id) => id.clone(),
            None => match self.create("cancel", order).await? {
                Created::Session { session, .. } => session.id,
                Created::Gone => return Ok(CancelOutcome::Unpayable),
                // What Stripe refuses to make was never paid, and nobody was shown where to.
                Created::Refused(error) => {
                    tracing::warn!(payment = %order.payment, cause = error.cause, "Stripe takes no such payment at all");
                    return Ok(CancelOutcome::Unpayable);
                }
            },
        };
        if self.expire(order, &id).await? {
            return Ok(CancelOutcome::Unpayable);
        }
        let session = self.retrieve("cancel", order, &id).await?;
        match session.standing().map_err(|cause| GatewayError { verb: "cancel", cause })? {
            Standing::Expired => Ok(CancelOutcome::Unpayable),
            Standing::Paid(money) => Ok(CancelOutcome::Paid(money)),
            Standing::Failed if is_stopped(&session) => Ok(CancelOutcome::Unpayable),
            Standing::Failed | Standing::Pending => self.stop(order, &session).await,
            Standing::Open { .. } => {
                Err(GatewayError { verb: "cancel", cause: "the session could not be expired".to_owned() })
            }
        }
    }

    async fn state(&self, order: &PaymentOrder) -> Result<PaymentStatus, GatewayError> {
        let Some(id) = &order.reference else {
            return Ok(PaymentStatus::Unknown);
        };
        let session = self.retrieve("state", order, id).await?;
        status("state", order, session)
    }

    async fn refund(&self, order: &PaymentOrder, money: &Money) -> Result<(), GatewayError> {
        self.give_back(order, money).await
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Notification, WebhookError> {
        let secrets = self.webhook_secrets.iter().map(|secret| secret.as_bytes());
        signature::verify(secrets, headers, body, now)?;
        events::read(body, self.is_live)
    }
}
