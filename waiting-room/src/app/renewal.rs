//! Admissions that last longer, or end early: for shops that keep a checkout of their own behind the waiting room.

use std::sync::Arc;

use lockgate_shared::{
    admission_token::AdmissionToken, catalog::StoredSale, clock::Timestamp, ids::AccountHash,
    store::StoreError,
};

use super::{App, lane_of};
use crate::{
    answers::Admitted,
    refusal::Refusal,
    store::{Forfeit, Renewal, SeatState},
};

impl App {
    /// **renew**: lets an admission last `token_seconds` from now, at most `token_seconds_max` in all. The token's id
    /// stays.
    ///
    /// # Errors
    /// The sale renews none, the admission is over, or the store broke.
    pub(crate) async fn renew(
        &self,
        sale: &Arc<StoredSale>,
        token: &AdmissionToken,
    ) -> Result<Admitted, Refusal> {
        let (admission, now) = (&sale.definition.admission, self.parts.clock.now());
        let seconds_max = admission.token_seconds_max.ok_or(Refusal::NotRenewable)?;
        let renewal = Renewal {
            account: token.sub,
            jti: token.jti.clone(),
            now,
            expires_at: Timestamp::from_seconds(now.seconds()).plus_seconds(admission.token_seconds),
            seconds_max,
        };
        let lane = self.lane(sale, token.sub);
        let right = self.parts.store.renew(&token.sale, lane, &renewal).await?;
        self.admitted(sale, token.sub, &right.ok_or(Refusal::NotRenewable)?)
    }

    /// **forfeit**, by the token itself: its place in the cap is free at once.
    ///
    /// # Errors
    /// The store broke.
    pub(crate) async fn forfeit(&self, sale: &StoredSale, token: &AdmissionToken) -> Result<(), StoreError> {
        let forfeit = Forfeit { account: token.sub, issued_at: Timestamp::from_seconds(token.iat) };
        let lane = self.lane(sale, token.sub);
        self.parts.store.forfeit(&sale.definition.id, lane, &[forfeit]).await.map(drop)
    }

    /// **forfeit**, by the ids a verifier knows. False when the account holds no such admission, or not any more.
    ///
    /// # Errors
    /// The store broke.
    pub(crate) async fn forfeit_by_id(
        &self,
        sale: &StoredSale,
        account: AccountHash,
        jti: &str,
    ) -> Result<bool, StoreError> {
        let (id, lane) = (&sale.definition.id, self.lane(sale, account));
        let seat = self.parts.store.seat(id, lane, account).await?;
        let Some(SeatState::Admitted(right)) = seat.map(|seat| seat.state).filter(|state| has_id(state, jti))
        else {
            return Ok(false);
        };
        // Compared again in the store's own step: a right given meanwhile is not touched.
        let forfeit = Forfeit { account, issued_at: right.issued_at };
        Ok(self.parts.store.forfeit(id, lane, &[forfeit]).await? > 0)
    }

    fn lane(&self, sale: &StoredSale, account: AccountHash) -> u16 {
        lane_of(&sale.secrets.lane_key, account, sale.definition.lanes)
    }
}

fn has_id(state: &SeatState, jti: &str) -> bool {
    matches!(state, SeatState::Admitted(right) if right.jti == jti)
}
