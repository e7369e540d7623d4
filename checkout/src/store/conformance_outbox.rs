//! One outbox for every store: the same scenarios on the model, SQLite and PostgreSQL, and random sequences.

use std::sync::Arc;

use lockgate_shared::{gate::ReclaimAnswer, testing::PrivatePostgres};
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};

use super::{
    conformance::{claim, notice, now, order_id, payment_id, postgres, price, sale, sqlite},
    model::ModelStore,
    *,
};
use crate::{
    outbox::{Channel, MessageId, MessageKind, Wants},
    payment::Outcome,
};

/// Sequences compared with each store.
const SEQUENCES: usize = 25;
const LEASE_SECONDS: u64 = 60;

fn at(seconds: u64) -> Timestamp {
    now().plus_seconds(seconds)
}

async fn claimed(store: &dyn Store, n: u8) {
    let batch = [Intake::Claimed(claim(n, &[n.into()]))];
    store.place(&sale(), &batch, &[], now()).await.unwrap();
}

async fn paid(store: &dyn Store, n: u8, payment: u8, when: Timestamp) {
    let news = notice(payment, Some(n), Outcome::Paid(price()));
    store.notify("g", &format!("e{payment}"), &news, when).await.unwrap();
}

/// Nothing is left for whoever paid late.
async fn sold_out(store: &dyn Store, n: u8, at: Timestamp) {
    let refused = OrderEvent::Reclaim(ReclaimAnswer::SoldOut);
    store.decide(order_id(n), &refused, at).await.unwrap();
}

async fn refunded(store: &dyn Store, n: u8, payment: u8, when: Timestamp) {
    let event = OrderEvent::Refunded { payment: payment_id(payment) };
    store.decide(order_id(n), &event, when).await.unwrap();
}

async fn lease(store: &dyn Store, channel: Channel, when: Timestamp) -> Vec<Leased> {
    store.lease_messages(channel, 10, when, when.plus_seconds(LEASE_SECONDS)).await.unwrap()
}

fn ids(leased: &[Leased]) -> Vec<(ClaimId, u32, MessageKind)> {
    leased.iter().map(|l| (l.message.id.order, l.message.id.number, l.message.kind)).collect()
}

async fn record(store: &dyn Store, leased: &Leased, attempt: Attempt, when: Timestamp) -> bool {
    store.record_attempt(leased.message.id, leased.lease, &attempt, when).await.unwrap()
}

fn later(at: Timestamp) -> Attempt {
    Attempt::Later { at, problem: "451 not now".into() }
}

fn dead() -> Attempt {
    Attempt::Dead { problem: "550 no such mailbox\0".into() }
}

async fn m2_one_transition_leaves_one_mail_and_one_webhook_on_every_path(store: &dyn Store) {
    // By notification, by decision, and by a notification that waited for its order, each told again and again.
    claimed(store, 2).await;
    paid(store, 2, 7, now()).await;
    paid(store, 2, 7, now()).await;
    claimed(store, 4).await;
    for _ in 0..2 {
        let news = OrderEvent::Notified(notice(8, None, Outcome::Paid(price())));
        store.decide(order_id(4), &news, now()).await.unwrap();
    }
    paid(store, 6, 9, now()).await;
    claimed(store, 6).await;
    claimed(store, 6).await;
    for channel in Channel::ALL {
        let leased = lease(store, *channel, now()).await;
        assert_eq!(leased.len(), 3, "{channel:?}: {leased:?}");
        for (leased, n) in leased.iter().zip([2, 4, 6]) {
            let Leased { message, lease: 1, attempts: 1 } = leased else { panic!("{leased:?}") };
            assert_eq!((message.id.order, message.kind), (order_id(n), MessageKind::Paid));
            assert_eq!(message.created_at, now());
            assert_eq!(message.content.email.as_deref(), Some(&*format!("{n}@example.org")));
            assert_eq!(message.content.language.is_some(), n == 4);
            assert_eq!((&message.content.units, &message.content.price), (&vec![n.into()], &price()));
        }
    }
    let numbers = async |channel| lease(store, channel, at(LEASE_SECONDS)).await[0].message.id.number;
    assert_eq!((numbers(Channel::Mail).await, numbers(Channel::Webhook).await), (1, 2));
}

