//! Random sequences of commands, whose every answer is compared with the model's.

mod capped;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use proptest::prelude::*;

use super::{
    conformance::{account, at, proof, redemption, redis_store, sale, sqlite_store},
    *,
};
use crate::draw::Draw;

#[derive(Clone, Debug)]
enum Command {
    Enter { lane: u16, entries: Vec<AnyEntry>, view: LaneView, now: i64 },
    Allow { lane: u16, lines: Vec<(u8, u8)> },
    Redeem { lane: u16, turns: Vec<(u8, u64, u8, i64, u32)> },
    Leave { lane: u16, account: u8, seq: u64, forfeited: Option<u8> },
    Seat { lane: u16, account: u8 },
    Conclude { lane: u16, accounts: Vec<u8> },
    Forfeit { lane: u16, rights: Vec<(u8, Result<u8, i64>)> },
    Renew { lane: u16, account: u8, jti: u8, now: i64, to: i64 },
    Spend { proof: u8, account: u8 },
    Survey { read: Vec<(u64, u64)>, now: i64 },
    Lease { holder: u8, knows: u64 },
    Record { rows_from: usize },
    Fold { fence: u64, rows_first: usize },
    Advance { fence: u64, expected: u64, draw: Option<Vec<u64>>, rows_from: usize, rows: Vec<Vec<u64>> },
}

/// Account, ticket, missed seq, address to be listed with.
type AnyEntry = (u8, Option<u64>, Option<u64>, Option<u8>);

fn email(n: u8) -> EmailHash {
    EmailHash::from_bytes([n; 12])
}

fn any_command() -> impl Strategy<Value = Command> {
    let (lane, who, seq, now) = (0u16..2, 0u8..5, 0u64..8, prop_oneof![3 => 0i64..4, 2 => 0i64..150]);
    let entry = (
        who.clone(),
        prop::option::weighted(0.3, seq.clone()),
        prop::option::weighted(0.3, seq.clone()),
        prop::option::weighted(0.4, 0u8..2),
    );
    let lines = prop::collection::vec((who.clone(), 0u8..2), 0..4);
    let entries = prop::collection::vec(entry, 1..4);
    let view = (0u64..6, 0u64..4).prop_map(|(missed_below, numbered)| LaneView { missed_below, numbered });
    let turns = prop::collection::vec((who.clone(), seq.clone(), 0u8..9, now.clone(), 0u32..3), 0..4);
    let row = prop::collection::vec(0u64..9, 2);
    let (draw, rows) = (prop::option::of(row.clone()), prop::collection::vec(row, 0..3));
    prop_oneof![
        5 => (lane.clone(), entries, view, now.clone())
            .prop_map(|(lane, entries, view, now)| Command::Enter { lane, entries, view, now }),
        5 => (lane.clone(), turns).prop_map(|(lane, turns)| Command::Redeem { lane, turns }),
        3 => (lane.clone(), who.clone(), seq, prop::option::of(0u8..9))
            .prop_map(|(lane, account, seq, forfeited)| Command::Leave { lane, account, seq, forfeited }),
        2 => (lane.clone(), prop::collection::vec(who.clone(), 0..4))
            .prop_map(|(lane, accounts)| Command::Conclude { lane, accounts }),
        3 => (lane.clone(), who.clone(), 0u8..9, now.clone(), 0i64..300)
            .prop_map(|(lane, account, jti, now, to)| Command::Renew { lane, account, jti, now, to }),
        3 => (lane.clone(), prop::collection::vec((who.clone(), prop::result::maybe_ok(0u8..9, now.clone())), 0..6))
            .prop_map(|(lane, rights)| Command::Forfeit { lane, rights }),
        2 => (lane.clone(), lines).prop_map(|(lane, lines)| Command::Allow { lane, lines }),
        2 => (0u8..4, who.clone()).prop_map(|(proof, account)| Command::Spend { proof, account }),
        2 => (lane, who).prop_map(|(lane, account)| Command::Seat { lane, account }),
        3 => (prop::collection::vec((0u64..5, 0u64..5), 2), now)
            .prop_map(|(read, now)| Command::Survey { read, now }),
        1 => (0u8..2, 0u64..3).prop_map(|(holder, knows)| Command::Lease { holder, knows }),
        2 => (0usize..4).prop_map(|rows_from| Command::Record { rows_from }),
        1 => (0u64..3, 0usize..6).prop_map(|(fence, rows_first)| Command::Fold { fence, rows_first }),
        3 => (0u64..3, 0u64..4, draw, 0usize..5, rows).prop_map(|(fence, expected, draw, rows_from, rows)| {
            Command::Advance { fence, expected, draw, rows_from, rows }
        }),
    ]
}

fn entry((n, ticket_seq, missed_seq, address): &AnyEntry) -> Entry {
    Entry {
        account: account(*n),
        ticket_seq: *ticket_seq,
        missed_seq: *missed_seq,
        listed_as: address.map(email),
    }
}

