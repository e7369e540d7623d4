//! Which node of a Cluster owns a slot, and the pinned connection to it.
//!
//! The driver's own Cluster connection tells nobody which node ran a command, so pinned calls look their node up here.
//! A call that meets the wrong node, or none, is answered so; the owners are read anew for the next one.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisResult, Script, Value, cluster_routing::Slot,
    cmd,
};
use tokio::sync::MutexGuard;

use super::{
    living::{Living, Target},
    pinned::{Flusher, PinnedAnswer, PinnedSettings, purpose},
    settings,
};
use crate::store::StoreError;

/// The owners are not read more often than this.
const AGAIN_MS: u64 = 200;
/// Longest one node is waited for.
const ASK_MS: u64 = 700;

type Node = (Arc<str>, u16);

pub(super) struct Owners {
    seeds: Vec<ConnectionInfo>,
    settings: Arc<PinnedSettings>,
    slots: ArcSwap<HashMap<Slot, Node>>,
    nodes: Mutex<HashMap<Node, Arc<Flusher>>>,
    /// Held while the owners are read; says when they were last.
    reading: tokio::sync::Mutex<Option<Instant>>,
    turn: AtomicUsize,
}

impl Owners {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, settings: Arc<PinnedSettings>) -> Self {
        Self {
            seeds,
            settings,
            slots: ArcSwap::default(),
            nodes: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        verb: &'static str,
        script: &'static Script,
        keys: Vec<String>,
        args: Vec<String>,
    ) -> Result<PinnedAnswer, StoreError> {
        let slot = Slot::for_key(keys.first().map(String::as_str).unwrap_or_default());
        let mut owner = self.owner(slot);
        if owner.is_none() {
            self.read(self.reading.lock().await).await;
            owner = self.owner(slot);
        }
        let Some(flusher) = owner else {
            return Err(StoreError::untouched(verb, "no node of the Cluster says who owns the sale"));
        };
        let answer = flusher.call(verb, script, keys, args).await;
        if answer.is_err() {
            // MOVED, READONLY, a node that is gone: whatever it was, later calls ask whoever owns the slot then.
            let owners = Arc::clone(self);
            tokio::spawn(async move {
                if let Ok(last) = owners.reading.try_lock() {
                    owners.read(last).await;
                }
            });
        }
        answer
    }

    fn owner(&self, slot: Slot) -> Option<Arc<Flusher>> {
        let node = self.slots.load().get(&slot).cloned()?;
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flusher) = nodes.get(&node) {
            return Some(Arc::clone(flusher));
        }
        let target = Target::Fixed(self.at(&node)?);
        let living = Living::lazy(target, purpose(&self.settings));
        let flusher = Arc::new(Flusher::start(living, Arc::clone(&self.settings)));
        nodes.insert(node, Arc::clone(&flusher));
        Some(flusher)
    }

    fn at(&self, (host, port): &Node) -> Option<ConnectionInfo> {
        Some(self.seeds.first()?.clone().set_addr(ConnectionAddr::Tcp(host.to_string(), *port)))
    }

    /// Reads the owners from the first node that answers, each time beginning with another.
    async fn read(&self, mut last: MutexGuard<'_, Option<Instant>>) {
        if last.is_some_and(|at| at.elapsed() < Duration::from_millis(AGAIN_MS)) {
            return;
        }
        let known: Vec<Node> = {
            let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.keys().cloned().collect()
        };
        let mut asked: Vec<ConnectionInfo> = known.iter().filter_map(|node| self.at(node)).collect();
        asked.extend(self.seeds.iter().cloned());
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % asked.len().max(1);
        asked.rotate_left(first);
        for node in asked {
            match slots(&node).await {
                Ok(slots) if !slots.is_empty() => {
                    self.keep(slots);
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(node = %node.addr(), %error, "a node does not say who owns what");
                }
            }
        }
        *last = Some(Instant::now());
    }

    fn keep(&self, slots: HashMap<Slot, Node>) {
        let owners: HashSet<&Node> = slots.values().collect();
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|node, _| owners.contains(node));
        self.slots.store(Arc::new(slots));
    }
}

async fn slots(node: &ConnectionInfo) -> RedisResult<HashMap<Slot, Node>> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(Duration::from_millis(ASK_MS)))
        .set_response_timeout(Some(Duration::from_millis(ASK_MS)));
    let client = redis::Client::open(settings::with_tcp(node.clone()))?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let answer: Vec<Vec<Value>> = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    let own_host = match node.addr() {
        ConnectionAddr::Tcp(host, _) => host.as_str(),
        _ => "",
    };
    Ok(answer.iter().filter_map(|range| read_range(range, own_host)).flatten().collect())
}

/// One range of CLUSTER SLOTS: first slot, last slot, its master, its replicas. A node that does not know its own
/// host leaves it empty: it is the one that was asked.
fn read_range(range: &[Value], own_host: &str) -> Option<impl Iterator<Item = (Slot, Node)> + use<>> {
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range else {
        return None;
    };
    let host = match master.first()? {
        Value::BulkString(bytes) if !bytes.is_empty() => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(host) => host,
        _ => own_host,
    };
    let host: Arc<str> = host.into();
    let port = match master.get(1)? {
        Value::Int(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some((first..=last).filter_map(move |slot| Some((Slot::new(slot)?, (Arc::clone(&host), port)))))
}
