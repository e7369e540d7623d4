//! PURE. What one process knows of a sale's record and rows, and how it takes in what the store says.
//!
//! A store that failed over may have lost its last writes. Then the process keeps what it knows, which was shown to
//! people, until the admitter has put it back; nothing shown ever falls.

use std::sync::Arc;

use crate::{
    admission::AdmissionRecord,
    draw::{Draw, Table},
    numbering::{Numbering, RowError},
    numbers::{Lots, Numbers},
    store::{LaneReport, Recorded},
};

/// One process's view of one sale.
#[derive(Clone, Debug)]
pub struct Follower {
    numbering: Arc<Numbering>,
    record: Arc<AdmissionRecord>,
    /// The numbers of this draw.
    table: Option<(Draw, Arc<Table>)>,
    /// What the last surveys counted, per lane.
    counts: Vec<Option<u64>>,
    /// What the store held when it was last read.
    stored: (AdmissionRecord, usize),
    /// Rows the store had folded away then.
    stored_rows_first: usize,
    /// Where the store's rows then ceased to be this process's; `None` while that is not known.
    rows_kept: Option<usize>,
    /// Whether that reading found the store behind what this process knows.
    is_behind: bool,
    reload: bool,
}

impl Follower {
    /// Nothing is known yet, of a sale with so many lanes.
    #[must_use]
    pub fn new(lanes: u16) -> Self {
        Self {
            numbering: Arc::new(Numbering::new(lanes)),
            record: Arc::default(),
            table: None,
            counts: vec![None; usize::from(lanes)],
            stored: Default::default(),
            stored_rows_first: 0,
            rows_kept: Some(0),
            is_behind: false,
            reload: false,
        }
    }

    /// The rows known.
    #[must_use]
    pub fn numbering(&self) -> &Arc<Numbering> {
        &self.numbering
    }

