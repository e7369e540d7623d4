//! The line in virtual time, over the real rules of numbering, admission and place: what shoppers and operators are
//! promised, at the size of a sale. Everything is drawn from a named generator; seeds are printed.

mod kendall;
mod world;

use lockgate_shared::sale::{EXAMPLE_TOML, SaleDefinition, parse_toml};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::ChaCha8Rng};

use self::{
    kendall::tau_b,
    world::{Shopper, TICK_MS, World},
};
use super::*;
use crate::{
    numbers::{Lots, Numbers},
    place::Standing,
};

const LANES: usize = 16;
const ARRIVALS: usize = 100_000;
const ARRIVING_MS: i64 = 200_000;
const SILENT_LANE: usize = 3;
const SILENT_MS: std::ops::Range<i64> = 90_000..110_000;

fn seeded(seed: u64) -> ChaCha8Rng {
    println!("ChaCha8, seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// One of the lanes, by weights that change every 20 s and are very uneven.
fn any_lane(rng: &mut ChaCha8Rng, ms: i64) -> usize {
    let turn = (ms / 20_000) as usize;
    let weight = |lane: usize| 1 + 31 * u64::from((lane * 7 + turn * 5) % LANES < 3) + (lane % 3) as u64;
    let mut point = rng.random_range(0..(0..LANES).map(weight).sum::<u64>());
    for lane in 0..LANES {
        if point < weight(lane) {
            return lane;
        }
        point -= weight(lane);
    }
    LANES - 1
}

/// Arrivals in order: when, in which lane, and what they are like. A third come in the first tenth of the time.
fn crowd(rng: &mut ChaCha8Rng) -> Vec<(i64, usize, Shopper)> {
    let mut crowd: Vec<(i64, usize, Shopper)> = (0..ARRIVALS)
        .map(|index| {
            let until = if index % 3 == 0 { ARRIVING_MS / 10 } else { ARRIVING_MS };
            let ms = rng.random_range(0..until);
            let comes = rng.random_bool(0.7);
            let shopper = Shopper {
                comes_after_ms: comes.then(|| rng.random_range(0..15_000)),
                stays_ms: rng.random_range(2_000..30_000),
                leaves_after_ms: rng.random_bool(0.02).then(|| rng.random_range(1_000..200_000)),
                buys: rng.random_bool(0.8),
                rejoins: rng.random_bool(0.3),
            };
            (ms, any_lane(rng, ms), shopper)
        })
        .collect();
    crowd.sort_by_key(|(ms, ..)| *ms);
    crowd
}

fn sale(settings: &Settings) -> SaleDefinition {
    let mut sale = parse_toml("example", EXAMPLE_TOML).unwrap();
    sale.admission.rate_per_minute = settings.rate_per_minute;
    sale.admission.turn_seconds = settings.turn_seconds;
    sale
}

/// What every tick of every simulation is held to.
struct Watch {
    sale: SaleDefinition,
    settings: Settings,
    /// People called per tick.
    called: Vec<u64>,
    /// What the rate has brought while it alone held the line, and nobody was called for yet, in micro-permits.
    due: u64,
    /// The last people_ahead of sampled places.
    ahead: Vec<Option<u64>>,
}

impl Watch {
    fn new(settings: Settings) -> Self {
        Self { sale: sale(&settings), settings, called: Vec::new(), due: 0, ahead: Vec::new() }
    }

    fn tick(&mut self, world: &World, called: u64) {
        self.called.push(called);
        self.rate_is_kept();
        self.places_never_worsen(world);
        self.nothing_is_idle(world);
        self.nothing_is_spilt(world, called);
    }

    /// In any second: not more than the burst (or what one tick brings) and what flows in within it.
    fn rate_is_kept(&self) {
        let per_second = self.called.iter().rev().take((1_000 / TICK_MS) as usize).sum::<u64>();
        let most = self.settings.capacity() + self.settings.rate_per_minute / 60 + 1;
        assert!(per_second <= most, "{per_second} in a second, at most {most}");
    }

    /// P1, for every 997th arrival.
    fn places_never_worsen(&mut self, world: &World) {
        for (index, who) in (0..world.people.len()).step_by(997).enumerate() {
            let (lane, seq) = world.people[who].place;
            let standing = Standing {
                definition: &self.sale,
                phase: Phase::Open,
                record: &world.record,
                seq,
                number: world.numbering.number(lane, seq),
                has_left: false,
                seat: None,
                now: world.now(),
            };
            let place = standing.place();
            if self.ahead.len() <= index {
                self.ahead.push(None);
            }
            if let (Some(before), Some(after)) = (self.ahead[index], place.people_ahead) {
                assert!(after <= before, "the place of {who} went from {before} to {after}");
            }
            self.ahead[index] = place.people_ahead.or(self.ahead[index]);
        }
    }

    /// After a tick somebody waits only because a bound is reached to the last place.
    fn nothing_is_idle(&self, world: &World) {
        let record = &world.record;
        let permits = record.bucket.filled(world.now()) / PERMIT;
        let active = world.turns.pending(record.expired_through, record.now_serving) + world.turns.active();
        let idle = match record.bound {
            Bound::Line => record.now_serving < world.numbering.total(),
            Bound::Rate => permits > 0,
            Bound::Cap => self.settings.max_active.is_none_or(|max| active < max),
            Bound::Stock => self.settings.over_admission_micros.is_none(),
            Bound::NotOpen | Bound::Pause | Bound::Closed => true,
        };
        assert!(!idle, "idle at {} ms: {:?}, {permits} permits, {active} active", world.ms, record.bound);
    }

    /// While the rate alone holds the line, all that it brings is used: a bucket too small for it spills in silence.
    fn nothing_is_spilt(&mut self, world: &World, called: u64) {
        // Whoever has left in a silent lane costs a permit and is not counted as called.
        if world.record.bound != Bound::Rate || world.silent.is_some() {
            self.due = 0;
            return;
        }
        assert!(self.due <= called.saturating_mul(PERMIT) + PERMIT, "{called} called, {} due", self.due);
        self.due = self.due.saturating_sub(called * PERMIT);
        self.due += self.settings.rate_per_minute * PERMIT * TICK_MS as u64 / 60_000;
    }
}

#[test]
fn p5_l1_l2_p1_a_hundred_thousand_are_served_like_one_ideal_queue() {
    let mut rng = seeded(20_261_201);
    let crowd = crowd(&mut rng);
    let settings = Settings { rate_per_minute: 24_000, burst: 400, turn_seconds: 20, ..Settings::default() };
    let (mut sharded, mut ideal) = (World::new(LANES, settings), World::new(1, settings));
    let (mut watch, mut next) = (Watch::new(settings), 0);
    let mut reached = Vec::new();
    while next < crowd.len() || sharded.record.now_serving < sharded.numbering.total() {
        while let Some((ms, lane, shopper)) = crowd.get(next).filter(|(ms, ..)| *ms <= sharded.ms) {
            sharded.enter(*lane, shopper.clone(), *ms);
            ideal.enter(0, shopper.clone(), *ms);
            next += 1;
        }
        sharded.silent = SILENT_MS.contains(&sharded.ms).then_some(SILENT_LANE);
        let called = sharded.tick(Phase::Open, None);
        ideal.tick(Phase::Open, None);
        watch.tick(&sharded, called);
        reached.push((sharded.called, ideal.called));
    }
    // Everybody whose turn comes is called as early as the ideal queue calls, to a tick, though 30 % do not come.
    for (tick, pair) in reached.windows(2).enumerate() {
        assert!(pair[1].0 >= pair[0].1.min(pair[1].1), "tick {tick}: {pair:?}");
    }
    assert!(sharded.people.len() > ARRIVALS, "some missed their turn and came again");
    let tau = |world: &World| {
        let pairs: Vec<(u64, u64)> = (0u64..)
            .zip(&world.people)
            .take(ARRIVALS)
            .filter_map(|(arrival, person)| Some((arrival, person.called_tick?)))
            .collect();
        assert!(pairs.len() > ARRIVALS * 96 / 100, "nearly all are called; the others left");
        tau_b(&pairs)
    };
    let (ours, best) = (tau(&sharded), tau(&ideal));
    let share = sharded.record.no_show_share();
    println!(
        "Kendall tau {ours:.5}, ideal {best:.5}, difference {:.5}; no-show share {share:.3}",
        best - ours
    );
    assert!(ours >= best - 0.005, "{ours} against {best}");
    assert!((share - 0.3).abs() < 0.08, "the share measured is {share}");
}

#[test]
fn l2_no_rate_is_too_high_for_its_burst() {
    for (rate_per_minute, burst) in [(60_000, 1), (60_000, 10), (6_000, 1), (290, 1), (120_000, 2_000)] {
        let settings = Settings { rate_per_minute, burst, turn_seconds: 20, ..Settings::default() };
        let mut world = World::new(LANES, settings);
        for who in 0..40_000 {
            world.enter(who % LANES, Shopper::default(), 0);
        }
        let mut watch = Watch::new(settings);
        while world.ms < 20_000 {
            let called = world.tick(Phase::Open, None);
            watch.tick(&world, called);
        }
        let least = (rate_per_minute * 19 / 60).min(40_000);
        assert!(world.called >= least, "{rate_per_minute} a minute, burst {burst}: {}", world.called);
    }
}

#[test]
fn l1_l3_p3_a_full_cap_is_kept_and_every_freed_place_is_filled_at_once() {
    let mut rng = seeded(7);
    let crowd = crowd(&mut rng);
    let mut settings = Settings {
        rate_per_minute: 60_000,
        burst: 1_000,
        turn_seconds: 20,
        max_active: Some(3_000),
        ..Settings::default()
    };
    let mut world = World::new(LANES, settings);
    let (mut watch, mut next, mut capped) = (Watch::new(settings), 0, 0);
    while world.ms < 300_000 {
        while let Some((ms, lane, shopper)) = crowd.get(next).filter(|(ms, ..)| *ms <= world.ms) {
            world.enter(*lane, shopper.clone(), *ms);
            next += 1;
        }
        // L6: the cap is changed on the way.
        if world.ms == 150_000 {
            settings.max_active = Some(1_000);
            (world.settings, watch.settings) = (settings, settings);
        }
        let called = world.tick(Phase::Open, None);
        let record = &world.record;
        let active = world.turns.pending(record.expired_through, record.now_serving) + world.turns.active();
        if called > 0 {
            assert!(active <= settings.max_active.unwrap(), "{active} are active");
        }
        if record.bound == Bound::Cap && world.ms != 150_000 && active <= 3_000 {
            capped += 1;
        }
        if record.bound != Bound::Cap || Some(active) <= settings.max_active {
            watch.tick(&world, called);
        }
        // P3: the wait told while the cap holds is not the rate's.
        if record.bound == Bound::Cap && world.ms > 60_000 {
            let pace = record.pace_per_minute(world.now(), settings.turn_seconds);
            assert!(pace < settings.rate_per_minute / 2, "{pace} a minute");
        }
    }
    assert!(capped > 500, "the cap held the line in {capped} ticks only");
    assert!(world.called > 20_000, "and yet {} were called", world.called);
}

#[test]
fn admission_stops_when_all_is_sold_and_goes_on_when_units_return() {
    let mut rng = seeded(11);
    let crowd = crowd(&mut rng);
    let settings = Settings {
        rate_per_minute: 60_000,
        burst: 1_000,
        turn_seconds: 20,
        over_admission_micros: Some(1_500_000),
        ..Settings::default()
    };
    let mut world = World::new(LANES, settings);
    world.stock = Some(world::Stock { available: 5_000, held: 0, sold: 0 });
    let (mut next, mut sold_out_at) = (0, None);
    while world.ms < 600_000 {
        while let Some((ms, lane, shopper)) = crowd.get(next).filter(|(ms, ..)| *ms <= world.ms) {
            world.enter(*lane, shopper.clone(), *ms);
            next += 1;
        }
        if world.ms == 500_000 {
            world.stock.as_mut().unwrap().available += 40;
        }
        let (stock, turns) = (world.stock.clone().unwrap(), world.called);
        let phase = if stock.available == 0 { Phase::SoldOut } else { Phase::Open };
        let winnable = stock.available + stock.held;
        let called = world.tick(phase, Some(winnable));
        let record = &world.record;
        let pending = world.turns.pending(record.expired_through, record.now_serving);
        if called > 0 {
            let shows = pending as f64 * (1.0 - record.no_show_share());
            let outstanding = shows + world.turns.active() as f64;
            assert!(outstanding <= 1.5 * winnable as f64 + 1.0, "{outstanding} are after {winnable} units");
        }
        if stock.available + stock.held == 0 && world.ms < 500_000 {
            assert_eq!((record.bound, called), (Bound::Stock, 0));
            sold_out_at = sold_out_at.or(Some((world.ms, turns)));
        }
    }
    let (ms, turns) = sold_out_at.expect("everything is sold");
    let stock = world.stock.as_ref().unwrap();
    println!("sold out after {ms} ms and {turns} turns; {stock:?}, {} turns in the end", world.called);
    assert!(turns < 20_000, "nobody is called for nothing: {turns} turns for 5,000 units");
    assert_eq!(
        (stock.available + stock.held, stock.sold),
        (0, 5_040),
        "the units that returned are sold too"
    );
    assert!(world.called > turns, "the line went on");
}

#[test]
fn l6_rate_burst_and_pause_change_in_the_middle_and_nothing_is_made_up() {
    let mut rng = seeded(13);
    let mut settings =
        Settings { rate_per_minute: 6_000, burst: 100, turn_seconds: 20, ..Settings::default() };
    let mut world = World::new(LANES, settings);
    for _ in 0..60_000 {
        let lane = (rng.next_u64() % LANES as u64) as usize;
        world.enter(lane, Shopper::default(), 0);
    }
    // Of every tick: people called, micro-permits that have flowed in since the one before, and the most that was there.
    let mut ticks: Vec<(u64, u64, u64)> = Vec::new();
    for tick in 0..3_000 {
        if tick % 50 == 0 {
            settings.rate_per_minute = rng.random_range(60..60_000);
            settings.burst = rng.random_range(1..500);
            settings.turn_seconds = rng.random_range(5..60);
            world.settings = settings;
        }
        let phase = if tick % 70 < 20 { Phase::Paused } else { Phase::Open };
        let (before, bucket) = (world.record.now_serving, world.record.bucket);
        let called = world.tick(phase, None);
        assert!(phase == Phase::Open || world.record.now_serving == before);
        let capacity = settings.capacity();
        assert!(called <= capacity + 1, "{called} at once, where {capacity} are kept");
        let flowed = bucket.flow_per_minute * PERMIT * TICK_MS as u64 / 60_000;
        ticks.push((called, flowed, bucket.capacity.min(capacity)));
        // In every second: what was kept when it began, and what has flowed in since by the rates in force.
        let second = &ticks[ticks.len().saturating_sub((1_000 / TICK_MS) as usize)..];
        let called: u64 = second.iter().map(|(called, ..)| called).sum();
        let inflow: u64 = second.iter().map(|(_, flowed, _)| flowed).sum();
        // One more for the permit that had begun.
        assert!(called * PERMIT <= inflow + (second[0].2 + 1) * PERMIT, "tick {tick}: {second:?}");
        let effective = world.record.bucket;
        assert_eq!((effective.capacity, effective.flow_per_minute == 0), (capacity, phase == Phase::Paused));
    }
    let called: u64 = ticks.iter().map(|(called, ..)| called).sum();
    assert!(called > 10_000, "and yet {called} were called");
}

#[test]
fn a_tick_over_64_lanes_and_a_million_waiting_does_nothing_for_each_of_them() {
    let (lanes, total) = (64u16, 1_000_000u64);
    let settings =
        Settings { rate_per_minute: 120_000, burst: 2_000, turn_seconds: 120, ..Settings::default() };
    let settings = Settings { max_active: Some(50_000), over_admission_micros: Some(1_500_000), ..settings };
    let (mut numbering, mut turns) = (crate::numbering::Numbering::new(lanes), Turns::new(lanes));
    let mut counts = vec![Some(total / u64::from(lanes)); usize::from(lanes)];
    let mut record = AdmissionRecord::default();
    let (mut spent, ticks) = (std::time::Duration::ZERO, 100u64);
    for tick in 0..ticks {
        let redeemed: Vec<u64> = (tick * 6..tick * 6 + 6).collect();
        let report = crate::store::LaneReport { newly_redeemed: redeemed, active: 30, ..Default::default() };
        let reports = vec![Some(report); usize::from(lanes)];
        let started = std::time::Instant::now();
        turns.survey(&reports);
        numbering.append(&numbering.next_row(&counts).unwrap()).unwrap();
        let numbers = Numbers::new(std::sync::Arc::new(numbering.clone()), Lots::None);
        turns.settle(&numbers, record.expired_through, record.now_serving);
        let now = Timestamp::from_micros(1_800_000_000_000_000 + tick as i64 * 200_000);
        let total = numbering.total();
        let scene = Scene { now, phase: Phase::Open, total, turns: &turns, winnable: Some(20_000) };
        record = advance(&record, &settings, &scene).unwrap();
        spent += started.elapsed();
        counts = counts.iter().map(|count| count.map(|count| count + 5)).collect();
    }
    println!("{:?} a tick (unoptimised where the tests are)", spent / u32::try_from(ticks).unwrap());
    assert!(record.now_serving > 20_000 && numbering.total() > total, "{record:?}");
}
