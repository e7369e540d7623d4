//! The line in Redis or Valkey: one script per verb. A lane's keys share the tag `{sale/lane}`, so that a Cluster
//! spreads lanes; the sale's record and rows share `{sale}`.

use std::{sync::LazyLock, time::Duration};

use async_trait::async_trait;
use lockgate_shared::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    proof_of_work::Proof,
    store::{
        StoreError,
        redis::{RedisLink, ScriptCall},
    },
};
use redis::Script;

use super::{
    Advanced, Allowed, Departure, EnterAnswer, Entered, Entry, Forfeit, LOG_PER_CALL_MAX, LaneReport,
    LaneView, Listed, LogsRead, Move, RIGHTS_KEPT_SECONDS, ROWS_PER_CALL_MAX, Recorded, Redeemed, Redemption,
    Renewal, Right, Seat, SeatState, Spent, Store, WhichRight, proofs,
};
use crate::{
    admission::AdmissionRecord,
    numbering::{row_from_text, row_to_text},
};

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!($file)));
    };
}

script!(ENTER, "redis/enter.lua");
script!(ALLOW, "redis/allow.lua");
script!(REDEEM, "redis/redeem.lua");
script!(LEAVE, "redis/leave.lua");
script!(CONCLUDE, "redis/conclude.lua");
script!(RENEW, "redis/renew.lua");
script!(FORFEIT, "redis/forfeit.lua");
script!(SURVEY, "redis/survey.lua");
script!(LEASE, "redis/lease.lua");
script!(RECORD, "redis/record.lua");
script!(ADVANCE, "redis/advance.lua");
script!(FOLD, "redis/fold.lua");

/// A lane that is silent for this long is left out of a survey: the others' people must not wait for it.
const SURVEY_LIMIT: Duration = Duration::from_millis(400);

/// The line in Redis.
#[derive(Clone)]
pub struct RedisStore {
    link: RedisLink,
}

impl RedisStore {
    /// Over a connected store.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        Self { link }
    }

    fn lane_key(&self, sale: &SaleId, lane: u16, part: &str) -> String {
        self.link.key(&format!("{{{sale}/{lane}}}:{part}"))
    }

    fn seat_keys(&self, sale: &SaleId, lane: u16) -> [String; 2] {
        [self.lane_key(sale, lane, "seats"), self.lane_key(sale, lane, "next")]
    }

    fn line_keys(&self, sale: &SaleId) -> [String; 2] {
        ["line", "rows"].map(|part| self.link.key(&format!("{{{sale}}}:{part}")))
    }

    /// What the admitter has to know of turns: live rights, and the log of turns taken up.
    fn right_keys(&self, sale: &SaleId, lane: u16) -> [String; 2] {
        [self.lane_key(sale, lane, "rights"), self.lane_key(sale, lane, "redeemed")]
    }

    fn survey_call(&self, sale: &SaleId, lane: u16, read: LogsRead, now: Timestamp) -> ScriptCall {
        let [rights, redeemed] = self.right_keys(sale, lane);
        let keys =
            vec![self.lane_key(sale, lane, "next"), self.lane_key(sale, lane, "left"), redeemed, rights];
        let args =
            vec![bytes(read.left), bytes(read.redeemed), bytes(LOG_PER_CALL_MAX), bytes(now.seconds())];
        (keys, args)
    }

    /// Asks lanes that one server holds: all of them, or one.
    async fn survey_lanes(&self, calls: &[ScriptCall]) -> Vec<Option<LaneReport>> {
        let asked = self.link.run_each("survey", &SURVEY, calls);
        let Ok(answers) = tokio::time::timeout(SURVEY_LIMIT, asked).await else {
            return vec![None; calls.len()];
        };
        let reports = answers.into_iter().map(|answer| answer.and_then(parse_report));
        reports
            .map(|report| {
                report.inspect_err(|error| tracing::debug!(%error, "a lane was left out of a survey")).ok()
            })
            .collect()
    }
}

fn parse_report(answer: Vec<Vec<u64>>) -> Result<LaneReport, StoreError> {
    let [counts, left, redeemed] = <[Vec<u64>; 3]>::try_from(answer)
        .map_err(|answer| unreadable("survey", &format!("{} parts", answer.len())))?;
    let [count, active, left_read, redeemed_read] = <[u64; 4]>::try_from(counts)
        .map_err(|counts| unreadable("survey", &format!("{} counts", counts.len())))?;
    let read = LogsRead { left: left_read, redeemed: redeemed_read };
    Ok(LaneReport { count, newly_left: left, newly_redeemed: redeemed, active, read })
}

