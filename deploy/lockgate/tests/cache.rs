//! nginx with a one-second shared cache in front, as deploy/connectors/nginx-status-cache.conf has it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use common::{Folder, Lockgate, OPERATOR_KEY, client, sale_file};
use lockgate_shared::testing::{eventually, free_port};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A private nginx over the documented file.
struct Nginx {
    child: Child,
    base: String,
}

impl Nginx {
    async fn start(folder: &Folder, origin: &str) -> Self {
        let cache = folder.path().join("nginx").join("cache").display().to_string();
        let changes = [
            ("/var/cache/nginx/lockgate", cache.as_str()),
            ("server 127.0.0.1:8080;", &format!("server {origin};")),
            ("listen 80;", "listen LISTEN;"),
        ];
        Self::over(folder, include_str!("../../connectors/nginx-status-cache.conf"), &changes).await
    }

    /// Over a documented file with these changes made; LISTEN becomes its address.
    async fn over(folder: &Folder, documented: &str, changes: &[(&str, &str)]) -> Self {
        let (home, port) = (folder.path().join("nginx"), free_port());
        std::fs::create_dir_all(home.join("cache")).unwrap();
        let path = |name: &str| home.join(name).display().to_string();
        let mut server = documented.to_owned();
        for (from, to) in changes {
            assert_eq!(server.matches(from).count(), 1, "the documented lines are still there: {from}");
            server = server.replace(from, to);
        }
        let server = server.replace("LISTEN", &format!("127.0.0.1:{port}"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {};\n", path(name)))
            .collect();
        // Root's nginx would hand its workers to a user who may not read this folder.
        let user =
            if Command::new("id").arg("-u").output().unwrap().stdout == b"0\n" { "user root;" } else { "" };
        let text = format!(
            "{user}\ndaemon off;\nworker_processes 1;\npid {};\nerror_log stderr warn;\n\
             events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n",
            path("nginx.pid"),
        );
        let file = folder.write("nginx.conf", &text);
        let child = Command::new("/usr/sbin/nginx")
            .args(["-p", &path(""), "-c"])
            .arg(file)
            .stdout(Stdio::null())
            .spawn()
            .expect("nginx must be installed: run deploy/test");
        let nginx = Self { child, base: format!("http://127.0.0.1:{port}") };
        let client = client();
        eventually("nginx answers", 20, async || {
            client
                .get(format!("{}/healthz", nginx.base))
                .send()
                .await
                .is_ok_and(|answer| answer.status() == 200)
        })
        .await;
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, so that the master takes its workers with it.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Requests for a status, personal or public, that the origin has answered.
async fn reached_origin(lockgate: &Lockgate) -> u64 {
    let answer = client().get(lockgate.url("/metrics")).bearer_auth(OPERATOR_KEY).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let counts = text.lines().filter(|line| {
        line.starts_with("lockgate_http_request_seconds_count{")
            && line.contains("route=\"/sale/{sale}/status\"")
    });
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn ticket(client: &Client, base: &str) -> String {
    let answer = client.post(format!("{base}/sale/busy/enter")).send().await.unwrap();
    let body: Value = answer.json().await.unwrap();
    body["ticket"].as_str().unwrap().to_owned()
}

async fn number(client: &Client, url: &str, ticket: &str) -> Option<u64> {
    let answer = client.get(url).bearer_auth(ticket).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "x-cache-status")), (200, "BYPASS"));
    assert!(header(&answer, "cache-control").contains("no-store"));
    answer.json::<Value>().await.unwrap()["number"].as_u64()
}

/// Polls the public status 500 times, 50 a second, with a cookie or without.
async fn polls(url: String, worker: u64) {
    let client = client();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..500 {
        ticks.tick().await;
        let mut request = client.get(format!("{url}?poll={worker}"));
        if worker.is_multiple_of(2) {
            request = request.header("cookie", format!("__Host-lockgate-ticket-busy=shopper-{worker}"));
        }
        let answer = request.send().await.unwrap();
        assert_eq!((answer.status().as_u16(), header(&answer, "set-cookie")), (200, ""));
        assert_eq!(answer.json::<Value>().await.unwrap().get("number"), None, "nobody's number is public");
    }
}

/// Somebody who polls their own status all the while, and only ever sees their own number.
async fn sees_only_itself(url: String, ticket: String, own: u64) -> u64 {
    let client = client();
    for asked in 0..100 {
        let seen = number(&client, &url, &ticket).await;
        assert_eq!(seen, Some(own), "at the {asked}th poll");
        tokio::time::sleep(Duration::from_millis(90)).await;
    }
    100
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_polls_cost_the_origin_one_a_second_and_nobody_sees_anothers_place() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("busy", "open", 10, 1, 60));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &[]).await;
    let nginx = Nginx::start(&folder, lockgate.base.strip_prefix("http://").unwrap()).await;
    let url = format!("{}/sale/busy/status", nginx.base);

