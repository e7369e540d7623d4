//! Proof of work: challenges are given, solutions checked and used up.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    ids::AccountHash,
    proof_of_work::{Challenge, verify},
    sale::{ProofOfWork, ProofWhen},
};
use rand::RngExt as _;

use super::{App, Entrance};
use crate::{
    refusal::{ProofFault, ProofRequired, Refusal},
    store::Spent,
};

/// How many proofs may be checked.
pub(super) type Checks = DefaultDirectRateLimiter;

/// Most proofs one process checks in a second. One that is forged costs a MAC; one whose challenge is ours up to
/// a thousand iterations, a fraction of a millisecond.
const CHECKS_PER_SECOND_MAX: NonZeroU32 = NonZeroU32::MIN.saturating_add(3_999);

pub(super) fn checks() -> Checks {
    RateLimiter::direct(Quota::per_second(CHECKS_PER_SECOND_MAX))
}

/// What a sale that says nothing asks of networks above their limit, instead of turning everybody there away.
const OF_CROWDS: ProofOfWork = ProofOfWork { difficulty: 50_000, when: ProofWhen::Crowded };

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
        if self.checks.check().is_err() {
            return Err(Refusal::Busy);
        }
        let id = &sale.definition.id;
        let proof = match verify(text, id, now, &self.parts.ring) {
            Ok(proof) => proof,
            Err(error) => return refused(ProofFault::Refused(error)),
        };
        match self.parts.store.spend(id, proof, account, now).await? {
            Spent::Counts => Ok(()),
            Spent::Used => refused(ProofFault::Used),
        }
    }
}
