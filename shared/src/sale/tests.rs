//! One test row per refusal: the example file with one thing changed.

use super::*;

/// The example with `from` replaced; panics when that changes nothing, so no row can pass by accident.
fn changed(from: &str, to: &str) -> String {
    let text = EXAMPLE_TOML.replacen(from, to, 1);
    assert_ne!(text, EXAMPLE_TOML, "{from:?} does not stand in the example");
    text
}

fn problems(text: &str) -> Vec<SaleProblem> {
    parse_toml("sale.toml", text).expect_err(text)
}

/// Each row: what is replaced, by what, and the key and words of the one problem that follows.
fn assert_refused(rows: &[(&str, &str, &str, &str)]) {
    for (from, to, key, words) in rows {
        let found = problems(&changed(from, to));
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{to:?} gave {shown:#?}");
        assert_eq!(found[0].key, *key, "{shown:?}");
        assert!(shown[0].contains(words), "{words:?} is not in {shown:?}");
        assert!(!shown[0].contains('\n'), "{shown:?}");
        assert!(!found[0].remedy.is_empty(), "{shown:?}");
        assert!(found[0].line.is_some(), "{shown:?}");
    }
}

#[test]
fn the_example_is_read_as_it_stands() {
    let sale = parse_toml("example.toml", EXAMPLE_TOML).unwrap();
    assert_eq!(sale.id.as_str(), "phone-drop");
    assert_eq!(sale.opens_at.to_string(), "2026-12-01T10:00:00.000Z");
    assert_eq!((sale.stock_total(), sale.total_limit), (1700, Some(1500)));
    assert_eq!(sale.entry, EntryRule::Eligibility);
    let white = sale.item(&"phone-white".parse().unwrap()).unwrap();
    assert_eq!((white.stock, white.price, white.currency.as_str()), (700, 49900, "EUR"));
    assert_eq!(sale.item(&"phone-red".parse().unwrap()), None);
    assert_eq!(sale.problems(), []);
}

#[test]
fn the_example_shows_every_key_that_is_built() {
    for part in ["", "lottery", "admission", "proof_of_work", "eligibility_keys", "items"] {
        for key in suggest::known_keys(part) {
            assert!(EXAMPLE_TOML.contains(key), "{key} of [{part}]");
        }
    }
    // What stands in comments is right too.
    let all = EXAMPLE_TOML.replace("\n# ", "\n");
    let all = parse_toml("all", &all.replace("\"fifo\"", "\"lottery\"")).unwrap();
    assert_eq!((all.admission.max_active, all.admission.over_admission), (Some(20_000), Some(1.5)));
    assert_eq!(all.lottery.unwrap().beacon, Beacon::None);
    assert_eq!(all.proof_of_work, Some(ProofOfWork { difficulty: 50_000, when: ProofWhen::Always }));
}

#[test]
fn what_is_left_out_gets_its_default_by_both_doors() {
    let json = r#"{"id":"s","name":"S","doors_open_at":"2026-12-01T09:00:00Z","opens_at":"2026-12-01T11:00:00+01:00",
        "closes_at":"2026-12-01T12:00:00Z","admission":{"rate_per_minute":120000},"total_limit":null,
        "items":[{"item":"a","name":"A","stock":1,"price":0,"currency":"EUR"}]}"#;
    let sale = parse_json(json.as_bytes()).unwrap();
    assert_eq!(sale, serde_json::from_str(json).unwrap());
    assert_eq!((sale.queueing_method, sale.entry), (QueueingMethod::Fifo, EntryRule::Open));
    assert_eq!((sale.lanes, sale.per_account_limit, sale.hold_seconds), (16, 1, 600));
    let admission = &sale.admission;
    assert_eq!(admission.burst, None, "nobody wrote one");
    assert_eq!(
        (admission.burst_in_force(), admission.turn_seconds, admission.token_seconds),
        (2000, 120, 600)
    );
    assert_eq!(sale.opens_at.to_string(), "2026-12-01T10:00:00.000Z");
}

