//! PURE. When the pools freeze, and when the draw is made.
//!
//! The pools freeze with the first survey begun at or after the opening in which every lane has answered. A lane that
//! stays silent is waited for, but not for long: then its pool is what it was last counted at, and whoever entered it
//! later follows after the draw like everybody else who came late. Without a beacon the draw is made at once; with
//! one, as soon as the operator has given it.

use std::time::Duration;

use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    sale::{Beacon, SaleDefinition},
};

use super::{Draw, Drawn, is_lottery};
use crate::numbering::Numbering;

/// Longest the freeze waits for a lane that does not answer.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The same for a lane that never answered this process: its last count may be known to another one.
pub const UNHEARD_MAX: Duration = Duration::from_secs(300);

/// What the lanes were last counted at.
#[derive(Clone, Copy, Debug)]
pub struct Survey<'a> {
    /// When the count was begun.
    pub begun_at: Timestamp,
    /// Entries of each lane, as last counted; counts never fall.
    pub counts: &'a [u64],
    /// Whether a lane did not answer this time.
    pub is_partial: bool,
    /// Whether a lane has never answered, so that its count is not known at all.
    pub is_unheard: bool,
}

/// How long one process has been waiting for silent lanes. A process that takes over has been watching too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    since: Option<Timestamp>,
}

impl Patience {
    /// What a lottery that waits for its draw comes to at `now`: frozen, drawn, both at once, or `None`, nothing new.
    pub fn next(
        &mut self,
        sale: &StoredSale,
        draw: Option<&Draw>,
        survey: Survey<'_>,
        now: Timestamp,
    ) -> Option<Draw> {
        let frozen = match draw {
            Some(draw) => draw.clone(),
            None => self.freeze(&sale.definition, survey, now)?,
        };
        let drawn = drawn(sale, now);
        let is_news = draw.is_none() || drawn.is_some();
        is_news.then_some(Draw { drawn, ..frozen })
    }

    fn freeze(&mut self, sale: &SaleDefinition, survey: Survey<'_>, now: Timestamp) -> Option<Draw> {
        // After a clock step back the wait counts from the earlier time: it may take longer, never for good.
        let since = self.since.map_or(now, |since| since.min(now));
        self.since = Some(since);
        let is_fresh = survey.begun_at >= sale.opens_at && !survey.is_partial;
        let patience = if survey.is_unheard { UNHEARD_MAX } else { SILENCE_MAX };
        if !is_fresh && now.since(since) < patience {
            return None;
        }
        Some(Draw { pools: survey.counts.to_vec(), frozen_at: whole_milliseconds(now), drawn: None })
    }
}

/// The numbering row to append: under a lottery none before the draw, and the pools first.
#[must_use]
pub fn next_row(
    sale: &SaleDefinition,
    draw: Option<&Draw>,
    numbering: &Numbering,
    counts: &[Option<u64>],
) -> Option<Vec<u64>> {
    match draw.filter(|draw| draw.drawn.is_some()) {
        None if is_lottery(sale) => None,
        Some(draw) if numbering.total() < draw.pools.iter().sum() => Some(draw.pools.clone()),
        _ => numbering.next_row(counts),
    }
}

fn drawn(sale: &StoredSale, now: Timestamp) -> Option<Drawn> {
    let beacon = match beacon_of(&sale.definition) {
        Beacon::None => None,
        Beacon::Operator => Some(sale.controls.beacon.clone()?),
    };
    Some(Drawn { at: whole_milliseconds(now), beacon })
}

/// Whether a public value joins the seed of the sale's draw.
#[must_use]
pub fn beacon_of(sale: &SaleDefinition) -> Beacon {
    sale.lottery.unwrap_or_default().beacon
}

