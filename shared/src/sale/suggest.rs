//! The keys a definition knows, and what somebody probably meant by another one.

/// The keys of each part of a definition, by the part's own key.
const KNOWN: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "id",
            "name",
            "doors_open_at",
            "opens_at",
            "closes_at",
            "queueing_method",
            "lanes",
            "entry",
            "per_account_limit",
            "total_limit",
            "hold_seconds",
            "abandoned_holds_limit",
            "live_holds_limit",
            "time_zone",
            "lottery",
            "admission",
            "proof_of_work",
            "eligibility_keys",
            "items",
        ],
    ),
    ("lottery", &["beacon"]),
    (
        "admission",
        &[
            "rate_per_minute",
            "burst",
            "max_active",
            "over_admission",
            "turn_seconds",
            "token_seconds",
            "token_seconds_max",
        ],
    ),
    ("proof_of_work", &["difficulty", "when"]),
    ("eligibility_keys", &["kid", "algorithm", "secret_env", "public_key"]),
    ("items", &["item", "name", "stock", "price", "currency"]),
];

/// The keys of the part under `part`.
pub(super) fn known_keys(part: &str) -> &'static [&'static str] {
    KNOWN.iter().find(|(name, _)| *name == part).map_or(&[], |(_, keys)| keys)
}

/// What somebody probably meant by a key that `part` does not have.
pub(super) fn unknown_key_remedy(part: &str, key: &str) -> String {
    let known = known_keys(part);
    if let Some((home, _)) = KNOWN.iter().find(|(_, keys)| keys.contains(&key)) {
        // In TOML whatever follows a [header] belongs to it, so a key at the end of a file lands in the wrong table.
        return match (*home, part) {
            ("", _) => format!("{key} belongs at the top, above the first [section]"),
            ("items" | "eligibility_keys", _) => format!("{key} belongs under [[{home}]]"),
            (_, _) => format!("{key} belongs under [{home}]"),
        };
    }
    match nearest(key, known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("remove it; the keys here are {}", known.join(", ")),
    }
}

/// The known key that differs least from `word`, when it differs little.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> =
        word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect();
    let near_enough = (word.len() / 3).max(2).min(word.len().saturating_sub(1));
    known
        .iter()
        .map(|key| (edits(&word, key), *key))
        .filter(|(edits, _)| *edits <= near_enough)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, key)| key)
}

/// Insertions, removals and replacements that turn `a` into `b` (Levenshtein).
fn edits(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (j, cb) in b.chars().enumerate() {
        let mut diagonal = j;
        let mut left = j + 1;
        for (ca, cell) in a.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(*ca != cb);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = j + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
