//! Rules of admission at single moments, and what no sequence of moments may break.

use lockgate_shared::clock::Timestamp;
use proptest::prelude::*;

use super::{record::HISTORY_MAX, *};
use crate::numbers::{Lots, Numbers};

const START: i64 = 1_800_000_000;

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_micros(START * 1_000_000 + ms * 1_000)
}

fn settings(rate_per_minute: u64, burst: u64) -> Settings {
    Settings { rate_per_minute, burst, turn_seconds: 60, ..Settings::default() }
}

/// Nothing but the time, whether it is open, and how many there are.
fn advance(
    record: &AdmissionRecord,
    settings: &Settings,
    admits: bool,
    total: u64,
    now: Timestamp,
) -> Option<AdmissionRecord> {
    let phase = if admits { Phase::Open } else { Phase::Paused };
    let turns = Turns::new(1);
    super::advance(record, settings, &Scene { now, phase, total, turns: &turns, winnable: None })
}

/// One tick; the record after it.
fn tick(record: &AdmissionRecord, settings: &Settings, admits: bool, total: u64, ms: i64) -> AdmissionRecord {
    advance(record, settings, admits, total, at_ms(ms)).unwrap_or_else(|| record.clone())
}

#[test]
fn opens_with_a_burst_and_then_keeps_the_rate() {
    let settings = settings(6_000, 100);
    let mut record = AdmissionRecord::default();
    for ms in (0..=10_000).step_by(200) {
        record = tick(&record, &settings, true, 1_000_000, ms);
        assert_eq!(record.now_serving, 100 + ms as u64 / 10);
    }
}

#[test]
fn a_burst_below_what_a_tick_brings_does_not_throttle_the_rate() {
    let settings = settings(60_000, 10);
    let (mut record, mut ms) = (AdmissionRecord::default(), 0);
    record = tick(&record, &settings, true, 1_000_000, ms);
    assert_eq!(record.now_serving, settings.capacity(), "what one tick brings, at the opening");
    // Ticks come as late as their work makes them.
    for late_ms in [0, 1, 7, 30, 200, 113].repeat(20) {
        let before = record.now_serving;
        ms += 200 + late_ms;
        record = tick(&record, &settings, true, 1_000_000, ms);
        assert_eq!(record.now_serving - before, 200 + late_ms as u64, "a thousand a second");
    }
    let before = record.now_serving;
    let lull = tick(&record, &settings, true, 1_000_000, ms + 3_600_000);
    assert_eq!(lull.now_serving - before, settings.capacity(), "a lull saves up no more than that");
    let slow = Settings { rate_per_minute: 60, burst: 10, ..settings };
    assert_eq!(slow.capacity(), 10, "a burst that is enough stands");
}

#[test]
fn l6_a_pause_saves_nothing_up_and_a_new_rate_counts_from_its_tick() {
    let before = settings(6_000, 100);
    let record = tick(&AdmissionRecord::default(), &before, true, 1_000_000, 0);
    assert_eq!(record.now_serving, 100);
    let paused = tick(&record, &before, false, 1_000_000, 200);
    assert_eq!(paused.now_serving, 100);
    let resumed = tick(&paused, &before, true, 1_000_000, 3_600_000);
    assert_eq!(resumed.now_serving, 120, "the 200 ms before the pause, not the hour after");
    let after = settings(60_000, 1_000);
    let raised = tick(&resumed, &after, true, 1_000_000, 3_600_200);
    assert_eq!(raised.now_serving, 140, "200 ms at the old rate");
    assert_eq!(tick(&raised, &after, true, 1_000_000, 3_600_400).now_serving, 340);
}

#[test]
fn l6_a_raised_burst_is_not_full_at_once() {
    let record = tick(&AdmissionRecord::default(), &settings(60, 10), true, 0, 0);
    let raised = tick(&record, &settings(60, 1_000), true, 0, 3_600_000);
    assert_eq!(tick(&raised, &settings(60, 1_000), true, 5_000, 3_600_000).now_serving, 10);
}

