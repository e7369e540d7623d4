//! Properties: what is valid reads back as itself in both formats, and no text makes the reader panic.

use proptest::{collection::vec, option, prelude::*};

use super::*;

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = ("[ -~äöü€日本]{0,20}[a-z]", 1_u32..=1_000_000, 0_i64..=100_000_000_000);
    (vec(item, 1..8), "[A-Z]{3}").prop_map(|(rows, currency)| {
        let item = |(index, (name, stock, price)): (usize, (String, u32, i64))| Item {
            item: format!("item-{index}").parse().unwrap(),
            name,
            stock,
            price,
            currency: currency.clone(),
        };
        rows.into_iter().enumerate().map(item).collect()
    })
}

fn eligibility_keys() -> impl Strategy<Value = Vec<EligibilityKey>> {
    let key = ("[A-Za-z0-9._-]{1,40}", any::<bool>(), "[A-Za-z_][A-Za-z0-9_]{0,40}");
    vec(key, 0..4).prop_map(|rows| {
        let key = |(index, (kid, is_shared, env)): (usize, (String, bool, String))| EligibilityKey {
            kid: format!("{index}{kid}"),
            algorithm: if is_shared { EligibilityAlgorithm::Hs256 } else { EligibilityAlgorithm::EdDsa },
            secret_env: is_shared.then_some(env),
            public_key: (!is_shared).then(|| "A".repeat(43)),
        };
        rows.into_iter().enumerate().map(key).collect()
    })
}

prop_compose! {
    fn admission()(
        rate_per_minute in 1_u64..=6_000_000,
        burst in option::of(1_u64..=1_000_000),
        turn_seconds in 5_u64..=86_400,
        more in 0_u64..=86_400,
    ) -> Admission {
        let token_seconds = (turn_seconds + more).min(86_400);
        Admission {
            rate_per_minute,
            burst,
            max_active: None,
            over_admission: None,
            turn_seconds,
            token_seconds,
            token_seconds_max: Some(token_seconds),
        }
    }
}

prop_compose! {
    fn valid()(
        id in "[a-z0-9-]{1,64}",
        name in "[a-z][ -~äöü€日本]{0,40}",
        (opens_ms, doors_before_ms, hold_seconds, lasts_more_ms) in
            (1_000_000_000_i64..=200_000_000_000_000, 0_i64..=900_000_000, 1_u64..=86_400, 0_i64..=1_000_000_000),
        lanes in 1_u16..=256,
        per_account_limit in 1_u32..=1_000,
        limit_share in option::of(1_u64..=100),
        time_zone in option::of(prop_oneof![Just("Europe/Berlin".to_owned()), Just("UTC".to_owned())]),
        admission in admission(),
        eligibility_keys in eligibility_keys(),
        items in items(),
    ) -> SaleDefinition {
        let at = |ms: i64| Timestamp::from_micros(ms * 1_000);
        let stock: u64 = items.iter().map(|item| u64::from(item.stock)).sum();
        SaleDefinition {
            id: id.parse().unwrap(),
            name,
            doors_open_at: at(opens_ms - doors_before_ms),
            opens_at: at(opens_ms),
            closes_at: at(opens_ms + lasts_more_ms).plus_seconds(hold_seconds),
            queueing_method: QueueingMethod::Fifo,
            lanes,
            entry: if eligibility_keys.is_empty() { EntryRule::Open } else { EntryRule::Eligibility },
            per_account_limit,
            total_limit: limit_share.map(|share| u32::try_from((stock * share / 100).max(1)).unwrap()),
            hold_seconds,
            abandoned_holds_limit: None,
            live_holds_limit: limit_share.map(|share| u32::try_from(share).unwrap()),
            time_zone,
            lottery: None,
            admission,
            proof_of_work: None,
            eligibility_keys,
            items,
        }
    }
}

proptest! {
    #[test]
    fn valid_definitions_read_back_from_both_formats(sale in valid()) {
        prop_assert_eq!(sale.problems(), vec![]);
        let json = serde_json::to_vec(&sale).unwrap();
        prop_assert_eq!(&parse_json(&json).unwrap(), &sale);
        prop_assert_eq!(&serde_json::from_slice::<SaleDefinition>(&json).unwrap(), &sale);
        let toml = toml::to_string(&sale).unwrap();
        prop_assert_eq!(&parse_toml("sale.toml", &toml).unwrap(), &sale);
        prop_assert_eq!(&toml::from_str::<SaleDefinition>(&toml).unwrap(), &sale);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>(), bytes in vec(any::<u8>(), 0..200)) {
        let _ = parse_toml(&text, &text);
        let _ = parse_json(text.as_bytes());
        let _ = parse_json(&bytes);
    }

    #[test]
    fn no_damage_to_the_example_makes_the_reader_panic(
        at in 0..EXAMPLE_TOML.len(),
        length in 0_usize..40,
        patch in "[ -~\n]{0,12}",
    ) {
        let mut text = EXAMPLE_TOML.as_bytes().to_vec();
        text.splice(at..(at + length).min(EXAMPLE_TOML.len()), patch.bytes());
        if let Ok(text) = String::from_utf8(text) {
            match parse_toml("sale.toml", &text) {
                // Whatever is accepted must be acceptable by the other door too.
                Ok(sale) => prop_assert_eq!(sale.problems(), vec![]),
                Err(problems) => prop_assert!(!problems.is_empty()),
            }
        }
    }
}
