//! Over real loopback HTTP: throughput of one pinned core, by wrk on the other.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use lockgate_shared::testing::PrivateRedis;

use crate::{median, setting};

struct Server {
    child: Child,
    ports: Vec<u16>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn pin(pid: u32, core: u32) {
    let pinned = Command::new("taskset")
        .args(["-a", "-p", "-c", &core.to_string(), &pid.to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.unwrap().success(), "taskset pins process {pid}");
}

fn start(redis_url: &str) -> Server {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new("taskset")
        .args(["-c", "0"])
        .arg(own)
        .args(["serve", redis_url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ports = line.split_whitespace().map(|port| port.parse().unwrap()).collect();
    Server { child, ports }
}

fn call(port: u16, head: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// One metric that `/metrics` shows, whose name and labels hold all these words.
fn metric(port: u16, words: &[&str]) -> f64 {
    let text = call(port, "GET /metrics HTTP/1.1");
    let fits = |line: &&str| !line.starts_with('#') && words.iter().all(|word| line.contains(word));
    text.lines()
        .find(fits)
        .and_then(|line| line.rsplit(' ').next())
        .map_or(0.0, |value| value.parse().unwrap())
}

/// What is asked.
struct Load<'a> {
    name: &'a str,
    port: u16,
    path: &'a str,
    headers: Vec<String>,
    is_post: bool,
    connections: u64,
}

impl Load<'_> {
    /// Requests per second over one round.
    fn round(&self, post_script: &std::path::Path) -> f64 {
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", "1", "wrk", "-t1", "-d", &format!("{}s", setting("ROUND_SECONDS", 3))]);
        wrk.args(["-c", &self.connections.to_string()]);
        for header in &self.headers {
            wrk.args(["-H", header]);
        }
        if self.is_post {
            wrk.arg("-s").arg(post_script);
        }
        let output = wrk.arg(format!("http://127.0.0.1:{}{}", self.port, self.path)).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("Non-2xx"), "{}: {text}", self.name);
        let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).expect(&text);
        line.trim().parse().unwrap()
    }
}

pub(crate) fn run() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(PrivateRedis::start());
    pin(redis.pid(), 1);
    let server = start(redis.url());
    let [bare, own_loop, layered, room] = server.ports[..] else { panic!("four ports: {:?}", server.ports) };
    let entered = call(room, "POST /sale/phone-drop/enter HTTP/1.1\r\nContent-Length: 0");
    let ticket =
        entered.split("\"ticket\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect(&entered);
    let bearer = vec![format!("Authorization: Bearer {ticket}")];
    // It must have a number before it is asked for.
    while !call(room, &format!("GET /sale/phone-drop/status HTTP/1.1\r\n{}", bearer[0]))
        .contains("\"number\"")
    {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let folder = tempfile::tempdir().unwrap();
    let post = folder.path().join("post.lua");
    std::fs::write(
        &post,
        "wrk.method = \"POST\"\nwrk.body = \"{}\"\nwrk.headers[\"Content-Type\"] = \"application/json\"\n",
    )
    .unwrap();
    let get = |name, port, path, headers: &[String]| Load {
        name,
        port,
        path,
        headers: headers.to_vec(),
        is_post: false,
        connections: 64,
    };
    let poster = |name, port, path| Load { is_post: true, connections: 512, ..get(name, port, path, &[]) };
    let loads = [
        get("bare constant, axum::serve", bare, "/sale/phone-drop/constant", &bearer),
        get("bare constant, own listener", own_loop, "/sale/phone-drop/constant", &bearer),
        get("constant behind the layers", layered, "/sale/phone-drop/constant", &bearer),
        get("public status", room, "/sale/phone-drop/status", &[]),
        get("public status, gzip", room, "/sale/phone-drop/status", &["Accept-Encoding: gzip".into()]),
        get("personal status", room, "/sale/phone-drop/status", &bearer),
        poster("constant behind the layers, POST", layered, "/sale/phone-drop/constant-post"),
        poster("enter on Redis", room, "/sale/phone-drop/enter"),
    ];
    let rounds = setting("ROUNDS", 7);
    let mut rates = vec![Vec::new(); loads.len()];
    for round in 0..=rounds {
        for (load, rates) in loads.iter().zip(&mut rates) {
            let rate = load.round(&post);
            // The first round warms up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    report(&loads, &rates);
    let entries = metric(room, &["lockgate_http_request_seconds_count", "/enter", "\"201\""]);
    let calls = metric(room, &["lockgate_store_calls_total", "\"enter\""]);
    println!("script calls per entry: {:.3} ({calls} calls for {entries} entries)", calls / entries);
    println!("server process after {entries} entries: {:.1} MiB", metric(room, &["vm_rss_mib"]));
}

fn report(loads: &[Load<'_>], rates: &[Vec<f64>]) {
    println!("\nloopback HTTP, requests per second of one core");
    for (load, rates) in loads.iter().zip(rates) {
        let all: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        println!("{:<34} {:>8.0}   rounds: {}", load.name, median(rates.clone()), all.join(" "));
    }
    // Compared round by round: what else the machine does weighs on neighbours alike.
    for (subject, yardstick, wanted) in
        [(2, 0, 0.70), (2, 1, 0.70), (3, 2, 0.95), (4, 2, 0.95), (5, 2, 0.80), (7, 6, 0.50)]
    {
        let ratios = rates[subject].iter().zip(&rates[yardstick]).map(|(a, b)| a / b).collect();
        let ratio = median(ratios);
        println!(
            "{} / {}: {:.1} % (wanted: {:.0} %)",
            loads[subject].name,
            loads[yardstick].name,
            ratio * 100.0,
            wanted * 100.0
        );
    }
}
