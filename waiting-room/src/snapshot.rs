//! What every process keeps of a sale: rebuilt a few times a second, read without a lock, with the public answers
//! prepared as bytes.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    gate::StockSnapshot,
    ids::{ItemId, SaleId},
};
use serde::Serialize;

use crate::{
    admission::AdmissionRecord,
    captcha::Widget,
    draw::{is_lottery, record::PublicRecord},
    eligibility::Verifier,
    follow::Follower,
    numbering::Numbering,
    numbers::Numbers,
    pages,
    phase::{Phase, item_state, phase},
    place::public_poll_after_ms,
    prepared::Prepared,
    store::{LaneReport, LaneView},
};

/// A sale in this process.
pub struct LiveSale {
    snapshot: ArcSwap<Snapshot>,
    left: RwLock<LeftSeats>,
    stock: ArcSwapOption<StockSnapshot>,
    figures: ArcSwap<Figures>,
    is_known: AtomicBool,
}

/// What operators see of a line besides its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// People who hold the right to check out and have not bought.
    pub active: u64,
    /// Turns that are on and not yet taken up.
    pub pending_turns: u64,
    /// Units that can still be won; `None` while the gate has not said.
    pub winnable: Option<u64>,
    /// Whether this process moves the line.
    pub leads: bool,
}

/// Places known to be given up.
#[derive(Debug)]
struct LeftSeats {
    /// Sorted seqs, per lane.
    seqs: Vec<Vec<u64>>,
    /// Per lane: places below are not kept, their turn is long over. The lane is asked about those anyway.
    folded: Vec<u64>,
}

/// A sale at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The sale.
    pub sale: Arc<StoredSale>,
    /// Its eligibility keys.
    pub verifier: Arc<Verifier>,
    /// The CAPTCHA its page shows.
    pub widget: Option<Arc<Widget>>,
    /// How far its line has moved.
    pub record: Arc<AdmissionRecord>,
    /// The numbers.
    pub numbering: Numbers,
    /// Entries of each lane as last counted, numbered or not.
    pub entered_by_lane: Vec<u64>,
    /// What the gate last said of the stock.
    pub stock: Option<Arc<StockSnapshot>>,
    /// The public status.
    pub status: Arc<PublicStatus>,
    /// The public status as bytes.
    pub status_bytes: Arc<Prepared>,
    /// The sale page as bytes.
    pub page_bytes: Arc<Prepared>,
    /// The public record of the draw as bytes; `None` where there is no lottery.
    pub draw_bytes: Option<Arc<Prepared>>,
}

/// The public status, as API.md has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PublicStatus {
    sale: SaleId,
    phase: &'static str,
    snapshot: u64,
    server_time: Timestamp,
    doors_open_at: Timestamp,
    opens_at: Timestamp,
    closes_at: Timestamp,
    queueing_method: &'static str,
    /// People in line whose turn has not come.
    pub waiting: u64,
    now_serving: u64,
    admissions_per_minute: u64,
    items: Vec<ItemStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    poll_after_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ItemStatus {
    item: ItemId,
    state: &'static str,
}

/// A sale made so shortly ago has no line that this process could fail to know.
const IS_NEW: Duration = Duration::from_secs(5);
/// Bytes whose only change is the time are rebuilt once in this span, so that tags hold for a cache's life.
const BYTES_LIFE: Duration = Duration::from_secs(1);

