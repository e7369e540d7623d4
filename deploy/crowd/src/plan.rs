//! What a run does: the command line, checked as a whole.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
};

use clap::Parser;
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};
use serde::Serialize;

use crate::shopper::Habit;

/// A crowd for a Lockgate: shoppers who walk through the contract and check every answer.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "lockgate-crowd",
    version,
    after_help = "Exit codes: 0 every rule was kept, 1 a rule was broken or the run did not get where it should, 2 bad usage.\n\
                  Every run can be repeated: the seed is printed, and --seed takes it."
)]
pub struct Options {
    /// The Lockgate to visit, such as http://127.0.0.1:8080.
    pub target: String,
    /// The sale, such as demo.
    pub sale: String,
    /// How many people come.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub shoppers: u32,
    /// They come so many a second; without this and --ramp-seconds all at once.
    #[arg(long, value_name = "N", conflicts_with = "ramp_seconds")]
    pub arrivals_per_second: Option<f64>,
    /// They come over so many seconds, more and more of them.
    #[arg(long, value_name = "S")]
    pub ramp_seconds: Option<f64>,
    /// Connections they share.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub connections: u16,
    /// Percent who close the browser and never come back.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub no_shows: f64,
    /// Percent who give their place up.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub leavers: f64,
    /// Percent who are programs that disobey: poll too often, enter again, use tickets again, send garbage.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    pub programs: f64,
    /// Whoever has a number follows the public status, as pages do, and asks for their own only when called.
    #[arg(long)]
    pub follow_public_status: bool,
    /// Whoever is admitted checks out and pays at the simulated gateway.
    #[arg(long)]
    pub buy: bool,
    /// Longest hesitation before each step inside, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub think_ms: u64,
    /// Stop once so many were admitted; fewer is a failure.
    #[arg(long, value_name = "N")]
    pub admissions: Option<u32>,
    /// The sale's burst; without it the pace of admission is reported, not judged.
    #[arg(long, value_name = "N")]
    pub burst: Option<u64>,
    /// What the sale must say of itself: fifo or lottery.
    #[arg(long, value_name = "METHOD", value_parser = ["fifo", "lottery"])]
    pub queueing_method: Option<String>,
    /// The run ends after so many seconds at the latest.
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub seconds_max: u64,
    /// Instead of walking through the line: so many bots take place after place against the people, who want one each.
    #[arg(long, value_name = "N")]
    pub bots: Option<u32>,
    /// With --bots: how long both sides may enter.
    #[arg(long, value_name = "S", default_value_t = 30, requires = "bots")]
    pub window_seconds: u64,
    /// With --bots: cores of the farm; all its bots share them for proofs of work.
    #[arg(long, value_name = "C", default_value_t = 1, requires = "bots")]
    pub farm_cores: u16,
    /// With --bots: cores that stand for the people's own devices.
    #[arg(long, value_name = "C", default_value_t = 1, requires = "bots")]
    pub people_cores: u16,
    /// Instead of walking through the line: buyers who come back until each has bought or all is sold.
    #[arg(long, conflicts_with = "bots")]
    pub sell_out: bool,
    /// With --sell-out: their codes and addresses, one code,email a line; without it they enter as anybody.
    #[arg(long, value_name = "FILE.csv", requires = "sell_out")]
    pub codes: Option<PathBuf>,
    /// With --sell-out: percent of what is held for them that they never pay.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, requires = "sell_out")]
    pub abandon: f64,
    /// With --sell-out: percent of what is held for them that they pay when the hold is over.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, requires = "sell_out")]
    pub pay_late: f64,
    /// With --sell-out: percent who want two units at first, and one if two are not to be had.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, requires = "sell_out")]
    pub pairs: f64,
    /// With --sell-out: write down what was held for whom, and what they were told of it, one JSON object a line.
    #[arg(long, value_name = "FILE.jsonl", requires = "sell_out")]
    pub claims: Option<PathBuf>,
    /// Repeats a run's people and their dice.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Write everything found to this file, as JSON.
    #[arg(long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Allow a target that is not this machine. Only with the consent of whoever runs it.
    #[arg(long)]
    pub i_own_this_target: bool,
}

