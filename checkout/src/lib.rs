//! Checkout: orders and money.
//!
//! # Layout
//!
//! | to find | look in |
//! |---|---|
//! | what each verb does | [`app`] (claim, order, pay, cancel, notify, callback), [`books`] |
//! | the rules, pure | [`order`], [`payment`], [`refund`], [`claim`] |
//! | how a token, an access key is checked | [`token`], `access` |
//! | what is refused without asking the gate | [`stock_view`], `intake::backlog` |
//! | what keeps trouble with the gate or the store to itself | `gate`, [`store::Guarded`] |
//! | from the gate's records to orders; from an order's decision to its end | [`intake`], [`settler`] |
//! | a stock put together again from holds and orders: the rule, the loop | [`rebuild`], [`rebuilder`] |
//! | what of repeated trouble is told | `troubles` |
//! | gate, orders and payments compared: the rule, the loop | [`reconcile`], [`reconciler`] |
//! | what operators read and take away | [`office`], `app::office`, [`settlement`] |
//! | where orders are kept | [`store`] |
//! | mails to buyers, webhooks to the shop: the rule, their delivery | [`outbox`] |
//! | payment gateways, webhooks | [`gateways`]: [`simulated`], [`stripe`] |
//! | the routes | `http`; every refusal's code is in `refusals` |
//!
//! One id names claim, hold and order. The gate keeps the claim with a memo and answers a repeated one the same for
//! ever, so there is no table of idempotency keys. The order decides, the gate follows: see [`order`].

mod access;
pub mod app;
pub mod books;
pub mod claim;
mod gate;
pub mod gateways;
mod http;
pub mod intake;
pub mod office;
pub mod order;
pub mod outbox;
pub mod payment;
pub mod rebuild;
pub mod rebuilder;
pub mod reconcile;
pub mod reconciler;
pub mod refund;
mod refusals;
pub mod settlement;
pub mod settler;
pub mod stock_view;
pub mod store;
pub mod token;
mod troubles;

use std::sync::Arc;

use lockgate_shared::store::StoreError;
use tokio::sync::watch;

pub use self::{
    app::{App, AppParts},
    gateways::{
        Gateway,
        simulated::{self, Simulated},
        stripe::{self, Stripe},
    },
    http::{operator_router, router},
    intake::IntakeSettings,
    outbox::{Outbox, OutboxSettings},
    store::{
        Office, Store,
        postgres::{ORDERS_POSTGRES, PostgresStore},
        sqlite::{ORDERS_SQLITE, SqliteStore},
    },
};

/// Runs every loop of checkout until `stop` is true: intake and what belongs to it, settler, outbox, and the renewal
/// of the stock view.
pub async fn run(app: Arc<App>, stop: watch::Receiver<bool>) {
    let view = app.stock.run(&app.catalog, &app.gate, &*app.clock, stop.clone());
    let backlog = app.backlog.run(&app, stop.clone());
    let tend = intake::tend::run(Arc::clone(&app), stop.clone());
    let outbox = outbox::run(Arc::clone(&app), stop.clone());
    tokio::join!(
        outbox,
        intake::run(Arc::clone(&app), stop.clone()),
        settler::run(Arc::clone(&app), stop.clone()),
        rebuilder::run(Arc::clone(&app), stop.clone()),
        reconciler::run(Arc::clone(&app), stop),
        view,
        backlog,
        tend
    );
}

/// Whether checkout can do its work: its store answers.
///
/// # Errors
/// It does not.
pub async fn ready(app: &App) -> Result<(), StoreError> {
    app.store.ping().await
}