#[test]
fn refuses_values_of_the_wrong_type_or_out_of_bounds() {
    #[rustfmt::skip]
    assert_refused(&[
        ("id = \"phone-drop\"", "id = \"Phone Drop\"", "id", "not 'P'"),
        ("id = \"phone-drop\"", "id = 7", "id", "is a whole number, not text"),
        ("name = \"Phone drop\"", "name = \" \"", "name", "is empty"),
        ("name = \"Phone drop\"", "name = \"a\\nb\"", "name", "control character"),
        ("lanes = 16", "lanes = 0", "lanes", "from 1 to 256"),
        ("lanes = 16", "lanes = 70000", "lanes", "from 1 to 256"),
        ("lanes = 16", "lanes = \"16\"", "lanes", "is text, not a whole number"),
        ("lanes = 16", "lanes = 1.5", "lanes", "is a number with a fraction"),
        ("= \"fifo\"", "= \"FIFO\"", "queueing_method", "\"fifo\" or \"lottery\""),
        ("entry = \"eligibility\"", "entry = true", "entry", "is true or false, not text"),
        ("per_account_limit = 2", "per_account_limit = 0", "per_account_limit", "out of bounds"),
        ("total_limit = 1500", "total_limit = 0", "total_limit", "out of bounds"),
        ("hold_seconds = 600", "hold_seconds = -5", "hold_seconds", "-5: is out of bounds"),
        ("hold_seconds = 600", "hold_seconds = 86401", "hold_seconds", "from 1 to 86400"),
        ("Europe/Berlin", "Europe/Atlantis", "time_zone", "IANA"),
        ("rate_per_minute = 120000", "rate_per_minute = 0", "admission.rate_per_minute", "out of bounds"),
        ("burst = 2000", "burst = 1000001", "admission.burst", "out of bounds"),
        ("turn_seconds = 120", "turn_seconds = 4", "admission.turn_seconds", "from 5 to"),
        ("[admission]", "[admission]\nover_admission = nan", "admission.over_admission", "out of bounds"),
        ("[admission]", "[admission]\nover_admission = 0", "admission.over_admission", "out of bounds"),
        ("kid = \"shop-1\"", "kid = \"../x\"", "eligibility_keys[0].kid", "not a key id"),
        ("\"HS256\"", "\"none\"", "eligibility_keys[0].algorithm", "\"HS256\" or \"EdDSA\""),
        ("stock = 700", "stock = 0", "items[1].stock", "from 1 to 1000000"),
        ("stock = 700", "stock = 1_000_001", "items[1].stock", "out of bounds"),
        ("price = 49900", "price = -1", "items[0].price", "out of bounds"),
        ("price = 49900", "price = 499.00", "items[0].price", "is a number with a fraction"),
        ("currency = \"EUR\"", "currency = \"Eur\"", "items[0].currency", "three capital letters"),
        ("item = \"phone-black\"", "item = \"phone/black\"", "items[0].item", "not '/'"),
    ]);
}

#[test]
fn refuses_times_that_are_none() {
    #[rustfmt::skip]
    assert_refused(&[
        ("2026-12-01T09:45:00Z", "2026-12-01T09:45:00", "doors_open_at", "has no offset"),
        ("2026-12-01T09:45:00Z", "\"2026-12-01T09:45:00\"", "doors_open_at", "has no offset"),
        ("2026-12-01T09:45:00Z", "2026-12-01", "doors_open_at", "offset"),
        ("2026-12-01T09:45:00Z", "09:45:00", "doors_open_at", "is not a time"),
        ("2026-12-01T09:45:00Z", "\"tomorrow\"", "doors_open_at", "is not a time"),
        ("2026-12-01T09:45:00Z", "1764580000", "doors_open_at", "is a whole number, not a time"),
        ("2026-12-01T09:45:00Z", "1969-12-01T09:45:00Z", "doors_open_at", "1970"),
    ]);
    let sale =
        parse_toml("x", &changed("2026-12-01T09:45:00Z", "\"2026-12-01T10:45:00.0019+01:00\"")).unwrap();
    assert_eq!(sale.doors_open_at.micros() % 1_000_000, 1_000, "a time is kept to the millisecond");
}

#[test]
fn refuses_contradictions() {
    #[rustfmt::skip]
    assert_refused(&[
        ("2026-12-01T09:45:00Z", "2026-12-01T10:00:01Z", "doors_open_at", "is after opens_at"),
        ("2026-12-01T12:00:00Z", "2026-12-01T10:00:00Z", "closes_at", "is not after opens_at"),
        ("2026-12-01T12:00:00Z", "2026-12-01T10:09:59Z", "hold_seconds", "longer than the sale"),
        ("token_seconds_max = 1800", "token_seconds_max = 599", "admission.token_seconds_max", "shorter than a token"),
        ("token_seconds = 600", "token_seconds = 119", "admission.token_seconds", "shorter than a turn"),
        ("total_limit = 1500", "total_limit = 1701", "total_limit", "items have together (1700)"),
        ("item = \"phone-white\"", "item = \"phone-black\"", "items[1].item", "is the id of items[0].item too"),
        ("currency = \"EUR\"", "currency = \"USD\"", "items[1].currency", "differs from the currency"),
        ("entry = \"eligibility\"", "entry = \"open\"", "eligibility_keys", "nobody's eligibility is checked"),
        ("secret_env = \"SHOP_ELIGIBILITY_KEY\"", "", "eligibility_keys[0].secret_env", "is missing"),
        ("[admission]", "[lottery]\nbeacon = \"none\"\n[admission]", "lottery", "has no meaning under"),
        (
            "secret_env =",
            "public_key = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"\nsecret_env =",
            "eligibility_keys[0].public_key",
            "does not belong to a key of algorithm HS256",
        ),
        (
            "[[items]]",
            "[[eligibility_keys]]\nkid = \"shop-1\"\nalgorithm = \"HS256\"\nsecret_env = \"B\"\n[[items]]",
            "eligibility_keys[1].kid",
            "is the kid of eligibility_keys[0].kid too",
        ),
    ]);
    let (head, _) = EXAMPLE_TOML.split_once("[[eligibility_keys]]").unwrap();
    let (_, items) = EXAMPLE_TOML.split_once("[[items]]").unwrap();
    let found = problems(&format!("{head}[[items]]{items}"));
    assert!(found.len() == 1 && found[0].problem.contains("nobody could enter"), "{found:?}");
}

