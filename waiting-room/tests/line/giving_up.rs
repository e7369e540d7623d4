//! The cap holds whatever is given up: a place is free only once its token claims nothing more.

use std::{collections::BTreeSet, sync::Mutex};

use http::StatusCode;
use lockgate_shared::{admission_token::AdmissionToken, clock::Clock as _, sale::SaleDefinition};
use serde_json::json;

use crate::house::{Answer, Backend, House, OPERATOR, Site, VIEWER, before_opening, sale};

fn capped(max_active: u64) -> SaleDefinition {
    let mut capped = sale();
    (capped.admission.max_active, capped.admission.rate_per_minute) = (Some(max_active), 600_000);
    capped
}

fn read(site: &Site, answer: &Answer) -> (String, AdmissionToken) {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let text = answer.json()["token"].as_str().unwrap().to_owned();
    let token = AdmissionToken::verify(&text, &site.ring, site.clock.now()).unwrap();
    (text, token)
}

async fn admitted(site: &Site, house: &House, ticket: &str) -> (String, AdmissionToken) {
    house.until_state(ticket, "your_turn").await;
    read(site, &house.with_ticket("admit", ticket).await)
}

async fn release(house: &House, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    house.post_json("/sale/phone-drop/release", &json!({}), &[("authorization", &bearer)]).await
}

async fn release_by_id(house: &House, token: &AdmissionToken) -> Answer {
    let bearer = format!("Bearer {OPERATOR}");
    let ids = json!({"account": token.sub.to_string(), "token_id": token.jti});
    house.post_json("/operator/v1/sales/phone-drop/release", &ids, &[("authorization", &bearer)]).await
}

async fn active(house: &House) -> u64 {
    let bearer = format!("Bearer {VIEWER}");
    let path = "/operator/v1/sales/phone-drop/admission";
    house.get(path, &[("authorization", &bearer)]).await.json()["active"].as_u64().unwrap()
}