impl LiveSale {
    /// A sale nothing is known of yet but its definition.
    #[must_use]
    pub fn new(
        sale: Arc<StoredSale>,
        verifier: Arc<Verifier>,
        widget: Option<Arc<Widget>>,
        now: Timestamp,
    ) -> Self {
        let follower = Follower::new(sale.definition.lanes);
        let is_new = now.since(sale.created_at) < IS_NEW;
        let left = LeftSeats::new(usize::from(sale.definition.lanes));
        let snapshot = Snapshot::build(None, sale, (verifier, widget), &follower, None, 0, now);
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            left: RwLock::new(left),
            stock: ArcSwapOption::empty(),
            figures: ArcSwap::default(),
            is_known: AtomicBool::new(is_new),
        }
    }

    /// The latest snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Whether the line was read since this process started, or is new. Before, nobody can be told anything about it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// Whether a place is known to be given up.
    #[must_use]
    pub fn has_left(&self, lane: u16, seq: u64) -> bool {
        let left = self.left.read().unwrap_or_else(PoisonError::into_inner);
        left.seqs.get(usize::from(lane)).is_some_and(|seqs| seqs.binary_search(&seq).is_ok())
    }

    /// Remembers that a place was given up.
    pub fn note_left(&self, lane: u16, seq: u64) {
        self.left.write().unwrap_or_else(PoisonError::into_inner).note(usize::from(lane), seq);
    }

    /// Remembers what a survey says was given up.
    pub fn note_survey(&self, reports: &[Option<LaneReport>]) {
        if !reports.iter().flatten().any(|report| !report.newly_left.is_empty()) {
            return;
        }
        let mut left = self.left.write().unwrap_or_else(PoisonError::into_inner);
        for (lane, report) in reports.iter().enumerate() {
            for seq in report.iter().flat_map(|report| &report.newly_left) {
                left.note(lane, *seq);
            }
        }
    }

    /// What the gate last said of the stock.
    #[must_use]
    pub fn stock(&self) -> Option<Arc<StockSnapshot>> {
        self.stock.load_full()
    }

    /// Remembers what the gate says of the stock.
    pub fn note_stock(&self, stock: StockSnapshot) {
        self.stock.store(Some(Arc::new(stock)));
    }

    /// What operators see.
    #[must_use]
    pub fn figures(&self) -> Figures {
        **self.figures.load()
    }

    /// Remembers what operators see.
    pub fn note_figures(&self, figures: Figures) {
        self.figures.store(Arc::new(figures));
    }

    /// Builds the next snapshot and serves it from now on.
    pub fn publish(
        &self,
        sale: Arc<StoredSale>,
        verifier: Arc<Verifier>,
        follower: &Follower,
        now: Timestamp,
    ) {
        let left_waiting = self.left.read().unwrap_or_else(PoisonError::into_inner).waiting(follower);
        let stock = self.stock.load_full();
        let previous = self.snapshot();
        if follower.numbering().rows_first() != previous.numbering.rows_first() {
            self.left.write().unwrap_or_else(PoisonError::into_inner).forget_folded(follower.numbering());
        }
        let door = (verifier, previous.widget.clone());
        let next = Snapshot::build(Some(&previous), sale, door, follower, stock, left_waiting, now);
        self.snapshot.store(Arc::new(next));
        self.is_known.store(true, Ordering::Release);
    }
}

impl LeftSeats {
    fn new(lanes: usize) -> Self {
        Self { seqs: vec![Vec::new(); lanes], folded: vec![0; lanes] }
    }

    fn note(&mut self, lane: usize, seq: u64) {
        // A process that has just started reads the lanes' logs from their beginning, long after rows were folded.
        if let Some(seqs) = self.seqs.get_mut(lane)
            && seq >= self.folded[lane]
            && let Err(position) = seqs.binary_search(&seq)
        {
            seqs.insert(position, seq);
        }
    }

    /// Forgets places whose turn is long over, also those that are told from now on.
    fn forget_folded(&mut self, numbering: &Numbering) {
        for (lane, seqs) in self.seqs.iter_mut().enumerate() {
            self.folded[lane] = numbering.folded_entries(lane);
            seqs.drain(..seqs.partition_point(|seq| *seq < self.folded[lane]));
            seqs.shrink_to_fit();
        }
    }

    /// Places given up before their turn came.
    fn waiting(&self, follower: &Follower) -> u64 {
        let (numbers, now_serving) = (follower.numbers(), follower.record().now_serving);
        let lanes = self.seqs.iter().enumerate().filter(|(_, seqs)| !seqs.is_empty());
        lanes.map(|(lane, seqs)| seqs.len() as u64 - numbers.count_through(lane, seqs, now_serving)).sum()
    }
}

