//! The catalog in memory: read without a lock by every request, refreshed in the background, changed by
//! compare-and-set.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{sync::watch, task::JoinHandle, time::MissedTickBehavior};

use super::{CatalogStore, Controls, PutOutcome, SaleRow, SaleSecrets, StoredSale, networks::Networks};
use crate::{
    clock::{Clock, Timestamp},
    ids::SaleId,
    limits::{MESSAGE_BYTES_MAX, SALES_MAX},
    sale::{SaleDefinition, SaleProblem, change_problems, moment_problems},
    store::StoreError,
};

/// Tries of one change before it gives up; each lost try means that somebody else's change went through.
const TRIES_MAX: usize = 8;

/// Every sale of the deployment.
pub struct Catalog {
    pub(super) store: Arc<dyn CatalogStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) live: ArcSwap<Snapshot>,
    pub(super) networks: Networks,
}

#[derive(Default)]
pub(super) struct Snapshot {
    by_id: HashMap<SaleId, Entry>,
    ordered: Arc<[Arc<StoredSale>]>,
    /// Rows that could not be read, as id and version: said once, not at every refresh.
    unreadable: HashSet<(String, u64)>,
}

#[derive(Clone)]
struct Entry {
    sale: Arc<StoredSale>,
    row: Arc<SaleRow>,
}

/// What became of a definition that was applied.
#[derive(Clone, Debug)]
pub enum Applied {
    /// The sale is new.
    Created(Arc<StoredSale>),
    /// The sale was there and has changed.
    Changed(Arc<StoredSale>),
    /// The sale was there with this very definition.
    Unchanged(Arc<StoredSale>),
}

/// What applying a definition would write.
enum Next {
    /// Nothing: the sale is as defined.
    Stands(Arc<StoredSale>),
    Write {
        sale: Box<StoredSale>,
        current: Option<Arc<StoredSale>>,
    },
}

impl Applied {
    /// The sale as it is now.
    #[must_use]
    pub fn sale(&self) -> &Arc<StoredSale> {
        match self {
            Self::Created(sale) | Self::Changed(sale) | Self::Unchanged(sale) => sale,
        }
    }
}

