//! The sale definition: what an operator writes down about a sale, as a TOML file or as the same shape in JSON.
//!
//! - [`SaleDefinition`] and its parts: the definition itself, pure data.
//! - [`parse_toml`], [`parse_json`]: the only way in. They report *every* problem at once, with key, line, value and
//!   remedy, so that nobody corrects a file one error at a time.
//! - [`SaleDefinition::problems`]: the same checks for a definition that was built or changed by code.
//! - [`change_problems`], [`moment_problems`]: what may not change any more once a sale exists, or a moment has passed.
//! - [`differences`]: what a change changes, in words.
//! - `tree` (values with positions) -> `read` and `fields` (types and bounds), `suggest` (misspelt
//!   keys) -> `rules` (contradictions).

mod difference;
mod fields;
mod moments;
mod problem;
mod read;
mod rules;
mod suggest;
mod tree;

#[cfg(test)]
mod roundtrip;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::{
    difference::{Difference, differences},
    moments::moment_problems,
    problem::SaleProblem,
    rules::change_problems,
};
use crate::{
    clock::Timestamp,
    ids::{ItemId, SaleId},
    limits::SALE_FILE_BYTES_MAX,
};

/// A sale file that uses what this version has built; it parses as it stands.
pub const EXAMPLE_TOML: &str = include_str!("example.toml");

/// The sale that is made up where nobody gave one. Real money is never taken for it.
pub const DEMO_SALE_ID: &str = "demo";

/// Most problems reported for one text. A file in another format would otherwise fill the screen.
pub const PROBLEMS_MAX: usize = 100;

/// Lanes, where the file names no number.
const LANES_DEFAULT: u16 = 16;
/// Units per account, where the file names no number: the fairest.
const PER_ACCOUNT_LIMIT_DEFAULT: u32 = 1;
/// Seconds to pay, where the file names no number.
const HOLD_SECONDS_DEFAULT: u64 = 600;
/// Seconds to take a turn, where the file names no number.
const TURN_SECONDS_DEFAULT: u64 = 120;
/// Life of an admission token in seconds, where the file names no number.
const TOKEN_SECONDS_DEFAULT: u64 = 600;

/// One sale, as its operator defined it. Built by [`parse_toml`] or [`parse_json`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaleDefinition {
    /// Names the sale in addresses, keys and tokens; never changes.
    pub id: SaleId,
    /// What shoppers read.
    pub name: String,
    /// From when people may enter the line.
    pub doors_open_at: Timestamp,
    /// From when people are admitted; under a lottery, the moment of the draw.
    pub opens_at: Timestamp,
    /// From when nobody is admitted and nothing is claimed any more.
    pub closes_at: Timestamp,
    /// How places in the line are given. Default `fifo`.
    #[serde(default)]
    pub queueing_method: QueueingMethod,
    /// Lanes the line is split into inside the store. Default 16. Shoppers never see them.
    #[serde(default = "lanes_default")]
    pub lanes: u16,
    /// Who may enter. Default `open`.
    #[serde(default)]
    pub entry: EntryRule,
    /// Most units one account may hold and buy, across items. Default 1.
    #[serde(default = "per_account_limit_default")]
    pub per_account_limit: u32,
    /// Most units the sale sells across items. Absent: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_limit: Option<u32>,
    /// How long a claimed unit is held for its payment, in seconds. Default 600.
    #[serde(default = "hold_seconds_default")]
    pub hold_seconds: u64,
    /// Holds one account may let run out before it has to line up again. Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned_holds_limit: Option<u32>,
    /// Holds one account may have live (not yet paid, not yet given back) at a time. Absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_holds_limit: Option<u32>,
    /// IANA time zone the pages show times in. Absent: the shopper's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How the draw is made; only under `queueing_method = "lottery"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lottery: Option<Lottery>,
    /// How fast people are let in.
    pub admission: Admission,
    /// Work a browser must do before it may enter. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof_of_work: Option<ProofOfWork>,
    /// Who may sign eligibility tokens; only under `entry = "eligibility"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub eligibility_keys: Vec<EligibilityKey>,
    /// What is sold, in the order the pages show it. At least one.
    pub items: Vec<Item>,
}

