use lockgate_shared::{
    gate::{CommitAnswer, ReclaimAnswer, ReleaseAnswer},
    sale::parse_toml,
};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    office::csv::tests::read,
    order::{self, GateSide, Intake, OrderEvent, OrderRecord, Placement},
    payment::{Money, Notice, Outcome, Terms},
    reconcile::{ItemDifference, Reconciled},
};

const NOW: i64 = 1_800_000_000;

fn sale() -> SaleDefinition {
    let text = r#"
id = "demo"
name = "Phone drop"
doors_open_at = 2027-01-15T00:00:00Z
opens_at = 2027-01-15T06:00:00Z
closes_at = 2027-01-15T07:00:00Z
per_account_limit = 5
[admission]
rate_per_minute = 6000
[[items]]
item = "phone"
name = "Phone, black"
stock = 10
price = 998
currency = "EUR"
[[items]]
item = "case"
name = "Case"
stock = 10
price = 100
currency = "EUR"
"#;
    parse_toml("test", text).unwrap()
}

fn order(n: u16, item: &str, money: Money, events: &[OrderEvent]) -> OrderRecord {
    let mut bytes = [7; 16];
    bytes[..2].copy_from_slice(&n.to_be_bytes());
    let placement = Placement {
        order: Uuid::from_bytes(bytes).into(),
        sale: "demo".parse().unwrap(),
        account: lockgate_shared::ids::AccountHash::from_bytes([1; 16]),
        item: item.parse().unwrap(),
        units: vec![u32::from(n) + 1],
        price: money,
        email: None,
        language: None,
        claimed_at: Timestamp::from_seconds(NOW),
        hold_expires_at: Timestamp::from_seconds(NOW + 600),
    };
    let placed = order::place(None, &Intake::Claimed(placement)).unwrap().after;
    let now = Timestamp::from_seconds(NOW);
    events.iter().fold(placed, |order, event| order::decide(&order, event, now).after)
}

fn money(amount: i64, currency: &str) -> Money {
    Money { amount, currency: currency.into() }
}

fn attempt(n: u8) -> crate::payment::PaymentId {
    Uuid::from_bytes([n; 16]).into()
}

fn paid(n: u8, money: Money) -> [OrderEvent; 2] {
    let notice = Notice { payment: attempt(n), order: None, outcome: Outcome::Paid(money) };
    [OrderEvent::Pay { payment: attempt(n), terms: Terms::default() }, OrderEvent::Notified(notice)]
}

/// The gate and the database as the orders say they are.
fn settled(orders: &[OrderRecord], now: i64) -> Settlement {
    settled_knowing(orders, now, Anomalies::default())
}

fn settled_knowing(orders: &[OrderRecord], now: i64, anomalies: Anomalies) -> Settlement {
    let definition = sale();
    let mut tally = Tally::knowing(anomalies.refunds_failed.clone());
    let mut books: BTreeMap<ItemId, ItemBooks> = BTreeMap::new();
    for order in orders {
        tally.add(order, "simulated");
        let units = order.units.len() as u64;
        books.entry(order.item.clone()).or_default().count(order.state, order.gate, 1, units);
    }
    let stock: Vec<ItemStock> = definition
        .items
        .iter()
        .map(|item| {
            let own = books.get(&item.item).cloned().unwrap_or_default();
            let (held, sold) = (u32::try_from(own.held).unwrap(), u32::try_from(own.sold).unwrap());
            let stock = item.stock.max(held + sold);
            ItemStock { item: item.item.clone(), stock, available: stock - held - sold, held, sold }
        })
        .collect();
    let facts = Facts {
        sale: &definition,
        is_closed: false,
        now: Timestamp::from_seconds(now),
        version: "0",
        stock: &stock,
        books: &books,
        anomalies,
        reconciled: Some(Reconciled::of(Timestamp::from_seconds(now), &[], &[], 0)),
        changed_at: Some(Timestamp::from_seconds(now)),
        dead_letters: 0,
    };
    Settlement::of(&tally, facts)
}

#[test]
fn m7_without_a_comparison_after_the_end_and_the_last_change_nothing_is_final() {
    let definition = sale();
    let stock: Vec<ItemStock> = (definition.items.iter())
        .map(|item| ItemStock {
            item: item.item.clone(),
            stock: item.stock,
            available: item.stock,
            held: 0,
            sold: 0,
        })
        .collect();
    let end = definition.closes_at;
    let report = |found: Option<(Timestamp, usize)>, changed_at, is_closed, now| {
        let books = BTreeMap::new();
        let reconciled = found.map(|(at, unconfirmed)| Reconciled::of(at, &[], &[], unconfirmed));
        let facts = Facts {
            sale: &definition,
            is_closed,
            now,
            version: "0",
            stock: &stock,
            books: &books,
            anomalies: Anomalies::default(),
            reconciled,
            changed_at,
            dead_letters: 0,
        };
        Settlement::of(&Tally::default(), facts)
    };
    let later = end.plus_seconds(60);
    let says = |report: Settlement, words: &str| {
        assert_eq!((report.status, report.preliminary_because.len()), ("preliminary", 1), "{report:?}");
        assert!(report.preliminary_because[0].contains(words), "{report:?}");
        report.compared
    };
    assert!(!says(report(None, None, false, later), "make the report again"));
    assert!(!says(report(Some((end.minus_seconds(1), 0)), None, false, later), "were not compared"));
    assert!(!says(report(Some((end, 0)), Some(later), false, later), "were not compared"));
    assert!(says(report(Some((end, 2)), None, false, later), "2 differences were found"));
    let good = report(Some((end, 0)), Some(end), false, later);
    assert!(good.is_final() && good.compared && good.differences == 0, "{good:?}");
    // Closed early: by the last change alone.
    let before = end.minus_seconds(600);
    assert!(!says(report(None, Some(before), true, before), "were not compared"));
    assert!(report(Some((before, 0)), Some(before), true, before).is_final());
}

