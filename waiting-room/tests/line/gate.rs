//! The gate as the line needs it: it counts stock, and hears which admissions are given up.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Json, Router,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use lockgate_shared::{
    gate::{ForfeitAnswer, ForfeitRequest, ItemStock, StockSnapshot},
    problem::Problem,
    sale::SaleDefinition,
};

/// What all processes of a test tell the gate.
#[derive(Clone, Default)]
pub(crate) struct GateStub {
    forfeited: Arc<Mutex<Vec<String>>>,
    is_down: Arc<AtomicBool>,
}

impl GateStub {
    pub(crate) fn router(&self, stock: &Arc<Mutex<StockSnapshot>>) -> Router {
        let (stock, stub) = (Arc::clone(stock), self.clone());
        let count = move || {
            let stock = stock.lock().unwrap().clone();
            async move { Json(stock) }
        };
        let forfeit = move |Json(request): Json<ForfeitRequest>| {
            let answer = stub.forfeit(&request);
            async move { answer }
        };
        Router::new()
            .route("/gate/v1/sales/{sale}/stock", get(count))
            .route("/gate/v1/sales/{sale}/forfeit", post(forfeit))
    }

    fn forfeit(&self, request: &ForfeitRequest) -> Response {
        if self.is_down.load(Ordering::SeqCst) {
            return Problem::unavailable("stock_unavailable", "The gate is down.").into_response();
        }
        self.forfeited.lock().unwrap().push(request.token_id.to_string());
        Json(ForfeitAnswer::Forfeited).into_response()
    }

    /// The tokens that were given up, in order, as often as the gate was told.
    pub(crate) fn forfeited(&self) -> Vec<String> {
        self.forfeited.lock().unwrap().clone()
    }

    /// Lets it refuse to hear of anything, or hear again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }
}

/// The counts of a sale with so many free units of each item; the others are held.
pub(crate) fn stock_of(sale: &SaleDefinition, available: u32) -> StockSnapshot {
    let item = |item: &lockgate_shared::sale::Item| ItemStock {
        item: item.item.clone(),
        stock: item.stock,
        available: available.min(item.stock),
        held: item.stock - available.min(item.stock),
        sold: 0,
    };
    StockSnapshot {
        items: sale.items.iter().map(item).collect(),
        total_left: None,
        claimants: Vec::new(),
        too_many_claimants: false,
    }
}
