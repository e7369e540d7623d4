//! claim: units for whoever holds a token.

use lockgate_shared::{
    admission_token::AdmissionToken,
    catalog::StoredSale,
    edge::rate_limit::account_rate_limited,
    gate::{ClaimAnswer, ClaimRequest, Hold},
    ids::SaleId,
    problem::Problem,
};

use super::App;
use crate::{
    claim::{Memo, Wish, claim_id},
    payment::Money,
    refusals,
    stock_view::is_open,
};

/// A claim that was won, now or before.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The hold.
    pub hold: Hold,
    /// The price of its units.
    pub price: Money,
    /// Opens the order without an account.
    pub access_key: String,
}

impl App {
    /// Claims what `wish` asks for. The key makes it one claim however often it is asked for; a claim that was won
    /// answers the same for ever.
    ///
    /// # Errors
    /// Why there is nothing for this buyer, or 503.
    pub async fn claim(
        &self,
        sale: &StoredSale,
        token: &AdmissionToken,
        key: &str,
        wish: &Wish,
    ) -> Result<Claimed, Problem> {
        self.accounts.take(token.sub).map_err(account_rate_limited)?;
        let definition = &sale.definition;
        if let Some(why) = self.gateway.refuses(&definition.id) {
            return Err(Problem::unavailable("payment_unavailable", why));
        }
        let item = definition.item(&wish.item).ok_or_else(refusals::no_such_item)?;
        let now = self.clock.now();
        // Outside the hours only the gate can tell a new claim from a repeated one.
        if is_open(sale, now)
            && let Some(sold_out) =
                self.stock.sold_out(&definition.id, &wish.item, &token.sub, &*self.clock).await
        {
            count_claim("sold_out_early");
            return Err(refusals::sold_out(sold_out.may_return));
        }
        if let Some(seconds) = self.backlog.refuses(&definition.id) {
            count_claim("orders_behind");
            return Err(refusals::orders_behind(seconds));
        }
        let amount = item.price.checked_mul(i64::from(wish.quantity)).ok_or_else(Problem::internal)?;
        let fingerprint = wish.fingerprint();
        let memo = Memo {
            fingerprint: fingerprint.clone(),
            amount,
            currency: item.currency.clone(),
            email: wish.email.clone(),
            language: wish.language,
            kid: self.access.kid().to_owned(),
        };
        let request = ClaimRequest {
            claim: claim_id(&definition.id, &token.sub, key),
            account: token.sub,
            item: wish.item.clone(),
            quantity: wish.quantity,
            epoch: token.epoch,
            admitted_at: token.iat,
            // We signed it, so it has the form of one.
            token_id: token.jti.parse().map_err(|_| Problem::internal())?,
            memo: memo.to_text(),
        };
        match self.gate.claim(&definition.id, &request).await? {
            ClaimAnswer::Held { hold, replayed } => {
                count_claim(if replayed { "replayed" } else { "held" });
                if !replayed {
                    self.backlog.won(&definition.id);
                }
                self.won(&definition.id, hold, &fingerprint)
            }
            refused => {
                count_claim("refused");
                Err(refusals::of_claim(&refused, definition.opens_at))
            }
        }
    }

    fn won(&self, sale: &SaleId, hold: Hold, fingerprint: &str) -> Result<Claimed, Problem> {
        let memo = Memo::parse(&hold.memo).map_err(|error| Problem::internal().caused_by(&error))?;
        if memo.fingerprint != fingerprint {
            return Err(refusals::idempotency_mismatch());
        }
        self.stock.won(sale, &hold.account);
        self.claimed.notify_waiters();
        Ok(Claimed {
            access_key: self.access.key(hold.claim, &memo.kid),
            price: Money { amount: memo.amount, currency: memo.currency },
            hold,
        })
    }
}

fn count_claim(outcome: &'static str) {
    metrics::counter!("lockgate_checkout_claims_total", "outcome" => outcome).increment(1);
}