#[test]
fn a_key_of_each_algorithm_needs_its_own_half() {
    let eddsa = |line: &str| {
        let text = changed("\"HS256\"", "\"EdDSA\"");
        text.replace("secret_env = \"SHOP_ELIGIBILITY_KEY\"", line)
    };
    let public_key = "public_key = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"";
    assert!(parse_toml("x", &eddsa(public_key)).is_ok());
    assert_eq!(problems(&eddsa(""))[0].key, "eligibility_keys[0].public_key");
    let both = problems(&eddsa(&format!("{public_key}\nsecret_env = \"B\"")));
    assert_eq!((both.len(), both[0].key.as_str()), (1, "eligibility_keys[0].secret_env"));
    for (bad, words) in [("AAAA", "holds 3 bytes"), ("not base64", "is not base64url")] {
        let found = problems(&eddsa(&format!("public_key = {bad:?}")));
        assert_eq!(found.iter().filter(|problem| problem.problem.contains(words)).count(), 1, "{found:?}");
    }
}

#[test]
fn a_lottery_says_whether_a_beacon_joins_its_draw() {
    let lottery = changed("\"fifo\"", "\"lottery\"");
    assert_eq!(parse_toml("x", &lottery).unwrap().lottery, None);
    for (word, beacon) in [("none", Beacon::None), ("operator", Beacon::Operator)] {
        let text = lottery.replace("[admission]", &format!("[lottery]\nbeacon = \"{word}\"\n[admission]"));
        assert_eq!(parse_toml("x", &text).unwrap().lottery, Some(Lottery { beacon }));
        assert_eq!(beacon.as_str(), word);
    }
    let unknown = lottery.replace("[admission]", "[lottery]\nbeacon = \"moon\"\n[admission]");
    assert_eq!(problems(&unknown)[0].key, "lottery.beacon");
}

#[test]
fn misspelt_misplaced_and_doubled_keys_are_refused() {
    #[rustfmt::skip]
    assert_refused(&[
        ("hold_seconds = 600", "hold_second = 600", "hold_second", "did you mean hold_seconds?"),
        ("lanes = 16", "Lanes = 16", "Lanes", "did you mean lanes?"),
        ("burst = 2000", "brust = 2000", "admission.brust", "did you mean burst?"),
        ("[admission]", "[admission]\nlanes = 4", "admission.lanes", "belongs at the top"),
        ("lanes = 16", "turn_seconds = 16", "turn_seconds", "belongs under [admission]"),
        ("lanes = 16", "xyzzy = 16", "xyzzy", "remove it; the keys here are id, name"),
    ]);
    let json = serde_json::to_string(&parse_toml("x", EXAMPLE_TOML).unwrap()).unwrap();
    let doubled = json.replacen("\"lanes\":16", "\"lanes\":16,\"lanes\":8", 1);
    let found = parse_json(doubled.as_bytes()).unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].to_string(), "lanes = 8: stands here twice; keep one of the two");
}

#[test]
fn a_missing_key_is_named_with_an_example() {
    let found = problems("[[items]]\n[[items]]\nitem = \"a\"");
    let keys: Vec<_> = found.iter().map(|problem| problem.key.as_str()).collect();
    for key in [
        "id",
        "name",
        "doors_open_at",
        "opens_at",
        "closes_at",
        "admission",
        "items[0].item",
        "items[1].stock",
    ] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    assert!(found.iter().all(|problem| problem.problem == "is missing"), "{found:?}");
    let stock = found.iter().find(|problem| problem.key == "items[1].stock").unwrap();
    assert_eq!(stock.to_string(), "sale.toml:2: items[1].stock: is missing; add it, such as stock = 1000");
    let none = problems(EXAMPLE_TOML.split_once("[[items]]").unwrap().0);
    assert_eq!(none.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), ["items"]);
}

