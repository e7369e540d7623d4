//! The waiting room: one method per verb. Reads the clock and the random generator, so that nothing below does.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;
use lockgate_shared::{
    admission_token::{Admission, AdmissionToken},
    catalog::{Catalog, StoredSale},
    clock::{Clock, Timestamp},
    edge::{rate_limit::AccountLimit, settings::ACCOUNT_LIMIT},
    events::EventLog,
    gate::GateClient,
    ids::{AccountHash, SaleId},
    keys::KeyRing,
    limits::ENTRY_KEY_BYTES_MIN,
    operator::OperatorKeys,
    sale::{EntryRule, SaleProblem},
    store::StoreError,
    ticket::Ticket,
};
use rand::RngExt as _;

use crate::{
    allowlist::listed,
    answers::{Admitted, PersonalStatus, Place, personal_status, standing, told},
    calls::Calls,
    eligibility::Verifier,
    phase::Phase,
    place::State,
    refusal::Refusal,
    snapshot::{LiveSale, Snapshot},
    store::{
        EmailHash, EnterAnswer, Entered, Entry, Listed, Redeemed, Redemption, Right, Seat, SeatState, Store,
    },
};

mod captcha;
mod draw;
mod hashes;
mod leave;
mod proof;
mod renewal;

use self::hashes::token_id;
pub(crate) use self::hashes::{account_hash, keyed_hash, lane_of};
pub(crate) use self::proof::DIFFICULTY;
pub use self::{captcha::CaptchaDoor, draw::DrawRefusal};

/// Reads an environment variable.
pub type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the waiting room is made of.
pub struct AppParts {
    /// The sales.
    pub catalog: Arc<Catalog>,
    /// The line.
    pub store: Arc<dyn Store>,
    /// The keys that sign tickets and tokens.
    pub ring: Arc<KeyRing>,
    /// The stock gate: asked for counts, and told of admissions that are given up.
    pub gate: GateClient,
    /// What happened at the gate: who has bought.
    pub events: Arc<dyn EventLog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The address shoppers use, without a slash at its end.
    pub public_url: String,
    /// Who may see and change sales.
    pub operator_keys: Arc<OperatorKeys>,
    /// This process among all: holder of leases.
    pub process_id: String,
}

/// The waiting room.
pub struct App {
    pub(crate) parts: AppParts,
    environment: Environment,
    pub(crate) calls: Calls,
    checks: proof::Checks,
    live: ArcSwap<HashMap<SaleId, Arc<LiveSale>>>,
    accounts: Arc<AccountLimit>,
    captcha: Option<CaptchaDoor>,
}

/// The ticket somebody shows.
#[derive(Clone, Copy, Debug)]
pub enum ShownTicket<'a> {
    /// In `Authorization`: meant, so it must verify.
    Bearer(&'a str),
    /// In a cookie, which the shopper cannot take away: one that does not verify lets them enter anew.
    Cookie(&'a str),
}

/// What somebody brings to the door.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entrance<'a> {
    /// The ticket they have already.
    pub ticket: Option<ShownTicket<'a>>,
    /// The shop's word for them.
    pub eligibility: Option<&'a str>,
    /// A code of the sale's allowlist.
    pub code: Option<&'a str>,
    /// The e-mail address that goes with the code.
    pub email: Option<&'a str>,
    /// The key under which a lost answer may be asked for again.
    pub entry_key: Option<&'a str>,
    /// The work that was done, if any.
    pub proof: Option<&'a str>,
    /// What the CAPTCHA's widget gave, if any.
    pub captcha: Option<&'a str>,
    /// The address they come from.
    pub address: Option<IpAddr>,
    /// Whether their network is above its limit.
    pub is_crowded: bool,
}

/// An account and where its place is.
struct Who {
    account: AccountHash,
    lane: u16,
    ticket: Option<Ticket>,
    listed_as: Option<EmailHash>,
}

/// Whom the entry rule names.
struct Named {
    /// The account; `None` for one that is made up.
    account: Option<AccountHash>,
    listed_as: Option<EmailHash>,
}

impl App {
    /// The waiting room over these parts. Eligibility secrets are read from the process's environment.
    #[must_use]
    pub fn new(parts: AppParts) -> Self {
        Self::with_environment(parts, Box::new(|name| std::env::var(name).ok()))
    }

    /// The waiting room, reading eligibility secrets from `environment`.
    #[must_use]
    pub fn with_environment(parts: AppParts, environment: Environment) -> Self {
        let accounts = Arc::new(AccountLimit::new(Some(ACCOUNT_LIMIT)));
        Self {
            parts,
            environment,
            calls: Calls::default(),
            checks: proof::Checks::default(),
            live: ArcSwap::default(),
            accounts,
            captcha: None,
        }
    }

