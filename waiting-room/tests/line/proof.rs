//! Proof of work: asked for, solved, used once, changed while the sale goes on.

use http::StatusCode;
use lockgate_shared::{
    proof_of_work::Challenge,
    sale::{ProofOfWork, ProofWhen, SaleDefinition},
};
use serde_json::{Value, json};

use crate::house::{Answer, Backend, House, Site, before_opening, eligibility, sale, sale_for_customers};

const ENTER: &str = "/sale/phone-drop/enter";
const CHALLENGE: &str = "/sale/phone-drop/challenge";

fn with_proof(mut sale: SaleDefinition, when: ProofWhen) -> SaleDefinition {
    sale.proof_of_work = Some(ProofOfWork { difficulty: 500, when });
    sale
}

/// Takes a challenge and does the work.
async fn work(house: &House) -> String {
    let answer = house.get(CHALLENGE, &[]).await;
    assert_eq!((answer.status, answer.header("cache-control")), (StatusCode::OK, "private, no-store"));
    solve(answer.json())
}

fn solve(challenge: Value) -> String {
    serde_json::from_value::<Challenge>(challenge).unwrap().solve(|| true).unwrap()
}

async fn enter(house: &House, proof: &str, headers: &[(&str, &str)]) -> Answer {
    house.post_json(ENTER, &json!({ "proof": proof }), headers).await
}

