//! The event log as a Redis stream per sale, written by the gate's scripts, read through consumer groups.

use std::collections::HashMap;

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
}

impl RedisEventLog {
    /// Over a connected store.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        Self { link }
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

    async fn read_new(&self, key: &str, group: &str, consumer: &str) -> Result<Vec<StreamId>, StoreError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(group).arg(consumer).arg("COUNT").arg(EVENT_BATCH_MAX);
        command.arg("STREAMS").arg(key).arg(">");
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
}

#[async_trait]
impl EventLog for RedisEventLog {
    async fn read(&self, sale: &SaleId, group: &str, consumer: &str) -> Result<Batch, StoreError> {
        let key = stream_key(&self.link, sale);
        let new = match self.read_new(&key, group, consumer).await {
            Err(error) if error.to_string().contains("NOGROUP") => {
                self.create_group(&key, group).await?;
                self.read_new(&key, group, consumer).await?
            }
            other => other?,
        };
        let entries = if new.is_empty() { self.take_over(&key, group, consumer).await? } else { new };
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
        let mut command = cmd("XACK");
        command.arg(stream_key(&self.link, sale)).arg(group).arg(ids);
        self.link.command::<Value>("acknowledge events", &command).await.map(drop)
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
