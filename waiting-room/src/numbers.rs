//! PURE. Which number a place has, whichever way the sale gives numbers: by rows, or for members of the pools by the
//! draw. Drawn numbers do not rise with the place in a lane, so whoever asks about many places asks here.

use std::sync::Arc;

use crate::{draw::Table, numbering::Numbering};

/// The numbers of one sale, as far as they are given.
#[derive(Clone, Debug)]
pub struct Numbers {
    rows: Arc<Numbering>,
    lots: Lots,
}

/// What the draw has to say.
#[derive(Clone, Debug)]
pub enum Lots {
    /// There is none: all numbers are given by rows.
    None,
    /// It was made, and this process has not computed it yet: nobody is told a number that may be another one.
    Pending,
    /// The numbers of the pools.
    Drawn(Arc<Table>),
}

impl Numbers {
    /// Numbers by these rows and this draw. Under a draw the first row holds the pools.
    #[must_use]
    pub fn new(rows: Arc<Numbering>, lots: Lots) -> Self {
        Self { rows, lots }
    }

    /// The number of the entry `seq` of `lane`, once it has one.
    #[must_use]
    pub fn number(&self, lane: usize, seq: u64) -> Option<u64> {
        match &self.lots {
            Lots::None => self.rows.number(lane, seq),
            Lots::Pending => None,
            Lots::Drawn(table) => table.number(lane, seq).or_else(|| self.rows.number(lane, seq)),
        }
    }

    /// Whether the entry was drawn.
    #[must_use]
    pub fn was_drawn(&self, lane: usize, seq: u64) -> bool {
        matches!(&self.lots, Lots::Drawn(table) if seq < table.size(lane))
    }

    /// The position of the first row that is kept: those before it were dropped, their turns long over.
    #[must_use]
    pub fn rows_first(&self) -> usize {
        self.rows.rows_first()
    }

    /// Whether the entry's number is not known any more, but only that its turn has run out. What was drawn stays
    /// known for good: it follows from the draw, not from the rows.
    #[must_use]
    pub fn is_folded(&self, lane: usize, seq: u64) -> bool {
        self.rows.is_folded(lane, seq) && !self.was_drawn(lane, seq)
    }

