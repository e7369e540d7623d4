//! Where sale definitions are kept, with what is made once per sale (its secrets) and what operators switch while
//! it runs (its controls).
//!
//! - `stored`: [`StoredSale`] and its parts.
//! - `live`: [`Catalog`], what services use: sales in memory, refreshed from the store, changed by compare-and-set.
//! - `networks`: the lists of networks let through or refused, kept beside the sales.
//! - [`CatalogStore`]: rows with a version, moved only from the version the caller saw. Back ends: [`sqlite`],
//!   [`redis`], and [`MemoryCatalog`], the model the others answer like.

mod live;
mod networks;
pub mod redis;
pub mod sqlite;
mod stored;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;

pub use self::{
    live::{Applied, ApplyError, Catalog, ChangeError},
    networks::ListsError,
    sqlite::CATALOG_SQLITE,
    stored::{Controls, SaleSecrets, StoredSale},
};
use crate::store::StoreError;

/// A stored sale as the store sees it: text it does not read, under a version.
#[derive(Clone, PartialEq, Eq)]
pub struct SaleRow {
    /// The sale's id.
    pub id: String,
    /// Counts the changes of this sale, from 1.
    pub version: u64,
    /// The sale as JSON. It holds the sale's secrets, so it never reaches a log.
    pub body: String,
}

impl std::fmt::Debug for SaleRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SaleRow")
            .field("id", &self.id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What became of a row that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is stored.
    Stored,
    /// Nothing changed: the store holds another version than expected.
    Conflict {
        /// The version it holds; `None` when it has no such sale.
        current: Option<u64>,
    },
}

/// Keeps sales. Sales are closed, never deleted: tickets and orders name them.
#[async_trait]
pub trait CatalogStore: Send + Sync {
    /// Every sale, in any order.
    ///
    /// # Errors
    /// The store broke.
    async fn list(&self) -> Result<Vec<SaleRow>, StoreError>;

    /// Stores `row` if the store holds version `expected` of its sale, in one step; `None`: if it holds none.
    ///
    /// # Errors
    /// The store broke; the row may be stored all the same, if the error says so.
    async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError>;
}

/// The model: a map in memory. For tests and demonstrations; nothing survives the process.
#[derive(Debug, Default)]
pub struct MemoryCatalog(Mutex<BTreeMap<String, SaleRow>>);

#[async_trait]
impl CatalogStore for MemoryCatalog {
    async fn list(&self) -> Result<Vec<SaleRow>, StoreError> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rows.values().cloned().collect())
    }

    async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = rows.get(&row.id).map(|row| row.version);
        if current != expected {
            return Ok(PutOutcome::Conflict { current });
        }
        rows.insert(row.id.clone(), row.clone());
        Ok(PutOutcome::Stored)
    }
}
