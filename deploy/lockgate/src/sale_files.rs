//! Sale files that a process is given at its start.

use std::{path::PathBuf, time::Duration};

use lockgate_checkout as checkout;
use lockgate_shared::{
    catalog::{ApplyError, Catalog, StoredSale},
    clock::Timestamp,
    ids::SaleId,
    sale::{self, SaleDefinition},
};
use sha2::{Digest as _, Sha256};

use crate::{demo, exit::Failure};

/// How long a process that would make a sale waits for others that may know it: three of their looks at the catalog.
const HEAR_OTHERS_MS: u64 = 1_500;

/// A sale to apply at the start, with the digest of its file.
struct SaleFile {
    definition: SaleDefinition,
    digest: Option<String>,
}

fn read(paths: &[PathBuf]) -> Result<Vec<SaleFile>, Failure> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("{name}: cannot be read ({error}); name a sale file")))?;
        let definition = sale::parse_toml(&name, &text).map_err(|problems| {
            Failure::usage(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        })?;
        let digest = Sha256::digest(text.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        files.push(SaleFile { definition, digest: Some(digest) });
    }
    Ok(files)
}

/// Makes the sales of these files, or changes those that are there. Each file counts once, whatever starts how often: what
/// operators changed since stands. Where there is no sale at all, and none is named, one is made up at `demo_at` to
/// show what Lockgate does.
///
/// # Errors
/// A file is wrong, a change is refused, or the store broke.
pub async fn apply(
    catalog: &Catalog,
    paths: &[PathBuf],
    demo_at: Option<Timestamp>,
    orders: Option<&dyn checkout::Store>,
    is_shared: bool,
) -> Result<(), Failure> {
    let mut files = read(paths)?;
    if let (true, Some(now)) = (files.is_empty() && catalog.sales().is_empty(), demo_at) {
        files.push(SaleFile { definition: demo::sale(now).map_err(Failure::running)?, digest: None });
    }
    if is_shared && files.iter().any(|file| catalog.sale(&file.definition.id).is_none()) {
        hear_others(catalog).await?;
    }
    for SaleFile { mut definition, digest } in files {
        let id = definition.id.clone();
        match catalog.sale(&id) {
            Some(known) => keep_stock(&mut definition, &known),
            None => refuse_lost_sale(orders, &id).await?,
        }
        let applied = match &digest {
            Some(digest) => catalog.apply_file(&definition, digest).await,
            None => catalog.apply(definition, None).await.map(Some),
        };
        if applied.map_err(|error| not_applied(&id, error))?.is_none() {
            tracing::info!(sale = %id, "its file was applied before; what was changed since stands");
        }
    }
    Ok(())
}

/// A file cannot know of units that operators added or withdrew since it was written: their number stays changed.
fn keep_stock(definition: &mut SaleDefinition, known: &StoredSale) {
    if known.controls.stock_changes.is_empty() {
        return;
    }
    for item in &mut definition.items {
        let Some(now) = known.definition.item(&item.item).filter(|now| now.stock != item.stock) else {
            continue;
        };
        tracing::info!(sale = %known.definition.id, item = %item.item, file = item.stock, stock = now.stock,
            "operators changed the stock since the sale file was written; it stays changed");
        item.stock = now.stock;
    }
}

fn not_applied(id: &SaleId, error: ApplyError) -> Failure {
    match error {
        ApplyError::Store(error) => Failure::running(format!("sale '{id}': {error}")),
        ApplyError::Fixed(problems) | ApplyError::Invalid(problems) => {
            let words: Vec<String> =
                problems.iter().map(|problem| format!("sale '{id}': {problem}")).collect();
            Failure::usage(words.join("\n"))
        }
        refused => Failure::usage(format!("sale '{id}': {refused}")),
    }
}

/// A sale that is new here may be an old one whose store came back empty. Every process that serves it puts it back at
/// its next look; until they had time for that nothing is made of its file: nobody may be given a place in a line that is
/// not the line, and no stock may be put there by a file that does not know what operators changed.
async fn hear_others(catalog: &Catalog) -> Result<(), Failure> {
    tokio::time::sleep(Duration::from_millis(HEAR_OTHERS_MS)).await;
    catalog.refresh().await.map_err(Failure::running)
}

/// A sale that the catalog does not know although it has orders is not new: its store came back empty. Taken for a
/// new one it would sell every unit again.
async fn refuse_lost_sale(orders: Option<&dyn checkout::Store>, id: &SaleId) -> Result<(), Failure> {
    let Some(orders) = orders else { return Ok(()) };
    let books = orders.books(id).await.map_err(|error| {
        Failure::running(format!(
            "sale '{id}': is new to store.url, and whether it has orders cannot be asked ({error}); start again once \
             orders.url answers"
        ))
    })?;
    if books.is_empty() {
        return Ok(());
    }
    Err(Failure::running(format!(
        "sale '{id}': has orders, but store.url holds nothing of it: that store has lost its data. Bring its data \
         back, or give the new sale another id"
    )))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use async_trait::async_trait;
    use lockgate_shared::{
        catalog::{CatalogStore, PutOutcome, SaleRow},
        clock::SystemClock,
        sale::EXAMPLE_TOML,
        store::StoreError,
    };
    use tokio::sync::watch;

    use super::*;

    /// A shared store that can come back empty, and that remembers what was written into it since.
    #[derive(Default)]
    struct Shared(Mutex<(BTreeMap<String, SaleRow>, Vec<SaleRow>)>);

    #[async_trait]
    impl CatalogStore for Shared {
        async fn list(&self) -> Result<Vec<SaleRow>, StoreError> {
            Ok(self.0.lock().unwrap().0.values().cloned().collect())
        }

        async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError> {
            let (rows, written) = &mut *self.0.lock().unwrap();
            let current = rows.get(&row.id).map(|row| row.version);
            if current != expected {
                return Ok(PutOutcome::Conflict { current });
            }
            written.push(row.clone());
            rows.insert(row.id.clone(), row.clone());
            Ok(PutOutcome::Stored)
        }
    }

    #[tokio::test]
    async fn m1_a_file_makes_no_sale_anew_that_another_process_knows() {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::new(Shared::default()));
        let catalog = || Arc::new(Catalog::new(Arc::<Shared>::clone(&store), Arc::new(SystemClock)));
        let path = dir.path().join("sale.toml");
        std::fs::write(&path, EXAMPLE_TOML).unwrap();
        let files = [path];
        let old = catalog();
        apply(&old, &files, None, None, false).await.unwrap();
        let id = old.sales()[0].definition.id.clone();
        let changed = old.change(&id, |sale| sale.definition.items[0].stock += 5).await.unwrap();
        let (_stop, stopped) = watch::channel(false);
        let _looks = Arc::clone(&old).watch(Duration::from_millis(500), stopped);
        *store.0.lock().unwrap() = Default::default();
        let new = catalog();
        apply(&new, &files, None, None, true).await.unwrap();
        assert_eq!(new.sale(&id).unwrap().definition, changed.definition, "what was changed stands");
        let written: Vec<u64> = store.0.lock().unwrap().1.iter().map(|row| row.version).collect();
        assert_eq!(written, [changed.version], "and no other sale stood there for a moment");
    }
}
