//! Proof of work: challenges are given, solutions checked and used up.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    ids::AccountHash,
    proof_of_work::{self, Challenge},
    sale::{ProofOfWork, ProofWhen},
};
use rand::RngExt as _;

use super::{App, Entrance};
use crate::{
    refusal::{ProofFault, ProofRequired, Refusal},
    store::Spent,
};

/// How many proofs may be checked. Networks above their limit have a share of their own: what one of them sends keeps
/// nobody else from being checked.
pub(super) struct Checks {
    of_others: DefaultDirectRateLimiter,
    of_crowds: DefaultDirectRateLimiter,
}

/// Most proofs one process checks in a second, of networks below their limit. Only an answer to a challenge of ours is
/// checked, which takes up to a thousand iterations, a fraction of a millisecond.
const CHECKS_PER_SECOND_MAX: NonZeroU32 = NonZeroU32::MIN.saturating_add(2_999);
/// And of all networks above it together.
const CROWDED_CHECKS_PER_SECOND_MAX: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);

impl Default for Checks {
    fn default() -> Self {
        let limiter = |per_second| RateLimiter::direct(Quota::per_second(per_second));
        Self { of_others: limiter(CHECKS_PER_SECOND_MAX), of_crowds: limiter(CROWDED_CHECKS_PER_SECOND_MAX) }
    }
}

impl Checks {
    fn may_check(&self, is_crowded: bool) -> bool {
        if is_crowded { &self.of_crowds } else { &self.of_others }.check().is_ok()
    }
}

/// Hashes that are asked for where nobody says how many.
pub(crate) const DIFFICULTY: u64 = 50_000;

/// What a sale that says nothing asks of networks above their limit, instead of turning everybody there away.
const OF_CROWDS: ProofOfWork = ProofOfWork { difficulty: DIFFICULTY, when: ProofWhen::Crowded };

impl App {
    /// A puzzle for whoever wants to enter.
    #[must_use]
    pub fn challenge(&self, sale: &StoredSale) -> Challenge {
        self.issue(sale, sale.definition.proof_of_work.unwrap_or(OF_CROWDS))
    }

    fn issue(&self, sale: &StoredSale, asked: ProofOfWork) -> Challenge {
        let (random, now) = (rand::rng().random(), self.parts.clock.now());
        Challenge::issue(&sale.definition.id, asked.difficulty, random, now, &self.parts.ring)
    }

    /// Lets through whoever has done the work the sale asks for, or needs to do none.
    pub(super) async fn check_proof(
        &self,
        sale: &StoredSale,
        entrance: Entrance<'_>,
        account: AccountHash,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let asked = sale.definition.proof_of_work.unwrap_or(OF_CROWDS);
        if asked.when == ProofWhen::Crowded && !entrance.is_crowded {
            return Ok(());
        }
        let refused = |why| {
            let challenge = self.issue(sale, asked);
            Err(Refusal::ProofRequired(Box::new(ProofRequired { why, challenge })))
        };
        let Some(text) = entrance.proof else { return refused(ProofFault::Missing) };
        let id = &sale.definition.id;
        let answer = match proof_of_work::read(text, id, now, &self.parts.ring) {
            Ok(answer) => answer,
            Err(error) => return refused(ProofFault::Refused(error)),
        };
        if !self.checks.may_check(entrance.is_crowded) {
            return Err(Refusal::Busy);
        }
        let proof = match answer.check() {
            Ok(proof) => proof,
            Err(error) => return refused(ProofFault::Refused(error)),
        };
        match self.parts.store.spend(id, proof, account, now).await? {
            Spent::Counts => Ok(()),
            Spent::Used => refused(ProofFault::Used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crowded_networks_send_keeps_nobody_else_from_being_checked() {
        let checks = Checks::default();
        let crowded = (0..5_000).filter(|_| checks.may_check(true)).count();
        assert!(crowded < 5_000, "{crowded}");
        assert!(checks.may_check(false));
    }
}
