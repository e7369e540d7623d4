//! Scripts that must know which server they run on: connections of their own, on which calls travel together.
//!
//! Each server has one such connection. What waits while a flush is under way goes with the next, in one pipeline;
//! where replicas must have it too, the pipeline ends with WAIT, which nobody else's call has to sit through. The
//! server's identity is read when the connection is made and given to every script as its last argument, so that a
//! script can see that the data was left by another server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{RedisResult, Script, Value};
use tokio::sync::{mpsc, oneshot};

use super::{
    Connection, RedisLink,
    address::Address,
    classified, count,
    living::{Line, Living, Purpose},
    owners::Owners,
};
use crate::{
    limits::{REPLICATION_WAIT_MS, STORE_BATCH_MAX, STORE_CALL_MS_MAX, STORE_QUEUE_MAX},
    store::StoreError,
};

/// What pinned calls are made with.
#[derive(Clone, Debug, Default)]
pub struct PinnedSettings {
    /// Scripts that every server must know before its first call.
    pub scripts: Vec<&'static Script>,
    /// Replicas that must have a write before it counts as done; 0 to wait for none.
    pub replicas_required: u32,
    /// Whether scripts are told the server's identity; otherwise their last argument is empty.
    pub tells_identity: bool,
}

/// What a script answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedAnswer {
    /// The script's words.
    pub words: Vec<String>,
    /// Whether as many replicas as are required have everything that was written up to this answer.
    pub is_acknowledged: bool,
}

/// Pinned calls to one store.
pub struct Pinned {
    route: Route,
}

enum Route {
    One(Flusher),
    Owners(Arc<Owners>),
}

impl Pinned {
    /// Over the store of `link`, by connections of its own.
    #[must_use]
    pub fn new(link: &RedisLink, settings: PinnedSettings) -> Self {
        let settings = Arc::new(settings);
        let route = match (&link.connection, &*link.address) {
            (Connection::Living(living), _) => {
                Route::One(Flusher::start(living.another(purpose(&settings)), settings))
            }
            (Connection::Cluster(_), Address::Cluster(nodes)) => {
                Route::Owners(Arc::new(Owners::new(nodes.clone(), settings)))
            }
            // A Cluster connection is made from a Cluster's address and from nothing else.
            (Connection::Cluster(_), _) => Route::Owners(Arc::new(Owners::new(Vec::new(), settings))),
        };
        Self { route }
    }

    /// Runs a script on the server that owns `keys`. Its last argument will be the server's identity.
    ///
    /// # Errors
    /// Too many calls wait, the server cannot be reached or refuses (nothing changed); or the answer was lost (effect
    /// unknown).
    pub async fn run(
        &self,
        verb: &'static str,
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> Result<PinnedAnswer, StoreError> {
        count(verb);
        match &self.route {
            Route::One(flusher) => flusher.call(verb, script, keys, args).await,
            Route::Owners(owners) => owners.call(verb, script, keys, args).await,
        }
    }
}

pub(super) fn purpose(settings: &PinnedSettings) -> Purpose {
    Purpose { needs_master: true, scripts: settings.scripts.clone() }
}

struct Job {
    verb: &'static str,
    script: &'static Script,
    keys: Vec<String>,
    args: Vec<String>,
    asked_at: Instant,
    reply: oneshot::Sender<Result<PinnedAnswer, StoreError>>,
}

impl Job {
    fn refuse(self, words: &str) {
        let error = StoreError::untouched(self.verb, words.to_owned());
        let _ = self.reply.send(Err(error));
    }
}

/// One server's queue and the loop that empties it.
pub(super) struct Flusher {
    queue: mpsc::Sender<Job>,
}

impl Flusher {
    pub(super) fn start(living: Living, settings: Arc<PinnedSettings>) -> Self {
        let (queue, jobs) = mpsc::channel(STORE_QUEUE_MAX);
        tokio::spawn(flush_all(living, settings, jobs));
        Self { queue }
    }

