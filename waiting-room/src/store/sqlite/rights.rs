//! Live rights to check out, and their ends.

use lockgate_shared::{clock::Timestamp, ids::AccountHash};
use rusqlite::params;

use super::{Lane, signed};
use crate::store::{Forfeit, RIGHTS_KEPT_SECONDS, Renewal, Right, Seat, SeatState, rules};

/// What the admitter has to know of turns: who took one up, and which rights are live.
pub(super) const TABLES: &str = "
        CREATE TABLE line_redeemed (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, position INTEGER NOT NULL, seq INTEGER NOT NULL,
            PRIMARY KEY (sale, lane, position)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE line_rights (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, seq INTEGER NOT NULL, expires_at INTEGER NOT NULL,
            PRIMARY KEY (sale, lane, seq)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX line_rights_by_end ON line_rights (sale, lane, expires_at);
    ";

impl Lane<'_> {
    pub(super) fn note_right(&self, seq: u64, right: &Right, now: Timestamp) -> rusqlite::Result<()> {
        self.db
            .prepare_cached("DELETE FROM line_rights WHERE sale = ?1 AND lane = ?2 AND expires_at <= ?3")?
            .execute(params![self.sale, self.lane, now.seconds() - RIGHTS_KEPT_SECONDS])?;
        self.db
            .prepare_cached("INSERT OR REPLACE INTO line_rights VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![self.sale, self.lane, signed(seq), right.expires_at.seconds()])?;
        self.append("line_redeemed", seq)
    }

    pub(super) fn end_right(&self, seq: u64) -> rusqlite::Result<u64> {
        self.db
            .prepare_cached("DELETE FROM line_rights WHERE sale = ?1 AND lane = ?2 AND seq = ?3")?
            .execute(params![self.sale, self.lane, signed(seq)])
            .map(|ended| ended as u64)
    }

    pub(super) fn conclude(&self, accounts: &[AccountHash]) -> rusqlite::Result<u64> {
        let mut ended = 0;
        for account in accounts {
            if let Some(seat) = self.seat(*account)? {
                ended += self.end_right(seat.seq)?;
            }
        }
        Ok(ended)
    }
}

pub(super) fn forfeit(lane: &Lane<'_>, forfeits: &[Forfeit]) -> rusqlite::Result<u64> {
    let mut ended = 0;
    for forfeit in forfeits {
        if let Some(seat) = rules::forfeited(lane.seat(forfeit.account)?.as_ref(), forfeit) {
            lane.end_right(seat.seq)?;
            lane.put(forfeit.account, &seat)?;
            ended += 1;
        }
    }
    Ok(ended)
}

pub(super) fn renew(lane: &Lane<'_>, renewal: &Renewal) -> rusqlite::Result<Option<Right>> {
    let held = lane.seat(renewal.account)?;
    let Some((seq, right)) = rules::renewed(held.as_ref(), renewal) else { return Ok(None) };
    lane.put(renewal.account, &Seat { seq, state: SeatState::Admitted(right.clone()) })?;
    // Whoever has bought is not active any more, however long the right lasts.
    lane.db
        .prepare_cached("UPDATE line_rights SET expires_at = ?4 WHERE sale = ?1 AND lane = ?2 AND seq = ?3")?
        .execute(params![lane.sale, lane.lane, signed(seq), right.expires_at.seconds()])?;
    Ok(Some(right))
}
