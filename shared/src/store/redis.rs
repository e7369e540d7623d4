//! The link to Redis or Valkey, single, behind sentinels, or Cluster: one multiplexed connection, scripts, and errors
//! that say whether the call may have run.
//!
//! Commands are never resent: a claim that ran once and lost its reply must be *asked for* again with its id, not
//! run again by a driver that knows nothing of ids.

mod address;
pub mod checkup;
mod identity;
mod living;
mod owners;
pub mod pinned;
mod sentinel;
mod settings;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ServerErrorKind, ToRedisArgs,
    cluster::ClusterClient, cluster_async::ClusterConnection,
};

use self::{
    address::Address,
    living::{Living, Purpose, Target},
};
use super::{Effect, StoreError};
use crate::limits::STORE_CALL_MS_MAX;

/// A connected store. Clones share the connection.
#[derive(Clone)]
pub struct RedisLink {
    connection: Connection,
    address: Arc<Address>,
    prefix: Arc<str>,
}

#[derive(Clone)]
enum Connection {
    Living(Living),
    Cluster(ClusterConnection),
}

/// Keys and arguments of one run of a script.
pub type ScriptCall = (Vec<String>, Vec<Vec<u8>>);

/// Whether `url` names a store in a way [`RedisLink::connect`] understands.
///
/// # Errors
/// What is wrong with it, without the URL: it may hold a password.
pub fn check_url(url: &str) -> Result<(), String> {
    Address::parse(url).map(drop).map_err(|error| error.to_string())
}

impl RedisLink {
    /// Connects to `redis://host:port/db`, to the master that sentinels name by
    /// `redis+sentinel://host:port,host:port/master-name/db`, or to a Cluster by `redis+cluster://host:port,host:port`.
    /// Every key begins with `prefix`.
    ///
    /// # Errors
    /// The URL does not parse or the server cannot be reached.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self, StoreError> {
        let failed = |error: RedisError| StoreError::untouched("connect", error);
        let address = Address::parse(url).map_err(failed)?;
        let connection = match &address {
            Address::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes.clone())
                    .retries(0)
                    .connection_timeout(Duration::from_millis(STORE_CALL_MS_MAX))
                    .response_timeout(Duration::from_millis(STORE_CALL_MS_MAX))
                    .tcp_settings(settings::tcp())
                    .build()
                    .map_err(failed)?;
                Connection::Cluster(client.get_async_connection().await.map_err(failed)?)
            }
            Address::Single(info) => Connection::Living(living(Target::Fixed((**info).clone())).await?),
            Address::Sentinel(watched) => {
                Connection::Living(living(Target::Watched((**watched).clone())).await?)
            }
        };
        Ok(Self { connection, address: address.into(), prefix: prefix.into() })
    }

    /// The full key for `rest`.
    #[must_use]
    pub fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// Runs a script, loading it first where the server does not know it.
    ///
    /// # Errors
    /// Whatever the server or the connection says, with the effect the call may have had.
    pub async fn run<T: FromRedisValue>(
        &self,
        verb: &'static str,
        script: &Script,
        keys: &[String],
        args: impl ToRedisArgs,
    ) -> Result<T, StoreError> {
        count(verb);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        call.arg(args);
        let answer = match &self.connection {
            Connection::Living(living) => {
                let line = living.line(verb).await?;
                line.noted(call.invoke_async(&mut line.connection()).await)
            }
            Connection::Cluster(connection) => call.invoke_async(&mut connection.clone()).await,
        };
        answer.map_err(|error| classified(verb, error))
    }

    /// Runs a script once for each of `calls`. Where one server holds all keys they travel in one pipeline: as many
    /// answers wake this process once, not once each. Each call has an answer of its own.
    pub async fn run_each<T: FromRedisValue>(
        &self,
        verb: &'static str,
        script: &Script,
        calls: &[ScriptCall],
    ) -> Vec<Result<T, StoreError>> {
        let each = |call: &'_ ScriptCall| {
            let (keys, args) = call.clone();
            async move { self.run(verb, script, &keys, args).await }
        };
        let Connection::Living(living) = &self.connection else {
            return join_all(calls.iter().map(each)).await;
        };
        let line = match living.line(verb).await {
            Ok(line) => line,
            Err(error) => return calls.iter().map(|_| Err(error.again())).collect(),
        };
        let mut pipeline = redis::pipe();
        for (keys, args) in calls {
            count(verb);
            pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(keys.len()).arg(keys).arg(args);
        }
        let answers = pipeline.ignore_errors().query_async(&mut line.connection()).await;
        let answers: Vec<RedisResult<T>> = match line.noted(answers) {
            Ok(answers) => answers,
            Err(error) => {
                let error = classified(verb, error);
                return calls.iter().map(|_| Err(error.again())).collect();
            }
        };
        // A server that has just started does not know the script: each call alone loads it.
        let is_unknown = |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript);
        if answers.iter().any(|answer| answer.as_ref().is_err_and(is_unknown)) {
            return join_all(calls.iter().map(each)).await;
        }
        answers.into_iter().map(|answer| answer.map_err(|error| classified(verb, error))).collect()
    }

    /// Whether keys are spread over several servers.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.connection, Connection::Cluster(_))
    }

    /// Runs one command.
    ///
    /// # Errors
    /// As [`RedisLink::run`].
    pub async fn command<T: FromRedisValue>(
        &self,
        verb: &'static str,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        count(verb);
        let answer = match &self.connection {
            Connection::Living(living) => {
                let line = living.line(verb).await?;
                line.noted(command.query_async(&mut line.connection()).await)
            }
            Connection::Cluster(connection) => command.query_async(&mut connection.clone()).await,
        };
        answer.map_err(|error| classified(verb, error))
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.command::<String>("ping", &redis::cmd("PING")).await.map(drop)
    }
}

fn count(verb: &'static str) {
    metrics::counter!("lockgate_store_calls_total", "store" => "redis", "verb" => verb).increment(1);
}

async fn living(target: Target) -> Result<Living, StoreError> {
    let connected = Living::connect(target, Purpose::default()).await;
    connected.map_err(|error| StoreError::untouched("connect", error))
}

/// A server that refuses by name has not run the command. Anything else (a time-out, a dropped connection, an
/// error raised inside a script) may have.
fn classified(verb: &'static str, error: RedisError) -> StoreError {
    let refused = match error.kind() {
        ErrorKind::Server(kind) => !matches!(kind, ServerErrorKind::ResponseError),
        ErrorKind::Extension => {
            matches!(error.code(), Some("OOM" | "NOREPLICAS" | "MISCONF" | "NOAUTH" | "LOADING" | "BUSY"))
        }
        ErrorKind::InvalidClientConfig | ErrorKind::AuthenticationFailed => true,
        _ => error.is_connection_refusal(),
    };
    match if refused { Effect::None } else { Effect::Unknown } {
        Effect::None => StoreError::untouched(verb, error),
        Effect::Unknown => StoreError::unknown(verb, error),
    }
}

#[cfg(test)]
mod tests;
