//! Over real loopback HTTP: what one pinned core gives, by wrk on the other. Two measures of each: requests per
//! second, and the CPU time the server's threads used per request, which other load on the machine hardly changes.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use lockgate_shared::testing::PrivateRedis;

use crate::{median, server::LONG_BYTES, setting};

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

/// What one round came to.
#[derive(Clone, Copy)]
struct Round {
    per_second: f64,
    cpu_us: f64,
}

/// CPU time a process has used so far, in microseconds.
fn cpu_us(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.map(|task| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or_default()
    });
    nanos.sum::<f64>() / 1_000.0
}

impl Load<'_> {
    fn round(&self, server: u32, post_script: &std::path::Path) -> Round {
        let mut wrk = Command::new("taskset");
        wrk.args(["-c", "1", "wrk", "-t1", "-d", &format!("{}s", setting("ROUND_SECONDS", 3))]);
        wrk.args(["-c", &self.connections.to_string()]);
        for header in &self.headers {
            wrk.args(["-H", header]);
        }
        if self.is_post {
            wrk.arg("-s").arg(post_script);
        }
        let before = cpu_us(server);
        let output = wrk.arg(format!("http://127.0.0.1:{}{}", self.port, self.path)).output().unwrap();
        let used = cpu_us(server) - before;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("Non-2xx"), "{}: {text}", self.name);
        let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).expect(&text);
        let requests = text.lines().find_map(|line| line.trim().split_once(" requests in ")).expect(&text).0;
        Round { per_second: line.trim().parse().unwrap(), cpu_us: used / requests.parse::<f64>().unwrap() }
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
    let board = call(room, "GET /sale/phone-drop/status HTTP/1.1");
    let body = board.split_once("\r\n\r\n").map_or(0, |(_, body)| body.len());
    assert!(body.abs_diff(LONG_BYTES) < 32, "the yardstick is as long as the public status: {body}");
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
        get("constant as long as the public status", layered, "/sale/phone-drop/long", &[]),
        get("public status", room, "/sale/phone-drop/status", &[]),
        get("public status, gzip", room, "/sale/phone-drop/status", &["Accept-Encoding: gzip".into()]),
        get("personal status", room, "/sale/phone-drop/status", &bearer),
        poster("constant behind the layers, POST", layered, "/sale/phone-drop/constant-post"),
        poster("enter on Redis", room, "/sale/phone-drop/enter"),
    ];
    let rounds = setting("ROUNDS", 7);
    let mut measured = vec![Vec::new(); loads.len()];
    for number in 0..=rounds {
        for (load, measured) in loads.iter().zip(&mut measured) {
            let round = load.round(server.child.id(), &post);
            // The first round warms up.
            if number > 0 {
                measured.push(round);
            }
        }
    }
    report(&loads, &measured);
    let entries = metric(room, &["lockgate_http_request_seconds_count", "/enter", "\"201\""]);
    let calls = metric(room, &["lockgate_store_calls_total", "\"enter\""]);
    println!("script calls per entry: {:.3} ({calls} calls for {entries} entries)", calls / entries);
    println!("server process after {entries} entries: {:.1} MiB", metric(room, &["vm_rss_mib"]));
}

fn report(loads: &[Load<'_>], measured: &[Vec<Round>]) {
    println!("\nloopback HTTP on one pinned core: requests per second, CPU time of the server per request");
    for (load, rounds) in loads.iter().zip(measured) {
        let all: Vec<String> =
            rounds.iter().map(|round| format!("{:.0}/{:.1}", round.per_second, round.cpu_us)).collect();
        let per_second = median(rounds.iter().map(|round| round.per_second).collect());
        let cpu_us = median(rounds.iter().map(|round| round.cpu_us).collect());
        println!("{:<40} {per_second:>8.0}/s {cpu_us:>6.1} us   rounds: {}", load.name, all.join(" "));
    }
    for (subject, yardstick, wanted) in [
        ("constant behind the layers", "bare constant, axum::serve", 0.70),
        ("constant behind the layers", "bare constant, own listener", 0.70),
        ("public status", "constant behind the layers", 0.95),
        ("public status", "constant as long as the public status", 0.95),
        ("public status, gzip", "constant behind the layers", 0.95),
        ("personal status", "constant behind the layers", 0.80),
        ("enter on Redis", "constant behind the layers, POST", 0.50),
    ] {
        let of = |name| &measured[loads.iter().position(|load| load.name == name).unwrap()];
        // Compared round by round: what else the machine does weighs on neighbours alike.
        let pairs = || of(subject).iter().zip(of(yardstick));
        let by_cpu = median(pairs().map(|(it, other)| other.cpu_us / it.cpu_us).collect());
        let by_rate = median(pairs().map(|(it, other)| it.per_second / other.per_second).collect());
        println!(
            "{subject} / {yardstick}: {:.1} % by CPU time, {:.1} % by throughput (wanted: {:.0} %)",
            by_cpu * 100.0,
            by_rate * 100.0,
            wanted * 100.0
        );
    }
}