#[test]
fn nothing_is_written_while_nothing_moves() {
    let settings = settings(60, 1);
    let record = tick(&AdmissionRecord::default(), &settings, true, 5, 0);
    assert_eq!(record.now_serving, 1);
    assert_eq!(advance(&record, &settings, true, 5, at_ms(900)), None);
    assert_eq!(tick(&record, &settings, true, 5, 1_000).now_serving, 2, "and the filling is not lost");
    let all = tick(&record, &settings, true, 1, 1_000);
    assert_eq!((all.bound, all.version), (Bound::Line, record.version + 1), "but why it stands is told");
    assert_eq!(advance(&all, &settings, true, 1, at_ms(1_200)), None);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let settings = settings(6_000, 100);
    let record = tick(&AdmissionRecord::default(), &settings, true, 1_000_000, 3_600_000);
    let back = tick(&record, &settings, true, 1_000_000, 0);
    assert_eq!(back.now_serving, 100);
    let on = tick(&back, &settings, true, 1_000_000, 1_000);
    assert_eq!(on.now_serving, 200, "the rate goes on from the earlier clock at once");
    assert_eq!(tick(&on, &settings, true, 1_000_000, 63_000).expired_through, 200, "no turn lasts an hour");
}

#[test]
fn l1_turns_run_out_after_their_time_and_not_before() {
    let settings = settings(6_000, 100);
    let record = tick(&AdmissionRecord::default(), &settings, true, 150, 0);
    let expires_at = record.turn_expires_at(100, 60).unwrap();
    assert!(expires_at >= at_ms(60_000) && expires_at <= at_ms(60_500));
    let record = tick(&record, &settings, true, 150, 30_000);
    assert_eq!(record.now_serving, 150);
    assert_eq!(record.turn_expires_at(100, 60), Some(expires_at), "what was shown stays true");
    assert_eq!(record.turn_expires_at(151, 60), None);
    let just_before = Timestamp::from_micros(expires_at.micros() - 1);
    assert_eq!(advance(&record, &settings, true, 150, just_before), None);
    let record = advance(&record, &settings, true, 150, expires_at).unwrap();
    assert_eq!((record.expired_through, record.now_serving), (100, 150));
    assert_eq!(record.turn_expires_at(150, 60).map(|at| at > expires_at), Some(true));
}

#[test]
fn shorter_turns_are_for_those_who_come_after_and_longer_ones_for_all() {
    let long = settings(6_000, 100);
    let short = Settings { turn_seconds: 5, ..long };
    let record = tick(&AdmissionRecord::default(), &long, true, 300, 0);
    let promised = record.turn_expires_at(100, 60).unwrap();
    assert_eq!(record.turn_expires_at(100, 5), Some(promised));
    assert!(record.turn_expires_at(100, 90).unwrap() > promised);
    let record = tick(&record, &short, true, 300, 1_000);
    assert_eq!(record.now_serving, 200);
    assert!(record.turn_expires_at(200, 5).unwrap() >= promised, "nobody's turn ends before an earlier one");
    for ms in [7_000, 59_000] {
        assert_eq!(tick(&record, &short, false, 300, ms).expired_through, 0);
    }
    assert_eq!(tick(&record, &short, false, 300, 62_000).expired_through, 200);
}

#[test]
fn the_record_reads_back() {
    let record = tick(&AdmissionRecord::default(), &settings(600, 7), true, 100, 1);
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<AdmissionRecord>(&text).unwrap(), record);
    let first = serde_json::to_string(&AdmissionRecord::default()).unwrap();
    assert_eq!(serde_json::from_str::<AdmissionRecord>(&first).unwrap(), AdmissionRecord::default());
}

