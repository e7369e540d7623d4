//! Trouble that many meet at once is told once in a while, not once for each.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How often one kind of trouble is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// When each kind of trouble was last told, and how often it was met since.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<HashMap<&'static str, (Instant, u64)>>);

impl Troubles {
    /// Whether trouble of a kind that was met at `now` is told; then how often it was met untold before.
    pub(crate) fn meet(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.get_mut(kind) {
            Some((at, untold)) if now.saturating_duration_since(*at) < TELL_EVERY => {
                *untold += 1;
                None
            }
            known => {
                let untold = known.map_or(0, |(_, untold)| *untold);
                told.insert(kind, (now, 0));
                Some(untold)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_at_once_and_then_now_and_again_with_what_was_not_told() {
        let (troubles, start) = (Troubles::default(), Instant::now());
        let meet = |kind, seconds| troubles.meet(kind, start + Duration::from_secs(seconds));
        assert_eq!([meet("gate", 0), meet("gate", 1), meet("gate", 9)], [Some(0), None, None]);
        assert_eq!(meet("gateway", 9), Some(0));
        assert_eq!([meet("gate", 10), meet("gate", 11), meet("gate", 60)], [Some(2), None, Some(1)]);
    }
}
