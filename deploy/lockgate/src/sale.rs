//! `lockgate sale`: acts on sales through the operator API of a running Lockgate.

mod allowlist;
mod apply;
mod office;

use std::{error::Error as _, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use lockgate_checkout::payment::PaymentId;
use lockgate_shared::{
    ids::{ClaimId, ItemId, SaleId},
    sale::SaleProblem,
};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::{exit::Failure, print};

/// Which Lockgate, and what to do.
#[derive(Args)]
pub struct SaleCommand {
    /// The address where the running Lockgate serves operators. Of a scaled-out one `books`, `stock`, `recover`,
    /// `dead-letters`, `outbox`, `anomalies`, `parked`, `refund`, `cancel-order`, `orders`, `export` and `settlement`
    /// ask the checkout's, everything else a waiting room's.
    #[arg(long, env = "LOCKGATE_OPERATOR_URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    /// The operator key.
    #[arg(long, env = "LOCKGATE_OPERATOR_KEY", hide_env_values = true, default_value = "", global = true)]
    key: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a sale from its file, or change it; says what changes.
    Apply {
        /// The sale file (TOML).
        file: PathBuf,
        /// Only say what would change.
        #[arg(long)]
        dry_run: bool,
        /// Refuse unless the sale is still in this version, which a dry run told.
        #[arg(long, value_name = "VERSION")]
        from_version: Option<u64>,
    },
    /// Upload the codes and e-mail addresses that may enter. Uploading again changes nothing.
    Allowlist {
        /// The sale's id.
        sale: SaleId,
        /// The list (CSV): one code,email a line.
        file: PathBuf,
    },
    /// List the sales.
    List,
    /// Show one sale: its definition on standard output, what operators switched on standard error.
    Show {
        /// The sale's id.
        sale: SaleId,
    },
    /// Stop admitting; those who were admitted go on.
    Pause {
        /// The sale's id.
        sale: SaleId,
    },
    /// Admit again.
    Resume {
        /// The sale's id.
        sale: SaleId,
    },
    /// Change how many are admitted per minute.
    Rate {
        /// The sale's id.
        sale: SaleId,
        /// Admissions per minute.
        per_minute: u64,
    },
    /// End the sale: no entry, no admission, no claim.
    Close {
        /// The sale's id.
        sale: SaleId,
    },
    /// Add units to an item, or withdraw free ones; never below what is held or sold. To look: `books`.
    #[command(override_usage = "lockgate sale stock <SALE> <ITEM> <+N|-N>")]
    Stock {
        /// The sale's id.
        sale: SaleId,
        /// The item's id.
        item: Option<ItemId>,
        /// Units to add (+100) or to withdraw (-100).
        #[arg(allow_negative_numbers = true, value_name = "+N|-N")]
        change: Option<i64>,
    },
    /// Freeze a sale, rebuild its stock from holds, events and orders, and open it again; says what was found.
    Recover {
        /// The sale's id.
        sale: SaleId,
    },
    /// Let the draw of a lottery be made that waits for a beacon.
    Draw {
        /// The sale's id.
        sale: String,
        /// The public value, where the sale asks for one.
        #[arg(long)]
        beacon: Option<String>,
    },
    /// Show how stock, holds and orders add up.
    Books {
        /// The sale's id.
        sale: SaleId,
    },
    /// Show what should not have happened to a sale's orders, and what was done about it.
    Anomalies {
        /// The sale's id.
        sale: SaleId,
        /// Go on after the anomaly with this number.
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
    },
    /// Show the payments of all sales that the payment service told of and no order came for.
    Parked {
        /// Go on after the page that ended with this `next`.
        #[arg(long, value_name = "NEXT")]
        after: Option<String>,
    },
    /// Strike a parked payment off, once its money was given back at the payment service.
    StrikeOff {
        /// The payment's id.
        payment: PaymentId,
        /// Why, for the audit log.
        #[arg(long)]
        reason: String,
    },
    /// Give the money of a paid order back. Its units stay sold; `stock` puts others on sale.
    Refund {
        /// The order's id.
        order: ClaimId,
        /// Why, for the audit log.
        #[arg(long)]
        reason: String,
    },
    /// Cancel an order that waits for payment, and give its units back.
    CancelOrder {
        /// The order's id.
        order: ClaimId,
        /// Why, for the audit log.
        #[arg(long)]
        reason: String,
    },
    /// Show the records of the stock gate that no order could be made of.
    DeadLetters {
        /// The sale's id.
        sale: SaleId,
        /// Try to take them in again.
        #[arg(long)]
        retry: bool,
    },
    /// Show the mails and webhooks of all sales that wait, and those that were given up.
    Outbox {
        /// Try those that were given up again.
        #[arg(long)]
        retry: bool,
        /// With --retry: only this message, such as msg_018f…_1.
        #[arg(long, requires = "retry", value_name = "MESSAGE")]
        message: Option<String>,
    },
    /// Look orders up; all that is given must be so.
    Orders(office::OrdersOptions),
    /// Write every order of a sale to standard output.
    Export {
        /// The sale's id.
        sale: SaleId,
        /// How.
        #[arg(long, value_enum, default_value_t)]
        format: office::ExportFormat,
    },
    /// The report after the sale, to be signed. With html: a page to print.
    Settlement {
        /// The sale's id.
        sale: SaleId,
        /// How.
        #[arg(long, value_enum, default_value_t)]
        format: office::SettlementFormat,
    },
}

/// Runs `lockgate sale …`.
///
/// # Errors
/// What the server or the file said.
pub fn run(command: &SaleCommand) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::running)?;
    match runtime.block_on(act(command))? {
        Value::Null => {}
        answer => print::line(serde_json::to_string_pretty(&answer).map_err(Failure::running)?),
    }
    Ok(())
}

