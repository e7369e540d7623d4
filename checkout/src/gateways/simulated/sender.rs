//! Sends webhooks until they arrive, also those a process before this one left behind.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use lockgate_shared::{clock::Clock, keys::KeyRing};
use tokio::sync::{Notify, watch};

use super::ledger::{Due, Ledger};
use crate::gateways::webhook;

/// How often the ledger is asked what is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Webhooks under way at the same time.
const AT_ONCE: usize = 16;
/// Longest one delivery may take.
const DELIVERY_SECONDS_MAX: u64 = 5;

pub(crate) struct Sender {
    pub(crate) ledger: Ledger,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) url: String,
    pub(crate) due: Arc<Notify>,
}

impl Sender {
    pub(crate) async fn run(&self, mut stop: watch::Receiver<bool>) {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(DELIVERY_SECONDS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build();
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "the simulated gateway cannot send webhooks");
                return;
            }
        };
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = self.due.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            match self.ledger.due(self.clock.now()).await {
                Ok(due) => {
                    stream::iter(due).for_each_concurrent(AT_ONCE, |due| self.send(&client, due)).await;
                }
                Err(error) => tracing::warn!(%error, "the simulated gateway's ledger cannot be read"),
            }
        }
    }

    async fn send(&self, client: &reqwest::Client, due: Due) {
        let at = self.clock.now().seconds();
        let secret = *self.ring.active().simulated_webhook();
        let answer = client
            .post(&self.url)
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .header(webhook::ID, &due.message)
            .header(webhook::TIMESTAMP, at)
            .header(webhook::SIGNATURE, webhook::sign(&secret, &due.message, at, due.body.as_bytes()))
            .body(due.body.clone())
            .send()
            .await;
        let arrived = match answer {
            Ok(answer) if answer.status().is_success() => true,
            Ok(answer) => {
                tracing::debug!(status = answer.status().as_u16(), "a webhook was refused; it is sent again");
                false
            }
            Err(error) => {
                tracing::debug!(%error, "a webhook did not arrive; it is sent again");
                false
            }
        };
        if let Err(error) = self.ledger.tried(&due, arrived, self.clock.now()).await {
            // It stays due and is sent again, which its receiver must bear with anyway.
            tracing::warn!(%error, "the simulated gateway's ledger cannot be written");
        }
    }
}