    /// The same, holding each account to `accounts`, which others may share.
    #[must_use]
    pub fn with_account_limit(self, accounts: Arc<AccountLimit>) -> Self {
        Self { accounts, ..self }
    }

    /// The same, with a CAPTCHA at the door, if there is one.
    #[must_use]
    pub fn with_captcha(self, captcha: Option<CaptchaDoor>) -> Self {
        Self { captcha, ..self }
    }

    /// Whether the store answers, and every line was read.
    ///
    /// # Errors
    /// Not, or not yet.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.parts.store.ping().await?;
        match self.parts.catalog.sales().iter().find(|sale| !self.live(sale).is_known()) {
            Some(sale) => {
                let id = &sale.definition.id;
                Err(StoreError::untouched("ready", format!("the line of '{id}' has not been read yet")))
            }
            None => Ok(()),
        }
    }

    /// The sale with this id.
    ///
    /// # Errors
    /// There is none.
    pub fn sale(&self, id: &SaleId) -> Result<Arc<StoredSale>, Refusal> {
        self.parts.catalog.sale(id).ok_or(Refusal::NoSuchSale)
    }

    /// What this process keeps of a sale.
    #[must_use]
    pub fn live(&self, sale: &Arc<StoredSale>) -> Arc<LiveSale> {
        let id = &sale.definition.id;
        if let Some(live) = self.live.load().get(id) {
            return Arc::clone(live);
        }
        let (verifier, widget) = (self.verifier(sale), self.widget().map(Arc::clone));
        let fresh = Arc::new(LiveSale::new(Arc::clone(sale), verifier, widget, self.parts.clock.now()));
        self.live.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(id.clone()).or_insert_with(|| Arc::clone(&fresh));
            known
        });
        self.live.load().get(id).map_or(fresh, Arc::clone)
    }

    /// The sale as everybody sees it.
    ///
    /// # Errors
    /// It has not been read yet.
    pub fn board(&self, sale: &Arc<StoredSale>) -> Result<Arc<Snapshot>, Refusal> {
        known(&self.live(sale))
    }

    /// The sale's eligibility keys, ready; what is wrong with them is logged.
    pub(crate) fn verifier(&self, sale: &StoredSale) -> Arc<Verifier> {
        let (verifier, problems) = Verifier::new(&sale.definition.eligibility_keys, &self.environment);
        for problem in problems {
            tracing::error!(sale = %sale.definition.id, %problem, "an eligibility key cannot be used");
        }
        Arc::new(verifier)
    }

    /// What is wrong with the eligibility keys of a definition, seen from this process.
    pub(crate) fn key_problems(
        &self,
        definition: &lockgate_shared::sale::SaleDefinition,
    ) -> Vec<SaleProblem> {
        Verifier::new(&definition.eligibility_keys, &self.environment).1
    }

    /// Reads a ticket for this sale.
    fn ticket(&self, sale: &StoredSale, text: &str) -> Result<Ticket, Refusal> {
        let ticket = Ticket::verify(text, &self.parts.ring).map_err(|_| Refusal::TicketInvalid)?;
        if ticket.sale != sale.definition.id {
            return Err(Refusal::TicketWrongSale);
        }
        if ticket.lane >= sale.definition.lanes {
            return Err(Refusal::TicketInvalid);
        }
        Ok(ticket)
    }

    /// **enter**: gives somebody their place, by one store call that carries all who enter the lane at this moment.
    ///
    /// # Errors
    /// Why they may not enter.
    pub async fn enter(&self, sale: &Arc<StoredSale>, entrance: Entrance<'_>) -> Result<Place, Refusal> {
        let now = self.parts.clock.now();
        let live = self.live(sale);
        let snapshot = known(&live)?;
        match crate::phase::phase(&sale.definition, &sale.controls, None, false, now) {
            Phase::Scheduled => return Err(Refusal::DoorsClosed(sale.definition.doors_open_at)),
            Phase::Closed => return Err(Refusal::SaleClosed),
            _ => {}
        }
        let who = self.who(sale, &snapshot, entrance, now)?;
        // A ticket has paid for its place already.
        if who.ticket.is_none() {
            self.expect_captcha(entrance, now).await?;
            self.check_proof(sale, entrance, who.account, now).await?;
            self.check_captcha(sale, &snapshot, entrance, &who, now).await?;
        }
        let ticket_seq = who.ticket.as_ref().map(|ticket| ticket.seq);
        let missed_seq = ticket_seq.filter(|seq| snapshot.has_missed(who.lane, *seq));
        let entry = Entry { account: who.account, ticket_seq, missed_seq, listed_as: who.listed_as };
        let id = &sale.definition.id;
        let entered = self.take_place(&live, id, who.lane, entry).await?;
        let entered_at = who
            .ticket
            .filter(|ticket| ticket.seq == entered.seat.seq)
            .map_or(now, |ticket| ticket.entered_at);
        let ticket = Ticket {
            sale: id.clone(),
            lane: who.lane,
            seq: entered.seat.seq,
            account: who.account,
            entered_at,
        };
        let status = personal_status(&live, &snapshot, &ticket, Some(&entered.seat), now);
        Ok(Place { ticket: ticket.sign(&self.parts.ring), fresh: entered.fresh, status })
    }

    /// One store call; a second one for whoever comes back, without a ticket that says so, to a place in a pool whose
    /// turn has passed: drawn numbers do not rise with places, so nothing could tell the store beforehand.
    async fn take_place(
        &self,
        live: &Arc<LiveSale>,
        id: &SaleId,
        lane: u16,
        entry: Entry,
    ) -> Result<Entered, Refusal> {
        let found = self.ask_for_place(live, id, lane, entry.clone()).await?;
        // By what is known now: the call may have waited its turn while the board moved on.
        if found.seat.state != SeatState::Waiting || !live.snapshot().has_missed(lane, found.seat.seq) {
            return Ok(found);
        }
        self.ask_for_place(live, id, lane, Entry { missed_seq: Some(found.seat.seq), ..entry }).await
    }

    async fn ask_for_place(
        &self,
        live: &Arc<LiveSale>,
        id: &SaleId,
        lane: u16,
        entry: Entry,
    ) -> Result<Entered, Refusal> {
        match self.calls.enter(&self.parts, live, id, lane, entry).await? {
            EnterAnswer::Entered(entered) => Ok(entered),
            EnterAnswer::NotListed => Err(Refusal::NotListed),
            EnterAnswer::NoList => Err(Refusal::NoList),
        }
    }

    fn who(
        &self,
        sale: &StoredSale,
        snapshot: &Snapshot,
        entrance: Entrance<'_>,
        now: Timestamp,
    ) -> Result<Who, Refusal> {
        let ticket = match entrance.ticket {
            None => None,
            Some(ShownTicket::Bearer(text)) => Some(self.ticket(sale, text)?),
            Some(ShownTicket::Cookie(text)) => self.ticket(sale, text).ok(),
        };
        let named = named(sale, snapshot, entrance, now);
        // A ticket alone suffices for its own place, but what names somebody else outranks the cookie of whoever used
        // this browser before.
        let names_another = matches!(
            (&named, &ticket),
            (Ok(Named { account: Some(account), .. }), Some(ticket))
                if *account != ticket.account && sale.definition.entry != EntryRule::Open
        );
        if let Some(ticket) = ticket.filter(|_| !names_another) {
            let (account, lane) = (ticket.account, ticket.lane);
            return Ok(Who { account, lane, ticket: Some(ticket), listed_as: None });
        }
        let Named { account, listed_as } = named?;
        let account = account.unwrap_or_else(|| AccountHash::from_bytes(rand::rng().random()));
        let lane = lane_of(&sale.secrets.lane_key, account, sale.definition.lanes);
        Ok(Who { account, lane, ticket: None, listed_as })
    }

    /// **status**: where the ticket's owner stands. No store call while waiting.
    ///
    /// # Errors
    /// The ticket is none, or its turn has come and the lane cannot be asked.
    pub async fn status(&self, sale: &Arc<StoredSale>, ticket: &str) -> Result<PersonalStatus, Refusal> {
        let ticket = self.ticket(sale, ticket)?;
        let now = self.parts.clock.now();
        let live = self.live(sale);
        let snapshot = known(&live)?;
        let standing = standing(&live, &snapshot, &ticket, None, now);
        if !standing.needs_seat() {
            return Ok(told(&snapshot, &ticket, &standing));
        }
        let seat = self.seat(&ticket).await?;
        Ok(personal_status(&live, &snapshot, &ticket, seat.as_ref(), now))
    }

    async fn seat(&self, ticket: &Ticket) -> Result<Option<Seat>, Refusal> {
        Ok(self.parts.store.seat(&ticket.sale, ticket.lane, ticket.account).await?)
    }

    /// **redeem**: exchanges a ticket whose turn has come for an admission token.
    ///
    /// # Errors
    /// Why there is no token, or not yet.
    pub async fn redeem(&self, sale: &Arc<StoredSale>, ticket: &str) -> Result<Admitted, Refusal> {
        let ticket = self.ticket(sale, ticket)?;
        self.accounts.take(ticket.account).map_err(Refusal::TooOften)?;
        let now = self.parts.clock.now();
        let live = self.live(sale);
        let snapshot = known(&live)?;
        let standing = standing(&live, &snapshot, &ticket, None, now);
        let place = standing.place();
        match place.state {
            State::Left => return Err(Refusal::Left),
            State::Closed => return Err(Refusal::SaleClosed),
            State::SoldOut if !standing.was_called() => return Err(Refusal::SoldOut),
            State::Entered | State::Waiting => {
                return Err(Refusal::NotYourTurn { retry_after_ms: place.poll_after_ms });
            }
            // Only whoever was admitted in time has anything left to get.
            State::SoldOut | State::TurnMissed => self.expect_admitted(&ticket, place.state).await?,
            State::YourTurn | State::Admitted => {}
        }
        let issued_at = Timestamp::from_seconds(now.seconds());
        let right = Right {
            jti: token_id(&sale.secrets.account_key, &ticket, sale.controls.epoch),
            issued_at,
            expires_at: issued_at.plus_seconds(sale.definition.admission.token_seconds),
            epoch: sale.controls.epoch,
        };
        let redemption = Redemption { account: ticket.account, seq: ticket.seq, right, now };
        match self.calls.redeem(&self.parts.store, &ticket.sale, ticket.lane, redemption).await? {
            Redeemed::Admitted(right) => self.admitted(sale, ticket.account, &right),
            Redeemed::Superseded | Redeemed::Lapsed => Err(Refusal::TurnMissed),
            Redeemed::Left => {
                live.note_left(ticket.lane, ticket.seq);
                Err(Refusal::Left)
            }
        }
    }

    async fn expect_admitted(&self, ticket: &Ticket, state: State) -> Result<(), Refusal> {
        let seat = self.seat(ticket).await?.filter(|seat| seat.seq == ticket.seq);
        match seat.map(|seat| seat.state) {
            Some(SeatState::Admitted(_)) => Ok(()),
            Some(SeatState::Left) => Err(Refusal::Left),
            _ if state == State::SoldOut => Err(Refusal::SoldOut),
            _ => Err(Refusal::TurnMissed),
        }
    }

    fn admitted(&self, sale: &StoredSale, account: AccountHash, right: &Right) -> Result<Admitted, Refusal> {
        let admission = Admission {
            account,
            sale: &sale.definition.id,
            jti: &right.jti,
            issued_at: right.issued_at,
            expires_at: right.expires_at,
            epoch: right.epoch,
        };
        Ok(Admitted {
            token: AdmissionToken::sign(&admission, &self.parts.ring).map_err(|_| Refusal::Signing)?,
            token_type: "Bearer",
            expires_at: right.expires_at,
            checkout_url: format!("{}/sale/{}/checkout", self.parts.public_url, sale.definition.id),
        })
    }
}

