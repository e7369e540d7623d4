//! Pages for people, and what caches may keep.

use http::StatusCode;
use lockgate_shared::testing::eventually;

use crate::house::{Answer, Backend, House, Site, before_opening, sale, sale_for_customers};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn opened() -> (Site, House) {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

/// The cookie an answer sets, as a browser sends it back.
fn cookie(answer: &Answer) -> String {
    let line = answer.header("set-cookie");
    assert!(
        line.ends_with(|c: char| c.is_ascii_digit())
            && line.contains("; HttpOnly;")
            && line.contains("; Secure;")
    );
    line.split(';').next().unwrap().to_owned()
}

/// Checks that an answer sends the browser to this page.
fn leads_to(answer: &Answer, path: &str) {
    let given = (answer.status, answer.header("location"));
    assert_eq!(given, (StatusCode::SEE_OTHER, path));
}

#[tokio::test]
async fn k1_a_browser_without_scripts_walks_from_the_sale_to_the_checkout() {
    let (site, house) = opened().await;
    let sale_page = house.get("/sale/phone-drop", &[BROWSER]).await;
    assert!(sale_page.text.contains("action=\"/sale/phone-drop/enter\""), "{}", sale_page.text);
    let entered = house.post_form("/sale/phone-drop/enter", "", &[BROWSER]).await;
    leads_to(&entered, "/sale/phone-drop/queue");
    let ticket = cookie(&entered);
    assert!(ticket.starts_with("__Host-lockgate-ticket-phone-drop="));
    let queue = async || house.get("/sale/phone-drop/queue", &[BROWSER, ("cookie", &ticket)]).await;
    eventually("a number on the page", 5, async || queue().await.text.contains("Your number<br>")).await;
    let page = queue().await;
    assert_eq!(page.header("cache-control"), "private, no-store");
    assert!(page.text.contains("http-equiv=\"refresh\"") && page.text.contains("aria-live=\"polite\""));
    let json =
        house.get("/sale/phone-drop/queue", &[("accept", "application/json"), ("cookie", &ticket)]).await;
    assert_eq!((json.json()["state"].as_str(), json.json()["number"].as_u64()), (Some("waiting"), Some(1)));
    let again = house.post_form("/sale/phone-drop/enter", "", &[BROWSER, ("cookie", &ticket)]).await;
    assert_eq!(again.status, StatusCode::SEE_OTHER);
    let same = house.get("/sale/phone-drop/queue", &[("cookie", &cookie(&again))]).await;
    assert_eq!(same.json()["number"], 1, "the same place");
    let early = house.post_form("/sale/phone-drop/admit", "", &[BROWSER, ("cookie", &ticket)]).await;
    leads_to(&early, "/sale/phone-drop/queue");

    site.set_after_opening(0);
    eventually("the turn on the page", 5, async || queue().await.text.contains("It is your turn.")).await;
    let admitted = house.post_form("/sale/phone-drop/admit", "", &[BROWSER, ("cookie", &ticket)]).await;
    leads_to(&admitted, "/sale/phone-drop/checkout");
    assert!(cookie(&admitted).starts_with("__Host-lockgate-token-phone-drop="));
    assert!(queue().await.text.contains("You are in."));
    let left = house.post_form("/sale/phone-drop/leave", "", &[BROWSER, ("cookie", &ticket)]).await;
    leads_to(&left, "/sale/phone-drop");
    assert!(queue().await.text.contains("You have left the line."));
}

#[tokio::test]
async fn k3_a_browser_that_keeps_no_cookie_is_told() {
    let (_site, house) = opened().await;
    let page = house.get("/sale/phone-drop/queue", &[BROWSER]).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("holds no place"), "{}", page.text);
    let json = house.get("/sale/phone-drop/queue", &[]).await;
    assert_eq!(json.refusal(), (403, "ticket_missing".into()));
    let foreign =
        house.get("/sale/phone-drop/queue", &[("cookie", "__Host-lockgate-ticket-phone-drop=x")]).await;
    assert_eq!(foreign.refusal(), (403, "ticket_invalid".into()));
    let anew = house
        .post_form("/sale/phone-drop/enter", "", &[("cookie", "__Host-lockgate-ticket-phone-drop=x")])
        .await;
    assert_eq!(
        anew.status,
        StatusCode::SEE_OTHER,
        "a dead cookie, which nobody can take away, is no obstacle"
    );
}

