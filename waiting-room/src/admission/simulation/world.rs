//! A line in virtual time: lanes that keep what a store keeps, one admitter, and people who do what people do.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use lockgate_shared::clock::Timestamp;

use super::super::*;
use crate::{
    numbering::Numbering,
    numbers::{Lots, Numbers},
    store::{LaneReport, LogsRead},
};

/// Time between two ticks of the admitter.
pub(super) const TICK_MS: i64 = 200;
const START: i64 = 1_800_000_000;

/// What somebody will do.
#[derive(Clone, Debug, Default)]
pub(super) struct Shopper {
    /// Takes the turn up this long after it came; `None`: never.
    pub comes_after_ms: Option<i64>,
    /// Then needs this long to buy, or to give up.
    pub stays_ms: i64,
    /// Leaves this long after entering, if still waiting.
    pub leaves_after_ms: Option<i64>,
    /// Pays what was claimed.
    pub buys: bool,
    /// Enters again after missing the turn.
    pub rejoins: bool,
}

/// Somebody in the line.
pub(super) struct Person {
    shopper: Shopper,
    /// Lane and seq.
    pub place: (usize, u64),
    /// The tick in which the turn came.
    pub called_tick: Option<u64>,
    has_left: bool,
    has_redeemed: bool,
    holds_unit: bool,
}

/// Units.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    pub available: u64,
    pub held: u64,
    pub sold: u64,
}

#[derive(Default)]
struct Lane {
    /// Who, by seq.
    people: Vec<usize>,
    left: Vec<u64>,
    redeemed: Vec<u64>,
    active: u64,
}

#[derive(Clone, Copy)]
enum Deed {
    Leave,
    Redeem,
    Finish,
}

/// The line and everybody in it.
pub(super) struct World {
    pub settings: Settings,
    pub ms: i64,
    pub record: AdmissionRecord,
    pub numbering: Arc<Numbering>,
    pub turns: Turns,
    pub people: Vec<Person>,
    /// The lane that does not answer surveys.
    pub silent: Option<usize>,
    pub stock: Option<Stock>,
    /// People called so far.
    pub called: u64,
    lanes: Vec<Lane>,
    counts: Vec<Option<u64>>,
    /// Who has which number, from 1.
    by_number: Vec<usize>,
    missed_through: u64,
    deeds: BTreeMap<i64, VecDeque<(usize, Deed)>>,
    tick: u64,
}

