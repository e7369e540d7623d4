//! One buyer's way from a won claim to its end.

use std::time::Duration;

use http::Method;
use rand::RngExt as _;
use tokio::time::sleep;

use super::{
    End, Fate, Taken,
    buyer::{Buyer, now_micros},
    fate::Held,
};
use crate::{
    answer::{Order, Payment, micros_of},
    figures::Kind,
};

/// Pause between two looks at an order, in milliseconds.
const LOOK_MS: u64 = 500;
/// Looks after which an order that does not come to its end is left alone.
const LOOKS_MAX: u32 = 120;
/// How long after the hold's end a late payment is made, in milliseconds: after everybody has heard of it.
const LATE_MS: std::ops::RangeInclusive<u64> = 1_500..=5_000;

impl Buyer<'_> {
    /// What is held is paid, paid late or left to run out. An order that is paid is the end of the buyer's day.
    pub(super) async fn fulfil(&mut self, item: &str, wanted: u32, held: &Held<'_>) -> Result<(), End> {
        if held.units.len() != wanted as usize {
            return Err(self.wrong("checkout", &format!("{wanted} units wanted, {:?} answered", held.units)));
        }
        let Some(expires_micros) = micros_of(&held.hold_expires_at) else {
            return Err(self.wrong("checkout", "hold_expires_at is no moment"));
        };
        let fate = self.hall.asked.shares.fate(self.dice.random_range(0.0..100.0));
        let mut taken = Taken {
            order: held.order_id.to_string(),
            item: item.to_owned(),
            units: held.units.clone(),
            amount: held.amount,
            who: self.who,
            fate,
            paid_at_gateway: false,
            told: None,
        };
        let came = self.see_through(&mut taken, &held.access_key, expires_micros).await;
        let is_paid = taken.told.as_deref() == Some("paid");
        self.hall.account().claims.push(taken);
        came?;
        if is_paid { Err(End::Bought) } else { Ok(()) }
    }

    async fn see_through(&mut self, taken: &mut Taken, key: &str, expires_micros: i64) -> Result<(), End> {
        let think_ms = self.dice.random_range(0..=self.hall.asked.plan.think_ms);
        sleep(Duration::from_millis(think_ms)).await;
        // Half of those who never pay never look at the gateway's page either.
        let opens_page = taken.fate != Fate::Abandons || self.dice.random_bool(0.5);
        let page = if opens_page { self.page(&taken.order, key).await? } else { None };
        if taken.fate != Fate::Pays {
            let past_ms = self.dice.random_range(LATE_MS);
            let left_ms = u64::try_from((expires_micros - now_micros()) / 1_000).unwrap_or(0);
            sleep(Duration::from_millis(left_ms + past_ms)).await;
        }
        if taken.fate == Fate::Abandons {
            return Ok(());
        }
        if let Some(page) = page {
            self.pay(taken, &page).await?;
        }
        self.watch(taken, key).await
    }

    /// The gateway's page, path and query; none where the order takes no payment any more.
    async fn page(&mut self, order: &str, key: &str) -> Result<Option<String>, End> {
        let answer = self.ask(Kind::Pay, |requests| requests.order(Method::POST, order, "/pay", key)).await;
        if answer.status != 200 {
            self.refusal(
                "pay",
                &answer,
                &[(409, "order_expired"), (409, "order_paid"), (409, "order_cancelled")],
            )?;
            return Ok(None);
        }
        let payment: Payment<'_> = answer.json().map_err(|words| self.wrong("pay", &words))?;
        let own = payment.redirect_url.strip_prefix("http://");
        let page = own.and_then(|rest| rest.strip_prefix(self.hall.authority.as_str()));
        match page {
            Some(page) => Ok(Some(page.to_owned())),
            // A gateway elsewhere is not ours to load.
            None => Err(self.wrong("pay", "the gateway's page is not on the target")),
        }
    }

    /// Pays on the page and returns to the shop as the gateway says.
    async fn pay(&mut self, taken: &mut Taken, page: &str) -> Result<(), End> {
        let answer = self.ask(Kind::Gateway, |requests| requests.pay_at(page)).await;
        let Some(back) = answer.location.as_deref().filter(|_| answer.status == 303) else {
            return Err(self.wrong("gateway", &format!("{} {}", answer.status, answer.excerpt())));
        };
        taken.paid_at_gateway = true;
        let path =
            back.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| rest[at..].to_owned()));
        let path = path.unwrap_or_else(|| back.to_owned());
        let answer = self.ask(Kind::Callback, |requests| requests.get(&path)).await;
        if answer.status == 200 {
            return Ok(());
        }
        Err(self.wrong("callback", &format!("{} {}", answer.status, answer.excerpt())))
    }

    /// Looks at the order until it has come to its end.
    async fn watch(&mut self, taken: &mut Taken, key: &str) -> Result<(), End> {
        for _ in 0..LOOKS_MAX {
            let order = taken.order.clone();
            let answer = self.ask(Kind::Order, |requests| requests.order(Method::GET, &order, "", key)).await;
            if answer.status != 200 {
                return Err(self.wrong("order", &format!("{} {}", answer.status, answer.excerpt())));
            }
            let order: Order<'_> = answer.json().map_err(|words| self.wrong("order", &words))?;
            let is_through = match order.state.as_ref() {
                "paid" | "refunded" | "cancelled" => true,
                // Money that came late is heard of after the order has expired.
                "expired" => taken.fate == Fate::Pays,
                _ => false,
            };
            taken.told = Some(order.state.into_owned());
            if is_through {
                return Ok(());
            }
            self.rest(LOOK_MS).await;
        }
        Ok(())
    }
}
