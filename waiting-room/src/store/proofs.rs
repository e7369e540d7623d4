//! Proofs of work that were used, until their challenges run out.

use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::Proof,
};
use rusqlite::{Connection, params};

use super::Spent;

/// The table. Times are whole seconds.
pub(super) const PROOFS: &str = "
        CREATE TABLE line_proofs (
            sale TEXT NOT NULL, proof BLOB NOT NULL, account BLOB NOT NULL, expires_at INTEGER NOT NULL,
            PRIMARY KEY (sale, proof)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX line_proofs_by_end ON line_proofs (expires_at);
    ";

/// Most proofs that one call forgets: what has run out leaves as fast as new ones come, and no call takes long.
const FORGOTTEN_PER_CALL: i64 = 4;

pub(super) fn spend_in_sqlite(
    db: &Connection,
    sale: &SaleId,
    proof: Proof,
    account: AccountHash,
    now: Timestamp,
) -> rusqlite::Result<Spent> {
    db.prepare_cached(
        "DELETE FROM line_proofs WHERE (sale, proof) IN
            (SELECT sale, proof FROM line_proofs WHERE expires_at < ?1 LIMIT ?2)",
    )?
    .execute(params![now.seconds(), FORGOTTEN_PER_CALL])?;
    let key = proof.id.0;
    db.prepare_cached("INSERT OR IGNORE INTO line_proofs VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        sale.as_str(),
        key,
        account.as_bytes(),
        proof.expires_at.seconds()
    ])?;
    let user: Vec<u8> = db
        .prepare_cached("SELECT account FROM line_proofs WHERE sale = ?1 AND proof = ?2")?
        .query_row(params![sale.as_str(), key], |row| row.get(0))?;
    Ok(spent(&user, account))
}

/// Stores the account unless one is there, and answers that one. The key has no hash tag: proofs belong to no lane,
/// and a Cluster spreads them.
pub(super) fn redis_command(key: &str, proof: Proof, account: AccountHash, now: Timestamp) -> redis::Cmd {
    let life = proof.expires_at.since(now).as_millis();
    let mut command = redis::cmd("SET");
    command.arg(key).arg(account.as_bytes()).arg("NX").arg("GET").arg("PX").arg(life.max(1_000).to_string());
    command
}

pub(super) fn spent(user: &[u8], account: AccountHash) -> Spent {
    if user == account.as_bytes() { Spent::Counts } else { Spent::Used }
}