impl World {
    pub(super) fn new(lanes: usize, settings: Settings) -> Self {
        let count = u16::try_from(lanes).unwrap();
        Self {
            settings,
            ms: 0,
            record: AdmissionRecord::default(),
            numbering: Arc::new(Numbering::new(count)),
            turns: Turns::new(count),
            people: Vec::new(),
            silent: None,
            stock: None,
            called: 0,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            counts: vec![None; lanes],
            by_number: Vec::new(),
            missed_through: 0,
            deeds: BTreeMap::new(),
            tick: 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        // The record was moved before the time went on.
        self.at(self.ms - TICK_MS)
    }

    fn at(&self, ms: i64) -> Timestamp {
        Timestamp::from_micros(START * 1_000_000 + ms * 1_000)
    }

    pub(super) fn enter(&mut self, lane: usize, shopper: Shopper, ms: i64) {
        let who = self.people.len();
        let place = (lane, self.lanes[lane].people.len() as u64);
        self.lanes[lane].people.push(who);
        if let Some(after) = shopper.leaves_after_ms {
            self.plan(ms + after, who, Deed::Leave);
        }
        self.people.push(Person {
            shopper,
            place,
            called_tick: None,
            has_left: false,
            has_redeemed: false,
            holds_unit: false,
        });
    }

    fn plan(&mut self, ms: i64, who: usize, deed: Deed) {
        self.deeds.entry(ms).or_default().push_back((who, deed));
    }

    /// Lets everybody act, moves the line once, and answers how many people were called by that.
    pub(super) fn tick(&mut self, phase: Phase, winnable: Option<u64>) -> u64 {
        while let Some(first) = self.deeds.first_entry().filter(|first| *first.key() <= self.ms) {
            for (who, deed) in first.remove() {
                self.act(who, deed);
            }
        }
        self.survey();
        if let Some(row) = self.numbering.next_row(&self.counts) {
            self.number(&row);
        }
        self.settle_turns();
        let total = self.numbering.total();
        let scene = Scene { now: self.at(self.ms), phase, total, turns: &self.turns, winnable };
        let before = self.record.now_serving;
        if let Some(record) = advance(&self.record, &self.settings, &scene) {
            assert!(record.now_serving >= before && record.expired_through >= self.record.expired_through);
            self.record = record;
        }
        self.settle_turns();
        let called = self.call(before);
        self.miss();
        self.ms += TICK_MS;
        self.tick += 1;
        called
    }

    fn settle_turns(&mut self) {
        let numbers = Numbers::new(Arc::clone(&self.numbering), Lots::None);
        self.turns.settle(&numbers, self.record.expired_through, self.record.now_serving);
    }

    fn survey(&mut self) {
        let read = self.turns.read();
        let reports: Vec<Option<LaneReport>> = (0..self.lanes.len())
            .map(|index| {
                let (lane, read) = (&self.lanes[index], read[index]);
                (self.silent != Some(index)).then(|| LaneReport {
                    count: lane.people.len() as u64,
                    newly_left: lane.left[read.left as usize..].to_vec(),
                    newly_redeemed: lane.redeemed[read.redeemed as usize..].to_vec(),
                    active: lane.active,
                    read: LogsRead { left: lane.left.len() as u64, redeemed: lane.redeemed.len() as u64 },
                })
            })
            .collect();
        for (count, report) in self.counts.iter_mut().zip(&reports) {
            *count = report.as_ref().map_or(*count, |report| Some(report.count));
        }
        self.turns.survey(&reports);
    }

    fn number(&mut self, row: &[u64]) {
        let before: Vec<u64> = (0..self.lanes.len()).map(|lane| self.numbering.count(lane)).collect();
        Arc::make_mut(&mut self.numbering).append(row).unwrap();
        self.by_number.resize(self.numbering.total() as usize, usize::MAX);
        for (lane, from) in before.into_iter().enumerate() {
            for seq in from..row[lane] {
                let number = self.numbering.number(lane, seq).unwrap();
                self.by_number[number as usize - 1] = self.lanes[lane].people[seq as usize];
            }
        }
    }

    fn call(&mut self, before: u64) -> u64 {
        let mut called = 0;
        for number in before..self.record.now_serving {
            let who = self.by_number[number as usize];
            if self.people[who].has_left {
                continue;
            }
            called += 1;
            self.people[who].called_tick = Some(self.tick);
            if let Some(after) = self.people[who].shopper.comes_after_ms {
                self.plan(self.ms + after, who, Deed::Redeem);
            }
        }
        self.called += called;
        called
    }

    /// Whoever missed the turn enters again, if so minded, in the same lane.
    fn miss(&mut self) {
        for number in self.missed_through..self.record.expired_through {
            let person = &self.people[self.by_number[number as usize]];
            if person.has_left || person.has_redeemed || !person.shopper.rejoins {
                continue;
            }
            let shopper = Shopper { rejoins: false, leaves_after_ms: None, ..person.shopper.clone() };
            self.enter(person.place.0, shopper, self.ms);
        }
        self.missed_through = self.record.expired_through;
    }

    fn act(&mut self, who: usize, deed: Deed) {
        let (lane, seq) = self.people[who].place;
        match deed {
            Deed::Leave if self.people[who].called_tick.is_none() => {
                self.people[who].has_left = true;
                self.lanes[lane].left.push(seq);
            }
            Deed::Leave => {}
            Deed::Redeem => {
                let number = self.numbering.number(lane, seq);
                if number <= Some(self.record.expired_through) || self.silent == Some(lane) {
                    return;
                }
                self.people[who].has_redeemed = true;
                self.lanes[lane].redeemed.push(seq);
                self.lanes[lane].active += 1;
                self.claim(who);
                let stays = self.people[who].shopper.stays_ms;
                self.plan(self.ms + stays, who, Deed::Finish);
            }
            Deed::Finish => {
                self.lanes[lane].active -= 1;
                self.settle(who);
            }
        }
    }

    fn claim(&mut self, who: usize) {
        if let Some(stock) = self.stock.as_mut().filter(|stock| stock.available > 0) {
            (stock.available, stock.held) = (stock.available - 1, stock.held + 1);
            self.people[who].holds_unit = true;
        }
    }

    fn settle(&mut self, who: usize) {
        let person = &mut self.people[who];
        let Some(stock) = self.stock.as_mut().filter(|_| person.holds_unit) else { return };
        person.holds_unit = false;
        stock.held -= 1;
        *(if person.shopper.buys { &mut stock.sold } else { &mut stock.available }) += 1;
    }
}
