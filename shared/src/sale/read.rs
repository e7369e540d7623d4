//! From a tree of values to a definition: every key is looked at, and every problem is kept.

use std::collections::HashSet;

use super::{
    Admission, Beacon, EligibilityAlgorithm, EligibilityKey, EntryRule, HOLD_SECONDS_DEFAULT, Item,
    LANES_DEFAULT, Lottery, PER_ACCOUNT_LIMIT_DEFAULT, ProofOfWork, ProofWhen, QueueingMethod,
    SaleDefinition, SaleProblem, TOKEN_SECONDS_DEFAULT, TURN_SECONDS_DEFAULT,
    fields::{self, Fault, choice, whole, wrong_kind},
    rules, suggest,
    tree::{Kind, Node},
};
use crate::{
    clock::Timestamp,
    limits::{
        BURST_MAX, ITEMS_MAX, KEYS_MAX, LANES_MAX, PRICE_MAX, RATE_PER_MINUTE_MAX, SPAN_SECONDS_MAX,
        STOCK_MAX, TURN_SECONDS_MIN,
    },
};

/// Most units a whole sale can have.
const STOCK_TOTAL_MAX: i128 = STOCK_MAX as i128 * ITEMS_MAX as i128;
/// Most people between admission and purchase that a cap can name.
const MAX_ACTIVE_MAX: i128 = 100_000_000;
/// Hardest proof of work: about a minute of a phone's time.
const DIFFICULTY_MAX: i128 = 10_000_000;
/// Most holds an account may be allowed to let run out.
const ABANDONED_HOLDS_MAX: i128 = 1_000;
/// Most holds an account may be allowed to have live at a time.
const LIVE_HOLDS_MAX: i128 = 1_000;

const _: () = assert!(STOCK_TOTAL_MAX <= u32::MAX as i128, "limits on units fit a u32");

/// Reads a definition and applies every rule to what could be read.
pub(super) fn definition(root: &Node) -> Result<SaleDefinition, Vec<SaleProblem>> {
    let mut reader = Reader { problems: Vec::new(), unread: Vec::new() };
    let Some(draft) = reader.sale(root) else {
        return Err(reader.problems);
    };
    for (relies_on, mut problem) in rules::contradictions(&draft) {
        // A rule over a value that could not be read would judge its stand-in.
        if !relies_on.iter().any(|key| reader.is_unread(key)) {
            problem.line = root.line_of(&problem.key);
            reader.problems.push(problem);
        }
    }
    if reader.problems.is_empty() { Ok(draft) } else { Err(reader.problems) }
}

/// A table of the definition and where it stands.
struct Section<'n> {
    node: &'n Node,
    path: String,
}

impl Section<'_> {
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

struct Reader {
    problems: Vec<SaleProblem>,
    /// Paths whose value is missing or wrong; a stand-in took its place in the draft.
    unread: Vec<String>,
}

impl Reader {
    fn is_unread(&self, path: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.unread.iter().any(|unread| within(unread, path) || within(path, unread))
    }

    fn fault(&mut self, path: String, node: &Node, fault: Fault) {
        let value = if fault.is_private { String::new() } else { node.given() };
        let problem = SaleProblem::new(&path, value, fault.problem, fault.remedy);
        self.problems.push(SaleProblem { line: node.line, ..problem });
        self.unread.push(path);
    }

    fn optional<T>(
        &mut self,
        at: &Section<'_>,
        key: &str,
        read: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> Option<T> {
        let node = at.node.get(key)?;
        match read(node) {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault(at.path_of(key), node, fault);
                None
            }
        }
    }

    fn required<T>(
        &mut self,
        at: &Section<'_>,
        key: &str,
        example: &str,
        read: impl FnOnce(&Node) -> Result<T, Fault>,
    ) -> Option<T> {
        if at.node.get(key).is_none() {
            self.missing(at, key, example);
        }
        self.optional(at, key, read)
    }

    fn missing(&mut self, at: &Section<'_>, key: &str, example: &str) {
        let path = at.path_of(key);
        let problem = SaleProblem::new(&path, "", "is missing", format!("add it, such as {key} = {example}"));
        self.problems.push(SaleProblem { line: at.node.line, ..problem });
        self.unread.push(path);
    }