const AFTER: i64 = NOW + 10_000_000;

#[test]
fn a_final_settlement_of_two_items_and_currencies_adds_up() {
    let (eur, usd) = (money(998, "EUR"), money(500, "USD"));
    let commit = || OrderEvent::Commit(CommitAnswer::Committed);
    let release = || OrderEvent::Release(ReleaseAnswer::Released);
    let [pay, arrives] = paid(1, eur.clone());
    let unpayable = Notice { payment: attempt(1), order: None, outcome: Outcome::Unpayable };
    let late = [
        pay.clone(),
        OrderEvent::Expire,
        OrderEvent::Notified(unpayable),
        release(),
        arrives.clone(),
        OrderEvent::Reclaim(ReclaimAnswer::SoldOut),
        OrderEvent::Refunded { payment: attempt(1) },
    ];
    let orders = [
        order(1, "phone", eur.clone(), &[pay, arrives, commit()]),
        order(2, "case", usd.clone(), &[paid(2, usd).to_vec(), vec![commit()]].concat()),
        order(3, "phone", eur.clone(), &[OrderEvent::Expire, release()]),
        order(4, "phone", eur.clone(), &[OrderEvent::Cancel, release()]),
        order(5, "phone", eur, &late),
    ];
    let report = settled(&orders, AFTER);
    assert_eq!((report.status, report.differences), ("final", 0), "{:#?}", report.checks);
    assert!(report.checks.len() > 15 && report.checks.iter().all(|check| check.holds));
    let line = |item: &str, currency: &str| {
        let mut lines = report.items.iter();
        lines.find(|line| line.item.as_str() == item && line.currency == currency).unwrap().clone()
    };
    let phone = line("phone", "EUR");
    assert_eq!(
        (phone.units_sold, phone.gross, phone.refunds, phone.refunded, phone.net),
        (1, 1996, 1, 998, 998)
    );
    assert_eq!((line("case", "USD").net, line("case", "EUR").gross), (500, 0));
    let ways: Vec<_> = report.gateways.iter().map(|line| (&line.currency[..], line.net)).collect();
    assert_eq!(ways, [("EUR", 998), ("USD", 500)]);
    let states: Vec<u64> = report.orders.iter().map(|line| line.orders).collect();
    assert_eq!((states, report.orders_total), (vec![0, 2, 1, 1, 0, 1], 5));
    let table = read(&csv(&report));
    assert!(table.iter().all(|line| line.len() == table[0].len()));
    let total = table.iter().find(|line| line[0] == "total" && line[1] == "EUR").unwrap();
    assert_eq!((&total[7][..], &total[9][..], &total[11][..]), ("19.96", "9.98", "9.98"));
}

#[test]
fn h1_refunds_that_failed_later_are_a_remark_with_their_sum_and_no_difference() {
    let eur = money(998, "EUR");
    let commit = OrderEvent::Commit(CommitAnswer::Committed);
    let refunded = |n: u8| {
        let back = [
            commit.clone(),
            OrderEvent::Refund { why: "a test".into() },
            OrderEvent::Refunded { payment: attempt(n) },
        ];
        order(n.into(), "phone", eur.clone(), &[paid(n, eur.clone()).to_vec(), back.to_vec()].concat())
    };
    let due =
        [paid(4, eur.clone()).to_vec(), vec![commit.clone(), OrderEvent::Refund { why: "a test".into() }]]
            .concat();
    let orders = [refunded(1), refunded(2), refunded(3)];
    let failed = |payments: &[u8]| {
        let mut anomalies = Anomalies::default();
        let of = |n: &u8| AnomalyRecord {
            number: 1,
            order: Uuid::from_bytes([7; 16]).into(),
            payment: Some(attempt(*n)),
            kind: "refund_failed".into(),
            detail: String::new(),
            found_at: Timestamp::from_seconds(NOW),
            state: None,
        };
        anomalies.add(payments.iter().map(of).collect());
        anomalies
    };
    assert_eq!(settled(&orders, AFTER).refunds_failed, []);
    // One of them failed twice.
    let report = settled_knowing(&orders, AFTER, failed(&[1, 2, 1]));
    let line = &report.refunds_failed[0];
    assert_eq!((line.payments, line.amount, &line.currency[..]), (2, 1996, "EUR"));
    let words = "2 refunds failed later at the payment service: 19.96 EUR counted as given back is there again, see \
                 anomalies.";
    assert_eq!(line.remark, words);
    assert_eq!((report.status, report.differences), ("final", 0), "it can be signed");
    let table = read(&csv(&report));
    let remark = table.iter().find(|line| line[0] == "remark").unwrap();
    assert_eq!((&remark[1][..], &remark[2][..], &remark[9][..]), ("refunds_failed", words, "19.96"));
    // What still is to go back is not counted as given back.
    let owed = [order(4, "phone", eur.clone(), &due)];
    assert_eq!(settled_knowing(&owed, AFTER, failed(&[4])).refunds_failed, []);
}

