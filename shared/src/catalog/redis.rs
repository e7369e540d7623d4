//! The catalog as one hash: a field per sale, `<version> <body>`. One key, because finding a key per sale would
//! take a scan of every node.

use std::collections::HashMap;

use async_trait::async_trait;
use redis::{Script, cmd};

use super::{CatalogStore, PutOutcome, SaleRow};
use crate::store::{StoreError, redis::RedisLink};

/// Sales in Redis.
pub struct RedisCatalog {
    link: RedisLink,
    key: String,
    put: Script,
}

impl RedisCatalog {
    /// Over a connected store.
    #[must_use]
    pub fn new(link: RedisLink) -> Self {
        let key = link.key("catalog");
        Self { link, key, put: Script::new(include_str!("put.lua")) }
    }
}

#[async_trait]
impl CatalogStore for RedisCatalog {
    async fn list(&self) -> Result<Vec<SaleRow>, StoreError> {
        let fields: HashMap<String, String> =
            self.link.command("catalog list", cmd("HGETALL").arg(&self.key)).await?;
        let row = |(id, text): (String, String)| match text.split_once(' ').map(|(v, body)| (v.parse(), body))
        {
            Some((Ok(version), body)) => SaleRow { id, version, body: body.to_owned() },
            // Text without a version was not written by the script; the reader of rows says that it is unreadable.
            _ => SaleRow { id, version: 0, body: text },
        };
        Ok(fields.into_iter().map(row).collect())
    }

    async fn put(&self, row: &SaleRow, expected: Option<u64>) -> Result<PutOutcome, StoreError> {
        let expected = expected.map_or_else(String::new, |version| version.to_string());
        let version = row.version.to_string();
        let args = [row.id.as_str(), &expected, &version, &row.body];
        let keys = std::slice::from_ref(&self.key);
        let answer: String = self.link.run("catalog put", &self.put, keys, &args[..]).await?;
        match answer.as_str() {
            "stored" => Ok(PutOutcome::Stored),
            "absent" => Ok(PutOutcome::Conflict { current: None }),
            current => match current.parse() {
                Ok(current) => Ok(PutOutcome::Conflict { current: Some(current) }),
                Err(_) => Err(StoreError::unknown("catalog put", format!("put.lua answered {current:?}"))),
            },
        }
    }
}
