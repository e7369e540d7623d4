//! PURE. What a shopper makes of an answer: every check, and the next step. The way through buying is in `buy.rs`.

use std::collections::HashMap;

use crate::{
    answer::{Admitted, Answer, Entered, Personal, State, micros_of, right_of},
    board::Board,
    buy::{self, Purchase},
    rules::{Rule, Verdict},
    shopper::{Garbage, Habit, Shopper, Step},
};

/// What everybody's walk needs: the crowd's knowledge and manners.
pub struct Scene<'a> {
    /// Which shopper.
    pub who: u32,
    /// Milliseconds since the start.
    pub now_ms: u64,
    /// What the crowd knows.
    pub board: &'a mut Board,
    /// What was found.
    pub verdict: &'a mut Verdict,
    /// How people behave here.
    pub manners: &'a Manners,
    /// What people are buying.
    pub purchases: &'a mut HashMap<u32, Purchase>,
    /// People who have got a place so far.
    pub entered: &'a mut u32,
    /// People who were admitted so far.
    pub admitted: &'a mut u32,
}

/// How people behave in this run.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Whoever has a number follows the public status and asks for their own only when called.
    pub follows_public_status: bool,
    /// Whoever is admitted buys.
    pub buys: bool,
    /// The longest anybody hesitates when called or admitted, in milliseconds.
    pub think_ms_max: u64,
    /// The sale, to compare answers with.
    pub sale: String,
    /// `host:port` of the target, to know a page of its own.
    pub authority: String,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A step, after so many milliseconds.
    After(u64, Step),
    /// Nothing until the board reaches the number.
    WhenCalled,
    /// Nothing any more.
    Done(End),
}

/// How a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Closed the browser.
    Gone,
    /// Gave the place up.
    Left,
    /// Came too late.
    Missed,
    /// Found nothing left.
    SoldOut,
    /// The sale was over.
    Closed,
    /// Was admitted, and bought nothing.
    Admitted,
    /// Bought and paid.
    Bought,
    /// Was refused.
    Refused,
}

/// Longest wait anybody accepts to be told, in milliseconds.
const WAIT_MS_CAP: u64 = 60_000;
/// Shortest wait of an obedient shopper between two polls, in milliseconds.
const POLL_MS_MIN: u64 = 100;
/// Tries after which a state that another process may not know yet counts as wrong.
const LAG_TRIES_MAX: u8 = 6;
/// Time between two looks at what another process may not know yet, in milliseconds: with all tries three seconds.
const LOOK_AGAIN_MS: u64 = 500;
/// Longest credential of the contract, in bytes.
const TICKET_BYTES_MAX: usize = 2_048;

impl Shopper {
    /// Takes an answer to the pending step.
    pub fn take(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        match self.step {
            Step::Garbage(kind) => self.after_garbage(kind, answer, scene),
            Step::Enter | Step::EnterByTicket | Step::EnterByKey => self.after_enter(answer, scene),
            Step::Status => match self.read_status(answer, scene) {
                Ok(poll_after_ms) => self.as_told(poll_after_ms, scene),
                Err(next) => next,
            },
            Step::LastStatus => self.after_last_status(answer, scene),
            Step::Admit | Step::AdmitAgain => self.after_admit(answer, scene),
            Step::Leave => self.after_leave(answer, scene),
            Step::AdmitAfterLeaving => self.after_all(answer, scene),
            Step::Claim | Step::Pay | Step::PayAtGateway | Step::Order => buy::take(self, answer, scene),
        }
    }

    /// No answer came; what was asked may have happened.
    pub fn missed_answer(&mut self) -> Next {
        self.retry(0)
    }

    /// The pending step again: as late as told, at least a little later each time, and spread.
    pub(crate) fn retry(&mut self, told_ms: u64) -> Next {
        self.tries = self.tries.saturating_add(1);
        let own = 250u64 << self.tries.min(6);
        let wait = told_ms.max(own).min(WAIT_MS_CAP);
        // The jitter comes after the cap: otherwise everybody at the cap would come back together.
        Next::After(wait + self.throw(wait / 2 + 1), self.step)
    }

    /// The pending step again, a moment later: another process may not know yet what was done.
    fn look_again(&mut self) -> Option<Next> {
        self.tries = self.tries.saturating_add(1);
        let wait = LOOK_AGAIN_MS * 4 / 5 + self.throw(LOOK_AGAIN_MS * 2 / 5);
        (self.tries <= LAG_TRIES_MAX).then_some(Next::After(wait, self.step))
    }

