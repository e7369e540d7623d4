use proptest::prelude::*;
use rand::{SeedableRng as _, rngs::ChaCha8Rng};

use super::*;

fn secret() -> [u8; 32] {
    std::array::from_fn(|i| u8::try_from(i).unwrap())
}

/// The order of a draw, as the contract writes it: `pool.entry` by number.
fn order(table: &Table) -> String {
    let entry = |number| {
        let (pool, entry) = table.entry(number).unwrap();
        format!("{pool}.{entry}")
    };
    (1..=table.total()).map(entry).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_contracts_draw_without_a_beacon() {
    let commitment = hex(&commitment(&secret()));
    assert!(commitment.starts_with("630dcd29") && commitment.ends_with("710dd"), "{commitment}");
    let seed = seed(&secret(), "demo", &[5, 4], None);
    let text = hex(&seed);
    assert!(text.starts_with("01ff9920") && text.ends_with("885b5"), "{text}");
    assert_eq!(order(&Table::draw(&seed, &[5, 4]).unwrap()), "0.4 0.3 1.1 1.0 1.2 1.3 0.1 0.0 0.2");
}

#[test]
fn the_contracts_draw_with_a_beacon() {
    let seed = seed(&secret(), "demo", &[5, 4], Some("8ef1"));
    let text = hex(&seed);
    assert!(text.starts_with("c53953e4") && text.ends_with("e44b33"), "{text}");
    assert_eq!(order(&Table::draw(&seed, &[5, 4]).unwrap()), "0.3 1.0 1.2 0.4 1.3 0.1 0.0 0.2 1.1");
}

#[test]
fn the_seed_hangs_on_every_part() {
    let all = [
        seed(&secret(), "demo", &[5, 4], None),
        seed(&[7; 32], "demo", &[5, 4], None),
        seed(&secret(), "demo-2", &[5, 4], None),
        seed(&secret(), "demo", &[54], None),
        seed(&secret(), "demo", &[4, 5], None),
        seed(&secret(), "demo", &[5, 4], Some("0")),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|other| other != one), "{i}");
    }
}

#[test]
fn empty_pools_and_none_at_all_can_be_drawn() {
    for pools in [&[][..], &[0], &[0, 0, 0]] {
        let table = Table::draw(&[1; 32], pools).unwrap();
        assert_eq!((table.total(), table.pools()), (0, pools.len()));
        assert_eq!((table.number(0, 0), table.entry(1), table.entries_through(0, 9)), (None, None, 0));
    }
    assert_eq!(Table::draw(&[1; 32], &[u64::MAX, 2]), Err(TooMany));
    assert_eq!(Table::draw(&[1; 32], &[1 << 31, 1 << 31]), Err(TooMany));
}

#[test]
fn keys_that_begin_alike_are_told_apart_by_the_rest() {
    let starts = [0, 3, 5];
    let key = |pool: u32, entry: u64| {
        let mut key = [9; 32];
        // Alike in the first eight bytes; the last decides, the later the smaller.
        key[31] = 200 - u8::try_from(u64::from(pool) * 3 + entry).unwrap();
        key
    };
    assert_eq!(*ranked(&starts, key), [5, 4, 3, 2, 1]);
}

proptest! {
    #[test]
    fn every_number_is_given_once_and_found_again(
        seed in any::<[u8; 32]>(), pools in prop::collection::vec(0u64..40, 0..6),
    ) {
        let table = Table::draw(&seed, &pools).unwrap();
        let total: u64 = pools.iter().sum();
        prop_assert_eq!(table.total(), total);
        // The definition, word by word: sort all entries by their whole keys.
        let mut entries: Vec<(usize, u64)> =
            pools.iter().enumerate().flat_map(|(pool, size)| (0..*size).map(move |entry| (pool, entry))).collect();
        entries.sort_by_key(|(pool, entry)| {
            let mut mac = keyed(&seed);
            mac.update(&u32::try_from(*pool).unwrap().to_be_bytes());
            mac.update(&entry.to_be_bytes());
            <[u8; 32]>::from(mac.finalize().into_bytes())
        });
        for (number, (pool, entry)) in (1u64..).zip(&entries) {
            prop_assert_eq!(table.number(*pool, *entry), Some(number));
            prop_assert_eq!(table.entry(number), Some((*pool, *entry)));
        }
        for (pool, size) in pools.iter().enumerate() {
            prop_assert_eq!(table.number(pool, *size), None);
            for number in 0..=total {
                let counted = entries.iter().take(usize::try_from(number).unwrap()).filter(|(p, _)| *p == pool);
                prop_assert_eq!(table.entries_through(pool, number), counted.count() as u64);
            }
        }
    }
}

/// How unlike the expected counts are, for categories of `sizes` of whom `winners` were drawn without replacement.
fn chi_square(won: &[u64], sizes: &[u64], winners: u64) -> f64 {
    let (total, winners) = (sizes.iter().sum::<u64>() as f64, winners as f64);
    let share = winners / total;
    let terms = won.iter().zip(sizes).map(|(won, size)| {
        let expected = share * *size as f64;
        (*won as f64 - expected).powi(2) / expected
    });
    // Drawing without replacement varies less than with it, by exactly this.
    terms.sum::<f64>() / (1.0 - share) * (total - 1.0) / total
}

#[test]
fn p5_the_odds_hang_on_neither_pool_nor_its_size_nor_the_arrival() {
    const DRAWS: u64 = 200;
    // Significant at 1 in 1,000 above these, for 2, 9 and 1 degrees of freedom.
    let (limit_2, limit_9, limit_1) = (13.82, 27.88, 10.83);
    let pools = [20u64, 200, 2_000];
    for rng_seed in [1u64, 20_261_201, 77] {
        let mut rng = ChaCha8Rng::seed_from_u64(rng_seed);
        let (mut by_pool, mut by_decile) = ([0u64; 3], [0u64; 10]);
        let mut halves = 0;
        let winners = 222;
        for draw in 0..DRAWS {
            let secret: [u8; 32] = rng.random();
            let seed = seed(&secret, &format!("sale-{draw}"), &pools, None);
            let table = Table::draw(&seed, &pools).unwrap();
            for number in 1..=winners {
                let (pool, entry) = table.entry(number).unwrap();
                by_pool[pool] += 1;
                by_decile[usize::try_from(entry * 10 / pools[pool]).unwrap()] += 1;
            }
            // The small pools against the big one, within the first half of the numbers.
            halves += table.entries_through(0, 1_110) + table.entries_through(1, 1_110);
        }
        let sizes = pools.map(|size| size * DRAWS);
        let pool = chi_square(&by_pool, &sizes, winners * DRAWS);
        let decile = chi_square(&by_decile, &[222 * DRAWS; 10], winners * DRAWS);
        let small = [halves, 1_110 * DRAWS - halves];
        let size = chi_square(&small, &[220 * DRAWS, 2_000 * DRAWS], 1_110 * DRAWS);
        println!(
            "ChaCha8 seed {rng_seed}: pool {pool:.2} (2 df), decile {decile:.2} (9 df), size {size:.2} (1 df)"
        );
        assert!(pool < limit_2 && decile < limit_9 && size < limit_1);
    }
}
