//! PURE. The public record of a draw: what is published, and how anybody verifies it.

use lockgate_shared::{catalog::StoredSale, clock::Timestamp, limits::DRAW_ENTRIES_MAX};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ALGORITHM, Draw, Table, commitment, hex, seed, sizes_text};

/// The record, as API.md has it. Before the freeze it holds the commitment alone, after it the pools, and after the
/// draw everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicRecord {
    /// The sale.
    pub sale: String,
    /// SHA-256 of the secret, published with the sale.
    pub commitment: String,
    /// Whether the draw was made.
    pub drawn: bool,
    /// When the pools were frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_at: Option<String>,
    /// When the draw was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn_at: Option<String>,
    /// The secret, published with the draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The public value that joined the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beacon: Option<String>,
    /// Entries of each pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<u64>>,
    /// The seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<String>,
    /// How numbers follow from the seed.
    pub algorithm: String,
    /// SHA-256 over all the fields above, so that a record damaged on its way is noticed whatever was hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// A member of a pool and the number it was shown, as somebody wrote it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawnTicket {
    /// The pool.
    pub pool: u32,
    /// The place in it.
    pub entry: u64,
    /// The number.
    pub number: u64,
}

/// What became of a verification.
#[derive(Debug)]
pub struct Verdict {
    /// Everything that is wrong, each with the field's name first.
    pub problems: Vec<String>,
    /// The numbers, computed again from the record; `None` where anything is wrong with it.
    pub table: Option<Table>,
}

impl PublicRecord {
    /// The record of `sale`, whose lottery has come as far as `draw`.
    #[must_use]
    pub fn new(sale: &StoredSale, draw: Option<&Draw>) -> Self {
        let secret = &sale.secrets.draw_secret;
        let id = &sale.definition.id;
        let drawn = draw.and_then(|draw| draw.drawn.as_ref());
        let mut record = Self {
            sale: id.to_string(),
            commitment: hex(&commitment(secret)),
            drawn: drawn.is_some(),
            frozen_at: draw.map(|draw| draw.frozen_at.to_string()),
            drawn_at: drawn.map(|drawn| drawn.at.to_string()),
            secret: drawn.map(|_| hex(secret)),
            beacon: drawn.and_then(|drawn| drawn.beacon.clone()),
            pools: draw.map(|draw| draw.pools.clone()),
            seed: draw.and_then(|draw| draw.seed(secret, id)).map(|seed| hex(&seed)),
            algorithm: ALGORITHM.to_owned(),
            checksum: None,
        };
        record.checksum = drawn.map(|_| record.checksum_now());
        record
    }

    /// The checksum that belongs to the other fields.
    fn checksum_now(&self) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let fields = [
            self.algorithm.clone(),
            self.sale.clone(),
            self.commitment.clone(),
            text(&self.frozen_at),
            text(&self.drawn_at),
            text(&self.secret),
            text(&self.beacon),
            sizes_text(self.pools.as_deref().unwrap_or_default()),
            text(&self.seed),
        ];
        hex(&Sha256::digest(fields.join("\0")))
    }

    /// Checks every field, and if nothing is wrong computes the numbers again.
    #[must_use]
    pub fn verify(&self) -> Verdict {
        let mut problems = Vec::new();
        if self.algorithm != ALGORITHM {
            problems.push(format!("algorithm: is {:?}, not {ALGORITHM:?}", self.algorithm));
        }
        if !self.drawn {
            problems.push("drawn: is false; there is nothing to verify before the draw".to_owned());
            return Verdict { problems, table: None };
        }
        problems.extend(self.time_problems());
        let seed = self.seed_now(&mut problems);
        match &self.checksum {
            None => problems.push("checksum: is missing".to_owned()),
            Some(checksum) if *checksum != self.checksum_now() => {
                problems.push(
                    "checksum: does not belong to the other fields; one of them was changed".to_owned(),
                );
            }
            Some(_) => {}
        }
        let pools = self.pools.as_deref().unwrap_or_default();
        let total = pools.iter().fold(0u64, |total, size| total.saturating_add(*size));
        if total > DRAW_ENTRIES_MAX {
            problems.push(format!("pools: hold {total} entries; at most {DRAW_ENTRIES_MAX} are verified"));
        }
        // A record that is wrong is not worth the work, or the memory, that its sizes ask for.
        let seed = seed.filter(|_| problems.is_empty());
        let table = seed.and_then(|seed| match Table::draw(&seed, pools) {
            Ok(table) => Some(table),
            Err(error) => {
                problems.push(format!("pools: {error}"));
                None
            }
        });
        Verdict { problems, table }
    }

    /// The seed that follows from the other fields, noting what is wrong with it and them.
    fn seed_now(&self, problems: &mut Vec<String>) -> Option<[u8; 32]> {
        let secret = self.secret.as_deref().and_then(unhex);
        let pools = self.pools.as_deref();
        match secret {
            None => problems.push("secret: is not 64 lower-case hex digits".to_owned()),
            Some(secret) if hex(&commitment(&secret)) != self.commitment => {
                problems.push("commitment: is not the SHA-256 of the secret".to_owned());
            }
            Some(_) => {}
        }
        if pools.is_none() {
            problems.push("pools: are missing".to_owned());
        }
        if self.beacon.as_deref() == Some("") {
            problems.push("beacon: is empty; a draw without one leaves it out".to_owned());
        }
        let seed =
            secret.zip(pools).map(|(secret, pools)| seed(&secret, &self.sale, pools, self.beacon.as_deref()));
        if seed.is_some_and(|seed| self.seed.as_deref() != Some(&hex(&seed))) {
            problems.push("seed: does not follow from secret, sale, pools and beacon".to_owned());
        }
        seed
    }

    fn time_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut read = |name: &str, text: Option<&str>| {
            let moment =
                text.and_then(|text| Timestamp::parse(text).ok().filter(|at| at.to_string() == text));
            match (text, moment) {
                (None, _) => problems.push(format!("{name}: is missing")),
                (Some(_), None) => {
                    problems.push(format!("{name}: is no time such as 2026-12-01T10:00:00.000Z"));
                }
                (Some(_), Some(_)) => {}
            }
            moment
        };
        let (frozen, drawn) =
            (read("frozen_at", self.frozen_at.as_deref()), read("drawn_at", self.drawn_at.as_deref()));
        if frozen.zip(drawn).is_some_and(|(frozen, drawn)| frozen > drawn) {
            problems.push("frozen_at: is after drawn_at".to_owned());
        }
        problems
    }
}

