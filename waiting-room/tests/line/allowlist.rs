//! Entry by an uploaded list of codes and e-mail addresses, over HTTP.

use axum::body::Body;
use http::{Request, StatusCode};
use lockgate_shared::{
    limits::{ALLOWLIST_BYTES_MAX, ALLOWLIST_LINES_MAX},
    sale::{EntryRule, SaleDefinition},
    testing::eventually,
};
use serde_json::{Value, json};

use crate::house::{Answer, Backend, House, OPERATOR, Site, VIEWER, before_opening, sale};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const ENTER: &str = "/sale/phone-drop/enter";

fn listed_sale() -> SaleDefinition {
    let mut listed = sale();
    listed.entry = EntryRule::Allowlist;
    listed
}

async fn opened(backend: Backend) -> (Site, House) {
    let site = Site::open(backend, listed_sale(), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

async fn upload_as(house: &House, key: &str, kind: &str, body: impl Into<Body>) -> Answer {
    let request = Request::post("/operator/v1/sales/phone-drop/allowlist")
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", kind);
    house.send(request.body(body.into()).unwrap()).await
}

async fn upload(house: &House, text: &str) -> Answer {
    upload_as(house, OPERATOR, "text/csv; charset=utf-8", text.to_owned()).await
}

async fn enter(house: &House, code: &str, email: &str) -> Answer {
    house.post_json(ENTER, &json!({ "code": code, "email": email }), &[]).await
}

fn ticket(answer: &Answer) -> String {
    answer.json()["ticket"].as_str().unwrap().to_owned()
}

async fn codes_open_one_place_each(backend: Backend) {
    let (site, house) = opened(backend).await;
    let other = site.start("p2");
    let no_list = enter(&house, "code-1", "a@x.org").await;
    assert_eq!(no_list.refusal(), (503, "entry_unavailable".into()), "that is nobody's fault who asks");
    let answer =
        upload(&house, "code,email\r\ncode-1, Ann@X.org\ncode-2,bob@x.org\ncode-1,ann@x.org\n").await;
    assert_eq!(answer.json(), json!({"lines": 3, "added": 2, "unchanged": 1, "changed": 0}));
    let again = upload(&house, "code-1,ann@x.org\ncode-2,bob@x.org").await;
    assert_eq!(again.json(), json!({"lines": 2, "added": 0, "unchanged": 2, "changed": 0}));

    let before = house.calls();
    let first = enter(&house, " code-1", "ANN@x.org ").await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    assert_eq!(house.calls(), before + 1, "the list is asked in the step that gives the place");
    let same = enter(&other, "code-1", "ann@x.org").await;
    assert_eq!(same.status, StatusCode::OK, "k2: one code, one place, in every process");
    let number = house.until_numbered(&ticket(&first)).await;
    assert_eq!(other.until_numbered(&ticket(&same)).await, number);

    let corrected = upload(&house, "code-2,barbara@x.org").await;
    assert_eq!(corrected.json()["changed"], 1);
    assert_eq!(enter(&house, "code-2", "bob@x.org").await.refusal().0, 403);
    assert_eq!(enter(&house, "code-2", "barbara@x.org").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn codes_open_one_place_each_on_sqlite() {
    codes_open_one_place_each(Backend::Sqlite).await;
}

#[tokio::test]
async fn codes_open_one_place_each_on_redis() {
    codes_open_one_place_each(Backend::Redis).await;
}

#[tokio::test]
async fn wrong_codes_and_wrong_addresses_cannot_be_told_apart() {
    let (_site, house) = opened(Backend::Redis).await;
    upload(&house, "code-1,ann@x.org\ncode-2,bob@x.org\n").await;
    // Each request has an id of its own; everything else must be the same.
    let unlike = |mut answer: Answer| {
        let id = answer.header("x-request-id").to_owned();
        answer.headers.remove("x-request-id");
        (answer.status, answer.headers, answer.text.replace(&id, ""))
    };
    let wrong_email = unlike(enter(&house, "code-1", "bob@x.org").await);
    assert_eq!(unlike(enter(&house, "code-9", "ann@x.org").await), wrong_email);
    assert_eq!(unlike(enter(&house, "code-9", "nobody@x.org").await), wrong_email);
    assert_eq!(unlike(enter(&house, "x", "no address").await), wrong_email);
    assert!(wrong_email.2.contains("not_eligible"));
    let form = async |body: &str| {
        let answer = house.post_form(ENTER, body, &[BROWSER]).await;
        (answer.status, answer.text)
    };
    let wrong_email = form("code=code-1&email=bob%40x.org").await;
    assert_eq!(form("code=code-9&email=ann%40x.org").await, wrong_email);
}

#[tokio::test]
async fn l4_a_crowd_of_clients_without_cookies_takes_no_places() {
    let (site, house) = opened(Backend::Redis).await;
    upload(&house, "code-1,ann@x.org\n").await;
    let guess = async |n: usize| enter(&house, &format!("guess-{n}"), "ann@x.org").await.refusal();
    let guesses = futures::future::join_all((0..500).map(guess)).await;
    assert!(guesses.iter().all(|refusal| *refusal == (403, "not_eligible".into())));
    let again = futures::future::join_all((0..200).map(|_| enter(&house, "code-1", "ann@x.org"))).await;
    assert_eq!(again.iter().filter(|answer| answer.status == StatusCode::CREATED).count(), 1);
    assert!(again.iter().all(|answer| answer.status.is_success()));
    site.set_after_opening(0);
    house.until_serving(1).await;
    assert_eq!(house.board().await["waiting"], 0, "one entry in all, and it was called");
}

#[tokio::test]
async fn a_ticket_opens_its_own_place_without_the_code_and_nobody_elses() {
    let (_site, house) = opened(Backend::Sqlite).await;
    upload(&house, "code-1,ann@x.org\ncode-2,bob@x.org\n").await;
    let ann = ticket(&enter(&house, "code-1", "ann@x.org").await);
    let number = house.until_numbered(&ann).await;
    let bearer = format!("Bearer {ann}");
    let by_ticket = house.with_ticket("enter", &ann).await;
    assert_eq!(by_ticket.status, StatusCode::OK);
    assert_eq!(house.until_numbered(&ticket(&by_ticket)).await, number);
    // Somebody else in the same browser: what they bring outranks the cookie, and is checked.
    let cookie = format!("__Host-lockgate-ticket-phone-drop={ann}");
    let bob = json!({"code": "code-2", "email": "bob@x.org"});
    let entered = house.post_json(ENTER, &bob, &[("cookie", &cookie)]).await;
    assert_eq!(entered.status, StatusCode::CREATED);
    assert_ne!(house.until_numbered(&ticket(&entered)).await, number);
    let wrong = json!({"code": "code-2", "email": "ann@x.org"});
    assert_eq!(house.post_json(ENTER, &wrong, &[("authorization", &bearer)]).await.refusal().0, 403);
    let nothing = house.post_json(ENTER, &json!({}), &[]).await;
    assert_eq!(nothing.refusal(), (403, "not_eligible".into()));
    assert!(nothing.json()["detail"].as_str().unwrap().contains("`code` and `email`"));
    for body in [json!({"code": 7, "email": "a@b"}), json!({"code": "code-1", "eligibility": "x"})] {
        assert_eq!(house.post_json(ENTER, &body, &[]).await.refusal(), (400, "malformed".into()), "{body}");
    }
}

#[tokio::test]
async fn a_list_with_a_wrong_line_changes_nothing() {
    let (site, house) = opened(Backend::Sqlite).await;
    assert_eq!(upload(&house, "code-9,zoe@x.org\n").await.status, StatusCode::OK);
    let refused = upload(&house, "code-1,ann@x.org\nhunter2\ncode-3,hunter2\n").await;
    assert_eq!(refused.refusal(), (422, "invalid_allowlist".into()));
    let body = refused.json();
    let lines: Vec<&Value> = body["problems"].as_array().unwrap().iter().map(|p| &p["line"]).collect();
    assert_eq!((lines, &body["problems_total"]), (vec![&json!(2), &json!(3)], &json!(2)));
    assert!(!refused.text.contains("hunter2"), "what stands on a line is never repeated: {}", refused.text);
    assert_eq!(enter(&house, "code-1", "ann@x.org").await.refusal().0, 403, "not even the good line is in");
    for (kind, status) in [("application/json", 415), ("text/plain", 415), ("", 415)] {
        assert_eq!(upload_as(&house, OPERATOR, kind, "code-1,a@b").await.refusal().0, status, "{kind}");
    }
    assert_eq!(upload_as(&house, VIEWER, "text/csv", "x").await.refusal(), (403, "role_too_low".into()));
    assert_eq!(upload_as(&house, "x", "text/csv", "x").await.refusal().0, 401);
    let long = "x".repeat(1_000_000);
    let endless = futures::stream::iter((0..100).map(move |_| Ok::<_, std::io::Error>(long.clone())));
    let refused = upload_as(&house, OPERATOR, "text/csv", Body::from_stream(endless)).await;
    assert_eq!(refused.refusal(), (413, "too_large".into()));
    let many = "\n".repeat(ALLOWLIST_LINES_MAX + 1);
    assert!(many.len() < ALLOWLIST_BYTES_MAX);
    assert_eq!(upload(&house, &many).await.refusal(), (413, "too_large".into()));
    assert_eq!(upload(&house, "").await.json()["lines"], 0);
    let open = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    assert_eq!(upload(&open.start("p1"), "code-1,a@b").await.refusal(), (409, "no_allowlist".into()));
    drop(site);
}

#[tokio::test]
async fn a_browser_without_scripts_enters_by_its_code_and_is_told_calmly_what_to_check() {
    let (_site, house) = opened(Backend::Sqlite).await;
    upload(&house, "code-1,ann@x.org\n").await;
    let page = house.get("/sale/phone-drop", &[BROWSER]).await.text;
    for part in ["<label for=\"code\">", "<label for=\"email\">", "autocomplete=\"email\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("role=\"alert\""));
    let wrong = house.post_form(ENTER, "code=secret-code&email=me%40x.org", &[BROWSER]).await;
    assert_eq!((wrong.status, wrong.header("cache-control")), (StatusCode::FORBIDDEN, "private, no-store"));
    assert!(wrong.header("content-type").starts_with("text/html"));
    assert!(
        wrong.text.contains("role=\"alert\"") && wrong.text.contains("action=\"/sale/phone-drop/enter\"")
    );
    assert!(!wrong.text.contains("secret-code") && !wrong.text.contains("me@x.org"), "{}", wrong.text);
    assert!(wrong.headers.get("set-cookie").is_none());
    let entered = house.post_form(ENTER, "code=code-1&email=Ann%40X.org", &[BROWSER]).await;
    assert_eq!(
        (entered.status, entered.header("location")),
        (StatusCode::SEE_OTHER, "/sale/phone-drop/queue")
    );
    let program = house.post_form(ENTER, "code=nope-1&email=a%40b", &[]).await;
    assert_eq!(program.refusal(), (403, "not_eligible".into()), "c1: a program gets a problem");
}

#[tokio::test]
async fn p4_a_sale_with_codes_keeps_its_lanes_and_its_rule() {
    let (_site, house) = opened(Backend::Sqlite).await;
    upload(&house, "code-1,ann@x.org\n").await;
    let read = house.operate("GET", "", &json!({})).await.json();
    let bearer = format!("Bearer {OPERATOR}");
    for (key, value) in [("lanes", json!(8)), ("entry", json!("open"))] {
        let mut changed = read.clone();
        changed[key] = value;
        let headers = [("authorization", bearer.as_str()), ("if-match", "\"1\"")];
        let refused = house.call("PUT", "/operator/v1/sales/phone-drop", &changed, &headers).await;
        assert_eq!(refused.refusal(), (422, "invalid_sale".into()));
        assert_eq!(refused.json()["problems"][0]["key"], key);
    }
    eventually("the code still opens its place", 5, async || {
        enter(&house, "code-1", "ann@x.org").await.status.is_success()
    })
    .await;
}
