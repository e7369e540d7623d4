//! PURE. The numbering log: which number a place in a lane has.
//!
//! A row holds how many each lane had at one moment. An entry belongs to the first row whose count for its lane
//! exceeds its seq; inside a row, entry `i` of `c` in lane `k` stands at `(2i + 1) / 2c` of the row's stretch, ties
//! by lane. So a number is final once its row is written, depends on no clock, and each lane's entries spread evenly
//! over the row however uneven lanes are. All arithmetic is in integers.
//!
//! Rows count in all, so a row holds what the rows before it held. Once every number of some rows has had its turn,
//! all but the last of them can be dropped: that one, the *base*, then stands for all. Later numbers stay as they
//! are; what the base knows of its own entries is only that their turns have come and gone.

use std::sync::Arc;

/// The rows of one sale, oldest first, and what they mean. Cloning copies references, not rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbering {
    lanes: usize,
    /// Rows dropped before `rows[0]`, which is the base if there are any.
    folded: usize,
    rows: Vec<Arc<Row>>,
}

/// Rows that are kept although all their turns have run out: what a process with an old view may still ask about.
const CALLED_ROWS_KEPT: usize = 256;
/// Rows that are folded at a time, so that folding is rare.
const FOLD_ROWS_MIN: usize = 512;

#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Entries each lane had, in all, when the row was written.
    counts: Box<[u64]>,
    /// Entries in all rows before this one.
    before: u64,
}

/// Why a row cannot follow the rows there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// It has another number of lanes.
    #[error("the row has {found} lanes, not {expected}")]
    OtherLanes {
        /// Lanes of the sale.
        expected: usize,
        /// Lanes of the row.
        found: usize,
    },
    /// A lane would have fewer entries than before, or the total would not fit.
    #[error("the row counts fewer entries than the one before it")]
    Falls,
}

impl Numbering {
    /// No rows yet, for a sale of so many lanes.
    #[must_use]
    pub fn new(lanes: u16) -> Self {
        Self::after(lanes, 0)
    }

    /// No rows yet, where `folded` have been dropped: the next one to be appended is the base.
    #[must_use]
    pub fn after(lanes: u16, folded: usize) -> Self {
        Self { lanes: usize::from(lanes), folded, rows: Vec::new() }
    }