#[tokio::test]
async fn what_everyone_sees_is_the_same_bytes_and_sets_no_cookie() {
    let (_site, house) = opened().await;
    let mine = house.enter().await;
    let cookie = format!("__Host-lockgate-ticket-phone-drop={mine}");
    for path in ["/", "/sale/phone-drop", "/sale/phone-drop/status"] {
        for accept in ["text/html", "application/json"] {
            let plain = house.get(path, &[("accept", accept)]).await;
            let with_cookie = house.get(path, &[("accept", accept), ("cookie", &cookie)]).await;
            assert_eq!(plain.status, StatusCode::OK, "{path}");
            assert!(plain.header("cache-control").starts_with("public, max-age="), "{path}");
            assert!(with_cookie.headers.get("set-cookie").is_none(), "{path}");
            assert!(!plain.header("vary").is_empty());
            if path != "/sale/phone-drop/status" || plain.header("etag") == with_cookie.header("etag") {
                assert_eq!(with_cookie.text, plain.text, "{path}");
            }
        }
    }
    let personal = house.with_ticket("status", &mine).await;
    assert_eq!(
        (personal.header("vary"), personal.header("cache-control")),
        ("Authorization", "private, no-store")
    );
}

#[tokio::test]
async fn the_public_status_has_its_members_its_tag_and_its_304() {
    let (_site, house) = opened().await;
    let ticket = house.enter().await;
    house.until_state(&ticket, "waiting").await;
    let status = house.get("/sale/phone-drop/status", &[]).await;
    assert_eq!(
        (status.header("cache-control"), status.header("vary")),
        ("public, max-age=1", "Authorization, Accept-Encoding")
    );
    let body = status.json();
    let members: Vec<&String> = body.as_object().unwrap().keys().collect();
    let expected = [
        "admissions_per_minute",
        "closes_at",
        "doors_open_at",
        "items",
        "now_serving",
        "opens_at",
        "phase",
        "poll_after_ms",
        "queueing_method",
        "sale",
        "server_time",
        "snapshot",
        "waiting",
    ];
    assert_eq!(members, expected);
    assert_eq!((body["phase"].as_str(), body["waiting"].as_u64()), (Some("doors_open"), Some(1)));
    assert_eq!(body["items"][0], serde_json::json!({"item": "phone-black", "state": "available"}));
    for tag in [status.header("etag").to_owned(), format!("\"x\", W/{}", status.header("etag"))] {
        let again = house.get("/sale/phone-drop/status", &[("if-none-match", &tag)]).await;
        assert_eq!((again.status, again.text.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(again.header("etag"), status.header("etag"));
    }
    let other = house.get("/sale/phone-drop/status", &[("if-none-match", "\"x\"")]).await;
    assert_eq!(other.status, StatusCode::OK);
}

#[tokio::test]
async fn a_sale_for_customers_asks_for_their_pass() {
    let site = Site::open(Backend::Sqlite, sale_for_customers(), before_opening()).await;
    let house = site.start("p1");
    let page = house.get("/sale/phone-drop", &[BROWSER]).await;
    assert!(page.text.contains("name=\"eligibility\""));
    let refused = house.post_form("/sale/phone-drop/enter", "eligibility=x.y.z", &[BROWSER]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.text.contains("role=\"alert\"") && refused.text.contains("name=\"eligibility\""));
    assert!(refused.text.contains("not_eligible") && refused.header("content-type").starts_with("text/html"));
}