    pub(super) async fn call(
        &self,
        verb: &'static str,
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> Result<PinnedAnswer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = Job { verb, script, keys, args, asked_at: Instant::now(), reply };
        self.queue.try_send(job).map_err(|_| {
            StoreError::untouched(verb, format!("{STORE_QUEUE_MAX} calls are waiting already"))
        })?;
        answer.await.map_err(|_| StoreError::unknown(verb, "the connection's loop stopped"))?
    }
}

async fn flush_all(living: Living, settings: Arc<PinnedSettings>, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(STORE_BATCH_MAX);
    while jobs.recv_many(&mut batch, STORE_BATCH_MAX).await > 0 {
        let waiting = std::mem::replace(&mut batch, Vec::with_capacity(STORE_BATCH_MAX));
        flush(&living, &settings, still_wanted(waiting)).await;
    }
}

/// Without those whose caller is gone or has waited as long as a call may take: neither was sent.
fn still_wanted(jobs: Vec<Job>) -> Vec<Job> {
    let mut wanted = Vec::with_capacity(jobs.len());
    for job in jobs.into_iter().filter(|job| !job.reply.is_closed()) {
        if job.asked_at.elapsed() < Duration::from_millis(STORE_CALL_MS_MAX) {
            wanted.push(job);
        } else {
            job.refuse("it waited too long behind a server that does not answer");
        }
    }
    wanted
}

async fn flush(living: &Living, settings: &PinnedSettings, jobs: Vec<Job>) {
    let Some(first) = jobs.first() else { return };
    let line = match living.line(first.verb).await {
        Ok(line) => line,
        Err(error) => {
            let words = error.causes();
            return jobs.into_iter().for_each(|job| job.refuse(&words));
        }
    };
    let (required, connected) = (settings.replicas_required, line.replicas());
    if connected < required {
        // A claim that no replica can acknowledge would only put units aside until its hold runs out.
        let words = format!("store.replicas_required is {required}, and {connected} replicas are connected");
        return jobs.into_iter().for_each(|job| job.refuse(&words));
    }
    let identity = if settings.tells_identity { line.identity() } else { "" };
    let mut pipeline = redis::pipe();
    for job in &jobs {
        let call = pipeline.cmd("EVALSHA").arg(job.script.get_hash()).arg(job.keys.len());
        call.arg(&job.keys).arg(&job.args).arg(identity);
    }
    if required > 0 {
        pipeline.cmd("WAIT").arg(required).arg(REPLICATION_WAIT_MS);
    }
    let answers: RedisResult<Vec<RedisResult<Value>>> =
        pipeline.ignore_errors().query_async(&mut line.connection()).await;
    match line.noted(answers) {
        Ok(answers) => tell_each(&line, required, jobs, answers),
        Err(error) => {
            for job in jobs {
                let _ = job.reply.send(Err(classified(job.verb, error.clone())));
            }
        }
    }
}

fn tell_each(line: &Line, required: u32, jobs: Vec<Job>, mut answers: Vec<RedisResult<Value>>) {
    let is_acknowledged = required == 0 || acknowledged(line, answers.pop()) >= required;
    for (job, answer) in jobs.into_iter().zip(answers) {
        if let Err(error) = &answer {
            line.note(Some(error));
        }
        let words = answer.and_then(|value| Ok(redis::from_redis_value::<Vec<String>>(value)?));
        let answer = words.map(|words| PinnedAnswer { words, is_acknowledged });
        let _ = job.reply.send(answer.map_err(|error| classified(job.verb, error)));
    }
}

/// How many replicas said that they have it. A master that is demoted meanwhile answers with an error.
fn acknowledged(line: &Line, answer: Option<RedisResult<Value>>) -> u32 {
    match answer {
        Some(Ok(Value::Int(replicas))) => u32::try_from(replicas).unwrap_or(0),
        Some(Ok(_)) | None => 0,
        Some(Err(error)) => {
            line.spend("WAIT was broken off");
            tracing::warn!(%error, "replicas were not waited for");
            0
        }
    }
}
