//! The one Lockgate binary.
//!
//! | file | what it does |
//! |---|---|
//! | `config.rs` | settings from file, environment and flags |
//! | `serve.rs` | puts a process together: stores, services, listeners, stop |
//! | `stores.rs` | which back end each service gets |
//! | `operations.rs` | `/healthz`, `/readyz`, `/metrics` |
//! | `networks.rs` | `/operator/v1/edge`: networks let through or refused |
//! | `demo.rs` | the demo sale |
//! | `print.rs` | what commands say |
//! | `sale_files.rs` | `--sale`: the files given at the start |
//! | `keys.rs`, `sale.rs`, `draw.rs`, `check.rs` | the commands of these names |

// Both macros panic when nobody reads; `print.rs` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod config;
mod demo;
mod draw;
mod exit;
mod keys;
mod networks;
mod operations;
mod payments;
mod print;
mod sale;
mod sale_files;
mod serve;
mod stores;
mod telemetry;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{config::Config, exit::Failure};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A virtual waiting room for flash sales.
#[derive(Parser)]
#[command(name = "lockgate", version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Serve everything from one process (the default).
    Serve(Options),
    /// Serve the line alone.
    WaitingRoom(Options),
    /// Serve the stock alone.
    StockGate(Options),
    /// Serve orders and payments alone.
    Checkout(Options),
    /// Serve the simulated payment gateway alone.
    SimulatedGateway(Options),
    /// Act on sales through a running Lockgate.
    Sale(sale::SaleCommand),
    /// Verify a lottery's draw.
    Draw(draw::DrawCommand),
    /// Make and rotate the keys that sign tickets and tokens.
    Keys(keys::KeysCommand),
    /// Validate a configuration and sale files without starting anything.
    Check(Options),
}

/// Settings that are flags too; each overrides the file and the environment.
#[derive(Args, Clone, Default)]
pub struct Options {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A sale file to apply at the start; may be given several times.
    #[arg(long, value_name = "FILE")]
    sale: Vec<PathBuf>,
    /// Where shoppers are served [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where operators are served, if not on the same listener.
    #[arg(long, value_name = "ADDR")]
    operator_listen: Option<String>,
    /// The folder of everything that lasts [default: lockgate-data].
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
}

impl Options {
    /// Reads the configuration these options name.
    ///
    /// # Errors
    /// Every problem found, one a line.
    fn load(&self) -> Result<Config, Failure> {
        let text = match &self.config {
            None => None,
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                Failure::usage(format!(
                    "{}: cannot be read ({error}); name a configuration file",
                    path.display()
                ))
            })?),
        };
        let name = self.config.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let flags: Vec<(&str, String)> =
            [("listen", &self.listen), ("operator_listen", &self.operator_listen), ("data", &self.data)]
                .into_iter()
                .filter_map(|(key, value)| Some((key, value.clone()?)))
                .collect();
        let environment =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        config::load(text.as_deref().map(|text| (name.as_str(), text)), environment, &flags).map_err(
            |problems| {
                Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            },
        )
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.options)) {
        Command::Serve(options) => serve::run(serve::Roles::ALL, &options),
        Command::WaitingRoom(options) => serve::run(serve::Roles::WAITING_ROOM, &options),
        Command::StockGate(options) => serve::run(serve::Roles::STOCK_GATE, &options),
        Command::Checkout(options) => serve::run(serve::Roles::CHECKOUT, &options),
        Command::SimulatedGateway(options) => serve::run(serve::Roles::SIMULATED_GATEWAY, &options),
        Command::Sale(command) => sale::run(&command),
        Command::Draw(command) => draw::run(&command),
        Command::Keys(command) => keys::run(&command),
        Command::Check(options) => check::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::note(format_args!("lockgate: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}