fn refused(answer: &Answer) -> String {
    assert_eq!(answer.refusal(), (403, "proof_required".into()), "{answer:?}");
    answer.json()["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn who_does_the_work_enters_and_each_proof_counts_once() {
    for backend in [Backend::Sqlite, Backend::Redis] {
        let site = Site::open(backend, with_proof(sale(), ProofWhen::Always), before_opening()).await;
        let house = site.start("p1");
        let before = house.calls();
        let without = house.post_json(ENTER, &json!({}), &[]).await;
        assert!(refused(&without).contains("this sale asks for one"));
        assert!(refused(&enter(&house, "bm9uc2Vuc2U=", &[]).await).contains("no proof of work"));
        assert_eq!(house.calls(), before, "refusing costs no store call");

        // The challenge that comes with the refusal is as good as one that was asked for.
        let proof = solve(without.json()["challenge"].clone());
        let entered = enter(&house, &proof, &[]).await;
        assert_eq!((entered.status, house.calls() - before), (StatusCode::CREATED, 2));
        assert!(refused(&enter(&house, &proof, &[]).await).contains("used before"), "replayed");

        // A lost answer is asked for again under its key, with the same work.
        let key = [("idempotency-key", "a-key-of-at-least-16")];
        let proof = work(&house).await;
        let first = enter(&house, &proof, &key).await;
        let again = enter(&house, &proof, &key).await;
        assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
        let other = [("idempotency-key", "another-key-of-that-length")];
        refused(&enter(&house, &proof, &other).await);

        let ticket = entered.json()["ticket"].as_str().unwrap().to_owned();
        let own = house.with_ticket("enter", &ticket).await;
        assert_eq!(own.status, StatusCode::OK, "a ticket has paid for its place");
    }
}

#[tokio::test]
async fn proofs_that_are_foreign_forged_or_late_are_refused_with_the_reason() {
    let site = Site::open(Backend::Sqlite, with_proof(sale(), ProofWhen::Always), before_opening()).await;
    let house = site.start("p1");
    let random = [7; 32];
    let issue = |sale: &str, ring| {
        use lockgate_shared::clock::Clock as _;
        Challenge::issue(&sale.parse().unwrap(), 500, random, site.clock.now(), ring).solve(|| true).unwrap()
    };
    let foreign = issue("other-sale", &site.ring);
    assert!(refused(&enter(&house, &foreign, &[]).await).contains("another sale"));
    let strange = lockgate_shared::keys::KeyFile {
        keys: vec![lockgate_shared::keys::KeyEntry {
            state: lockgate_shared::keys::KeyState::Active,
            ..lockgate_shared::keys::KeyFile::new_key("strange", std::array::from_fn(|n| n as u8 * 7))
        }],
    };
    let strange = lockgate_shared::keys::KeyRing::new(&strange, "strange").unwrap();
    assert!(refused(&enter(&house, &issue("phone-drop", &strange), &[]).await).contains("not given here"));
    let late = work(&house).await;
    site.clock.advance_ms(300_000);
    assert!(refused(&enter(&house, &late, &[]).await).contains("run out"));
}

#[tokio::test]
async fn work_is_asked_for_besides_the_shops_word_and_one_proof_serves_one_customer() {
    let customers = with_proof(sale_for_customers(), ProofWhen::Always);
    let site = Site::open(Backend::Redis, customers, before_opening()).await;
    let house = site.start("p1");
    let word = |name: &str| eligibility(name, before_opening().seconds() + 600);
    let proof = work(&house).await;
    let body = |name: &str, proof: &str| json!({ "eligibility": word(name), "proof": proof });
    refused(&house.post_json(ENTER, &json!({ "eligibility": word("ann") }), &[]).await);
    let entered = house.post_json(ENTER, &body("ann", &proof), &[]).await;
    assert_eq!(entered.status, StatusCode::CREATED);
    refused(&house.post_json(ENTER, &body("ben", &proof), &[]).await);
    let again = house.post_json(ENTER, &body("ann", &proof), &[]).await;
    assert_eq!(again.status, StatusCode::OK, "k1: the same customer again has the same place");
}

#[tokio::test]
async fn operators_ask_for_more_or_for_none_while_the_sale_goes_on() {
    let site = Site::open(Backend::Sqlite, sale(), before_opening()).await;
    let house = site.start("p1");
    let page = async || house.get("/sale/phone-drop", &[("accept", "text/html")]).await.text;
    assert!(!page().await.contains("/assets/enter.js"));

    let harder = house.operate("PATCH", "/proof_of_work", &json!({ "difficulty": 3_000 })).await;
    assert_eq!(harder.status, StatusCode::OK, "{harder:?}");
    refused(&house.post_json(ENTER, &json!({}), &[]).await);
    let challenge = house.get(CHALLENGE, &[]).await.json();
    assert_eq!(challenge["parameters"]["keyPrefix"], "0", "16 tries of 187 iterations: {challenge}");
    let shown = async || page().await.contains("/assets/enter.js");
    lockgate_shared::testing::eventually("the page does the work", 5, shown).await;
    let proof = solve(challenge);

    let wrong = house.operate("PATCH", "/proof_of_work", &json!({ "difficulty": 0 })).await;
    assert_eq!(wrong.refusal(), (422, "invalid_sale".into()));
    let crowded = json!({ "difficulty": 500, "when": "crowded" });
    assert_eq!(house.operate("PATCH", "/proof_of_work", &crowded).await.status, StatusCode::OK);
    assert_eq!(house.post_json(ENTER, &json!({}), &[]).await.status, StatusCode::CREATED, "nobody crowds");

    let always = house.operate("PATCH", "/proof_of_work", &json!({ "when": "always" })).await;
    assert_eq!(always.status, StatusCode::OK);
    refused(&house.post_json(ENTER, &json!({}), &[]).await);
    let challenge = house.get(CHALLENGE, &[]).await.json();
    assert_eq!(challenge["parameters"]["cost"], 500, "what is left out stays: {challenge}");

    for unclear in [json!({ "difficulty": null, "when": "always" }), json!({ "when": null })] {
        let refusal = house.operate("PATCH", "/proof_of_work", &unclear).await.refusal();
        assert_eq!(refusal, (400, "malformed".into()), "{unclear}");
    }
    let none = house.operate("PATCH", "/proof_of_work", &json!({ "difficulty": null })).await;
    assert_eq!(none.status, StatusCode::OK);
    assert!(none.json().get("proof_of_work").is_none(), "{none:?}");
    let solved_before = enter(&house, &proof, &[]).await;
    assert_eq!(solved_before.status, StatusCode::CREATED, "whoever worked just before is not refused for it");
    let always = house.operate("PATCH", "/proof_of_work", &json!({ "when": "always" })).await;
    assert_eq!(always.json()["proof_of_work"], json!({ "difficulty": 50_000, "when": "always" }));
    refused(&house.post_json(ENTER, &json!({}), &[]).await);
}

#[tokio::test]
async fn f1_garbage_keeps_nobody_from_being_checked() {
    let site = Site::open(Backend::Sqlite, with_proof(sale(), ProofWhen::Always), before_opening()).await;
    let house = site.start("p1");
    let proof = work(&house).await;
    for _ in 0..5_000 {
        refused(&house.post_json(ENTER, &json!({ "proof": "AAAA" }), &[]).await);
    }
    assert_eq!(enter(&house, &proof, &[]).await.status, StatusCode::CREATED);
}