async fn the_next_message_of_an_order_waits_for_the_one_before_it(store: &dyn Store) {
    claimed(store, 2).await;
    store.decide(order_id(2), &OrderEvent::Expire, now()).await.unwrap();
    paid(store, 2, 7, at(1)).await;
    sold_out(store, 2, at(1)).await;
    refunded(store, 2, 7, at(2)).await;
    claimed(store, 4).await;
    paid(store, 4, 8, at(3)).await;
    let first = lease(store, Channel::Webhook, at(10)).await;
    assert_eq!(
        ids(&first),
        [(order_id(2), 2, MessageKind::Expired), (order_id(4), 2, MessageKind::Paid)],
        "the first of each order"
    );
    assert!(record(store, &first[0], later(at(20)), at(10)).await);
    assert!(record(store, &first[1], Attempt::Delivered, at(10)).await);
    assert_eq!(ids(&lease(store, Channel::Webhook, at(19)).await), [], "nothing overtakes what failed");
    let again = lease(store, Channel::Webhook, at(20)).await;
    assert_eq!(ids(&again), [(order_id(2), 2, MessageKind::Expired)]);
    assert_eq!((again[0].lease, again[0].attempts), (2, 2));
    assert!(record(store, &again[0], dead(), at(20)).await);
    let next = lease(store, Channel::Webhook, at(20)).await;
    assert_eq!(ids(&next), [(order_id(2), 4, MessageKind::RefundDue)], "a dead one holds nobody up");
    record(store, &next[0], Attempt::Delivered, at(21)).await;
    let last = lease(store, Channel::Webhook, at(21)).await;
    assert_eq!(ids(&last), [(order_id(2), 5, MessageKind::Refunded)]);
    assert_eq!(last[0].message.content.money, Some(price()));
    // All the while the other channel goes its own way.
    assert_eq!(lease(store, Channel::Mail, at(21)).await.len(), 2);
}

async fn m10_the_messages_of_a_sender_that_was_killed_come_again_and_an_old_lease_is_not_believed(
    store: &dyn Store,
) {
    claimed(store, 2).await;
    paid(store, 2, 7, now()).await;
    let mine = lease(store, Channel::Mail, now()).await;
    assert_eq!(lease(store, Channel::Mail, at(LEASE_SECONDS - 1)).await, []);
    let theirs = lease(store, Channel::Mail, at(LEASE_SECONDS)).await;
    assert_eq!(theirs[0].message, mine[0].message, "the same id, so that a repetition is recognised");
    assert_eq!((theirs[0].lease, theirs[0].attempts), (2, 2));
    assert!(!record(store, &mine[0], dead(), at(61)).await, "an old lease");
    assert!(!record(store, &mine[0], later(at(1_000)), at(61)).await);
    assert!(record(store, &mine[0], Attempt::Delivered, at(61)).await, "what arrived has arrived");
    assert!(!record(store, &theirs[0], later(at(1_000)), at(62)).await, "and stays delivered");
    assert!(!record(store, &theirs[0], Attempt::Delivered, at(62)).await);
    assert_eq!(lease(store, Channel::Mail, at(10_000)).await, []);
}

async fn leases_are_bounded_and_the_longest_due_come_first(store: &dyn Store) {
    for n in [2, 4, 6] {
        claimed(store, n).await;
        paid(store, n, n, at(10 - u64::from(n))).await;
    }
    let take = async |most| store.lease_messages(Channel::Mail, most, at(20), at(80)).await.unwrap();
    assert_eq!(ids(&take(2).await).iter().map(|id| id.0).collect::<Vec<_>>(), [6, 4].map(order_id));
    assert_eq!(take(0).await, []);
    assert_eq!(take(usize::MAX).await.len(), 1);
}

async fn m11_dead_messages_are_listed_and_come_back(store: &dyn Store) {
    for n in [2, 4] {
        claimed(store, n).await;
        paid(store, n, n, at(n.into())).await;
    }
    let leased = lease(store, Channel::Mail, at(10)).await;
    record(store, &leased[0], dead(), at(12)).await;
    record(store, &leased[1], dead(), at(11)).await;
    let listed = store.dead_messages().await.unwrap();
    assert_eq!(listed.iter().map(|dead| dead.id.order).collect::<Vec<_>>(), [4, 2].map(order_id));
    assert_eq!((listed[0].attempts, listed[0].died_at), (1, at(11)));
    assert!(listed[0].problem.starts_with("550 no such mailbox"), "{}", listed[0].problem);
    let figures = store.outbox_figures().await.unwrap();
    assert_eq!(figures[&Channel::Mail], ChannelFigures { waiting: 0, oldest_at: None, dead: 2 });
    assert_eq!(figures[&Channel::Webhook], ChannelFigures { waiting: 2, oldest_at: Some(at(2)), dead: 0 });
    let unknown = MessageId { order: order_id(9), number: 1 };
    assert_eq!(store.retry_messages(Some(unknown), at(20)).await.unwrap(), 0);
    assert_eq!(store.retry_messages(Some(listed[1].id), at(20)).await.unwrap(), 1);
    let again = lease(store, Channel::Mail, at(20)).await;
    assert_eq!((again[0].message.id, again[0].attempts, again[0].lease), (listed[1].id, 1, 2));
    assert_eq!(store.retry_messages(None, at(20)).await.unwrap(), 1);
    assert_eq!(store.retry_messages(None, at(20)).await.unwrap(), 0);
    assert_eq!(store.dead_messages().await.unwrap(), []);
}

