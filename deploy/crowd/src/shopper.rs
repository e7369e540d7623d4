//! PURE. One shopper as a small state machine: what is remembered, and how an answer is held against it.

use crate::{
    answer::{Personal, Phase, State, micros_of},
    board::Board,
    rules::{Rule, Verdict},
};

/// What a shopper does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something that is no proper request.
    Garbage(Garbage),
    /// Take a place.
    Enter,
    /// Ask where the place is.
    Status,
    /// Enter again with the ticket.
    EnterByTicket,
    /// Enter again with the same key and no ticket.
    EnterByKey,
    /// Ask for the admission token.
    Admit,
    /// Ask for it again.
    AdmitAgain,
    /// Give the place up.
    Leave,
    /// Ask after the end: the state must say what was done.
    LastStatus,
    /// Ask for a token after leaving.
    AdmitAfterLeaving,
    /// Claim a unit.
    Claim,
    /// Start the payment.
    Pay,
    /// Pay at the gateway.
    PayAtGateway,
    /// Look whether the order is paid.
    Order,
}

/// Requests that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// A ticket that is none.
    Ticket,
    /// A body with an unknown member.
    Body,
    /// A body of an unknown type.
    MediaType,
    /// No ticket where one is needed.
    NoTicket,
    /// A body above the bound.
    TooLarge,
    /// A sale that does not exist.
    NoSuchSale,
}

impl Garbage {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ticket, Self::Body, Self::MediaType, Self::NoTicket, Self::TooLarge, Self::NoSuchSale];

    /// What the contract answers.
    #[must_use]
    pub fn refused_as(self) -> (u16, &'static str) {
        match self {
            Self::Ticket => (403, "ticket_invalid"),
            Self::Body => (400, "malformed"),
            Self::MediaType => (415, "unsupported_media_type"),
            Self::NoTicket => (403, "ticket_missing"),
            Self::TooLarge => (413, "too_large"),
            Self::NoSuchSale => (404, "no_such_sale"),
        }
    }
}

/// How somebody behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Does as told.
    Faithful,
    /// Closes the browser at some point and never comes back.
    NoShow,
    /// Gives the place up after a while.
    Leaver,
    /// Polls and asks for admission all the time, whatever it is told.
    Impatient,
    /// Enters again and again.
    Reenterer,
    /// Uses ticket and admission again and again.
    Reuser,
    /// Sends garbage first.
    Garbler,
}

/// One shopper. Small, because there are a million.
#[derive(Debug)]
pub struct Shopper {
    /// The place in line as text.
    pub ticket: Option<Box<str>>,
    /// The shopper's own dice.
    pub dice: u64,
    /// The number; 0 before there is one.
    pub number: u64,
    /// People ahead when last told; the largest number before.
    ahead: u64,
    /// The largest snapshot an answer came from.
    snapshot: u64,
    /// Hash of the token's id; 0 before there is one.
    right: u64,
    /// When the token runs out, in seconds.
    right_expires: i64,
    /// When the place was taken, by the server's time in microseconds.
    entered_micros: i64,
    /// When the pending step is due, in milliseconds since the start.
    pub due_ms: u64,
    /// The how-many-eth to get a place.
    pub entered_order: u32,
    /// The how-many-eth to be admitted; 0 before.
    pub admitted_order: u32,
    /// What is done next, or being done.
    pub step: Step,
    /// The behaviour.
    pub habit: Habit,
    /// The state told last.
    pub state: Option<State>,
    /// Steps of the habit still to come.
    pub patience: u8,
    /// Failed or refused tries in a row.
    pub tries: u8,
    /// A token was asked for, or may have been given.
    pub asked_admit: bool,
    /// The place was given up, or may have been.
    pub asked_leave: bool,
}

impl Shopper {
    /// Somebody who has just arrived.
    #[must_use]
    pub fn new(habit: Habit, patience: u8, dice: u64) -> Self {
        let step = if habit == Habit::Garbler { Step::Garbage(Garbage::Ticket) } else { Step::Enter };
        Self {
            ticket: None,
            dice: dice | 1,
            number: 0,
            ahead: u64::MAX,
            snapshot: 0,
            right: 0,
            right_expires: 0,
            entered_micros: 0,
            due_ms: 0,
            entered_order: 0,
            admitted_order: 0,
            step,
            habit,
            state: None,
            patience,
            tries: 0,
            asked_admit: false,
            asked_leave: false,
        }
    }

    /// A throw of the shopper's own dice: 0..below.
    pub fn throw(&mut self, below: u64) -> u64 {
        // xorshift64*: small, and the same for the same seed whatever order answers come in.
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below.max(1)
    }

    /// Notes what the pending step may bring about, answered or not.
    pub fn asks(&mut self) {
        match self.step {
            Step::Admit | Step::AdmitAgain => self.asked_admit = true,
            Step::Leave => self.asked_leave = true,
            _ => {}
        }
    }

