//! `lockgate sale apply`: shows what a sale file changes, and changes it, unless somebody else was faster.

use std::path::Path;

use lockgate_shared::sale::{SaleDefinition, differences, parse_json, parse_toml};
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::Value;

use super::{answer, unreached, words};
use crate::exit::Failure;

/// The sale as the server has it.
struct Stored {
    definition: SaleDefinition,
    /// The tag that names its version, as the server wrote it.
    tag: String,
}

pub(super) async fn apply(
    file: &Path,
    dry_run: bool,
    from_version: Option<u64>,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<(), Failure> {
    let definition = read(file)?;
    let (id, path) = (&definition.id, format!("/{}", definition.id));
    let stored = stored(&path, call).await?;
    let tag = match from_version {
        Some(version) => Some(format!("\"{version}\"")),
        None => stored.as_ref().map(|stored| stored.tag.clone()),
    };
    match &stored {
        None => crate::print::line(format_args!("sale '{id}' is new")),
        Some(stored) if stored.definition == definition => {
            crate::print::line(format_args!(
                "sale '{id}' (version {}): nothing to change",
                stored.tag.trim_matches('"')
            ));
        }
        Some(stored) => {
            crate::print::line(format_args!("sale '{id}' (version {}):", stored.tag.trim_matches('"')));
            for difference in differences(&stored.definition, &definition) {
                crate::print::line(format_args!("  {difference}"));
            }
        }
    }
    let path = if dry_run { format!("{path}?dry_run=true") } else { path };
    let mut request = call(Method::PUT, &path).json(&definition);
    if let Some(tag) = tag {
        request = request.header(header::IF_MATCH, tag);
    }
    let (status, body) = answer(request).await?;
    match status {
        StatusCode::OK | StatusCode::CREATED if dry_run => {
            crate::print::line(format_args!("dry run: nothing was changed"));
        }
        StatusCode::CREATED => crate::print::line(format_args!("created")),
        StatusCode::OK if stored.is_some_and(|stored| stored.definition == definition) => {}
        StatusCode::OK => crate::print::line(format_args!("changed")),
        StatusCode::UNPROCESSABLE_ENTITY => {
            return Err(Failure::usage(format!("refused, nothing was changed: {}", words(status, &body))));
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED => {
            return Err(Failure::running(format!(
                "somebody else has changed sale '{id}' meanwhile; nothing was changed by this. See what is different \
                 now by `lockgate sale apply {} --dry-run`, then apply again",
                file.display()
            )));
        }
        status => return Err(Failure::running(words(status, &body))),
    }
    Ok(())
}

fn read(file: &Path) -> Result<SaleDefinition, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{name}: cannot be read ({error}); name a sale file")))?;
    parse_toml(&name, &text).map_err(|problems| {
        Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

async fn stored(
    path: &str,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<Option<Stored>, Failure> {
    let response = call(Method::GET, path).send().await.map_err(|error| unreached(&error))?;
    let tag = response.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let status = response.status();
    let text = response.text().await.map_err(Failure::running)?;
    let code = serde_json::from_str::<Value>(&text).unwrap_or_default()["code"].clone();
    match (status, tag) {
        // Another 404 is another role's, which knows nothing about sales.
        (StatusCode::NOT_FOUND, _) if code == "no_such_sale" => Ok(None),
        (StatusCode::OK, Some(tag)) => match parse_json(text.as_bytes()) {
            Ok(definition) => Ok(Some(Stored { definition, tag })),
            Err(problems) => Err(Failure::running(format!(
                "the sale as the server has it cannot be read by this release: {}",
                problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            ))),
        },
        _ => Err(Failure::running(words(status, &serde_json::from_str(&text).unwrap_or_default()))),
    }
}