    /// Entries that have a number.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.total()
    }

    /// Entries of `lane` that have a number.
    #[must_use]
    pub fn count(&self, lane: usize) -> u64 {
        self.rows.count(lane)
    }

    /// The place below which every place of `lane` has a number of at most `number`. While a pool's numbers are being
    /// called there is no such place: each member has to be asked about by itself.
    #[must_use]
    pub fn all_through(&self, lane: usize, number: u64) -> u64 {
        match &self.lots {
            Lots::None => self.rows.entries_through(lane, number),
            Lots::Drawn(table) if number >= table.total() => self.rows.entries_through(lane, number),
            Lots::Pending | Lots::Drawn(_) => 0,
        }
    }

    /// How many of these places of `lane`, in ascending order, have a number of at most `number`.
    #[must_use]
    pub fn count_through(&self, lane: usize, seqs: &[u64], number: u64) -> u64 {
        let through = self.all_through(lane, number);
        let prefix = seqs.partition_point(|seq| *seq < through);
        let rest = &seqs[prefix..];
        let drawn = match &self.lots {
            // Past the pool every number is above the drawn ones, and they are not all called.
            Lots::Drawn(table) if number < table.total() => {
                let number_of = |seq: &&u64| table.number(lane, **seq);
                rest.iter().filter(|seq| number_of(seq).is_some_and(|drawn| drawn <= number)).count()
            }
            _ => 0,
        };
        (prefix + drawn) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn built(pools: &[u64], late: &[Vec<u64>]) -> Numbers {
        let mut rows = Numbering::new(u16::try_from(pools.len()).unwrap());
        let mut counts = pools.to_vec();
        rows.append(&counts).unwrap();
        for row in late {
            for (count, added) in counts.iter_mut().zip(row) {
                *count += added;
            }
            rows.append(&counts).unwrap();
        }
        Numbers::new(Arc::new(rows), Lots::Drawn(Arc::new(Table::draw(&[3; 32], pools).unwrap())))
    }

    proptest! {
        #[test]
        fn p2_pools_come_first_by_the_draw_and_later_entries_follow_in_order(
            pools in prop::collection::vec(0u64..30, 3), late in prop::collection::vec(prop::collection::vec(0u64..9, 3), 0..5),
        ) {
            let numbers = built(&pools, &late);
            let drawn: u64 = pools.iter().sum();
            let mut all = Vec::new();
            for (lane, size) in pools.iter().enumerate() {
                let of_lane: Vec<u64> =
                    (0..numbers.count(lane)).map(|seq| numbers.number(lane, seq).unwrap()).collect();
                let (pool, after) = of_lane.split_at(usize::try_from(*size).unwrap());
                prop_assert!(pool.iter().all(|number| *number <= drawn));
                prop_assert!(after.iter().all(|number| *number > drawn) && after.is_sorted());
                prop_assert_eq!(numbers.number(lane, numbers.count(lane)), None);
                for seq in 0..numbers.count(lane) {
                    prop_assert_eq!(numbers.was_drawn(lane, seq), seq < *size);
                }
                all.extend(of_lane);
            }
            all.sort_unstable();
            prop_assert_eq!(all, (1..=numbers.total()).collect::<Vec<_>>());
        }

        #[test]
        fn what_is_counted_through_is_what_the_numbers_say(
            pools in prop::collection::vec(0u64..30, 3), late in prop::collection::vec(prop::collection::vec(0u64..9, 3), 0..4),
            some in prop::collection::btree_set(0u64..70, 0..20),
        ) {
            let numbers = built(&pools, &late);
            let seqs: Vec<u64> = some.into_iter().collect();
            for number in 0..=numbers.total() + 1 {
                for (lane, size) in pools.iter().enumerate() {
                    let is_through = |seq: u64| numbers.number(lane, seq).is_some_and(|own| own <= number);
                    let counted = seqs.iter().filter(|seq| is_through(**seq)).count() as u64;
                    prop_assert_eq!(numbers.count_through(lane, &seqs, number), counted);
                    let through = numbers.all_through(lane, number);
                    prop_assert!((0..through).all(is_through), "nobody is called missed who is not");
                    let late_through = (*size..numbers.count(lane)).filter(|seq| is_through(*seq)).count();
                    prop_assert!(late_through == 0 || through == size + late_through as u64);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn p2_folding_rows_takes_nothing_from_the_draw(
            pools in prop::collection::vec(0u64..30, 3), late in prop::collection::vec(prop::collection::vec(0u64..9, 3), 0..6),
            keep in 0usize..7,
        ) {
            let whole = built(&pools, &late);
            let mut rows = Numbering::clone(&whole.rows);
            rows.fold(keep);
            // A process that starts now reads the rows that are left, and computes the draw from the pools.
            let mut read = Numbering::after(3, rows.rows_first());
            rows.counts_from(0).try_for_each(|row| read.append(row)).unwrap();
            let table = Arc::new(Table::draw(&[3; 32], &pools).unwrap());
            let over: u64 = rows.counts_from(0).next().unwrap().iter().sum();
            for rows in [rows, read] {
                let numbers = Numbers::new(Arc::new(rows), Lots::Drawn(Arc::clone(&table)));
                prop_assert_eq!(numbers.total(), whole.total());
                for (lane, size) in pools.iter().enumerate() {
                    for seq in 0..whole.count(lane) {
                        let (was, is) = (whole.number(lane, seq).unwrap(), numbers.number(lane, seq).unwrap());
                        prop_assert_eq!(numbers.was_drawn(lane, seq), seq < *size);
                        prop_assert!(seq >= *size || !numbers.is_folded(lane, seq), "what was drawn is shown");
                        prop_assert!(is == was || (numbers.is_folded(lane, seq) && was <= over && is <= over));
                    }
                    for number in over..=whole.total() + 1 {
                        prop_assert_eq!(numbers.all_through(lane, number), whole.all_through(lane, number));
                    }
                }
            }
        }

        #[test]
        fn p2_the_row_of_the_draw_is_not_folded_before_all_its_numbers_were_called(pools in prop::collection::vec(1u64..300, 3)) {
            let numbers = built(&pools, &vec![vec![1, 0, 0]; 900]);
            let drawn: u64 = pools.iter().sum();
            prop_assert!((0..drawn).all(|called| numbers.rows.fold_due(called).is_none()));
            prop_assert!(numbers.rows.fold_due(numbers.total()).is_some());
        }
    }

    #[test]
    fn p2_while_a_draw_is_not_computed_nobody_is_told_a_number() {
        let mut rows = Numbering::new(2);
        rows.append(&[3, 2]).unwrap();
        let numbers = Numbers::new(Arc::new(rows), Lots::Pending);
        assert_eq!((numbers.number(0, 0), numbers.all_through(0, 5)), (None, 0));
        assert_eq!(numbers.count_through(0, &[0, 1], 5), 0);
    }
}
