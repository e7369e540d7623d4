//! The real binary, started and ended by the test that needs it, and a shopper who walks through it over HTTP.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use lockgate_shared::testing::{PrivatePostgres, PrivateRedis, eventually};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The operator key of every process under test.
pub const OPERATOR_KEY: &str = "operator-key-for-tests-0123456789abcdef";
/// The shop's eligibility secret: base64url of 32 bytes.
pub const SHOP_KEY: &str = "c2hvcC1lbGlnaWJpbGl0eS1zZWNyZXQtMDEyMzQ1Njc";

/// Where a test's processes keep what lasts.
pub enum Stores {
    /// SQLite in the data folder.
    Sqlite,
    /// A private redis-server and a private PostgreSQL.
    RedisPostgres { redis: PrivateRedis, postgres: PrivatePostgres },
}

impl Stores {
    pub async fn redis_postgres() -> Self {
        let (redis, postgres) = tokio::join!(PrivateRedis::start(), PrivatePostgres::start());
        Self::RedisPostgres { redis, postgres }
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Sqlite => Vec::new(),
            Self::RedisPostgres { redis, postgres } => vec![
                ("LOCKGATE_STORE__URL", redis.url().to_owned()),
                ("LOCKGATE_ORDERS__URL", postgres.url().to_owned()),
            ],
        }
    }
}

/// A running Lockgate.
pub struct Lockgate {
    child: Child,
    pub base: String,
    pub log: Arc<Mutex<String>>,
}

/// A folder for data and sale files.
pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// `lockgate` with these arguments and nothing of the caller's environment that could steer it.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockgate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LOCKGATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

impl Lockgate {
    /// Starts `lockgate` with `arguments` on a free port and waits until it is ready.
    pub async fn start(arguments: &[&str], environment: &[(&str, String)]) -> Self {
        let server = Self::launch(arguments, environment);
        let client = client();
        eventually("lockgate is ready", 30, async || {
            matches!(client.get(server.url("/readyz")).send().await, Ok(answer) if answer.status() == StatusCode::OK)
        })
        .await;
        server
    }

