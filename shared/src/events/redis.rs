//! The event log as a Redis stream per sale, written by the gate's scripts, read through consumer groups.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use redis::{Value, cmd, streams::StreamAutoClaimReply, streams::StreamId, streams::StreamReadReply};

use super::{Batch, EventLog, Poison, parse_event};
use crate::{
    ids::SaleId,
    limits::EVENT_BATCH_MAX,
    store::{StoreError, redis::RedisLink},
};

/// Work of a consumer that has been silent for this long is taken over by another.
const TAKE_OVER_MS: u64 = 5_000;

/// The key of a sale's stream. It shares the hash tag of the sale's stock, so that one script writes both.
#[must_use]
pub fn stream_key(link: &RedisLink, sale: &SaleId) -> String {
    link.key(&format!("{{{sale}}}:events"))
}

/// Reads the streams.
pub struct RedisEventLog {
    link: RedisLink,
    /// Per stream, group and consumer: what was handed out and not acknowledged since. While there is any, and after a
    /// read whose reply was lost, the consumer's own pending entries come first: a new read would pass them by, and
    /// they would wait until somebody takes them over.
    handed_out: Mutex<HashMap<String, HandedOut>>,
}

enum HandedOut {
    Unsure,
    Known(HashSet<String>),
}

impl RedisEventLog {
    /// Over a connected store.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        Self { link, handed_out: Mutex::default() }
    }

    fn is_settled(&self, reader: &str) -> bool {
        let handed_out = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(handed_out.get(reader), Some(HandedOut::Known(ids)) if ids.is_empty())
    }

    fn note(&self, reader: String, state: HandedOut) {
        self.handed_out.lock().unwrap_or_else(PoisonError::into_inner).insert(reader, state);
    }

    async fn create_group(&self, key: &str, group: &str) -> Result<(), StoreError> {
        let mut command = cmd("XGROUP");
        command.arg("CREATE").arg(key).arg(group).arg("0").arg("MKSTREAM");
        match self.link.command::<Value>("create group", &command).await {
            // Another consumer made it first.
            Err(error) if error.to_string().contains("BUSYGROUP") => Ok(()),
            other => other.map(drop),
        }
    }

    /// From `>`: entries nobody was given yet. From `0`: those this consumer was given and has not acknowledged.
    async fn read_from(
        &self,
        key: &str,
        group: &str,
        consumer: &str,
        from: &str,
    ) -> Result<Vec<StreamId>, StoreError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(group).arg(consumer).arg("COUNT").arg(EVENT_BATCH_MAX);
        command.arg("STREAMS").arg(key).arg(from);
        let reply: Option<StreamReadReply> = self.link.command("read events", &command).await?;
        Ok(reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids).collect())
    }

    async fn take_over(&self, key: &str, group: &str, consumer: &str) -> Result<Vec<StreamId>, StoreError> {
        let mut command = cmd("XAUTOCLAIM");
        command
            .arg(key)
            .arg(group)
            .arg(consumer)
            .arg(TAKE_OVER_MS)
            .arg("0-0")
            .arg("COUNT")
            .arg(EVENT_BATCH_MAX);
        let reply: StreamAutoClaimReply = self.link.command("take over events", &command).await?;
        Ok(reply.claimed)
    }

    async fn entries(
        &self,
        key: &str,
        group: &str,
        consumer: &str,
        is_settled: bool,
    ) -> Result<Vec<StreamId>, StoreError> {
        if !is_settled {
            let own = match self.read_from(key, group, consumer, "0").await {
                Err(error) if error.to_string().contains("NOGROUP") => {
                    self.create_group(key, group).await?;
                    Vec::new()
                }
                other => other?,
            };
            if !own.is_empty() {
                return Ok(own);
            }
        }
        let new = self.read_from(key, group, consumer, ">").await?;
        if new.is_empty() { self.take_over(key, group, consumer).await } else { Ok(new) }
    }
}

#[async_trait]
impl EventLog for RedisEventLog {
    async fn read(&self, sale: &SaleId, group: &str, consumer: &str) -> Result<Batch, StoreError> {
        let key = stream_key(&self.link, sale);
        let reader = format!("{key} {group} {consumer}");
        let is_settled = self.is_settled(&reader);
        self.note(reader.clone(), HandedOut::Unsure);
        let entries = self.entries(&key, group, consumer, is_settled).await?;
        self.note(reader, HandedOut::Known(entries.iter().map(|entry| entry.id.clone()).collect()));
        let mut batch = Batch::default();
        for entry in &entries {
            match texts(entry).and_then(|fields| parse_event(&entry.id, |name| fields.get(name).copied())) {
                Ok(event) => batch.events.push(event),
                Err(poison) => batch.poison.push(poison),
            }
        }
        Ok(batch)
    }

    async fn acknowledge(&self, sale: &SaleId, group: &str, ids: &[String]) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let key = stream_key(&self.link, sale);
        let mut command = cmd("XACK");
        command.arg(&key).arg(group).arg(ids);
        self.link.command::<Value>("acknowledge events", &command).await?;
        let mut handed_out = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
        let readers = format!("{key} {group} ");
        for (_, state) in handed_out.iter_mut().filter(|(reader, _)| reader.starts_with(&readers)) {
            if let HandedOut::Known(open) = state {
                for id in ids {
                    open.remove(id);
                }
            }
        }
        Ok(())
    }
}

fn texts(entry: &StreamId) -> Result<HashMap<&str, &str>, Poison> {
    let mut fields = HashMap::with_capacity(entry.map.len());
    for (name, value) in &entry.map {
        let text = match value {
            Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
            Value::SimpleString(text) => Some(text.as_str()),
            _ => None,
        };
        let text = text
            .ok_or_else(|| Poison { id: entry.id.clone(), problem: format!("field '{name}' is not text") })?;
        fields.insert(name.as_str(), text);
    }
    Ok(fields)
}
