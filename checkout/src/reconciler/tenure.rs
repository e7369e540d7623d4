//! The lease, kept for as long as its holder lives: it is renewed beside a round and beside the pause after it, however
//! long either takes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockgate_shared::store::StoreError;

use crate::{app::App, store::office::Lease};

/// What is leased.
const LEASE: &str = "reconciler";
/// How often a lease is renewed while it lasts: two lost answers in a row cost nothing.
const RENEWALS: u32 = 4;

/// How one process holds the lease.
#[derive(Clone)]
pub(super) struct Tenure {
    app: Arc<App>,
    holder: String,
    life: Duration,
}

impl Tenure {
    pub(super) fn new(app: Arc<App>, holder: &str, life: Duration) -> Self {
        Self { app, holder: holder.to_owned(), life }
    }

    /// Takes the lease or keeps it; `None` while another process has it.
    pub(super) async fn take(&self) -> Result<Option<Lease>, StoreError> {
        self.lease(self.life).await
    }

    /// Gives it back.
    pub(super) async fn give_back(&self) -> Result<(), StoreError> {
        self.lease(Duration::ZERO).await.map(drop)
    }

    /// Keeps the lease of this fencing number, and ends once it is lost: another process has it, or may have it because
    /// it could not be renewed for as long as it lasts.
    pub(super) async fn lost(&self, fence: u64) {
        let every = self.life / RENEWALS;
        let mut kept_at = Instant::now();
        loop {
            tokio::time::sleep(every).await;
            // It lasts from some moment after this one.
            let asked_at = Instant::now();
            match tokio::time::timeout(every, self.take()).await {
                Ok(Ok(Some(lease))) if lease.fence == fence => kept_at = asked_at,
                Ok(Ok(_)) => return,
                Ok(Err(_)) | Err(_) if kept_at.elapsed() >= self.life => return,
                Ok(Err(error)) => tracing::debug!(%error, "the reconciler's lease is renewed later"),
                Err(_) => {}
            }
        }
    }

    async fn lease(&self, life: Duration) -> Result<Option<Lease>, StoreError> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        self.app.store.lease(LEASE, &self.holder, life_ms, self.app.now()).await
    }
}