/// Why a definition was not applied. Nothing changed, unless the store's error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The definition is wrong in itself.
    #[error("the sale definition has {} problems", .0.len())]
    Invalid(Vec<SaleProblem>),
    /// It changes what may not change once a sale exists.
    #[error("the sale definition changes {} things that cannot change any more", .0.len())]
    Fixed(Vec<SaleProblem>),
    /// The sale is not in the version the caller expected.
    #[error("the sale was changed by somebody else: read it again and repeat the change")]
    Conflict {
        /// The version it has; `None` when there is no such sale.
        current: Option<u64>,
    },
    /// There is no room for another sale.
    #[error("there are {SALES_MAX} sales already, the most one deployment serves")]
    TooMany,
    /// A newer release wrote the sale; this one cannot read it.
    #[error(
        "the sale '{0}' cannot be read by this release, so it is not changed: use the release that wrote it"
    )]
    Unreadable(SaleId),
    /// Others kept changing the sale at the same time.
    #[error("the sale is being changed by others at this moment: try again")]
    Busy,
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a sale was not changed. Nothing changed, unless the store's error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such sale.
    #[error("there is no sale '{0}'")]
    NoSuchSale(SaleId),
    /// The changed sale would be wrong in itself.
    #[error("the changed sale would have {} problems", .0.len())]
    Invalid(Vec<SaleProblem>),
    /// A newer release wrote the sale; this one cannot read it.
    #[error(
        "the sale '{0}' cannot be read by this release, so it is not changed: use the release that wrote it"
    )]
    Unreadable(SaleId),
    /// Others kept changing the sale at the same time.
    #[error("the sale is being changed by others at this moment: try again")]
    Busy,
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Catalog {
    /// An empty catalog over `store`; [`Catalog::refresh`] fills it.
    #[must_use]
    pub fn new(store: Arc<dyn CatalogStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, live: ArcSwap::default(), networks: Networks::default() }
    }

    /// The sale with this id. One atomic load and a map look-up: this is on every request's way.
    #[must_use]
    pub fn sale(&self, id: &SaleId) -> Option<Arc<StoredSale>> {
        self.live.load().by_id.get(id).map(|entry| Arc::clone(&entry.sale))
    }

    /// Every sale, by opening time.
    #[must_use]
    pub fn sales(&self) -> Arc<[Arc<StoredSale>]> {
        Arc::clone(&self.live.load().ordered)
    }

    /// Reads the store. A sale the store has lost, or holds in an older version than this process saw, is kept and
    /// put back: tickets in the hands of thousands stand on its secrets. So is one that was made anew over an emptied
    /// store: of two sales of one name the earlier one is the sale. A sale this version cannot read is left
    /// out, or kept as it was known, and does not hinder the others.
    ///
    /// # Errors
    /// The store broke; what was known stays.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let mut rows = self.store.list().await?;
        self.networks.take_from(&mut rows, self.store.as_ref()).await?;
        let versions: HashMap<String, u64> = rows.iter().map(|row| (row.id.clone(), row.version)).collect();
        let (listed, unreadable) = self.read(rows);
        self.live.rcu(|known| merged(known, &listed, &unreadable));
        let made_at = listed.iter().map(|entry| (&*entry.row.id, entry.sale.created_at)).collect();
        self.put_back_lost(&versions, &made_at, &unreadable).await
    }

    fn read(&self, rows: Vec<SaleRow>) -> (Vec<Entry>, HashSet<(String, u64)>) {
        let known = self.live.load();
        let mut listed = Vec::with_capacity(rows.len());
        let mut unreadable = HashSet::new();
        for row in rows {
            let same = row
                .id
                .parse::<SaleId>()
                .ok()
                .and_then(|id| known.by_id.get(&id))
                .filter(|entry| *entry.row == row);
            if let Some(entry) = same {
                listed.push(entry.clone());
                continue;
            }
            match StoredSale::from_row(&row) {
                Ok(sale) => listed.push(Entry { sale: Arc::new(sale), row: Arc::new(row) }),
                Err(why) => {
                    let name = (row.id, row.version);
                    if !known.unreadable.contains(&name) {
                        tracing::error!(sale = %name.0, version = name.1, %why,
                            "a stored sale cannot be read and is not served in this version: a newer release may have written it");
                    }
                    unreadable.insert(name);
                }
            }
        }
        (listed, unreadable)
    }

    async fn put_back_lost(
        &self,
        versions: &HashMap<String, u64>,
        made_at: &HashMap<&str, Timestamp>,
        unreadable: &HashSet<(String, u64)>,
    ) -> Result<(), StoreError> {
        let known: Vec<Entry> = self.live.load().by_id.values().cloned().collect();
        for entry in known {
            let row = &entry.row;
            let found = versions.get(&row.id).copied();
            let is_another = made_at.get(&*row.id).is_some_and(|at| *at > entry.sale.created_at);
            let is_lost = found.is_none_or(|version| {
                (is_another || version < row.version) && !unreadable.contains(&(row.id.clone(), version))
            });
            // A conflict means that the sale was being stored while the list was read: nothing was lost.
            if is_lost && self.store.put(row, found).await? == PutOutcome::Stored {
                tracing::warn!(sale = %row.id, version = row.version, ?found, "the store had lost a sale; it is put back");
            }
        }
        Ok(())
    }

    /// Makes the sale this definition describes, or changes the one that is there. With `expected` it is changed
    /// only from that version; `Some(0)` expects that there is none.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub async fn apply(
        &self,
        definition: SaleDefinition,
        expected: Option<u64>,
    ) -> Result<Applied, ApplyError> {
        self.put(&definition, expected, None).await
    }

    /// The same for a file that a process was given at its start, named by a digest of its text. Each counts once
    /// ([`Controls::files_applied`]); `None` when it has counted before, and the sale stands as it was changed since.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub async fn apply_file(
        &self,
        definition: &SaleDefinition,
        digest: &str,
    ) -> Result<Option<Applied>, ApplyError> {
        self.refresh().await?;
        let known = self.sale(&definition.id);
        if known.is_some_and(|sale| sale.controls.files_applied.iter().any(|known| known == digest)) {
            return Ok(None);
        }
        self.put(definition, None, Some(digest)).await.map(Some)
    }

    async fn put(
        &self,
        definition: &SaleDefinition,
        expected: Option<u64>,
        file: Option<&str>,
    ) -> Result<Applied, ApplyError> {
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            let (sale, current) = match self.next(definition, expected, file)? {
                Next::Stands(sale) => return Ok(Applied::Unchanged(sale)),
                Next::Write { sale, current } => (sale, current),
            };
            if let Some(stored) = self.store(*sale, current.as_ref().map(|sale| sale.version)).await? {
                return Ok(if current.is_some() {
                    Applied::Changed(stored)
                } else {
                    Applied::Created(stored)
                });
            }
        }
        Err(ApplyError::Busy)
    }

    /// What [`Catalog::apply`] would come to at this moment, with the sale as it would be. Changes nothing.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub async fn rehearse(
        &self,
        definition: &SaleDefinition,
        expected: Option<u64>,
    ) -> Result<Applied, ApplyError> {
        self.refresh().await?;
        Ok(match self.next(definition, expected, None)? {
            Next::Stands(sale) => Applied::Unchanged(sale),
            Next::Write { sale, current: Some(_) } => Applied::Changed(Arc::new(*sale)),
            Next::Write { sale, current: None } => Applied::Created(Arc::new(*sale)),
        })
    }

    /// What a definition comes to, by what is known.
    fn next(
        &self,
        definition: &SaleDefinition,
        expected: Option<u64>,
        file: Option<&str>,
    ) -> Result<Next, ApplyError> {
        let problems = definition.problems();
        if !problems.is_empty() {
            return Err(ApplyError::Invalid(problems));
        }
        if self.is_unreadable(&definition.id) {
            return Err(ApplyError::Unreadable(definition.id.clone()));
        }
        let current = self.sale(&definition.id);
        let version = current.as_ref().map(|sale| sale.version);
        if expected.is_some_and(|expected| expected != version.unwrap_or(0)) {
            return Err(ApplyError::Conflict { current: version });
        }
        let Some(current) = current else {
            if self.live.load().by_id.len() >= SALES_MAX {
                return Err(ApplyError::TooMany);
            }
            let mut sale = self.new_sale(definition.clone());
            sale.controls.note_file(file);
            return Ok(Next::Write { sale: Box::new(sale), current: None });
        };
        if current.definition == *definition && file.is_none() {
            return Ok(Next::Stands(current));
        }
        let mut problems = change_problems(&current.definition, definition);
        problems.extend(moment_problems(&current.definition, definition, self.clock.now()));
        if !problems.is_empty() {
            return Err(ApplyError::Fixed(problems));
        }
        let mut sale = StoredSale {
            definition: definition.clone(),
            version: current.version.saturating_add(1),
            ..StoredSale::clone(&current)
        };
        sale.controls.note_file(file);
        Ok(Next::Write { sale: Box::new(sale), current: Some(current) })
    }

    fn is_unreadable(&self, id: &SaleId) -> bool {
        self.live.load().unreadable.iter().any(|(name, _)| name == id.as_str())
    }

    fn new_sale(&self, definition: SaleDefinition) -> StoredSale {
        StoredSale {
            definition,
            secrets: SaleSecrets::generate(&mut rand::rng()),
            controls: Controls::default(),
            version: 1,
            created_at: self.clock.now(),
        }
    }

    /// Changes a sale. `change` sees the sale as it is now and may run several times, when others change it too. A
    /// sale's id, secrets, version and time of creation stay, whatever `change` does to them; what it leaves as it
    /// was is not written.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn change(
        &self,
        id: &SaleId,
        mut change: impl FnMut(&mut StoredSale) + Send,
    ) -> Result<Arc<StoredSale>, ChangeError> {
        for _ in 0..TRIES_MAX {
            self.refresh().await?;
            if self.is_unreadable(id) {
                return Err(ChangeError::Unreadable(id.clone()));
            }
            let current = self.sale(id).ok_or_else(|| ChangeError::NoSuchSale(id.clone()))?;
            let mut sale = StoredSale::clone(&current);
            change(&mut sale);
            sale.definition.id = id.clone();
            sale.secrets = current.secrets.clone();
            sale.created_at = current.created_at;
            sale.version = current.version;
            if sale == *current {
                return Ok(current);
            }
            let problems = sale_problems(&current, &sale);
            if !problems.is_empty() {
                return Err(ChangeError::Invalid(problems));
            }
            sale.version = current.version.saturating_add(1);
            if let Some(stored) = self.store(sale, Some(current.version)).await? {
                return Ok(stored);
            }
        }
        Err(ChangeError::Busy)
    }

    /// Stores a sale and serves it from now on; `None` when somebody else was faster.
    async fn store(
        &self,
        sale: StoredSale,
        expected: Option<u64>,
    ) -> Result<Option<Arc<StoredSale>>, StoreError> {
        let row = sale.to_row().map_err(|error| StoreError::untouched("catalog put", error))?;
        match self.store.put(&row, expected).await? {
            PutOutcome::Conflict { .. } => Ok(None),
            PutOutcome::Stored => {
                let entry = Entry { sale: Arc::new(sale), row: Arc::new(row) };
                let stored = Arc::clone(&entry.sale);
                self.live.rcu(|known| merged(known, std::slice::from_ref(&entry), &known.unreadable));
                Ok(Some(stored))
            }
        }
    }

    /// Refreshes every `every` until `stop` is true or its sender is gone. A store that breaks is logged when it
    /// breaks and when it is back; what was known is served meanwhile.
    pub fn watch(self: Arc<Self>, every: Duration, stop: watch::Receiver<bool>) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            // After an outage one refresh is enough, not one for every tick that was missed.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut is_broken = false;
            loop {
                let stopped = async {
                    let _ = stop.clone().wait_for(|stop| *stop).await;
                };
                tokio::select! {
                    () = stopped => return,
                    _ = ticks.tick() => {}
                }
                let outcome = self.refresh().await;
                match &outcome {
                    Ok(()) if is_broken => tracing::info!("the sale catalog can be read again"),
                    Err(error) if !is_broken => {
                        tracing::warn!(%error, "the sale catalog cannot be read; what was known is served");
                    }
                    Ok(()) | Err(_) => {}
                }
                is_broken = outcome.is_err();
            }
        })
    }
}

