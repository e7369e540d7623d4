//! For tests: private servers started and ended by the test that needs them, fixed key rings, a clock set by hand.
//!
//! A missing server fails the test; nothing is ever skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod fleet;

use std::{
    net::TcpListener,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    clock::{Clock, Timestamp},
    keys::{KeyEntry, KeyFile, KeyRing, KeyState},
};

pub use self::fleet::{PrivateCluster, PrivateSentinels};

fn ring(seed: u8) -> KeyRing {
    let secret = std::array::from_fn(|i| u8::try_from(i).unwrap().wrapping_mul(29).wrapping_add(seed));
    let entry = KeyEntry { state: KeyState::Active, ..KeyFile::new_key("k1", secret) };
    KeyRing::new(&KeyFile { keys: vec![entry] }, "test").unwrap()
}

/// A fixed ring.
#[must_use]
pub fn demo_ring() -> KeyRing {
    ring(1)
}

/// Another ring whose key has the same name.
#[must_use]
pub fn other_ring() -> KeyRing {
    ring(2)
}

/// A clock that moves only when told.
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<AtomicI64>,
    steps: Arc<AtomicI64>,
}

impl ManualClock {
    /// Standing at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now: Arc::new(AtomicI64::new(now.micros())), steps: Arc::default() }
    }

    /// Moves on (or back).
    pub fn advance_ms(&self, ms: i64) {
        self.now.fetch_add(ms * 1_000, Ordering::SeqCst);
    }

    /// Sets the clock by `ms`, while no time passes.
    pub fn step_ms(&self, ms: i64) {
        self.steps.fetch_add(ms * 1_000, Ordering::SeqCst);
        self.advance_ms(ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        let passed = self.now.load(Ordering::SeqCst) - self.steps.load(Ordering::SeqCst);
        Duration::from_micros(u64::try_from(passed).unwrap_or(0))
    }
}

/// A port nobody listens on at this moment.
#[must_use]
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks `ready` until it is true; fails the test after `seconds`.
pub async fn eventually(what: &str, seconds: u64, mut ready: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !ready().await {
        assert!(started.elapsed() < Duration::from_secs(seconds), "not within {seconds} s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Server {
    child: Child,
    dir: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A redis-server of this test's own, without any data, ended with it.
pub struct PrivateRedis {
    server: Server,
    arguments: Vec<String>,
    port: u16,
    url: String,
}

impl PrivateRedis {
    /// Starts one with every write synced, as a sale needs it.
    pub async fn start() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    /// Starts one with these further arguments.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let mut dir = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        // Another process can take the port between our look and the server's bind, so a few are tried.
        for _ in 0..5 {
            let port = free_port();
            let mut server = Server { child: redis_server(port, dir.path(), &arguments), dir };
            if answers(&mut server.child, port).await {
                let url = format!("redis://127.0.0.1:{port}");
                return Self { server, arguments, port, url };
            }
            drop(server);
            dir = tempfile::tempdir().unwrap();
        }
        panic!("redis-server did not start");
    }

    /// Kills it at once, as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
    }

    /// Kills it at once and starts it again, with its port, arguments and data.
    pub async fn restart(&mut self) {
        self.kill();
        self.server.child = redis_server(self.port, self.server.dir.path(), &self.arguments);
        assert!(answers(&mut self.server.child, self.port).await, "redis-server did not start again");
    }

    /// Stops its process in the middle of whatever it does; connections stay open and nobody answers.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success(), "kill {signal}");
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.child.id()
    }
}

fn redis_server(port: u16, dir: &Path, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(dir)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server must be installed: run deploy/test")
}

async fn answers(child: &mut Child, port: u16) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if let Ok(client) = redis::Client::open(format!("redis://127.0.0.1:{port}"))
            && let Ok(mut connection) = client.get_multiplexed_async_connection().await
            && redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok()
        {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// A PostgreSQL cluster of this test's own, ended with it.
pub struct PrivatePostgres {
    _server: Server,
    url: String,
}

impl PrivatePostgres {
    /// Makes a cluster and starts it. PostgreSQL refuses to run as root, so root hands it to the user `postgres`.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        if is_root {
            let owned = Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
            assert!(owned.success(), "the user postgres must exist: run deploy/test");
        }
        let data = dir.path().join("data");
        let made = postgres_command("initdb", is_root)
            .args(["--username=lockgate", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "initdb failed");
        let port = free_port();
        let child = postgres_command("postgres", is_root)
            .arg("-D")
            .arg(&data)
            .args([
                "-p",
                &port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=200",
                "-k",
            ])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = format!("postgres://lockgate@127.0.0.1:{port}/postgres");
        let server = Server { child, dir };
        let started = Instant::now();
        while tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(20), "postgres did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { _server: server, url }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of a fresh schema in it, so that tests can share one cluster.
    pub async fn schema(&self, name: &str) -> String {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
        format!("{}?options=-c%20search_path%3D{name}", self.url)
    }
}

fn postgres_command(program: &str, is_root: bool) -> Command {
    let path = postgres_bin().join(program);
    if !is_root {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(path);
    command
}

/// Debian keeps PostgreSQL's server programs out of the path, one folder per version.
fn postgres_bin() -> PathBuf {
    let root = Path::new("/usr/lib/postgresql");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(root)
        .expect("postgresql must be installed: run deploy/test")
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().expect("postgresql must be installed: run deploy/test")
}
