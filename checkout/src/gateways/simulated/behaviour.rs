//! How the simulated gateway misbehaves, set while it runs.

use lockgate_shared::problem::Problem;
use serde::{Deserialize, Deserializer, Serialize};

/// Longest latency that can be set. More than a handler may take would only test the time limit.
const LATENCY_MS_MAX: u64 = 15_000;
/// Longest delay of webhooks that can be set: one day.
const WEBHOOK_DELAY_MS_MAX: u64 = 86_400_000;
/// Most further copies of each webhook.
const DUPLICATES_MAX: u32 = 100;

/// The knobs. What a request leaves out is as it is in a gateway that behaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// Time every call of the API and every payment takes.
    pub latency_ms: u64,
    /// Share of API calls that fail: half of them before they took effect, half after (a lost answer).
    pub failure_share: f64,
    /// Further copies of each webhook; `true` means one.
    #[serde(deserialize_with = "number_or_flag")]
    pub duplicate_webhooks: u32,
    /// Time between a payment and its webhook.
    pub webhook_delay_ms: u64,
    /// Whether the buyer's return to the shop is lost.
    pub drop_callback: bool,
    /// Whether a payment that was made unpayable can be paid all the same, as money that was on its way arrives late.
    pub late_success: bool,
    /// Whether every answer to a refund is lost, after the money went back.
    pub lose_refund_answers: bool,
}

fn number_or_flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Flag(bool),
        Number(u32),
    }
    Ok(match Given::deserialize(deserializer)? {
        Given::Flag(flag) => u32::from(flag),
        Given::Number(number) => number,
    })
}

impl Behaviour {
    /// Refuses values out of bounds.
    ///
    /// # Errors
    /// 400 `malformed` naming the knob.
    pub fn check(&self) -> Result<(), Problem> {
        let bounds = [
            ("latency_ms", self.latency_ms <= LATENCY_MS_MAX, "0 to 15000"),
            ("failure_share", (0.0..=1.0).contains(&self.failure_share), "0 to 1"),
            ("duplicate_webhooks", self.duplicate_webhooks <= DUPLICATES_MAX, "0 to 100"),
            ("webhook_delay_ms", self.webhook_delay_ms <= WEBHOOK_DELAY_MS_MAX, "0 to 86400000"),
        ];
        match bounds.iter().find(|(_, fits, _)| !fits) {
            None => Ok(()),
            Some((name, _, range)) => Err(Problem::malformed(format!("{name} must be {range}."))),
        }
    }

    /// Whether a call fails, and whether after it took effect; `dice` is uniform in 0..1.
    pub(crate) fn failure(&self, dice: f64) -> Option<Fault> {
        if dice >= self.failure_share {
            None
        } else if dice < self.failure_share / 2.0 {
            Some(Fault::Before)
        } else {
            Some(Fault::After)
        }
    }
}

/// When a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Before,
    After,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_bounded_and_named() {
        let read = |text: &str| serde_json::from_str::<Behaviour>(text).map_err(|e| e.to_string());
        assert_eq!(read("{}").unwrap(), Behaviour::default());
        assert_eq!(read(r#"{"duplicate_webhooks":true}"#).unwrap().duplicate_webhooks, 1);
        assert_eq!(read(r#"{"duplicate_webhooks":5}"#).unwrap().duplicate_webhooks, 5);
        for bad in [r#"{"latency":1}"#, r#"{"latency_ms":-1}"#, r#"{"failure_share":"a"}"#, "[]x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for bad in [
            r#"{"latency_ms":99999}"#,
            r#"{"failure_share":1.5}"#,
            r#"{"duplicate_webhooks":101}"#,
            r#"{"webhook_delay_ms":86400001}"#,
        ] {
            assert!(read(bad).unwrap().check().is_err(), "{bad}");
        }
    }

    #[test]
    fn failures_are_split_evenly() {
        let knobs = Behaviour { failure_share: 0.4, ..Behaviour::default() };
        assert_eq!(knobs.failure(0.1), Some(Fault::Before));
        assert_eq!(knobs.failure(0.3), Some(Fault::After));
        assert_eq!(knobs.failure(0.4), None);
        assert_eq!(Behaviour::default().failure(0.0), None);
    }
}