async fn nothing_is_freed_before_the_gate_knows(backend: Backend) {
    let site = Site::open(backend, capped(1), before_opening()).await;
    let house = site.start("p1");
    let mut by_number = Vec::new();
    for _ in 0..3 {
        let ticket = house.enter().await;
        by_number.push((house.until_numbered(&ticket).await, ticket));
    }
    by_number.sort();
    let [first, second, waits]: [String; 3] =
        by_number.into_iter().map(|(_, ticket)| ticket).collect::<Vec<_>>().try_into().unwrap();
    let tickets = [first, second];
    site.set_after_opening(0);
    let (text, token) = admitted(&site, &house, &tickets[0]).await;
    site.gate.set_down(true);
    for refused in [
        house.with_ticket("leave", &tickets[0]).await,
        release(&house, &text).await,
        release_by_id(&house, &token).await,
    ] {
        assert_eq!(refused.refusal(), (503, "stock_unavailable".into()));
        assert!(refused.headers.contains_key("retry-after") && refused.text.contains("Your place is kept"));
    }
    assert_eq!(house.status(&tickets[0]).await["state"], "admitted");
    assert_eq!(house.status(&tickets[1]).await["state"], "waiting", "nothing was freed");
    // Whoever merely waits needs no gate, and costs one store call.
    let before = house.calls();
    assert_eq!(house.with_ticket("leave", &waits).await.status, StatusCode::NO_CONTENT);
    assert_eq!((house.calls() - before, site.gate.forfeited().len()), (1, 0));
    site.gate.set_down(false);
    for _ in 0..2 {
        assert_eq!(house.with_ticket("leave", &tickets[0]).await.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(site.gate.forfeited(), std::slice::from_ref(&token.jti), "told once");
    // The next one has it, and gives it back by the token; then the operator does, of the one who lines up again.
    let (text, token) = admitted(&site, &house, &tickets[1]).await;
    assert_eq!(release(&house, &text).await.status, StatusCode::NO_CONTENT);
    assert_eq!(&site.gate.forfeited()[1..], std::slice::from_ref(&token.jti));
    let again = house.with_ticket("enter", &tickets[1]).await.json()["ticket"].as_str().unwrap().to_owned();
    let (text_2, token_2) = admitted(&site, &house, &again).await;
    assert!(token_2.jti != token.jti && token_2.iat == token.iat, "within the same second");
    assert_eq!(release(&house, &text).await.status, StatusCode::NO_CONTENT, "the old one, once more");
    assert_eq!(
        read(&site, &house.with_ticket("admit", &again).await).1.jti,
        token_2.jti,
        "the new one stands"
    );
    assert_eq!(release_by_id(&house, &token_2).await.status, StatusCode::NO_CONTENT);
    assert_eq!(site.gate.forfeited().last(), Some(&token_2.jti));
    let told = site.gate.forfeited().len();
    assert_eq!(release_by_id(&house, &token).await.refusal().0, 404);
    assert_eq!(site.gate.forfeited().len(), told, "the gate hears only of admissions that were given");
    assert_eq!(release(&house, &text_2).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn nothing_is_freed_before_the_gate_knows_on_sqlite() {
    nothing_is_freed_before_the_gate_knows(Backend::Sqlite).await;
}

#[tokio::test]
async fn nothing_is_freed_before_the_gate_knows_on_redis() {
    nothing_is_freed_before_the_gate_knows(Backend::Redis).await;
}

#[tokio::test]
async fn k2_two_tabs_that_admit_and_leave_at_once_leave_no_token_behind() {
    for backend in [Backend::Sqlite, Backend::Redis] {
        let site = Site::open(backend, capped(40), before_opening()).await;
        let (house, other) = (site.start("p1"), site.start("p2"));
        let tickets = futures::future::join_all((0..40).map(|_| house.enter())).await;
        site.set_after_opening(0);
        house.until_serving(40).await;
        other.until_serving(40).await;
        let both = tickets.iter().map(|ticket| async {
            tokio::join!(house.with_ticket("admit", ticket), other.with_ticket("leave", ticket))
        });
        for (admit, leave) in futures::future::join_all(both).await {
            assert_eq!(leave.status, StatusCode::NO_CONTENT, "{leave:?}");
            if admit.status == StatusCode::OK {
                let (_, token) = read(&site, &admit);
                assert!(site.gate.forfeited().contains(&token.jti), "its place is free and it claims");
            } else {
                assert_eq!(admit.refusal(), (410, "left".into()));
            }
        }
    }
}

/// Counts the tokens that claim. It errs to the low side only: a token counts from when it was answered until the gate
/// heard of its end.
struct Claiming<'a> {
    site: &'a Site,
    given: Mutex<BTreeSet<String>>,
}

impl Claiming<'_> {
    fn give(&self, jti: &str) -> usize {
        let mut given = self.given.lock().unwrap();
        given.insert(jti.to_owned());
        let forfeited: BTreeSet<String> = self.site.gate.forfeited().into_iter().collect();
        given.difference(&forfeited).count()
    }
}

async fn no_more_claim_than_the_cap_allows(backend: Backend) {
    let site = Site::open(backend, capped(2), before_opening()).await;
    let houses = [site.start("p1"), site.start("p2")];
    let claiming = Claiming { site: &site, given: Mutex::default() };
    let tickets = futures::future::join_all((0..8).map(|_| houses[0].enter())).await;
    site.set_after_opening(0);
    let shoppers = tickets.into_iter().enumerate().map(|(n, mut ticket)| {
        let (house, other, site, claiming) = (&houses[n % 2], &houses[(n + 1) % 2], &site, &claiming);
        async move {
            for round in 0..2 {
                let (text, token) = admitted(site, house, &ticket).await;
                let claim = claiming.give(&token.jti);
                assert!(claim <= 2, "{claim} tokens claim");
                let given_up = if (n + round) % 2 == 0 {
                    other.with_ticket("leave", &ticket).await
                } else {
                    release(other, &text).await
                };
                assert_eq!(given_up.status, StatusCode::NO_CONTENT);
                if round == 0 {
                    // After the last round nobody would take the turn up, and those behind would wait for it.
                    let again = other.with_ticket("enter", &ticket).await;
                    assert_eq!(again.status, StatusCode::CREATED, "a new place");
                    again.json()["ticket"].as_str().unwrap().clone_into(&mut ticket);
                }
            }
        }
    });
    // Every place passes on, so this ends only if each end really frees one.
    futures::future::join_all(shoppers).await;
    assert_eq!(claiming.given.lock().unwrap().len(), 16, "each admission had a token of its own");
    lockgate_shared::testing::eventually("nobody is active", 5, async || active(&houses[0]).await == 0).await;
}

#[tokio::test]
async fn no_more_claim_than_the_cap_allows_on_sqlite() {
    no_more_claim_than_the_cap_allows(Backend::Sqlite).await;
}

#[tokio::test]
async fn no_more_claim_than_the_cap_allows_on_redis() {
    no_more_claim_than_the_cap_allows(Backend::Redis).await;
}
