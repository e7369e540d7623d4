//! The outbox: mails to buyers and signed webhooks to the shop, at least once each, in order for each order, never in the
//! sale's way.
//!
//! - `rule` (pure): which messages a change of an order brings. The stores write them in the change's own transaction.
//! - `message` (pure): what a message is; `pace` (pure): when it is tried again; `letter` (pure): what a mail says.
//! - `lane`: takes messages out, a lane for each channel; `mail`, `smtp`, `webhook`: how they travel; `tend`: figures, trimming.

mod lane;
mod letter;
mod mail;
#[cfg(test)]
mod mail_tests_facts;
mod message;
mod pace;
mod rule;
mod smtp;
mod tend;
mod webhook;

pub use self::{
    mail::{MailSettings, SmtpServer, check_mailbox},
    message::{Channel, Content, Draft, Message, MessageId, MessageKind},
    pace::Pace,
    rule::{Wants, messages},
    webhook::{WebhookSecret, WebhookSettings, check_webhook_url},
};

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use self::{mail::Mailer, webhook::Hook};
use crate::app::App;

/// Which channels are set up, and how.
#[derive(Clone, Debug, Default)]
pub struct OutboxSettings {
    /// Mails to buyers.
    pub mail: Option<MailSettings>,
    /// Webhooks to the shop.
    pub webhook: Option<WebhookSettings>,
    /// How messages are tried again.
    pub pace: Pace,
}

impl OutboxSettings {
    /// Which channels are set up: what the store must be told, too.
    #[must_use]
    pub fn wants(&self) -> Wants {
        Wants { mail: self.mail.is_some(), webhook: self.webhook.is_some() }
    }
}

/// What takes messages out.
#[derive(Default)]
pub struct Outbox {
    mail: Option<Mailer>,
    hook: Option<Hook>,
    pace: Pace,
    mails_due: Notify,
    webhooks_due: Notify,
}

impl Outbox {
    /// Over its settings.
    ///
    /// # Errors
    /// A client cannot be built, or an address is none.
    pub fn new(settings: OutboxSettings) -> Result<Self, String> {
        Ok(Self {
            mail: settings.mail.as_ref().map(Mailer::new).transpose()?,
            hook: settings.webhook.map(Hook::new).transpose()?,
            pace: settings.pace,
            ..Self::default()
        })
    }

    /// Whether a channel is set up.
    #[must_use]
    pub fn has(&self, channel: Channel) -> bool {
        match channel {
            Channel::Mail => self.mail.is_some(),
            Channel::Webhook => self.hook.is_some(),
        }
    }

    fn due(&self, channel: Channel) -> &Notify {
        match channel {
            Channel::Mail => &self.mails_due,
            Channel::Webhook => &self.webhooks_due,
        }
    }

    /// Messages may have been written.
    pub(crate) fn wake(&self) {
        self.mails_due.notify_one();
        self.webhooks_due.notify_one();
    }
}

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    /// What went wrong, for operators.
    pub(crate) problem: String,
    /// It never will be.
    pub(crate) is_for_good: bool,
    /// It speaks against the receiver, so that other messages would fare no better.
    pub(crate) is_by_receiver: bool,
    /// How long the receiver wants to be left alone.
    pub(crate) not_before_seconds: Option<u64>,
}

impl Undelivered {
    /// This message never.
    pub(crate) fn for_good(problem: String) -> Self {
        Self { problem, is_for_good: true, is_by_receiver: false, not_before_seconds: None }
    }

    /// This message, now.
    pub(crate) fn for_now(problem: String) -> Self {
        Self { is_for_good: false, ..Self::for_good(problem) }
    }

    /// No message, now.
    pub(crate) fn by_receiver(problem: String, not_before_seconds: Option<u64>) -> Self {
        Self { is_by_receiver: true, not_before_seconds, ..Self::for_now(problem) }
    }
}

/// Delivers what is due until `stop`. Channels that are not set up have no lane.
pub(crate) async fn run(app: Arc<App>, stop: watch::Receiver<bool>) {
    let lane = |channel| {
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move {
            if app.outbox.has(channel) {
                lane::run(app, channel, stop).await;
            }
        }
    };
    tokio::join!(lane(Channel::Mail), lane(Channel::Webhook), tend::run(Arc::clone(&app), stop.clone()));
}
