//! Why the line says no. A refusal is an answer, not a failure; only [`Refusal::Store`] is one.

use std::fmt;

use lockgate_shared::{
    clock::Timestamp,
    proof_of_work::{Challenge, ProofError},
    store::StoreError,
};

use crate::eligibility::NotEligible;

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such sale.
    #[error("there is no such sale")]
    NoSuchSale,
    /// People may not enter before this moment.
    #[error("the doors open at {0}")]
    DoorsClosed(Timestamp),
    /// The sale is over.
    #[error("the sale is over")]
    SaleClosed,
    /// Nothing can be claimed at this moment.
    #[error("the sale is sold out")]
    SoldOut,
    /// No ticket was shown.
    #[error("no ticket was shown")]
    TicketMissing,
    /// What was shown is no ticket of ours.
    #[error("the ticket does not verify")]
    TicketInvalid,
    /// The ticket is for another sale.
    #[error("the ticket is for another sale")]
    TicketWrongSale,
    /// No word of the shop's was shown that would let somebody in.
    #[error("no eligibility token was shown")]
    EligibilityMissing,
    /// The shop's word lets nobody in.
    #[error("the eligibility token is not accepted: {0}")]
    NotEligible(NotEligible),
    /// No code was shown, or no address with it.
    #[error("no code and e-mail address were shown")]
    CodeMissing,
    /// Code and address do not stand on the allowlist together. Which of them is wrong is said to nobody.
    #[error("code and e-mail address are not on the allowlist together")]
    NotListed,
    /// There is no allowlist to look at: it was never put there, or the store has lost it. That says nothing of the
    /// code.
    #[error("the sale's allowlist is not there")]
    NoList,
    /// The admission cannot last longer: the sale renews none, or it is over.
    #[error("the admission cannot be renewed")]
    NotRenewable,
    /// Work has to be done first.
    #[error("proof of work is required: {}", .0.why)]
    ProofRequired(Box<ProofRequired>),
    /// The CAPTCHA has to be solved first.
    #[error("the CAPTCHA is not solved: {0}")]
    CaptchaRequired(CaptchaFault),
    /// Whether it is solved cannot be found out, and the operator wants nobody let in without.
    #[error("the CAPTCHA cannot be verified")]
    CaptchaUnreachable,
    /// More proofs come than this process checks.
    #[error("too many are being checked")]
    Busy,
    /// The turn has not come.
    #[error("the turn has not come")]
    NotYourTurn {
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// The turn, or the right it became, has run out; or the account has a later place.
    #[error("the turn was missed")]
    TurnMissed,
    /// The place was given up.
    #[error("the place was given up")]
    Left,
    /// This process has just started and has not read the line yet.
    #[error("the line is being read")]
    Starting,
    /// The ticket's account asks too often.
    #[error("the account asks too often; again in {0} s")]
    TooOften(u32),
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The gate could not be told that an admission is given up, so nothing was freed.
    #[error("the admission could not be given up: {0}")]
    NotForfeited(String),
    /// A token could not be signed.
    #[error("a token could not be signed")]
    Signing,
}

/// What has to be done before entering, and why.
#[derive(Debug)]
pub struct ProofRequired {
    /// Why what was shown, if anything, does not do.
    pub why: ProofFault,
    /// What to solve.
    pub challenge: Challenge,
}

/// What is wrong with the proof that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofFault {
    /// There was none.
    Missing,
    /// It does not verify.
    Refused(ProofError),
    /// Somebody else entered by it.
    Used,
}

/// What is wrong with the response that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptchaFault {
    /// There was none.
    #[error("no response of the widget was sent")]
    Missing,
    /// The provider does not accept it.
    #[error("its provider does not accept the response: it is wrong, was used before, or has run out")]
    Refused,
}

impl fmt::Display for ProofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("this sale asks for one"),
            Self::Refused(error) => error.fmt(f),
            Self::Used => f.write_str("it was used before, and each counts once"),
        }
    }
}
