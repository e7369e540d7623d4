//! PURE. The verifiable lottery: which number each member of the pools gets.
//!
//! A lane's entries up to the freeze are a pool. The SHA-256 of a secret is published with the sale; the seed follows
//! from secret, sale, pool sizes and, if the sale says so, a public value given after the freeze. Numbers are the
//! order of `HMAC-SHA256(seed, pool ‖ entry)` over all pools together, so that the odds depend neither on the pool,
//! nor on its size, nor on when somebody came. Afterwards all of it is published, and anybody can compute it again.
//!
//! - here: the bytes, and the [`Table`] of numbers;
//! - [`due`]: when the pools freeze and the draw is made;
//! - [`record`]: what is published, and how it is verified.

pub mod due;
pub mod record;

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use lockgate_shared::{
    clock::Timestamp,
    ids::SaleId,
    sale::{QueueingMethod, SaleDefinition},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Names the way numbers are drawn; part of the seed.
pub const ALGORITHM: &str = "lockgate-draw-v1";

/// How far a sale's lottery has come. Kept in the admission record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// Entries of each pool, frozen.
    pub pools: Vec<u64>,
    /// When they were frozen; whole milliseconds.
    pub frozen_at: Timestamp,
    /// The draw itself, once it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
}

/// A draw that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// When; whole milliseconds.
    pub at: Timestamp,
    /// The public value that joined the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<String>,
}

impl Draw {
    /// What stands of what a process knows and what its store holds. A draw that was made stands against one that was
    /// not; of two, the store's, by which every other process goes.
    #[must_use]
    pub fn kept(known: Option<&Self>, stored: Option<&Self>) -> Option<Self> {
        let made = |draw: &&Self| draw.drawn.is_some();
        stored.filter(made).or_else(|| known.filter(made)).or(stored).or(known).cloned()
    }

    /// The seed, once the draw was made.
    #[must_use]
    pub fn seed(&self, secret: &[u8; 32], sale: &SaleId) -> Option<[u8; 32]> {
        let drawn = self.drawn.as_ref()?;
        Some(seed(secret, sale.as_str(), &self.pools, drawn.beacon.as_deref()))
    }
}

/// Whether the sale's numbers come from a draw.
#[must_use]
pub fn is_lottery(sale: &SaleDefinition) -> bool {
    sale.queueing_method == QueueingMethod::Lottery
}

/// What is published with the sale, and binds its operator to the secret.
#[must_use]
pub fn commitment(secret: &[u8; 32]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The seed of a draw.
#[must_use]
pub fn seed(secret: &[u8; 32], sale: &str, pools: &[u64], beacon: Option<&str>) -> [u8; 32] {
    let mut mac = keyed(secret);
    mac.update(ALGORITHM.as_bytes());
    mac.update(&[0]);
    mac.update(sale.as_bytes());
    mac.update(&[0]);
    mac.update(sizes_text(pools).as_bytes());
    mac.update(&[0]);
    mac.update(beacon.unwrap_or_default().as_bytes());
    mac.finalize().into_bytes().into()
}

/// Pool sizes in decimal, joined by commas.
fn sizes_text(pools: &[u64]) -> String {
    let words: Vec<String> = pools.iter().map(ToString::to_string).collect();
    words.join(",")
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC takes keys of any length; a key of 32 bytes never fails.
    Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()))
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The number of every pool entry: four bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where each pool begins in `numbers`, and where the last one ends.
    starts: Box<[usize]>,
    numbers: Box<[u32]>,
}

/// More entries than a draw can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pools hold more entries than can be drawn ({})", u32::MAX)]
pub struct TooMany;

