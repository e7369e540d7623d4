//! Entry by the shop's word, over HTTP: both algorithms, several keys, and every way in which a token lets nobody in.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use lockgate_shared::{
    clock::Clock as _,
    sale::{EligibilityAlgorithm, EligibilityKey, SaleDefinition},
};
use serde_json::{Value, json};

use crate::house::{Answer, Backend, House, SHOP_SECRET, Site, before_opening, sale_for_customers};

const ENTER: &str = "/sale/phone-drop/enter";
/// The key pair of RFC 8032, section 7.1, test 1: PKCS#8 v1 before the seed, the seed, the public key.
const PKCS8: &str = "302e020100300506032b657004220420";
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn ed_key() -> EncodingKey {
    EncodingKey::from_ed_der(&bytes(&format!("{PKCS8}{SEED}")))
}

/// A sale that two may sign for: the shop by HS256, its partner by EdDSA.
fn two_keys() -> SaleDefinition {
    let mut sale = sale_for_customers();
    sale.eligibility_keys.push(EligibilityKey {
        kid: "partner".into(),
        algorithm: EligibilityAlgorithm::EdDsa,
        secret_env: None,
        public_key: Some(URL_SAFE_NO_PAD.encode(bytes(PUBLIC))),
    });
    sale
}

fn signed(algorithm: Algorithm, kid: &str, key: &EncodingKey, claims: &Value) -> String {
    let mut header = Header::new(algorithm);
    header.kid = Some(kid.into());
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn by_shop(claims: &Value) -> String {
    signed(Algorithm::HS256, "shop-1", &EncodingKey::from_secret(&SHOP_SECRET).unwrap(), claims)
}

fn by_partner(claims: &Value) -> String {
    signed(Algorithm::EdDSA, "partner", &ed_key(), claims)
}

async fn enter(house: &House, token: &str) -> Answer {
    house.post_json(ENTER, &json!({ "eligibility": token }), &[]).await
}

#[tokio::test]
async fn both_algorithms_and_both_keys_let_the_same_account_to_one_place() {
    let site = Site::open(Backend::Redis, two_keys(), before_opening()).await;
    let house = site.start("p1");
    let exp = site.clock.now().seconds() + 60;
    let claims = |sub: &str| json!({"sub": sub, "aud": "phone-drop", "exp": exp});
    let first = enter(&house, &by_partner(&claims("ann"))).await;
    assert_eq!(first.status, StatusCode::CREATED, "{first:?}");
    let ticket = |answer: &Answer| answer.json()["ticket"].as_str().unwrap().to_owned();
    let number = house.until_numbered(&ticket(&first)).await;
    // The same token again, another one of the same account, and one by the other key: its place.
    for token in [by_partner(&claims("ann")), by_shop(&claims("ann"))] {
        let again = enter(&house, &token).await;
        assert_eq!(again.status, StatusCode::OK, "k2: a replayed token is the same place");
        assert_eq!(house.until_numbered(&ticket(&again)).await, number);
    }
    assert_eq!(enter(&house, &by_shop(&claims("bob"))).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn s2_s7_expired_foreign_and_forged_tokens_are_refused_with_their_reason() {
    let site = Site::open(Backend::Sqlite, two_keys(), before_opening()).await;
    let house = site.start("p1");
    let now = site.clock.now().seconds();
    let good = json!({"sub": "ann", "aud": "phone-drop", "exp": now + 60});
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        claims
    };
    let shop = EncodingKey::from_secret(&SHOP_SECRET).unwrap();
    let forged = EncodingKey::from_secret(b"another secret of thirty-two byt").unwrap();
    // Key confusion: the public key, which everybody knows, as an HMAC secret.
    let public = EncodingKey::from_secret(&bytes(PUBLIC)).unwrap();
    let valid = by_partner(&good);
    let (message, _) = valid.rsplit_once('.').unwrap();
    let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"partner"}"#);
    let cases = [
        ("expired", by_shop(&with("exp", json!(now)))),
        ("expired", by_partner(&with("exp", json!(now - 1)))),
        ("not_yet_valid", by_shop(&with("nbf", json!(now + 3_600)))),
        ("other_sale", by_shop(&with("aud", json!("another-drop")))),
        ("other_sale", by_partner(&with("aud", json!(["a", "b"])))),
        ("unknown_key", signed(Algorithm::HS256, "shop-2", &shop, &good)),
        ("unknown_key", signed(Algorithm::HS256, "../shop-1", &shop, &good)),
        ("bad_signature", signed(Algorithm::HS256, "shop-1", &forged, &good)),
        ("bad_signature", signed(Algorithm::HS256, "partner", &public, &good)),
        ("bad_signature", signed(Algorithm::HS256, "partner", &shop, &good)),
        ("bad_signature", signed(Algorithm::EdDSA, "shop-1", &ed_key(), &good)),
        ("bad_signature", format!("{message}.{}", URL_SAFE_NO_PAD.encode([0; 64]))),
        ("bad_signature", format!("{unsigned}.{}.", message.split('.').nth(1).unwrap())),
        ("no_account", by_shop(&with("sub", json!("")))),
        ("malformed", by_shop(&with("admin", json!(true)))),
        ("malformed", "rubbish".into()),
    ];
    let before = house.calls();
    for (reason, token) in cases {
        let refused = enter(&house, &token).await;
        assert_eq!(refused.refusal(), (403, "not_eligible".into()), "{reason}: {refused:?}");
        assert_eq!(refused.json()["reason"], reason, "{refused:?}");
        assert!(!refused.text.contains(&token), "a token is never repeated");
    }
    assert_eq!(house.post_json(ENTER, &json!({}), &[]).await.json()["reason"], "missing");
    assert_eq!(house.calls(), before, "no refusal reached the store");
    assert_eq!(enter(&house, &valid).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn s6_the_shops_word_in_an_address_is_not_read() {
    let site = Site::open(Backend::Sqlite, two_keys(), before_opening()).await;
    let house = site.start("p1");
    let token = by_shop(&json!({"sub": "ann", "aud": "phone-drop", "exp": site.clock.now().seconds() + 60}));
    let path = format!("{ENTER}?eligibility={token}");
    assert_eq!(house.post_json(&path, &json!({}), &[]).await.refusal(), (403, "not_eligible".into()));
    let page = house.get(&format!("/sale/phone-drop?eligibility={token}"), &[("accept", "text/html")]).await;
    assert!(!page.text.contains(&token));
}
