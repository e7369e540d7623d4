//! `lockgate-crowd`: see `--help` and `deploy/docs/crowd.md`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use lockgate_crowd::{Contest, Look, Options, Outcome, Plan, SellOut, contest, run, sellout};

fn main() -> ExitCode {
    let options = Options::parse();
    let visited = match planned(&options) {
        Ok(Planned::Walk(plan)) => visit(&plan, &options),
        Ok(Planned::Contest(contest)) => compete(&contest, &options),
        Ok(Planned::SellOut(asked)) => sell_out(asked, &options),
        Err(problems) => {
            for problem in problems.lines() {
                note(problem);
            }
            return ExitCode::from(2);
        }
    };
    match visited {
        Ok(Outcome::Kept) => ExitCode::SUCCESS,
        Ok(Outcome::Broken | Outcome::Unfinished) => ExitCode::FAILURE,
        Err(problem) => {
            note(&problem);
            ExitCode::FAILURE
        }
    }
}

/// What is asked for.
enum Planned {
    Walk(Plan),
    Contest(Contest),
    SellOut(SellOut),
}

fn planned(options: &Options) -> Result<Planned, String> {
    if let Some(asked) = SellOut::new(options)? {
        return Ok(Planned::SellOut(asked));
    }
    match Contest::new(options)? {
        Some(contest) => Ok(Planned::Contest(contest)),
        None => options.plan().map(Planned::Walk),
    }
}

/// One thread carries a crowd of a million, and leaves the other cores to the server under test.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// People against bots.
fn compete(contest: &Contest, options: &Options) -> Result<Outcome, String> {
    say(format_args!("seed {}", contest.plan.seed));
    let report = runtime()?.block_on(contest::run(contest)).map_err(|error| error.to_string())?;
    say(&report);
    if let Some(path) = &options.report {
        write(path, &report)?;
    }
    Ok(report.verdict)
}

/// Buyers until all is sold.
fn sell_out(asked: SellOut, options: &Options) -> Result<Outcome, String> {
    say(format_args!("seed {}", asked.plan.seed));
    let (report, claims) = runtime()?.block_on(sellout::run(asked)).map_err(|error| error.to_string())?;
    say(&report);
    if let Some(path) = &options.report {
        write(path, &report)?;
    }
    if let Some(path) = &options.claims {
        let lines: Result<Vec<String>, _> = claims.iter().map(serde_json::to_string).collect();
        let lines = lines.map_err(|error| error.to_string())?;
        std::fs::write(path, lines.join("\n") + "\n").map_err(|error| {
            format!("--claims {}: {error}; name a file that can be written", path.display())
        })?;
    }
    Ok(report.verdict)
}

fn visit(plan: &Plan, options: &Options) -> Result<Outcome, String> {
    let runtime = runtime()?;
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

fn write(path: &std::path::Path, report: &impl serde::Serialize) -> Result<(), String> {
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