impl Snapshot {
    fn build(
        previous: Option<&Self>,
        sale: Arc<StoredSale>,
        (verifier, widget): (Arc<Verifier>, Option<Arc<Widget>>),
        follower: &Follower,
        stock: Option<Arc<StockSnapshot>>,
        left_waiting: u64,
        now: Timestamp,
    ) -> Self {
        let record = Arc::clone(follower.record());
        let waiting = follower.entered().saturating_sub(record.now_serving).saturating_sub(left_waiting);
        let mut status = public_status(&sale, &record, stock.as_deref(), waiting, now);
        status.snapshot = status.snapshot.max(previous.map_or(0, |previous| previous.status.snapshot));
        let reusable = previous.filter(|previous| {
            let aged =
                PublicStatus { server_time: status.server_time, ..PublicStatus::clone(&previous.status) };
            let is_young =
                now.since(previous.status.server_time) < BYTES_LIFE && now >= previous.status.server_time;
            aged == status && is_young && Arc::ptr_eq(&previous.sale, &sale)
        });
        let (status, status_bytes, page_bytes) = match reusable {
            Some(previous) => (
                Arc::clone(&previous.status),
                Arc::clone(&previous.status_bytes),
                Arc::clone(&previous.page_bytes),
            ),
            None => {
                let text = serde_json::to_string(&status).unwrap_or_default();
                let doing = phase(&sale.definition, &sale.controls, stock.as_deref(), record.is_drawn(), now);
                let page = pages::sale_page(&sale, stock.as_deref(), &status, doing, widget.as_deref());
                (Arc::new(status), Arc::new(Prepared::new(text)), Arc::new(Prepared::new(page)))
            }
        };
        let draw_bytes = draw_bytes(previous, &sale, &record);
        let (numbering, entered_by_lane) = (follower.numbers(), follower.entered_by_lane());
        Self {
            sale,
            verifier,
            widget,
            record,
            numbering,
            entered_by_lane,
            stock,
            status,
            status_bytes,
            page_bytes,
            draw_bytes,
        }
    }

    /// What entering needs to know of a lane. Places that were counted count as given, numbered or not.
    #[must_use]
    pub fn lane_view(&self, lane: u16) -> LaneView {
        let lane = usize::from(lane);
        let counted = self.entered_by_lane.get(lane).copied().unwrap_or(0);
        LaneView {
            missed_below: self.numbering.all_through(lane, self.record.expired_through),
            numbered: self.numbering.count(lane).max(counted),
        }
    }

    /// Whether a place's turn has come and run out.
    #[must_use]
    pub fn has_missed(&self, lane: u16, seq: u64) -> bool {
        self.numbering
            .number(usize::from(lane), seq)
            .is_some_and(|number| number <= self.record.expired_through)
    }

    /// The phase at `now`, by the sale's definition as this snapshot has it.
    #[must_use]
    pub fn phase(&self, now: Timestamp) -> Phase {
        let (definition, controls) = (&self.sale.definition, &self.sale.controls);
        phase(definition, controls, self.stock.as_deref(), self.record.is_drawn(), now)
    }
}

/// The record's bytes, made anew only when the draw has come further: nothing else that stands in it ever changes.
fn draw_bytes(
    previous: Option<&Snapshot>,
    sale: &StoredSale,
    record: &AdmissionRecord,
) -> Option<Arc<Prepared>> {
    if !is_lottery(&sale.definition) {
        return None;
    }
    let known = previous.filter(|previous| previous.record.draw == record.draw);
    known.and_then(|previous| previous.draw_bytes.clone()).or_else(|| {
        let text = serde_json::to_string(&PublicRecord::new(sale, record.draw.as_ref()));
        Some(Arc::new(Prepared::new(text.unwrap_or_default())))
    })
}