fn sale_problems(current: &StoredSale, sale: &StoredSale) -> Vec<SaleProblem> {
    // A definition that an earlier release accepted may still be paused or closed.
    let mut problems =
        if sale.definition == current.definition { Vec::new() } else { sale.definition.problems() };
    if let Some(message) = sale.controls.message.as_ref().filter(|message| message.len() > MESSAGE_BYTES_MAX)
    {
        let problem = format!("has {} bytes, more than {MESSAGE_BYTES_MAX}", message.len());
        problems.push(SaleProblem::new("message", format!("\"{message}\""), problem, "shorten it"));
    }
    problems
}

/// What is known, with `listed` laid over it. Where this process saw a later version of the same sale, that one
/// stays: the list may have been read before the sale was changed. Where the list has a sale that was made later
/// under the same id, the known one stays: its secrets place the people in line.
fn merged(known: &Snapshot, listed: &[Entry], unreadable: &HashSet<(String, u64)>) -> Snapshot {
    let mut by_id = known.by_id.clone();
    for entry in listed {
        let id = &entry.sale.definition.id;
        let stays = by_id.get(id).is_some_and(|known| {
            let (known, listed) = (&known.sale, &entry.sale);
            match known.created_at.cmp(&listed.created_at) {
                Ordering::Less => true,
                Ordering::Equal => known.version > listed.version,
                Ordering::Greater => false,
            }
        });
        if !stays {
            by_id.insert(id.clone(), entry.clone());
        }
    }
    let mut ordered: Vec<_> = by_id.values().map(|entry| Arc::clone(&entry.sale)).collect();
    ordered.sort_by(|a, b| {
        (a.definition.opens_at, &a.definition.id).cmp(&(b.definition.opens_at, &b.definition.id))
    });
    Snapshot { by_id, ordered: ordered.into(), unreadable: unreadable.clone() }
}
