//! `lockgate sale allowlist`: checks a list of `code,email` here, line by line, then uploads it in parts.

use std::{fs::File, io::Read as _, path::Path, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use lockgate_shared::{
    allowlist::{Reader, Row},
    ids::SaleId,
};
use rand::RngExt as _;
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};

use super::{unreached, words};
use crate::exit::Failure;

/// Lines of one upload.
const LINES_PER_PART: usize = 10_000;
/// Tries of one part, while the server says that it is busy.
const TRIES_MAX: u32 = 6;
/// Bytes read at a time.
const PIECE_BYTES: usize = 64 * 1_024;

pub(super) async fn allow(
    sale: &SaleId,
    file: &Path,
    call: &impl Fn(Method, &str) -> RequestBuilder,
) -> Result<Value, Failure> {
    let rows = read(file)?;
    let parts = rows.len().div_ceil(LINES_PER_PART);
    let progress = ProgressBar::new(rows.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} codes, {eta} to go") {
        progress.set_style(style);
    }
    let mut total = [0; 3];
    for (index, part) in rows.chunks(LINES_PER_PART).enumerate() {
        let request = || call(Method::POST, &format!("/{sale}/allowlist")).body(text(part));
        let answer = upload(request).await.map_err(|failure| {
            progress.abandon();
            if index == 0 {
                return failure;
            }
            Failure::running(format!(
                "{failure}\n{index} of {parts} parts are stored. Run the command again: what is stored already does no harm"
            ))
        })?;
        for (sum, name) in total.iter_mut().zip(["added", "unchanged", "changed"]) {
            *sum += answer.get(name).and_then(Value::as_u64).unwrap_or(0);
        }
        progress.inc(part.len() as u64);
    }
    progress.finish_and_clear();
    let [added, unchanged, changed] = total;
    Ok(
        json!({ "sale": sale, "codes": rows.len(), "added": added, "unchanged": unchanged, "changed": changed }),
    )
}

/// The rows of a list, or every line that is wrong.
fn read(file: &Path) -> Result<Vec<Row>, Failure> {
    let name = file.display();
    let failed = |error: std::io::Error| {
        Failure::usage(format!("{name}: cannot be read ({error}); name a list of code,email lines"))
    };
    let mut source = File::open(file).map_err(failed)?;
    let (mut reader, mut rows, mut piece) = (Reader::default(), Vec::new(), vec![0; PIECE_BYTES]);
    loop {
        let count = source.read(&mut piece).map_err(failed)?;
        if count == 0 {
            break;
        }
        reader.feed(&piece[..count], &mut |row| rows.push(row));
    }
    if let Err(problems) = reader.finish(&mut |row| rows.push(row)) {
        let mut lines: Vec<String> = problems
            .first
            .iter()
            .map(|problem| format!("{name}:{}: {}", problem.line, problem.message))
            .collect();
        if problems.total > lines.len() {
            lines.push(format!("{name}: {} more lines are wrong", problems.total - lines.len()));
        }
        lines.push("nothing was uploaded".into());
        return Err(Failure::usage(lines.join("\n")));
    }
    if rows.is_empty() {
        return Err(Failure::usage(format!("{name}: holds no code; write one code,email a line")));
    }
    Ok(rows)
}

fn text(rows: &[Row]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    rows.iter().map(|row| format!("{},{}\n", quoted(&row.code), quoted(&row.email))).collect()
}

/// Uploads one part, again after the pause the server asks for while it is busy.
async fn upload(request: impl Fn() -> RequestBuilder) -> Result<Value, Failure> {
    let mut tries = 0;
    loop {
        let response = request().header(header::CONTENT_TYPE, "text/csv; charset=utf-8").send().await;
        let response = response.map_err(|error| unreached(&error))?;
        let status = response.status();
        let pause =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.text().await.map_err(Failure::running)?;
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        tries += 1;
        let is_busy = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        if status.is_success() {
            return Ok(body);
        }
        if !is_busy || tries == TRIES_MAX {
            return Err(Failure::running(words(status, &body)));
        }
        let pause = Duration::from_secs(pause.unwrap_or(2)).min(Duration::from_secs(30));
        tokio::time::sleep(pause + Duration::from_millis(rand::rng().random_range(0..500))).await;
    }
}
