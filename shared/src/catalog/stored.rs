//! A sale as it is kept: definition, secrets, controls, version.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::SaleRow;
use crate::{clock::Timestamp, sale::SaleDefinition};

/// A sale with everything that belongs to it. Deliberately not serializable: an answer that shows a sale shows its
/// definition, never this with the secrets inside.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSale {
    /// What the operator wrote.
    pub definition: SaleDefinition,
    /// What places people; made with the sale.
    pub secrets: SaleSecrets,
    /// What the operator switches while the sale runs.
    pub controls: Controls,
    /// Counts the changes, from 1: the sale's `ETag`.
    pub version: u64,
    /// When the sale was first applied.
    pub created_at: Timestamp,
}

/// Keys made once with the sale, stored with it and never rotated: with others, everybody would stand elsewhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaleSecrets {
    /// Decides which lane an account belongs to.
    #[serde(with = "key_text")]
    pub lane_key: [u8; 32],
    /// Turns the shop's name for an account into its hash.
    #[serde(with = "key_text")]
    pub account_key: [u8; 32],
    /// What the draw's commitment commits to; published after the draw.
    #[serde(with = "key_text")]
    pub draw_secret: [u8; 32],
}

impl SaleSecrets {
    /// New secrets from `rng`.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut key = || {
            let mut bytes = [0; 32];
            rng.fill_bytes(&mut bytes);
            bytes
        };
        Self { lane_key: key(), account_key: key(), draw_secret: key() }
    }
}

impl fmt::Debug for SaleSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SaleSecrets(hidden)")
    }
}

/// What operators switch while a sale runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controls {
    /// Admissions are stopped for now; claims go on.
    pub paused: bool,
    /// The sale is over before its time: admissions and claims have stopped.
    pub closed: bool,
    /// Tokens of a lower epoch are revoked.
    pub epoch: u32,
    /// What shoppers are told, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the gate first had the stock. A store that has none of a sale which says so has lost its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock_opened_at: Option<Timestamp>,
    /// The changes of the stock that the definition's items include, so that none counts twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stock_changes: Vec<Uuid>,
    /// How often the stock was put there, as the gate counts it; 0 before the first time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stock_generation: u64,
    /// The public value the operator gave to the draw, after its pools were frozen. Given once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<String>,
    /// Digests of the sale files that were applied at a start, newest last and the last 16. Each counts
    /// once: a process that starts again with its old file must not undo what operators changed meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_applied: Vec<String>,
}

/// Sale files remembered to have been applied.
const FILES_APPLIED_MAX: usize = 16;

impl Controls {
    /// Remembers a sale file, if it was one.
    pub(super) fn note_file(&mut self, digest: Option<&str>) {
        let Some(digest) = digest else { return };
        self.files_applied.retain(|known| known != digest);
        self.files_applied.push(digest.to_owned());
        let over = self.files_applied.len().saturating_sub(FILES_APPLIED_MAX);
        self.files_applied.drain(..over);
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The text of a row.
#[derive(Serialize, Deserialize)]
struct Body<D, S, C> {
    definition: D,
    secrets: S,
    controls: C,
    created_at: Timestamp,
}

impl StoredSale {
    /// The sale as a row, or why it cannot be one.
    pub(super) fn to_row(&self) -> Result<SaleRow, serde_json::Error> {
        let body = Body {
            definition: &self.definition,
            secrets: &self.secrets,
            controls: &self.controls,
            created_at: self.created_at,
        };
        let body = serde_json::to_string(&body)?;
        Ok(SaleRow { id: self.definition.id.to_string(), version: self.version, body })
    }

    /// Reads a row, or says where its text is wrong without repeating any of it: it holds secrets.
    pub(super) fn from_row(row: &SaleRow) -> Result<Self, String> {
        let body: Body<SaleDefinition, SaleSecrets, Controls> =
            serde_json::from_str(&row.body).map_err(|error| {
                let what = if error.is_data() { "an unknown or unfit member" } else { "broken JSON" };
                format!("{what} at line {} column {}", error.line(), error.column())
            })?;
        if body.definition.id.as_str() != row.id {
            return Err(format!("it holds the sale '{}'", body.definition.id));
        }
        Ok(Self {
            definition: body.definition,
            secrets: body.secrets,
            controls: body.controls,
            version: row.version,
            created_at: body.created_at,
        })
    }
}

/// 32 bytes as base64url text.
mod key_text {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(key: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(key))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let bytes = URL_SAFE_NO_PAD
            .decode(String::deserialize(deserializer)?)
            .map_err(|_| D::Error::custom("no base64url"))?;
        bytes.try_into().map_err(|_| D::Error::custom("not 32 bytes"))
    }
}