/// What is published is written with milliseconds; what is kept must be the same.
fn whole_milliseconds(moment: Timestamp) -> Timestamp {
    Timestamp::from_micros(moment.micros() / 1_000 * 1_000)
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{
        catalog::{Controls, SaleSecrets},
        sale::{EXAMPLE_TOML, Lottery, QueueingMethod, parse_toml},
    };
    use rand::{SeedableRng as _, rngs::ChaCha8Rng};

    use super::*;

    fn sale(beacon: Beacon, given: Option<&str>) -> StoredSale {
        let mut definition = parse_toml("example", EXAMPLE_TOML).unwrap();
        definition.queueing_method = QueueingMethod::Lottery;
        definition.lottery = Some(Lottery { beacon });
        StoredSale {
            secrets: SaleSecrets::generate(&mut ChaCha8Rng::seed_from_u64(1)),
            controls: Controls { beacon: given.map(str::to_owned), ..Controls::default() },
            version: 1,
            created_at: definition.doors_open_at,
            definition,
        }
    }

    fn survey(begun_at: Timestamp, is_partial: bool) -> Survey<'static> {
        Survey { begun_at, counts: &[3, 0, 9], is_partial, is_unheard: false }
    }

    #[test]
    fn l8_a_lane_that_never_answered_this_process_is_waited_for_longer() {
        let sale = sale(Beacon::None, None);
        let opens = sale.definition.opens_at;
        let unheard = |at: Timestamp| Survey { is_unheard: true, ..survey(at, true) };
        let mut patience = Patience::default();
        assert_eq!(patience.next(&sale, None, unheard(opens), opens), None);
        let late = opens.plus_seconds(299);
        assert_eq!(patience.next(&sale, None, unheard(late), late), None, "another process may know it");
        let then = opens.plus_seconds(300);
        assert!(patience.next(&sale, None, unheard(then), then).is_some());
    }

    #[test]
    fn without_a_beacon_the_first_whole_count_after_the_opening_freezes_and_draws() {
        let sale = sale(Beacon::None, None);
        let opens = sale.definition.opens_at;
        let mut patience = Patience::default();
        let before = survey(Timestamp::from_micros(opens.micros() - 1), false);
        assert_eq!(patience.next(&sale, None, before, opens), None, "somebody may have entered since");
        let now = Timestamp::from_micros(opens.micros() + 200_999);
        let draw = patience.next(&sale, None, survey(opens, false), now).unwrap();
        assert_eq!(draw.pools, [3, 0, 9]);
        assert_eq!(draw.frozen_at.micros(), opens.micros() + 200_000);
        assert_eq!(draw.drawn, Some(Drawn { at: draw.frozen_at, beacon: None }));
    }

    #[test]
    fn l8_a_silent_lane_is_waited_for_30_seconds_and_then_frozen_at_its_last_count() {
        let sale = sale(Beacon::None, None);
        let opens = sale.definition.opens_at;
        let mut patience = Patience::default();
        // A process that begins late waits as long: it has counted that lane no sooner.
        for begin in [opens, opens.plus_seconds(900)] {
            patience = Patience::default();
            assert_eq!(patience.next(&sale, None, survey(begin, true), begin), None);
            let just_before = Timestamp::from_micros(begin.plus_seconds(30).micros() - 1);
            assert_eq!(patience.next(&sale, None, survey(just_before, true), just_before), None);
            let then = begin.plus_seconds(30);
            let draw = patience.next(&sale, None, survey(then, true), then).unwrap();
            assert_eq!((draw.pools, draw.frozen_at), (vec![3, 0, 9], then));
        }
        let back = opens.plus_seconds(1);
        assert_eq!(patience.next(&sale, None, survey(back, true), back), None, "a clock step begins anew");
        assert!(patience.next(&sale, None, survey(back, true), back.plus_seconds(30)).is_some());
    }

    #[test]
    fn p2_no_row_is_written_before_the_draw_and_the_pools_come_first() {
        let lottery = sale(Beacon::Operator, None).definition;
        let fifo = parse_toml("example", EXAMPLE_TOML).unwrap();
        let mut numbering = Numbering::new(2);
        let counts = [Some(7), Some(5)];
        let frozen = Draw { pools: vec![4, 3], frozen_at: lottery.opens_at, drawn: None };
        let drawn = Drawn { at: lottery.opens_at, beacon: None };
        let made = Draw { drawn: Some(drawn), ..frozen.clone() };
        assert_eq!(next_row(&fifo, None, &numbering, &counts), Some(vec![7, 5]));
        assert_eq!(next_row(&lottery, None, &numbering, &counts), None);
        assert_eq!(next_row(&lottery, Some(&frozen), &numbering, &counts), None);
        let row = next_row(&lottery, Some(&made), &numbering, &counts).unwrap();
        assert_eq!(row, [4, 3]);
        numbering.append(&row).unwrap();
        assert_eq!(next_row(&lottery, Some(&made), &numbering, &counts), Some(vec![7, 5]));
        let nobody = Draw { pools: vec![0, 0], ..made };
        assert_eq!(next_row(&lottery, Some(&nobody), &Numbering::new(2), &[Some(0), None]), None);
        assert_eq!(next_row(&lottery, Some(&nobody), &Numbering::new(2), &counts), Some(vec![7, 5]));
    }

    #[test]
    fn with_a_beacon_the_pools_freeze_first_and_the_draw_waits_for_it() {
        let (waiting, given) = (sale(Beacon::Operator, None), sale(Beacon::Operator, Some("8ef1")));
        let opens = waiting.definition.opens_at;
        let mut patience = Patience::default();
        let frozen = patience.next(&waiting, None, survey(opens, false), opens).unwrap();
        assert_eq!(frozen.drawn, None);
        let later = opens.plus_seconds(60);
        let grown = Survey { begun_at: later, counts: &[8, 8, 8], is_partial: false, is_unheard: false };
        assert_eq!(patience.next(&waiting, Some(&frozen), grown, later), None);
        let drawn = patience.next(&given, Some(&frozen), grown, later).unwrap();
        assert_eq!((&drawn.pools, drawn.frozen_at), (&frozen.pools, frozen.frozen_at), "frozen is frozen");
        assert_eq!(drawn.drawn, Some(Drawn { at: later, beacon: Some("8ef1".into()) }));
    }
}