/// What another release wrote, or somebody broke, keeps nothing else.
async fn what_cannot_be_read_is_put_aside(store: &dyn Store, spoil: impl AsyncFn(&str)) {
    for n in [2, 4, 6] {
        claimed(store, n).await;
        paid(store, n, n, now()).await;
    }
    spoil(
        "UPDATE outbox SET kind = 'order.beamed' WHERE channel = 'mail' AND content LIKE '%2@example.org%'",
    )
    .await;
    let broken = r#"{"sale": 7, "email": "4@example.org"}"#;
    spoil(&format!(
        "UPDATE outbox SET content = '{broken}' WHERE channel = 'mail' AND content LIKE '%4@example.org%'"
    ))
    .await;
    assert_eq!(ids(&lease(store, Channel::Mail, at(1)).await), [(order_id(6), 1, MessageKind::Paid)]);
    let dead = store.dead_messages().await.unwrap();
    let listed: Vec<_> = dead.iter().map(|dead| (dead.id.order, dead.kind.as_str(), dead.attempts)).collect();
    assert_eq!(listed, [(order_id(2), "order.beamed", 1), (order_id(4), "order.paid", 1)]);
    assert!(dead[0].problem.contains("order.beamed") && !dead[1].problem.contains("4@"), "{dead:?}");
    let figures = store.outbox_figures().await.unwrap()[&Channel::Mail];
    assert_eq!((figures.waiting, figures.dead), (1, 2));
    assert_eq!(lease(store, Channel::Webhook, at(1)).await.len(), 3, "the other channel is as it was");
    // A release that can read them has them back; this one puts them aside again.
    assert_eq!(store.retry_messages(None, at(2)).await.unwrap(), 2);
    assert_eq!(lease(store, Channel::Mail, at(2)).await, []);
    assert_eq!(store.dead_messages().await.unwrap().len(), 2);
}

#[tokio::test]
async fn l9_what_cannot_be_read_is_put_aside_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let spoil = async |sql: &str| {
        let db = rusqlite::Connection::open(dir.path().join("o.db")).unwrap();
        assert_eq!(db.execute(sql, []).unwrap(), 1);
    };
    what_cannot_be_read_is_put_aside(&sqlite(&dir).telling(Wants::ALL), spoil).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_what_cannot_be_read_is_put_aside_on_postgres() {
    let server = PrivatePostgres::start().await;
    let store = postgres(&server, "aside").await.telling(Wants::ALL);
    let (client, connection) = tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute("SET search_path = aside").await.unwrap();
    let spoil = async |sql: &str| assert_eq!(client.execute(sql, &[]).await.unwrap(), 1);
    what_cannot_be_read_is_put_aside(&store, spoil).await;
    driver.abort();
}

async fn delivered_messages_are_trimmed_and_their_numbers_never_used_again(store: &dyn Store) {
    claimed(store, 2).await;
    store.decide(order_id(2), &OrderEvent::Expire, now()).await.unwrap();
    let leased = lease(store, Channel::Mail, at(1)).await;
    record(store, &leased[0], Attempt::Delivered, at(5)).await;
    let hook = lease(store, Channel::Webhook, at(1)).await;
    record(store, &hook[0], dead(), at(5)).await;
    assert_eq!(store.trim_messages(at(5), at(5)).await.unwrap(), 0);
    assert_eq!(store.trim_messages(at(6), at(5)).await.unwrap(), 1);
    assert_eq!(store.trim_messages(at(6), at(6)).await.unwrap(), 1);
    paid(store, 2, 7, at(9)).await;
    sold_out(store, 2, at(9)).await;
    let leased = lease(store, Channel::Mail, at(9)).await;
    assert_eq!(ids(&leased), [(order_id(2), 3, MessageKind::RefundDue)]);
    assert_eq!(store.trim_messages(at(99), at(99)).await.unwrap(), 0, "what waits is kept");
}

