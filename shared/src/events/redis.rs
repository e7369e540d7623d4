//! The event log as a Redis stream per sale, written by the gate's scripts, read through consumer groups.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use redis::{
    Script, Value, cmd,
    streams::{StreamAutoClaimReply, StreamId, StreamReadReply},
};

use super::{Backlog, Batch, EventLog, Poison, Trim, parse_event, record};
use crate::{
    ids::SaleId,
    limits::EVENT_BATCH_MAX,
    store::{StoreError, redis::RedisLink},
};

/// Work of a consumer that has been silent for this long is taken over by another.
const TAKE_OVER_MS: u64 = 5_000;
/// How often a reader looks for such work while new events keep it busy; one that finds nothing new always looks.
const LOOK_FOR_STALLED_EVERY: Duration = Duration::from_millis(TAKE_OVER_MS / 2);

/// The key of a sale's stream. It shares the hash tag of the sale's stock, so that one script writes both.
#[must_use]
pub fn stream_key(link: &RedisLink, sale: &SaleId) -> String {
    link.key(&format!("{{{sale}}}:events"))
}

/// Reads the streams.
pub struct RedisEventLog {
    link: RedisLink,
    trim: Script,
    retire: Script,
    /// Per stream, group and consumer: what was handed out and not acknowledged since. While there is any, and after a
    /// read whose reply was lost, the consumer's own pending entries come first: a new read would pass them by, and
    /// they would wait until somebody takes them over.
    handed_out: Mutex<HashMap<String, HandedOut>>,
    /// When each reader last looked for stalled work.
    looked: Mutex<HashMap<String, Instant>>,
}

enum HandedOut {
    Unsure,
    Known(HashSet<String>),
}

impl RedisEventLog {
    /// Over a connected store.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        Self {
            link,
            trim: Script::new(include_str!("trim.lua")),
            retire: Script::new(include_str!("retire.lua")),
            handed_out: Mutex::default(),
            looked: Mutex::default(),
        }
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
        max: usize,
    ) -> Result<Vec<StreamId>, StoreError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(group).arg(consumer).arg("COUNT").arg(max);
        command.arg("STREAMS").arg(key).arg(from);
        let reply: Option<StreamReadReply> = self.link.command("read events", &command).await?;
        Ok(reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids).collect())
    }

    async fn take_over(
        &self,
        key: &str,
        group: &str,
        consumer: &str,
        max: usize,
    ) -> Result<Vec<StreamId>, StoreError> {
        let mut command = cmd("XAUTOCLAIM");
        command.arg(key).arg(group).arg(consumer).arg(TAKE_OVER_MS).arg("0-0").arg("COUNT").arg(max);
        let reply: StreamAutoClaimReply = self.link.command("take over events", &command).await?;
        Ok(reply.claimed)
    }

    /// Whether it is time to look for stalled work, and from now on not for a while.
    fn is_time_to_look(&self, reader: &str) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_time =
            looked.get(reader).is_none_or(|last| now.duration_since(*last) >= LOOK_FOR_STALLED_EVERY);
        if is_time {
            looked.insert(reader.to_owned(), now);
        }
        is_time
    }

    /// What the consumer was given before, what others left behind, what is new: in this order, so that a stream of
    /// new events never starves what is stuck.
    async fn entries(
        &self,
        (key, group, consumer): (&str, &str, &str),
        reader: &str,
        max: usize,
    ) -> Result<Vec<StreamId>, StoreError> {
        if !self.is_settled(reader) {
            self.note(reader.to_owned(), HandedOut::Unsure);
            let own = match self.read_from(key, group, consumer, "0", max).await {
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
        self.note(reader.to_owned(), HandedOut::Unsure);
        let looked = self.is_time_to_look(reader);
        if looked {
            let stalled = self.take_over(key, group, consumer, max).await?;
            if !stalled.is_empty() {
                return Ok(stalled);
            }
        }
        let new = self.read_from(key, group, consumer, ">", max).await?;
        if new.is_empty() && !looked { self.take_over(key, group, consumer, max).await } else { Ok(new) }
    }

    /// The groups of a stream; none where there is no stream.
    async fn groups(&self, key: &str) -> Result<Vec<BTreeMap<String, Value>>, StoreError> {
        let mut command = cmd("XINFO");
        command.arg("GROUPS").arg(key);
        match self.link.command("read groups", &command).await {
            Err(error) if error.to_string().contains("no such key") => Ok(Vec::new()),
            other => other,
        }
    }

    async fn length(&self, key: &str) -> Result<u64, StoreError> {
        self.link.command("count events", cmd("XLEN").arg(key)).await
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn is_text(value: Option<&Value>, text: &str) -> bool {
    match value {
        Some(Value::BulkString(bytes)) => bytes == text.as_bytes(),
        Some(Value::SimpleString(found)) => found == text,
        _ => false,
    }
}

#[async_trait]
impl EventLog for RedisEventLog {
    async fn read(
        &self,
        sale: &SaleId,
        group: &str,
        consumer: &str,
        max: usize,
    ) -> Result<Batch, StoreError> {
        let key = stream_key(&self.link, sale);
        let reader = format!("{key} {group} {consumer}");
        let entries = self.entries((&key, group, consumer), &reader, max.clamp(1, EVENT_BATCH_MAX)).await?;
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

    async fn backlog(&self, sale: &SaleId, group: &str) -> Result<Backlog, StoreError> {
        let key = stream_key(&self.link, sale);
        let groups = self.groups(&key).await?;
        let Some(found) = groups.iter().find(|fields| is_text(fields.get("name"), group)) else {
            return Ok(Backlog { unread: self.length(&key).await?, pending: 0 });
        };
        let pending = number(found.get("pending")).unwrap_or_default();
        // The server knows no lag where entries were deleted one by one; the length is never less than it.
        let unread = match number(found.get("lag")) {
            Some(lag) => lag,
            None => self.length(&key).await?,
        };
        Ok(Backlog { unread, pending })
    }

    async fn trim(&self, sale: &SaleId, groups: &[&str], keep: u64) -> Result<Trim, StoreError> {
        let keys = [stream_key(&self.link, sale)];
        let mut args = vec![keep.to_string()];
        args.extend(groups.iter().map(|group| (*group).to_owned()));
        let (word, what): (String, String) = self.link.run("trim", &self.trim, &keys, args).await?;
        if word == "missing" {
            return Ok(Trim::GroupMissing(what));
        }
        what.parse().map(Trim::Trimmed).map_err(|error| StoreError::unknown("trim", error))
    }

    async fn retire(&self, sale: &SaleId, group: &str, idle_ms: u64) -> Result<u64, StoreError> {
        let keys = [stream_key(&self.link, sale)];
        self.link.run("retire", &self.retire, &keys, (group, idle_ms)).await
    }

    fn shares_work(&self) -> bool {
        true
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
        let text = text.ok_or_else(|| Poison {
            id: entry.id.clone(),
            problem: format!("field '{name}' is not text"),
            record: lossy(entry),
        })?;
        fields.insert(name.as_str(), text);
    }
    Ok(fields)
}

/// An entry as text, with replacement characters where it is none.
fn lossy(entry: &StreamId) -> String {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    record::to_text(entry.map.iter().map(|(name, value)| (name.clone(), text(value))).collect())
}