    /// Forgets the place, for a new one at the end.
    pub fn start_over(&mut self, entered_micros: i64) {
        self.number = 0;
        self.ahead = u64::MAX;
        self.snapshot = 0;
        (self.right, self.right_expires) = (0, 0);
        self.entered_micros = entered_micros;
        self.state = None;
        (self.asked_admit, self.asked_leave) = (false, false);
    }

    /// Holds a personal status against what is known, and remembers it. Answers from an older snapshot than one
    /// already seen are another process's and no news: a client keeps the largest.
    pub fn told(
        &mut self,
        who: u32,
        now: &Personal<'_>,
        board: &mut Board,
        now_ms: u64,
        verdict: &mut Verdict,
    ) {
        board.see(now.snapshot, now.now_serving, now_ms, verdict);
        self.check_number(who, now, board, verdict);
        check_wait(who, now, verdict);
        if now.snapshot < self.snapshot {
            return;
        }
        self.snapshot = now.snapshot;
        self.check_place(who, now, verdict);
        if let Some(number) = now.number {
            match now.state {
                State::YourTurn | State::Admitted => {
                    verdict.check(Rule::TurnAfterCall, number <= now.now_serving, || {
                        let (state, serving) = (now.state, now.now_serving);
                        format!("shopper {who}: {state:?} with number {number} at now_serving {serving}")
                    });
                    board.note_called(now.snapshot, number);
                }
                State::Waiting => {
                    verdict.check(Rule::CallIsTold, number > now.now_serving, || {
                        format!(
                            "shopper {who}: waiting with number {number} at now_serving {}",
                            now.now_serving
                        )
                    });
                    board.note_waiting(now.snapshot, number, who, verdict);
                }
                _ => {}
            }
        } else {
            verdict.check(Rule::TurnAfterCall, now.state != State::YourTurn, || {
                format!("shopper {who}: your_turn without a number")
            });
        }
        let (from, to) = (self.state, now.state);
        let allowed = from.is_none_or(|from| self.may_move(from, to));
        verdict.check(Rule::Edges, allowed, || format!("shopper {who}: {from:?} -> {to:?}"));
        self.state = Some(to);
    }

    fn check_number(&mut self, who: u32, now: &Personal<'_>, board: &mut Board, verdict: &mut Verdict) {
        let known = self.number;
        match now.number {
            Some(number) => {
                verdict.check(Rule::NumberFromOne, number >= 1, || format!("shopper {who}: number {number}"));
                if known == 0 {
                    let is_free = board.take_number(number);
                    verdict.check(Rule::NumberUnique, is_free, || {
                        format!("shopper {who} was given number {number}, which another shopper has")
                    });
                    let is_early = board.is_lottery && matches!(now.phase, Phase::DoorsOpen | Phase::Drawing);
                    verdict.check(Rule::NumberInTime, !is_early, || {
                        format!("shopper {who} was shown number {number} before the draw")
                    });
                    self.number = number;
                } else {
                    verdict.check(Rule::NumberFixed, number == known, || {
                        format!("shopper {who}: number {known}, then {number}")
                    });
                }
            }
            None if known > 0 && now.snapshot >= self.snapshot => {
                verdict.check(Rule::NumberFixed, now.state != State::Entered, || {
                    format!("shopper {who}: number {known}, then none")
                });
            }
            // From a process that is behind the one which answered before: no news, and no delay either.
            None if now.snapshot < self.snapshot => {}
            None => self.check_in_time(who, now, board, verdict),
        }
    }

    fn check_in_time(&self, who: u32, now: &Personal<'_>, board: &Board, verdict: &mut Verdict) {
        let Some(micros) = micros_of(&now.server_time) else { return };
        if now.state != State::Entered || board.is_lottery || self.entered_micros == 0 {
            return;
        }
        let waited = (micros - self.entered_micros) / 1_000;
        verdict.check(Rule::NumberInTime, waited <= NUMBER_MS_MAX, || {
            format!("shopper {who} has no number {waited} ms after entering")
        });
    }

    fn check_place(&mut self, who: u32, now: &Personal<'_>, verdict: &mut Verdict) {
        let Some(ahead) = now.people_ahead else { return };
        let known = self.ahead;
        verdict.check(Rule::AheadFalls, ahead <= known, || {
            format!("shopper {who}: {known} people ahead, then {ahead}")
        });
        self.ahead = ahead;
        let expected = now.number.map(|number| number.saturating_sub(1).saturating_sub(now.now_serving));
        verdict.check(Rule::AheadAddsUp, expected == Some(ahead), || {
            format!(
                "shopper {who}: number {:?} and now_serving {} with {ahead} people ahead",
                now.number, now.now_serving
            )
        });
    }