/// How places in the line are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueingMethod {
    /// First come, first served.
    #[default]
    Fifo,
    /// By a verifiable draw at the opening among all who entered before it.
    Lottery,
}

impl QueueingMethod {
    /// The word that stands in sale files and in the public status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lottery => "lottery",
        }
    }
}

/// Who may enter the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryRule {
    /// Anybody.
    #[default]
    Open,
    /// Whoever brings a token signed by the shop.
    Eligibility,
    /// Whoever brings a code and an e-mail address from the uploaded list.
    Allowlist,
}

impl EntryRule {
    /// The word that stands in sale files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Eligibility => "eligibility",
            Self::Allowlist => "allowlist",
        }
    }
}

/// How the draw is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lottery {
    /// Whether a public value joins the seed. Default `none`.
    #[serde(default)]
    pub beacon: Beacon,
}

/// Whether a public value joins the seed of the draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beacon {
    /// No: the seed follows from the committed secret and the sizes of the pools alone.
    #[default]
    None,
    /// Yes: nobody is admitted until the operator has given one.
    Operator,
}

impl Beacon {
    /// The word that stands in sale files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Operator => "operator",
        }
    }
}

/// How fast people are let in, and how long a turn and a token last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "AdmissionText")]
pub struct Admission {
    /// People admitted per minute.
    pub rate_per_minute: u64,
    /// People admitted at once after a lull, as the operator wrote it; see [`Admission::burst_in_force`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Most people between admission and purchase at a time. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_active: Option<u64>,
    /// People admitted per unit that can still be won. Absent: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_admission: Option<f64>,
    /// How long somebody whose turn has come may take it up, in seconds. Default 120.
    pub turn_seconds: u64,
    /// How long an admission token is good for, in seconds; never shorter than a turn. Default 600.
    pub token_seconds: u64,
    /// How long an admission may last by renewals, in seconds from when it was given. Absent: it is not renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_seconds_max: Option<u64>,
}

impl Admission {
    /// People admitted at once after a lull: what was written, or one second's worth of the rate, whatever the rate is
    /// changed to.
    #[must_use]
    pub fn burst_in_force(&self) -> u64 {
        self.burst.unwrap_or_else(|| self.rate_per_minute.div_ceil(60).max(1))
    }
}

/// [`Admission`] as written, where a default depends on another key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionText {
    rate_per_minute: u64,
    burst: Option<u64>,
    max_active: Option<u64>,
    over_admission: Option<f64>,
    turn_seconds: Option<u64>,
    token_seconds: Option<u64>,
    token_seconds_max: Option<u64>,
}

impl From<AdmissionText> for Admission {
    fn from(text: AdmissionText) -> Self {
        Self {
            rate_per_minute: text.rate_per_minute,
            burst: text.burst,
            max_active: text.max_active,
            over_admission: text.over_admission,
            turn_seconds: text.turn_seconds.unwrap_or(TURN_SECONDS_DEFAULT),
            token_seconds: text.token_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT),
            token_seconds_max: text.token_seconds_max,
        }
    }
}

/// Work a browser must do before it may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofOfWork {
    /// Hashes a browser computes on average.
    pub difficulty: u64,
    /// When it is asked for. Default `always`.
    #[serde(default)]
    pub when: ProofWhen,
}

/// When work is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofWhen {
    /// Of everybody.
    #[default]
    Always,
    /// Only of whoever comes from a network that is above its limit.
    Crowded,
}

impl ProofWhen {
    /// The word that stands in sale files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Crowded => "crowded",
        }
    }
}

