//! What a store must be before a sale is trusted to it: looked at when a process starts, and by `lockgate check`.

use redis::{Value, cmd};

use super::{Connection, RedisLink, identity::field};
use crate::store::StoreError;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// A process must not start: what is wrong, and what to do.
    pub refusals: Vec<String>,
    /// A sale would run, but not through everything: what is wrong, and what to do.
    pub warnings: Vec<String>,
}

/// What one server says of itself, as INFO and CONFIG GET write it.
struct Facts<'a> {
    memory: &'a str,
    persistence: &'a str,
    replication: &'a str,
    /// `None` where CONFIG may not be read.
    appendfsync: Option<&'a str>,
}

/// Looks at every server of the store (a Cluster's masters each for itself).
///
/// # Errors
/// A server does not answer.
pub async fn look(link: &RedisLink, replicas_required: u32) -> Result<Findings, StoreError> {
    let memory = info(link, "memory").await?;
    let persistence = info(link, "persistence").await?;
    let replication = info(link, "replication").await?;
    // Hosted stores often hide CONFIG; what cannot be read is warned of, not refused.
    let appendfsync = each(link, "CONFIG", &["GET", "appendfsync"]).await.unwrap_or_default();
    let mut findings = Findings::default();
    for (server, memory) in &memory {
        let of = |all: &'_ [(String, String)]| {
            all.iter().find(|(name, _)| name == server).map(|(_, text)| text.clone()).unwrap_or_default()
        };
        let (persistence, replication) = (of(&persistence), of(&replication));
        let appendfsync = of(&appendfsync);
        let facts = Facts {
            memory,
            persistence: &persistence,
            replication: &replication,
            appendfsync: (!appendfsync.is_empty()).then_some(appendfsync.as_str()),
        };
        judge(server, &facts, replicas_required, &mut findings);
    }
    Ok(findings)
}

/// PURE: what these facts mean.
fn judge(server: &str, facts: &Facts<'_>, replicas_required: u32, findings: &mut Findings) {
    let at = if server.is_empty() { String::new() } else { format!("server {server}: ") };
    match field(facts.memory, "maxmemory_policy") {
        Some("noeviction") => {}
        Some(policy) => findings.refusals.push(format!(
            "{at}maxmemory-policy is '{policy}': the store would delete places, holds and stock when its memory is full; \
             set `maxmemory-policy noeviction` (CONFIG SET maxmemory-policy noeviction, and in redis.conf)"
        )),
        None => findings.warnings.push(format!(
            "{at}the store does not say what it does when its memory is full; make sure that its maxmemory-policy is noeviction"
        )),
    }
    let replicas: u32 =
        field(facts.replication, "connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0);
    persistence(&at, facts, replicas, findings);
    if replicas < replicas_required {
        findings.warnings.push(format!(
            "{at}store.replicas_required is {replicas_required}, and {replicas} replicas are connected: no claim is made until they \
             are; connect them, or lower store.replicas_required"
        ));
    } else if replicas_required > 0 && replicas > replicas_required {
        findings.warnings.push(format!(
            "{at}{replicas} replicas are connected and store.replicas_required is {replicas_required}: a claim that was answered can be lost \
             when a replica that had not acknowledged it is promoted; set store.replicas_required = {replicas}"
        ));
    }
}

fn persistence(at: &str, facts: &Facts<'_>, replicas: u32, findings: &mut Findings) {
    let has_log = field(facts.persistence, "aof_enabled") == Some("1");
    let problem = match (has_log, facts.appendfsync) {
        (true, Some("always")) => return,
        // Something else than its own disk keeps what it says.
        _ if replicas > 0 => return,
        (false, _) => {
            "keeps no append-only file and has no replica: a server that is killed loses every hold since its last snapshot"
        }
        (true, Some(_)) => {
            "syncs its append-only file now and then and has no replica: a machine that loses power loses the last holds it answered"
        }
        (true, None) => {
            findings.warnings.push(format!(
                "{at}whether the store syncs every write cannot be read (CONFIG is not allowed); make sure of `appendfsync always` or of replicas"
            ));
            return;
        }
    };
    findings.warnings.push(format!(
        "{at}the store {problem}; set `appendonly yes` and `appendfsync always`, or add a replica"
    ));
}

async fn info(link: &RedisLink, section: &str) -> Result<Vec<(String, String)>, StoreError> {
    each(link, "INFO", &[section]).await
}

/// Runs a command on every server: its name (empty where there is only one) and what it said.
async fn each(link: &RedisLink, name: &str, args: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
    let mut command = cmd(name);
    command.arg(args);
    let answer: Value = match &link.connection {
        Connection::Living(_) => link.command("check", &command).await?,
        Connection::Cluster(connection) => {
            use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
            let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            let answer = connection.clone().route_command(command, masters).await;
            answer.map_err(|error| super::classified("check", error))?
        }
    };
    let Value::Map(servers) = answer else {
        return Ok(vec![(String::new(), text(&answer))]);
    };
    if matches!(link.connection, Connection::Living(_)) {
        return Ok(vec![(String::new(), servers.iter().map(|(_, value)| text(value)).collect())]);
    }
    Ok(servers.iter().map(|(server, value)| (text(server), text(value))).collect())
}

/// The text of an answer; of a list (CONFIG GET gives name and value) its last.
fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Array(members) => members.last().map(text).unwrap_or_default(),
        Value::Map(pairs) => pairs.last().map(|(_, value)| text(value)).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        policy: &str,
        persistence: &str,
        replicas: u32,
        fsync: Option<&str>,
        required: u32,
    ) -> Findings {
        let mut findings = Findings::default();
        let memory = format!("# Memory\r\nmaxmemory_policy:{policy}\r\n");
        let replication = format!("role:master\r\nconnected_slaves:{replicas}\r\n");
        let facts = Facts { memory: &memory, persistence, replication: &replication, appendfsync: fsync };
        judge("", &facts, required, &mut findings);
        findings
    }

    const LOG: &str = "aof_enabled:1\r\n";
    const NO_LOG: &str = "aof_enabled:0\r\n";

    #[test]
    fn h7_a_policy_that_evicts_is_refused_with_the_remedy() {
        for policy in ["allkeys-lru", "volatile-ttl", "allkeys-random"] {
            let found = judged(policy, LOG, 0, Some("always"), 0);
            assert!(found.refusals[0].contains(policy) && found.refusals[0].contains("noeviction"));
        }
        assert_eq!(judged("noeviction", LOG, 0, Some("always"), 0), Findings::default());
    }

    #[test]
    fn weak_persistence_is_warned_of_with_the_remedy() {
        for (log, fsync) in [(NO_LOG, Some("always")), (LOG, Some("everysec")), (LOG, None)] {
            let found = judged("noeviction", log, 0, fsync, 0);
            assert!(found.refusals.is_empty());
            assert!(found.warnings[0].contains("appendfsync always"), "{found:?}");
            assert_eq!(judged("noeviction", log, 1, fsync, 1), Findings::default(), "a replica keeps it");
        }
    }

    #[test]
    fn replicas_that_are_missing_or_not_required_are_warned_of() {
        let found = judged("noeviction", LOG, 1, Some("always"), 2);
        assert!(found.warnings[0].contains("is 2, and 1 replicas are connected"), "{found:?}");
        let found = judged("noeviction", LOG, 2, Some("always"), 1);
        assert!(found.warnings[0].contains("set store.replicas_required = 2"), "{found:?}");
    }
}