/// A checked plan.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// `host:port`.
    pub authority: String,
    /// Where that is.
    pub address: SocketAddr,
    /// The sale.
    pub sale: String,
    /// How many people come.
    pub shoppers: u32,
    /// When they come.
    pub arrival: Arrival,
    /// Connections they share.
    pub connections: u16,
    /// Shares of behaviours.
    pub shares: Shares,
    /// See [`Options::follow_public_status`].
    pub follow_public_status: bool,
    /// See [`Options::buy`].
    pub buy: bool,
    /// See [`Options::think_ms`].
    pub think_ms: u64,
    /// See [`Options::admissions`].
    pub admissions: Option<u32>,
    /// See [`Options::burst`].
    pub burst: Option<u64>,
    /// See [`Options::queueing_method`].
    pub queueing_method: Option<String>,
    /// See [`Options::seconds_max`].
    pub seconds_max: u64,
    /// The seed of all dice.
    pub seed: u64,
}

/// When people come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// All in one moment.
    AtOnce,
    /// So many a second.
    PerSecond(f64),
    /// Over so many seconds, the rate rising evenly.
    RampSeconds(f64),
}

/// Percentages of behaviours; the rest is faithful.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Never come back.
    pub no_shows: f64,
    /// Give up.
    pub leavers: f64,
    /// Disobey.
    pub programs: f64,
}

/// Most shoppers of one run.
const SHOPPERS_MAX: u32 = 10_000_000;
/// Longest run, in seconds.
const SECONDS_MAX: u64 = 86_400;
/// Most connections of one run.
const CONNECTIONS_MAX: u16 = 8_192;

impl Options {
    /// Checks everything at once.
    ///
    /// # Errors
    /// Every problem, one a line.
    pub fn plan(&self) -> Result<Plan, String> {
        let mut problems = Vec::new();
        let target = self.target().map_err(|problem| problems.push(problem)).ok();
        let mut range = |flag: &str, value: f64, low: f64, high: f64| {
            if !(low..=high).contains(&value) {
                problems.push(format!("--{flag} {value}: must be between {low} and {high}"));
            }
        };
        range("shoppers", f64::from(self.shoppers), 1.0, f64::from(SHOPPERS_MAX));
        range("connections", f64::from(self.connections), 1.0, f64::from(CONNECTIONS_MAX));
        range("no-shows", self.no_shows, 0.0, 100.0);
        range("leavers", self.leavers, 0.0, 100.0);
        range("programs", self.programs, 0.0, 100.0);
        range(
            "no-shows, --leavers and --programs together",
            self.no_shows + self.leavers + self.programs,
            0.0,
            100.0,
        );
        range("think-ms", self.think_ms as f64, 0.0, 3_600_000.0);
        range("seconds-max", self.seconds_max as f64, 1.0, SECONDS_MAX as f64);
        range("arrivals-per-second", self.arrivals_per_second.unwrap_or(1.0), 0.001, 1e7);
        range("ramp-seconds", self.ramp_seconds.unwrap_or(1.0), 0.001, SECONDS_MAX as f64);
        let wanted = self.admissions.unwrap_or(1);
        if wanted == 0 || wanted > self.shoppers {
            problems
                .push(format!("--admissions {wanted}: must be between 1 and --shoppers {}", self.shoppers));
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.sale.is_empty() || self.sale.len() > 64 || !self.sale.chars().all(fits) {
            problems.push(format!("sale '{}': a sale's id has a-z, 0-9 and '-', at most 64", self.sale));
        }
        let (Some((authority, address)), true) = (target, problems.is_empty()) else {
            return Err(problems.join("\n"));
        };
        Ok(Plan {
            authority,
            address,
            sale: self.sale.clone(),
            shoppers: self.shoppers,
            arrival: match (self.arrivals_per_second, self.ramp_seconds) {
                (Some(rate), _) => Arrival::PerSecond(rate),
                (None, Some(seconds)) => Arrival::RampSeconds(seconds),
                (None, None) => Arrival::AtOnce,
            },
            connections: self.connections,
            shares: Shares { no_shows: self.no_shows, leavers: self.leavers, programs: self.programs },
            follow_public_status: self.follow_public_status,
            buy: self.buy,
            think_ms: self.think_ms,
            admissions: self.admissions,
            burst: self.burst,
            queueing_method: self.queueing_method.clone(),
            seconds_max: self.seconds_max,
            seed: self.seed.unwrap_or_else(|| rand::rng().random()),
        })
    }

    /// `host:port` and its address. A crowd is sent to one's own machine only, unless it is said to be one's own.
    fn target(&self) -> Result<(String, SocketAddr), String> {
        let text = &self.target;
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| format!("target '{text}': give http://HOST:PORT; TLS is not spoken here"))?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
            return Err(format!("target '{text}': give http://HOST:PORT and no path"));
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
            !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']'))
        });
        let full = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        let addresses: Vec<SocketAddr> = full
            .to_socket_addrs()
            .map_err(|error| {
                format!("target '{text}': cannot be resolved ({error}); check the host and port")
            })?
            .collect();
        let Some(first) = addresses.first() else {
            return Err(format!("target '{text}': has no address; check the host"));
        };
        if !self.i_own_this_target
            && !addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
        {
            return Err(format!(
                "target '{text}': is not this machine. A crowd does harm; if it is yours to load, add --i-own-this-target"
            ));
        }
        Ok((authority.to_owned(), *first))
    }
}