/// Somebody who may sign `{sub: account, aud: sale id, exp}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EligibilityKey {
    /// Names the key in a token's header.
    pub kid: String,
    /// The one algorithm this key verifies, whatever a token's header says.
    pub algorithm: EligibilityAlgorithm,
    /// HS256: the environment variable that holds the secret (base64url, at least 32 bytes). The secret itself
    /// never stands in a sale file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// EdDSA: the Ed25519 public key, 32 bytes as base64url without padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

/// How an eligibility token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EligibilityAlgorithm {
    /// HMAC-SHA256 with a secret the shop and Lockgate share.
    #[serde(rename = "HS256")]
    Hs256,
    /// Ed25519: Lockgate can verify but not sign.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl EligibilityAlgorithm {
    /// The name that stands in sale files and token headers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// Something that is sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Names the item in claims and orders.
    pub item: ItemId,
    /// What shoppers read.
    pub name: String,
    /// Units on sale. Once the sale exists, operators change it by its stock route only.
    pub stock: u32,
    /// Price of one unit, in minor units of `currency` (cents).
    pub price: i64,
    /// ISO 4217 code; the same for every item of a sale.
    pub currency: String,
}

impl SaleDefinition {
    /// The item with this id.
    #[must_use]
    pub fn item(&self, id: &ItemId) -> Option<&Item> {
        self.items.iter().find(|item| item.item == *id)
    }

    /// Units of all items together, as defined.
    #[must_use]
    pub fn stock_total(&self) -> u64 {
        self.items.iter().map(|item| u64::from(item.stock)).sum()
    }

    /// Everything that is wrong with this definition, by the checks a sale file goes through. For definitions that
    /// were built or changed by code.
    #[must_use]
    pub fn problems(&self) -> Vec<SaleProblem> {
        match serde_json::to_vec(self) {
            Ok(text) => parse_json(&text).err().unwrap_or_default(),
            Err(error) => {
                let problem = format!("cannot be written as JSON: {error}");
                vec![SaleProblem::new("", "", problem, "correct the value it names")]
            }
        }
    }
}

/// Reads a sale file. `file_name` stands in the problems.
///
/// # Errors
/// Every problem of the file, in the order of its lines; at most [`PROBLEMS_MAX`].
pub fn parse_toml(file_name: &str, text: &str) -> Result<SaleDefinition, Vec<SaleProblem>> {
    check_size(text.len())
        .and_then(|()| tree::from_toml(text))
        .and_then(|root| read::definition(&root))
        .map_err(|problems| finish(problems, Some(file_name)))
}

/// Reads a sale definition as JSON: the shape of the sale file, with times as RFC 3339 text.
///
/// # Errors
/// Every problem of the text; at most [`PROBLEMS_MAX`].
pub fn parse_json(text: &[u8]) -> Result<SaleDefinition, Vec<SaleProblem>> {
    check_size(text.len())
        .and_then(|()| tree::from_json(text))
        .and_then(|root| read::definition(&root))
        .map_err(|problems| finish(problems, None))
}

fn check_size(bytes: usize) -> Result<(), Vec<SaleProblem>> {
    if bytes <= SALE_FILE_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("is larger than {SALE_FILE_BYTES_MAX} bytes");
    Err(vec![SaleProblem::new("", format!("{bytes} bytes"), problem, "check that this is a sale file")])
}

fn finish(mut problems: Vec<SaleProblem>, file: Option<&str>) -> Vec<SaleProblem> {
    problems.sort_by_key(|problem| problem.line);
    if problems.len() > PROBLEMS_MAX {
        let more = problems.len() - (PROBLEMS_MAX - 1);
        problems.truncate(PROBLEMS_MAX - 1);
        let problem = format!("has {more} more problems");
        problems.push(SaleProblem::new("", "", problem, "correct the ones above first"));
    }
    for problem in &mut problems {
        problem.file = file.map(str::to_owned);
    }
    problems
}

fn lanes_default() -> u16 {
    LANES_DEFAULT
}

fn per_account_limit_default() -> u32 {
    PER_ACCOUNT_LIMIT_DEFAULT
}

fn hold_seconds_default() -> u64 {
    HOLD_SECONDS_DEFAULT
}