async fn at_once_no_message_is_leased_twice(store: &Arc<dyn Store>) {
    for n in 1..=40_u8 {
        claimed(&**store, n).await;
        paid(&**store, n, n, now()).await;
    }
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(
                async move { store.lease_messages(Channel::Webhook, 9, at(1), at(99)).await.unwrap() },
            )
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(ids(&task.await.unwrap()));
    }
    all.extend(ids(&store.lease_messages(Channel::Webhook, 40, at(1), at(99)).await.unwrap()));
    let count = all.len();
    all.sort_unstable_by_key(|id| id.0);
    all.dedup();
    assert_eq!((count, all.len()), (40, 40));
}

#[tokio::test]
async fn nothing_is_written_for_a_channel_that_is_not_set_up() {
    let (off, mails) = (ModelStore::default(), ModelStore::telling(Wants { mail: true, webhook: false }));
    let dir = tempfile::tempdir().unwrap();
    let on_disk = sqlite(&dir);
    for store in [&off as &dyn Store, &mails, &on_disk] {
        claimed(store, 2).await;
        paid(store, 2, 7, now()).await;
    }
    assert!(off.outbox_figures().await.unwrap().is_empty());
    assert!(on_disk.outbox_figures().await.unwrap().is_empty());
    assert_eq!(mails.outbox_figures().await.unwrap().into_keys().collect::<Vec<_>>(), [Channel::Mail]);
}

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        mod on_the_model {
            use super::*;
            $(#[tokio::test] async fn $name() { super::$name(&ModelStore::telling(Wants::ALL)).await; })+
        }
        mod on_sqlite {
            use super::*;
            $(#[tokio::test] async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&sqlite(&dir).telling(Wants::ALL)).await;
            })+
        }
        #[tokio::test(flavor = "multi_thread")]
        async fn every_outbox_scenario_on_postgres() {
            let server = PrivatePostgres::start().await;
            $(
                println!("{}", stringify!($name));
                let schema = &stringify!($name)[..stringify!($name).len().min(40)];
                $name(&postgres(&server, schema).await.telling(Wants::ALL)).await;
            )+
            let store: Arc<dyn Store> = Arc::new(postgres(&server, "at_once").await.telling(Wants::ALL));
            at_once_no_message_is_leased_twice(&store).await;
            for (n, commands) in sequences().iter().enumerate() {
                compare(&postgres(&server, &format!("s{n}")).await.telling(Wants::ALL), commands).await;
            }
        }
        #[tokio::test]
        async fn every_outbox_scenario_behind_a_circuit() {
            $(super::conformance_outbox::$name(&Guarded::new(Arc::new(ModelStore::telling(Wants::ALL)))).await;)+
        }
    };
}

scenarios!(
    m2_one_transition_leaves_one_mail_and_one_webhook_on_every_path,
    the_next_message_of_an_order_waits_for_the_one_before_it,
    m10_the_messages_of_a_sender_that_was_killed_come_again_and_an_old_lease_is_not_believed,
    leases_are_bounded_and_the_longest_due_come_first,
    m11_dead_messages_are_listed_and_come_back,
    delivered_messages_are_trimmed_and_their_numbers_never_used_again,
);

#[tokio::test(flavor = "multi_thread")]
async fn at_once_no_message_is_leased_twice_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(sqlite(&dir).telling(Wants::ALL));
    at_once_no_message_is_leased_twice(&store).await;
}

#[derive(Clone, Debug)]
enum Command {
    Place(Vec<(u8, u8)>),
    Notify(u8, u8, Outcome),
    Decide(u8, OrderEvent),
    Lease(Channel, usize),
    Record(u8, Attempt),
    Retry,
    Trim,
    Pass(u64),
}