#[test]
fn l5_a_store_that_lost_writes_does_not_turn_the_board_back() {
    let settings = settings(600, 5);
    let early = tick(&AdmissionRecord::default(), &settings, true, 50, 0);
    let late = tick(&early, &settings, true, 50, 500);
    let restored = late.restored_over(&early);
    assert_eq!(restored, late);
    assert_eq!(early.restored_over(&late), late);
}

#[derive(Clone, Debug)]
struct Step {
    ms: i64,
    arrivals: u64,
    admits: bool,
    rate_per_minute: u64,
    burst: u64,
}

fn any_step() -> impl Strategy<Value = Step> {
    let ms = prop_oneof![8 => 0i64..1_000, 1 => -100_000i64..0, 1 => 0i64..100_000];
    let rate = prop_oneof![Just(60u64), Just(6_000), Just(120_000), 1u64..1_000];
    (ms, 0u64..500, prop::bool::weighted(0.8), rate, 1u64..300).prop_map(
        |(ms, arrivals, admits, rate_per_minute, burst)| Step {
            ms,
            arrivals,
            admits,
            rate_per_minute,
            burst,
        },
    )
}

proptest! {
    #[test]
    fn p1_now_serving_and_expired_through_never_fall(steps in prop::collection::vec(any_step(), 1..60)) {
        let (mut record, mut total, mut ms) = (AdmissionRecord::default(), 0, 0);
        for step in steps {
            (total, ms) = (total + step.arrivals, ms + step.ms);
            let next = tick(&record, &settings(step.rate_per_minute, step.burst), step.admits, total, ms);
            prop_assert!(next.now_serving >= record.now_serving && next.now_serving <= total);
            prop_assert!(next.expired_through >= record.expired_through && next.expired_through <= next.now_serving);
            prop_assert!(step.admits || next.now_serving == record.now_serving);
            prop_assert!(next.history.len() <= HISTORY_MAX);
            prop_assert!(next.history.is_sorted_by(|a, b| a.number < b.number && a.at <= b.at));
            record = next;
        }
    }

    #[test]
    fn never_more_than_burst_and_rate_in_any_window(
        rate in 1u64..10_000, burst in 1u64..100,
        steps in prop::collection::vec((0i64..3_000, prop::bool::weighted(0.7)), 1..60),
    ) {
        let settings = settings(rate, burst);
        let (mut record, mut ms) = (AdmissionRecord::default(), 0);
        let mut seen = vec![(0i64, 0u64)];
        for (step_ms, admits) in steps {
            ms += step_ms;
            record = tick(&record, &settings, admits, u64::MAX / 2, ms);
            for (earlier_ms, earlier) in &seen {
                let flowed = u128::from(rate) * (ms - earlier_ms) as u128 / 60_000;
                let capacity = u128::from(settings.capacity());
                prop_assert!(u128::from(record.now_serving - earlier) <= capacity + flowed + 1);
            }
            seen.push((ms, record.now_serving));
        }
    }

    #[test]
    fn l2_nobody_waits_while_there_are_permits(
        rate in 60u64..100_000, burst in 1u64..1_000, waiting in 1u64..10_000,
    ) {
        // However the ticks fall, everybody is served in the time the rate takes, without anybody asking.
        let settings = settings(rate, burst);
        let mut record = AdmissionRecord::default();
        let needed_ms = (waiting * 60_000).div_ceil(rate) as i64 + 200;
        let mut ms = 0;
        while ms <= needed_ms {
            record = tick(&record, &settings, true, waiting, ms);
            ms += 200;
        }
        prop_assert_eq!(record.now_serving, waiting);
    }
}

/// What is known of turns when of a single lane's places these were taken up, and so many rights are live.
fn told(redeemed: &[u64], active: u64, total: u64, record: &AdmissionRecord) -> Turns {
    let (mut turns, mut numbering) = (Turns::new(1), crate::numbering::Numbering::new(1));
    numbering.append(&[total]).unwrap();
    let newly_redeemed = redeemed.to_vec();
    turns.survey(&[Some(crate::store::LaneReport { newly_redeemed, active, ..Default::default() })]);
    let numbers = Numbers::new(std::sync::Arc::new(numbering.clone()), Lots::None);
    turns.settle(&numbers, record.expired_through, record.now_serving);
    turns
}

