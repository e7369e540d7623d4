//! A CAPTCHA at the door, against a provider that answers as its documentation says, or not at all.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Form, Router, extract::State, response::IntoResponse as _, response::Response, routing::post};
use http::{Request, StatusCode};
use lockgate_shared::{
    edge::client::Caller,
    proof_of_work::Challenge,
    sale::{ProofOfWork, ProofWhen},
};
use lockgate_waiting_room::captcha::{Provider, Settings, WhenUnreachable};
use serde_json::{Value, json};

use crate::house::{Answer, Backend, House, Site, before_opening, eligibility, sale, sale_for_customers};

const ENTER: &str = "/sale/phone-drop/enter";
const SECRET: &str = "the-providers-secret";
const BROWSER: (&str, &str) = ("accept", "text/html");

/// How the provider is doing.
#[derive(Clone, Copy, PartialEq)]
enum Health {
    Well,
    Unwell,
    Silent,
    /// Too much is asked of it for shoppers; what we ask ourselves is answered.
    Overrun,
    Garbage,
    Endless,
}

/// The provider: a response that begins with `good` is solved, once.
struct Service {
    health: Mutex<Health>,
    seen: Mutex<HashSet<String>>,
    calls: Mutex<Vec<HashMap<String, String>>>,
}

impl Service {
    async fn start() -> (Arc<Self>, String) {
        let service = Arc::new(Self {
            health: Mutex::new(Health::Well),
            seen: Mutex::default(),
            calls: Mutex::default(),
        });
        let router = Router::new().route("/siteverify", post(siteverify)).with_state(Arc::clone(&service));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/siteverify", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (service, url)
    }

    fn is_now(&self, health: Health) {
        *self.health.lock().unwrap() = health;
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

async fn siteverify(
    State(service): State<Arc<Service>>,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    service.calls.lock().unwrap().push(form.clone());
    let health = *service.health.lock().unwrap();
    match health {
        Health::Well => {}
        Health::Unwell => return (StatusCode::BAD_GATEWAY, "<html>").into_response(),
        Health::Overrun if form.get("response").is_some_and(|response| response == "trial") => {}
        Health::Silent | Health::Overrun => std::future::pending().await,
        Health::Garbage => return "<html>success</html>".into_response(),
        Health::Endless => return "{\"success\":true,".repeat(10_000).into_response(),
    }
    let refused = |code: &str| axum::Json(json!({ "success": false, "error-codes": [code] })).into_response();
    if form.get("secret").is_none_or(|secret| secret != SECRET) {
        return refused("invalid-input-secret");
    }
    match form.get("response") {
        Some(response) if !response.starts_with("good") => refused("invalid-input-response"),
        Some(response) if !service.seen.lock().unwrap().insert(response.clone()) => {
            refused("timeout-or-duplicate")
        }
        Some(_) => {
            let hostname = "shop.example";
            let at = "2026-12-01T10:00:00Z";
            let solved =
                json!({ "success": true, "challenge_ts": at, "hostname": hostname, "error-codes": [] });
            axum::Json(solved).into_response()
        }
        None => refused("missing-input-response"),
    }
}

fn settings(verify_url: &str, when_unreachable: WhenUnreachable) -> Settings {
    Settings {
        provider: Provider::Turnstile,
        site_key: "site-key".into(),
        secret: SECRET.into(),
        verify_url: verify_url.into(),
        timeout: Duration::from_millis(500),
        when_unreachable,
        send_address: false,
    }
}

async fn site(settings: Settings) -> Site {
    let mut site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    site.captcha = Some(settings);
    site
}

async fn enter(house: &House, captcha: &str, key: &str) -> Answer {
    house.post_json(ENTER, &json!({ "captcha": captcha }), &[("idempotency-key", key)]).await
}

fn key(n: u32) -> String {
    format!("a-key-of-a-shopper-{n}")
}

fn is_required(answer: &Answer) {
    assert_eq!(answer.refusal(), (403, "captcha_required".into()), "{answer:?}");
}

fn is_unavailable(answer: &Answer) {
    assert_eq!(answer.refusal(), (503, "captcha_unavailable".into()), "{answer:?}");
    assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 5, "{answer:?}");
}

#[tokio::test]
async fn who_solves_it_enters_once_and_a_ticket_needs_none() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::Refuse)).await;
    let house = site.start("p1");
    let before = house.calls();
    is_required(&house.post_json(ENTER, &json!({}), &[]).await);
    is_required(&house.post_json(ENTER, &json!({ "captcha": "" }), &[]).await);
    assert_eq!((service.calls(), house.calls()), (0, before), "without a response nobody is asked");
    is_required(&house.post_json(ENTER, &json!({ "captcha": "bad" }), &[]).await);
    for odd in ["x".repeat(8_193), "good with a space".into(), "g\u{f6}\u{f6}d".into()] {
        is_required(&house.post_json(ENTER, &json!({ "captcha": odd }), &[]).await);
    }
    assert_eq!((service.calls(), house.calls()), (1, before), "what no widget gives is not sent on");

    let entered = enter(&house, "good-1", &key(1)).await;
    assert_eq!(entered.status, StatusCode::CREATED, "{entered:?}");
    is_required(&enter(&house, "good-1", &key(2)).await);
    is_required(&house.post_json(ENTER, &json!({ "captcha": "good-1" }), &[]).await);
    let ticket = entered.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(house.with_ticket("enter", &ticket).await.status, StatusCode::OK);
    let sent = service.calls.lock().unwrap().clone();
    assert!(sent.iter().all(|form| form.len() == 2 && form["secret"] == SECRET), "no address: {sent:?}");
}