fn unreadable(verb: &'static str, text: &str) -> StoreError {
    StoreError::unknown(verb, format!("an unreadable answer: {text:?}"))
}

fn bytes(text: impl std::fmt::Display) -> Vec<u8> {
    format!("{text}").into_bytes()
}

/// Reads `<seq>`, `<seq> l` or `<seq> a <jti> <issued> <expires> <epoch>`.
fn parse_seat(text: &str) -> Option<Seat> {
    let mut words = text.split(' ');
    let seq = words.next()?.parse().ok()?;
    let state = match words.next() {
        None => SeatState::Waiting,
        Some("l") => SeatState::Left,
        Some("a") => SeatState::Admitted(Right {
            jti: words.next()?.to_owned(),
            issued_at: Timestamp::from_seconds(words.next()?.parse().ok()?),
            expires_at: Timestamp::from_seconds(words.next()?.parse().ok()?),
            epoch: words.next()?.parse().ok()?,
        }),
        Some(_) => return None,
    };
    words.next().is_none().then_some(Seat { seq, state })
}

fn parse_entered(text: &str) -> Option<EnterAnswer> {
    match text {
        "not_listed" => return Some(EnterAnswer::NotListed),
        "no_list" => return Some(EnterAnswer::NoList),
        _ => {}
    }
    let (fresh, seat) = text.split_once(' ')?;
    Some(EnterAnswer::Entered(Entered { seat: parse_seat(seat)?, fresh: fresh == "1" }))
}

fn redeem_args(redemption: &Redemption) -> [Vec<u8>; 7] {
    let right = &redemption.right;
    [
        redemption.account.as_bytes().to_vec(),
        bytes(redemption.seq),
        bytes(&right.jti),
        bytes(right.issued_at.seconds()),
        bytes(right.expires_at.seconds()),
        bytes(right.epoch),
        bytes(redemption.now.seconds()),
    ]
}

fn parse_redeemed(text: &str) -> Option<Redeemed> {
    match text {
        "superseded" => Some(Redeemed::Superseded),
        "left" => Some(Redeemed::Left),
        "lapsed" => Some(Redeemed::Lapsed),
        seat => match parse_seat(seat)?.state {
            SeatState::Admitted(right) => Some(Redeemed::Admitted(right)),
            SeatState::Waiting | SeatState::Left => None,
        },
    }
}

