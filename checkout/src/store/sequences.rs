//! Random command sequences: SQLite and PostgreSQL must answer like the model, every time.

use lockgate_shared::{
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
    testing::PrivatePostgres,
};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};

use super::{
    conformance::{claim, notice, now, order_id, payment_id, postgres, price, sale, sqlite, terms},
    model::ModelStore,
    *,
};
use crate::{
    order::Placement,
    payment::{Money, Outcome},
};

/// Sequences compared with each store.
const SEQUENCES: usize = 40;

#[derive(Clone, Debug)]
enum Command {
    Place(Vec<(u8, u8)>),
    Decide(u8, OrderEvent),
    Notify(u8, Notice),
    Bury(u8, u8),
    Clear(u8),
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Paid(price())),
        1 => Just(Outcome::Paid(Money { amount: 1, currency: "EUR".into() })),
        1 => Just(Outcome::Failed),
        2 => Just(Outcome::Unpayable),
        1 => Just(Outcome::RefundFailed),
    ]
}

fn any_event() -> impl Strategy<Value = OrderEvent> {
    prop_oneof![
        4 => (1_u8..6).prop_map(|n| OrderEvent::Pay { payment: payment_id(n), terms: terms(n) }),
        1 => (1_u8..6).prop_map(|n| OrderEvent::NotStarted { payment: payment_id(n) }),
        2 => (1_u8..6).prop_map(|n| OrderEvent::Started { payment: payment_id(n), redirect_url: format!("u{n}"), reference: (n % 2 == 0).then(|| format!("r{n}")) }),
        1 => Just(OrderEvent::Expire),
        1 => Just(OrderEvent::Cancel),
        2 => Just(OrderEvent::Commit(CommitAnswer::Committed)),
        1 => Just(OrderEvent::Commit(CommitAnswer::Released)),
        2 => Just(OrderEvent::Release(ReleaseAnswer::Released)),
        3 => prop::collection::btree_set(1_u32..6, 1..3)
            .prop_map(|units| OrderEvent::Reclaim(ReclaimAnswer::Reclaimed { units: units.into_iter().collect() })),
        1 => Just(OrderEvent::Reclaim(ReclaimAnswer::SoldOut)),
        1 => Just(OrderEvent::Refund { why: "a test".into() }),
        1 => (1_u8..6).prop_map(|n| OrderEvent::Refunded { payment: payment_id(n) }),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => prop::collection::vec((0_u8..5, 1_u8..5), 1..4).prop_map(Command::Place),
        6 => (1_u8..5, any_event()).prop_map(|(n, event)| Command::Decide(n, event)),
        4 => (0_u8..6, 1_u8..6, prop::option::of(1_u8..5), any_outcome())
            .prop_map(|(event, payment, order, outcome)| Command::Notify(event, notice(payment, order, outcome))),
        1 => (0_u8..4, 0_u8..3).prop_map(|(event, late)| Command::Bury(event, late)),
        1 => (0_u8..4).prop_map(Command::Clear),
    ]
}

/// Orders 1 and 2 want the same unit, as do 3 and 4, so that live owners collide.
fn intake(kind: u8, n: u8) -> Intake {
    let claim = claim(n, if n <= 2 { &[1, 2] } else { &[3] });
    match kind {
        0 | 3 => Intake::Claimed(claim),
        1 => Intake::Expiring(claim),
        4 => Intake::Committed(Placement { units: vec![4, 5], ..claim }),
        _ => Intake::Released(claim),
    }
}

/// Payment ids are random in life: an attempt's id never belongs to two orders, so a command that would make it so
/// is left out.
async fn is_fair(model: &ModelStore, command: &Command) -> bool {
    let Command::Decide(n, OrderEvent::Pay { payment, .. }) = command else {
        return true;
    };
    model.order_of(*payment).await.unwrap().is_none_or(|owner| owner == order_id(*n))
}

async fn run(store: &dyn Store, command: &Command) -> String {
    match command {
        Command::Place(batch) => {
            let batch: Vec<Intake> = batch.iter().map(|(kind, n)| intake(*kind, *n)).collect();
            format!("{:?}", store.place(&sale(), &batch, &[], now()).await)
        }
        Command::Decide(n, event) => format!("{:?}", store.decide(order_id(*n), event, now()).await),
        Command::Notify(event, notice) => {
            format!("{:?}", store.notify("g", &format!("e{event}"), notice, now()).await)
        }
        Command::Bury(event, late) => {
            let letter = DeadLetter {
                event: format!("{event}-0"),
                problem: format!("problem {late}"),
                record: "{}".into(),
                found_at: now().plus_seconds((*late).into()),
            };
            format!("{:?}", store.place(&sale(), &[], &[letter], now()).await)
        }
        Command::Clear(event) => format!("{:?}", store.clear(&sale(), &format!("{event}-0")).await),
    }
}

fn found_by() -> office::Search {
    office::Search {
        state: Some(OrderState::Paid),
        email: Some("2@EXAMPLE.org".into()),
        ..Default::default()
    }
}

async fn state(store: &dyn Store) -> String {
    let mut text = String::new();
    for n in 1..5 {
        text += &format!("{:?}\n", store.order(order_id(n)).await);
    }
    for n in 1..6 {
        text += &format!("{:?}\n", store.order_of(payment_id(n)).await);
    }
    // Numbers are each store's own, and so is the order of what one step found.
    let mut anomalies = Vec::new();
    for anomaly in store.anomalies(&sale(), None).await.unwrap() {
        anomalies.push(format!("{:?}", AnomalyRecord { number: 0, ..anomaly }));
    }
    anomalies.sort_unstable();
    text += &format!("{anomalies:?}\n");
    // Of one order's changes the sequence is the same everywhere; a batch's orders are written in any.
    let mut changes = store.changes(&sale(), 0, 1_000).await.unwrap().changes;
    changes.sort_by_key(|change| change.order.id);
    for change in changes {
        text += &format!("{} {:?} {:?} {}\n", change.order.id, change.state, change.units, change.at);
    }
    text += &format!("{:?}\n", store.find(&sale(), &found_by(), None, 10).await);
    text + &format!(
        "{:?}\n{:?}\n{:?}\n{:?}",
        store.dead_letters(&sale()).await,
        store.unsettled(None, now().plus_seconds(10_000)).await,
        store.orders(&sale(), Some(order_id(1))).await,
        store.books(&sale()).await
    )
}

async fn compare(store: &dyn Store, commands: &[Command]) {
    let model = ModelStore::default();
    for (place, command) in commands.iter().enumerate() {
        if !is_fair(&model, command).await {
            continue;
        }
        let (expected, found) = (run(&model, command).await, run(store, command).await);
        assert_eq!(expected, found, "command {place} of {commands:#?}");
        let (expected, found) = (state(&model).await, state(store).await);
        assert_eq!(expected, found, "the state after command {place} of {commands:#?}");
    }
}

fn sequences() -> Vec<Vec<Command>> {
    let mut runner = TestRunner::new(Config::default());
    let strategy = prop::collection::vec(any_command(), 1..30);
    (0..SEQUENCES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

#[tokio::test]
async fn sqlite_answers_like_the_model() {
    for commands in sequences() {
        let dir = tempfile::tempdir().unwrap();
        compare(&sqlite(&dir), &commands).await;
    }
}

#[tokio::test]
async fn postgres_answers_like_the_model() {
    let server = PrivatePostgres::start().await;
    for (n, commands) in sequences().iter().enumerate() {
        compare(&postgres(&server, &format!("s{n}")).await, commands).await;
    }
}
