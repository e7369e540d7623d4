//! Reclaiming, in memory.

use lockgate_shared::{
    events::EventKind,
    gate::{HoldState, ReclaimAnswer},
    ids::ClaimId,
};

use super::{Answer, Sale, broken, count};
use crate::{
    hold::{self, Reclaim},
    stock::{self, Limits},
};

impl Sale {
    pub(super) fn reclaim(&mut self, claim: ClaimId, limits: &Limits) -> Answer<ReclaimAnswer> {
        let Some(hold) = self.holds.get(&claim).cloned() else {
            return Ok(ReclaimAnswer::NoSuchClaim);
        };
        match hold::reclaim(hold.state) {
            Reclaim::Stands => return Ok(ReclaimAnswer::Reclaimed { units: hold.units }),
            Reclaim::Commits => {
                self.commit(claim)?;
                return Ok(ReclaimAnswer::Reclaimed { units: hold.units });
            }
            Reclaim::Takes => {}
        }
        if let Some(refused) = self.refused.get(&claim) {
            return Ok(refused.clone());
        }
        let (quantity, standing) = (count(&hold.units), self.standing(&hold.account, 0));
        let Some(shelf) = self.shelf(&hold.item) else {
            return Ok(self.refuse(claim, ReclaimAnswer::SoldOut));
        };
        if let Some(refused) = stock::reclaim_refusal(&shelf.counts, &standing, limits, quantity) {
            return Ok(self.refuse(claim, refused));
        }
        let returned: Vec<u32> = shelf.returned.iter().copied().collect();
        let (units, fresh) = stock::pick_again(&hold.units, &returned, &shelf.counts).ok_or_else(broken)?;
        let counts = shelf.counts.taken(quantity, fresh).and_then(|counts| counts.committed(quantity));
        shelf.counts = counts.ok_or_else(broken)?;
        shelf.returned.retain(|unit| !units.contains(unit));
        self.accounts.entry(hold.account).or_default().units += quantity;
        let mut sold = hold;
        (sold.units, sold.state) = (units.clone(), HoldState::Committed);
        self.append(EventKind::Committed, &sold, None);
        self.holds.insert(claim, sold);
        Ok(ReclaimAnswer::Reclaimed { units })
    }

    fn refuse(&mut self, claim: ClaimId, answer: ReclaimAnswer) -> ReclaimAnswer {
        self.refused.insert(claim, answer.clone());
        answer
    }
}