    fn after_garbage(&mut self, kind: Garbage, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        let (status, code) = kind.refused_as();
        let refused = Refused::read(answer, &[(status, code)], scene, "garbage");
        scene.verdict.check(Rule::GarbageRefused, refused.is_known, || {
            format!("{kind:?}: expected {status} {code}: {} {}", answer.status, answer.excerpt())
        });
        let at = Garbage::ALL.iter().position(|other| *other == kind).unwrap_or(0);
        let next = Garbage::ALL.get(at + 1).map_or(Step::Enter, |kind| Step::Garbage(*kind));
        Next::After(self.throw(200), next)
    }

    fn after_enter(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        if !matches!(answer.status, 200 | 201) {
            let allowed =
                [(409, "doors_closed"), (410, "sale_closed"), (403, "proof_required"), (403, "not_eligible")];
            let refused = Refused::read(answer, &allowed, scene, "enter");
            return match refused.code.as_str() {
                "doors_closed" => self.retry(2_000),
                "sale_closed" => Next::Done(End::Closed),
                _ if refused.is_transient => self.retry(refused.told_ms),
                _ => Next::Done(End::Refused),
            };
        }
        let entered: Entered<'_> = match answer.json() {
            Ok(entered) => entered,
            Err(words) => {
                scene.verdict.check(Rule::Shape, false, || format!("enter: {words}"));
                return Next::Done(End::Refused);
            }
        };
        self.check_entered(answer.status == 201, &entered, scene);
        check_private(answer, "enter", scene);
        self.tries = 0;
        self.ticket = Some(entered.ticket.as_ref().into());
        if self.entered_order == 0 {
            *scene.entered += 1;
            self.entered_order = *scene.entered;
        }
        self.told(scene.who, &entered.status, scene.board, scene.now_ms, scene.verdict);
        if self.admitted_order > 0 && self.state == Some(State::Admitted) {
            return Next::After(self.throw(200), Step::AdmitAgain);
        }
        self.as_told(entered.status.poll_after_ms, scene)
    }

    fn check_entered(&mut self, is_new: bool, entered: &Entered<'_>, scene: &mut Scene<'_>) {
        let who = scene.who;
        let ok = !entered.ticket.is_empty() && entered.ticket.len() <= TICKET_BYTES_MAX;
        scene
            .verdict
            .check(Rule::Shape, ok, || format!("shopper {who}: a ticket of {} bytes", entered.ticket.len()));
        check_personal(&entered.status, scene);
        let had_place = self.ticket.is_some();
        // Whoever was called may have missed the turn by now, and whoever left has no place to get back.
        let may_be_new =
            !had_place || self.asked_leave || (self.number != 0 && self.number <= scene.board.now_serving);
        let same = entered.status.number.is_none_or(|number| self.number == 0 || number == self.number);
        let first_is_new = had_place || is_new || self.tries > 0;
        let holds = if is_new { may_be_new } else { same && first_is_new };
        let (number, had) = (self.number, if had_place { "a place" } else { "none" });
        scene.verdict.check(Rule::OnePlace, holds, || {
            format!(
                "shopper {who} had {had} with number {number} and entered: {} place with number {:?}",
                if is_new { "a new" } else { "the same" },
                entered.status.number
            )
        });
        if is_new {
            self.start_over(micros_of(&entered.status.server_time).unwrap_or(0));
        }
    }

    /// A personal status, read and checked: when to ask again.
    fn read_status(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Result<u64, Next> {
        if answer.status != 200 {
            let refused = Refused::read(answer, &[], scene, "status");
            return Err(if refused.is_transient {
                self.after_busy(refused.told_ms)
            } else {
                Next::Done(End::Refused)
            });
        }
        check_private(answer, "status", scene);
        let personal: Personal<'_> = match answer.json() {
            Ok(personal) => personal,
            Err(words) => {
                scene.verdict.check(Rule::Shape, false, || format!("status: {words}"));
                return Err(Next::Done(End::Refused));
            }
        };
        check_personal(&personal, scene);
        self.told(scene.who, &personal, scene.board, scene.now_ms, scene.verdict);
        Ok(personal.poll_after_ms)
    }

    /// The impatient do not hear Retry-After.
    fn after_busy(&mut self, told_ms: u64) -> Next {
        if self.habit == Habit::Impatient && self.patience > 0 {
            self.patience -= 1;
            return Next::After(50 + self.throw(200), self.step);
        }
        self.retry(told_ms)
    }

    /// What to do in the state just told.
    fn as_told(&mut self, poll_after_ms: u64, scene: &mut Scene<'_>) -> Next {
        self.tries = 0;
        let gives_up = self.state == Some(State::SoldOut) && self.throw(2) == 0;
        match self.state {
            Some(State::YourTurn) => match self.habit {
                Habit::NoShow => Next::Done(End::Gone),
                Habit::Leaver => Next::After(self.throw(500), Step::Leave),
                _ => Next::After(self.throw(scene.manners.think_ms_max), Step::Admit),
            },
            Some(State::Admitted) => Next::After(self.throw(200), Step::AdmitAgain),
            Some(State::TurnMissed) => Next::Done(End::Missed),
            Some(State::Left) => Next::Done(End::Left),
            Some(State::Closed) => Next::Done(End::Closed),
            Some(State::SoldOut) if gives_up => Next::Done(End::SoldOut),
            _ => self.while_waiting(poll_after_ms, scene),
        }
    }

    fn while_waiting(&mut self, poll_after_ms: u64, scene: &mut Scene<'_>) -> Next {
        let has_patience = self.patience > 0;
        self.patience = self.patience.saturating_sub(1);
        match self.habit {
            Habit::NoShow if !has_patience => return Next::Done(End::Gone),
            Habit::Leaver if !has_patience => return Next::After(self.throw(500), Step::Leave),
            Habit::Impatient if has_patience => {
                let step = if self.throw(3) == 0 { Step::Admit } else { Step::Status };
                return Next::After(50 + self.throw(200), step);
            }
            Habit::Reenterer if has_patience => {
                let step = if self.throw(2) == 0 { Step::EnterByTicket } else { Step::EnterByKey };
                return Next::After(self.throw(500), step);
            }
            _ => {}
        }
        let waits = self.state == Some(State::Waiting) && self.number > 0;
        if scene.manners.follows_public_status && waits {
            return Next::WhenCalled;
        }
        let wait = poll_after_ms.clamp(POLL_MS_MIN, WAIT_MS_CAP);
        Next::After(wait + self.throw(wait / 10 + 1), Step::Status)
    }

    fn after_admit(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        if answer.status != 200 {
            return self.not_admitted(answer, scene);
        }
        check_private(answer, "admit", scene);
        let who = scene.who;
        let admitted = answer.json::<Admitted<'_>>().and_then(|admitted| {
            let right = right_of(&admitted.token).filter(|(_, expires)| {
                admitted.token_type == "Bearer"
                    && !admitted.checkout_url.is_empty()
                    && micros_of(&admitted.expires_at) == Some(expires * 1_000_000)
            });
            right
                .map(|right| (admitted.token.into_owned(), right))
                .ok_or_else(|| "the token does not fit".to_owned())
        });
        let (token, (id, expires)) = match admitted {
            Ok(admitted) => admitted,
            Err(words) => {
                scene.verdict.check(Rule::Shape, false, || format!("admit: {words}"));
                return Next::Done(End::Refused);
            }
        };
        self.given(who, &id, expires, scene.verdict);
        if self.number > 0 {
            scene.board.note_token(self.number, scene.now_ms, scene.verdict);
        }
        self.tries = 0;
        if self.admitted_order == 0 {
            *scene.admitted += 1;
            self.admitted_order = *scene.admitted;
        }
        let again = matches!(self.habit, Habit::Reuser | Habit::Reenterer | Habit::Impatient);
        if again && self.patience > 0 {
            self.patience = self.patience.saturating_sub(1).min(4);
            let step = if self.habit == Habit::Reenterer { Step::EnterByTicket } else { Step::AdmitAgain };
            return Next::After(self.throw(300), step);
        }
        if scene.manners.buys {
            scene.purchases.insert(who, Purchase::new(token));
            return Next::After(self.throw(scene.manners.think_ms_max), Step::Claim);
        }
        Next::After(self.throw(300), Step::LastStatus)
    }

    fn not_admitted(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        let allowed = [
            (409, "not_your_turn"),
            (409, "sold_out"),
            (410, "turn_missed"),
            (410, "left"),
            (410, "sale_closed"),
        ];
        let refused = Refused::read(answer, &allowed, scene, "admit");
        let who = scene.who;
        match refused.code.as_str() {
            "not_your_turn" => {
                scene.verdict.check(Rule::RetryAfter, answer.retry_after_seconds.is_some(), || {
                    format!("shopper {who}: not_your_turn without Retry-After")
                });
                if self.state != Some(State::YourTurn) {
                    return Next::After(
                        if self.habit == Habit::Impatient { 50 } else { refused.told_ms },
                        Step::Status,
                    );
                }
                // Another process may not have seen the call yet; soon it has.
                let may_lag = self.tries < LAG_TRIES_MAX;
                scene.verdict.check(Rule::CallIsTold, may_lag, || {
                    format!("shopper {who}: your_turn, but never admitted: not_your_turn")
                });
                if may_lag { self.retry(0) } else { Next::Done(End::Refused) }
            }
            "left" => {
                scene
                    .verdict
                    .check(Rule::Edges, self.asked_leave, || format!("shopper {who} never left: 410 left"));
                Next::Done(End::Left)
            }
            "turn_missed" => Next::Done(End::Missed),
            "sold_out" => Next::After(self.throw(1_000) + 1_000, Step::Status),
            "sale_closed" => Next::Done(End::Closed),
            _ if refused.is_transient => self.after_busy(refused.told_ms),
            _ => Next::Done(End::Refused),
        }
    }

    fn after_leave(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        if answer.status == 204 {
            self.tries = 0;
            if self.admitted_order > 0 {
                return Next::Done(End::Admitted);
            }
            return Next::After(self.throw(300), Step::LastStatus);
        }
        let refused = Refused::read(answer, &[], scene, "leave");
        if refused.is_transient { self.retry(refused.told_ms) } else { Next::Done(End::Refused) }
    }

    /// What was done must show: left after leaving, admitted after being admitted.
    fn after_last_status(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        if let Err(next) = self.read_status(answer, scene) {
            return next;
        }
        let (who, state) = (scene.who, self.state);
        let shows = match state {
            Some(State::Left) => self.asked_leave,
            // Ran out, or over, since.
            Some(State::Admitted | State::TurnMissed | State::Closed) => !self.asked_leave,
            _ => false,
        };
        if !shows && let Some(next) = self.look_again() {
            return next;
        }
        let did = if self.asked_leave { "left" } else { "was admitted" };
        scene.verdict.check(Rule::Edges, shows, || format!("shopper {who} {did}, and is still {state:?}"));
        self.tries = 0;
        if self.asked_leave { Next::After(0, Step::AdmitAfterLeaving) } else { Next::After(0, Step::Leave) }
    }

    fn after_all(&mut self, answer: &Answer, scene: &mut Scene<'_>) -> Next {
        let who = scene.who;
        // What a process says that goes by the line and has not heard of the leaving.
        let is_lag = answer
            .problem()
            .is_ok_and(|problem| matches!(problem.code.as_ref(), "not_your_turn" | "sold_out"));
        if is_lag && let Some(next) = self.look_again() {
            return next;
        }
        let refused =
            Refused::read(answer, &[(410, "left"), (410, "sale_closed")], scene, "admit after leaving");
        if refused.is_transient {
            return self.retry(refused.told_ms);
        }
        scene.verdict.check(Rule::Edges, refused.is_known, || {
            format!("shopper {who} left, and is answered {} {}", answer.status, answer.excerpt())
        });
        Next::Done(End::Left)
    }
}