async fn act(command: &SaleCommand) -> Result<Value, Failure> {
    if command.key.is_empty() {
        return Err(Failure::usage(
            "--key or LOCKGATE_OPERATOR_KEY is missing; give the key printed at the start",
        ));
    }
    let client =
        Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().map_err(Failure::running)?;
    let base = format!("{}/operator/v1", command.url.trim_end_matches('/'));
    let call = |method: Method, path: &str| {
        client.request(method, format!("{base}/sales{path}")).bearer_auth(&command.key)
    };
    let look = |path: &str| client.get(format!("{base}{path}")).bearer_auth(&command.key);
    let ask = |path: &str| client.post(format!("{base}{path}")).bearer_auth(&command.key);
    let because = |path: String, reason: &str| send(ask(&path).json(&json!({ "reason": reason })));
    match &command.action {
        Action::Apply { file, dry_run, from_version } => {
            apply::apply(file, *dry_run, *from_version, &call).await.map(|()| Value::Null)
        }
        Action::Allowlist { sale, file } => allowlist::allow(sale, file, &call).await,
        Action::List => send(call(Method::GET, "")).await,
        Action::Show { sale } => {
            let definition = send(call(Method::GET, &format!("/{sale}"))).await?;
            show_controls(&send(call(Method::GET, "")).await?, sale);
            Ok(definition)
        }
        Action::Pause { sale } => send(call(Method::POST, &format!("/{sale}/pause"))).await,
        Action::Resume { sale } => send(call(Method::POST, &format!("/{sale}/resume"))).await,
        Action::Close { sale } => send(call(Method::POST, &format!("/{sale}/close"))).await,
        Action::Stock { sale, item: Some(item), change: Some(change) } => {
            send(restock(call(Method::POST, &format!("/{sale}/stock")), item, *change)).await
        }
        Action::Stock { sale, .. } => Err(Failure::usage(format!(
            "stock changes an item's stock: give the item and +N or -N; to look at it: lockgate sale books {sale}"
        ))),
        Action::Recover { sale } => send(call(Method::POST, &format!("/{sale}/recover"))).await,
        Action::Books { sale } => send(call(Method::GET, &format!("/{sale}/books"))).await,
        Action::Anomalies { sale, after } => {
            send(call(Method::GET, &format!("/{sale}/anomalies{}", from(after.as_ref())))).await
        }
        Action::Parked { after } => send(look(&format!("/payments/parked{}", from(after.as_ref())))).await,
        Action::StrikeOff { payment, reason } => {
            because(format!("/payments/{payment}/strike-off"), reason).await
        }
        Action::Refund { order, reason } => because(format!("/orders/{order}/refund"), reason).await,
        Action::CancelOrder { order, reason } => because(format!("/orders/{order}/cancel"), reason).await,
        Action::DeadLetters { sale, retry: false } => {
            send(call(Method::GET, &format!("/{sale}/dead-letters"))).await
        }
        Action::DeadLetters { sale, retry: true } => {
            send(call(Method::POST, &format!("/{sale}/dead-letters/retry"))).await
        }
        Action::Outbox { retry: false, .. } => send(look("/outbox")).await,
        Action::Outbox { retry: true, message } => {
            send(ask("/outbox/retry").json(&json!({ "message": message }))).await
        }
        Action::Orders(options) => office::orders(options, &call).await,
        Action::Export { sale, format } => office::export(sale, *format, &call).await,
        Action::Settlement { sale, format } => office::settlement(sale, *format, &call).await,
        Action::Draw { sale, beacon } => {
            send(call(Method::POST, &format!("/{sale}/draw")).json(&json!({ "beacon": beacon }))).await
        }
        Action::Rate { sale, per_minute } => {
            let body = json!({ "rate_per_minute": per_minute });
            send(call(Method::PATCH, &format!("/{sale}/admission")).json(&body)).await
        }
    }
}

