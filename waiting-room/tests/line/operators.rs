//! Operators see and change sales.

use http::StatusCode;
use lockgate_shared::{sale::QueueingMethod, testing::eventually};
use serde_json::{Value, json};

use crate::house::{Backend, House, OPERATOR, Site, VIEWER, before_opening, sale, sale_for_customers};

async fn opened() -> (Site, House) {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    (site, house)
}

async fn put(house: &House, body: &Value, if_match: Option<&str>) -> crate::house::Answer {
    let bearer = format!("Bearer {OPERATOR}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(if_match.map(|tag| ("if-match", tag)));
    let path = format!("/operator/v1/sales/{}", body["id"].as_str().unwrap_or("phone-drop"));
    house.call("PUT", &path, body, &headers).await
}

#[tokio::test]
async fn keys_and_roles_are_asked_for() {
    let (_site, house) = opened().await;
    let viewer = format!("Bearer {VIEWER}");
    for path in ["", "/phone-drop"] {
        let path = format!("/operator/v1/sales{path}");
        assert_eq!(house.get(&path, &[]).await.refusal(), (401, "operator_key_missing".into()));
        assert_eq!(house.get(&path, &[("authorization", "Bearer x")]).await.refusal().0, 401);
        assert_eq!(house.get(&path, &[("authorization", &viewer)]).await.status, StatusCode::OK);
    }
    let mut acts: Vec<(&str, String)> =
        ["pause", "resume", "close", "revoke", "message", "draw", "allowlist", "release"]
            .iter()
            .map(|verb| ("POST", format!("/operator/v1/sales/phone-drop/{verb}")))
            .collect();
    acts.push(("PATCH", "/operator/v1/sales/phone-drop/admission".into()));
    acts.push(("PUT", "/operator/v1/sales/phone-drop".into()));
    for (method, path) in acts {
        assert_eq!(house.call(method, &path, &json!({}), &[]).await.refusal().0, 401, "{path}");
        let refused = house.call(method, &path, &json!({}), &[("authorization", &viewer)]).await;
        assert_eq!(refused.refusal(), (403, "role_too_low".into()), "{path}");
    }
}

#[tokio::test]
async fn a_definition_is_read_changed_and_kept_from_being_overwritten() {
    let (_site, house) = opened().await;
    let read = house.operate("GET", "", &json!({})).await;
    let (mut definition, tag) = (read.json(), read.header("etag").to_owned());
    assert_eq!(tag, "\"1\"");
    assert!(!read.text.contains("secret") && !read.text.contains("lane_key"));
    definition["name"] = "Phone drop II".into();
    assert_eq!(put(&house, &definition, None).await.refusal(), (428, "if_match_missing".into()));
    assert_eq!(put(&house, &definition, Some("1")).await.refusal(), (400, "malformed".into()));
    let changed = put(&house, &definition, Some(&tag)).await;
    assert_eq!((changed.status, changed.header("etag")), (StatusCode::OK, "\"2\""));
    definition["name"] = "Phone drop III".into();
    assert_eq!(put(&house, &definition, Some(&tag)).await.refusal(), (412, "version_mismatch".into()));
    definition["id"] = "another".into();
    let created = put(&house, &definition, None).await;
    assert_eq!((created.status, created.header("etag")), (StatusCode::CREATED, "\"1\""));
    eventually("both are listed", 3, async || {
        house.get("/", &[]).await.json()["sales"].as_array().unwrap().len() == 2
    })
    .await;
    let page = house.get("/", &[("accept", "text/html")]).await.text;
    assert!(page.contains("Phone drop II</a>") && page.contains("Phone drop III</a>"), "{page}");
    let entered = house.post_json("/sale/another/enter", &json!({}), &[]).await;
    assert_eq!(entered.status, StatusCode::CREATED, "a new sale is served at once");
}

#[tokio::test]
async fn p4_what_would_move_people_is_refused_with_its_reason() {
    let (_site, house) = opened().await;
    let read = house.operate("GET", "", &json!({})).await.json();
    let with = |field: &str, value: Value| {
        let mut definition = read.clone();
        definition[field] = value;
        definition
    };
    let refused = put(&house, &with("lanes", 8.into()), Some("\"1\"")).await;
    assert_eq!(refused.refusal(), (422, "invalid_sale".into()));
    assert_eq!(refused.json()["problems"][0]["key"], "lanes");
    let refused = put(&house, &with("queueing_method", json!("lottery")), Some("\"1\"")).await;
    assert_eq!(refused.json()["problems"][0]["key"], "queueing_method");
    for (field, value) in [
        ("queueing_method", json!("tombola")),
        ("lanes", json!(0)),
        ("opens_at", json!("yesterday")),
        ("items", json!([])),
        ("colour", json!("red")),
        ("id", json!(7)),
    ] {
        let refused = house.operate("PUT", "", &with(field, value)).await;
        assert_eq!(refused.refusal(), (422, "invalid_sale".into()), "{field}");
        assert!(!refused.json()["problems"].as_array().unwrap().is_empty(), "{field}");
    }
    let elsewhere = house.operate("PUT", "", &with("id", json!("elsewhere"))).await;
    assert_eq!(elsewhere.json()["problems"][0]["key"], "id");
    let mut keyless = serde_json::to_value(sale_for_customers()).unwrap();
    keyless["id"] = "customers".into();
    keyless["eligibility_keys"][0]["secret_env"] = "NOT_SET_ANYWHERE".into();
    let refused = put(&house, &keyless, None).await;
    assert_eq!(refused.json()["problems"][0]["key"], "eligibility_keys[0].secret_env");
    assert_eq!(house.operate("GET", "", &json!({})).await.header("etag"), "\"1\"", "nothing changed");
}

#[tokio::test]
async fn l6_no_answer_names_a_bound_that_contradicts_it() {
    let (site, house) = opened().await;
    site.set_after_opening(1);
    house.enter().await;
    let bound = async || house.operate("GET", "/admission", &json!({})).await.json()["bound_by"].clone();
    eventually("nobody is left", 10, async || bound().await == "line").await;
    for _ in 0..5 {
        let paused = house.operate("POST", "/pause", &json!({})).await.json();
        let said = paused["admission"].get("bound_by");
        assert!(said.is_none_or(|bound| bound == "pause"), "{paused}");
        eventually("the line has paused", 10, async || bound().await == "pause").await;
        let resumed = house.operate("POST", "/resume", &json!({})).await.json();
        let said = resumed["admission"].get("bound_by");
        assert!(said.is_none_or(|bound| bound != "pause"), "{resumed}");
        eventually("the line goes on", 10, async || bound().await == "line").await;
    }
}

#[tokio::test]
async fn p4_the_opening_stands_once_it_has_passed() {
    for method in [QueueingMethod::Fifo, QueueingMethod::Lottery] {
        let mut definition = sale();
        definition.queueing_method = method;
        let site = Site::open(Backend::Sqlite, definition.clone(), before_opening()).await;
        let house = site.start("p1");
        let mut later = definition.clone();
        later.opens_at = later.opens_at.plus_seconds(30);
        let later = serde_json::to_value(&later).unwrap();
        let moved = put(&house, &later, Some("\"1\"")).await;
        assert_eq!(moved.status, StatusCode::OK, "before it has come: {moved:?}");
        site.set_after_opening(31);
        eventually("it has opened", 5, async || house.board().await["phase"] != "doors_open").await;
        let refused = put(&house, &serde_json::to_value(&definition).unwrap(), Some("\"2\"")).await;
        assert_eq!(refused.refusal(), (422, "invalid_sale".into()));
        assert_eq!(refused.json()["problems"][0]["key"], "opens_at");
        let dry = "/operator/v1/sales/phone-drop?dry_run=true";
        let bearer = format!("Bearer {OPERATOR}");
        let headers = [("authorization", bearer.as_str()), ("if-match", "\"2\"")];
        let mut renamed = later.clone();
        renamed["name"] = "Renamed".into();
        let rehearsed = house.call("PUT", dry, &renamed, &headers).await;
        assert_eq!((rehearsed.status, &rehearsed.json()["name"]), (StatusCode::OK, &json!("Renamed")));
        assert_eq!(house.operate("GET", "", &json!({})).await.header("etag"), "\"2\"", "nothing was changed");
    }
}

#[tokio::test]
async fn actions_show_everywhere() {
    let (_site, house) = opened().await;
    let said = house.operate("POST", "/message", &json!({"message": " <b>Back</b> at noon "})).await;
    assert_eq!(said.json()["message"], "<b>Back</b> at noon");
    eventually("the message is shown", 3, async || house.board().await["message"] == "<b>Back</b> at noon")
        .await;
    let page = house.get("/sale/phone-drop", &[("accept", "text/html")]).await.text;
    assert!(page.contains("&#60;b&#62;Back") && !page.contains("<b>Back"), "{page}");
    house.operate("POST", "/message", &json!({"message": null})).await;
    eventually("the message is gone", 3, async || house.board().await.get("message").is_none()).await;
    let long = json!({"message": "x".repeat(501)});
    assert_eq!(house.operate("POST", "/message", &long).await.refusal(), (422, "invalid_sale".into()));
    for bad in [json!({"rate_per_minute": 0}), json!({"turn_seconds": 1}), json!({"token_seconds": 5})] {
        assert_eq!(house.operate("PATCH", "/admission", &bad).await.refusal().0, 422, "{bad}");
    }
    for bad in [
        json!({"rate": 5}),
        json!({"rate_per_minute": "5"}),
        json!([]),
        json!({"burst": null}),
        json!({"rate_per_minute": null}),
        json!({"turn_seconds": null}),
        json!({"token_seconds": null}),
    ] {
        assert_eq!(
            house.operate("PATCH", "/admission", &bad).await.refusal(),
            (400, "malformed".into()),
            "{bad}"
        );
    }
    let capped = house.operate("PATCH", "/admission", &json!({"max_active": 5})).await;
    assert_eq!(capped.json()["admission"]["max_active"], 5);
    let kept = house.operate("PATCH", "/admission", &json!({"burst": 12})).await;
    assert_eq!(kept.json()["admission"]["max_active"], 5);
    let uncapped = house.operate("PATCH", "/admission", &json!({"max_active": null})).await;
    assert_eq!(uncapped.json()["admission"]["max_active"], Value::Null);
    for bad in [json!({"max_active": 0}), json!({"max_active": 99_999_999_999_u64})] {
        assert_eq!(house.operate("PATCH", "/admission", &bad).await.refusal().0, 422, "{bad}");
    }
    assert_eq!(
        house.operate("POST", "/draw", &json!({"beacon": "x"})).await.refusal(),
        (404, "no_lottery".into())
    );
    let list =
        house.get("/operator/v1/sales", &[("authorization", &format!("Bearer {VIEWER}"))]).await.json();
    assert_eq!(
        (list["sales"][0]["paused"].as_bool(), list["sales"][0]["epoch"].as_u64()),
        (Some(false), Some(0))
    );
}

#[tokio::test]
async fn l6_a_burst_that_was_written_stays_and_one_that_was_not_follows_the_rate() {
    let (_site, house) = opened().await;
    let set = async |body: Value| house.operate("PATCH", "/admission", &body).await.json();
    let written = async || house.operate("GET", "", &json!({})).await.json()["admission"].clone();
    assert_eq!(written().await.get("burst"), None, "nobody wrote one");
    assert_eq!(set(json!({"rate_per_minute": 1_200})).await["burst"], 20);
    assert_eq!(written().await.get("burst"), None);
    // One second's worth at this rate, and written all the same.
    assert_eq!(set(json!({"burst": 20})).await["burst"], 20);
    let raised = set(json!({"rate_per_minute": 6_000})).await;
    assert_eq!((&raised["burst"], &raised["admission"]["burst"]), (&json!(20), &json!(20)));
    assert_eq!(written().await["burst"], 20);
    let refused = house.operate("PATCH", "/admission", &json!({"rate_per_minute": 60, "burst": null})).await;
    assert!(refused.text.contains("leave the field out"), "{}", refused.text);
    assert_eq!(written().await["rate_per_minute"], 6_000, "nothing changed");
}
