//! One buyer: enter, wait, be admitted, claim; and all over again when it came to nothing.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rand::{RngExt as _, rngs::ChaCha8Rng};
use tokio::time::{sleep, timeout};

use super::{
    End, Hall,
    fate::{Held, Place, Shown},
};
use crate::{
    answer::{Admitted, Answer, Personal, State, right_of},
    figures::Kind,
    requests::{Ready, Requests},
};

/// How long somebody waits after silence, or where nothing is told, in milliseconds.
const PAUSE_MS: u64 = 1_000;
/// Longest somebody follows the public status without asking for their own.
const FOLLOW_SECONDS: u64 = 30;

/// A buyer.
pub(crate) struct Buyer<'a> {
    pub(super) hall: &'a Hall,
    pub(super) who: u32,
    pub(super) dice: ChaCha8Rng,
    claims: u32,
    wants: u32,
}

/// The present, in microseconds since the epoch.
pub(super) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl<'a> Buyer<'a> {
    pub(crate) fn new(hall: &'a Hall, who: u32, mut dice: ChaCha8Rng) -> Self {
        let wants = if dice.random_range(0.0..100.0) < hall.asked.shares.pairs { 2 } else { 1 };
        Self { hall, who, dice, claims: 0, wants }
    }

    /// Shops until there is an end to it.
    pub(crate) async fn shop(mut self) -> End {
        match self.until_over().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn until_over(&mut self) -> Result<Infallible, End> {
        loop {
            let ticket = self.enter().await?;
            if let Some(token) = self.turn(&ticket).await? {
                self.hall.count("admitted");
                self.spend(&token).await?;
            }
            self.hall.count("lined_up_again");
        }
    }

    /// Waits as told, and then up to half as long again, or everybody would come back together.
    pub(super) async fn rest(&mut self, told_ms: u64) {
        let all_ms = told_ms + self.dice.random_range(0..=told_ms / 2);
        sleep(Duration::from_millis(all_ms)).await;
    }

    /// One call, again after 429, 503 and silence.
    pub(super) async fn ask(&mut self, kind: Kind, request: impl Fn(&Requests) -> Ready) -> Answer {
        loop {
            let (answer, took) = self.hall.connections.timed(request(&self.hall.requests)).await;
            let kind = match &answer {
                Ok(answer) if kind == Kind::Claim && answer.status != 202 => Kind::ClaimRefused,
                _ => kind,
            };
            self.hall.account().figures.note(kind, &answer, took);
            let told_ms = match answer {
                Ok(answer) if !matches!(answer.status, 429 | 503) => return answer,
                Ok(answer) => match answer.retry_after_seconds {
                    Some(seconds) => u64::from(seconds) * 1_000,
                    None => {
                        self.hall.wrong(format!("{kind:?}: {} without Retry-After", answer.status));
                        PAUSE_MS
                    }
                },
                Err(_) => PAUSE_MS,
            };
            self.rest(told_ms).await;
        }
    }

    /// An answer that is none of the contract's.
    pub(super) fn wrong(&self, call: &str, words: &str) -> End {
        self.hall.wrong(format!("buyer {}: {call}: {words}", self.who));
        End::Wrong
    }

    /// The code of a refusal that the contract names for this call.
    pub(super) fn refusal(
        &self,
        call: &str,
        answer: &Answer,
        allowed: &[(u16, &str)],
    ) -> Result<String, End> {
        let problem = answer.problem().map_err(|words| self.wrong(call, &words))?;
        if allowed.contains(&(answer.status, &problem.code)) {
            return Ok(problem.code.into_owned());
        }
        Err(self.wrong(call, &format!("{} {}: {}", answer.status, problem.code, problem.detail)))
    }

    fn check_over(&self) -> Result<(), End> {
        let shown = self.hall.shown.borrow();
        if !shown.is_over() {
            return Ok(());
        }
        Err(if shown.phase == Some(crate::answer::Phase::Closed) { End::Closed } else { End::SoldOut })
    }

    /// Follows the public status until it shows what is waited for, or it is over, or for a while.
    async fn follow(&self, until: impl Fn(&Shown) -> bool) {
        let mut shown = self.hall.shown.subscribe();
        let seen = shown.wait_for(|shown| shown.is_over() || until(shown));
        let _ = timeout(Duration::from_secs(FOLLOW_SECONDS), seen).await;
    }

    async fn enter(&mut self) -> Result<String, End> {
        loop {
            self.check_over()?;
            let (hall, who) = (self.hall, self.who);
            let answer = self
                .ask(Kind::Enter, |requests| match hall.asked.codes.get(who as usize) {
                    Some((code, email)) => requests.enter_with_code(code, email),
                    None => requests.enter(Some(who), None),
                })
                .await;
            if matches!(answer.status, 200 | 201) {
                let place: Place<'_> = answer.json().map_err(|words| self.wrong("enter", &words))?;
                self.hall.count(if answer.status == 201 { "new_places" } else { "same_places" });
                return Ok(place.ticket.into_owned());
            }
            let code = self.refusal("enter", &answer, &[(409, "doors_closed"), (410, "sale_closed")])?;
            if code == "sale_closed" {
                return Err(End::Closed);
            }
            self.rest(answer.retry_after_seconds.map_or(PAUSE_MS, |seconds| u64::from(seconds) * 1_000))
                .await;
        }
    }

    /// Waits for the turn and takes it: the admission token, or none where the turn is lost.
    async fn turn(&mut self, ticket: &str) -> Result<Option<String>, End> {
        loop {
            self.check_over()?;
            let answer = self.ask(Kind::PersonalStatus, |requests| requests.personal_status(ticket)).await;
            if answer.status != 200 {
                return Err(self.wrong("status", &format!("{} {}", answer.status, answer.excerpt())));
            }
            let personal: Personal<'_> = answer.json().map_err(|words| self.wrong("status", &words))?;
            match (personal.state, personal.number) {
                (State::YourTurn | State::Admitted, _) => {}
                (State::TurnMissed | State::Left, _) => return Ok(None),
                (State::Closed, _) => return Err(End::Closed),
                (_, Some(number)) => {
                    self.follow(|shown| shown.now_serving >= number).await;
                    if self.hall.shown.borrow().now_serving < number {
                        continue;
                    }
                }
                (_, None) => {
                    self.rest(personal.poll_after_ms).await;
                    continue;
                }
            }
            match self.admit(ticket).await? {
                Admission::Token(token) => return Ok(Some(token)),
                Admission::Lost => return Ok(None),
                Admission::NotYet => {}
            }
        }
    }

    async fn admit(&mut self, ticket: &str) -> Result<Admission, End> {
        let answer = self.ask(Kind::Admit, |requests| requests.admit(ticket)).await;
        if answer.status == 200 {
            let admitted: Admitted<'_> = answer.json().map_err(|words| self.wrong("admit", &words))?;
            return Ok(Admission::Token(admitted.token.into_owned()));
        }
        let allowed = [
            (409, "not_your_turn"),
            (409, "sold_out"),
            (410, "turn_missed"),
            (410, "left"),
            (410, "sale_closed"),
        ];
        match self.refusal("admit", &answer, &allowed)?.as_str() {
            "turn_missed" | "left" => Ok(Admission::Lost),
            "sale_closed" => Err(End::Closed),
            // Units may return; what shows it comes with the board.
            "sold_out" => {
                self.follow(|shown| !shown.available.is_empty()).await;
                self.rest(PAUSE_MS).await;
                Ok(Admission::NotYet)
            }
            _ => {
                self.rest(answer.retry_after_seconds.map_or(PAUSE_MS, |seconds| u64::from(seconds) * 1_000))
                    .await;
                Ok(Admission::NotYet)
            }
        }
    }

    /// Claims until something is bought (which is an end) or the token is of no more use.
    async fn spend(&mut self, token: &str) -> Result<(), End> {
        let Some((_, expires)) = right_of(token) else {
            return Err(self.wrong("admit", "a token of no form"));
        };
        let hesitation_ms = self.dice.random_range(0..=self.hall.asked.plan.think_ms);
        sleep(Duration::from_millis(hesitation_ms)).await;
        while now_micros() / 1_000_000 < expires {
            self.check_over()?;
            let Some(item) = self.choose() else {
                self.follow(|shown| !shown.available.is_empty()).await;
                // Whoever sees that something came back does not see it in the same moment.
                self.rest(PAUSE_MS).await;
                continue;
            };
            let (number, wants) = ((self.who, self.claims), self.wants);
            let answer = self.ask(Kind::Claim, |requests| requests.claim(token, &item, wants, number)).await;
            if answer.status == 202 {
                self.claims += 1;
                let held: Held<'_> = answer.json().map_err(|words| self.wrong("checkout", &words))?;
                self.fulfil(&item, wants, &held).await?;
                continue;
            }
            if !self.goes_on(&answer).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a refused claim may be made again with the same token.
    async fn goes_on(&mut self, answer: &Answer) -> Result<bool, End> {
        let allowed = [
            (403, "token_expired"),
            (409, "sold_out"),
            (409, "limit_reached"),
            (409, "line_up_again"),
            (409, "in_progress"),
            (409, "not_open"),
        ];
        match self.refusal("checkout", answer, &allowed)?.as_str() {
            "token_expired" | "line_up_again" => return Ok(false),
            "not_open" => return Err(End::Closed),
            // The same claim is under way: the same key brings its answer.
            "in_progress" => {}
            _ => {
                self.claims += 1;
                self.wants = 1;
            }
        }
        self.rest(PAUSE_MS).await;
        Ok(true)
    }

    /// One of the items that are shown as available.
    fn choose(&mut self) -> Option<String> {
        let shown = self.hall.shown.borrow();
        let count = shown.available.len();
        (count > 0).then(|| shown.available[self.dice.random_range(0..count)].clone())
    }
}

enum Admission {
    Token(String),
    NotYet,
    Lost,
}