/// Where a page begins.
fn from(after: Option<&impl std::fmt::Display>) -> String {
    after.map(|after| format!("?after={after}")).unwrap_or_default()
}

/// Should the answer be lost, the key names the change, so that it can be repeated by hand.
fn restock(request: RequestBuilder, item: &ItemId, change: i64) -> RequestBuilder {
    let key = format!("{:032x}", rand::random::<u128>());
    request.header("idempotency-key", key).json(&json!({ "item": item, "change": change }))
}

/// What operators switched, on standard error: standard output is the definition and nothing else.
fn show_controls(list: &Value, sale: &SaleId) {
    let sales = list.get("sales").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let Some(view) = sales.iter().find(|view| view["sale"] == sale.as_str()) else { return };
    for name in ["version", "phase", "paused", "closed", "epoch", "message"] {
        if let Some(value) = view.get(name) {
            print::note(format_args!("# {name} = {value}"));
        }
    }
}

/// Sends a request and reads its answer.
async fn send(request: RequestBuilder) -> Result<Value, Failure> {
    let (status, body) = answer(request).await?;
    if status.is_success() { Ok(body) } else { Err(Failure::running(words(status, &body))) }
}

async fn answer(request: RequestBuilder) -> Result<(StatusCode, Value), Failure> {
    let response = request.send().await.map_err(|error| unreached(&error))?;
    let status = response.status();
    let text = response.text().await.map_err(Failure::running)?;
    if text.is_empty() {
        return Ok((status, Value::Null));
    }
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// A server that did not answer: which, why, and what to check.
fn unreached(error: &reqwest::Error) -> Failure {
    let address = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    let why = match cause {
        _ if error.is_timeout() => "it did not answer in time".to_owned(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    };
    Failure::running(format!(
        "{address} cannot be reached ({why}); is Lockgate running there? --url or LOCKGATE_OPERATOR_URL names the \
         address where it serves operators"
    ))
}

/// A refusal in words: each of its problems on a line of its own.
fn words(status: StatusCode, body: &Value) -> String {
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or("no explanation was given");
    let problems: Vec<String> =
        body.get("problems").and_then(Value::as_array).into_iter().flatten().map(problem_words).collect();
    if problems.is_empty() {
        format!("{status}: {detail}")
    } else {
        format!("{status}:\n{}", problems.join("\n"))
    }
}

fn problem_words(problem: &Value) -> String {
    let text = |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("key") {
        "" => problem.as_str().map_or_else(|| problem.to_string(), str::to_owned),
        key => SaleProblem::new(key, text("value"), text("problem"), text("remedy")).to_string(),
    }
}