fn public_status(
    sale: &StoredSale,
    record: &AdmissionRecord,
    stock: Option<&StockSnapshot>,
    waiting: u64,
    now: Timestamp,
) -> PublicStatus {
    let definition = &sale.definition;
    let phase = phase(definition, &sale.controls, stock, record.is_drawn(), now);
    let item = |item: &lockgate_shared::sale::Item| ItemStatus {
        item: item.item.clone(),
        state: item_state(stock, &item.item),
    };
    PublicStatus {
        sale: definition.id.clone(),
        phase: phase.as_str(),
        snapshot: record.version,
        server_time: now,
        doors_open_at: definition.doors_open_at,
        opens_at: definition.opens_at,
        closes_at: definition.closes_at,
        queueing_method: definition.queueing_method.as_str(),
        waiting,
        now_serving: record.now_serving,
        admissions_per_minute: definition.admission.rate_per_minute,
        items: definition.items.iter().map(item).collect(),
        message: sale.controls.message.clone(),
        poll_after_ms: public_poll_after_ms(definition, phase, now),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{
        catalog::{Controls, SaleSecrets},
        sale::{EXAMPLE_TOML, parse_toml},
    };

    use super::*;
    use crate::draw::{Draw, Drawn};

    #[test]
    fn the_draw_s_record_is_prepared_once_for_each_step_of_the_draw() {
        let text = EXAMPLE_TOML.replace("queueing_method = \"fifo\"", "queueing_method = \"lottery\"");
        let definition = parse_toml("example", &text).unwrap();
        let mut sale = StoredSale {
            secrets: SaleSecrets { lane_key: [1; 32], account_key: [2; 32], draw_secret: [3; 32] },
            controls: Controls::default(),
            version: 1,
            created_at: definition.doors_open_at,
            definition,
        };
        let live = LiveSale::new(Arc::new(sale.clone()), Arc::default(), None, sale.definition.doors_open_at);
        let mut snapshot = Snapshot::clone(&live.snapshot());
        let at = sale.definition.opens_at;
        let mut draw = Draw { pools: vec![5, 4], frozen_at: at, drawn: None };
        let mut record = AdmissionRecord { draw: Some(draw.clone()), ..AdmissionRecord::default() };
        let promised = snapshot.draw_bytes.clone().unwrap();
        let frozen = draw_bytes(Some(&snapshot), &sale, &record).unwrap();
        assert_ne!(frozen.etag(false), promised.etag(false));
        (snapshot.record, snapshot.draw_bytes) = (Arc::new(record.clone()), Some(Arc::clone(&frozen)));
        record.now_serving += 1;
        let same = draw_bytes(Some(&snapshot), &sale, &record).unwrap();
        assert!(Arc::ptr_eq(&same, &frozen), "a tick in which the draw stands still prepares nothing");
        draw.drawn = Some(Drawn { at, beacon: None });
        record.draw = Some(draw);
        let drawn = draw_bytes(Some(&snapshot), &sale, &record).unwrap();
        assert_eq!(
            serde_json::from_slice::<PublicRecord>(drawn.plain()).unwrap(),
            PublicRecord::new(&sale, record.draw.as_ref())
        );
        sale.definition.queueing_method = lockgate_shared::sale::QueueingMethod::Fifo;
        assert!(draw_bytes(Some(&snapshot), &sale, &record).is_none());
    }

    #[test]
    fn places_given_up_that_are_folded_are_forgotten_whenever_they_are_told() {
        let mut numbering = Numbering::new(2);
        for row in [[10, 4], [20, 8], [30, 12]] {
            numbering.append(&row).unwrap();
        }
        let mut left = LeftSeats::new(2);
        left.note(0, 3);
        numbering.fold(1);
        assert_eq!((numbering.folded_entries(0), numbering.folded_entries(1)), (20, 8));
        left.forget_folded(&numbering);
        // A survey may bring the beginning of a long log after the first snapshot was published.
        for (lane, seq) in [(0, 19), (0, 25), (0, 20), (1, 7), (1, 8), (9, 1)] {
            left.note(lane, seq);
        }
        assert_eq!(left.seqs, [vec![20, 25], vec![8]]);
    }
}
