//! PURE. What became of numbers and turns: who took a turn up, who left, how many hold the right to check out.
//!
//! Lanes tell it bit by bit, by seqs; it is kept by numbers, and only for numbers whose turn has not run out. A
//! process that starts, or takes over, reads the lanes' logs from their beginning and knows the same. Nothing here
//! costs work for people who merely wait.

use std::collections::BTreeMap;

use crate::{
    numbers::Numbers,
    store::{LOG_PER_CALL_MAX, LaneReport, LogsRead},
};

/// What the lanes have told of one sale.
#[derive(Clone, Debug)]
pub struct Turns {
    lanes: Vec<LaneTurns>,
    /// Numbers above `forgotten_through` whose owner took the turn up (true) or left before (false).
    gone: BTreeMap<u64, bool>,
    forgotten_through: u64,
    /// Every number of `gone` up to `counted_through` is in `counted`.
    counted: u64,
    counted_through: u64,
    numbered: u64,
}

#[derive(Clone, Debug, Default)]
struct LaneTurns {
    read: LogsRead,
    active: u64,
    /// Whether the lane answered the last survey, and that brought its logs to their ends.
    is_current: bool,
    /// Seqs that have no number yet.
    unnumbered: BTreeMap<u64, bool>,
}

/// How the turns of a stretch of numbers ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Taken up.
    pub redeemed: u64,
    /// Given up by leaving.
    pub left: u64,
    /// Neither: nobody came.
    pub missed: u64,
}

impl Turns {
    /// Nothing is known yet, of a sale with so many lanes.
    #[must_use]
    pub fn new(lanes: u16) -> Self {
        Self {
            lanes: vec![LaneTurns::default(); usize::from(lanes)],
            gone: BTreeMap::new(),
            forgotten_through: 0,
            counted: 0,
            counted_through: 0,
            numbered: 0,
        }
    }

    /// How far each lane's logs are read.
    #[must_use]
    pub fn read(&self) -> Vec<LogsRead> {
        self.lanes.iter().map(|lane| lane.read).collect()
    }

    /// Takes in a survey; of silent lanes the last word stands.
    pub fn survey(&mut self, reports: &[Option<LaneReport>]) {
        for (lane, report) in self.lanes.iter_mut().zip(reports) {
            lane.is_current = false;
            let Some(report) = report else { continue };
            let is_cut = |log: &[u64]| log.len() >= LOG_PER_CALL_MAX;
            lane.is_current = !is_cut(&report.newly_left) && !is_cut(&report.newly_redeemed);
            lane.active = report.active;
            lane.read = report.read;
            // Whoever came and left later has come: of a seq in both logs the redemption counts.
            for seq in &report.newly_left {
                lane.unnumbered.entry(*seq).or_insert(false);
            }
            for seq in &report.newly_redeemed {
                lane.unnumbered.insert(*seq, true);
            }
        }
    }

    /// Brings what is known to the numbers given, and to how far the board has come.
    pub fn settle(&mut self, numbers: &Numbers, expired_through: u64, now_serving: u64) {
        if numbers.total() < self.numbered {
            // Another history of rows: the numbers kept here mean nothing in it. All is read anew.
            let lanes = vec![LaneTurns::default(); self.lanes.len()];
            *self = Self { lanes, ..Self::new(0) };
        }
        self.numbered = numbers.total();
        for lane in 0..self.lanes.len() {
            let given = numbers.count(lane);
            // Each asked for by itself: drawn numbers do not rise with places.
            while let Some(first) = self.lanes[lane].unnumbered.first_entry() {
                if *first.key() >= given {
                    break;
                }
                let Some(number) = numbers.number(lane, *first.key()) else { break };
                let redeemed = first.remove();
                self.note(number, redeemed);
            }
        }
        self.forget(expired_through);
        self.count_through(now_serving);
    }

    fn note(&mut self, number: u64, redeemed: bool) {
        if number <= self.forgotten_through {
            return;
        }
        let known = self.gone.get(&number).copied();
        self.gone.insert(number, redeemed || known == Some(true));
        if known.is_none() && number <= self.counted_through {
            self.counted += 1;
        }
    }

    fn forget(&mut self, expired_through: u64) {
        self.forgotten_through = self.forgotten_through.max(expired_through);
        while let Some(first) = self.gone.first_entry() {
            if *first.key() > self.forgotten_through {
                return;
            }
            if *first.key() <= self.counted_through {
                self.counted -= 1;
            }
            first.remove();
        }
    }