#[test]
fn everything_is_reported_at_once_in_the_order_of_the_file() {
    let text = changed("lanes = 16", "lanes = 0")
        .replace("stock = 1000", "stock = \"many\"")
        .replace("hold_seconds = 600", "hold_seconds = 90000\nhold = 5")
        .replace("token_seconds = 600", "token_seconds = 10");
    let found = problems(&text);
    let keys: Vec<_> = found.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["lanes", "hold_seconds", "hold", "admission.token_seconds", "items[0].stock"]);
    assert!(found.is_sorted_by_key(|problem| problem.line));
    // The total limit would be above a stock that could not be read: nothing may be said about it.
    let line = text.lines().position(|line| line.starts_with("stock = \"many\"")).unwrap() + 1;
    let problem = "is text, not a whole number; write a whole number from 1 to 1000000";
    assert_eq!(found[4].to_string(), format!("sale.toml:{line}: items[0].stock = \"many\": {problem}"));
}

#[test]
fn a_text_that_is_no_table_or_no_toml_is_refused_with_its_line() {
    let found = problems("id = \"a\"\nname = \nlanes = = 3\n");
    assert!(found.iter().all(|problem| problem.problem.starts_with("is not TOML")), "{found:?}");
    assert_eq!(found.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(2), Some(3)], "{found:?}");
    for json in ["", "[]", "7", "{\"id\": }", "null", "{\"items\": [1, {}]}", "\u{feff}{}"] {
        assert!(!parse_json(json.as_bytes()).unwrap_err().is_empty(), "{json}");
    }
    assert!(parse_json(b"\xff\xfe").is_err());
    let large = parse_toml("x", &"#".repeat(SALE_FILE_BYTES_MAX + 1)).unwrap_err();
    assert!(large[0].problem.contains("larger than"), "{large:?}");
}

#[test]
fn problems_are_bounded_and_stay_in_their_line() {
    let text: String =
        (0..2_000).map(|n| format!("\"k{n}\\nforged line\" = \"{}\"\n", "x".repeat(8))).collect();
    let found = problems(&text);
    assert_eq!(found.len(), PROBLEMS_MAX);
    assert!(found[PROBLEMS_MAX - 1].problem.contains("more problems"));
    assert!(found.iter().all(|problem| !problem.to_string().contains('\n')));
    let long = problems(&changed("lanes = 16", &format!("lanes = \"{}\"", "y".repeat(5_000))));
    assert!(long[0].to_string().chars().count() < 200, "{}", long[0]);
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA==";
    for line in [format!("secret_env = \"{secret}\""), format!("secret = \"{secret}\"\nsecret_env = \"A\"")] {
        let found = problems(&changed("secret_env = \"SHOP_ELIGIBILITY_KEY\"", &line));
        assert!(!found.iter().any(|problem| problem.to_string().contains("c2Vj")), "{found:?}");
    }
}

#[test]
fn p4_what_places_and_orders_depend_on_cannot_change() {
    let old = parse_toml("x", EXAMPLE_TOML).unwrap();
    assert_eq!(change_problems(&old, &old), []);
    let keys = |change: fn(&mut SaleDefinition)| {
        let mut new = old.clone();
        change(&mut new);
        change_problems(&old, &new).into_iter().map(|problem| problem.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(|sale| sale.id = "other".parse().unwrap()), ["id"]);
    assert_eq!(keys(|sale| sale.lanes = 8), ["lanes"]);
    assert_eq!(keys(|sale| sale.queueing_method = QueueingMethod::Lottery), ["queueing_method"]);
    let beacon = |sale: &mut SaleDefinition| sale.lottery = Some(Lottery { beacon: Beacon::Operator });
    assert_eq!(keys(beacon), ["lottery.beacon"]);
    assert_eq!(keys(|sale| sale.lottery = Some(Lottery::default())), Vec::<String>::new());
    assert_eq!(keys(|sale| sale.entry = EntryRule::Open), ["entry"]);
    assert_eq!(keys(|sale| drop(sale.items.pop())), ["items"]);
    assert_eq!(keys(|sale| sale.items.swap(0, 1)), ["items"]);
    assert_eq!(keys(|sale| sale.items[1].stock += 1), ["items[1].stock"]);
    assert_eq!(keys(|sale| sale.items[0].currency = "USD".into()), ["items[0].currency"]);
    let free = keys(|sale| {
        sale.name = "New".into();
        sale.opens_at = sale.opens_at.plus_seconds(60);
        sale.admission.rate_per_minute = 5;
        sale.items[0].price = 1;
        sale.per_account_limit = 9;
        sale.eligibility_keys[0].kid = "shop-2".into();
    });
    assert!(free.is_empty(), "{free:?}");
}