    /// The numbers known, by rows and draw.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let lots = match (&self.table, self.undrawn()) {
            (_, Some(_)) => Lots::Pending,
            (Some((_, table)), None) if self.record.is_drawn() => Lots::Drawn(Arc::clone(table)),
            _ => Lots::None,
        };
        Numbers::new(Arc::clone(&self.numbering), lots)
    }

    /// The draw whose numbers have yet to be computed here.
    #[must_use]
    pub fn undrawn(&self) -> Option<&Draw> {
        let draw = self.record.draw.as_ref().filter(|draw| draw.drawn.is_some())?;
        let is_known = self.table.as_ref().is_some_and(|(of, _)| of == draw);
        (!is_known).then_some(draw)
    }

    /// Takes in the numbers of a draw.
    pub fn note_table(&mut self, draw: Draw, table: Table) {
        self.table = Some((draw, Arc::new(table)));
    }

    /// The record known.
    #[must_use]
    pub fn record(&self) -> &Arc<AdmissionRecord> {
        &self.record
    }

    /// What the last surveys counted, per lane.
    #[must_use]
    pub fn counts(&self) -> &[Option<u64>] {
        &self.counts
    }

    /// Entries in all, numbered or not.
    #[must_use]
    pub fn entered(&self) -> u64 {
        self.entered_by_lane().iter().sum()
    }

    /// Entries of each lane, numbered or not.
    #[must_use]
    pub fn entered_by_lane(&self) -> Vec<u64> {
        let lanes = self.counts.iter().enumerate();
        lanes.map(|(lane, count)| count.unwrap_or(0).max(self.numbering.count(lane))).collect()
    }

    /// The first row to ask the store for.
    #[must_use]
    pub fn rows_from(&self) -> usize {
        if self.reload { 0 } else { self.numbering.rows() }
    }

    /// The version the store holds, and how many rows.
    #[must_use]
    pub fn stored(&self) -> (&AdmissionRecord, usize) {
        (&self.stored.0, self.stored.1)
    }

    /// Up to where the store's rows stand; what is written next begins there. `None`: read anew first.
    #[must_use]
    pub fn rows_kept(&self) -> Option<usize> {
        self.rows_kept
    }

    /// Up to where the store's rows are to be folded now: rows long since called, or what was folded before the
    /// store lost it.
    #[must_use]
    pub fn fold_due(&self) -> Option<usize> {
        let due = self.numbering.fold_due(self.record.expired_through);
        let rows_first = due.unwrap_or(0).max(self.numbering.rows_first());
        (rows_first > self.stored_rows_first).then_some(rows_first)
    }

    /// Whether the store has lost what this process knows.
    #[must_use]
    pub fn store_is_behind(&self) -> bool {
        self.is_behind
    }

    /// Takes in a survey; silent lanes keep their counts, and counts never fall.
    pub fn survey(&mut self, reports: &[Option<LaneReport>]) {
        for (lane, report) in reports.iter().enumerate() {
            if let Some(report) = report {
                self.counts[lane] = Some(report.count.max(self.counts[lane].unwrap_or(0)));
            }
        }
    }

    /// Takes in what the store answered to [`Follower::rows_from`].
    ///
    /// # Errors
    /// The rows do not follow; all of them will be asked for next.
    pub fn absorb(&mut self, recorded: Recorded) -> Result<(), RowError> {
        let loses =
            recorded.record.version < self.record.version || recorded.rows_total < self.numbering.rows();
        self.stored = (recorded.record.clone(), recorded.rows_total);
        self.stored_rows_first = recorded.rows_first;
        if loses {
            // What was shown stands, however long it takes to put it back. The store's rows are asked for from their
            // start, to see how many of them are still ours.
            self.rows_kept = self.reload.then(|| self.rows_in_common(&recorded));
            (self.is_behind, self.reload) = (true, true);
            return Ok(());
        }
        // Rows folded away before this process read them leave nothing to go on from: it begins with the base.
        let anew = self.reload || recorded.rows_first > self.numbering.rows();
        let mut numbering = if anew {
            Arc::new(Numbering::after(self.lanes(), recorded.rows_first))
        } else {
            Arc::clone(&self.numbering)
        };
        // Most readings bring nothing new, and then nothing is copied.
        if !recorded.rows.is_empty() || recorded.rows_first > numbering.rows_first() {
            let changed = Arc::make_mut(&mut numbering);
            if let Err(error) = recorded.rows.iter().try_for_each(|row| changed.append(row)) {
                (self.reload, self.rows_kept) = (!self.reload, None);
                return Err(error);
            }
            changed.fold(recorded.rows_first);
        }
        // Rows that number another total than the record says are another history's.
        let differs = numbering.total() != recorded.record.numbered;
        (self.is_behind, self.reload) = (false, differs && !self.reload);
        self.rows_kept = (!self.reload).then(|| numbering.rows());
        self.numbering = numbering;
        if *self.record != recorded.record {
            self.record = Arc::new(AdmissionRecord {
                now_serving: recorded.record.now_serving.max(self.record.now_serving),
                expired_through: recorded.record.expired_through.max(self.record.expired_through),
                draw: Draw::kept(self.record.draw.as_ref(), recorded.record.draw.as_ref()),
                ..recorded.record
            });
        }
        Ok(())
    }

    /// The position of the first of the store's rows that is not this process's.
    fn rows_in_common(&self, recorded: &Recorded) -> usize {
        let first = recorded.rows_first.max(self.numbering.rows_first());
        let theirs = recorded.rows.iter().skip(first - recorded.rows_first);
        let same = theirs.zip(self.numbering.counts_from(first)).take_while(|(theirs, ours)| *theirs == ours);
        first.min(recorded.rows_total) + same.count()
    }

    fn lanes(&self) -> u16 {
        u16::try_from(self.numbering.lanes()).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(
        version: u64,
        now_serving: u64,
        numbered: u64,
        rows_total: usize,
        rows: &[[u64; 2]],
    ) -> Recorded {
        Recorded {
            record: AdmissionRecord { version, now_serving, numbered, ..AdmissionRecord::default() },
            rows_total,
            rows: rows.iter().map(|row| row.to_vec()).collect(),
            rows_first: 0,
        }
    }

    fn followed() -> Follower {
        let mut follower = Follower::new(2);
        follower.absorb(recorded(1, 0, 3, 1, &[[1, 2]])).unwrap();
        assert_eq!(follower.rows_from(), 1);
        follower.absorb(recorded(5, 4, 7, 2, &[[4, 3]])).unwrap();
        follower
    }

    #[test]
    fn rows_and_record_are_followed() {
        let mut follower = followed();
        assert_eq!((follower.numbering().total(), follower.record().now_serving), (7, 4));
        follower.survey(&[Some(LaneReport { count: 9, ..LaneReport::default() }), None]);
        assert_eq!(follower.entered(), 12);
        follower.survey(&[None, Some(LaneReport { count: 1, ..LaneReport::default() })]);
        assert_eq!(follower.entered(), 12, "a lane that lost entries keeps what was numbered");
    }

    #[test]
    fn l5_a_store_that_lost_writes_is_not_believed_until_it_has_them_back() {
        let mut follower = followed();
        follower.absorb(recorded(2, 1, 3, 1, &[])).unwrap();
        assert!(follower.store_is_behind());
        assert_eq!((follower.numbering().total(), follower.record().now_serving), (7, 4));
        assert_eq!(follower.stored().0.version, 2);
        follower.absorb(recorded(6, 4, 7, 2, &[[1, 2], [4, 3]])).unwrap();
        assert!(!follower.store_is_behind());
        assert_eq!((follower.record().version, follower.rows_from()), (6, 2));
    }

    #[test]
    fn l5_a_store_that_stays_behind_is_never_believed_and_is_told_from_where_to_go_on() {
        let mut follower = followed();
        for _ in 0..1_000 {
            follower.absorb(recorded(2, 1, 3, 1, &[[1, 2]])).unwrap();
        }
        assert_eq!((follower.numbering().total(), follower.record().version), (7, 5));
        assert_eq!(follower.rows_kept(), Some(1), "its first row is ours");
        follower.absorb(recorded(3, 1, 30, 2, &[[20, 10], [21, 10]])).unwrap();
        assert_eq!((follower.numbering().total(), follower.rows_kept()), (7, Some(0)), "another history");
        let mut late = followed();
        late.absorb(recorded(2, 1, 3, 1, &[])).unwrap();
        assert_eq!(late.rows_kept(), None, "not known before all of them were read");
    }

    #[test]
    fn what_the_store_folds_every_process_folds_and_late_ones_begin_with_the_base() {
        let mut follower = followed();
        let folded = Recorded { rows_first: 1, ..recorded(6, 4, 9, 3, &[[5, 4]]) };
        follower.absorb(folded).unwrap();
        assert_eq!((follower.numbering().rows_first(), follower.rows_from()), (1, 3));
        assert_eq!(
            (follower.numbering().number(0, 4), follower.numbering().is_folded(0, 3)),
            (Some(8), true)
        );
        for mut late in [Follower::new(2), followed()] {
            let all = Recorded { rows_first: 3, ..recorded(7, 9, 12, 5, &[[6, 5], [7, 5]]) };
            late.absorb(all).unwrap();
            assert_eq!((late.rows_from(), late.numbering().rows_first()), (5, 3));
            assert_eq!((late.numbering().number(0, 6), late.numbering().is_folded(0, 5)), (Some(12), true));
            assert_eq!(late.fold_due(), None);
        }
    }

    #[test]
    fn l5_a_store_that_lost_folded_rows_is_told_where_to_go_on() {
        let mut follower = followed();
        follower.absorb(Recorded { rows_first: 1, ..recorded(6, 4, 9, 3, &[[5, 4]]) }).unwrap();
        follower.absorb(Recorded::default()).unwrap();
        assert!(follower.store_is_behind());
        assert_eq!(follower.fold_due(), Some(1));
        let put_back = Recorded { rows_first: 1, ..recorded(8, 4, 9, 3, &[[4, 3], [5, 4]]) };
        follower.absorb(put_back).unwrap();
        assert!(!follower.store_is_behind());
        assert_eq!((follower.rows_from(), follower.numbering().number(0, 4)), (3, Some(8)));
    }

    #[test]
    fn another_history_of_rows_is_noticed_and_read_anew() {
        let mut follower = followed();
        follower.absorb(recorded(9, 4, 20, 3, &[[10, 9]])).unwrap();
        assert_eq!(follower.rows_from(), 0, "19 are not the 20 the record speaks of");
        follower.absorb(recorded(9, 4, 20, 3, &[[1, 2], [4, 4], [10, 10]])).unwrap();
        assert_eq!((follower.numbering().total(), follower.rows_from()), (20, 3));
        assert!(follower.absorb(recorded(10, 4, 20, 4, &[[1, 1]])).is_err());
        assert_eq!(follower.rows_from(), 0);
    }
}
