//! PURE. What the door says to whoever wants to enter.

use lockgate_shared::proof_of_work::Challenge;
use serde::Deserialize;

use crate::answer::{Answer, Entered};

/// What the door says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// A place.
    In,
    /// Work comes first.
    Work(Box<Challenge>),
    /// Not now; again after so many milliseconds.
    Later(u64),
    /// No, by this code of the contract.
    No(String),
    /// Something the contract does not know.
    Wrong(String),
}

/// What comes with `proof_required`.
#[derive(Deserialize)]
struct Asked {
    challenge: Challenge,
}

impl Door {
    /// Reads an answer to entering.
    #[must_use]
    pub fn read(answer: &Answer) -> Self {
        if matches!(answer.status, 200 | 201) {
            return match answer.json::<Entered<'_>>() {
                Ok(_) => Self::In,
                Err(words) => Self::Wrong(words),
            };
        }
        let code = match answer.problem() {
            Ok(problem) => problem.code.into_owned(),
            Err(words) => return Self::Wrong(words),
        };
        match (answer.status, answer.retry_after_seconds) {
            (429 | 503, Some(seconds)) => Self::Later(u64::from(seconds) * 1_000),
            (403, _) if code == "proof_required" => match serde_json::from_slice::<Asked>(&answer.body) {
                Ok(asked) => Self::Work(Box::new(asked.challenge)),
                Err(error) => Self::Wrong(format!("proof_required without a challenge: {error}")),
            },
            (403 | 409 | 410, _) => Self::No(code),
            (status, _) => Self::Wrong(format!("{status} {code}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, header};
    use serde_json::{Value, json};

    use super::*;

    fn answer(status: u16, told: &'static str, body: &Value) -> Answer {
        let kind = if status < 400 { "application/json" } else { "application/problem+json" };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(told));
        Answer::new(status, &headers, Bytes::from(body.to_string()))
    }

    fn refused(status: u16, code: &str) -> Value {
        json!({ "status": status, "code": code, "detail": "Not so." })
    }

    #[test]
    fn every_answer_of_the_contract_is_understood() {
        let parameters = json!({
            "algorithm": "PBKDF2/SHA-256", "cost": 100, "data": { "kid": "k", "sale": "test" }, "expiresAt": 1,
            "keyLength": 32, "keyPrefix": "00", "nonce": "00", "salt": "00",
        });
        let mut asked = refused(403, "proof_required");
        asked["challenge"] = json!({ "parameters": parameters, "signature": "00" });
        let Door::Work(challenge) = Door::read(&answer(403, "1", &asked)) else { panic!("{asked}") };
        assert_eq!((challenge.parameters.cost, challenge.parameters.key_prefix.as_str()), (100, "00"));
        let status = json!({
            "sale": "test", "phase": "doors_open", "state": "entered", "snapshot": 1, "now_serving": 0,
            "poll_after_ms": 1000, "server_time": "2026-12-01T10:00:00.000Z",
        });
        assert_eq!(Door::read(&answer(201, "1", &json!({ "ticket": "t", "status": status }))), Door::In);
        assert_eq!(Door::read(&answer(503, "3", &refused(503, "overloaded"))), Door::Later(3_000));
        assert_eq!(
            Door::read(&answer(409, "1", &refused(409, "doors_closed"))),
            Door::No("doors_closed".into())
        );
    }

    #[test]
    fn what_the_contract_does_not_know_is_wrong_whatever_it_is() {
        for (status, body) in [
            (201, json!({ "ticket": "t" })),
            (403, refused(403, "proof_required")),
            (500, refused(500, "internal")),
            (418, json!([])),
            (403, refused(409, "other")),
        ] {
            assert!(matches!(Door::read(&answer(status, "1", &body)), Door::Wrong(_)), "{status} {body}");
        }
    }
}
