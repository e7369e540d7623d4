//! PURE. The way from the admission token to a paid order.

use crate::{
    answer::{Answer, Order, Payment, Won},
    rules::Rule,
    shopper::{Shopper, Step},
    walk::{End, Next, Refused, Scene},
};

/// What somebody is buying.
#[derive(Debug, Default)]
pub struct Purchase {
    /// The admission token.
    pub token: String,
    /// Which of the sale's items.
    pub item: usize,
    /// The order.
    pub order_id: String,
    /// The key to it.
    pub access_key: String,
    /// The gateway's page, path and query.
    pub page: String,
    units: Vec<u32>,
}

impl Purchase {
    /// A purchase at its beginning.
    #[must_use]
    pub fn new(token: String) -> Self {
        Self { token, ..Self::default() }
    }
}

/// Looks after which an unpaid order is given up.
const LOOKS_MAX: u8 = 40;

/// Takes an answer to a step of buying.
pub fn take(shopper: &mut Shopper, answer: &Answer, scene: &mut Scene<'_>) -> Next {
    let next = match shopper.step {
        Step::Claim => after_claim(shopper, answer, scene),
        Step::Pay => after_pay(shopper, answer, scene),
        Step::PayAtGateway => after_gateway(shopper, answer, scene),
        _ => after_order(shopper, answer, scene),
    };
    if matches!(next, Next::Done(_)) {
        scene.purchases.remove(&scene.who);
    }
    next
}

fn misshapen(call: &str, words: &str, scene: &mut Scene<'_>) -> Next {
    scene.verdict.check(Rule::Shape, false, || format!("{call}: {words}"));
    Next::Done(End::Refused)
}

fn after_claim(shopper: &mut Shopper, answer: &Answer, scene: &mut Scene<'_>) -> Next {
    if answer.status != 202 {
        let allowed = [
            (403, "token_expired"),
            (403, "token_revoked"),
            (409, "not_open"),
            (409, "sold_out"),
            (409, "limit_reached"),
            (409, "in_progress"),
        ];
        let refused = Refused::read(answer, &allowed, scene, "checkout");
        return match refused.code.as_str() {
            "sold_out" => Next::Done(End::SoldOut),
            "token_expired" | "token_revoked" => Next::Done(End::Missed),
            "limit_reached" => Next::Done(End::Admitted),
            "not_open" => Next::Done(End::Closed),
            "in_progress" => shopper.retry(500),
            _ if refused.is_transient => shopper.retry(refused.told_ms),
            _ => Next::Done(End::Refused),
        };
    }
    let won: Won<'_> = match answer.json() {
        Ok(won) => won,
        Err(words) => return misshapen("checkout", &words, scene),
    };
    let who = scene.who;
    let fits = won.units.len() == 1 && won.units[0] >= 1;
    scene
        .verdict
        .check(Rule::Shape, fits, || format!("shopper {who} claimed one unit and got {:?}", won.units));
    if let Some(purchase) = scene.purchases.get_mut(&who) {
        (purchase.order_id, purchase.access_key) = (won.order_id.into_owned(), won.access_key.into_owned());
        purchase.units = won.units;
    }
    shopper.tries = 0;
    Next::After(shopper.throw(scene.manners.think_ms_max), Step::Pay)
}

fn after_pay(shopper: &mut Shopper, answer: &Answer, scene: &mut Scene<'_>) -> Next {
    if answer.status != 200 {
        let allowed = [(409, "order_expired"), (409, "order_cancelled"), (409, "order_paid")];
        let refused = Refused::read(answer, &allowed, scene, "pay");
        return match refused.code.as_str() {
            "order_paid" => Next::After(0, Step::Order),
            _ if refused.is_transient => shopper.retry(refused.told_ms),
            _ if refused.is_known => Next::Done(End::Admitted),
            _ => Next::Done(End::Refused),
        };
    }
    let payment: Payment<'_> = match answer.json() {
        Ok(payment) => payment,
        Err(words) => return misshapen("pay", &words, scene),
    };
    // A gateway elsewhere is not ours to load.
    let own = payment
        .redirect_url
        .strip_prefix("http://")
        .and_then(|rest| rest.strip_prefix(&scene.manners.authority));
    let Some(page) = own.filter(|page| page.starts_with('/')) else {
        return Next::Done(End::Admitted);
    };
    let page = page.to_owned();
    if let Some(purchase) = scene.purchases.get_mut(&scene.who) {
        purchase.page = page;
    }
    Next::After(shopper.throw(500), Step::PayAtGateway)
}

fn after_gateway(shopper: &mut Shopper, answer: &Answer, scene: &mut Scene<'_>) -> Next {
    if matches!(answer.status, 429 | 503) {
        return shopper.retry(2_000);
    }
    let holds = answer.status == 303 && answer.location.is_some();
    scene.verdict.check(Rule::Contract, holds, || format!("paying: {} {}", answer.status, answer.excerpt()));
    shopper.tries = 0;
    Next::After(100, Step::Order)
}

fn after_order(shopper: &mut Shopper, answer: &Answer, scene: &mut Scene<'_>) -> Next {
    if answer.status != 200 {
        let refused = Refused::read(answer, &[], scene, "order");
        return if refused.is_transient { shopper.retry(refused.told_ms) } else { Next::Done(End::Refused) };
    }
    let order: Order<'_> = match answer.json() {
        Ok(order) => order,
        Err(words) => return misshapen("order", &words, scene),
    };
    match order.state.as_ref() {
        "paid" => {
            let who = scene.who;
            if let Some(purchase) = scene.purchases.get(&who) {
                for unit in &purchase.units {
                    let is_free = scene.board.take_unit(purchase.item, *unit);
                    scene.verdict.check(Rule::UnitOnce, is_free, || {
                        format!("shopper {who} paid for unit {unit}, which another shopper has paid for")
                    });
                }
            }
            Next::Done(End::Bought)
        }
        "placing" | "awaiting_payment" if shopper.tries < LOOKS_MAX => {
            shopper.tries += 1;
            Next::After(250 + shopper.throw(250), Step::Order)
        }
        _ => Next::Done(End::Admitted),
    }
}