fn open<'a>(turns: &'a Turns, total: u64, winnable: Option<u64>, ms: i64) -> Scene<'a> {
    Scene { now: at_ms(ms), phase: Phase::Open, total, turns, winnable }
}

#[test]
fn the_cap_counts_turns_and_rights_and_every_end_frees_a_place() {
    let settings = Settings { max_active: Some(10), ..settings(60_000, 1_000) };
    let none = Turns::new(1);
    let full = super::advance(&AdmissionRecord::default(), &settings, &open(&none, 500, None, 0)).unwrap();
    assert_eq!((full.now_serving, full.bound), (10, Bound::Cap));
    let turns = told(&[0, 1, 2], 3, 500, &full);
    assert_eq!(
        super::advance(&full, &settings, &open(&turns, 500, None, 200)),
        None,
        "taken up is not freed"
    );
    let bought = told(&[0, 1, 2], 1, 500, &full);
    let next = super::advance(&full, &settings, &open(&bought, 500, None, 200)).unwrap();
    assert_eq!((next.now_serving, next.bound), (12, Bound::Cap), "two have bought");
    let turns = told(&[0, 1, 2], 1, 500, &next);
    let later = super::advance(&next, &settings, &open(&turns, 500, None, 60_100)).unwrap();
    assert_eq!((later.expired_through, later.now_serving), (10, 19), "l1: of 10, 7 did not come");
    let lower = Settings { max_active: Some(3), ..settings };
    let turns = told(&[], 1, 500, &later);
    let held = super::advance(&later, &lower, &open(&turns, 500, None, 60_200)).unwrap_or(later);
    assert_eq!((held.now_serving, held.bound), (19, Bound::Cap), "a lowered cap takes nothing back");
    let free = Settings { max_active: None, ..settings };
    let freed = super::advance(&held, &free, &open(&turns, 500, None, 60_300)).unwrap();
    assert_eq!((freed.now_serving, freed.bound), (500, Bound::Line));
}

#[test]
fn the_stock_bounds_who_is_after_it() {
    let settings = Settings { over_admission_micros: Some(1_500_000), ..settings(60_000, 1_000) };
    let none = Turns::new(1);
    let first = AdmissionRecord::default();
    let unknown = super::advance(&first, &settings, &open(&none, 500, None, 0)).unwrap();
    assert_eq!((unknown.now_serving, unknown.bound), (0, Bound::Stock), "unknown stock is no stock");
    let record = super::advance(&first, &settings, &open(&none, 500, Some(10), 0)).unwrap();
    assert_eq!((record.now_serving, record.bound), (15, Bound::Stock));
    let known = AdmissionRecord { no_show_micros: 250_000, ..first };
    let more = super::advance(&known, &settings, &open(&none, 500, Some(10), 0)).unwrap();
    assert_eq!(more.now_serving, 20, "three of four come");
    let holding = told(&[0, 1, 2, 3], 4, 500, &record);
    assert_eq!(super::advance(&record, &settings, &open(&holding, 500, Some(10), 200)), None);
    let sold = told(&[0, 1, 2, 3], 0, 500, &record);
    assert_eq!(super::advance(&record, &settings, &open(&sold, 500, Some(6), 200)), None, "11 for 6");
    let returned = super::advance(&record, &settings, &open(&sold, 500, Some(20), 200)).unwrap();
    assert_eq!(returned.now_serving, 15 + 19);
}

