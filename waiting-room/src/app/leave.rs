//! Places and admissions that are given up.
//!
//! An admission's token is signed and verifies by itself, so its place in the cap may be freed only once the gate
//! makes no claim by it any more. The order is always: the gate forgets the right, then the lane frees the place. What
//! breaks off in between leaves a place that is counted although nothing can be claimed by it, never the reverse.

use std::sync::Arc;

use lockgate_shared::{
    admission_token::AdmissionToken,
    catalog::StoredSale,
    ids::{AccountHash, SaleId, TokenId},
};

use super::App;
use crate::{
    refusal::Refusal,
    store::{Departure, Forfeit, SeatState, WhichRight},
};

/// How often a departure is tried: a place that is admitted, or admitted anew after a revocation, while it is given up
/// has another right to forfeit. Nobody can cause that twice.
const TRIES_MAX: usize = 4;

impl App {
    /// **leave**: gives the ticket's place up. A later place of the account stands. Of somebody who waits it is one
    /// store call; what the place was exchanged for is forfeited first.
    ///
    /// # Errors
    /// The ticket is none, the gate could not be told, or the store broke.
    pub async fn leave(&self, sale: &Arc<StoredSale>, ticket: &str) -> Result<(), Refusal> {
        let ticket = self.ticket(sale, ticket)?;
        self.accounts.take(ticket.account).map_err(Refusal::TooOften)?;
        let live = self.live(sale);
        if live.has_left(ticket.lane, ticket.seq) {
            return Ok(());
        }
        let (id, store) = (&ticket.sale, &self.parts.store);
        let mut forfeited: Option<String> = None;
        for _ in 0..TRIES_MAX {
            match store.leave(id, ticket.lane, ticket.account, ticket.seq, forfeited.as_deref()).await? {
                Departure::Left => {
                    live.note_left(ticket.lane, ticket.seq);
                    return Ok(());
                }
                Departure::Superseded => return Ok(()),
                Departure::Admitted { jti } => {
                    self.forfeit_at_gate(id, &jti).await?;
                    forfeited = Some(jti);
                }
            }
        }
        Err(Refusal::NotForfeited("the place was admitted anew again and again".into()))
    }

    /// **forfeit**, by the token itself: its place in the cap is free at once.
    ///
    /// # Errors
    /// The account asks too often, the gate could not be told, or the store broke.
    pub(crate) async fn forfeit(&self, sale: &StoredSale, token: &AdmissionToken) -> Result<(), Refusal> {
        self.accounts.take(token.sub).map_err(Refusal::TooOften)?;
        self.end_right(sale, token.sub, &token.jti).await.map(drop)
    }

    /// **forfeit**, by the ids a verifier knows. False when the account holds no such admission, or not any more.
    ///
    /// # Errors
    /// The gate could not be told, or the store broke.
    pub(crate) async fn forfeit_by_id(
        &self,
        sale: &StoredSale,
        account: AccountHash,
        jti: &str,
    ) -> Result<bool, Refusal> {
        let lane = self.lane(sale, account);
        let seat = self.parts.store.seat(&sale.definition.id, lane, account).await?;
        // The gate remembers every id it is told: only those of admissions that were given reach it.
        match seat.map(|seat| seat.state) {
            Some(SeatState::Admitted(right)) if right.jti == jti => self.end_right(sale, account, jti).await,
            _ => Ok(false),
        }
    }

    /// Ends a right: at the gate, then in its lane. False when the lane holds it no more.
    async fn end_right(&self, sale: &StoredSale, account: AccountHash, jti: &str) -> Result<bool, Refusal> {
        let (id, lane) = (&sale.definition.id, self.lane(sale, account));
        self.forfeit_at_gate(id, jti).await?;
        // By its id: a right given meanwhile, be it within the same second, still claims.
        let forfeit = Forfeit { account, which: WhichRight::Id(jti.to_owned()) };
        Ok(self.parts.store.forfeit(id, lane, &[forfeit]).await? > 0)
    }

    async fn forfeit_at_gate(&self, sale: &SaleId, jti: &str) -> Result<(), Refusal> {
        let token_id: TokenId = jti.parse().map_err(Refusal::NotForfeited)?;
        let told = self.parts.gate.forfeit(sale, &token_id).await;
        told.map(drop).map_err(|error| Refusal::NotForfeited(error.to_string()))
    }
}