impl DrawnTicket {
    /// What is wrong with the number, by the numbers computed again.
    #[must_use]
    pub fn problem(&self, table: &Table) -> Option<String> {
        let Self { pool, entry, number } = *self;
        match table.number(usize::try_from(pool).unwrap_or(usize::MAX), entry) {
            None => Some(format!("pool {pool} has no entry {entry}")),
            Some(drawn) if drawn != number => {
                Some(format!("number: pool {pool}, entry {entry} drew {drawn}, not {number}"))
            }
            Some(_) => None,
        }
    }
}

/// Reads 64 lower-case hex digits.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().map(digit).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{
        catalog::{Controls, SaleSecrets},
        sale::{EXAMPLE_TOML, parse_toml},
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::draw::Drawn;

    fn sale() -> StoredSale {
        let definition = parse_toml("example", EXAMPLE_TOML).unwrap();
        StoredSale {
            secrets: SaleSecrets {
                lane_key: [1; 32],
                account_key: [2; 32],
                draw_secret: std::array::from_fn(|i| u8::try_from(i).unwrap()),
            },
            controls: Controls::default(),
            version: 1,
            created_at: definition.doors_open_at,
            definition,
        }
    }

    fn draw(beacon: Option<&str>) -> Draw {
        let at = sale().definition.opens_at;
        let drawn = Drawn { at: at.plus_seconds(1), beacon: beacon.map(str::to_owned) };
        Draw { pools: vec![5, 0, 4], frozen_at: at, drawn: Some(drawn) }
    }

    #[test]
    fn p2_nothing_but_the_commitment_is_published_before_the_freeze_and_no_secret_before_the_draw() {
        let before = serde_json::to_value(PublicRecord::new(&sale(), None)).unwrap();
        let commitment = hex(&commitment(&sale().secrets.draw_secret));
        let expected =
            json!({"sale": "phone-drop", "commitment": commitment, "drawn": false, "algorithm": ALGORITHM});
        assert_eq!(before, expected);
        let frozen = Draw { drawn: None, ..draw(None) };
        let frozen = serde_json::to_value(PublicRecord::new(&sale(), Some(&frozen))).unwrap();
        assert_eq!(frozen["pools"], json!([5, 0, 4]));
        for hidden in ["secret", "seed", "beacon", "drawn_at", "checksum"] {
            assert_eq!(frozen.get(hidden), None, "{hidden}");
        }
    }

    #[test]
    fn a_sound_record_verifies_and_gives_the_numbers() {
        for beacon in [None, Some("8ef1"), Some("block 900,000 — «ünïcode»")] {
            let verdict = PublicRecord::new(&sale(), Some(&draw(beacon))).verify();
            assert_eq!(verdict.problems, Vec::<String>::new());
            let seed = draw(beacon).seed(&sale().secrets.draw_secret, &sale().definition.id).unwrap();
            assert_eq!(verdict.table, Table::draw(&seed, &[5, 0, 4]).ok());
        }
    }

    #[test]
    fn a_record_changed_in_any_field_is_caught() {
        let sound = serde_json::to_value(PublicRecord::new(&sale(), Some(&draw(Some("8ef1"))))).unwrap();
        assert_eq!(sound.as_object().unwrap().len(), 11, "every field has its changes below");
        let zeros = "0".repeat(64);
        let changes: [(&str, Value); 16] = [
            ("sale", json!("phone-drip")),
            ("commitment", json!(zeros)),
            ("drawn", json!(false)),
            ("frozen_at", json!("2026-12-01T09:59:59.999Z")),
            ("frozen_at", json!("2027-01-01T00:00:00.000Z")),
            ("drawn_at", json!("2026-12-01T10:00:01.001Z")),
            ("drawn_at", json!("yesterday")),
            ("secret", json!(zeros)),
            ("secret", json!("00")),
            ("beacon", json!("8ef2")),
            ("beacon", json!("")),
            ("pools", json!([5, 1, 3])),
            ("pools", json!([5, 0, 4, 0])),
            ("seed", json!(zeros)),
            ("algorithm", json!("lockgate-draw-v2")),
            ("checksum", json!(zeros)),
        ];
        for (field, value) in changes {
            let mut changed = sound.clone();
            changed[field] = value.clone();
            let record: PublicRecord = serde_json::from_value(changed).unwrap();
            let problems = record.verify().problems;
            assert!(!problems.is_empty(), "{field}: {value}");
            let named = problems.iter().any(|problem| problem.contains(field));
            let noticed = problems.iter().any(|problem| problem.starts_with("checksum"));
            assert!(named || noticed, "{field}: {problems:?}");
        }
        for missing in ["secret", "pools", "seed", "drawn_at", "frozen_at", "checksum"] {
            let mut changed = sound.clone();
            changed.as_object_mut().unwrap().remove(missing);
            let record: PublicRecord = serde_json::from_value(changed).unwrap();
            let problems = record.verify().problems;
            assert!(problems.iter().any(|problem| problem.starts_with(missing)), "{missing}: {problems:?}");
        }
        let mut added = sound;
        added["note"] = json!("x");
        assert!(serde_json::from_value::<PublicRecord>(added).is_err());
    }

    #[test]
    fn dates_cannot_be_changed_by_leaving_the_checksum_out() {
        let mut record = PublicRecord::new(&sale(), Some(&draw(None)));
        record.checksum = None;
        record.frozen_at = Some("2020-01-01T00:00:00.000Z".into());
        let verdict = record.verify();
        assert_eq!(verdict.problems, ["checksum: is missing"]);
        assert!(verdict.table.is_none());
    }

    #[test]
    fn pools_beyond_the_bound_are_refused_before_any_number_is_computed() {
        // Sound in every other field: whoever made up a secret can make such a record.
        for pools in [vec![4_294_967_295], vec![DRAW_ENTRIES_MAX, 1], vec![u64::MAX, u64::MAX]] {
            let record = PublicRecord::new(&sale(), Some(&Draw { pools, ..draw(None) }));
            let verdict = record.verify();
            assert!(verdict.table.is_none());
            assert_eq!(verdict.problems.len(), 1, "{:?}", verdict.problems);
            assert!(verdict.problems[0].contains("at most 100000000"), "{:?}", verdict.problems);
        }
        let mut record = PublicRecord::new(&sale(), Some(&draw(None)));
        record.pools = Some(vec![50_000_000, 0, 4]);
        let verdict = record.verify();
        assert!(verdict.table.is_none() && verdict.problems.len() == 2, "{:?}", verdict.problems);
    }

    #[test]
    fn before_the_draw_only_that_is_said() {
        for draw in [None, Some(Draw { drawn: None, ..draw(None) })] {
            let problems = PublicRecord::new(&sale(), draw.as_ref()).verify().problems;
            assert_eq!(problems, ["drawn: is false; there is nothing to verify before the draw"]);
        }
    }

    #[test]
    fn a_number_that_was_not_drawn_is_told() {
        let table = PublicRecord::new(&sale(), Some(&draw(None))).verify().table.unwrap();
        let number = table.number(2, 3).unwrap();
        let right = DrawnTicket { pool: 2, entry: 3, number };
        assert_eq!(right.problem(&table), None);
        let wrong = DrawnTicket { number: number + 1, ..right }.problem(&table).unwrap();
        assert_eq!(wrong, format!("number: pool 2, entry 3 drew {number}, not {}", number + 1));
        assert!(DrawnTicket { entry: 4, ..right }.problem(&table).is_some());
        assert!(DrawnTicket { pool: u32::MAX, ..right }.problem(&table).is_some());
    }

    #[test]
    fn hex_has_one_spelling() {
        let bytes: [u8; 32] = std::array::from_fn(|i| u8::try_from(i * 8).unwrap());
        assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        for bad in
            ["", "0", &"0".repeat(63), &"0".repeat(65), &"0".repeat(128), &"G".repeat(64), &"A".repeat(64)]
        {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
