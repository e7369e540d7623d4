//! The simulated gateway's service: its pages, its API and its knobs.

use std::{path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{
    Json, Router,
    body::Body,
    extract::{FromRequestParts, RawPathParams, Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, request::Parts};
use lockgate_shared::{
    clock::Clock,
    credentials,
    ids::ClaimId,
    keys::KeyRing,
    limits::PRICE_MAX,
    operator::{OperatorKeys, Role},
    problem::Problem,
    request::{parse_json, read_body, read_bytes},
    service_token,
    store::StoreError,
};
use rand::RngExt as _;
use tokio::sync::{Notify, watch};

use super::{
    API, AUDIENCE, Answer, PAGES, Stage,
    behaviour::{Behaviour, Fault},
    ledger::{Entry, Ledger, WebhookPlan},
    pages,
    sender::Sender,
};
use crate::{
    gateways::PaymentOrder,
    payment::{Money, PaymentId},
};

/// Largest body of an API call.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// What the service is made of.
pub struct ServiceParts {
    /// Signs webhooks and checks the callers of the API.
    pub ring: Arc<KeyRing>,
    /// Who may turn the knobs.
    pub operator_keys: Arc<OperatorKeys>,
    /// Where webhooks go.
    pub webhook_url: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The simulated gateway.
pub struct Service {
    ledger: Ledger,
    parts: ServiceParts,
    behaviour: ArcSwap<Behaviour>,
    due: Arc<Notify>,
}

impl Service {
    /// Opens (or makes) the ledger at `path`.
    ///
    /// # Errors
    /// The ledger cannot be opened.
    pub fn open(path: &Path, parts: ServiceParts, behaviour: Behaviour) -> Result<Arc<Self>, StoreError> {
        Ok(Arc::new(Self {
            ledger: Ledger::open(path)?,
            parts,
            behaviour: ArcSwap::from_pointee(behaviour),
            due: Arc::default(),
        }))
    }

    /// The hosted pages (for buyers) and the API (for checkout, with service tokens).
    pub fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route(&format!("{PAGES}/{{payment}}"), get(show_page).post(finish))
            .route(API, post(start))
            .route(&format!("{API}/{{payment}}"), get(state))
            .route(&format!("{API}/{{payment}}/cancel"), post(cancel))
            .route(&format!("{API}/{{payment}}/refund"), post(refund))
            .with_state(Arc::clone(self))
    }

    /// The knobs, for operators.
    pub fn operator_router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/simulated-gateway/behaviour", get(show_behaviour).put(set_behaviour))
            .route("/simulated-gateway/paid-ahead", post(pay_ahead))
            .with_state(Arc::clone(self))
    }

    /// Sends webhooks until `stop`.
    pub async fn run(&self, stop: watch::Receiver<bool>) {
        let sender = Sender {
            ledger: self.ledger.clone(),
            ring: Arc::clone(&self.parts.ring),
            clock: Arc::clone(&self.parts.clock),
            url: self.parts.webhook_url.clone(),
            due: Arc::clone(&self.due),
        };
        sender.run(stop).await;
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let refused =
            || Problem::forbidden("service_token_invalid", "This address is for Lockgate's services.");
        let token = credentials::bearer(headers)?.ok_or_else(refused)?;
        service_token::verify(token, &self.parts.ring, AUDIENCE, self.parts.clock.now())
            .map_err(|_| refused())
    }

    async fn delay(&self) {
        let latency_ms = self.behaviour.load().latency_ms;
        if latency_ms > 0 {
            tokio::time::sleep(Duration::from_millis(latency_ms)).await;
        }
    }

    /// Runs one API call with the latency and the failures that are set.
    async fn misbehave(
        &self,
        call: impl Future<Output = Result<Option<Entry>, StoreError>>,
    ) -> Result<Json<Answer>, Problem> {
        let fault = self.behaviour.load().failure(rand::rng().random::<f64>());
        self.delay().await;
        if fault == Some(Fault::Before) {
            return Err(simulated_failure());
        }
        let entry = call.await?;
        if fault == Some(Fault::After) {
            return Err(simulated_failure());
        }
        entry.map(|entry| Json(entry.answer())).ok_or_else(no_such_payment)
    }

    fn plan(&self) -> WebhookPlan {
        let behaviour = self.behaviour.load();
        WebhookPlan {
            message: format!("msg_{}", PaymentId::from_random(rand::rng().random())),
            copies: 1 + behaviour.duplicate_webhooks,
            first_try_at: self.parts.clock.now().plus(Duration::from_millis(behaviour.webhook_delay_ms)),
        }
    }
}

fn simulated_failure() -> Problem {
    Problem::unavailable("simulated_failure", "The simulated gateway fails as it was told to.")
}

fn no_such_payment() -> Problem {
    let detail = "There is no such payment. Go back to the shop and start again.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_payment", detail)
}