    let client = client();
    let (mut tickets, mut numbers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        tickets.push(ticket(&client, &nginx.base).await);
    }
    for ticket in &tickets {
        let mut given = None;
        eventually("a number is given", 10, async || {
            given = number(&client, &url, ticket).await;
            given.is_some()
        })
        .await;
        numbers.push(given.unwrap());
    }
    assert_ne!(numbers[0], numbers[1]);

    let before = reached_origin(&lockgate).await;
    let started = Instant::now();
    let mut personal = JoinSet::new();
    for (ticket, own) in tickets.iter().zip(&numbers) {
        personal.spawn(sees_only_itself(url.clone(), ticket.clone(), *own));
    }
    let mut public = JoinSet::new();
    for worker in 0..20 {
        public.spawn(polls(url.clone(), worker));
    }
    while let Some(done) = public.join_next().await {
        done.unwrap();
    }
    let seconds = started.elapsed().as_secs_f64().ceil() as u64;
    let own_polls: u64 = personal.join_all().await.into_iter().sum();
    let seconds_in_all = started.elapsed().as_secs_f64().ceil() as u64;
    let reached = reached_origin(&lockgate).await - before - own_polls;
    println!("10,000 public polls in {seconds} s (all in {seconds_in_all} s): {reached} reached the origin");
    assert!(reached <= seconds + 2, "{reached} of 10,000 polls in {seconds} s reached the origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_or_a_refused_ticket_changes_nothing_for_others() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("busy", "open", 10, 1, 60));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &[]).await;
    let nginx = Nginx::start(&folder, lockgate.base.strip_prefix("http://").unwrap()).await;
    let client = client();
    let own = ticket(&client, &nginx.base).await;
    for base in [&lockgate.base, &nginx.base] {
        let url = format!("{base}/sale/busy/status");
        let refused = client.get(&url).bearer_auth("no-ticket").send().await.unwrap();
        assert_eq!(refused.status(), 403);
        // The bytes change once a second; two answers of one second are the same bytes, cookie or not.
        eventually("two answers of one moment", 20, async || {
            let plain = client.get(&url).send().await.unwrap();
            let cookie = format!("__Host-lockgate-ticket-busy={own}");
            let with_cookie = client.get(&url).header("cookie", cookie).send().await.unwrap();
            assert_eq!(
                (plain.status(), with_cookie.status()),
                (reqwest::StatusCode::OK, reqwest::StatusCode::OK)
            );
            let is_one_moment = header(&plain, "etag") == header(&with_cookie, "etag");
            let bodies = (plain.bytes().await.unwrap(), with_cookie.bytes().await.unwrap());
            assert!(!is_one_moment || bodies.0 == bodies.1);
            is_one_moment
        })
        .await;
        let personal = client.get(&url).bearer_auth(&own).send().await.unwrap();
        let body: Value = personal.json().await.unwrap();
        assert!(body["state"].is_string() && body != json!({}), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_proxy_sends_each_address_to_the_role_that_serves_it() {
    let (folder, mut changes, mut roles) =
        (Folder::new(), vec![("127.0.0.1:8080", "LISTEN".to_owned())], JoinSet::new());
    for (name, documented) in
        [("line", "127.0.0.1:8084"), ("checkout", "127.0.0.1:8083"), ("gateway", "127.0.0.1:8082")]
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        changes.push((documented, listener.local_addr().unwrap().to_string()));
        let answer = move |uri: axum::http::Uri| async move { format!("{name} {uri}") };
        roles.spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    }
    let changes: Vec<(&str, &str)> = changes.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let nginx = Nginx::over(&folder, include_str!("../../connectors/nginx-roles.conf"), &changes).await;
    for (path, role) in [
        ("/", "line"),
        ("/sale/demo", "line"),
        ("/sale/demo/status", "line"),
        ("/assets/lockgate.css", "line"),
        ("/sale/demo/checkout", "checkout"),
        ("/orders/0197/pay?key=k", "checkout"),
        ("/payment/webhook", "checkout"),
        ("/simulated-gateway/pay/1", "gateway"),
    ] {
        let answer = client().get(format!("{}{path}", nginx.base)).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), format!("{role} {path}"));
    }
    let operators = client().get(format!("{}/operator/v1/sales", nginx.base)).send().await.unwrap();
    assert_eq!(operators.status(), 404);
}
