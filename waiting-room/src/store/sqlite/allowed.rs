//! The allowlist as a table.

use lockgate_shared::ids::AccountHash;
use rusqlite::{OptionalExtension as _, params};

use super::Lane;
use crate::store::{
    Allowed, EmailHash, Listed,
    allowlist::{SHORT_BYTES, short},
};

pub(super) const TABLE: &str = "
        CREATE TABLE line_allowed (
            sale TEXT NOT NULL, lane INTEGER NOT NULL, account BLOB NOT NULL, email BLOB NOT NULL,
            PRIMARY KEY (sale, lane, account)
        ) STRICT, WITHOUT ROWID;
    ";

/// The address an account is listed with.
pub(super) fn email_of(lane: &Lane<'_>, account: AccountHash) -> rusqlite::Result<Option<EmailHash>> {
    find(lane, &short(account)).map(|found| found.map(EmailHash::from_bytes))
}

/// Whether anybody is listed in the lane.
pub(super) fn has_list(lane: &Lane<'_>) -> rusqlite::Result<bool> {
    lane.db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM line_allowed WHERE sale = ?1 AND lane = ?2)")?
        .query_row(params![lane.sale, lane.lane], |row| row.get(0))
}

fn find(lane: &Lane<'_>, account: &[u8; SHORT_BYTES]) -> rusqlite::Result<Option<[u8; SHORT_BYTES]>> {
    lane.db
        .prepare_cached("SELECT email FROM line_allowed WHERE sale = ?1 AND lane = ?2 AND account = ?3")?
        .query_row(params![lane.sale, lane.lane, account], |row| row.get(0))
        .optional()
}

pub(super) fn allow(lane: &Lane<'_>, listed: &[Listed]) -> rusqlite::Result<Allowed> {
    let mut allowed = Allowed::default();
    for listed in listed {
        let account = listed.short_account();
        allowed.count(find(lane, &account)?, listed.email);
        lane.db
            .prepare_cached("INSERT OR REPLACE INTO line_allowed VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![lane.sale, lane.lane, account, listed.email.as_bytes()])?;
    }
    Ok(allowed)
}