#[test]
fn what_is_not_over_is_preliminary_and_says_why() {
    let eur = money(998, "EUR");
    let waits = order(1, "phone", eur.clone(), &[]);
    let report = settled(std::slice::from_ref(&waits), NOW - 3_000_000);
    assert_eq!(report.status, "preliminary");
    let words = report.preliminary_because.join(" ");
    for part in ["not over", "1 unit is still held", "1 order waits", "1 order is not settled"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let mut events = paid(1, eur.clone()).to_vec();
    events.push(OrderEvent::Commit(CommitAnswer::Released));
    let owed = settled(&[order(1, "phone", eur, &events)], AFTER);
    assert!(owed.preliminary_because.join(" ").contains("1 payment has not gone back"), "{owed:?}");
    assert_eq!((owed.items[0].refund_due, owed.differences), (998, 0));
    let [_, arrives] = paid(1, money(998, "EUR"));
    let late = settled(&[order(1, "phone", money(998, "EUR"), &[OrderEvent::Expire, arrives])], AFTER);
    assert!(!late.is_final() && late.checks.iter().all(|check| check.holds), "{late:?}");
    assert_eq!((late.items[0].undecided, late.differences), (998, 0), "units are looked for");
}

#[test]
fn a_planted_difference_is_counted_and_said() {
    let eur = money(998, "EUR");
    let events = [paid(1, eur.clone()).to_vec(), vec![OrderEvent::Commit(CommitAnswer::Committed)]].concat();
    let mut short = order(1, "phone", eur, &events);
    short.payments[0].paid = Some(money(900, "EUR"));
    let report = settled(&[short], AFTER);
    let wrong: Vec<&str> =
        report.checks.iter().filter(|check| !check.holds).map(|check| &check.what[..]).collect();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert_eq!((report.differences, report.items[0].difference), (2, -98));
    let reconciled = Reconciled {
        checked_at: Timestamp::from_seconds(NOW),
        differences: 3,
        unconfirmed: 0,
        items: vec![ItemDifference { item: "phone".parse().unwrap(), units: 0, money: 0, count: 3 }],
        listed: Vec::new(),
    };
    let definition = sale();
    let facts = Facts {
        sale: &definition,
        is_closed: true,
        now: Timestamp::from_seconds(AFTER),
        version: "0",
        stock: &[],
        books: &BTreeMap::new(),
        anomalies: Anomalies::default(),
        reconciled: Some(reconciled),
        changed_at: None,
        dead_letters: 2,
    };
    let report = Settlement::of(&Tally::default(), facts);
    assert_eq!(report.differences, 3, "what the reconciler says counts");
    assert!(report.preliminary_because.join(" ").contains("2 records"));
}

proptest! {
    /// Whatever orders went through, the sums agree and the money is where the states say.
    #[test]
    fn any_orders_add_up(
        plans in prop::collection::vec((prop::bool::ANY, prop::collection::vec(0_usize..9, 0..8)), 0..12),
    ) {
        let eur = money(998, "EUR");
        let mut orders = Vec::new();
        for (n, (is_phone, steps)) in (1_u16..).zip(plans) {
            let number = u8::try_from(n).unwrap();
            let [pay, arrives] = paid(number, eur.clone());
            let [other, again] = paid(100 + number, money(7, "USD"));
            let choices = [
                pay, arrives, other, again,
                OrderEvent::Expire, OrderEvent::Cancel,
                OrderEvent::Commit(CommitAnswer::Committed),
                OrderEvent::Release(ReleaseAnswer::Released),
                OrderEvent::Refunded { payment: attempt(number) },
            ];
            let events: Vec<OrderEvent> = steps.iter().map(|step| choices[*step].clone()).collect();
            orders.push(order(n, if is_phone { "phone" } else { "case" }, eur.clone(), &events));
        }
        let report = settled(&orders, AFTER);
        for check in &report.checks {
            prop_assert!(check.holds, "{:?}", check);
        }
        for line in &report.items {
            prop_assert_eq!(line.net, line.gross - line.refunded);
            prop_assert_eq!(line.difference, 0);
        }
        let is_settled = orders.iter().all(|order| {
            !is_open(order.state) && !matches!(order.gate, GateSide::Held | GateSide::CommitDue | GateSide::ReleaseDue)
                && !order.is_unsettled()
        });
        prop_assert_eq!(report.is_final(), is_settled);
    }
}
