//! PURE. What the whole crowd has seen together: the board, the numbers given, the pace of admission.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{
    answer::Phase,
    rules::{Rule, Verdict},
};

/// Snapshots remembered; older ones are dropped.
const SNAPSHOTS_MAX: usize = 4_096;
/// How long after a token was given the board may still be seen below its number, in milliseconds: one shared
/// cache life and a few ticks.
const CALL_LAG_MS_MAX: u64 = 3_000;
/// Tokens given ahead of the board that are watched at a time.
const EARLY_MAX: usize = 4_096;
/// A burst counts as this much of the rate at least, in seconds: see api.md.
const BURST_SECONDS_MIN: f64 = 0.4;
/// The board's moment is known to within this, in seconds of the rate.
const RATE_SLACK_SECONDS: f64 = 1.0;

/// What the crowd has seen together.
#[derive(Debug, Default)]
pub struct Board {
    /// Snapshot -> (now_serving, the highest number that had its turn in this or an earlier one).
    snapshots: BTreeMap<u64, Seen>,
    /// The highest now_serving seen.
    pub now_serving: u64,
    /// The phase of the latest public status.
    pub phase: Option<Phase>,
    /// Whether numbers are drawn.
    pub is_lottery: bool,
    /// What can be bought.
    pub items: Vec<String>,
    /// The rate told last, per minute.
    pub rate_per_minute: u64,
    /// The burst allowed, where it is known.
    pub burst: Option<u64>,
    /// The most admissions seen within about one second.
    pub peak_per_second: u64,
    pace: Option<Pace>,
    early: Vec<(u64, u64)>,
    numbers: Numbers,
    units: HashSet<(usize, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    now_serving: u64,
    called: u64,
}

/// The token bucket as seen from outside: what was admitted beyond the rate since the moment it was least.
#[derive(Clone, Copy, Debug)]
struct Pace {
    at_micros: i64,
    now_serving: u64,
    rate_per_minute: u64,
    /// Admissions beyond what the rate has allowed since the first sample.
    excess: f64,
    excess_min: f64,
}

impl Board {
    /// A board nothing was seen of yet.
    #[must_use]
    pub fn new(burst: Option<u64>) -> Self {
        Self { burst, ..Self::default() }
    }

    /// Takes in what an answer says of a snapshot.
    pub fn see(&mut self, snapshot: u64, now_serving: u64, now_ms: u64, verdict: &mut Verdict) {
        let before = self.snapshots.range(..snapshot).next_back().map(|(at, seen)| (*at, seen.now_serving));
        let after = self.snapshots.range(snapshot + 1..).next().map(|(at, seen)| (*at, seen.now_serving));
        let rises = before.is_none_or(|(_, serving)| serving <= now_serving)
            && after.is_none_or(|(_, serving)| serving >= now_serving);
        verdict.check(Rule::BoardRises, rises, || {
            format!("snapshot {snapshot} says now_serving {now_serving}; neighbours (snapshot, now_serving): {before:?}, {after:?}")
        });
        let called = self.called_through(snapshot);
        self.snapshots
            .entry(snapshot)
            .and_modify(|seen| seen.now_serving = seen.now_serving.max(now_serving))
            .or_insert(Seen { now_serving, called });
        if self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.pop_first();
        }
        self.now_serving = self.now_serving.max(now_serving);
        self.settle_early(now_ms, verdict);
    }

    /// The highest number known to have had its turn at this snapshot.
    fn called_through(&self, snapshot: u64) -> u64 {
        self.snapshots.range(..=snapshot).next_back().map_or(0, |(_, seen)| seen.called)
    }

    /// Somebody with `number` had their turn at this snapshot.
    pub fn note_called(&mut self, snapshot: u64, number: u64) {
        for (_, seen) in self.snapshots.range_mut(snapshot..) {
            if seen.called >= number {
                break;
            }
            seen.called = number;
        }
    }

    /// Somebody with `number` waits at this snapshot.
    pub fn note_waiting(&self, snapshot: u64, number: u64, who: u32, verdict: &mut Verdict) {
        let called = self.called_through(snapshot);
        verdict.check(Rule::InOrder, number > called, || {
            format!("shopper {who} with number {number} waits at snapshot {snapshot}; {called} had its turn by then")
        });
    }