    /// Appends a row of cumulative counts.
    ///
    /// # Errors
    /// The row cannot follow; nothing changed.
    pub fn append(&mut self, counts: &[u64]) -> Result<(), RowError> {
        if counts.len() != self.lanes {
            let (expected, found) = (self.lanes, counts.len());
            return Err(RowError::OtherLanes { expected, found });
        }
        let falls = (0..self.lanes).any(|lane| counts[lane] < self.count(lane));
        let sum = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count));
        if falls || sum.is_none() {
            return Err(RowError::Falls);
        }
        let before = self.total();
        self.rows.push(Arc::new(Row { counts: counts.into(), before }));
        Ok(())
    }

    /// The row that `surveyed` counts would add: `None` when no lane has more than before. A lane that did not
    /// answer, or answers with less than it had, keeps its last count.
    #[must_use]
    pub fn next_row(&self, surveyed: &[Option<u64>]) -> Option<Vec<u64>> {
        let counts: Vec<u64> = (0..self.lanes)
            .map(|lane| {
                let known = self.count(lane);
                surveyed.get(lane).copied().flatten().unwrap_or(0).max(known)
            })
            .collect();
        let rises = (0..self.lanes).any(|lane| counts[lane] > self.count(lane));
        rises.then_some(counts)
    }

    /// Lanes of the sale.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Rows there are, dropped ones too.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.folded + self.rows.len()
    }

    /// The position of the first row that is kept: the base, where rows were dropped.
    #[must_use]
    pub fn rows_first(&self) -> usize {
        self.folded
    }

    /// The counts of the rows from position `from` on, as far as they are kept.
    pub fn counts_from(&self, from: usize) -> impl Iterator<Item = &[u64]> {
        self.rows.iter().skip(from.saturating_sub(self.folded)).map(|row| &*row.counts)
    }

    /// Drops the rows before position `rows_first`, which becomes the base.
    pub fn fold(&mut self, rows_first: usize) {
        let dropped = rows_first.saturating_sub(self.folded).min(self.rows.len().saturating_sub(1));
        if dropped == 0 {
            return;
        }
        self.rows.drain(..dropped);
        self.folded += dropped;
        let base = Row { counts: self.rows[0].counts.clone(), before: 0 };
        self.rows[0] = Arc::new(base);
    }

    /// Up to where rows should be folded now that all turns up to `expired_through` have run out: enough of them at
    /// a time, and never the last few.
    #[must_use]
    pub fn fold_due(&self, expired_through: u64) -> Option<usize> {
        // A row ends where the next one begins.
        let begun = self.rows.partition_point(|row| row.before <= expired_through);
        let over = begun.checked_sub(1)?;
        let dropped = over.checked_sub(1 + CALLED_ROWS_KEPT)?;
        (dropped >= FOLD_ROWS_MIN).then_some(self.folded + dropped)
    }

    /// Whether the entry belongs to the base: its turn has run out, and its number is not known any more.
    #[must_use]
    pub fn is_folded(&self, lane: usize, seq: u64) -> bool {
        seq < self.folded_entries(lane)
    }

    /// Entries of `lane` that belong to the base.
    #[must_use]
    pub fn folded_entries(&self, lane: usize) -> u64 {
        let base = self.rows.first().filter(|_| self.folded > 0);
        base.and_then(|base| base.counts.get(lane)).copied().unwrap_or(0)
    }

    /// Entries that have a number: numbers run from 1 to this.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.counts.iter().sum())
    }

    /// Entries of `lane` that have a number.
    #[must_use]
    pub fn count(&self, lane: usize) -> u64 {
        self.rows.last().and_then(|row| row.counts.get(lane)).copied().unwrap_or(0)
    }

    /// The number of the entry `seq` of `lane`, once it has one. For an entry that [`Numbering::is_folded`] it is one
    /// that came no later than the end of the base, good for comparing and not for showing.
    #[must_use]
    pub fn number(&self, lane: usize, seq: u64) -> Option<u64> {
        if lane >= self.lanes {
            return None;
        }
        let index = self.rows.partition_point(|row| row.counts[lane] <= seq);
        let row = self.rows.get(index)?;
        let first = self.count_before(index, lane);
        Some(row.before + self.rank(index, lane, seq - first) + 1)
    }

    /// How many entries of `lane` have a number of at most `number`. Numbers rise with seq within a lane, so these
    /// are its entries `0..n`.
    #[must_use]
    pub fn entries_through(&self, lane: usize, number: u64) -> u64 {
        if lane >= self.lanes || number == 0 {
            return 0;
        }
        // The last row that begins below the number holds the boundary.
        let Some(index) = self.rows.partition_point(|row| row.before < number).checked_sub(1) else {
            return 0;
        };
        let first = self.count_before(index, lane);
        let (mut low, mut high) = (0, self.rows[index].counts[lane] - first);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.rows[index].before + self.rank(index, lane, middle) < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        first + low
    }

    fn count_before(&self, index: usize, lane: usize) -> u64 {
        index.checked_sub(1).and_then(|previous| self.rows.get(previous)).map_or(0, |row| row.counts[lane])
    }

    /// How many entries of row `index` stand before its entry `i` of `lane`.
    fn rank(&self, index: usize, lane: usize, i: u64) -> u64 {
        let row = &self.rows[index];
        let own = row.counts[lane] - self.count_before(index, lane);
        (0..self.lanes)
            .map(|other| {
                if other == lane {
                    return i;
                }
                let others = row.counts[other] - self.count_before(index, other);
                standing_before(i, own, others, other < lane)
            })
            .sum()
    }
}

/// How many `j` of `0..others` have `(2j + 1) / 2·others` below `(2i + 1) / 2·own`, or equal to it where
/// `wins_ties`.
fn standing_before(i: u64, own: u64, others: u64, wins_ties: bool) -> u64 {
    if others == 0 {
        return 0;
    }
    // (2j + 1) · own < (2i + 1) · others; the largest odd number that fits counts the j below it.
    let place = i.checked_mul(2).and_then(|twice| twice.checked_add(1));
    let odd_max = match place.and_then(|place| place.checked_mul(others)) {
        Some(product) => (product - u64::from(!wins_ties)) / own,
        None => {
            let product = (2 * u128::from(i) + 1) * u128::from(others);
            let quotient = (product - u128::from(!wins_ties)) / u128::from(own);
            u64::try_from(quotient).unwrap_or(u64::MAX)
        }
    };
    odd_max.div_ceil(2).min(others)
}

