//! `lockgate sale`: acts on sales through the operator API of a running Lockgate.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use lockgate_shared::ids::SaleId;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::{exit::Failure, print};

/// Which Lockgate, and what to do.
#[derive(Args)]
pub struct SaleCommand {
    /// The address where the running Lockgate serves operators (for `books` of a scaled-out one: the checkout's).
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
    /// Create a sale from its file, or change it.
    Apply {
        /// The sale file (TOML).
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
    /// The report after the sale (not built into this version yet).
    Settlement {
        /// The sale's id.
        sale: SaleId,
    },
}

/// Runs `lockgate sale …`.
///
/// # Errors
/// What the server or the file said.
pub fn run(command: &SaleCommand) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::running)?;
    let answer = runtime.block_on(act(command))?;
    print::line(serde_json::to_string_pretty(&answer).map_err(Failure::running)?);
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
    let call = |method: Method, path: &str| {
        let url = format!("{}/operator/v1/sales{path}", command.url.trim_end_matches('/'));
        client.request(method, url).bearer_auth(&command.key)
    };
    match &command.action {
        Action::Apply { file } => apply(file, &call).await,
        Action::List => send(call(Method::GET, "")).await,
        Action::Show { sale } => {
            let definition = send(call(Method::GET, &format!("/{sale}"))).await?;
            show_controls(&send(call(Method::GET, "")).await?, sale);
            Ok(definition)
        }
        Action::Pause { sale } => send(call(Method::POST, &format!("/{sale}/pause"))).await,
        Action::Resume { sale } => send(call(Method::POST, &format!("/{sale}/resume"))).await,
        Action::Close { sale } => send(call(Method::POST, &format!("/{sale}/close"))).await,
        Action::Books { sale } => send(call(Method::GET, &format!("/{sale}/books"))).await,
        Action::Settlement { sale } => Err(Failure::usage(format!(
            "the settlement is not built into this version yet; `lockgate sale books {sale}` shows stock, holds and \
             orders"
        ))),
        Action::Draw { sale, beacon } => {
            send(call(Method::POST, &format!("/{sale}/draw")).json(&json!({ "beacon": beacon }))).await
        }
        Action::Rate { sale, per_minute } => {
            let body = json!({ "rate_per_minute": per_minute });
            send(call(Method::PATCH, &format!("/{sale}/admission")).json(&body)).await
        }
    }
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

async fn apply(file: &PathBuf, call: &impl Fn(Method, &str) -> RequestBuilder) -> Result<Value, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{name}: cannot be read ({error}); name a sale file")))?;
    let definition = lockgate_shared::sale::parse_toml(&name, &text).map_err(|problems| {
        Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })?;
    let path = format!("/{}", definition.id);
    let current = call(Method::GET, &path).send().await.map_err(Failure::running)?;
    let mut request = call(Method::PUT, &path).json(&definition);
    if current.status() == StatusCode::OK
        && let Some(version) = current.headers().get(reqwest::header::ETAG)
    {
        request = request.header(reqwest::header::IF_MATCH, version);
    }
    send(request).await
}

async fn send(request: RequestBuilder) -> Result<Value, Failure> {
    let response = request.send().await.map_err(Failure::running)?;
    let status = response.status();
    let text = response.text().await.map_err(Failure::running)?;
    let body: Value = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    };
    if status.is_success() {
        return Ok(body);
    }
    let detail = body.get("detail").and_then(Value::as_str).unwrap_or("no explanation was given");
    let mut message = format!("{status}: {detail}");
    for problem in body.get("problems").and_then(Value::as_array).into_iter().flatten() {
        message
            .push_str(&format!("\n{}", problem.as_str().map_or_else(|| problem.to_string(), str::to_owned)));
    }
    Err(Failure::running(message))
}
