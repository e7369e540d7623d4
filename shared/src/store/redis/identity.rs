//! Who a server is, by its own word: PURE, read from `INFO server` and `INFO replication`.

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `<run id>:<replication id>`. The first changes with every start of the process, the second whenever a server
    /// stops or starts being a replica: a server that is restarted, restored, demoted or promoted is another one.
    pub identity: String,
    /// Whether it takes writes of its own.
    pub is_master: bool,
    /// Replicas that are connected to it at this moment.
    pub replicas: u32,
}

impl Server {
    /// Reads what INFO answered, or nothing if it does not say who it is.
    #[must_use]
    pub fn read(server: &str, replication: &str) -> Option<Self> {
        let run_id = field(server, "run_id")?;
        let replication_id = field(replication, "master_replid")?;
        Some(Self {
            identity: format!("{run_id}:{replication_id}"),
            is_master: field(replication, "role")? == "master",
            replicas: field(replication, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0),
        })
    }
}

/// A line `name:value` of an INFO answer.
#[must_use]
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_a_server_is_takes_both_answers() {
        let server = "# Server\r\nredis_version:7.0.15\r\nrun_id:aa\r\nrun_id_more:x\r\n";
        let replication = "# Replication\r\nrole:slave\r\nconnected_slaves:2\r\nmaster_replid:bb\r\n";
        let found = Server::read(server, replication).unwrap();
        assert_eq!(found, Server { identity: "aa:bb".into(), is_master: false, replicas: 2 });
        assert!(Server::read("", replication).is_none());
        assert!(Server::read(server, "role:master\r\n").is_none());
    }
}