impl Table {
    /// Draws: gives every entry of the pools its number.
    ///
    /// # Errors
    /// There are more entries than numbers.
    pub fn draw(seed: &[u8; 32], pools: &[u64]) -> Result<Self, TooMany> {
        let mut starts = Vec::with_capacity(pools.len() + 1);
        let mut total = 0u64;
        starts.push(0);
        for size in pools {
            total = total.checked_add(*size).filter(|total| *total <= u64::from(u32::MAX)).ok_or(TooMany)?;
            starts.push(usize::try_from(total).map_err(|_| TooMany)?);
        }
        let mac = keyed(seed);
        let whole = |pool: u32, entry: u64| -> [u8; 32] {
            let mut mac = mac.clone();
            mac.update(&pool.to_be_bytes());
            mac.update(&entry.to_be_bytes());
            mac.finalize().into_bytes().into()
        };
        Ok(Self { numbers: ranked(&starts, whole), starts: starts.into() })
    }

    /// The number of an entry; `None` for one that is in no pool.
    #[must_use]
    pub fn number(&self, pool: usize, entry: u64) -> Option<u64> {
        let entry = usize::try_from(entry).ok()?;
        self.pool(pool).get(entry).copied().map(u64::from)
    }

    /// Entries of a pool.
    #[must_use]
    pub fn size(&self, pool: usize) -> u64 {
        self.pool(pool).len() as u64
    }

    /// Entries of all pools: the numbers drawn run from 1 to this.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.numbers.len() as u64
    }

    /// Pools there are.
    #[must_use]
    pub fn pools(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many entries of a pool have a number of at most `number`. Looks at every one of them: at 62,500 that takes
    /// a few microseconds, and an index would double the memory.
    #[must_use]
    pub fn entries_through(&self, pool: usize, number: u64) -> u64 {
        self.pool(pool).iter().filter(|drawn| u64::from(**drawn) <= number).count() as u64
    }

    /// The pool and entry that drew `number`. Looks at every entry.
    #[must_use]
    pub fn entry(&self, number: u64) -> Option<(usize, u64)> {
        let index = self.numbers.iter().position(|drawn| u64::from(*drawn) == number)?;
        let pool = self.starts.partition_point(|start| *start <= index) - 1;
        Some((pool, (index - self.starts[pool]) as u64))
    }

    fn pool(&self, pool: usize) -> &[u32] {
        match self.starts.get(pool..pool.saturating_add(2)) {
            Some([from, to]) => &self.numbers[*from..*to],
            _ => &[],
        }
    }
}

/// The rank, from 1, of every entry by its `whole` key; entries in the order of pools. `starts` ends with the total.
fn ranked(starts: &[usize], whole: impl Fn(u32, u64) -> [u8; 32]) -> Box<[u32]> {
    let total = starts.last().copied().unwrap_or(0);
    // Sorted by the first eight bytes, which all but never tie; where they do, the whole key is computed again. So
    // an entry takes sixteen bytes while the draw is made, and not forty-eight.
    let mut order: Vec<(u64, u32)> = Vec::with_capacity(total);
    let place = |index: u32| {
        let pool = starts.partition_point(|start| *start <= index as usize) - 1;
        (u32::try_from(pool).unwrap_or(u32::MAX), (index as usize - starts[pool]) as u64)
    };
    for (pool, bounds) in (0u32..).zip(starts.windows(2)) {
        for (entry, index) in (0u64..).zip(bounds[0]..bounds[1]) {
            let [a, b, c, d, e, f, g, h, ..] = whole(pool, entry);
            order.push((
                u64::from_be_bytes([a, b, c, d, e, f, g, h]),
                u32::try_from(index).unwrap_or(u32::MAX),
            ));
        }
    }
    order.sort_unstable_by(|(left, i), (right, j)| {
        left.cmp(right).then_with(|| {
            let ((pool_i, entry_i), (pool_j, entry_j)) = (place(*i), place(*j));
            whole(pool_i, entry_i).cmp(&whole(pool_j, entry_j)).then(i.cmp(j))
        })
    });
    let mut numbers = vec![0u32; total].into_boxed_slice();
    for (number, (_, index)) in (1u32..).zip(order) {
        numbers[index as usize] = number;
    }
    numbers
}

#[cfg(test)]
mod tests;
