//! Random sequences of commands: every back end answers like the model, and the invariant holds after each step.

use lockgate_shared::{
    clock::Timestamp,
    events::Event,
    gate::{
        ClaimAnswer, CommitAnswer, ConcludeAnswer, ForfeitAnswer, FreezeAnswer, Hold, ReclaimAnswer,
        ReleaseAnswer, RestockAnswer, RestockRequest, StockSnapshot,
    },
    ids::{ClaimId, SaleId},
    store::Effect,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use uuid::Uuid;

use super::{
    Claim, Restocking,
    testbed::{
        Bench, account, check_invariant, claim, claim_id, freeze_order, item, rebuild, sale, token_id,
    },
};
use crate::{hold::Refusal, stock::Limits};

const CASES: u32 = 40;
const CLAIMS: u32 = 14;

#[derive(Clone, Debug)]
enum Command {
    Claim {
        id: u32,
        account: u32,
        item: usize,
        quantity: u32,
        hold_seconds: u64,
        refusal: Option<Refusal>,
        admitted_at: i64,
        token: u32,
    },
    Commit(u32),
    Release(u32),
    Reclaim(u32),
    Expire(usize),
    Forfeit(u32),
    Restock {
        id: u128,
        item: usize,
        change: i64,
    },
    Freeze,
    Rebuild,
    Hold(u32),
    Stock,
}

#[derive(Clone, Debug)]
struct Case {
    stock: [u32; 2],
    limits: Limits,
    commands: Vec<Command>,
}

#[derive(Debug, PartialEq)]
enum Answer {
    Claim(ClaimAnswer),
    Commit(CommitAnswer),
    Release(ReleaseAnswer),
    Reclaim(ReclaimAnswer),
    Expired(Vec<ClaimId>),
    Forfeit(ForfeitAnswer),
    Restock(RestockAnswer),
    Freeze(FreezeAnswer),
    Rebuild(ConcludeAnswer),
    Hold(Option<Hold>),
    Stock(StockSnapshot),
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let id = 0..CLAIMS;
    let refusal = prop_oneof![
        8 => Just(None),
        1 => Just(Some(Refusal::NotOpen)),
        1 => Just(Some(Refusal::Revoked)),
    ];
    let item = prop_oneof![5 => Just(0_usize), 4 => Just(1_usize), 1 => Just(2_usize)];
    let lasts = prop_oneof![Just(0_u64), Just(3_600)];
    let token = 0_u32..5;
    let claims = (id.clone(), 1_u32..5, item, 1_u32..4, lasts, refusal, 0_i64..2, token.clone());
    let command = prop_oneof![
        10 => claims.prop_map(|(id, account, item, quantity, hold_seconds, refusal, admitted_at, token)| {
            Command::Claim { id, account, item, quantity, hold_seconds, refusal, admitted_at, token }
        }),
        3 => id.clone().prop_map(Command::Commit),
        4 => id.clone().prop_map(Command::Release),
        4 => id.clone().prop_map(Command::Reclaim),
        3 => (1_usize..4).prop_map(Command::Expire),
        1 => token.prop_map(Command::Forfeit),
        2 => (0_u128..9, 0_usize..3, -4_i64..5).prop_map(|(id, item, change)| Command::Restock { id, item, change }),
        1 => Just(Command::Freeze),
        2 => Just(Command::Rebuild),
        1 => id.prop_map(Command::Hold),
        1 => Just(Command::Stock),
    ];
    // Now and then something is asked before the stock is there.
    (prop::collection::vec(command, 1..45), prop_oneof![4 => Just(0_usize), 1 => Just(2)]).prop_map(
        |(mut commands, open_at)| {
            commands.insert(open_at.min(commands.len()), Command::Rebuild);
            commands
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let limits =
        (1_u32..7, prop::option::of(1_u32..9), prop::option::of(1_u32..3), prop::option::of(1_u32..3))
            .prop_map(|(per_account, total, abandoned_holds, live_holds)| Limits {
                per_account,
                total,
                abandoned_holds,
                live_holds,
            });
    ([1_u32..7, 1_u32..7], limits, commands()).prop_map(|(stock, limits, commands)| Case {
        stock,
        limits,
        commands,
    })
}

async fn run(bench: &Bench, sale: &SaleId, case: &Case, command: &Command) -> Result<Answer, Effect> {
    let store = &bench.store;
    let answer = match command {
        Command::Claim {
            id,
            account: n,
            item: place,
            quantity,
            hold_seconds,
            refusal,
            admitted_at,
            token,
        } => {
            let mut made =
                Claim { hold_seconds: *hold_seconds, limits: case.limits, refusal: *refusal, ..claim(*id) };
            (made.request.account, made.request.quantity) = (account(*n), *quantity);
            (made.request.admitted_at, made.request.token_id) = (*admitted_at, token_id(*token));
            made.request.item = item(["phone", "case", "no-such"][*place]);
            store.claim(sale, &made).await.map(Answer::Claim)
        }
        Command::Commit(id) => store.commit(sale, claim_id(*id)).await.map(Answer::Commit),
        Command::Release(id) => store.release(sale, claim_id(*id)).await.map(Answer::Release),
        Command::Reclaim(id) => store.reclaim(sale, claim_id(*id), &case.limits).await.map(Answer::Reclaim),
        Command::Expire(max) => store.expire(sale, *max).await.map(Answer::Expired),
        Command::Forfeit(token) => store.forfeit(sale, &token_id(*token)).await.map(Answer::Forfeit),
        Command::Restock { id, item: place, change } => {
            let item = item(["phone", "case", "no-such"][*place]);
            let request = RestockRequest { id: Uuid::from_u128(*id), item, change: *change };
            let change =
                Restocking { request, is_defined: id % 4 == 3, total_limit: (id % 2 == 0).then_some(9) };
            store.restock(sale, &change).await.map(Answer::Restock)
        }
        Command::Freeze => store.freeze(sale, &freeze_order(77)).await.map(Answer::Freeze),
        Command::Rebuild => {
            let items = [(item("phone"), case.stock[0]), (item("case"), case.stock[1])];
            Ok(Answer::Rebuild(rebuild(&**store, sale, &items).await))
        }
        Command::Hold(id) => store.hold(sale, claim_id(*id)).await.map(Answer::Hold),
        Command::Stock => store.stock(sale, case.limits.total).await.map(Answer::Stock),
    };
    answer.map(without_times).map_err(|error| error.effect)
}

/// Back ends go by clocks of their own; how long a hold lasts is the same for all.
fn without_times(mut answer: Answer) -> Answer {
    let zero = |hold: &mut Hold| {
        hold.deadline = Timestamp::from_micros(hold.deadline.micros() - hold.claimed_at.micros());
        hold.claimed_at = Timestamp::default();
    };
    match &mut answer {
        Answer::Claim(ClaimAnswer::Held { hold, .. }) | Answer::Hold(Some(hold)) => zero(hold),
        Answer::Stock(snapshot) => snapshot.claimants.sort_unstable(),
        _ => {}
    }
    answer
}

fn event_without_times(event: Event) -> Event {
    Event {
        id: String::new(),
        deadline: Timestamp::from_micros(event.deadline.micros() - event.claimed_at.micros()),
        claimed_at: Timestamp::default(),
        ..event
    }
}

async fn history(bench: &Bench, sale: &SaleId) -> Vec<Event> {
    bench.events(sale).await.into_iter().map(event_without_times).collect()
}

async fn compare(model: &Bench, others: &[&Bench], sale: &SaleId, case: &Case) {
    let mut is_open = false;
    for (step, command) in case.commands.iter().enumerate() {
        let expected = run(model, sale, case, command).await;
        is_open |= matches!(command, Command::Rebuild);
        for other in others {
            let found = run(other, sale, case, command).await;
            assert_eq!(found, expected, "step {step}, {command:?}");
            if is_open && model.store.stock(sale, None).await.is_ok() {
                check_invariant(&*other.store, sale, (0..CLAIMS).map(claim_id)).await;
            }
        }
    }
    let expected = history(model, sale).await;
    for other in others {
        assert_eq!(history(other, sale).await, expected);
    }
}

#[test]
fn every_back_end_answers_like_the_model() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let benches =
        runtime.block_on(async { (Bench::model().await, Bench::sqlite().await, Bench::redis().await) });
    let (model, sqlite, redis) = benches;
    let number = std::cell::Cell::new(0);
    let config =
        Config { cases: CASES, max_shrink_iters: 400, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    runner
        .run(&cases(), |case| {
            number.set(number.get() + 1);
            let sale = sale(&format!("case-{}", number.get()));
            runtime.block_on(compare(&model, &[&sqlite, &redis], &sale, &case));
            Ok(())
        })
        .unwrap();
}
