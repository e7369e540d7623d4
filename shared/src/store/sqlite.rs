//! SQLite with one writer thread that commits many waiting operations in one transaction.
//!
//! A synced commit costs milliseconds whatever it holds, so operations that wait at the same moment share one, and one
//! that fails takes back only itself. An answer leaves only after the COMMIT that holds its operation, so `kill -9`
//! loses nothing that was answered.
//!
//! A savepoint around each operation would do for the taking back, but copies every page that the operation touches: a
//! third of what a claim costs. Hardly any operation fails after it has written, so a batch runs without savepoints
//! first, and again with them in the rare case (`commit_batch`; decision 0039).

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{StoreError, migrations::Migration};
use crate::limits::{WRITE_BATCH_MAX, WRITE_QUEUE_MAX};

/// An open database. Clones share the writer thread and the readers.
#[derive(Clone)]
pub struct Sqlite {
    queue: mpsc::Sender<Box<dyn Job>>,
    readers: Arc<Readers>,
}

struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

/// Reads that run at the same time; further ones wait.
const READERS_MAX: usize = 8;

/// How an operation ended, before its batch is known to be durable.
enum Batch<'a> {
    Committed,
    /// The transaction broke under the batch: nobody can say what of it stands.
    Lost(&'a rusqlite::Error),
}

trait Job: Send {
    /// Whether it went well. May be asked again once what it wrote is taken back.
    fn run(&mut self, connection: &Connection) -> bool;
    fn answer(self: Box<Self>, batch: Batch<'_>);
}

struct Operation<T, F> {
    verb: &'static str,
    op: Option<F>,
    result: Option<rusqlite::Result<T>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&Connection) -> rusqlite::Result<T> + Send> Job for Operation<T, F> {
    fn run(&mut self, connection: &Connection) -> bool {
        let Some(op) = &mut self.op else { return true };
        // The one writer serves everybody: an operation that panics must not take it along.
        let result = catch_unwind(AssertUnwindSafe(|| op(connection))).unwrap_or_else(|_| {
            self.op = None;
            Err(rusqlite::Error::ToSqlConversionFailure("the operation panicked".into()))
        });
        self.result.insert(result).is_ok()
    }

    fn answer(self: Box<Self>, batch: Batch<'_>) {
        let verb = self.verb;
        let answer = match (self.result, batch) {
            (Some(Ok(value)), Batch::Committed) => Ok(value),
            (Some(Err(error)), _) => Err(StoreError::untouched(verb, error)),
            (Some(Ok(_)), Batch::Lost(error)) => Err(StoreError::unknown(verb, error.to_string())),
            (None, Batch::Lost(error)) => Err(StoreError::untouched(verb, error.to_string())),
            (None, Batch::Committed) => Err(StoreError::untouched(verb, "the operation did not run")),
        };
        // The caller may have given up waiting; what it asked for is committed all the same.
        let _ = self.reply.send(answer);
    }
}

impl Sqlite {
    /// Opens (or makes) the database at `path`, in WAL mode with every commit synced, and starts its writer.
    ///
    /// # Errors
    /// The file cannot be opened, is no database, or a migration does not apply.
    pub fn open(path: &Path, migrations: &[(&'static str, &[Migration])]) -> Result<Self, StoreError> {
        let open = |error: rusqlite::Error| StoreError::untouched("open", error);
        let mut connection = Connection::open(path).map_err(open)?;
        configure(&connection).map_err(open)?;
        for (component, list) in migrations {
            super::migrations::apply_sqlite(&mut connection, component, list)?;
        }
        let (queue, jobs) = mpsc::channel(WRITE_QUEUE_MAX);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || write_loop(&mut connection, jobs))
            .map_err(|error| StoreError::untouched("open", error))?;
        let readers = Arc::new(Readers {
            path: path.to_owned(),
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(READERS_MAX),
        });
        Ok(Self { queue, readers })
    }

    /// Runs `op` in the next transaction and answers once that is committed and synced. An `op` that returns an
    /// error is taken back as a whole; the others of its batch stand. It may run twice: the first time is then taken
    /// back.
    ///
    /// # Errors
    /// The queue is full or the operation failed (nothing changed), or the commit failed (effect unknown).
    pub async fn write<T, F>(&self, verb: &'static str, op: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        count(verb);
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Operation { verb, op: Some(op), result: None, reply });
        self.queue.try_send(job).map_err(|_| {
            StoreError::untouched(verb, format!("{WRITE_QUEUE_MAX} writes are waiting already"))
        })?;
        answer.await.map_err(|_| StoreError::unknown(verb, "the writer stopped"))?
    }