#[tokio::test]
async fn m9_k1_a_lost_answer_is_asked_for_again_with_the_same_response() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::Refuse)).await;
    let (house, other) = (site.start("p1"), site.start("p2"));
    let first = enter(&house, "good-1", &key(1)).await;
    for process in [&house, &other] {
        let again = enter(process, "good-1", &key(1)).await;
        assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK), "{again:?}");
    }
    assert_eq!(service.calls(), 2, "the process that knows does not ask");
    is_required(&enter(&other, "good-1", &key(2)).await);

    // Whoever left and comes back is somebody new, and shows again that it is a person.
    let ticket = first.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(house.with_ticket("leave", &ticket).await.status, StatusCode::NO_CONTENT);
    is_required(&enter(&other, "good-1", &key(1)).await);
    assert_eq!(enter(&other, "good-2", &key(1)).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn it_comes_after_the_shops_word_and_the_work_and_neither_is_used_up_for_nothing() {
    let (service, url) = Service::start().await;
    let mut customers = sale_for_customers();
    customers.proof_of_work = Some(ProofOfWork { difficulty: 500, when: ProofWhen::Always });
    let mut site = Site::open(Backend::Sqlite, customers, before_opening()).await;
    site.captcha = Some(settings(&url, WhenUnreachable::Refuse));
    let house = site.start("p1");
    let word = |name: &str| eligibility(name, before_opening().seconds() + 600);
    let ask = async |body: Value| house.post_json(ENTER, &body, &[]).await;
    let wrong_word = ask(json!({ "captcha": "good-1", "eligibility": "nonsense" })).await;
    assert_eq!(wrong_word.refusal().1, "not_eligible");
    let no_work = ask(json!({ "captcha": "good-1", "eligibility": word("ann") })).await;
    assert_eq!((no_work.refusal().1, service.calls()), ("proof_required".into(), 0));
    let challenge: Challenge = serde_json::from_value(no_work.json()["challenge"].clone()).unwrap();
    let proof = challenge.solve(|| true).unwrap();
    is_required(&ask(json!({ "proof": proof, "eligibility": word("ann") })).await);
    let entered = ask(json!({ "captcha": "good-1", "proof": proof, "eligibility": word("ann") })).await;
    assert_eq!(entered.status, StatusCode::CREATED, "the work was not used up: {entered:?}");
}

#[tokio::test]
async fn out_of_reach_nobody_enters_where_the_operator_said_refuse() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::Refuse)).await;
    let house = site.start("p1");
    for (n, health) in [(1, Health::Unwell), (2, Health::Silent)] {
        service.is_now(health);
        is_unavailable(&enter(&house, &format!("good-{n}"), &key(n)).await);
    }
    is_required(&house.post_json(ENTER, &json!({}), &[]).await);
    service.is_now(Health::Well);
    assert_eq!(enter(&house, "good-3", &key(3)).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn out_of_reach_everybody_enters_where_the_operator_said_let_in() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::LetIn)).await;
    let house = site.start("p1");
    is_required(&house.post_json(ENTER, &json!({}), &[]).await);
    service.is_now(Health::Unwell);
    site.clock.advance_ms(1_000);
    for n in 0..7 {
        is_unavailable(&enter(&house, &format!("good-{n}"), &key(n)).await);
        if n > 4 {
            site.clock.advance_ms(1_000);
        }
    }
    assert_eq!(enter(&house, "good-7", &key(7)).await.status, StatusCode::CREATED, "the third try failed");
    // Its widget does not load now either, so nobody has a response.
    let calls = service.calls();
    for _ in 0..20 {
        assert_eq!(house.post_json(ENTER, &json!({}), &[]).await.status, StatusCode::CREATED);
    }
    assert!(service.calls() <= calls + 1, "an outage is not asked about by everybody");
    service.is_now(Health::Well);
    site.clock.advance_ms(1_000);
    is_required(&house.post_json(ENTER, &json!({}), &[]).await);
    is_required(&enter(&house, "bad", &key(99)).await);
    assert_eq!(enter(&house, "good-9", &key(9)).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_an_outage_that_pages_without_a_widget_find_out() {
    let gone = format!("http://127.0.0.1:{}/siteverify", lockgate_shared::testing::free_port());
    let site = site(settings(&gone, WhenUnreachable::LetIn)).await;
    let house = site.start("p1");
    for _ in 0..2 {
        is_required(&house.post_json(ENTER, &json!({}), &[]).await);
        site.clock.advance_ms(1_000);
    }
    assert_eq!(house.post_json(ENTER, &json!({}), &[]).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn callers_who_overrun_the_provider_do_not_switch_it_off() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::LetIn)).await;
    let house = site.start("p1");
    service.is_now(Health::Overrun);
    for n in 0..5 {
        let at_once = (0..8).map(|m| {
            let house = &house;
            async move { enter(house, &format!("bad-{n}-{m}"), &key(10 * n + m)).await }
        });
        for answer in futures::future::join_all(at_once).await {
            is_unavailable(&answer);
        }
        is_required(&house.post_json(ENTER, &json!({}), &[]).await);
        site.clock.advance_ms(1_000);
    }
}

