//! `lockgate draw verify`: checks a draw's public record, and the numbers people were shown, by computing them again.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use clap::{Args, Subcommand};
use lockgate_waiting_room::draw::{
    Table,
    record::{DrawnTicket, PublicRecord},
};

use crate::{exit::Failure, print};

/// What to do with a draw.
#[derive(Args)]
pub struct DrawCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Verify a draw: its commitment, its seed, and every number.
    Verify {
        /// The public record: a file, or its address (`https://…/sale/{sale}/draw`).
        #[arg(long, value_name = "FILE|URL")]
        record: String,
        /// Tickets to check: JSON Lines of {"pool", "entry", "number"}.
        #[arg(long, value_name = "FILE")]
        tickets: Option<std::path::PathBuf>,
        /// The commitment as it was published before the draw; only this binds the operator.
        #[arg(long, value_name = "HEX")]
        commitment: Option<String>,
    },
}

/// Largest record read: a thousand pools take a few kilobytes.
const RECORD_BYTES_MAX: u64 = 1024 * 1024;
/// Most wrong tickets named one by one.
const NAMED_MAX: usize = 20;

/// Runs `lockgate draw …`.
///
/// # Errors
/// Everything that is wrong, one a line.
pub fn run(command: &DrawCommand) -> Result<(), Failure> {
    let Action::Verify { record, tickets, commitment } = &command.action;
    let record: PublicRecord = serde_json::from_str(&read_record(record)?)
        .map_err(|error| Failure::running(format!("record: is no public record of a draw: {error}")))?;
    let verdict = record.verify();
    let mut problems = verdict.problems;
    if commitment.as_ref().is_some_and(|published| !published.trim().eq_ignore_ascii_case(&record.commitment))
    {
        problems.push("commitment: is not the one that was published before the draw".to_owned());
    }
    let mut checked = 0;
    if let (Some(tickets), Some(table)) = (tickets, &verdict.table) {
        checked = check_tickets(tickets, table, &mut problems)?;
    }
    if !problems.is_empty() {
        return Err(Failure::running(format!("the draw does not verify\n{}", problems.join("\n"))));
    }
    let entries = verdict.table.map_or(0, |table| table.total());
    print::line(format_args!(
        "the draw of '{}' verifies: {entries} entries, {checked} tickets checked",
        record.sale
    ));
    Ok(())
}

fn read_record(place: &str) -> Result<String, Failure> {
    let mut text = String::new();
    if place.starts_with("http://") || place.starts_with("https://") {
        text = fetch(place)?;
    } else {
        let file = File::open(place).map_err(|error| unreadable(place, &error))?;
        file.take(RECORD_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .map_err(|error| unreadable(place, &error))?;
    }
    if text.len() as u64 > RECORD_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{place}: is larger than {RECORD_BYTES_MAX} bytes, so it is no record"
        )));
    }
    Ok(text)
}

fn fetch(url: &str) -> Result<String, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::running)?;
    runtime.block_on(async {
        let client = reqwest::Client::builder().build().map_err(Failure::running)?;
        let mut answer = client.get(url).send().await.map_err(Failure::running)?;
        let status = answer.status();
        if !status.is_success() {
            return Err(Failure::running(format!("{url}: answered {status}")));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(Failure::running)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > RECORD_BYTES_MAX {
                break;
            }
        }
        String::from_utf8(bytes).map_err(Failure::running)
    })
}

fn unreadable(place: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{place}: cannot be read ({error})"))
}

/// Checks every ticket of the file; how many there were.
fn check_tickets(path: &Path, table: &Table, problems: &mut Vec<String>) -> Result<u64, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
    let (mut checked, mut wrong) = (0, 0usize);
    for (line, text) in (1u64..).zip(BufReader::new(file).lines()) {
        let text = text.map_err(|error| unreadable(&name, &error))?;
        if text.trim().is_empty() {
            continue;
        }
        checked += 1;
        let problem = match serde_json::from_str::<DrawnTicket>(&text) {
            Ok(ticket) => ticket.problem(table),
            Err(error) => Some(format!("is no ticket: {error}")),
        };
        if let Some(problem) = problem {
            wrong += 1;
            if wrong <= NAMED_MAX {
                problems.push(format!("tickets, line {line}: {problem}"));
            }
        }
    }
    if wrong > NAMED_MAX {
        problems.push(format!("tickets: {} more are wrong", wrong - NAMED_MAX));
    }
    Ok(checked)
}
