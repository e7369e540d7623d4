//! `lockgate-crowd`: see `--help` and `deploy/docs/crowd.md`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use lockgate_crowd::{Look, Options, Outcome, Plan, Report, run};

fn main() -> ExitCode {
    let options = Options::parse();
    let plan = match options.plan() {
        Ok(plan) => plan,
        Err(problems) => {
            for problem in problems.lines() {
                note(problem);
            }
            return ExitCode::from(2);
        }
    };
    match visit(&plan, &options) {
        Ok(Outcome::Kept) => ExitCode::SUCCESS,
        Ok(Outcome::Broken | Outcome::Unfinished) => ExitCode::FAILURE,
        Err(problem) => {
            note(&problem);
            ExitCode::FAILURE
        }
    }
}

fn visit(plan: &Plan, options: &Options) -> Result<Outcome, String> {
    // One thread carries a crowd of a million, and leaves the other cores to the server under test.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    say(format_args!("seed {}", plan.seed));
    let bar = bar(plan);
    let report = runtime.block_on(run(plan, |look| show(&bar, look))).map_err(|error| error.to_string())?;
    bar.finish_and_clear();
    say(&report);
    if let Some(path) = &options.report {
        write(path, &report)?;
    }
    Ok(report.verdict)
}

/// A reader who has gone away is no reason to panic, as `println!` does.
fn say(text: impl Display) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

fn note(problem: &str) {
    let _ = writeln!(io::stderr().lock(), "lockgate-crowd: {problem}");
}

fn write(path: &std::path::Path, report: &Report) -> Result<(), String> {
    let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(path, text + "\n")
        .map_err(|error| format!("--report {}: {error}; name a file that can be written", path.display()))
}

/// On a terminal only.
fn bar(plan: &Plan) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(plan.shoppers));
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} through  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, look: &Look) {
    bar.set_position(u64::from(look.finished));
    let broken = if look.broken == 0 { String::new() } else { format!("  BROKEN {}", look.broken) };
    bar.set_message(format!(
        "arrived {}  entered {}  admitted {}  board {}  calls {}{broken}",
        look.arrived, look.entered, look.admitted, look.now_serving, look.calls
    ));
}
