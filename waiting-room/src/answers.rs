//! What the verbs answer, as API.md has it.

use lockgate_shared::{clock::Timestamp, ids::SaleId, ticket::Ticket};
use serde::Serialize;

use crate::{
    place::Standing,
    snapshot::{LiveSale, Snapshot},
    store::Seat,
};

/// The answer to entering.
#[derive(Debug)]
pub struct Place {
    /// The signed ticket.
    pub ticket: String,
    /// Whether the place is new.
    pub fresh: bool,
    /// The status that goes with it.
    pub status: PersonalStatus,
}

/// The answer to redeeming.
#[derive(Debug, Serialize)]
pub struct Admitted {
    /// The signed admission token.
    pub token: String,
    /// `Bearer`.
    pub token_type: &'static str,
    /// When it runs out.
    pub expires_at: Timestamp,
    /// Where it is good for.
    pub checkout_url: String,
}

/// The personal status, as API.md has it.
#[derive(Clone, Debug, Serialize)]
pub struct PersonalStatus {
    /// The sale.
    pub sale: SaleId,
    /// What it is doing.
    pub phase: &'static str,
    /// Where the shopper stands.
    pub state: &'static str,
    /// Which snapshot this was computed from.
    pub snapshot: u64,
    /// The number on the board.
    pub now_serving: u64,
    /// The shopper's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// People before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub people_ahead: Option<u64>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<WaitRange>,
    /// Until when the turn may be taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_expires_at: Option<Timestamp>,
    /// Where the draw found them, for members of its pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draw: Option<PoolPlace>,
    /// When to ask again.
    pub poll_after_ms: u64,
    /// What the operator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time here.
    pub server_time: Timestamp,
}

/// A place in the pools of a draw, by which anybody can compute its number.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PoolPlace {
    /// The pool.
    pub pool: u16,
    /// The place in it, from 0.
    pub entry: u64,
}

/// Between how many and how many seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WaitRange {
    /// At least.
    pub low: u64,
    /// At most.
    pub high: u64,
}

/// Everything that decides where a ticket's owner stands.
pub(crate) fn standing<'a>(
    live: &LiveSale,
    snapshot: &'a Snapshot,
    ticket: &Ticket,
    seat: Option<&'a Seat>,
    now: Timestamp,
) -> Standing<'a> {
    Standing {
        definition: &snapshot.sale.definition,
        phase: snapshot.phase(now),
        record: &snapshot.record,
        seq: ticket.seq,
        number: snapshot.numbering.number(usize::from(ticket.lane), ticket.seq),
        has_left: live.has_left(ticket.lane, ticket.seq),
        seat,
        now,
    }
}

/// The personal status of a ticket's owner.
pub(crate) fn personal_status(
    live: &LiveSale,
    snapshot: &Snapshot,
    ticket: &Ticket,
    seat: Option<&Seat>,
    now: Timestamp,
) -> PersonalStatus {
    told(snapshot, ticket, &standing(live, snapshot, ticket, seat, now))
}

/// The personal status of whoever stands there.
pub(crate) fn told(snapshot: &Snapshot, ticket: &Ticket, standing: &Standing<'_>) -> PersonalStatus {
    let place = standing.place();
    let was_drawn = snapshot.numbering.was_drawn(usize::from(ticket.lane), ticket.seq);
    PersonalStatus {
        sale: ticket.sale.clone(),
        phase: standing.phase.as_str(),
        state: place.state.as_str(),
        snapshot: snapshot.record.version,
        now_serving: snapshot.record.now_serving,
        number: place.number.filter(|_| !snapshot.numbering.is_folded(usize::from(ticket.lane), ticket.seq)),
        people_ahead: place.people_ahead,
        wait_seconds: place.wait_seconds.map(|(low, high)| WaitRange { low, high }),
        turn_expires_at: place.turn_expires_at,
        draw: was_drawn.then_some(PoolPlace { pool: ticket.lane, entry: ticket.seq }),
        poll_after_ms: place.poll_after_ms,
        message: snapshot.sale.controls.message.clone(),
        server_time: standing.now,
    }
}
