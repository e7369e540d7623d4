//! PURE. What becomes of a place, by what the lane knows of it.

use lockgate_shared::clock::Timestamp;

use super::{
    Departure, EmailHash, Entry, Forfeit, LaneView, Redeemed, Redemption, Renewal, Right, Seat, SeatState,
    WhichRight,
};

/// What entering does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entering {
    /// The account keeps this place.
    Keep(Seat),
    /// The place its ticket proves is written again.
    Restore(u64),
    /// It gets the next place.
    Next,
}

/// What redeeming does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redeeming {
    /// Nothing is written.
    Answer(Redeemed),
    /// This right is written for the place, and answered.
    Write {
        /// The right.
        right: Right,
        /// Whether the place had none before.
        is_first: bool,
    },
}

/// A ticket outranks what the store holds when it names a later place, or when the store holds none: tickets are
/// signed, so the store must have lost it.
fn ticket_is_newer(seat: Option<&Seat>, seq: u64) -> bool {
    seat.is_none_or(|seat| seat.seq < seq)
}

/// Whether an account may get a place, by the address it has to be listed with and the one it is listed with.
pub(super) fn is_let_in(listed_as: Option<EmailHash>, found: Option<EmailHash>) -> bool {
    listed_as.is_none() || listed_as == found
}

pub(super) fn entering(seat: Option<&Seat>, entry: &Entry, view: LaneView, now: Timestamp) -> Entering {
    let is_missed = |seq: u64| seq < view.missed_below || entry.missed_seq == Some(seq);
    if let Some(seq) = entry.ticket_seq
        && !is_missed(seq)
        && ticket_is_newer(seat, seq)
    {
        return Entering::Restore(seq);
    }
    let Some(seat) = seat else { return Entering::Next };
    let stands = match &seat.state {
        SeatState::Left => false,
        SeatState::Admitted(right) => right.expires_at > now,
        SeatState::Waiting => !is_missed(seat.seq),
    };
    if stands { Entering::Keep(seat.clone()) } else { Entering::Next }
}

pub(super) fn redeeming(seat: Option<&Seat>, redemption: &Redemption) -> Redeeming {
    let Some(seat) = seat.filter(|seat| seat.seq >= redemption.seq) else {
        return Redeeming::Write { right: redemption.right.clone(), is_first: true };
    };
    if seat.seq > redemption.seq {
        return Redeeming::Answer(Redeemed::Superseded);
    }
    match &seat.state {
        SeatState::Left => Redeeming::Answer(Redeemed::Left),
        SeatState::Waiting => Redeeming::Write { right: redemption.right.clone(), is_first: true },
        SeatState::Admitted(right) if right.expires_at <= redemption.now => {
            Redeeming::Answer(Redeemed::Lapsed)
        }
        SeatState::Admitted(right) if right.epoch < redemption.right.epoch => {
            let fresh = redemption.right.clone();
            Redeeming::Write { right: Right { expires_at: right.expires_at, ..fresh }, is_first: false }
        }
        SeatState::Admitted(right) => Redeeming::Answer(Redeemed::Admitted(right.clone())),
    }
}

/// The place after its right was forfeited; `None` when that changes nothing.
pub(super) fn forfeited(seat: Option<&Seat>, forfeit: &Forfeit) -> Option<Seat> {
    let Some(Seat { seq, state: SeatState::Admitted(right) }) = seat else { return None };
    let is_meant = match &forfeit.which {
        WhichRight::Id(jti) => right.jti == *jti,
        WhichRight::GivenAt(issued_at) => right.issued_at == *issued_at,
    };
    let ends = is_meant && right.expires_at > right.issued_at;
    let ended = || Right { expires_at: right.issued_at, ..right.clone() };
    ends.then(|| Seat { seq: *seq, state: SeatState::Admitted(ended()) })
}

/// The place with its right renewed; `None` when the right is not live.
pub(super) fn renewed(seat: Option<&Seat>, renewal: &Renewal) -> Option<(u64, Right)> {
    let Some(Seat { seq, state: SeatState::Admitted(right) }) = seat else { return None };
    if right.jti != renewal.jti || right.expires_at <= renewal.now {
        return None;
    }
    let latest = right.issued_at.plus_seconds(renewal.seconds_max);
    let expires_at = renewal.expires_at.min(latest).max(right.expires_at);
    Some((*seq, Right { expires_at, ..right.clone() }))
}

/// What leaving answers, and whether the place has to be marked and logged.
pub(super) fn leaving(seat: Option<&Seat>, seq: u64, forfeited: Option<&str>) -> (Departure, bool) {
    match seat {
        Some(seat) if seat.seq > seq => (Departure::Superseded, false),
        Some(Seat { seq: held, state: SeatState::Left }) if *held == seq => (Departure::Left, false),
        Some(Seat { seq: held, state: SeatState::Admitted(right) })
            if *held == seq && forfeited != Some(right.jti.as_str()) =>
        {
            (Departure::Admitted { jti: right.jti.clone() }, false)
        }
        _ => (Departure::Left, true),
    }
}
