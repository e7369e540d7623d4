//! The model: the line in memory. Tests compare every back end with it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::{Proof, ProofId},
    store::StoreError,
};

use super::{
    Advanced, Allowed, Departure, EmailHash, EnterAnswer, Entered, Entry, Forfeit, LOG_PER_CALL_MAX,
    LaneReport, LaneView, Listed, LogsRead, Move, RIGHTS_KEPT_SECONDS, ROWS_PER_CALL_MAX, Recorded, Redeemed,
    Redemption, Renewal, Right, Seat, SeatState, Spent, Store, allowlist,
    rules::{self, Entering, Redeeming},
};
use crate::admission::AdmissionRecord;

/// A line that lives as long as the process.
#[derive(Default)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<(SaleId, u16), Lane>,
    lines: HashMap<SaleId, Stored>,
    proofs: HashMap<(SaleId, ProofId), AccountHash>,
}

#[derive(Default)]
struct Lane {
    seats: HashMap<AccountHash, Seat>,
    allowed: HashMap<[u8; 12], EmailHash>,
    next: u64,
    left: Vec<u64>,
    redeemed: Vec<u64>,
    /// Seq -> end of the right, in seconds.
    rights: BTreeMap<u64, i64>,
}

#[derive(Default)]
struct Stored {
    record: AdmissionRecord,
    rows: Vec<Vec<u64>>,
    rows_first: usize,
    fence: u64,
    lease: Option<(String, Instant)>,
}

impl Lane {
    fn allow(&mut self, listed: &[Listed]) -> Allowed {
        let mut allowed = Allowed::default();
        for listed in listed {
            let found = self.allowed.insert(listed.short_account(), listed.email);
            allowed.count(found.map(|email| *email.as_bytes()), listed.email);
        }
        allowed
    }

    fn enter(&mut self, entry: &Entry, view: LaneView, now: Timestamp) -> EnterAnswer {
        let found = self.allowed.get(&allowlist::short(entry.account)).copied();
        if !rules::is_let_in(entry.listed_as, found) {
            return if self.allowed.is_empty() { EnterAnswer::NoList } else { EnterAnswer::NotListed };
        }
        EnterAnswer::Entered(self.place(entry, view, now))
    }

    fn place(&mut self, entry: &Entry, view: LaneView, now: Timestamp) -> Entered {
        let (seq, fresh) = match rules::entering(self.seats.get(&entry.account), entry, view, now) {
            Entering::Keep(seat) => return Entered { seat, fresh: false },
            Entering::Restore(seq) => (seq, false),
            Entering::Next => (self.next.max(view.numbered), true),
        };
        Entered { seat: self.put(entry.account, seq, SeatState::Waiting), fresh }
    }

    fn redeem(&mut self, redemption: &Redemption) -> Redeemed {
        match rules::redeeming(self.seats.get(&redemption.account), redemption) {
            Redeeming::Answer(answer) => answer,
            Redeeming::Write { right, is_first } => {
                self.put(redemption.account, redemption.seq, SeatState::Admitted(right.clone()));
                if is_first {
                    self.note_right(redemption.seq, &right, redemption.now);
                }
                Redeemed::Admitted(right)
            }
        }
    }

    fn note_right(&mut self, seq: u64, right: &Right, now: Timestamp) {
        self.rights.retain(|_, ends| *ends > now.seconds() - RIGHTS_KEPT_SECONDS);
        self.rights.insert(seq, right.expires_at.seconds());
        self.redeemed.push(seq);
    }

    fn put(&mut self, account: AccountHash, seq: u64, state: SeatState) -> Seat {
        let seat = Seat { seq, state };
        self.seats.insert(account, seat.clone());
        self.next = self.next.max(seq + 1);
        seat
    }
}

/// The log from `read` on, and how far it is read then. A log shorter than what was read is read anew.
fn read_on(log: &[u64], read: u64) -> (Vec<u64>, u64) {
    let from = usize::try_from(read).unwrap_or(usize::MAX);
    let from = if from > log.len() { 0 } else { from };
    let new: Vec<u64> = log[from..].iter().take(LOG_PER_CALL_MAX).copied().collect();
    let read = (from + new.len()) as u64;
    (new, read)
}

impl Model {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lane<T>(&self, sale: &SaleId, lane: u16, act: impl FnOnce(&mut Lane) -> T) -> T {
        self.with(|state| act(state.lanes.entry((sale.clone(), lane)).or_default()))
    }

    fn line<T>(&self, sale: &SaleId, act: impl FnOnce(&mut Stored) -> T) -> T {
        self.with(|state| act(state.lines.entry(sale.clone()).or_default()))
    }
}

#[async_trait]
impl Store for Model {
    async fn enter(
        &self,
        sale: &SaleId,
        lane: u16,
        entries: &[Entry],
        view: LaneView,
        now: Timestamp,
    ) -> Result<Vec<EnterAnswer>, StoreError> {
        Ok(self.lane(sale, lane, |lane| entries.iter().map(|entry| lane.enter(entry, view, now)).collect()))
    }

    async fn allow(&self, sale: &SaleId, lane: u16, listed: &[Listed]) -> Result<Allowed, StoreError> {
        Ok(self.lane(sale, lane, |lane| lane.allow(listed)))
    }

    async fn redeem(
        &self,
        sale: &SaleId,
        lane: u16,
        redemptions: &[Redemption],
    ) -> Result<Vec<Redeemed>, StoreError> {
        Ok(self.lane(sale, lane, |lane| redemptions.iter().map(|turn| lane.redeem(turn)).collect()))
    }