#[test]
fn no_shows_are_measured_smoothed_and_bounded() {
    assert_eq!(smoothed(123, &Ended { left: 9, ..Ended::default() }), 123, "whoever left says nothing");
    let all_missed = Ended { missed: 200, ..Ended::default() };
    assert_eq!(smoothed(0, &all_missed), 500_000);
    assert_eq!(smoothed(900_000, &Ended { missed: 1_000_000, ..Ended::default() }), 900_000);
    let mut share = 0;
    for _ in 0..100 {
        share = smoothed(share, &Ended { redeemed: 14, missed: 6, left: 1 });
    }
    assert!((290_000..=300_000).contains(&share), "{share}");
    assert!(
        smoothed(share, &Ended { missed: 2, ..Ended::default() }) < share + 8_000,
        "one tick decides nothing"
    );
}

#[test]
fn each_phase_names_its_bound() {
    let (none, settings) = (Turns::new(1), settings(600, 10));
    for (phase, bound) in [
        (Phase::Scheduled, Bound::NotOpen),
        (Phase::DoorsOpen, Bound::NotOpen),
        (Phase::Paused, Bound::Pause),
        (Phase::SoldOut, Bound::Stock),
        (Phase::Closed, Bound::Closed),
        (Phase::Open, Bound::Rate),
    ] {
        let scene = Scene { now: at_ms(0), phase, total: 50, turns: &none, winnable: None };
        let next = super::advance(&AdmissionRecord::default(), &settings, &scene);
        assert_eq!(next.map_or(Bound::NotOpen, |next| next.bound), bound, "{phase:?}");
        for other in Bound::ALL {
            let fits = other == bound
                || (phase == Phase::Open && matches!(other, Bound::Line | Bound::Cap | Bound::Stock));
            assert_eq!(other.belongs_to(phase), fits, "{other:?} while {phase:?}");
        }
    }
}

#[test]
fn what_can_be_won_is_what_is_free_within_the_limit_and_what_may_return() {
    let item = |available, held| lockgate_shared::gate::ItemStock {
        item: "phone".parse().unwrap(),
        stock: 100,
        available,
        held,
        sold: 100 - available - held,
    };
    let stock = |total_left| StockSnapshot {
        items: vec![item(30, 5), item(20, 1)],
        total_left,
        claimants: vec![],
        too_many_claimants: false,
    };
    assert_eq!(winnable(&stock(None)), 56);
    assert_eq!(winnable(&stock(Some(10))), 16);
    assert_eq!(winnable(&stock(Some(0))), 6);
}

#[test]
fn a_clock_that_was_set_shortens_no_turn_and_gives_no_permits() {
    let settings = settings(6_000, 100);
    let record = tick(&AdmissionRecord::default(), &settings, true, 1_000, 0);
    for step_ms in [3_600_000, -3_600_000] {
        let shifted = record.shifted(step_ms * 1_000);
        let next = tick(&shifted, &settings, true, 1_000, step_ms + 200);
        assert_eq!((next.now_serving, next.expired_through), (120, 0), "{step_ms}");
        let left = next.turn_expires_at(100, 60).unwrap().micros() - at_ms(step_ms).micros();
        assert!((60_000_000..=60_600_000).contains(&left), "{left}");
        assert_eq!(tick(&next, &settings, true, 1_000, step_ms + 60_300).expired_through, 100);
    }
}

#[test]
fn p3_the_pace_is_what_was_reached_lately() {
    let settings = Settings { max_active: Some(100), ..settings(60_000, 1_000) };
    let none = Turns::new(1);
    let record =
        super::advance(&AdmissionRecord::default(), &settings, &open(&none, 5_000, None, 0)).unwrap();
    assert_eq!(record.pace_per_minute(at_ms(1_000), 60), 100);
    let later = super::advance(&record, &settings, &open(&none, 5_000, None, 60_500)).unwrap();
    assert_eq!((later.now_serving, later.pace_per_minute(at_ms(61_000), 60)), (200, 100));
    let paused = tick(&later, &settings, false, 5_000, 130_000);
    assert_eq!(paused.pace_per_minute(at_ms(130_000), 60), 0, "nothing moves");
}