/// What is known of a line, once it was read.
fn known(live: &LiveSale) -> Result<Arc<Snapshot>, Refusal> {
    if live.is_known() { Ok(live.snapshot()) } else { Err(Refusal::Starting) }
}

/// Whom somebody is by the sale's entry rule.
fn named(
    sale: &StoredSale,
    snapshot: &Snapshot,
    entrance: Entrance<'_>,
    now: Timestamp,
) -> Result<Named, Refusal> {
    let key = &sale.secrets.account_key;
    let unlisted = |account| Named { account, listed_as: None };
    match sale.definition.entry {
        EntryRule::Eligibility => {
            let token = entrance.eligibility.ok_or(Refusal::EligibilityMissing)?;
            let name = snapshot.verifier.account(token, &sale.definition.id, now);
            let name = name.map_err(Refusal::NotEligible)?;
            Ok(unlisted(Some(account_hash(key, b"account\0", name.as_bytes()))))
        }
        EntryRule::Allowlist => {
            let (Some(code), Some(email)) = (entrance.code, entrance.email) else {
                return Err(Refusal::CodeMissing);
            };
            let Listed { account, email } = listed(key, code, email).ok_or(Refusal::NotListed)?;
            Ok(Named { account: Some(account), listed_as: Some(email) })
        }
        EntryRule::Open => Ok(unlisted(
            entrance
                .entry_key
                .filter(|key| key.len() >= ENTRY_KEY_BYTES_MIN)
                .map(|entry_key| account_hash(key, b"entry-key\0", entry_key.as_bytes())),
        )),
    }
}
