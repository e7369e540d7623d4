//! What the edge of the real binary lets through and what it turns away, over real connections. A trusted proxy on
//! loopback is played by naming shoppers in `X-Forwarded-For`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::time::Duration;

use common::{Folder, Lockgate, OPERATOR_KEY, Shopper, Stores, client, sale_file};
use lockgate_shared::testing::eventually;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const SECRET: &str = "origin-secret-0123456789-abcdefgh";
const NEXT_SECRET: &str = "origin-secret-next-9876543210-zyx";

struct Stand {
    lockgate: Lockgate,
    client: Client,
    _folder: Folder,
}

async fn stand(settings: &[(&str, &str)]) -> Stand {
    let folder = Folder::new();
    let file = folder.write("a.toml", &sale_file("one", "open", 20_000, 2, 600));
    let environment: Vec<(&str, String)> = settings.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &environment).await;
    Stand { lockgate, client: client(), _folder: folder }
}

impl Stand {
    /// A request that a trusted proxy passes on for `address`.
    fn call(&self, method: Method, path: &str, address: &str) -> RequestBuilder {
        self.client.request(method, self.lockgate.url(path)).header("x-forwarded-for", address)
    }

    async fn enter(&self, address: &str) -> StatusCode {
        self.call(Method::POST, "/sale/one/enter", address).send().await.unwrap().status()
    }

    async fn code(request: RequestBuilder) -> (u16, String) {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap_or_default();
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    }

    async fn entered(&self) -> u64 {
        let url = self.lockgate.url("/operator/v1/sales");
        let answer = self.client.get(url).bearer_auth(OPERATOR_KEY).send().await.unwrap();
        let body: Value = answer.json().await.unwrap();
        body["sales"][0]["entered"].as_u64().unwrap()
    }
}

const PROXY: (&str, &str) = ("LOCKGATE_EDGE__TRUSTED_PROXIES", "127.0.0.0/8");