/// Runs one command and writes its answer down.
async fn answer(store: &dyn Store, sale: &SaleId, command: &Command) -> String {
    match command {
        Command::Enter { lane, entries, view, now } => {
            let entries: Vec<Entry> = entries.iter().map(entry).collect();
            format!("{:?}", store.enter(sale, *lane, &entries, *view, at(*now)).await.unwrap())
        }
        Command::Redeem { lane, turns } => {
            let turns: Vec<Redemption> = turns
                .iter()
                .map(|(account, seq, jti, now, epoch)| {
                    redemption(*account, *seq, &format!("j{jti}"), *now, *epoch)
                })
                .collect();
            format!("{:?}", store.redeem(sale, *lane, &turns).await.unwrap())
        }
        Command::Fold { fence, rows_first } => {
            format!("{:?}", store.fold(sale, *fence, *rows_first).await.unwrap())
        }
        Command::Leave { lane, account: n, seq, forfeited } => {
            let jti = forfeited.map(|jti| format!("j{jti}"));
            format!("{:?}", store.leave(sale, *lane, account(*n), *seq, jti.as_deref()).await.unwrap())
        }
        Command::Seat { lane, account: n } => {
            format!("{:?}", store.seat(sale, *lane, account(*n)).await.unwrap())
        }
        Command::Conclude { lane, accounts } => {
            let accounts: Vec<AccountHash> = accounts.iter().map(|n| account(*n)).collect();
            format!("{:?}", store.conclude(sale, *lane, &accounts).await.unwrap())
        }
        Command::Forfeit { lane, rights } => {
            let forfeits: Vec<Forfeit> = rights
                .iter()
                .map(|(n, which)| {
                    let by_id = |jti: &u8| WhichRight::Id(format!("j{jti}"));
                    let which = which.as_ref().map_or_else(|at_s| WhichRight::GivenAt(at(*at_s)), by_id);
                    Forfeit { account: account(*n), which }
                })
                .collect();
            format!("{:?}", store.forfeit(sale, *lane, &forfeits).await.unwrap())
        }
        Command::Spend { proof: n, account: who } => {
            format!("{:?}", store.spend(sale, proof(*n), account(*who), at(0)).await.unwrap())
        }
        Command::Survey { read, now } => {
            let read: Vec<LogsRead> =
                read.iter().map(|(left, redeemed)| LogsRead { left: *left, redeemed: *redeemed }).collect();
            format!("{:?}", store.survey(sale, &read, at(*now)).await)
        }
        Command::Lease { holder, knows } => {
            format!("{:?}", store.lease(sale, &format!("h{holder}"), 3_600_000, *knows).await.unwrap())
        }
        Command::Record { rows_from } => format!("{:?}", store.record(sale, *rows_from).await.unwrap()),
        Command::Advance { fence, expected, draw, rows_from, rows } => {
            let version = expected + 1;
            let draw = draw.clone().map(|pools| Draw { pools, frozen_at: at(0), drawn: None });
            let record =
                AdmissionRecord { version, now_serving: version, draw, ..AdmissionRecord::default() };
            let (fence, expected_version, rows_from) = (*fence, *expected, *rows_from);
            let step = Move { fence, expected_version, rows_from, record, rows: rows.clone() };
            format!("{:?}", store.advance(sale, &step).await.unwrap())
        }
        other => answer_about_accounts(store, sale, other).await,
    }
}

/// The same for the verbs that act on what accounts hold.
async fn answer_about_accounts(store: &dyn Store, sale: &SaleId, command: &Command) -> String {
    match command {
        Command::Renew { lane, account: n, jti, now, to } => {
            let (jti, seconds_max) = (format!("j{jti}"), 90);
            let renewal =
                Renewal { account: account(*n), jti, now: at(*now), expires_at: at(*to), seconds_max };
            format!("{:?}", store.renew(sale, *lane, &renewal).await.unwrap())
        }
        Command::Allow { lane, lines } => {
            let lines: Vec<Listed> = lines
                .iter()
                .map(|(n, address)| Listed { account: account(*n), email: email(*address) })
                .collect();
            format!("{:?}", store.allow(sale, *lane, &lines).await.unwrap())
        }
        other => panic!("{other:?}"),
    }
}

/// Runs random sequences against `store` and the model, each in a sale of its own.
fn answers_like_the_model(runtime: &tokio::runtime::Runtime, store: &Arc<dyn Store>) {
    let case = AtomicU32::new(0);
    let config = ProptestConfig { cases: 48, ..ProptestConfig::default() };
    proptest!(config, |(commands in prop::collection::vec(any_command(), 1..40))| {
        let sale = sale(&format!("case-{}", case.fetch_add(1, Ordering::SeqCst)));
        let model = Model::default();
        runtime.block_on(async {
            for (index, command) in commands.iter().enumerate() {
                let expected = answer(&model, &sale, command).await;
                let given = answer(store.as_ref(), &sale, command).await;
                prop_assert_eq!(given, expected, "command {}: {:?}", index, command);
            }
            Ok(())
        })?;
    });
}

#[test]
fn sqlite_answers_like_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, _dir) = sqlite_store();
    answers_like_the_model(&runtime, &(Arc::new(store) as Arc<dyn Store>));
}

#[test]
fn redis_answers_like_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (store, _server) = runtime.block_on(redis_store());
    answers_like_the_model(&runtime, &(Arc::new(store) as Arc<dyn Store>));
}
