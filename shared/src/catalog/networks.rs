//! The lists of networks that are let through or refused, kept as one more row beside the sales: so that every process
//! sees a change with its next look at the catalog, on either back end.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Catalog, CatalogStore, PutOutcome, SaleRow};
use crate::{
    edge::lists::{LiveLists, NetworkLists},
    store::StoreError,
};

/// The row's id. No sale can have it: `#` is no letter of theirs.
const ROW_ID: &str = "#networks";

/// The lists as this process knows them, with the row they came from.
#[derive(Default)]
pub(super) struct Networks {
    live: Arc<LiveLists>,
    known: Mutex<Known>,
}

#[derive(Clone, Default)]
struct Known {
    lists: NetworkLists,
    /// The version in the store; 0: it has none.
    version: u64,
    row: Option<SaleRow>,
}

/// Why the lists were not changed. Nothing changed, unless the store's error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ListsError {
    /// Entries that are no networks, or too many of them.
    #[error("the lists have {} problems", .0.len())]
    Invalid(Vec<String>),
    /// The lists are not in the version the caller saw.
    #[error("the lists were changed by somebody else: read them again and repeat the change")]
    Conflict {
        /// The version they have.
        current: u64,
    },
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Networks {
    /// Takes the lists' row out of what the store holds, and makes it count.
    ///
    /// Lists that the store has lost are kept and put back, as sales are: a flood must not come back with a fail-over.
    pub(super) async fn take_from(
        &self,
        rows: &mut Vec<SaleRow>,
        store: &dyn CatalogStore,
    ) -> Result<(), StoreError> {
        let found = rows.iter().position(|row| row.id == ROW_ID).map(|index| rows.swap_remove(index));
        let version = found.as_ref().map(|row| row.version);
        let known = self.known();
        if let Some(row) = found.filter(|row| row.version >= known.version) {
            if known.row.as_ref() != Some(&row) {
                self.read(row);
            }
        } else if let Some(row) = &known.row
            && store.put(row, version).await? == PutOutcome::Stored
        {
            tracing::warn!(version = row.version, "the store had lost the network lists; they are put back");
        }
        Ok(())
    }

    fn read(&self, row: SaleRow) {
        match serde_json::from_str::<NetworkLists>(&row.body) {
            Ok(lists) => self.count(Known { version: row.version, lists, row: Some(row) }),
            // Said once for each version: afterwards the row is the known one.
            Err(error) => {
                tracing::error!(version = row.version, %error, "the network lists cannot be read; those known before count");
                let known = self.known();
                self.count(Known { version: row.version, row: Some(row), ..known });
            }
        }
    }

    fn count(&self, known: Known) {
        let mut current = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.version >= current.version {
            self.live.set(&known.lists);
            *current = known;
        }
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Catalog {
    /// The lists as requests ask them: always what this process knows last.
    #[must_use]
    pub fn live_networks(&self) -> Arc<LiveLists> {
        Arc::clone(&self.networks.live)
    }

    /// The lists, and their version: 0 until somebody has set some.
    #[must_use]
    pub fn networks(&self) -> (NetworkLists, u64) {
        let known = self.networks.known();
        (known.lists, known.version)
    }

    /// Makes these lists count, here at once and in every other process with its next look. With `expected` only from
    /// that version.
    ///
    /// # Errors
    /// See [`ListsError`].
    pub async fn set_networks(
        &self,
        lists: &NetworkLists,
        expected: Option<u64>,
    ) -> Result<(NetworkLists, u64), ListsError> {
        let lists = lists.checked().map_err(ListsError::Invalid)?;
        self.refresh().await?;
        let known = self.networks.known();
        if expected.is_some_and(|expected| expected != known.version) {
            return Err(ListsError::Conflict { current: known.version });
        }
        let body =
            serde_json::to_string(&lists).map_err(|error| StoreError::untouched("catalog put", error))?;
        let row = SaleRow { id: ROW_ID.into(), version: known.version + 1, body };
        let stored = (known.version > 0).then_some(known.version);
        match self.store.put(&row, stored).await? {
            PutOutcome::Conflict { current } => {
                Err(ListsError::Conflict { current: current.unwrap_or_default() })
            }
            PutOutcome::Stored => {
                let version = row.version;
                self.networks.count(Known { lists: lists.clone(), version, row: Some(row) });
                Ok((lists, version))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        catalog::{MemoryCatalog, sqlite::SqliteCatalog},
        clock::Timestamp,
        edge::lists::Listed,
        store::sqlite::Sqlite,
        testing::ManualClock,
    };

    fn deny(network: &str) -> NetworkLists {
        NetworkLists { deny: vec![network.into()], ..NetworkLists::default() }
    }

    fn catalog(store: &Arc<dyn CatalogStore>) -> Catalog {
        Catalog::new(Arc::clone(store), Arc::new(ManualClock::at(Timestamp::from_seconds(1_000))))
    }

    fn asks(catalog: &Catalog) -> Listed {
        catalog.live_networks().ask("192.0.2.7".parse().unwrap())
    }

    #[tokio::test]
    async fn a_change_reaches_every_process_and_only_from_the_version_seen() {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(&folder.path().join("c.db"), &[("catalog", crate::catalog::CATALOG_SQLITE)])
            .unwrap();
        let store: Arc<dyn CatalogStore> = Arc::new(SqliteCatalog::new(db));
        let (one, two) = (catalog(&store), catalog(&store));
        assert_eq!(one.networks(), (NetworkLists::default(), 0));
        one.set_networks(&deny("192.0.2.0/24"), Some(0)).await.unwrap();
        assert_eq!(asks(&one), Listed::Denied);
        assert_eq!(asks(&two), Listed::No);
        two.refresh().await.unwrap();
        assert_eq!(asks(&two), Listed::Denied);
        assert!(two.sales().is_empty(), "the lists are no sale");
        let stale = one.set_networks(&deny("10.0.0.0/8"), Some(0)).await;
        assert!(matches!(stale, Err(ListsError::Conflict { current: 1 })), "{stale:?}");
        two.set_networks(&NetworkLists::default(), None).await.unwrap();
        one.refresh().await.unwrap();
        assert_eq!((asks(&one), one.networks().1), (Listed::No, 2));
    }

    #[tokio::test]
    async fn lists_that_the_store_has_lost_are_put_back() {
        let store: Arc<dyn CatalogStore> = Arc::new(MemoryCatalog::default());
        let one = catalog(&store);
        one.set_networks(&deny("192.0.2.0/24"), None).await.unwrap();
        let empty: Arc<dyn CatalogStore> = Arc::new(MemoryCatalog::default());
        let after = Catalog { store: Arc::clone(&empty), ..one };
        after.refresh().await.unwrap();
        assert_eq!(asks(&after), Listed::Denied);
        let new = catalog(&empty);
        new.refresh().await.unwrap();
        assert_eq!(asks(&new), Listed::Denied);
    }

    #[tokio::test]
    async fn wrong_lists_change_nothing_and_what_cannot_be_read_leaves_the_known_ones() {
        let store: Arc<dyn CatalogStore> = Arc::new(MemoryCatalog::default());
        let one = catalog(&store);
        one.set_networks(&deny("192.0.2.0/24"), None).await.unwrap();
        let wrong = one.set_networks(&deny("192.0.2.1/24"), None).await;
        assert!(matches!(wrong, Err(ListsError::Invalid(ref problems)) if problems.len() == 1), "{wrong:?}");
        let row = SaleRow { id: ROW_ID.into(), version: 2, body: "{\"surprise\":1}".into() };
        assert_eq!(store.put(&row, Some(1)).await.unwrap(), PutOutcome::Stored);
        one.refresh().await.unwrap();
        assert_eq!(asks(&one), Listed::Denied);
        one.set_networks(&NetworkLists::default(), None).await.unwrap();
        assert_eq!(asks(&one), Listed::No);
    }
}