    async fn leave(
        &self,
        sale: &SaleId,
        lane: u16,
        account: AccountHash,
        seq: u64,
        forfeited: Option<&str>,
    ) -> Result<Departure, StoreError> {
        Ok(self.lane(sale, lane, |lane| {
            let (departure, writes) = rules::leaving(lane.seats.get(&account), seq, forfeited);
            if writes {
                lane.put(account, seq, SeatState::Left);
                lane.left.push(seq);
                lane.rights.remove(&seq);
            }
            departure
        }))
    }

    async fn conclude(&self, sale: &SaleId, lane: u16, accounts: &[AccountHash]) -> Result<u64, StoreError> {
        Ok(self.lane(sale, lane, |lane| {
            let mut ended = 0;
            for account in accounts {
                let seq = lane.seats.get(account).map(|seat| seat.seq);
                ended += u64::from(seq.is_some_and(|seq| lane.rights.remove(&seq).is_some()));
            }
            ended
        }))
    }

    async fn forfeit(&self, sale: &SaleId, lane: u16, forfeits: &[Forfeit]) -> Result<u64, StoreError> {
        Ok(self.lane(sale, lane, |lane| {
            let mut ended = 0;
            for forfeit in forfeits {
                let Some(seat) = rules::forfeited(lane.seats.get(&forfeit.account), forfeit) else {
                    continue;
                };
                lane.rights.remove(&seat.seq);
                lane.put(forfeit.account, seat.seq, seat.state);
                ended += 1;
            }
            ended
        }))
    }

    async fn renew(&self, sale: &SaleId, lane: u16, renewal: &Renewal) -> Result<Option<Right>, StoreError> {
        Ok(self.lane(sale, lane, |lane| {
            let (seq, right) = rules::renewed(lane.seats.get(&renewal.account), renewal)?;
            lane.put(renewal.account, seq, SeatState::Admitted(right.clone()));
            // Whoever has bought is not active any more, however long the right lasts.
            if let Some(ends) = lane.rights.get_mut(&seq) {
                *ends = right.expires_at.seconds();
            }
            Some(right)
        }))
    }

    async fn spend(
        &self,
        sale: &SaleId,
        proof: Proof,
        account: AccountHash,
        _now: Timestamp,
    ) -> Result<Spent, StoreError> {
        let user = self.with(|state| *state.proofs.entry((sale.clone(), proof.id)).or_insert(account));
        Ok(if user == account { Spent::Counts } else { Spent::Used })
    }

    async fn seat(&self, sale: &SaleId, lane: u16, account: AccountHash) -> Result<Option<Seat>, StoreError> {
        Ok(self.lane(sale, lane, |lane| lane.seats.get(&account).cloned()))
    }

    async fn survey(&self, sale: &SaleId, read: &[LogsRead], now: Timestamp) -> Vec<Option<LaneReport>> {
        let report = |(lane, read): (u16, &LogsRead)| {
            self.lane(sale, lane, |lane| {
                let (newly_left, left) = read_on(&lane.left, read.left);
                let (newly_redeemed, redeemed) = read_on(&lane.redeemed, read.redeemed);
                let active = lane.rights.values().filter(|ends| **ends > now.seconds()).count() as u64;
                let read = LogsRead { left, redeemed };
                Some(LaneReport { count: lane.next, newly_left, newly_redeemed, active, read })
            })
        };
        (0..).zip(read).map(report).collect()
    }

    async fn lease(
        &self,
        sale: &SaleId,
        holder: &str,
        lease_ms: u64,
        knows: u64,
    ) -> Result<Option<u64>, StoreError> {
        Ok(self.line(sale, |line| {
            let (now, life) = (Instant::now(), Duration::from_millis(lease_ms));
            let live = line.lease.as_ref().filter(|(_, until)| *until > now);
            match live {
                Some((current, _)) if current == holder => {}
                Some(_) if line.record.version >= knows => return None,
                _ => line.fence += 1,
            }
            line.lease = Some((holder.to_owned(), now + life));
            Some(line.fence)
        }))
    }

    async fn record(&self, sale: &SaleId, rows_from: usize) -> Result<Recorded, StoreError> {
        Ok(self.line(sale, |line| Recorded {
            record: line.record.clone(),
            rows_total: line.rows_first + line.rows.len(),
            rows_first: line.rows_first,
            rows: line
                .rows
                .iter()
                .skip(rows_from.saturating_sub(line.rows_first))
                .take(ROWS_PER_CALL_MAX)
                .cloned()
                .collect(),
        }))
    }

    async fn advance(&self, sale: &SaleId, step: &Move) -> Result<Advanced, StoreError> {
        Ok(self.line(sale, |line| {
            if line.fence != step.fence {
                return Advanced::Fenced;
            }
            let keep = step.rows_from.checked_sub(line.rows_first).filter(|keep| *keep <= line.rows.len());
            let Some(keep) = keep.filter(|_| line.record.version == step.expected_version) else {
                return Advanced::Stale;
            };
            line.record = step.record.clone();
            line.rows.truncate(keep);
            line.rows.extend(step.rows.iter().cloned());
            Advanced::Advanced
        }))
    }

    async fn fold(&self, sale: &SaleId, fence: u64, rows_first: usize) -> Result<Advanced, StoreError> {
        Ok(self.line(sale, |line| {
            if line.fence != fence {
                return Advanced::Fenced;
            }
            let folded = rows_first.saturating_sub(line.rows_first);
            line.rows.drain(..folded.min(line.rows.len()));
            line.rows_first += folded;
            Advanced::Advanced
        }))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
