//! Several redis-servers that belong together: a Cluster, and sentinels that watch a master.

use std::process::{Command, Stdio};

use redis::{Cmd, FromRedisValue, cmd};

use super::{PrivateRedis, Server, answers, eventually, free_port};

/// What the sentinels of a test call the master.
const MASTER: &str = "main";

/// Runs a command on a server, by a connection of its own.
async fn tell<T: FromRedisValue>(port: u16, command: &Cmd) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    command.query_async(&mut connection).await
}

/// Three masters that share all slots, every write synced.
pub struct PrivateCluster {
    nodes: Vec<PrivateRedis>,
}

impl PrivateCluster {
    /// Starts the nodes, makes them meet, and waits until each says that the Cluster stands.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        let mut bus_ports = Vec::new();
        for _ in 0..3 {
            // Left to itself a node takes its port plus 10,000, which may be more than there are.
            let bus = free_port().to_string();
            let arguments =
                ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", &bus];
            let synced = ["--appendonly", "yes", "--appendfsync", "always"];
            nodes.push(PrivateRedis::start_with(&[&arguments[..], &synced[..]].concat()).await);
            bus_ports.push(bus);
        }
        for (node, first, last) in [(0, 0, 5_460), (1, 5_461, 10_922), (2, 10_923, 16_383)] {
            let mut slots = cmd("CLUSTER");
            slots.arg("ADDSLOTSRANGE").arg(first).arg(last);
            tell::<()>(nodes[node].port(), &slots).await.unwrap();
            let mut meet = cmd("CLUSTER");
            meet.arg("MEET").arg("127.0.0.1").arg(nodes[0].port()).arg(&bus_ports[0]);
            tell::<()>(nodes[node].port(), &meet).await.unwrap();
        }
        let cluster = Self { nodes };
        eventually("every node of the Cluster knows who owns what", 30, async || cluster.stands().await)
            .await;
        cluster
    }

    async fn stands(&self) -> bool {
        let mut count = 0;
        for node in &self.nodes {
            let info: String = tell(node.port(), cmd("CLUSTER").arg("INFO")).await.unwrap();
            let slots: Vec<redis::Value> = tell(node.port(), cmd("CLUSTER").arg("SLOTS")).await.unwrap();
            count += usize::from(info.contains("cluster_state:ok") && slots.len() == 3);
        }
        count == self.nodes.len()
    }

    /// Starts a replica of the node that has the slot of `key`, and answers it once it has everything, with that node's
    /// number.
    pub async fn replica_for(&self, key: &str) -> (PrivateRedis, usize) {
        let slot: usize = tell(self.nodes[0].port(), cmd("CLUSTER").arg("KEYSLOT").arg(key)).await.unwrap();
        let owner = (slot / 5_461).min(2);
        let bus = free_port().to_string();
        let arguments =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", &bus];
        let replica = PrivateRedis::start_with(&arguments).await;
        let port = replica.port();
        let id: String = tell(self.nodes[owner].port(), cmd("CLUSTER").arg("MYID")).await.unwrap();
        let mut meet = cmd("CLUSTER");
        meet.arg("MEET").arg("127.0.0.1").arg(port).arg(&bus);
        tell::<()>(self.nodes[owner].port(), &meet).await.unwrap();
        eventually("the replica knows its master", 30, async || {
            tell::<()>(port, cmd("CLUSTER").arg("REPLICATE").arg(&id)).await.is_ok()
        })
        .await;
        eventually("the replica has everything, and every node knows it", 30, async || {
            let info: String = tell(port, cmd("INFO").arg("replication")).await.unwrap();
            let mut known = info.contains("master_link_status:up");
            for node in &self.nodes {
                let nodes: String = tell(node.port(), cmd("CLUSTER").arg("NODES")).await.unwrap();
                known &= nodes.lines().any(|line| line.contains(" slave ") && line.contains(&id));
            }
            known
        })
        .await;
        (replica, owner)
    }

    /// Ends a node without warning.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &[PrivateRedis] {
        &self.nodes
    }

    /// Its URL, which names the first two nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port(), self.nodes[1].port())
    }
}

/// Three sentinels that watch one master, two of which must agree that it is gone.
pub struct PrivateSentinels {
    sentinels: Vec<(u16, Server)>,
}

impl PrivateSentinels {
    /// Starts them and waits until they know each other and the master's one replica.
    pub async fn watch(master: &PrivateRedis) -> Self {
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(sentinel(master.port()).await);
        }
        let found = Self { sentinels };
        eventually("the sentinels know each other and the replica", 30, async || {
            let mut count = 0;
            for (port, _) in &found.sentinels {
                let info: String = tell(*port, cmd("INFO").arg("sentinel")).await.unwrap();
                count += usize::from(info.contains("slaves=1,sentinels=3"));
            }
            count == found.sentinels.len()
        })
        .await;
        found
    }

    /// The URL of the master they watch.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// Has them promote the replica while the master lives: it is demoted and keeps its clients.
    pub async fn fail_over(&self) {
        eventually("the sentinels begin a fail-over", 20, async || {
            let mut command = cmd("SENTINEL");
            command.arg("FAILOVER").arg(MASTER);
            tell::<()>(self.sentinels[0].0, &command).await.is_ok()
        })
        .await;
    }

    /// Waits until most of them call the server on `port` the master.
    pub async fn name(&self, port: u16) {
        eventually("the sentinels name another master", 60, async || {
            let mut count = 0;
            for (sentinel, _) in &self.sentinels {
                let mut ask = cmd("SENTINEL");
                ask.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER);
                let named: Option<(String, u16)> = tell(*sentinel, &ask).await.unwrap();
                count += usize::from(named.is_some_and(|(_, named)| named == port));
            }
            count >= 2
        })
        .await;
    }
}

async fn sentinel(master_port: u16) -> (u16, Server) {
    for _ in 0..5 {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let file = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master_port} 2\n\
             sentinel down-after-milliseconds {MASTER} 1000\nsentinel failover-timeout {MASTER} 5000\n",
            dir.path().display()
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: run deploy/test");
        let mut server = Server { child, dir };
        if answers(&mut server.child, port).await {
            return (port, server);
        }
    }
    panic!("no sentinel started");
}
