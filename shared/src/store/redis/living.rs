//! A connection that is thrown away and made anew when its server is gone, no longer the master, or silent.
//!
//! Nothing is ever sent again: a call that was under way when its connection broke is answered with what is known of
//! it, and the next call finds a new connection.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind,
    aio::MultiplexedConnection, cmd,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::{
    address::Watched,
    identity::Server,
    sentinel,
    settings::{self, PIPELINE_DEPTH},
};
use crate::{limits::STORE_CALL_MS_MAX, limits::STORE_TIMEOUTS_MAX, store::StoreError};

/// How often a living connection is asked who is at its other end.
const LOOK_MS: u64 = 1_000;
/// After a connection could not be made the next attempt waits this long; calls meanwhile are refused at once.
const AGAIN_MS: u64 = 100;

/// Where a connection leads.
pub(super) enum Target {
    /// Always to this server.
    Fixed(ConnectionInfo),
    /// To whichever server the sentinels call the master.
    Watched(Watched),
}

/// What a connection is for.
#[derive(Default)]
pub(super) struct Purpose {
    /// Only a master will do. Behind sentinels nothing else ever does.
    pub(super) needs_master: bool,
    /// Scripts that the server knows before the first call.
    pub(super) scripts: Vec<&'static Script>,
}

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Living {
    inner: Arc<Inner>,
}

struct Inner {
    target: Target,
    purpose: Purpose,
    line: ArcSwapOption<Line>,
    /// Held while a connection is made; says when and why the last attempt failed.
    making: Mutex<Option<(Instant, RedisError)>>,
}

/// One connection, from its making to its end.
pub(super) struct Line {
    connection: MultiplexedConnection,
    address: String,
    server: Server,
    replicas: AtomicU32,
    timeouts: AtomicU32,
    is_spent: AtomicBool,
}

impl Line {
    /// Who is at its other end, as of its making; a server that changes ends the connection.
    pub(super) fn identity(&self) -> &str {
        &self.server.identity
    }

    /// Replicas that were connected when the server was last asked.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// The next call makes a new connection.
    pub(super) fn spend(&self, why: &str) {
        if !self.is_spent.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = self.address, why, "a store connection is made anew");
        }
    }

    /// An answer, of which note was taken.
    pub(super) fn noted<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        self.note(answer.as_ref().err());
        answer
    }

    /// Takes note of how a call ended. READONLY and MOVED come from a server that was demoted and kept its clients;
    /// a connection that only times out is dead, whatever the kernel says of it.
    pub(super) fn note(&self, failure: Option<&RedisError>) {
        let Some(error) = failure else {
            self.timeouts.store(0, Ordering::Relaxed);
            return;
        };
        let is_elsewhere = matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly | ServerErrorKind::Moved | ServerErrorKind::MasterDown
            )
        );
        if error.is_timeout() {
            if self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= STORE_TIMEOUTS_MAX {
                self.spend("it only times out");
            }
        } else if is_elsewhere {
            self.spend("the server is not the master any more");
        } else if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
            self.spend("the server has lost its scripts");
        } else if error.is_io_error() || error.is_unrecoverable_error() {
            self.spend("it broke");
        }
    }
}

impl Living {
    /// Connects, and looks after the connection from then on.
    pub(super) async fn connect(target: Target, purpose: Purpose) -> RedisResult<Self> {
        let living = Self::lazy(target, purpose);
        living.line_or_error().await?;
        Ok(living)
    }

