//! The settings of how orders are taken in.

use std::num::NonZeroU32;

use lockgate_shared::limits::{BACKLOG_MAX_EVENTS, INTAKE_WORKERS_MAX};

use super::{Setting, edge::number, put, setting};

/// Most orders a second that may be written as a pace.
const PACE_MAX: u32 = 1_000_000;

/// Settings of the intake, all of which begin with `orders.`.
pub(super) const SETTINGS: &[Setting] = &[
    setting("orders.workers", "give a number such as 2", |c, v| {
        let most = u32::try_from(INTAKE_WORKERS_MAX).unwrap_or(u32::MAX);
        put(&mut c.intake.workers, number(v, most).map(|workers| workers as usize))
    }),
    setting("orders.backlog_max", "give a number of events such as 20000", |c, v| {
        let most = u32::try_from(BACKLOG_MAX_EVENTS).unwrap_or(u32::MAX);
        put(&mut c.intake.backlog_max, number(v, most).map(u64::from))
    }),
    setting("orders.pace_per_second", "give a number of orders such as 200, or off", |c, v| {
        let pace = if v == "off" { Ok(None) } else { number(v, PACE_MAX).map(NonZeroU32::new) };
        put(&mut c.intake.pace_per_second, pace)
    }),
];
