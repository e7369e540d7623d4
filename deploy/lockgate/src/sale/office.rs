//! `lockgate sale orders | export | settlement`: what is in the books, for people and for their programs.

use std::{
    io::{ErrorKind, Write as _},
    time::Duration,
};

use clap::{Args, ValueEnum};
use lockgate_shared::ids::{AccountHash, ClaimId, ItemId, SaleId};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{send, unreached, words};
use crate::{exit::Failure, print};

/// Longest an export may take.
const EXPORT_MAX: Duration = Duration::from_secs(3_600);

/// What orders are looked for by.
#[derive(Args)]
pub(super) struct OrdersOptions {
    /// The sale's id.
    sale: SaleId,
    /// Where they stand, such as paid or refund_due.
    #[arg(long)]
    state: Option<String>,
    /// The buyer's e-mail address.
    #[arg(long)]
    email: Option<String>,
    /// The buyer's account, as the line knows it.
    #[arg(long)]
    account: Option<AccountHash>,
    /// What is bought.
    #[arg(long)]
    item: Option<ItemId>,
    /// The number of a unit of --item: its owner.
    #[arg(long, requires = "item")]
    unit: Option<u32>,
    /// One order.
    #[arg(long)]
    order: Option<ClaimId>,
    /// Go on after this order: the `next` of the last page.
    #[arg(long)]
    after: Option<ClaimId>,
    /// Orders of a page, 1 to 1000.
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

/// How orders are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum ExportFormat {
    /// A table for spreadsheets.
    #[default]
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// How a settlement is written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum SettlementFormat {
    /// For programs.
    #[default]
    Json,
    /// A table for spreadsheets.
    Csv,
    /// A page to print and sign.
    Html,
}

pub(super) async fn orders(
    options: &OrdersOptions,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<Value, Failure> {
    // In the body: addresses of requests are logged on their way.
    let mut body = json!({ "limit": options.limit });
    let fields = [
        ("state", options.state.clone()),
        ("email", options.email.clone()),
        ("account", options.account.map(|account| account.to_string())),
        ("item", options.item.as_ref().map(ItemId::to_string)),
        ("order", options.order.map(|order| order.to_string())),
        ("after", options.after.map(|order| order.to_string())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    if let Some(unit) = options.unit {
        body["unit"] = unit.into();
    }
    send(call(Method::POST, &format!("/{}/orders/search", options.sale)).json(&body)).await
}

pub(super) async fn export(
    sale: &SaleId,
    format: ExportFormat,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<Value, Failure> {
    let format = if matches!(format, ExportFormat::Csv) { "csv" } else { "jsonl" };
    pass_on(call(Method::GET, &format!("/{sale}/orders/export?format={format}"))).await
}

pub(super) async fn settlement(
    sale: &SaleId,
    format: SettlementFormat,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<Value, Failure> {
    let path = |format: &str| format!("/{sale}/settlement?format={format}");
    match format {
        SettlementFormat::Json => send(call(Method::GET, &path("json"))).await,
        SettlementFormat::Csv => pass_on(call(Method::GET, &path("csv"))).await,
        SettlementFormat::Html => pass_on(call(Method::GET, &path("html"))).await,
    }
}

/// Writes an answer to standard output as it comes, byte by byte the same.
async fn pass_on(request: RequestBuilder) -> Result<Value, Failure> {
    let mut response = request.timeout(EXPORT_MAX).send().await.map_err(|error| unreached(&error))?;
    let status = response.status();
    if !status.is_success() {
        let text = response.text().await.map_err(Failure::running)?;
        return Err(Failure::running(words(status, &serde_json::from_str(&text).unwrap_or_default())));
    }
    let cut_off = |error: reqwest::Error| {
        Failure::running(format!("the answer is cut off ({error}); what was written is not all"))
    };
    while let Some(part) = response.chunk().await.map_err(cut_off)? {
        match std::io::stdout().lock().write_all(&part) {
            Ok(()) => {}
            // The reader has what it wanted.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Value::Null),
            Err(error) => {
                print::note(format_args!("lockgate: standard output cannot be written ({error})"));
                return Err(Failure::running(error));
            }
        }
    }
    Ok(Value::Null)
}
