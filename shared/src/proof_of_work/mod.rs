//! PURE. Proof of work: a puzzle that costs whoever enters some computing, and us next to nothing.
//!
//! The scheme is ALTCHA's, version 2 (<https://altcha.org/docs/v2/>): find a counter for which
//! `PBKDF2-HMAC-SHA256(nonce ‖ counter, salt, cost)` (RFC 8018) begins with a given prefix. Any of its clients solves
//! our challenges. A [`Challenge`] is stateless: it is signed, names its sale, and runs out. That a [`Proof`] counts
//! once is for whoever verifies it to remember, by its [`ProofId`], until [`Proof::expires_at`].

#[cfg(test)]
mod tests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::Mac as _;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::{
    clock::Timestamp,
    ids::SaleId,
    keys::{HmacSha256, KeyRing},
    limits::{PROOF_BYTES_MAX, PROOF_SECONDS},
};

/// The one algorithm of our challenges, by its name in the scheme.
const ALGORITHM: &str = "PBKDF2/SHA-256";
/// Bytes of a derived key.
const KEY_BYTES: usize = 32;
/// Fewest iterations one try takes: below, a browser spends its time on calling the function.
const COST_MIN: u64 = 64;
/// Hexadecimal digits a prefix may have: longer ones would make the work of one try worth nothing.
const PREFIX_DIGITS_MAX: usize = 12;

/// A puzzle, as the scheme has it in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// What to compute.
    pub parameters: Parameters,
    /// Ours: HMAC-SHA256 under the ring's key for this purpose, in lower-case hex.
    pub signature: String,
}

/// What to compute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    /// How keys are derived.
    pub algorithm: String,
    /// Iterations of one try.
    pub cost: u32,
    /// What else is signed.
    pub data: Data,
    /// When the challenge runs out, in Unix seconds.
    pub expires_at: i64,
    /// Bytes of a derived key.
    pub key_length: usize,
    /// What the derived key must begin with, in hex; each digit makes it 16 times harder.
    pub key_prefix: String,
    /// 16 random bytes in hex, before the counter in the password.
    pub nonce: String,
    /// 16 random bytes in hex.
    pub salt: String,
}

/// What a challenge is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The key that signed it.
    pub kid: String,
    /// The sale it is for.
    pub sale: SaleId,
}

/// The answer to a puzzle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Solution {
    /// The counter that does it.
    pub counter: u32,
    /// The key it gives, in hex.
    pub derived_key: String,
    /// How long it took, in milliseconds; clients say so, and nobody relies on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
}

/// Challenge and solution together: what a client sends, as base64 of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Payload {
    challenge: Challenge,
    solution: Solution,
}

/// Names one challenge for ever: its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProofId(pub [u8; 16]);

/// Work that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Which challenge it answers.
    pub id: ProofId,
    /// Until when it must be remembered as used.
    pub expires_at: Timestamp,
}

/// Why a proof is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not base64 of a challenge with its solution.
    #[error("it is no proof of work: base64 of {{\"challenge\", \"solution\"}} in JSON is expected")]
    Malformed,
    /// Not one of our challenges, or changed.
    #[error("its challenge was not given here")]
    Forged,
    /// For another sale.
    #[error("its challenge is for another sale")]
    OtherSale,
    /// Run out.
    #[error("its challenge has run out")]
    Expired,
    /// The counter does not solve it.
    #[error("it does not solve its challenge")]
    Wrong,
}

impl Challenge {
    /// A challenge that takes about `difficulty` iterations, from 32 random bytes.
    #[must_use]
    pub fn issue(sale: &SaleId, difficulty: u64, random: [u8; 32], now: Timestamp, ring: &KeyRing) -> Self {
        let (cost, digits) = shape(difficulty);
        let key = ring.active();
        let parameters = Parameters {
            algorithm: ALGORITHM.into(),
            cost,
            data: Data { kid: key.kid().to_string(), sale: sale.clone() },
            expires_at: now.plus_seconds(PROOF_SECONDS).seconds(),
            key_length: KEY_BYTES,
            key_prefix: "0".repeat(digits),
            nonce: hex::encode(&random[..16]),
            salt: hex::encode(&random[16..]),
        };
        let signature = hex::encode(parameters.mac(key.proof_of_work_mac()).finalize().into_bytes());
        Self { parameters, signature }
    }

    /// Finds a solution, as a client does: takes as long as it takes, and may be stopped by `go_on` between tries.
    pub fn solve(&self, mut go_on: impl FnMut() -> bool) -> Option<String> {
        let parameters = &self.parameters;
        let (nonce, salt) = (unhex(&parameters.nonce)?, unhex(&parameters.salt)?);
        for counter in 0..=u32::MAX {
            if !go_on() {
                return None;
            }
            let key = derived_key(nonce, salt, counter, parameters.cost);
            if has_prefix(&key, parameters.key_prefix.len()) {
                let solution = Solution { counter, derived_key: hex::encode(key), time: None };
                let payload = Payload { challenge: self.clone(), solution };
                return serde_json::to_vec(&payload).ok().map(|json| STANDARD.encode(json));
            }
        }
        None
    }
}

