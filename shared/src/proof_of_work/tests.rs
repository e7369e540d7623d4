use proptest::prelude::*;

use super::*;
use crate::testing::demo_ring;

const NOW: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

fn demo() -> SaleId {
    "demo".parse().unwrap()
}

fn issued(difficulty: u64) -> Challenge {
    Challenge::issue(&demo(), difficulty, [7; 32], now(), &demo_ring())
}

fn solved() -> String {
    issued(2_000).solve(|| true).unwrap()
}

/// The proof with one thing about it changed.
fn changed(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut payload = serde_json::from_slice(&STANDARD.decode(solved()).unwrap()).unwrap();
    change(&mut payload);
    STANDARD.encode(payload.to_string())
}

fn checked(text: &str) -> Result<Proof, ProofError> {
    verify(text, &demo(), now(), &demo_ring())
}

#[test]
fn work_that_was_done_is_accepted_until_the_challenge_runs_out() {
    let proof = solved();
    let accepted = checked(&proof).unwrap();
    assert_eq!((accepted.id, accepted.expires_at.seconds()), (ProofId([7; 16]), NOW + 300));
    let at = |seconds| verify(&proof, &demo(), Timestamp::from_seconds(NOW + seconds), &demo_ring());
    assert!(at(299).is_ok());
    assert_eq!(at(300), Err(ProofError::Expired));
    assert_eq!(verify(&proof, &"other".parse().unwrap(), now(), &demo_ring()), Err(ProofError::OtherSale));
}

#[test]
fn whatever_is_changed_is_refused() {
    for (path, value) in [
        ("cost", serde_json::json!(1)),
        ("keyPrefix", "".into()),
        ("expiresAt", (NOW + 9_999).into()),
        ("nonce", "00".repeat(16).into()),
        ("salt", "00".repeat(16).into()),
        ("algorithm", "SHA-256".into()),
        ("keyLength", 16.into()),
    ] {
        let forged = changed(|payload| payload["challenge"]["parameters"][path] = value);
        assert_eq!(checked(&forged), Err(ProofError::Forged), "{path}");
    }
    let forged = changed(|payload| payload["challenge"]["parameters"]["data"]["kid"] = "other".into());
    assert_eq!(checked(&forged), Err(ProofError::Forged));
    let forged = changed(|payload| payload["challenge"]["signature"] = "00".repeat(32).into());
    assert_eq!(checked(&forged), Err(ProofError::Forged));
    let wrong = changed(|payload| {
        let counter = payload["solution"]["counter"].as_u64().unwrap();
        payload["solution"]["counter"] = (counter + 1).into();
    });
    assert_eq!(checked(&wrong), Err(ProofError::Wrong));
    let wrong = changed(|payload| payload["solution"]["derivedKey"] = "00".repeat(32).into());
    assert_eq!(checked(&wrong), Err(ProofError::Wrong));
    for odd in ["", "e30=", "not base64", &STANDARD.encode("[]"), &"A".repeat(PROOF_BYTES_MAX + 4)] {
        assert_eq!(checked(odd), Err(ProofError::Malformed), "{odd}");
    }
}

#[test]
fn the_schemes_own_client_solves_our_challenges_and_accepts_our_solutions() {
    let challenge = issued(20_000);
    let json = serde_json::to_string(&challenge).unwrap();
    let theirs: altcha::Challenge = serde_json::from_str(&json).unwrap();
    let solution = altcha::solve_challenge(altcha::SolveChallengeOptions::new(&theirs)).unwrap().unwrap();
    let payload = serde_json::to_vec(&altcha::Payload { challenge: theirs, solution }).unwrap();
    assert!(checked(&STANDARD.encode(payload)).is_ok());

    let options = altcha::CreateChallengeOptions {
        cost: 20,
        hmac_signature_secret: Some("secret".into()),
        ..altcha::CreateChallengeOptions::default()
    };
    let theirs = altcha::create_challenge(options).unwrap();
    let (nonce, salt) = (unhex(&theirs.parameters.nonce).unwrap(), unhex(&theirs.parameters.salt).unwrap());
    let counter = (0..).find(|counter| has_prefix(&derived_key(nonce, salt, *counter, 20), 2)).unwrap();
    let derived_key = hex::encode(derived_key(nonce, salt, counter, 20));
    let solution = altcha::Solution { counter, derived_key, time: None };
    let options = altcha::VerifySolutionOptions::new(&theirs, &solution, "secret");
    assert!(altcha::verify_solution(options).unwrap().verified);
}

#[test]
fn solving_stops_when_told_to() {
    let mut tries = 0;
    let stopped = issued(u64::MAX >> 20).solve(|| {
        tries += 1;
        tries <= 3
    });
    assert_eq!((stopped, tries), (None, 4));
}

proptest! {
    #[test]
    fn the_work_is_what_was_asked_for_and_checking_it_stays_cheap(difficulty in 1u64..10_000_000_000) {
        let (cost, digits) = shape(difficulty);
        let work = u64::from(cost) << (4 * digits);
        prop_assert!(work <= difficulty && difficulty - work < 1 << (4 * digits));
        prop_assert!(u64::from(cost) < COST_MIN * 16);
        prop_assert!(digits == 0 || u64::from(cost) >= COST_MIN);
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in "\\PC{0,200}") {
        prop_assert!(checked(&text).is_err());
    }
}