    /// A token was given to `number`. The board may be seen to reach it a moment later, never not at all.
    pub fn note_token(&mut self, number: u64, now_ms: u64, verdict: &mut Verdict) {
        if number <= self.now_serving {
            verdict.check(Rule::TurnAfterCall, true, String::new);
        } else if self.early.len() < EARLY_MAX {
            self.early.push((number, now_ms));
        }
    }

    /// Whether tokens were given ahead of the board that it has not reached yet.
    #[must_use]
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    fn settle_early(&mut self, now_ms: u64, verdict: &mut Verdict) {
        let serving = self.now_serving;
        self.early.retain(|&(number, given_ms)| {
            let in_time = now_ms <= given_ms + CALL_LAG_MS_MAX;
            if number <= serving || !in_time {
                verdict.check(Rule::TurnAfterCall, in_time, || early_example(number, serving));
                return false;
            }
            true
        });
    }

    /// Ends the watch: what was given ahead of the board and never called stands against the server.
    pub fn close(&mut self, verdict: &mut Verdict) {
        let serving = self.now_serving;
        for (number, _) in std::mem::take(&mut self.early) {
            verdict.check(Rule::TurnAfterCall, number <= serving, || early_example(number, serving));
        }
    }

    /// Takes in one public status for the pace: the server's own time and board.
    pub fn pace(&mut self, at_micros: i64, now_serving: u64, rate_per_minute: u64, verdict: &mut Verdict) {
        self.rate_per_minute = rate_per_minute;
        let Some(last) = self.pace else {
            self.pace = Some(Pace { at_micros, now_serving, rate_per_minute, excess: 0.0, excess_min: 0.0 });
            return;
        };
        if at_micros <= last.at_micros || now_serving < last.now_serving {
            return;
        }
        let seconds = (at_micros - last.at_micros) as f64 / 1e6;
        let moved = now_serving - last.now_serving;
        if moved > 0 {
            self.peak_per_second = self.peak_per_second.max((moved as f64 / seconds.max(1.0)) as u64);
        }
        // A rate changed in between is known only to lie between the two.
        let per_second = last.rate_per_minute.max(rate_per_minute) as f64 / 60.0;
        let excess = last.excess + moved as f64 - per_second * seconds;
        let beyond = excess - last.excess_min;
        if let Some(burst) = self.burst {
            let kept = (burst as f64).max(per_second * BURST_SECONDS_MIN);
            let allowed = kept + per_second * RATE_SLACK_SECONDS + 1.0;
            verdict.check(Rule::Rate, beyond <= allowed, || {
                format!("now_serving reached {now_serving}: {beyond:.0} beyond {per_second:.1} a second, where {allowed:.0} are allowed")
            });
        }
        self.pace = Some(Pace {
            at_micros,
            now_serving,
            rate_per_minute,
            excess,
            excess_min: last.excess_min.min(excess),
        });
    }

    /// Gives `number` to a shopper; false if another has it.
    pub fn take_number(&mut self, number: u64) -> bool {
        self.numbers.take(number)
    }

    /// Notes a unit as paid for; false if it was before.
    pub fn take_unit(&mut self, item: usize, unit: u32) -> bool {
        self.units.insert((item, unit))
    }
}

fn early_example(number: u64, serving: u64) -> String {
    format!(
        "a token was given to number {number}; more than {CALL_LAG_MS_MAX} ms later the board says {serving}"
    )
}

/// Numbers given: a bitmap in pages, so that a server which answers nonsense cannot make it large.
#[derive(Debug, Default)]
struct Numbers(HashMap<u64, Box<[u64; PAGE_WORDS]>>);

const PAGE_WORDS: usize = 64;

impl Numbers {
    fn take(&mut self, number: u64) -> bool {
        let page =
            self.0.entry(number / (PAGE_WORDS as u64 * 64)).or_insert_with(|| Box::new([0; PAGE_WORDS]));
        let bit = (number % (PAGE_WORDS as u64 * 64)) as usize;
        let mask = 1u64 << (bit % 64);
        let word = &mut page[bit / 64];
        let is_free = *word & mask == 0;
        *word |= mask;
        is_free
    }
}

/// Kendall's tau between the order of `items` and their values (all different): 1 in order, -1 in reverse. `None`
/// below two items.
#[must_use]
pub fn kendall_tau(items: &[u64]) -> Option<f64> {
    let n = items.len();
    if n < 2 {
        return None;
    }
    let mut work = items.to_vec();
    let inversions = sort_counting(&mut work, &mut vec![0; n]);
    let pairs = n as f64 * (n as f64 - 1.0) / 2.0;
    Some(1.0 - 2.0 * inversions as f64 / pairs)
}