impl Parameters {
    /// Every field, each behind its length, so that no two challenges sign the same bytes.
    fn mac(&self, mut mac: HmacSha256) -> HmacSha256 {
        let (cost, expires_at) = (self.cost.to_string(), self.expires_at.to_string());
        let key_length = self.key_length.to_string();
        for field in [
            &self.algorithm,
            &cost,
            &self.data.kid,
            self.data.sale.as_str(),
            &expires_at,
            &key_length,
            &self.key_prefix,
            &self.nonce,
            &self.salt,
        ] {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field.as_bytes());
        }
        mac
    }
}

/// An answer to one of our challenges, in time and for the right sale; whether it solves it, [`Answer::check`] says.
#[derive(Debug)]
pub struct Answer {
    parameters: Parameters,
    solution: Solution,
}

/// Reads what a client sends, and whether the challenge is ours: a MAC, and nothing that anybody could make
/// expensive.
///
/// # Errors
/// Why it is not accepted.
pub fn read(text: &str, sale: &SaleId, now: Timestamp, ring: &KeyRing) -> Result<Answer, ProofError> {
    if text.len() > PROOF_BYTES_MAX {
        return Err(ProofError::Malformed);
    }
    let json = STANDARD.decode(text).map_err(|_| ProofError::Malformed)?;
    let Payload { challenge: Challenge { parameters, signature }, solution } =
        serde_json::from_slice(&json).map_err(|_| ProofError::Malformed)?;
    let key = ring.get(&parameters.data.kid).ok_or(ProofError::Forged)?;
    let given = unhex::<32>(&signature).ok_or(ProofError::Forged)?;
    parameters.mac(key.proof_of_work_mac()).verify_slice(&given).map_err(|_| ProofError::Forged)?;
    if parameters.data.sale != *sale {
        return Err(ProofError::OtherSale);
    }
    if now.seconds() >= parameters.expires_at {
        return Err(ProofError::Expired);
    }
    Ok(Answer { parameters, solution })
}

impl Answer {
    /// Derives the key: a fraction of a millisecond.
    ///
    /// # Errors
    /// It does not solve the challenge.
    pub fn check(&self) -> Result<Proof, ProofError> {
        let Self { parameters, solution } = self;
        let nonce = unhex(&parameters.nonce).ok_or(ProofError::Forged)?;
        let salt = unhex(&parameters.salt).ok_or(ProofError::Forged)?;
        let given = unhex::<KEY_BYTES>(&solution.derived_key).ok_or(ProofError::Wrong)?;
        let key = derived_key(nonce, salt, solution.counter, parameters.cost);
        if !has_prefix(&key, parameters.key_prefix.len()) || !bool::from(key.ct_eq(&given)) {
            return Err(ProofError::Wrong);
        }
        Ok(Proof { id: ProofId(nonce), expires_at: Timestamp::from_seconds(parameters.expires_at) })
    }
}

/// Reads and checks in one go.
///
/// # Errors
/// Why it is not accepted.
pub fn verify(text: &str, sale: &SaleId, now: Timestamp, ring: &KeyRing) -> Result<Proof, ProofError> {
    read(text, sale, now, ring)?.check()
}

/// Iterations of one try, and digits of the prefix: as many digits as leave a try worth its call, so that verifying
/// stays cheap however hard solving is.
fn shape(difficulty: u64) -> (u32, usize) {
    let mut tries = 1;
    let mut digits = 0;
    while digits < PREFIX_DIGITS_MAX && difficulty / (tries * 16) >= COST_MIN {
        tries *= 16;
        digits += 1;
    }
    (u32::try_from(difficulty / tries).unwrap_or(u32::MAX).max(1), digits)
}

fn derived_key(nonce: [u8; 16], salt: [u8; 16], counter: u32, cost: u32) -> [u8; KEY_BYTES] {
    let mut password = [0; 20];
    password[..16].copy_from_slice(&nonce);
    password[16..].copy_from_slice(&counter.to_be_bytes());
    pbkdf2::pbkdf2_hmac_array::<Sha256, KEY_BYTES>(&password, &salt, cost)
}

/// Whether the first `digits` hexadecimal digits are zeros.
fn has_prefix(key: &[u8; KEY_BYTES], digits: usize) -> bool {
    (0..digits.min(KEY_BYTES * 2)).all(|digit| {
        let byte = key[digit / 2];
        if digit % 2 == 0 { byte >> 4 == 0 } else { byte & 0x0f == 0 }
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok().map(|()| bytes)
}