/// A refusal, read and checked.
pub(crate) struct Refused {
    pub(crate) code: String,
    /// It is one of those the contract names for the call.
    pub(crate) is_known: bool,
    /// Busy: the same again later.
    pub(crate) is_transient: bool,
    /// How long it says to wait.
    pub(crate) told_ms: u64,
}

impl Refused {
    pub(crate) fn read(answer: &Answer, allowed: &[(u16, &str)], scene: &mut Scene<'_>, call: &str) -> Self {
        let is_transient = matches!(answer.status, 429 | 503);
        if is_transient {
            scene.verdict.check(Rule::RetryAfter, answer.retry_after_seconds.is_some(), || {
                format!("{call}: {} without Retry-After", answer.status)
            });
        }
        let code = match answer.problem() {
            Ok(problem) => problem.code.into_owned(),
            Err(words) if answer.status >= 400 => {
                scene.verdict.check(Rule::Shape, false, || format!("{call}: {words}"));
                String::new()
            }
            Err(_) => String::new(),
        };
        let is_known = allowed.iter().any(|(status, name)| *status == answer.status && *name == code);
        scene.verdict.check(Rule::Contract, is_known || is_transient, || {
            format!("{call}: {} {}", answer.status, answer.excerpt())
        });
        let told_ms = u64::from(answer.retry_after_seconds.unwrap_or(1)) * 1_000;
        Self { code, is_known, is_transient, told_ms }
    }
}

fn check_private(answer: &Answer, call: &str, scene: &mut Scene<'_>) {
    let holds = answer.cache.no_store && !answer.cache.public;
    scene
        .verdict
        .check(Rule::Private, holds, || format!("{call}: Cache-Control allows to keep a personal answer"));
    scene.verdict.check(Rule::Contract, true, String::new);
}

/// What every personal status must be whoever asks.
fn check_personal(now: &Personal<'_>, scene: &mut Scene<'_>) {
    let who = scene.who;
    let fits = now.sale == scene.manners.sale
        && (1..=600_000).contains(&now.poll_after_ms)
        && micros_of(&now.server_time).is_some()
        && now.turn_expires_at.as_deref().is_none_or(|text| micros_of(text).is_some());
    scene.verdict.check(Rule::Shape, fits, || {
        format!(
            "shopper {who}: sale {}, poll_after_ms {}, server_time {}",
            now.sale, now.poll_after_ms, now.server_time
        )
    });
}

#[cfg(test)]
mod tests;