/// Merge sort that counts the pairs out of order.
fn sort_counting(items: &mut [u64], spare: &mut [u64]) -> u64 {
    let n = items.len();
    if n < 2 {
        return 0;
    }
    let (left, right) = items.split_at_mut(n / 2);
    let mut inversions = sort_counting(left, spare) + sort_counting(right, spare);
    let (mut i, mut j) = (0, 0);
    for place in spare[..n].iter_mut() {
        if j == right.len() || (i < left.len() && left[i] <= right[j]) {
            *place = left[i];
            i += 1;
        } else {
            *place = right[j];
            j += 1;
            inversions += (left.len() - i) as u64;
        }
    }
    items.copy_from_slice(&spare[..n]);
    inversions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tau_is_one_in_order_and_minus_one_in_reverse() {
        assert_eq!(kendall_tau(&[1, 2, 3, 4]), Some(1.0));
        assert_eq!(kendall_tau(&[4, 3, 2, 1]), Some(-1.0));
        assert_eq!(kendall_tau(&[2, 1, 3, 4]), Some(1.0 - 2.0 / 6.0));
        assert_eq!(kendall_tau(&[7]), None);
    }

    #[test]
    fn a_board_that_falls_is_seen_from_either_side() {
        for (snapshots, broken) in
            [([(1, 5), (3, 9), (2, 7)], 0), ([(1, 5), (3, 9), (2, 4)], 1), ([(1, 5), (3, 9), (2, 10)], 1)]
        {
            let (mut board, mut verdict) = (Board::new(None), Verdict::default());
            for (snapshot, serving) in snapshots {
                board.see(snapshot, serving, 0, &mut verdict);
            }
            assert_eq!(verdict.broken(Rule::BoardRises), broken, "{snapshots:?}");
        }
    }

    #[test]
    fn nobody_waits_at_a_snapshot_where_a_later_number_had_its_turn() {
        let (mut board, mut verdict) = (Board::new(None), Verdict::default());
        board.see(1, 0, 0, &mut verdict);
        board.see(2, 9, 0, &mut verdict);
        board.note_called(2, 9);
        board.note_waiting(1, 5, 0, &mut verdict);
        board.note_waiting(2, 10, 0, &mut verdict);
        assert_eq!(verdict.broken_total(), 0);
        board.see(3, 9, 0, &mut verdict);
        board.note_waiting(3, 5, 0, &mut verdict);
        assert_eq!(verdict.broken(Rule::InOrder), 1);
    }

    #[test]
    fn the_pace_is_rate_and_burst_over_any_span() {
        let at = |seconds: i64| seconds * 1_000_000;
        let run = |samples: &[(i64, u64)]| {
            let (mut board, mut verdict) = (Board::new(Some(50)), Verdict::default());
            for (seconds, serving) in samples {
                board.pace(at(*seconds), *serving, 600, &mut verdict);
            }
            verdict.broken(Rule::Rate)
        };
        assert_eq!(run(&[(0, 0), (1, 60), (2, 70), (3, 80)]), 0, "a burst, then the rate");
        assert_eq!(run(&[(0, 0), (100, 0), (101, 60)]), 0, "a burst after a lull");
        assert_eq!(run(&[(0, 0), (100, 0), (101, 90)]), 1, "a lull saves up no more than the burst");
        assert_eq!(run(&[(0, 0), (1, 40), (2, 80), (3, 120)]), 1, "too fast, a little at a time");
    }

    #[test]
    fn a_token_ahead_of_the_board_is_forgiven_for_a_moment_only() {
        let (mut board, mut verdict) = (Board::new(None), Verdict::default());
        board.note_token(5, 0, &mut verdict);
        board.see(1, 5, 1_000, &mut verdict);
        assert_eq!(verdict.broken_total(), 0);
        board.note_token(9, 2_000, &mut verdict);
        board.see(2, 6, 6_000, &mut verdict);
        assert_eq!(verdict.broken(Rule::TurnAfterCall), 1);
        board.note_token(20, 7_000, &mut verdict);
        board.close(&mut verdict);
        assert_eq!(verdict.broken(Rule::TurnAfterCall), 2);
    }

    #[test]
    fn a_number_is_taken_once() {
        let mut board = Board::new(None);
        assert!(board.take_number(1) && board.take_number(4_096) && board.take_number(u64::MAX));
        assert!(!board.take_number(4_096));
    }
}