    /// The same without waiting for more than its address.
    pub fn launch(arguments: &[&str], environment: &[(&str, String)]) -> Self {
        let mut child = command(arguments)
            .args(["--listen", "127.0.0.1:0"])
            .env("LOCKGATE_OPERATOR_KEY", OPERATOR_KEY)
            .env("SHOP_ELIGIBILITY_KEY", SHOP_KEY)
            .envs(environment.iter().map(|(k, v)| (*k, v.as_str())))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, stderr) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let (address, announced) = std::sync::mpsc::channel();
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some(base) = line.strip_prefix("Lockgate is serving on ") {
                    let _ = address.send(base.to_owned());
                }
                written.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        let base = announced.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| {
            let _ = child.kill();
            panic!("lockgate did not start:\n{}", log.lock().unwrap())
        });
        Self { child, base, log }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub async fn terminate(mut self) -> ExitStatus {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut status = None;
        eventually("lockgate ends after SIGTERM", 20, async || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    pub async fn books(&self, sale: &str) -> Value {
        let url = self.url(&format!("/operator/v1/sales/{sale}/books"));
        let answer = client().get(url).bearer_auth(OPERATOR_KEY).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    }

    /// The counters of `lockgate_store_calls_total`, by verb.
    pub async fn store_calls(&self) -> HashMap<String, u64> {
        let answer = client().get(self.url("/metrics")).bearer_auth(OPERATOR_KEY).send().await.unwrap();
        let text = answer.text().await.unwrap();
        let mut calls = HashMap::new();
        for line in text.lines().filter(|line| line.starts_with("lockgate_store_calls_total{")) {
            let verb = line.split("verb=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            *calls.entry(verb).or_default() += line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        }
        assert!(!calls.is_empty(), "no store call was counted at all");
        calls
    }
}

impl Drop for Lockgate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn client() -> Client {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_secs(25))
        .build()
        .unwrap()
}

/// Seconds since the epoch.
pub fn now_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A sale file whose doors and admission are open.
pub fn sale_file(id: &str, entry: &str, stock: u32, limit: u32, hold_seconds: u64) -> String {
    let at = |seconds: i64| jiff::Timestamp::from_second(now_seconds() + seconds).unwrap();
    let keys = match entry {
        "eligibility" => {
            "[[eligibility_keys]]\nkid = \"shop-1\"\nalgorithm = \"HS256\"\nsecret_env = \"SHOP_ELIGIBILITY_KEY\"\n"
        }
        _ => "",
    };
    format!(
        "id = \"{id}\"\nname = \"Test {id}\"\ndoors_open_at = {}\nopens_at = {}\ncloses_at = {}\n\
         queueing_method = \"fifo\"\nlanes = 4\nentry = \"{entry}\"\nper_account_limit = {limit}\n\
         hold_seconds = {hold_seconds}\n[admission]\nrate_per_minute = 600000\nburst = 1000\nturn_seconds = 60\n\
         token_seconds = 600\n{keys}[[items]]\nitem = \"phone\"\nname = \"Phone\"\nstock = {stock}\nprice = 49900\n\
         currency = \"EUR\"\n",
        at(-20),
        at(-10),
        at(3600),
    )
}

/// What the shop signs for an account.
pub fn eligibility(account: &str, sale: &str) -> String {
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = Some("shop-1".into());
    let claims = json!({ "sub": account, "aud": sale, "exp": now_seconds() + 600 });
    let secret = b"shop-eligibility-secret-01234567";
    jsonwebtoken::encode(&header, &claims, &jsonwebtoken::EncodingKey::from_secret(secret).unwrap()).unwrap()
}

/// A shopper with an HTTP client.
#[derive(Clone)]
pub struct Shopper {
    pub client: Client,
    pub base: String,
    pub sale: String,
    pub ticket: String,
    pub token: String,
}

/// A won hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Won {
    pub answer: Value,
}

impl Won {
    pub fn text(&self, name: &str) -> String {
        self.answer[name].as_str().unwrap_or_else(|| panic!("no {name} in {}", self.answer)).to_owned()
    }

    pub fn units(&self) -> Vec<u64> {
        self.answer["units"].as_array().unwrap().iter().map(|unit| unit.as_u64().unwrap()).collect()
    }
}

impl Shopper {
    /// Enters; `body` is what the sale's entry rule asks for.
    pub async fn enter(base: &str, sale: &str, body: Value) -> Self {
        let client = client();
        let answer = client.post(format!("{base}/sale/{sale}/enter")).json(&body).send().await.unwrap();
        let status = answer.status();
        let entered: Value = answer.json().await.unwrap();
        assert!(matches!(status, StatusCode::CREATED | StatusCode::OK), "{status}: {entered}");
        let ticket = entered["ticket"].as_str().unwrap().to_owned();
        Self { client, base: base.into(), sale: sale.into(), ticket, token: String::new() }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/sale/{}{path}", self.base, self.sale)
    }

    pub async fn status(&self) -> Value {
        let answer = self.client.get(self.url("/status")).bearer_auth(&self.ticket).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    }

    /// Waits for the turn and takes the admission token.
    pub async fn admit(&mut self) {
        let started = std::time::Instant::now();
        loop {
            let answer = self.client.post(self.url("/admit")).bearer_auth(&self.ticket).send().await.unwrap();
            let status = answer.status();
            let body: Value = answer.json().await.unwrap();
            if status == StatusCode::OK {
                body["token"].as_str().unwrap().clone_into(&mut self.token);
                return;
            }
            // Whoever asks too often is told when to ask again, and loses nothing.
            let code = body["code"].as_str().unwrap();
            assert!(["not_your_turn", "rate_limited"].contains(&code), "{status}: {body}");
            assert!(started.elapsed() < Duration::from_secs(60), "the turn did not come");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// One checkout request.
    pub async fn checkout(&self, key: &str, quantity: u32) -> reqwest::Result<Response> {
        self.client
            .post(self.url("/checkout"))
            .bearer_auth(&self.token)
            .header("Idempotency-Key", key)
            .json(&json!({ "item": "phone", "quantity": quantity }))
            .send()
            .await
    }

    /// Pays an order at the simulated gateway.
    pub async fn pay(&self, won: &Won) {
        let payment_url = won.text("payment_url");
        let path = payment_url.split("/orders/").nth(1).unwrap();
        let url = format!("{}/orders/{path}", self.base);
        let answer = self.client.post(url).bearer_auth(won.text("access_key")).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{body}");
        let page = body["redirect_url"].as_str().unwrap().to_owned();
        let paid = self.client.post(page).form(&[("outcome", "paid")]).send().await.unwrap();
        assert_eq!(paid.status(), StatusCode::SEE_OTHER);
    }

    /// The order's state.
    pub async fn order(&self, won: &Won) -> Value {
        let url = format!("{}/orders/{}", self.base, won.text("order_id"));
        let answer = self.client.get(url).bearer_auth(won.text("access_key")).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.json().await.unwrap()
    }
}
