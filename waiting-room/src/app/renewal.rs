//! Admissions that last longer: for shops that keep a checkout of their own behind the waiting room.

use std::sync::Arc;

use lockgate_shared::{
    admission_token::AdmissionToken, catalog::StoredSale, clock::Timestamp, ids::AccountHash,
};

use super::{App, lane_of};
use crate::{answers::Admitted, refusal::Refusal, store::Renewal};

impl App {
    /// **renew**: lets an admission last `token_seconds` from now, at most `token_seconds_max` in all. The token's id
    /// stays.
    ///
    /// # Errors
    /// The account asks too often, the sale renews none, the admission is over, or the store broke.
    pub(crate) async fn renew(
        &self,
        sale: &Arc<StoredSale>,
        token: &AdmissionToken,
    ) -> Result<Admitted, Refusal> {
        self.accounts.take(token.sub).map_err(Refusal::TooOften)?;
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

    pub(super) fn lane(&self, sale: &StoredSale, account: AccountHash) -> u16 {
        lane_of(&sale.secrets.lane_key, account, sale.definition.lanes)
    }
}