    /// Runs `op` on a read-only connection, beside the writer: it sees only what is committed.
    ///
    /// # Errors
    /// The read failed; nothing changed.
    pub async fn read<T, F>(&self, verb: &'static str, op: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        count(verb);
        let readers = Arc::clone(&self.readers);
        let permit =
            self.readers.permits.acquire().await.map_err(|error| StoreError::untouched(verb, error))?;
        let task = tokio::task::spawn_blocking(move || readers.with(op));
        let result = task.await.map_err(|error| StoreError::untouched(verb, error))?;
        drop(permit);
        result.map_err(|error| StoreError::untouched(verb, error))
    }
}

impl Readers {
    fn with<T>(&self, op: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open()?,
        };
        let result = op(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_ok() && idle.len() < READERS_MAX {
            idle.push(connection);
        }
        result
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(Duration::from_secs(2))?;
        Ok(connection)
    }
}

fn count(verb: &'static str) {
    metrics::counter!("lockgate_store_calls_total", "store" => "sqlite", "verb" => verb).increment(1);
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(())
}

fn write_loop(connection: &mut Connection, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
    let mut batch: Vec<Box<dyn Job>> = Vec::with_capacity(WRITE_BATCH_MAX);
    while let Some(first) = jobs.blocking_recv() {
        batch.push(first);
        while batch.len() < WRITE_BATCH_MAX {
            match jobs.try_recv() {
                Ok(job) => batch.push(job),
                Err(_) => break,
            }
        }
        let outcome = commit_batch(connection, &mut batch);
        if let Err(error) = &outcome {
            tracing::error!(%error, operations = batch.len(), "a batch of writes was not committed");
            if !connection.is_autocommit() {
                let _ = connection.execute_batch("ROLLBACK");
            }
        }
        for job in batch.drain(..) {
            job.answer(match &outcome {
                Ok(()) => Batch::Committed,
                Err(error) => Batch::Lost(error),
            });
        }
    }
}

fn commit_batch(connection: &Connection, batch: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    if !run_at_once(connection, batch)? {
        connection.prepare_cached("ROLLBACK")?.execute([])?;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        run_apart(connection, batch)?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// `false` where one failed after it had written, so that the batch must be taken back and run apart.
fn run_at_once(connection: &Connection, batch: &mut [Box<dyn Job>]) -> rusqlite::Result<bool> {
    for job in batch {
        let written = connection.total_changes();
        if !job.run(connection) {
            still_open(connection)?;
            if connection.total_changes() != written {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Each in a savepoint of its own.
fn run_apart(connection: &Connection, batch: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    for job in batch {
        connection.prepare_cached("SAVEPOINT operation")?.execute([])?;
        if !job.run(connection) {
            still_open(connection)?;
            connection.prepare_cached("ROLLBACK TO operation")?.execute([])?;
        }
        connection.prepare_cached("RELEASE operation")?.execute([])?;
    }
    Ok(())
}

/// Some errors (disk full, I/O) end the whole transaction, not only the statement; going on would then run the rest of
/// the batch outside any transaction.
fn still_open(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() { Err(rusqlite::Error::ExecuteReturnedResults) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Effect;

    const TABLE: &[Migration] = &[Migration { version: 1, sql: "CREATE TABLE t (n INTEGER PRIMARY KEY)" }];

    fn open(dir: &tempfile::TempDir) -> Sqlite {
        Sqlite::open(&dir.path().join("t.db"), &[("test", TABLE)]).unwrap()
    }

    #[tokio::test]
    async fn a_failed_operation_takes_back_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let insert = |n: i64| db.write("insert", move |c| c.execute("INSERT INTO t VALUES (?1)", [n]));
        let half = db.write("half", |c| {
            c.execute("INSERT INTO t VALUES (100)", [])?;
            c.execute("INSERT INTO t VALUES (1)", [])
        });
        let (a, b, c) = tokio::join!(insert(1), half, insert(2));
        assert!(a.is_ok() && c.is_ok());
        assert_eq!(b.unwrap_err().effect, Effect::None);
        let rows: Vec<i64> = db
            .read("rows", |c| c.prepare("SELECT n FROM t ORDER BY n")?.query_map([], |r| r.get(0))?.collect())
            .await
            .unwrap();
        assert_eq!(rows, [1, 2]);
    }

    /// How often an operation runs that shares its batch with `others`.
    async fn runs_beside(db: &Sqlite, others: &'static [&'static str]) -> u32 {
        // The writer waits in a batch of its own until all others are queued.
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let (begins, mut begun) = mpsc::unbounded_channel();
        let waiting = db.clone();
        let wait = tokio::spawn(async move {
            waiting.write("wait", move |_| Ok(begins.send(()).is_ok() && gate.recv().is_ok())).await
        });
        begun.recv().await.unwrap();
        let mut runs = 0;
        let good = db.write("good", move |c| {
            runs += 1;
            c.execute("INSERT OR REPLACE INTO t VALUES (1)", []).map(|_| runs)
        });
        let bad = others.iter().map(|sql| {
            db.write("bad", move |c| {
                c.execute_batch(sql)?;
                if !sql.is_empty() { c.execute("INSERT INTO t VALUES (1)", []) } else { panic!("deliberate") }
            })
        });
        let start = async { go.send(()).unwrap() };
        let (waited, runs, bad, ()) = tokio::join!(wait, good, futures::future::join_all(bad), start);
        assert!(waited.unwrap().unwrap());
        assert!(bad.into_iter().all(|bad| bad.unwrap_err().effect == Effect::None));
        runs.unwrap()
    }

    #[tokio::test]
    async fn a_batch_runs_again_only_if_one_failed_after_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        assert_eq!(runs_beside(&db, &["SELECT 1", "", "not SQL"]).await, 1);
        assert_eq!(
            runs_beside(&db, &["", "INSERT INTO t VALUES (100)", "INSERT INTO t VALUES (200)"]).await,
            2
        );
        let sum: i64 =
            db.read("sum", |c| c.query_row("SELECT sum(n) FROM t", [], |r| r.get(0))).await.unwrap();
        assert_eq!(sum, 1, "what failed left nothing");
    }

    #[tokio::test]
    async fn a_transaction_that_ends_under_its_batch_is_unknown_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let lost = db.write("lost", |c| {
            c.execute_batch("INSERT INTO t VALUES (7); ROLLBACK")?;
            c.execute("not SQL", [])
        });
        assert!(lost.await.is_err());
        assert!(db.write("after", |c| c.execute("INSERT INTO t VALUES (8)", [])).await.is_ok());
        let count: i64 =
            db.read("count", |c| c.query_row("SELECT count(*) FROM t", [], |r| r.get(0))).await.unwrap();
        assert_eq!(count, 1);
    }

    #[tokio::test]
    async fn an_operation_that_panics_ends_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let broken = db.write("panics", |c| {
            c.execute("INSERT INTO t VALUES (1)", [])?;
            if std::hint::black_box(true) {
                panic!("deliberate");
            }
            Ok(())
        });
        assert_eq!(broken.await.unwrap_err().effect, Effect::None);
        assert!(db.write("after", |c| c.execute("INSERT INTO t VALUES (1)", [])).await.is_ok());
    }

    #[tokio::test]
    async fn readers_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        assert!(db.read("write", |c| c.execute("INSERT INTO t VALUES (1)", [])).await.is_err());
    }
}
