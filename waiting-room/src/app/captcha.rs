//! The CAPTCHA at the door: asked for, verified, and what is done while its provider is out of reach.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use lockgate_shared::{
    catalog::StoredSale, clock::Timestamp, edge::slots::Slots, ids::AccountHash, limits::ENTRY_KEY_BYTES_MIN,
    sale::EntryRule,
};
use tokio::sync::Semaphore;

use super::{App, Entrance, Who};
use crate::{
    captcha::{
        CALLS_MAX, CALLS_PER_NETWORK_MAX, Judgement, RESPONSE_BYTES_MAX, Settings, WhenUnreachable, Widget,
        outage::{Outage, Turn},
        passed::Passed,
        siteverify::{Captcha, SiteVerify},
    },
    refusal::{CaptchaFault, Refusal},
    snapshot::Snapshot,
    store::SeatState,
};

/// A CAPTCHA that is set up.
pub struct CaptchaDoor {
    captcha: Box<dyn Captcha>,
    widget: Arc<Widget>,
    when_unreachable: WhenUnreachable,
    send_address: bool,
    room: Semaphore,
    by_network: Arc<Slots>,
    outage: Mutex<Outage>,
    passed: Mutex<Passed>,
    /// Whether its last answer was of no use: said once.
    is_unusable: AtomicBool,
}

/// No widget gives this: it only tells whether the provider answers.
const TRIAL: &str = "trial";

impl CaptchaDoor {
    /// The door with these settings.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let Settings { provider, ref site_key, when_unreachable, send_address, .. } = *settings;
        Ok(Self {
            captcha: Box::new(SiteVerify::new(settings)?),
            widget: Arc::new(Widget { provider, site_key: site_key.clone() }),
            when_unreachable,
            send_address,
            room: Semaphore::new(CALLS_MAX),
            by_network: Slots::new(CALLS_PER_NETWORK_MAX),
            outage: Mutex::default(),
            passed: Mutex::default(),
            is_unusable: AtomicBool::new(false),
        })
    }

    /// What pages show.
    pub(crate) fn widget(&self) -> &Arc<Widget> {
        &self.widget
    }

    async fn judge(
        &self,
        response: &str,
        account: AccountHash,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<Judgement, Refusal> {
        if locked(&self.passed).knows(response, account, now) {
            return Ok(Judgement::Solved);
        }
        let must_try = locked(&self.outage).must_try(now);
        if must_try {
            self.try_provider().await;
        }
        if locked(&self.outage).is_on() {
            return Ok(Judgement::Unreachable(String::new()));
        }
        let judgement = self.call(response, address).await?;
        if judgement == Judgement::Solved {
            locked(&self.passed).note(response, account, now);
        }
        Ok(judgement)
    }

    async fn call(&self, response: &str, address: Option<IpAddr>) -> Result<Judgement, Refusal> {
        let _room = self.room.try_acquire().map_err(|_| Refusal::Busy)?;
        // This machine is a proxy that does not say for whom it speaks.
        let network = address.filter(|address| !address.is_loopback());
        let slot = network.map(|address| self.by_network.take(address).ok_or(Refusal::Busy));
        let _slot = slot.transpose()?;
        let judgement = self.captcha.verify(response, address.filter(|_| self.send_address)).await;
        let turn = locked(&self.outage).note_call(!matches!(judgement, Judgement::Unreachable(_)));
        self.log(turn, &judgement);
        Ok(judgement)
    }

    /// Asks the provider something that nobody chose, beside the calls that are bounded: what others fill with theirs
    /// says nothing of it.
    async fn try_provider(&self) {
        let judgement = self.captcha.verify(TRIAL, None).await;
        let turn = locked(&self.outage).note_try(!matches!(judgement, Judgement::Unreachable(_)));
        self.log(turn, &judgement);
    }

    fn log(&self, turn: Turn, judgement: &Judgement) {
        let provider = self.widget.provider;
        match (turn, judgement) {
            (Turn::Began, Judgement::Unreachable(why)) => {
                let policy = self.when_unreachable;
                tracing::error!(%provider, why, ?policy, "the CAPTCHA's provider is out of reach");
            }
            (Turn::Ended, _) => tracing::warn!(%provider, "the CAPTCHA's provider answers again"),
            _ => {}
        }
        let was_unusable =
            self.is_unusable.swap(matches!(judgement, Judgement::Unusable(_)), Ordering::Relaxed);
        if let (false, Judgement::Unusable(why)) = (was_unusable, judgement) {
            tracing::error!(%provider, why, "the CAPTCHA's provider cannot be used: nobody new enters");
        }
    }

    fn lets_in(&self) -> bool {
        self.when_unreachable == WhenUnreachable::LetIn && locked(&self.outage).is_on()
    }

    /// Whether whoever brings no response enters: while the provider is out of reach, its widget does not load either.
    async fn lets_in_without(&self, now: Timestamp) -> bool {
        if self.when_unreachable == WhenUnreachable::Refuse {
            return false;
        }
        // Where no page can show the widget, nobody else would find out that it cannot.
        let may_try = locked(&self.outage).may_try(now);
        if may_try {
            self.try_provider().await;
        }
        locked(&self.outage).is_on()
    }
}

