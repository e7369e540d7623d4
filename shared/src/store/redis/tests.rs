//! The link against real servers: sentinels for every user of it, a Cluster that is looked at.

use redis::cmd;

use super::{RedisLink, checkup};
use crate::testing::{PrivateCluster, PrivateRedis, PrivateSentinels, eventually};

#[tokio::test]
async fn h8_every_user_of_the_link_follows_the_sentinels_to_the_new_master() {
    let mut master = PrivateRedis::start_with(&["--repl-diskless-sync-delay", "0"]).await;
    let port = master.port().to_string();
    let replica = PrivateRedis::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let sentinels = PrivateSentinels::watch(&master).await;
    let link = RedisLink::connect(&sentinels.url(), "t:").await.unwrap();
    link.command::<()>("test", cmd("SET").arg("a").arg("1")).await.unwrap();
    let direct = RedisLink::connect(replica.url(), "t:").await.unwrap();
    eventually("the replica has it", 10, async || {
        direct.command::<Option<u32>>("test", cmd("GET").arg("a")).await.unwrap() == Some(1)
    })
    .await;
    // Frozen, its connections stay open and silent; only the sentinels say that somebody else is the master.
    master.freeze();
    sentinels.name(replica.port()).await;
    eventually("writes find the new master", 20, async || {
        link.command::<()>("test", cmd("SET").arg("b").arg("2")).await.is_ok()
    })
    .await;
    assert_eq!(direct.command::<u32>("test", cmd("GET").arg("b")).await.unwrap(), 2);
    assert_eq!(link.command::<u32>("test", cmd("GET").arg("a")).await.unwrap(), 1);
    master.kill();
}

#[tokio::test]
async fn h7_every_master_of_a_cluster_is_looked_at() {
    let cluster = PrivateCluster::start().await;
    let link = RedisLink::connect(&cluster.url(), "t:").await.unwrap();
    assert_eq!(checkup::look(&link, 0).await.unwrap(), checkup::Findings::default());
    let node = &cluster.nodes()[2];
    let direct = RedisLink::connect(node.url(), "t:").await.unwrap();
    let mut set = cmd("CONFIG");
    set.arg("SET").arg("maxmemory-policy").arg("volatile-lru");
    direct.command::<()>("test", &set).await.unwrap();
    let found = checkup::look(&link, 1).await.unwrap();
    assert_eq!(found.refusals.len(), 1);
    assert!(found.refusals[0].contains(&format!("127.0.0.1:{}: maxmemory-policy", node.port())), "{found:?}");
    assert_eq!(found.warnings.len(), 3, "each lacks its replica");
}