    /// Opens a table and looks for keys that do not belong in it.
    fn section<'n>(&mut self, path: String, part: &str, node: &'n Node) -> Option<Section<'n>> {
        let Kind::Table(entries) = &node.kind else {
            let fault =
                wrong_kind(node, "a table", "write it as a table of keys, as in the example sale file");
            self.fault(path, node, fault);
            return None;
        };
        let section = Section { node, path };
        let known = suggest::known_keys(part);
        let mut seen = HashSet::new();
        for (key, value) in entries {
            let path = section.path_of(key);
            let (problem, remedy) = if !known.contains(&key.as_str()) {
                ("is not a key of the sale definition here", suggest::unknown_key_remedy(part, key))
            } else if !seen.insert(key.as_str()) {
                ("stands here twice", "keep one of the two".to_owned())
            } else {
                continue;
            };
            // A secret under a misspelt key is still a secret.
            let shown = if part == "eligibility_keys" { String::new() } else { value.given() };
            let problem = SaleProblem::new(&path, shown, problem, remedy);
            self.problems.push(SaleProblem { line: value.line, ..problem });
        }
        Some(section)
    }

    /// The tables under `key`, at most `max` of them.
    fn sections<'n>(&mut self, at: &Section<'n>, key: &str, max: usize) -> Vec<Section<'n>> {
        let Some(node) = at.node.get(key) else {
            return Vec::new();
        };
        let Kind::Array(values) = &node.kind else {
            let fault = wrong_kind(node, "a list of tables", format!("write each under its own [[{key}]]"));
            self.fault(at.path_of(key), node, fault);
            return Vec::new();
        };
        if values.len() > max {
            let fault = Fault::new(format!("holds more than {max}"), format!("keep at most {max}"));
            self.fault(at.path_of(key), node, fault);
        }
        let tables = values.iter().take(max).enumerate();
        let sections: Vec<_> = tables
            .filter_map(|(index, value)| self.section(format!("{}[{index}]", at.path_of(key)), key, value))
            .collect();
        if sections.len() < values.len() {
            // The draft's indexes are not the file's any more, so no rule may name one.
            self.unread.push(at.path_of(key));
        }
        sections
    }

    /// `None` when there is nothing to apply rules to; the problems say why.
    fn sale(&mut self, root: &Node) -> Option<SaleDefinition> {
        let at = &self.section(String::new(), "", root)?;
        let id = self.required(at, "id", "\"phone-drop\"", fields::id);
        let name = self.required(at, "name", "\"Phone drop\"", fields::name).unwrap_or_default();
        let doors_open_at = self.moment(at, "doors_open_at");
        let opens_at = self.moment(at, "opens_at");
        let closes_at = self.moment(at, "closes_at");
        let methods = choice(&[("fifo", QueueingMethod::Fifo), ("lottery", QueueingMethod::Lottery)]);
        let rules = choice(&[
            ("open", EntryRule::Open),
            ("eligibility", EntryRule::Eligibility),
            ("allowlist", EntryRule::Allowlist),
        ]);
        Some(SaleDefinition {
            name,
            doors_open_at,
            opens_at,
            closes_at,
            queueing_method: self.optional(at, "queueing_method", methods).unwrap_or_default(),
            lanes: self.optional(at, "lanes", whole(1..=LANES_MAX.into())).unwrap_or(LANES_DEFAULT),
            entry: self.optional(at, "entry", rules).unwrap_or_default(),
            per_account_limit: self
                .optional(at, "per_account_limit", whole(1..=STOCK_TOTAL_MAX))
                .unwrap_or(PER_ACCOUNT_LIMIT_DEFAULT),
            total_limit: self.optional(at, "total_limit", whole(1..=STOCK_TOTAL_MAX)),
            hold_seconds: self
                .optional(at, "hold_seconds", whole(1..=SPAN_SECONDS_MAX.into()))
                .unwrap_or(HOLD_SECONDS_DEFAULT),
            abandoned_holds_limit: self.optional(at, "abandoned_holds_limit", whole(1..=ABANDONED_HOLDS_MAX)),
            live_holds_limit: self.optional(at, "live_holds_limit", whole(1..=LIVE_HOLDS_MAX)),
            time_zone: self.optional(at, "time_zone", fields::time_zone),
            lottery: self.lottery(at),
            admission: self.admission(at),
            proof_of_work: self.proof_of_work(at),
            eligibility_keys: self.eligibility_keys(at),
            items: self.items(at),
            id: id.or_else(|| "unread".parse().ok())?,
        })
    }

    fn moment(&mut self, at: &Section<'_>, key: &str) -> Timestamp {
        self.required(at, key, "2026-12-01T10:00:00Z", fields::moment).unwrap_or_default()
    }

    fn lottery(&mut self, at: &Section<'_>) -> Option<Lottery> {
        let at = &self.section("lottery".into(), "lottery", at.node.get("lottery")?)?;
        let beacons = choice(&[("none", Beacon::None), ("operator", Beacon::Operator)]);
        Some(Lottery { beacon: self.optional(at, "beacon", beacons).unwrap_or_default() })
    }

    fn admission(&mut self, at: &Section<'_>) -> Admission {
        let section = match at.node.get("admission") {
            Some(node) => self.section("admission".into(), "admission", node),
            None => {
                self.missing(at, "admission", "{ rate_per_minute = 1200 }");
                None
            }
        };
        let Some(at) = &section else {
            return Admission {
                rate_per_minute: 1,
                burst: None,
                max_active: None,
                over_admission: None,
                turn_seconds: TURN_SECONDS_DEFAULT,
                token_seconds: TOKEN_SECONDS_DEFAULT,
                token_seconds_max: None,
            };
        };
        let turn = || whole(TURN_SECONDS_MIN.into()..=SPAN_SECONDS_MAX.into());
        let rates = whole(1..=RATE_PER_MINUTE_MAX.into());
        let rate_per_minute = self.required(at, "rate_per_minute", "1200", rates).unwrap_or(1);
        Admission {
            rate_per_minute,
            burst: self.optional(at, "burst", whole(1..=BURST_MAX.into())),
            max_active: self.optional(at, "max_active", whole(1..=MAX_ACTIVE_MAX)),
            over_admission: self.optional(at, "over_admission", fields::fraction(1.0..=100.0)),
            turn_seconds: self.optional(at, "turn_seconds", turn()).unwrap_or(TURN_SECONDS_DEFAULT),
            token_seconds: self.optional(at, "token_seconds", turn()).unwrap_or(TOKEN_SECONDS_DEFAULT),
            token_seconds_max: self.optional(at, "token_seconds_max", turn()),
        }
    }

    fn proof_of_work(&mut self, at: &Section<'_>) -> Option<ProofOfWork> {
        let at = &self.section("proof_of_work".into(), "proof_of_work", at.node.get("proof_of_work")?)?;
        let difficulty = self.required(at, "difficulty", "50000", whole(1..=DIFFICULTY_MAX)).unwrap_or(1);
        let moments = choice(&[("always", ProofWhen::Always), ("crowded", ProofWhen::Crowded)]);
        Some(ProofOfWork { difficulty, when: self.optional(at, "when", moments).unwrap_or_default() })
    }

    fn eligibility_keys(&mut self, at: &Section<'_>) -> Vec<EligibilityKey> {
        let mut keys = Vec::new();
        for at in &self.sections(at, "eligibility_keys", KEYS_MAX) {
            let algorithms =
                choice(&[("HS256", EligibilityAlgorithm::Hs256), ("EdDSA", EligibilityAlgorithm::EdDsa)]);
            keys.push(EligibilityKey {
                kid: self.required(at, "kid", "\"shop-1\"", fields::kid).unwrap_or_default(),
                algorithm: self
                    .required(at, "algorithm", "\"HS256\"", algorithms)
                    .unwrap_or(EligibilityAlgorithm::Hs256),
                secret_env: self.optional(at, "secret_env", fields::env_name),
                public_key: self.optional(at, "public_key", fields::public_key),
            });
        }
        keys
    }

    fn items(&mut self, at: &Section<'_>) -> Vec<Item> {
        let example = "[{ item = \"phone-black\", name = \"Phone, black\", stock = 10, price = 49900, currency = \"EUR\" }]";
        if at
            .node
            .get("items")
            .is_none_or(|node| matches!(&node.kind, Kind::Array(items) if items.is_empty()))
        {
            self.missing(at, "items", example);
        }
        let mut items = Vec::new();
        for at in &self.sections(at, "items", ITEMS_MAX) {
            let id = self.required(at, "item", "\"phone-black\"", fields::id);
            let name = self.required(at, "name", "\"Phone, black\"", fields::name).unwrap_or_default();
            let stock = self.required(at, "stock", "1000", whole(1..=STOCK_MAX.into())).unwrap_or(1);
            let price = self.required(at, "price", "49900", whole(0..=PRICE_MAX.into())).unwrap_or(0);
            let currency = self.required(at, "currency", "\"EUR\"", fields::currency).unwrap_or_default();
            // Its problem is noted, so an item without an id may be left out of the draft; but then the indexes of
            // those behind it would shift, so a stand-in keeps its place.
            if let Some(item) = id.or_else(|| "unread".parse().ok()) {
                items.push(Item { item, name, stock, price, currency });
            }
        }
        items
    }
}
