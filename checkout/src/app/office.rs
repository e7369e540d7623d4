//! The back office: the feed of paid orders, search, and exports.

use axum::body::Bytes;
use futures::{Stream, stream};
use http::StatusCode;
use lockgate_shared::{
    ids::{ClaimId, SaleId},
    problem::Problem,
    store::StoreError,
};

use super::App;
use crate::{
    office::{OfficeOrder, csv_header, csv_row, cursor, json_line},
    order::OrderRecord,
    payment::PaymentId,
    refusals,
    store::{
        ORDERS_PAGE_MAX,
        office::{OrderChange, Parked, ParkedPlace, Search},
    },
};

/// A page of the feed.
#[derive(Clone, Debug)]
pub struct FeedPage {
    /// The changes, in their order.
    pub changes: Vec<OrderChange>,
    /// Where the next page begins.
    pub next: String,
    /// Whether there are more at this moment.
    pub has_more: bool,
}

/// How an export is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// RFC 4180, with a line of column names.
    Csv,
    /// One JSON object a line.
    JsonLines,
}

impl App {
    /// Up to `limit` changes of a sale's feed after `cursor`, or from its beginning.
    ///
    /// # Errors
    /// 400 `cursor_invalid`; 409 `cursor_ahead` when the feed does not reach as far any more; 503.
    pub async fn feed(&self, sale: &SaleId, after: Option<&str>, limit: usize) -> Result<FeedPage, Problem> {
        let begin = match after {
            None => 0,
            Some(text) => cursor::read(sale, text).ok_or_else(cursor_invalid)?,
        };
        let found = self.store.changes(sale, begin, limit).await?;
        if begin > found.last {
            return Err(cursor_ahead());
        }
        let end = found.changes.last().map_or(begin, |change| change.position);
        let has_more = end < found.last;
        Ok(FeedPage { changes: found.changes, next: cursor::write(sale, end), has_more })
    }

    /// Orders that `search` describes.
    ///
    /// # Errors
    /// 503.
    pub async fn find_orders(
        &self,
        sale: &SaleId,
        search: &Search,
        after: Option<ClaimId>,
        limit: usize,
    ) -> Result<Vec<OrderRecord>, Problem> {
        Ok(self.store.find(sale, search, after, limit).await?)
    }

    /// A page of the payments that gateways told of and no order came for yet, after `after`.
    ///
    /// # Errors
    /// 503.
    pub async fn parked(&self, after: Option<&ParkedPlace>) -> Result<Parked, Problem> {
        Ok(self.store.parked(self.now(), after).await?)
    }

    /// Strikes off what is parked of an attempt, because somebody gave the money back at the gateway. An order that comes
    /// after all is not paid by it. Answers how many notices that were.
    ///
    /// # Errors
    /// 404 `no_such_payment`: nothing is parked of it; 503.
    pub async fn strike_off(&self, payment: PaymentId) -> Result<u64, Problem> {
        match self.store.strike_off(payment).await? {
            0 => Err(refusals::nothing_parked()),
            struck => Ok(struck),
        }
    }

    /// Every order of a sale, page by page: no more than one page is in memory, however long the reader takes.
    pub fn export(
        self: std::sync::Arc<Self>,
        sale: SaleId,
        format: ExportFormat,
    ) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + use<> {
        let write = move |orders: &[OrderRecord], is_first: bool| {
            let mut text = String::new();
            if is_first && format == ExportFormat::Csv {
                text += &csv_header();
            }
            for order in orders {
                let order = OfficeOrder::from(order);
                text += &match format {
                    ExportFormat::Csv => csv_row(&order),
                    ExportFormat::JsonLines => json_line(&order),
                };
            }
            Bytes::from(text)
        };
        // `Some(None)`: the first page is due; `None`: the last was sent.
        stream::try_unfold(Some(None), move |due: Option<Option<ClaimId>>| {
            let (app, sale) = (std::sync::Arc::clone(&self), sale.clone());
            async move {
                let Some(after) = due else { return Ok(None) };
                let page = app.store.orders(&sale, after).await?;
                let next = (page.len() >= ORDERS_PAGE_MAX).then(|| page.last().map(|order| order.id));
                Ok(Some((write(&page, after.is_none()), next)))
            }
        })
    }
}

fn cursor_invalid() -> Problem {
    let detail = "This is no cursor of this sale's feed. Send the `next` of the last page as `after`, unchanged, or \
                  nothing to begin anew.";
    Problem::new(StatusCode::BAD_REQUEST, "cursor_invalid", detail)
}

fn cursor_ahead() -> Problem {
    let detail = "The feed does not reach as far as this cursor: the orders' database is an older copy than the one it \
                  was read from. Begin anew without `after`, and tell changes you know by order and state.";
    Problem::conflict("cursor_ahead", detail)
}