impl Arrival {
    /// When the `index`-th of `all` comes, in milliseconds since the start.
    #[must_use]
    pub fn due_ms(self, index: u32, all: u32) -> u64 {
        let index = f64::from(index);
        let seconds = match self {
            Self::AtOnce => 0.0,
            Self::PerSecond(rate) => index / rate,
            // A rate that rises evenly: the share that has come grows with the square of time.
            Self::RampSeconds(span) => span * (index / f64::from(all.max(1))).sqrt(),
        };
        (seconds * 1_000.0) as u64
    }
}

/// Draws people: the same ones for the same seed.
pub struct People {
    dice: ChaCha8Rng,
    shares: Shares,
}

impl People {
    /// The people of this plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { dice: ChaCha8Rng::seed_from_u64(plan.seed), shares: plan.shares }
    }

    /// The next one: behaviour, patience, dice.
    pub fn draw(&mut self) -> (Habit, u8, u64) {
        let percent = self.dice.random_range(0.0..100.0);
        let Shares { no_shows, leavers, programs } = self.shares;
        let habit = if percent < no_shows {
            Habit::NoShow
        } else if percent < no_shows + leavers {
            Habit::Leaver
        } else if percent < no_shows + leavers + programs {
            const PROGRAMS: [Habit; 4] = [Habit::Impatient, Habit::Reenterer, Habit::Reuser, Habit::Garbler];
            PROGRAMS[self.dice.random_range(0..PROGRAMS.len())]
        } else {
            Habit::Faithful
        };
        let patience = match habit {
            Habit::NoShow | Habit::Leaver => self.dice.random_range(0..6),
            Habit::Impatient => self.dice.random_range(20..60),
            Habit::Reenterer => self.dice.random_range(3..12),
            Habit::Reuser => self.dice.random_range(2..6),
            Habit::Faithful | Habit::Garbler => 0,
        };
        (habit, patience, self.dice.random())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(arguments: &[&str]) -> Result<Plan, String> {
        let all = ["lockgate-crowd"].iter().chain(arguments);
        Options::try_parse_from(all).map_err(|error| error.to_string())?.plan()
    }

    #[test]
    fn only_this_machine_is_a_target_unless_it_is_ones_own() {
        assert_eq!(plan(&["http://127.0.0.1:8080", "demo"]).unwrap().authority, "127.0.0.1:8080");
        assert_eq!(plan(&["http://[::1]:8080/", "demo"]).unwrap().address.port(), 8080);
        assert_eq!(plan(&["http://[::1]", "demo"]).unwrap().address.port(), 80);
        let refused = plan(&["http://192.0.2.1:8080", "demo"]).unwrap_err();
        assert!(refused.contains("--i-own-this-target"), "{refused}");
        assert!(plan(&["http://192.0.2.1:8080", "demo", "--i-own-this-target"]).is_ok());
        for target in
            ["https://127.0.0.1", "127.0.0.1:80", "http://127.0.0.1/x", "http://", "http://user@127.0.0.1"]
        {
            assert!(plan(&[target, "demo"]).unwrap_err().contains("target"), "{target}");
        }
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let told =
            plan(&["http://127.0.0.1", "De mo", "--shoppers", "0", "--no-shows", "80", "--leavers", "30"])
                .unwrap_err();
        for word in ["sale 'De mo'", "--shoppers 0", "together", "--admissions"] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }

    #[test]
    fn people_come_as_planned_and_the_same_again() {
        assert_eq!(Arrival::AtOnce.due_ms(999, 1_000), 0);
        assert_eq!(Arrival::PerSecond(100.0).due_ms(250, 1_000), 2_500);
        assert_eq!(Arrival::RampSeconds(10.0).due_ms(250, 1_000), 5_000, "a quarter came in half the time");
        let plan = plan(&["http://127.0.0.1", "demo", "--seed", "5", "--programs", "20"]).unwrap();
        let draw = || {
            let mut people = People::new(&plan);
            (0..1_000).map(|_| people.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        let programs = draw()
            .iter()
            .filter(|(habit, ..)| !matches!(habit, Habit::Faithful | Habit::NoShow | Habit::Leaver))
            .count();
        assert!((150..250).contains(&programs), "{programs}");
    }
}
