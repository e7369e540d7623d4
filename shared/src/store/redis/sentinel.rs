//! Which server is the master, by the word of its sentinels.

use std::time::Duration;

use futures::future::join_all;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    ServerErrorKind, cmd,
};

use super::address::Watched;

/// Longest one sentinel is waited for.
const ASK_MS: u64 = 700;

/// The master's address. All sentinels are asked at once and the one most of them name is taken, so that one that was
/// cut off from the others does not lead anybody back to the old master.
///
/// # Errors
/// None of them answers, or none knows a master of this name.
pub(super) async fn resolve(watched: &Watched) -> RedisResult<ConnectionInfo> {
    let answers = join_all(watched.sentinels.iter().map(|sentinel| ask(watched, sentinel))).await;
    let mut named: Vec<((String, u16), usize)> = Vec::new();
    let mut last = None;
    for answer in answers {
        match answer {
            Ok(address) => match named.iter_mut().find(|(known, _)| *known == address) {
                Some((_, votes)) => *votes += 1,
                None => named.push((address, 1)),
            },
            Err(error) => last = Some(error),
        }
    }
    let most = named.iter().map(|(_, votes)| *votes).max();
    let address = named.into_iter().find(|(_, votes)| Some(*votes) == most).map(|(address, _)| address);
    match (address, last) {
        (Some((host, port)), _) => Ok(watched.server.clone().set_addr(ConnectionAddr::Tcp(host, port))),
        (None, Some(error)) => Err(error),
        (None, None) => Err(unknown()),
    }
}

async fn ask(watched: &Watched, sentinel: &ConnectionInfo) -> RedisResult<(String, u16)> {
    let answer = ask_as(watched, sentinel.clone()).await;
    let needs_login = |error: &RedisError| {
        error.code() == Some("NOAUTH") || error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
    };
    // Sentinels seldom ask for a password; where they do, it is the servers' one.
    match (answer, watched.server.redis_settings().password()) {
        (Err(error), Some(password)) if needs_login(&error) => {
            let settings = sentinel.redis_settings().clone().set_password(password);
            let settings = match watched.server.redis_settings().username() {
                Some(name) => settings.set_username(name),
                None => settings,
            };
            ask_as(watched, sentinel.clone().set_redis_settings(settings)).await
        }
        (answer, _) => answer,
    }
}

async fn ask_as(watched: &Watched, sentinel: ConnectionInfo) -> RedisResult<(String, u16)> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_millis(ASK_MS)))
        .set_response_timeout(Some(Duration::from_millis(ASK_MS)));
    let client = redis::Client::open(sentinel)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut command = cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(&watched.master);
    let answer: Option<(String, u16)> = command.query_async(&mut connection).await?;
    answer.ok_or_else(unknown)
}

fn unknown() -> RedisError {
    RedisError::from((
        ErrorKind::InvalidClientConfig,
        "the sentinels know no master of this name; compare it with `sentinel monitor` in their configuration",
    ))
}