fn parse_advanced(verb: &'static str, text: &str) -> Result<Advanced, StoreError> {
    match text {
        "advanced" => Ok(Advanced::Advanced),
        "fenced" => Ok(Advanced::Fenced),
        "stale" => Ok(Advanced::Stale),
        other => Err(unreadable(verb, other)),
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn enter(
        &self,
        sale: &SaleId,
        lane: u16,
        entries: &[Entry],
        view: LaneView,
        now: Timestamp,
    ) -> Result<Vec<EnterAnswer>, StoreError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = vec![bytes(now.seconds()), bytes(view.missed_below), bytes(view.numbered)];
        for entry in entries {
            args.push(entry.account.as_bytes().to_vec());
            args.push(entry.ticket_seq.map(bytes).unwrap_or_default());
            args.push(entry.missed_seq.map(bytes).unwrap_or_default());
            args.push(entry.listed_as.map(|email| email.as_bytes().to_vec()).unwrap_or_default());
        }
        let [seats, next] = self.seat_keys(sale, lane);
        let keys = [seats, next, self.lane_key(sale, lane, "allowed")];
        let answers: Vec<String> = self.link.run("enter", &ENTER, &keys, &args).await?;
        let entered: Option<Vec<EnterAnswer>> = answers.iter().map(|text| parse_entered(text)).collect();
        entered
            .filter(|entered| entered.len() == entries.len())
            .ok_or_else(|| unreadable("enter", "not one answer per entry"))
    }

    async fn allow(&self, sale: &SaleId, lane: u16, listed: &[Listed]) -> Result<Allowed, StoreError> {
        if listed.is_empty() {
            return Ok(Allowed::default());
        }
        let args: Vec<Vec<u8>> = listed
            .iter()
            .flat_map(|listed| [listed.short_account().to_vec(), listed.email.as_bytes().to_vec()])
            .collect();
        let keys = [self.lane_key(sale, lane, "allowed")];
        let [added, unchanged, changed]: [u64; 3] = self.link.run("allow", &ALLOW, &keys, &args).await?;
        Ok(Allowed { added, unchanged, changed })
    }

    async fn redeem(
        &self,
        sale: &SaleId,
        lane: u16,
        redemptions: &[Redemption],
    ) -> Result<Vec<Redeemed>, StoreError> {
        if redemptions.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = vec![bytes(RIGHTS_KEPT_SECONDS)];
        args.extend(redemptions.iter().flat_map(redeem_args));
        let [seats, next] = self.seat_keys(sale, lane);
        let [rights, redeemed] = self.right_keys(sale, lane);
        let keys = [seats, next, rights, redeemed];
        let answers: Vec<String> = self.link.run("redeem", &REDEEM, &keys, &args).await?;
        let redeemed: Option<Vec<Redeemed>> = answers.iter().map(|text| parse_redeemed(text)).collect();
        redeemed
            .filter(|redeemed| redeemed.len() == redemptions.len())
            .ok_or_else(|| unreadable("redeem", "not one answer per turn"))
    }

    async fn leave(
        &self,
        sale: &SaleId,
        lane: u16,
        account: AccountHash,
        seq: u64,
        forfeited: Option<&str>,
    ) -> Result<Departure, StoreError> {
        let [seats, next] = self.seat_keys(sale, lane);
        let [rights, _] = self.right_keys(sale, lane);
        let keys = [seats, next, self.lane_key(sale, lane, "left"), rights];
        let args = [account.as_bytes().to_vec(), bytes(seq), bytes(forfeited.unwrap_or_default())];
        let answer: String = self.link.run("leave", &LEAVE, &keys, &args).await?;
        match answer.as_str() {
            "left" => Ok(Departure::Left),
            "superseded" => Ok(Departure::Superseded),
            other => match other.strip_prefix("admitted ") {
                Some(jti) => Ok(Departure::Admitted { jti: jti.to_owned() }),
                None => Err(unreadable("leave", other)),
            },
        }
    }

    async fn seat(&self, sale: &SaleId, lane: u16, account: AccountHash) -> Result<Option<Seat>, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(self.lane_key(sale, lane, "seats")).arg(account.as_bytes());
        let text: Option<String> = self.link.command("seat", &command).await?;
        text.map(|text| parse_seat(&text).ok_or_else(|| unreadable("seat", "not a seat"))).transpose()
    }

    async fn conclude(&self, sale: &SaleId, lane: u16, accounts: &[AccountHash]) -> Result<u64, StoreError> {
        if accounts.is_empty() {
            return Ok(0);
        }
        let [rights, _] = self.right_keys(sale, lane);
        let keys = [self.lane_key(sale, lane, "seats"), rights];
        let args: Vec<Vec<u8>> = accounts.iter().map(|account| account.as_bytes().to_vec()).collect();
        self.link.run("conclude", &CONCLUDE, &keys, &args).await
    }

    async fn forfeit(&self, sale: &SaleId, lane: u16, forfeits: &[Forfeit]) -> Result<u64, StoreError> {
        if forfeits.is_empty() {
            return Ok(0);
        }
        let [rights, _] = self.right_keys(sale, lane);
        let keys = [self.lane_key(sale, lane, "seats"), rights];
        let args: Vec<Vec<u8>> = forfeits
            .iter()
            .flat_map(|forfeit| {
                let (jti, issued_at) = match &forfeit.which {
                    WhichRight::Id(jti) => (bytes(jti), Vec::new()),
                    WhichRight::GivenAt(issued_at) => (Vec::new(), bytes(issued_at.seconds())),
                };
                [forfeit.account.as_bytes().to_vec(), jti, issued_at]
            })
            .collect();
        self.link.run("forfeit", &FORFEIT, &keys, &args).await
    }

    async fn renew(&self, sale: &SaleId, lane: u16, renewal: &Renewal) -> Result<Option<Right>, StoreError> {
        let [rights, _] = self.right_keys(sale, lane);
        let keys = [self.lane_key(sale, lane, "seats"), rights];
        let args = [
            renewal.account.as_bytes().to_vec(),
            bytes(&renewal.jti),
            bytes(renewal.now.seconds()),
            bytes(renewal.expires_at.seconds()),
            bytes(renewal.seconds_max),
        ];
        let seat: Option<String> = self.link.run("renew", &RENEW, &keys, &args).await?;
        match seat.map(|text| parse_redeemed(&text)) {
            None => Ok(None),
            Some(Some(Redeemed::Admitted(right))) => Ok(Some(right)),
            Some(_) => Err(unreadable("renew", "not a right")),
        }
    }

    async fn spend(
        &self,
        sale: &SaleId,
        proof: Proof,
        account: AccountHash,
        now: Timestamp,
    ) -> Result<Spent, StoreError> {
        let key = self.link.key(&format!("{sale}:proof:{}", hex::encode(proof.id.0)));
        let command = proofs::redis_command(&key, proof, account, now);
        let user: Option<Vec<u8>> = self.link.command("spend", &command).await?;
        Ok(user.map_or(Spent::Counts, |user| proofs::spent(&user, account)))
    }

    async fn survey(&self, sale: &SaleId, read: &[LogsRead], now: Timestamp) -> Vec<Option<LaneReport>> {
        let calls: Vec<ScriptCall> =
            (0u16..).zip(read).map(|(lane, read)| self.survey_call(sale, lane, *read, now)).collect();
        // In a Cluster each lane may be on a server of its own, and one that is silent holds up no other.
        let together = if self.link.is_cluster() { 1 } else { calls.len().max(1) };
        let parts = calls.chunks(together).map(|calls| self.survey_lanes(calls));
        futures::future::join_all(parts).await.into_iter().flatten().collect()
    }

    async fn lease(
        &self,
        sale: &SaleId,
        holder: &str,
        lease_ms: u64,
        knows: u64,
    ) -> Result<Option<u64>, StoreError> {
        let [line, _] = self.line_keys(sale);
        let args = [holder.to_owned(), lease_ms.to_string(), knows.to_string()];
        let answer: Option<String> = self.link.run("lease", &LEASE, &[line], &args).await?;
        answer.map(|fence| fence.parse().map_err(|_| unreadable("lease", &fence))).transpose()
    }

    async fn record(&self, sale: &SaleId, rows_from: usize) -> Result<Recorded, StoreError> {
        let args = [rows_from.to_string(), ROWS_PER_CALL_MAX.to_string()];
        let answer: Vec<String> = self.link.run("record", &RECORD, &self.line_keys(sale), &args).await?;
        let [record, rows_total, rows_first, rows @ ..] = answer.as_slice() else {
            return Err(unreadable("record", "too short"));
        };
        let failed = |error: String| StoreError::untouched("record", error);
        Ok(Recorded {
            record: if record.is_empty() {
                AdmissionRecord::default()
            } else {
                serde_json::from_str(record).map_err(|error| failed(error.to_string()))?
            },
            rows_total: rows_total.parse().map_err(|_| unreadable("record", rows_total))?,
            rows_first: rows_first.parse().map_err(|_| unreadable("record", rows_first))?,
            rows: rows.iter().map(|row| row_from_text(row)).collect::<Result<_, _>>().map_err(failed)?,
        })
    }

    async fn advance(&self, sale: &SaleId, step: &Move) -> Result<Advanced, StoreError> {
        let record =
            serde_json::to_string(&step.record).map_err(|error| StoreError::untouched("advance", error))?;
        let mut args = vec![
            step.fence.to_string(),
            step.expected_version.to_string(),
            step.record.version.to_string(),
            record,
            step.rows_from.to_string(),
        ];
        args.extend(step.rows.iter().map(|row| row_to_text(row)));
        let answer: String = self.link.run("advance", &ADVANCE, &self.line_keys(sale), &args).await?;
        parse_advanced("advance", &answer)
    }

    async fn fold(&self, sale: &SaleId, fence: u64, rows_first: usize) -> Result<Advanced, StoreError> {
        let args = [fence.to_string(), rows_first.to_string()];
        let answer: String = self.link.run("fold", &FOLD, &self.line_keys(sale), &args).await?;
        parse_advanced("fold", &answer)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.link.ping().await
    }
}