    /// Polls skip states, so an edge here is any way through the real ones.
    fn may_move(&self, from: State, to: State) -> bool {
        use State::{Admitted, Closed, Entered, Left, SoldOut, TurnMissed, Waiting, YourTurn};
        if from == to {
            return true;
        }
        match to {
            Left => self.asked_leave,
            Admitted => self.asked_admit && matches!(from, Entered | Waiting | YourTurn | SoldOut),
            Closed => from != Left,
            TurnMissed => !matches!(from, Left | Closed),
            YourTurn => matches!(from, Entered | Waiting) || (from == SoldOut && !self.asked_leave),
            Waiting => matches!(from, Entered | SoldOut),
            Entered => from == SoldOut && self.number == 0,
            SoldOut => matches!(from, Entered | Waiting | YourTurn),
        }
    }

    /// A token was given: the first is remembered, every later one must be the same right.
    pub fn given(&mut self, who: u32, id: &str, expires: i64, verdict: &mut Verdict) {
        let right = hash(id);
        if self.right != 0 {
            let known = self.right_expires;
            verdict.check(Rule::SameRight, right == self.right && expires == known, || {
                format!(
                    "shopper {who}: admitted again with another token id or expiry ({known}, then {expires})"
                )
            });
        }
        (self.right, self.right_expires) = (right, expires);
    }
}

/// The contract says two seconds; a stalled machine is forgiven some more.
const NUMBER_MS_MAX: i64 = 10_000;

fn check_wait(who: u32, now: &Personal<'_>, verdict: &mut Verdict) {
    let Some(wait) = now.wait_seconds else { return };
    let holds = wait.low <= wait.high && now.state == State::Waiting && now.phase == Phase::Open;
    verdict.check(Rule::WaitHonest, holds, || {
        format!(
            "shopper {who}: a wait of {}..{} s while {:?} in phase {:?}",
            wait.low, wait.high, now.state, now.phase
        )
    });
}

fn hash(text: &str) -> u64 {
    // FNV-1a: one id against another, no more.
    let folded = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    folded.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shopper_is_small() {
        // Beside it: the ticket (about 120 bytes) and one entry of the timers (16 bytes).
        assert!(size_of::<Shopper>() <= 128, "{} bytes", size_of::<Shopper>());
    }

    #[test]
    fn the_same_dice_fall_the_same() {
        let throws = |dice| {
            let mut shopper = Shopper::new(Habit::Faithful, 0, dice);
            (0..20).map(|_| shopper.throw(6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(9));
        assert!(throws(7).iter().all(|eye| *eye < 6));
    }

    #[test]
    fn an_older_snapshot_without_the_number_is_no_delay() {
        let mut shopper = Shopper::new(Habit::Faithful, 0, 1);
        let (mut board, mut verdict) = (Board::new(None), Verdict::default());
        let told = |snapshot: u64, number: Option<u64>, seconds: u64| Personal {
            sale: "test".into(),
            phase: Phase::Open,
            state: if number.is_some() { State::Waiting } else { State::Entered },
            snapshot,
            now_serving: 0,
            number,
            people_ahead: number.map(|number| number - 1),
            wait_seconds: None,
            turn_expires_at: None,
            poll_after_ms: 1_000,
            server_time: format!("2026-12-01T10:00:{seconds:02}.000Z").into(),
        };
        shopper.start_over(micros_of("2026-12-01T10:00:00.000Z").unwrap());
        for now in [told(3, None, 1), told(5, Some(9), 3), told(4, None, 30)] {
            shopper.told(0, &now, &mut board, 0, &mut verdict);
        }
        assert_eq!(verdict.broken_total(), 0);
        let mut late = Shopper::new(Habit::Faithful, 0, 1);
        late.start_over(micros_of("2026-12-01T10:00:00.000Z").unwrap());
        for now in [told(3, None, 1), told(5, None, 30)] {
            late.told(1, &now, &mut board, 0, &mut verdict);
        }
        assert_eq!(verdict.broken(Rule::NumberInTime), 1);
    }

    #[test]
    fn states_move_one_way() {
        let mut shopper = Shopper::new(Habit::Faithful, 0, 1);
        use State::{Admitted, Closed, Entered, Left, SoldOut, TurnMissed, Waiting, YourTurn};
        for (from, to) in [
            (Entered, YourTurn),
            (Waiting, SoldOut),
            (SoldOut, Waiting),
            (YourTurn, TurnMissed),
            (Admitted, Closed),
        ] {
            assert!(shopper.may_move(from, to), "{from:?} -> {to:?}");
        }
        for (from, to) in [
            (YourTurn, Waiting),
            (Waiting, Entered),
            (TurnMissed, YourTurn),
            (Admitted, YourTurn),
            (Closed, Waiting),
            (Waiting, Left),
            (YourTurn, Admitted),
        ] {
            assert!(!shopper.may_move(from, to), "{from:?} -> {to:?}");
        }
        (shopper.asked_admit, shopper.asked_leave) = (true, true);
        assert!(shopper.may_move(YourTurn, Admitted) && shopper.may_move(Admitted, Left));
        assert!(!shopper.may_move(Left, Closed), "given up stays given up");
    }
}