    /// The same, but the first call connects.
    pub(super) fn lazy(target: Target, purpose: Purpose) -> Self {
        let (line, making) = (ArcSwapOption::empty(), Mutex::default());
        let inner = Arc::new(Inner { target, purpose, line, making });
        tokio::spawn(look_after(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// The same server by a connection of its own.
    pub(super) fn another(&self, purpose: Purpose) -> Self {
        let target = match &self.inner.target {
            Target::Fixed(info) => Target::Fixed(info.clone()),
            Target::Watched(watched) => Target::Watched(watched.clone()),
        };
        Self::lazy(target, purpose)
    }

    /// The connection of this moment, made if there is none.
    ///
    /// # Errors
    /// None can be made; nothing was sent.
    pub(super) async fn line(&self, verb: &'static str) -> Result<Arc<Line>, StoreError> {
        match self.inner.usable() {
            Some(line) => Ok(line),
            None => self.line_or_error().await.map_err(|error| StoreError::untouched(verb, error)),
        }
    }

    async fn line_or_error(&self) -> RedisResult<Arc<Line>> {
        let inner = &self.inner;
        let mut last = inner.making.lock().await;
        if let Some(line) = inner.usable() {
            return Ok(line);
        }
        if let Some((at, error)) = &*last
            && at.elapsed() < Duration::from_millis(AGAIN_MS)
        {
            return Err(error.clone());
        }
        let made = timeout(Duration::from_millis(STORE_CALL_MS_MAX), inner.make()).await;
        match made.unwrap_or_else(|_| Err(settings::timed_out())) {
            Ok(line) => {
                let line = Arc::new(line);
                inner.line.store(Some(Arc::clone(&line)));
                *last = None;
                Ok(line)
            }
            Err(error) => {
                *last = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

impl Inner {
    fn usable(&self) -> Option<Arc<Line>> {
        self.line.load_full().filter(|line| !line.is_spent.load(Ordering::Relaxed))
    }

    fn needs_master(&self) -> bool {
        self.purpose.needs_master || matches!(self.target, Target::Watched(_))
    }

    async fn address(&self) -> RedisResult<ConnectionInfo> {
        let info = match &self.target {
            Target::Fixed(info) => info.clone(),
            Target::Watched(watched) => sentinel::resolve(watched).await?,
        };
        Ok(settings::with_tcp(info))
    }

    async fn make(&self) -> RedisResult<Line> {
        let info = self.address().await?;
        let address = info.addr().to_string();
        let call_time = Some(Duration::from_millis(STORE_CALL_MS_MAX));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(call_time)
            .set_response_timeout(call_time)
            .set_pipeline_buffer_size(PIPELINE_DEPTH);
        let client = redis::Client::open(info)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let server = ask_who(&mut connection).await?;
        if self.needs_master() && !server.is_master {
            return Err(settings::refused("the server is a replica; a master is needed here"));
        }
        for script in &self.purpose.scripts {
            script.prepare_invoke().load_async(&mut connection).await?;
        }
        let (replicas, timeouts, is_spent) =
            (server.replicas.into(), AtomicU32::new(0), AtomicBool::new(false));
        Ok(Line { connection, address, server, replicas, timeouts, is_spent })
    }

    /// Asks the other end who it is, and the sentinels where it should be.
    async fn look(&self, line: &Line) {
        if let Target::Watched(_) = self.target
            && let Ok(info) = self.address().await
            && info.addr().to_string() != line.address
        {
            line.spend("the sentinels name another master");
            return;
        }
        match ask_who(&mut line.connection()).await {
            Ok(server) if server.identity != line.server.identity => {
                line.spend("the server is another one than before");
            }
            Ok(server) if self.needs_master() && !server.is_master => {
                line.spend("the server is not the master any more");
            }
            Ok(server) => {
                line.replicas.store(server.replicas, Ordering::Relaxed);
                line.note(None);
            }
            Err(error) => line.note(Some(&error)),
        }
    }
}

/// Ends when nobody uses the connection any more.
async fn look_after(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let Some(inner) = inner.upgrade() else { return };
        match inner.usable() {
            Some(line) => inner.look(&line).await,
            // So that whoever calls after an outage finds the connection there.
            None => drop(Living { inner }.line_or_error().await),
        }
    }
}

async fn ask_who(connection: &mut MultiplexedConnection) -> RedisResult<Server> {
    let mut pipeline = redis::pipe();
    pipeline.add_command(cmd("INFO").arg("server").clone());
    pipeline.add_command(cmd("INFO").arg("replication").clone());
    let (server, replication): (String, String) = pipeline.query_async(connection).await?;
    Server::read(&server, &replication)
        .ok_or_else(|| settings::refused("INFO does not say who the server is (run_id, role, master_replid)"))
}