    fn count_through(&mut self, now_serving: u64) {
        if now_serving > self.counted_through {
            self.counted += self.between(self.counted_through, now_serving);
            self.counted_through = now_serving;
        }
    }

    /// People known to be gone with a number above `after`, up to `through`.
    fn between(&self, after: u64, through: u64) -> u64 {
        if through <= after { 0 } else { self.gone.range(after + 1..=through).count() as u64 }
    }

    /// Turns that have come, have not run out, and were neither taken up nor given up.
    #[must_use]
    pub fn pending(&self, expired_through: u64, now_serving: u64) -> u64 {
        let on = now_serving.saturating_sub(expired_through);
        let below = self.between(self.forgotten_through, expired_through);
        let counted = if now_serving >= self.counted_through {
            self.counted + self.between(self.counted_through, now_serving)
        } else {
            self.counted - self.between(now_serving, self.counted_through)
        };
        on.saturating_sub(counted.saturating_sub(below))
    }

    /// People who hold the right to check out.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.active).sum()
    }

    /// Whether every lane has said everything up to now.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.lanes.iter().all(|lane| lane.is_current)
    }

    /// How the turns of the numbers above `after`, up to `through`, ended.
    #[must_use]
    pub fn ended(&self, after: u64, through: u64) -> Ended {
        let mut ended = Ended::default();
        if through <= after {
            return ended;
        }
        for redeemed in self.gone.range(after + 1..=through).map(|(_, redeemed)| *redeemed) {
            if redeemed {
                ended.redeemed += 1;
            } else {
                ended.left += 1;
            }
        }
        ended.missed = (through - after).saturating_sub(ended.redeemed + ended.left);
        ended
    }

    /// The number reached when `permits` more people are called after `from`, and how many that are: whoever has
    /// left costs no permit.
    #[must_use]
    pub fn reach(&self, from: u64, permits: u64, total: u64) -> (u64, u64) {
        let (mut number, mut left) = (from, permits);
        for gone in self.gone.range(from.saturating_add(1)..).map(|(number, _)| *number) {
            let people = gone - number - 1;
            if gone > total || people > left {
                break;
            }
            left -= people;
            number = gone;
        }
        let more = left.min(total.saturating_sub(number));
        (number + more, permits - left + more)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{draw::Table, numbering::Numbering, numbers::Lots};

    fn report(left: &[u64], redeemed: &[u64], active: u64) -> Option<LaneReport> {
        Some(LaneReport {
            newly_left: left.to_vec(),
            newly_redeemed: redeemed.to_vec(),
            active,
            ..LaneReport::default()
        })
    }

    fn rows(counts: &[u64]) -> Arc<Numbering> {
        let mut numbering = Numbering::new(u16::try_from(counts.len()).unwrap());
        numbering.append(counts).unwrap();
        Arc::new(numbering)
    }

    fn numbered(counts: &[u64]) -> Numbers {
        Numbers::new(rows(counts), Lots::None)
    }

    #[test]
    fn p2_what_the_lanes_told_of_a_pool_is_settled_by_the_draw_and_not_before() {
        let pools = [6, 5];
        let mut turns = Turns::new(2);
        turns.survey(&[report(&[1, 4], &[0, 3], 2), report(&[2], &[], 0)]);
        turns.settle(&Numbers::new(rows(&pools), Lots::Pending), 0, 0);
        assert_eq!(turns.pending(0, 11), 11, "whose number it is, nobody knows yet");
        let table = Arc::new(Table::draw(&[7; 32], &pools).unwrap());
        let number = |lane, seq| table.number(lane, seq).unwrap();
        let (came, left) = ([number(0, 0), number(0, 3)], [number(0, 1), number(0, 4), number(1, 2)]);
        let drawn = Numbers::new(rows(&pools), Lots::Drawn(Arc::clone(&table)));
        turns.settle(&drawn, 0, 4);
        for through in 0..=11 {
            let of = |numbers: &[u64]| numbers.iter().filter(|number| **number <= through).count() as u64;
            let (redeemed, left) = (of(&came), of(&left));
            assert_eq!(turns.pending(0, through), through - redeemed - left);
            assert_eq!(turns.ended(0, through), Ended { redeemed, left, missed: through - redeemed - left });
        }
    }

    #[test]
    fn l3_turns_that_ran_out_count_neither_as_pending_nor_as_active() {
        let mut turns = Turns::new(1);
        turns.survey(&[report(&[4], &[1, 2], 2)]);
        turns.settle(&numbered(&[20]), 0, 10);
        assert_eq!((turns.pending(0, 10), turns.active()), (7, 2));
        assert_eq!(turns.pending(4, 10), 5, "of 5 to 10 number 5 has left");
        assert_eq!(turns.ended(0, 5), Ended { redeemed: 2, left: 1, missed: 2 });
        turns.settle(&numbered(&[20]), 10, 10);
        assert_eq!(turns.pending(10, 10), 0);
        turns.survey(&[report(&[], &[], 0)]);
        assert_eq!(turns.active(), 0);
    }

    #[test]
    fn whoever_left_before_the_turn_costs_no_permit() {
        let mut turns = Turns::new(1);
        turns.survey(&[report(&[1, 2, 5], &[], 0)]);
        turns.settle(&numbered(&[8]), 0, 0);
        assert_eq!(turns.reach(0, 0, 8), (0, 0));
        assert_eq!(turns.reach(0, 1, 8), (3, 1), "2 and 3 have left");
        assert_eq!(turns.reach(0, 3, 8), (6, 3), "and 6");
        assert_eq!(turns.reach(0, 9, 8), (8, 5));
        assert_eq!(turns.reach(8, 9, 8), (8, 0));
    }

    #[test]
    fn a_silent_lane_says_nothing_of_no_shows_and_one_that_returns_does() {
        let mut turns = Turns::new(2);
        assert!(!turns.is_current());
        turns.survey(&[report(&[], &[], 3), report(&[], &[0], 1)]);
        turns.settle(&numbered(&[4, 4]), 0, 8);
        assert!(turns.is_current());
        turns.survey(&[None, report(&[], &[1], 2)]);
        assert!(!turns.is_current());
        assert_eq!(turns.active(), 5, "its last word stands");
        turns.survey(&[report(&[9], &[], 3), report(&[], &[], 2)]);
        turns.settle(&numbered(&[4, 4]), 0, 8);
        assert!(turns.is_current());
        assert_eq!(turns.pending(0, 8), 6);
    }

    #[test]
    fn another_history_of_rows_is_read_anew() {
        let mut turns = Turns::new(1);
        turns.survey(&[Some(LaneReport {
            newly_left: vec![1],
            read: LogsRead { left: 1, redeemed: 0 },
            ..LaneReport::default()
        })]);
        turns.settle(&numbered(&[9]), 0, 5);
        assert_eq!(turns.read(), [LogsRead { left: 1, redeemed: 0 }]);
        turns.settle(&numbered(&[4]), 0, 4);
        assert_eq!((turns.read(), turns.pending(0, 4)), (vec![LogsRead::default()], 4));
    }

    proptest! {
        /// Whatever the lanes tell in whatever order, and however the board moves: the counts are those of a plain
        /// list of numbers.
        #[test]
        fn counts_are_those_of_a_plain_list(
            steps in prop::collection::vec((prop::collection::vec((0u64..60, any::<bool>()), 0..6), 0u64..9, 0u64..7), 1..30),
        ) {
            let numbering = numbered(&[60]);
            let (mut turns, mut plain) = (Turns::new(1), BTreeMap::new());
            let (mut serving, mut expired) = (0u64, 0u64);
            for (told, on, out) in steps {
                let of = |kind: bool| told.iter().filter(|(_, k)| *k == kind).map(|(seq, _)| *seq).collect::<Vec<_>>();
                for (seq, redeemed) in &told {
                    let kept: &mut bool = plain.entry(seq + 1).or_insert(false);
                    *kept |= redeemed;
                }
                turns.survey(&[report(&of(false), &of(true), 0)]);
                turns.settle(&numbering, expired, serving);
                let gone = |from: u64, to: u64| plain.keys().filter(|number| **number > from && **number <= to).count() as u64;
                prop_assert_eq!(turns.pending(expired, serving), serving - expired - gone(expired, serving));
                let further = (expired + out).min(serving);
                prop_assert_eq!(turns.pending(further, serving), serving - further - gone(further, serving));
                let ended = turns.ended(expired, further);
                prop_assert_eq!(ended.redeemed + ended.left, gone(expired, further));
                prop_assert_eq!(ended.redeemed + ended.left + ended.missed, further - expired);
                let (reached, people) = turns.reach(serving, on, 60);
                prop_assert_eq!(reached - serving - gone(serving, reached), people);
                prop_assert!(people <= on && (people == on || reached == 60));
                (serving, expired) = (reached, further);
            }
        }
    }
}