fn any_command() -> impl Strategy<Value = Command> {
    let outcome = prop_oneof![3 => Just(Outcome::Paid(price())), 1 => Just(Outcome::Failed)];
    let event = prop_oneof![
        Just(OrderEvent::Expire),
        Just(OrderEvent::Cancel),
        (1_u8..5).prop_map(|n| OrderEvent::Refunded { payment: payment_id(n) }),
        (1_u8..5).prop_map(|n| OrderEvent::Notified(notice(n, None, Outcome::Paid(price())))),
    ];
    let attempt = prop_oneof![
        2 => Just(Attempt::Delivered),
        2 => (0_u64..50).prop_map(|seconds| later(at(seconds))),
        1 => Just(Attempt::Dead { problem: "550".into() }),
    ];
    let channel = prop_oneof![Just(Channel::Mail), Just(Channel::Webhook)];
    prop_oneof![
        4 => prop::collection::vec((0_u8..3, 1_u8..5), 1..5).prop_map(Command::Place),
        4 => (1_u8..5, 1_u8..5, outcome).prop_map(|(n, payment, outcome)| Command::Notify(n, payment, outcome)),
        4 => (1_u8..5, event).prop_map(|(n, event)| Command::Decide(n, event)),
        6 => (channel, 1_usize..4).prop_map(|(channel, most)| Command::Lease(channel, most)),
        6 => (0_u8..4, attempt).prop_map(|(which, attempt)| Command::Record(which, attempt)),
        1 => Just(Command::Retry),
        1 => Just(Command::Trim),
        3 => (1_u64..80).prop_map(Command::Pass),
    ]
}

fn sequences() -> Vec<Vec<Command>> {
    let mut runner = TestRunner::new(Config::default());
    let strategy = prop::collection::vec(any_command(), 1..50);
    (0..SEQUENCES).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// A store, the time there, and what was leased from it last.
struct Play<'a> {
    store: &'a dyn Store,
    passed: u64,
    leased: Vec<Leased>,
}

impl Play<'_> {
    async fn run(&mut self, command: &Command) -> String {
        let (store, now) = (self.store, at(self.passed));
        match command {
            Command::Place(batch) => {
                let made = |(kind, n): &(u8, u8)| {
                    let claim = claim(*n, &[(*n).into()]);
                    match kind {
                        0 => Intake::Claimed(claim),
                        1 => Intake::Expiring(claim),
                        _ => Intake::Released(claim),
                    }
                };
                let batch: Vec<Intake> = batch.iter().map(made).collect();
                format!("{:?}", store.place(&sale(), &batch, &[], now).await)
            }
            Command::Notify(n, payment, outcome) => {
                // An attempt's id never belongs to two orders, and an event's id names one notice.
                let (own, event) = (payment % 4 + 1, format!("{n}{payment}{outcome:?}"));
                format!(
                    "{:?}",
                    store.notify("g", &event, &notice(*payment, Some(own), outcome.clone()), now).await
                )
            }
            Command::Decide(n, OrderEvent::Notified(news)) => {
                let own = order_id(news.payment.uuid().as_bytes()[0] % 4 + 1);
                let _ = n;
                format!("{:?}", store.decide(own, &OrderEvent::Notified(news.clone()), now).await)
            }
            Command::Decide(n, event) => format!("{:?}", store.decide(order_id(*n), event, now).await),
            Command::Lease(channel, most) => {
                let found = store.lease_messages(*channel, *most, now, now.plus_seconds(LEASE_SECONDS)).await;
                let text = format!("{found:?}");
                self.leased.extend(found.unwrap());
                text
            }
            Command::Record(which, attempt) => {
                let Some(leased) = self.leased.iter().rev().nth((*which).into()) else {
                    return String::new();
                };
                let (id, lease) = (leased.message.id, leased.lease);
                format!("{:?}", store.record_attempt(id, lease, attempt, now).await)
            }
            Command::Retry => format!("{:?}", store.retry_messages(None, now).await),
            Command::Trim => format!("{:?}", store.trim_messages(now, now).await),
            Command::Pass(seconds) => {
                self.passed += seconds;
                String::new()
            }
        }
    }
}

async fn compare(store: &dyn Store, commands: &[Command]) {
    let model = ModelStore::telling(Wants::ALL);
    let play = |store| Play { store, passed: 0, leased: Vec::new() };
    let (mut expecting, mut playing) = (play(&model), play(store));
    for (place, command) in commands.iter().enumerate() {
        let (expected, found) = (expecting.run(command).await, playing.run(command).await);
        assert_eq!(found, expected, "command {place} of {commands:#?}");
        let state = async |store: &dyn Store| {
            format!("{:?}\n{:?}", store.outbox_figures().await, store.dead_messages().await)
        };
        assert_eq!(state(store).await, state(&model).await, "after {place} of {commands:#?}");
    }
}

#[tokio::test]
async fn sqlite_s_outbox_answers_like_the_model_s() {
    for commands in sequences() {
        let dir = tempfile::tempdir().unwrap();
        compare(&sqlite(&dir).telling(Wants::ALL), &commands).await;
    }
}
