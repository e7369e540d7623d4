//! What is counted and timed.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{answer::Answer, connection::Fault, shopper::Step};

/// Calls, timed apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `POST enter`.
    Enter,
    /// `GET status` with a ticket.
    PersonalStatus,
    /// `GET status` without.
    PublicStatus,
    /// `POST admit`.
    Admit,
    /// `POST leave`.
    Leave,
    /// Checking out and paying.
    Buy,
    /// What is no proper request.
    Garbage,
    /// `POST checkout` that was answered with units.
    Claim,
    /// `POST checkout` that was answered otherwise.
    ClaimRefused,
    /// `POST pay`.
    Pay,
    /// Paying on the gateway's page.
    Gateway,
    /// The return from the gateway.
    Callback,
    /// `GET` of an order.
    Order,
}

impl From<Step> for Kind {
    fn from(step: Step) -> Self {
        match step {
            Step::Garbage(_) => Self::Garbage,
            Step::Enter | Step::EnterByTicket | Step::EnterByKey => Self::Enter,
            Step::Status | Step::LastStatus => Self::PersonalStatus,
            Step::Admit | Step::AdmitAgain | Step::AdmitAfterLeaving => Self::Admit,
            Step::Leave => Self::Leave,
            Step::Claim | Step::Pay | Step::PayAtGateway | Step::Order => Self::Buy,
        }
    }
}

/// Everything counted in a run.
#[derive(Default)]
pub struct Figures {
    calls: BTreeMap<Kind, Calls>,
    /// How much later than due calls were sent: what the crowd itself, or its few connections, could not keep up with.
    late: Option<Histogram<u64>>,
    /// Calls made.
    pub total: u64,
}

#[derive(Default)]
struct Calls {
    took: Option<Histogram<u64>>,
    statuses: BTreeMap<u16, u64>,
    faults: BTreeMap<Fault, u64>,
}

/// One kind of call in the report.
#[derive(Debug, Serialize)]
pub struct CallFigures {
    /// The kind.
    pub call: Kind,
    /// Answers, by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Calls without an answer, by reason.
    pub faults: BTreeMap<String, u64>,
    /// From sending to the whole answer.
    pub took_ms: Spread,
}

/// A distribution in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Half were at most this.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

/// Longest time a histogram tells apart, in microseconds.
const MICROS_MAX: u64 = 3_600_000_000;

fn record(histogram: &mut Option<Histogram<u64>>, micros: u64) {
    if histogram.is_none() {
        *histogram = Histogram::new_with_bounds(1, MICROS_MAX, 2).ok();
    }
    if let Some(histogram) = histogram {
        histogram.saturating_record(micros.max(1));
    }
}

fn spread(histogram: Option<&Histogram<u64>>) -> Spread {
    let Some(histogram) = histogram else { return Spread::default() };
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    Spread {
        count: histogram.len(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / 1_000.0,
    }
}

impl Figures {
    /// Notes one call.
    pub fn note(&mut self, kind: Kind, answer: &Result<Answer, Fault>, took: Duration) {
        self.total += 1;
        let calls = self.calls.entry(kind).or_default();
        match answer {
            Ok(answer) => {
                *calls.statuses.entry(answer.status).or_default() += 1;
                record(&mut calls.took, u64::try_from(took.as_micros()).unwrap_or(MICROS_MAX));
            }
            Err(fault) => *calls.faults.entry(*fault).or_default() += 1,
        }
    }

    /// Notes how much later than due a call was sent.
    pub fn note_late(&mut self, late_ms: u64) {
        record(&mut self.late, late_ms.saturating_mul(1_000));
    }

    /// How much later than due calls were sent.
    #[must_use]
    pub fn late(&self) -> Spread {
        spread(self.late.as_ref())
    }

    /// Calls by kind.
    #[must_use]
    pub fn calls(&self) -> Vec<CallFigures> {
        let one = |(kind, calls): (&Kind, &Calls)| CallFigures {
            call: *kind,
            statuses: calls.statuses.clone(),
            faults: calls.faults.iter().map(|(fault, count)| (format!("{fault:?}"), *count)).collect(),
            took_ms: spread(calls.took.as_ref()),
        };
        self.calls.iter().map(one).collect()
    }
}