#[tokio::test(flavor = "multi_thread")]
async fn f1_rotating_addresses_of_one_64_share_one_bucket() {
    let stand = stand(&[PROXY, ("LOCKGATE_EDGE__ENTER_LIMIT", "1/s burst 100")]).await;
    let mut entered = 0;
    for n in 0..300u32 {
        let status = stand.enter(&format!("2001:db8:0:7::{n:x}")).await;
        assert!(
            matches!(status, StatusCode::CREATED | StatusCode::FORBIDDEN),
            "proof of work is asked for: {status}"
        );
        entered += u32::from(status == StatusCode::CREATED);
    }
    assert!((10..60).contains(&entered), "a tenth of the burst and what came back meanwhile: {entered}");
    assert_eq!(stand.enter("2001:db8:0:8::1").await, StatusCode::CREATED, "the neighbour is unaffected");
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_a_carriers_address_stands_for_thousands_who_all_get_in() {
    let stand = stand(&[PROXY]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (client, url) = (stand.client.clone(), stand.lockgate.url("/sale/one/enter"));
        tasks.spawn(async move {
            for _ in 0..100 {
                let answer =
                    client.post(&url).header("x-forwarded-for", "198.51.100.77").send().await.unwrap();
                assert_eq!(answer.status(), StatusCode::CREATED);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    eventually("all five thousand are counted", 20, async || stand.entered().await == 5_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_one_account_among_thousands_is_held_to_its_own_share() {
    let stand = stand(&[PROXY, ("LOCKGATE_EDGE__ACCOUNT_LIMIT", "1/s burst 5")]).await;
    let greedy = Shopper::enter(&stand.lockgate.base, "one", json!({})).await;
    let mut calm = Shopper::enter(&stand.lockgate.base, "one", json!({})).await;
    let admit = |ticket: String| {
        Stand::code(stand.call(Method::POST, "/sale/one/admit", "198.51.100.77").bearer_auth(ticket))
    };
    let mut refused = 0;
    for _ in 0..30 {
        let (status, code) = admit(greedy.ticket.clone()).await;
        refused += u32::from((status, code.as_str()) == (429, "rate_limited"));
    }
    assert!(refused > 10, "{refused}");
    // Polls are not counted; whoever waits for the turn as the page does has calls enough.
    eventually("the turn has come", 20, async || {
        let poll = stand.call(Method::GET, "/sale/one/status", "198.51.100.77").bearer_auth(&calm.ticket);
        poll.send().await.unwrap().json::<Value>().await.unwrap()["state"] == "your_turn"
    })
    .await;
    calm.admit().await;
    assert_eq!(calm.checkout("k1", 1).await.unwrap().status(), StatusCode::ACCEPTED);
    tokio::time::timeout(Duration::from_secs(30), async {
        // The greedy one is refused for a while, not for ever.
        while !matches!(admit(greedy.ticket.clone()).await, (200, _)) {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn f3_those_turned_away_together_are_told_different_times() {
    let stand = stand(&[PROXY, ("LOCKGATE_EDGE__TURN_LIMIT", "1/s burst 1")]).await;
    let mut told = std::collections::BTreeSet::new();
    let mut refused = 0;
    for _ in 0..60 {
        let answer = stand.call(Method::POST, "/sale/one/admit", "192.0.2.1").send().await.unwrap();
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            refused += 1;
            told.insert(answer.headers()["retry-after"].to_str().unwrap().parse::<u32>().unwrap());
        }
    }
    assert!(refused > 30 && told.len() >= 3 && *told.first().unwrap() >= 1, "{refused} refused: {told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_refused_program_gets_a_problem_and_a_person_a_page() {
    let stand = stand(&[PROXY, ("LOCKGATE_EDGE__TURN_LIMIT", "1/s burst 1")]).await;
    let admit = |accept: &'static str| {
        stand.call(Method::POST, "/sale/one/admit", "192.0.2.1").header("accept", accept).send()
    };
    admit("*/*").await.unwrap();
    for accept in ["*/*", "application/json", "application/json, text/html;q=0.5"] {
        let answer = admit(accept).await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{accept}");
        let name = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
        let body: Value = answer.json().await.unwrap();
        assert_eq!((&body["code"], &body["request_id"]), (&json!("rate_limited"), &json!(name)));
    }
    let page = admit("text/html,application/xhtml+xml;q=0.9").await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert!(page.headers().contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c3_polls_and_assets_are_never_refused() {
    let least = "1/s burst 1";
    let stand = stand(&[
        PROXY,
        ("LOCKGATE_EDGE__ENTER_LIMIT", least),
        ("LOCKGATE_EDGE__TURN_LIMIT", least),
        ("LOCKGATE_EDGE__ACCOUNT_LIMIT", least),
        ("LOCKGATE_EDGE__IN_FLIGHT_MAX", "1"),
    ])
    .await;
    let shopper = Shopper::enter(&stand.lockgate.base, "one", json!({})).await;
    eventually("the network is above its limit", 10, async || {
        stand.enter("192.0.2.1").await == StatusCode::FORBIDDEN
    })
    .await;
    for path in ["/", "/sale/one", "/sale/one/status", "/assets/lockgate.css"] {
        for _ in 0..200 {
            let answer = stand.call(Method::GET, path, "192.0.2.1").send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
        }
    }
    for _ in 0..200 {
        let poll = stand.call(Method::GET, "/sale/one/status", "192.0.2.1").bearer_auth(&shopper.ticket);
        assert_eq!(poll.send().await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_addresses_change_nothing() {
    let limit = ("LOCKGATE_EDGE__ENTER_LIMIT", "1/s burst 20");
    // Without a trusted proxy the connection counts; `unlimited` is emptied so that loopback has a limit at all.
    let direct = stand(&[limit, ("LOCKGATE_EDGE__UNLIMITED_NETWORKS", "")]).await;
    let proxied = stand(&[PROXY, limit]).await;
    for (stand, appended) in [(&direct, ""), (&proxied, ", 203.0.113.9")] {
        let mut entered = 0;
        for n in 0..150 {
            let forged = format!("198.51.100.{n}, 10.0.0.{n}{appended}");
            entered += u32::from(stand.enter(&forged).await == StatusCode::CREATED);
        }
        assert!((20..60).contains(&entered), "{entered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l4_a_crowd_without_cookies_is_bounded_and_costs_no_places_inside() {
    let stand = stand(&[PROXY, ("LOCKGATE_EDGE__ENTER_LIMIT", "5/s burst 50")]).await;
    let mut taken = 0;
    for _ in 0..600 {
        taken += u32::from(stand.enter("192.0.2.1").await == StatusCode::CREATED);
    }
    assert!((50..200).contains(&taken), "{taken} of 600");
    // Somebody real comes last, and is let in although nobody of the crowd takes a turn up.
    let mut real = Shopper::enter(&stand.lockgate.base, "one", json!({})).await;
    real.admit().await;
    assert_eq!(real.checkout("k1", 1).await.unwrap().status(), StatusCode::ACCEPTED);
    let url = stand.lockgate.url("/operator/v1/sales/one/admission");
    let live: Value =
        stand.client.get(url).bearer_auth(OPERATOR_KEY).send().await.unwrap().json().await.unwrap();
    assert!(live["active"].as_u64().unwrap() <= 1, "only who was admitted is active: {live}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s5_what_a_client_says_in_our_name_is_not_believed() {
    let stand = stand(&[
        ("LOCKGATE_EDGE__ORIGIN_SECRET", SECRET),
        ("LOCKGATE_EDGE__ORIGIN_SECRET_NEXT", NEXT_SECRET),
    ])
    .await;
    let status = |secret: Option<&str>| {
        let request = stand
            .client
            .get(stand.lockgate.url("/sale/one/status"))
            .header("x-lockgate-account", "somebody-else")
            .header("X-Lockgate-Sale", "one");
        Stand::code(match secret {
            Some(secret) => request.header("x-lockgate-origin", secret),
            None => request,
        })
    };
    assert_eq!(status(None).await, (403, "origin_required".into()));
    assert_eq!(status(Some("guessed")).await, (403, "origin_required".into()));
    assert_eq!(status(Some(SECRET)).await.0, 200);
    assert_eq!(status(Some(NEXT_SECRET)).await.0, 200);
    let enter = stand.client.post(stand.lockgate.url("/sale/one/enter")).header("x-lockgate-account", "anna");
    let entered = |n| enter.try_clone().unwrap().header("x-lockgate-origin", SECRET).header("x-nth", n);
    let tickets: Vec<Value> = [
        entered(1).send().await.unwrap().json().await.unwrap(),
        entered(2).send().await.unwrap().json().await.unwrap(),
    ]
    .into();
    assert_ne!(tickets[0]["ticket"], tickets[1]["ticket"], "a name in a header is nobody's account");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(stand.client.get(stand.lockgate.url(path)).send().await.unwrap().status(), StatusCode::OK);
    }
    let operators = stand.client.get(stand.lockgate.url("/operator/v1/sales"));
    assert_eq!(Stand::code(operators).await.0, 401, "operators have their own key");
    let log = stand.lockgate.log.lock().unwrap().clone();
    assert!(!log.contains(SECRET) && !log.contains(NEXT_SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_networks_change_in_flight_in_every_process() {
    let stores = Stores::redis_postgres().await;
    let environment = |keys: &std::path::Path| {
        let mut environment = stores.environment();
        environment.push(("LOCKGATE_EDGE__TRUSTED_PROXIES", "127.0.0.0/8".into()));
        environment.push(("LOCKGATE_KEYS__FILE", keys.to_str().unwrap().into()));
        environment
    };
    let folder = Folder::new();
    let keys = folder.path().join("keys.toml");
    let made = common::command(&["keys", "new", "--file", keys.to_str().unwrap()]).output().unwrap();
    assert!(made.status.success());
    let file = folder.write("a.toml", &sale_file("one", "open", 5, 2, 600));
    let start = async |name: &str| {
        let data = folder.path().join(name);
        let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
        Lockgate::start(&arguments, &environment(&keys)).await
    };
    let (one, two) = (start("one").await, start("two").await);
    let client = client();
    let set = |lists: Value| client.put(one.url("/operator/v1/edge")).bearer_auth(OPERATOR_KEY).json(&lists);
    let status = async |server: &Lockgate, address: &str| {
        let request = client.get(server.url("/sale/one/status")).header("x-forwarded-for", address);
        Stand::code(request).await
    };
    let denied = (403, "address_denied".to_owned());
    assert_eq!(status(&two, "192.0.2.7").await.0, 200);
    let answer = set(json!({ "deny": ["192.0.2.0/24"], "allow": ["192.0.2.8"] })).send().await.unwrap();
    assert_eq!((answer.status(), &answer.headers()["etag"]), (StatusCode::OK, &"\"1\"".parse().unwrap()));
    assert_eq!(status(&one, "192.0.2.7").await, denied, "here at once");
    eventually("the other process sees it", 5, async || status(&two, "192.0.2.7").await == denied).await;
    assert_eq!(status(&two, "192.0.2.8").await.0, 200, "allowing outranks denying");
    assert_eq!(status(&two, "192.0.3.7").await.0, 200);

    let wrong = Stand::code(set(json!({ "deny": ["192.0.2.1/24"] }))).await;
    assert_eq!(wrong, (422, "networks_invalid".into()));
    assert_eq!(Stand::code(set(json!({ "deni": [] }))).await, (400, "malformed".into()));
    assert_eq!(
        Stand::code(set(json!({})).header("if-match", "\"0\"")).await,
        (412, "version_mismatch".into())
    );
    let no_key = client.put(one.url("/operator/v1/edge")).json(&json!({}));
    assert_eq!(Stand::code(no_key).await, (401, "operator_key_missing".into()));
    assert_eq!(status(&one, "192.0.2.7").await, denied, "a refused change changes nothing");
    assert_eq!(set(json!({})).header("if-match", "\"1\"").send().await.unwrap().status(), StatusCode::OK);
    eventually("the other process lets them in again", 5, async || status(&two, "192.0.2.7").await.0 == 200)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_one_network_cannot_take_every_connection() {
    let stand = stand(&[
        ("LOCKGATE_EDGE__UNLIMITED_NETWORKS", "127.0.0.1"),
        ("LOCKGATE_EDGE__CONNECTIONS_PER_NETWORK_MAX", "30"),
    ])
    .await;
    let port: u16 = stand.lockgate.base.rsplit(':').next().unwrap().parse().unwrap();
    let mut held = Vec::new();
    for _ in 0..200 {
        // The flood comes from 127.0.0.9, its neighbours from 127.0.0.1.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        held.push(socket.connect(([127, 0, 0, 1], port).into()).await.unwrap());
    }
    let mut answered = 0;
    for stream in &mut held {
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let mut start = [0; 12];
        answered += u32::from(stream.read_exact(&mut start).await.is_ok());
    }
    assert_eq!(answered, 30);
    assert_eq!(
        stand.client.get(stand.lockgate.url("/healthz")).send().await.unwrap().status(),
        StatusCode::OK
    );
    drop(held);
    eventually("the connections are given back", 10, async || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        stream.read_exact(&mut [0; 12]).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_slow_bodies_giant_bodies_and_half_open_connections_leave_others_alone() {
    let stand = stand(&[("LOCKGATE_EDGE__IN_FLIGHT_MAX", "4")]).await;
    let host = stand.lockgate.base.strip_prefix("http://").unwrap().to_owned();
    let mut held = Vec::new();
    for n in 0..300 {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        let begin: &[u8] = match n % 3 {
            0 => b"POST /sale/one/enter HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
            1 => b"POST /sale/one/enter HTTP/1.1\r\nhost: x\r\nx-slow: ",
            _ => b"",
        };
        stream.write_all(begin).await.unwrap();
        held.push(stream);
    }
    let giant = vec![b' '; 10 * 1024 * 1024];
    for _ in 0..5 {
        // The server may answer and close while the body is still being sent.
        let sent = stand
            .client
            .post(stand.lockgate.url("/sale/one/enter"))
            .header("content-type", "application/json");
        match sent.body(giant.clone()).send().await {
            Ok(answer) => assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE),
            Err(error) => assert!(!error.is_timeout(), "{error}"),
        }
    }
    let large =
        stand.client.post(stand.lockgate.url("/sale/one/enter")).header("content-type", "application/json");
    let refused = Stand::code(large.body(vec![b' '; 200_000])).await;
    assert_eq!(refused, (413, "too_large".into()), "whoever sends a little too much can read why");
    for _ in 0..20 {
        assert_eq!(stand.enter("192.0.2.1").await, StatusCode::CREATED, "slow bodies take nobody's place");
    }
    drop(held);
}