impl App {
    /// What the sale page shows for people to solve, where a CAPTCHA is set up.
    pub(crate) fn widget(&self) -> Option<&Arc<Widget>> {
        self.captcha.as_ref().map(CaptchaDoor::widget)
    }

    /// Turns away whoever brings no response of the widget at all: before any work of theirs is used up.
    pub(super) async fn expect_captcha(&self, entrance: Entrance<'_>, now: Timestamp) -> Result<(), Refusal> {
        let Some(door) = &self.captcha else { return Ok(()) };
        if entrance.captcha.is_some() {
            return Ok(());
        }
        if door.lets_in_without(now).await {
            count("let_in");
            return Ok(());
        }
        count("missing");
        Err(Refusal::CaptchaRequired(CaptchaFault::Missing))
    }

    /// Lets through whoever has solved the widget.
    pub(super) async fn check_captcha(
        &self,
        sale: &StoredSale,
        snapshot: &Snapshot,
        entrance: Entrance<'_>,
        who: &Who,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let (Some(door), Some(response)) = (&self.captcha, entrance.captcha) else { return Ok(()) };
        let is_sound = response.len() <= RESPONSE_BYTES_MAX && response.bytes().all(|b| b.is_ascii_graphic());
        let judgement = if is_sound {
            door.judge(response, who.account, entrance.address, now).await?
        } else {
            Judgement::Refused
        };
        match judgement {
            Judgement::Solved => {
                count("solved");
                Ok(())
            }
            Judgement::Refused if self.has_place(sale, snapshot, entrance, who, now).await? => {
                count("has_place");
                Ok(())
            }
            Judgement::Refused => {
                count("refused");
                Err(Refusal::CaptchaRequired(CaptchaFault::Refused))
            }
            // Not for one call that failed: only while the provider is known to be out of reach.
            Judgement::Unreachable(_) if door.lets_in() => {
                count("let_in");
                Ok(())
            }
            Judgement::Unreachable(_) | Judgement::Unusable(_) => {
                count("unreachable");
                Err(Refusal::CaptchaUnreachable)
            }
        }
    }

    /// Whether the account has a place that entering would give back: it has been through this door, and asks again
    /// after a lost answer, with a response that the provider has seen before.
    async fn has_place(
        &self,
        sale: &StoredSale,
        snapshot: &Snapshot,
        entrance: Entrance<'_>,
        who: &Who,
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let is_named = sale.definition.entry != EntryRule::Open
            || entrance.entry_key.is_some_and(|key| key.len() >= ENTRY_KEY_BYTES_MIN);
        if !is_named {
            return Ok(false);
        }
        let seat = self.parts.store.seat(&sale.definition.id, who.lane, who.account).await?;
        Ok(seat.is_some_and(|seat| match seat.state {
            SeatState::Waiting => !snapshot.has_missed(who.lane, seat.seq),
            SeatState::Admitted(right) => right.expires_at > now,
            SeatState::Left => false,
        }))
    }
}

/// Everybody who came to a door with a CAPTCHA, by what became of it.
fn count(outcome: &'static str) {
    metrics::counter!("lockgate_captcha_total", "outcome" => outcome).increment(1);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