#[tokio::test]
async fn an_answer_that_is_none_lets_nobody_in_whatever_the_policy() {
    let (service, url) = Service::start().await;
    let site = site(settings(&url, WhenUnreachable::LetIn)).await;
    let house = site.start("p1");
    for (n, health) in [(1, Health::Garbage), (2, Health::Endless)] {
        service.is_now(health);
        for again in 0..6 {
            is_unavailable(&enter(&house, &format!("good-{n}-{again}"), &key(n)).await);
        }
    }
    let wrong = Settings { secret: "another".into(), ..settings(&url, WhenUnreachable::LetIn) };
    service.is_now(Health::Well);
    let mut site = site;
    site.captcha = Some(wrong);
    is_unavailable(&enter(&site.start("p2"), "good-3", &key(3)).await);
}

#[tokio::test]
async fn the_shoppers_address_is_sent_only_where_the_operator_said_so() {
    let (service, url) = Service::start().await;
    let told = Settings { send_address: true, ..settings(&url, WhenUnreachable::Refuse) };
    let site = site(told).await;
    let house = site.start("p1");
    let mut request = Request::post(ENTER).header("content-type", "application/json");
    request.extensions_mut().unwrap().insert(Caller::new("203.0.113.7:4711".parse().unwrap()));
    let answer = house.send(request.body(json!({ "captcha": "good-1" }).to_string().into()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    assert_eq!(service.calls.lock().unwrap()[0]["remoteip"], "203.0.113.7");
}

#[tokio::test]
async fn the_page_shows_the_widget_under_a_policy_of_its_own_and_only_where_one_is_set_up() {
    let (_service, url) = Service::start().await;
    for provider in [Provider::Turnstile, Provider::HCaptcha] {
        let asked = Settings { provider, ..settings(&url, WhenUnreachable::Refuse) };
        let site = site(asked).await;
        let house = site.start("p1");
        let page = house.get("/sale/phone-drop", &[BROWSER]).await;
        let widget = format!("class=\"{}\" data-sitekey=\"site-key\"", provider.class());
        assert!(page.text.contains(&widget) && page.text.contains(provider.script()), "{page:?}");
        assert!(page.text.contains("<noscript>") && !page.text.contains(SECRET));
        assert_eq!(page.header("content-security-policy"), provider.content_security_policy());
        let queue = house.get("/sale/phone-drop/queue", &[BROWSER]).await;
        assert!(!queue.header("content-security-policy").contains("https://"), "{queue:?}");

        let field = format!("{}-response", provider.class());
        let refused = house.post_form(ENTER, &format!("{field}=bad"), &[BROWSER]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(refused.text.contains("The check that you are a person is not done yet"), "{refused:?}");
        assert!(refused.text.contains(&widget) && refused.text.contains("captcha_required"));
        assert_eq!(refused.header("content-security-policy"), provider.content_security_policy());
        let form = format!("{field}=good-{provider}&g-recaptcha-response=good-{provider}&proof=");
        let entered = house.post_form(ENTER, &form, &[BROWSER]).await;
        assert_eq!(entered.status, StatusCode::SEE_OTHER, "{entered:?}");
    }
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    let page = house.get("/sale/phone-drop", &[BROWSER]).await;
    assert!(!page.text.contains("sitekey") && !page.text.contains("<noscript>"), "{page:?}");
    assert!(!page.header("content-security-policy").contains("https://"));
    assert_eq!(enter(&house, "good-1", &key(1)).await.status, StatusCode::CREATED, "taken, and not read");
}