/// A row as stores keep it: counts in decimal, joined by spaces.
#[must_use]
pub fn row_to_text(counts: &[u64]) -> String {
    let words: Vec<String> = counts.iter().map(ToString::to_string).collect();
    words.join(" ")
}

/// Reads what [`row_to_text`] wrote.
///
/// # Errors
/// The text is no row.
pub fn row_from_text(text: &str) -> Result<Vec<u64>, String> {
    text.split(' ')
        .map(|word| word.parse().map_err(|_| format!("'{word}' in a numbering row is no count")))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows by what each adds to each lane.
    fn built(lanes: usize, added: &[Vec<u64>]) -> Numbering {
        let mut numbering = Numbering::new(u16::try_from(lanes).unwrap());
        let mut counts = vec![0; lanes];
        for row in added {
            for lane in 0..lanes {
                counts[lane] += row[lane];
            }
            numbering.append(&counts).unwrap();
        }
        numbering
    }

    fn any_rows() -> impl Strategy<Value = (usize, Vec<Vec<u64>>)> {
        (1usize..9).prop_flat_map(|lanes| {
            let count = prop_oneof![Just(0u64), 0u64..4, 0u64..40];
            let row = prop::collection::vec(count, lanes);
            (Just(lanes), prop::collection::vec(row, 0..6))
        })
    }

    /// The definition, word by word: sort every entry of a row by ((2i+1)/2c, lane).
    fn by_sorting(lanes: usize, added: &[Vec<u64>]) -> Vec<(usize, u64)> {
        let mut order = Vec::new();
        let mut first = vec![0; lanes];
        for row in added {
            let mut entries: Vec<(usize, u64)> =
                (0..lanes).flat_map(|lane| (0..row[lane]).map(move |i| (lane, i))).collect();
            entries.sort_by(|(a, i), (b, j)| ((2 * i + 1) * row[*b], a).cmp(&((2 * j + 1) * row[*a], b)));
            order.extend(entries.into_iter().map(|(lane, i)| (lane, first[lane] + i)));
            for lane in 0..lanes {
                first[lane] += row[lane];
            }
        }
        order
    }

    proptest! {
        #[test]
        fn numbers_are_exactly_the_sorted_order_from_1_to_total((lanes, added) in any_rows()) {
            let numbering = built(lanes, &added);
            let order = by_sorting(lanes, &added);
            prop_assert_eq!(numbering.total(), order.len() as u64);
            for (index, (lane, seq)) in order.iter().enumerate() {
                prop_assert_eq!(numbering.number(*lane, *seq), Some(index as u64 + 1));
            }
            for lane in 0..lanes {
                prop_assert_eq!(numbering.number(lane, numbering.count(lane)), None);
            }
        }

        #[test]
        fn p4_a_given_number_is_final_and_rises_within_its_lane((lanes, added) in any_rows()) {
            let whole = built(lanes, &added);
            for rows in 0..=added.len() {
                let part = built(lanes, &added[..rows]);
                for lane in 0..lanes {
                    let numbers: Vec<_> = (0..part.count(lane)).map(|seq| part.number(lane, seq)).collect();
                    prop_assert!(numbers.is_sorted());
                    for (seq, number) in numbers.iter().enumerate() {
                        prop_assert_eq!(whole.number(lane, seq as u64), *number);
                    }
                }
            }
        }

        #[test]
        fn entries_through_counts_what_number_gives((lanes, added) in any_rows(), extra in 0u64..5) {
            let numbering = built(lanes, &added);
            for number in 0..=numbering.total() + extra {
                for lane in 0..lanes {
                    let counted = (0..numbering.count(lane))
                        .filter(|seq| numbering.number(lane, *seq) <= Some(number))
                        .count();
                    prop_assert_eq!(numbering.entries_through(lane, number), counted as u64);
                }
            }
        }

        #[test]
        fn p5_every_stretch_of_a_row_holds_each_lane_in_proportion(row in prop::collection::vec(0u64..200, 1..9)) {
            let lanes = row.len();
            let numbering = built(lanes, std::slice::from_ref(&row));
            let total = numbering.total();
            for number in 1..=total {
                for (lane, count) in row.iter().enumerate() {
                    // Within one entry per lane of the fair share, at every point of the row.
                    let fair = *count as f64 * number as f64 / total as f64;
                    let given = numbering.entries_through(lane, number) as f64;
                    prop_assert!((given - fair).abs() <= 1.0 + lanes as f64 / 2.0, "lane {} at {}: {} for {}", lane, number, given, fair);
                }
            }
        }

        #[test]
        fn p1_folding_changes_no_number_behind_the_base((lanes, added) in any_rows(), keep in 0usize..6, number in 0u64..300) {
            let whole = built(lanes, &added);
            let mut folded = whole.clone();
            folded.fold(keep);
            let first = folded.rows_first();
            prop_assert_eq!((folded.rows(), folded.total()), (whole.rows(), whole.total()));
            let base = if first == 0 { 0 } else { whole.counts_from(first).next().unwrap_or_default().iter().sum() };
            for lane in 0..lanes {
                prop_assert_eq!(folded.count(lane), whole.count(lane));
                for seq in 0..whole.count(lane) {
                    let (was, is) = (whole.number(lane, seq).unwrap(), folded.number(lane, seq).unwrap());
                    prop_assert_eq!(folded.is_folded(lane, seq), first > 0 && was <= base);
                    prop_assert!(is == was || (was <= base && is <= base));
                }
                if number >= base {
                    prop_assert_eq!(folded.entries_through(lane, number), whole.entries_through(lane, number));
                }
            }
            // Whoever reads the folded rows for the first time knows the same.
            let mut read = Numbering::after(u16::try_from(lanes).unwrap(), first);
            for row in folded.counts_from(0) {
                read.append(row).unwrap();
            }
            prop_assert_eq!(read, folded);
        }

        #[test]
        fn rows_read_back(counts in prop::collection::vec(any::<u64>(), 1..9)) {
            prop_assert_eq!(row_from_text(&row_to_text(&counts)), Ok(counts));
        }
    }

    #[test]
    fn rows_long_since_called_are_due_and_the_others_stay() {
        let rows = CALLED_ROWS_KEPT + FOLD_ROWS_MIN + 10;
        let mut numbering = built(2, &vec![vec![2, 1]; rows]);
        assert_eq!(numbering.fold_due(0), None);
        let called = CALLED_ROWS_KEPT + FOLD_ROWS_MIN + 1;
        assert_eq!(numbering.fold_due(3 * called as u64 - 1), None);
        assert_eq!(numbering.fold_due(3 * called as u64), Some(FOLD_ROWS_MIN));
        assert_eq!(numbering.fold_due(u64::MAX), Some(rows - 1 - CALLED_ROWS_KEPT - 1));
        numbering.fold(FOLD_ROWS_MIN);
        assert_eq!(
            (numbering.rows_first(), numbering.counts_from(0).count()),
            (FOLD_ROWS_MIN, rows - FOLD_ROWS_MIN)
        );
        assert_eq!(numbering.fold_due(3 * called as u64), None);
        numbering.fold(7);
        assert_eq!(numbering.rows_first(), FOLD_ROWS_MIN, "what is folded stays so");
    }

    #[test]
    fn large_counts_do_not_overflow() {
        let big = 1u64 << 61;
        let numbering = built(2, &[vec![big, big - 1]]);
        assert_eq!(numbering.number(0, big - 1), Some(2 * big - 1));
        assert_eq!(numbering.entries_through(1, 2 * big), big - 1);
    }

    #[test]
    fn a_silent_or_poorer_lane_keeps_its_count_and_nothing_falls() {
        let mut numbering = built(3, &[vec![5, 0, 2]]);
        assert_eq!(numbering.next_row(&[None, Some(0), Some(1)]), None);
        assert_eq!(numbering.next_row(&[None, Some(4), Some(1)]), Some(vec![5, 4, 2]));
        assert_eq!(numbering.append(&[4, 9, 9]), Err(RowError::Falls));
        assert_eq!(numbering.append(&[u64::MAX, 1, 2]), Err(RowError::Falls));
        assert!(numbering.append(&[5, 9]).is_err());
        assert_eq!(numbering.rows(), 1);
        assert!(row_from_text("1 x").is_err() && row_from_text("").is_err());
    }
}