/// The `{payment}` segment. Anything that is no payment id is a payment that does not exist.
struct PaymentPath(PaymentId);

impl<S: Send + Sync> FromRequestParts<S> for PaymentPath {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state).await.ok();
        let payment = params.and_then(|params| {
            let (_, text) = params.iter().find(|(name, _)| *name == "payment")?;
            text.parse().ok()
        });
        payment.map(Self).ok_or_else(no_such_payment)
    }
}

async fn start(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Answer>, Problem> {
    service.authorize(&headers)?;
    let (order, _) = read_body::<PaymentOrder>(request).await?;
    let call = async { service.ledger.start(&order).await.map(Some) };
    service.misbehave(call).await
}

async fn state(
    State(service): State<Arc<Service>>,
    PaymentPath(payment): PaymentPath,
    headers: HeaderMap,
) -> Result<Json<Answer>, Problem> {
    service.authorize(&headers)?;
    let unknown = Entry { payment, state: Stage::Unknown, opened: None };
    let call = async { Ok(Some(service.ledger.entry(payment).await?.unwrap_or(unknown))) };
    service.misbehave(call).await
}

async fn cancel(
    State(service): State<Arc<Service>>,
    PaymentPath(payment): PaymentPath,
    headers: HeaderMap,
) -> Result<Json<Answer>, Problem> {
    service.authorize(&headers)?;
    let call = async { service.ledger.cancel(payment).await.map(Some) };
    service.misbehave(call).await
}

async fn refund(
    State(service): State<Arc<Service>>,
    PaymentPath(payment): PaymentPath,
    headers: HeaderMap,
) -> Result<Json<Answer>, Problem> {
    service.authorize(&headers)?;
    let answer = service.misbehave(service.ledger.refund(payment)).await;
    if service.behaviour.load().lose_refund_answers { Err(simulated_failure()) } else { answer }
}

async fn show_page(
    State(service): State<Arc<Service>>,
    PaymentPath(payment): PaymentPath,
) -> Result<Response, Problem> {
    let entry = service.ledger.entry(payment).await?;
    pages::pay(&entry.ok_or_else(no_such_payment)?)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct FinishForm {
    outcome: String,
}

async fn finish(
    State(service): State<Arc<Service>>,
    PaymentPath(payment): PaymentPath,
    request: Request,
) -> Result<Response, Problem> {
    let (form, _) = read_body::<FinishForm>(request).await?;
    let is_paid = match form.outcome.as_str() {
        "paid" => true,
        "failed" => false,
        _ => return Err(Problem::malformed("outcome must be 'paid' or 'failed'.")),
    };
    service.delay().await;
    let is_late_success = service.behaviour.load().late_success;
    let finished = service.ledger.finish(payment, is_paid, is_late_success, service.plan()).await?;
    let (entry, _) = finished.ok_or_else(no_such_payment)?;
    service.due.notify_one();
    if service.behaviour.load().drop_callback {
        return pages::pay(&entry);
    }
    Ok(pages::back_to_shop(&entry))
}

/// A payment that the shop did not ask for yet.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Ahead {
    order: ClaimId,
    price: Money,
}

/// Takes the price of an order before the shop asked for it, so that its webhook comes before the order is there.
async fn pay_ahead(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Answer>, Problem> {
    service.parts.operator_keys.authorize(&headers, Role::Operator)?;
    let (ahead, _) = read_body::<Ahead>(request).await?;
    let Money { amount, currency } = &ahead.price;
    if !(1..=PRICE_MAX).contains(amount) || currency.len() != 3 {
        let detail = "price must be an amount of minor units above 0, and a currency such as EUR.";
        return Err(Problem::malformed(detail));
    }
    let payment = PaymentId::from_random(rand::rng().random());
    let entry = service.ledger.take_ahead(payment, ahead.order, ahead.price, service.plan()).await?;
    service.due.notify_one();
    Ok(Json(entry.answer()))
}

async fn show_behaviour(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Json<Behaviour>, Problem> {
    service.parts.operator_keys.authorize(&headers, Role::Viewer)?;
    Ok(Json(Behaviour::clone(&service.behaviour.load())))
}

async fn set_behaviour(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    service.parts.operator_keys.authorize(&headers, Role::Operator)?;
    if lockgate_shared::request::body_kind(&headers)? != Some(lockgate_shared::request::BodyKind::Json) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "Send application/json.",
        ));
    }
    let behaviour: Behaviour = parse_json(&read_bytes(body, BODY_BYTES_MAX).await?)?;
    behaviour.check()?;
    tracing::info!(?behaviour, "the simulated gateway behaves differently from now on");
    service.behaviour.store(Arc::new(behaviour.clone()));
    Ok(Json(behaviour))
}
