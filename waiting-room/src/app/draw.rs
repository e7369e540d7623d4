//! **draw**: the public record, and the operator's word that lets a draw be made.

use std::{sync::Arc, time::Duration};

use lockgate_shared::{
    catalog::{ChangeError, StoredSale},
    clock::Timestamp,
    limits::BEACON_BYTES_MAX,
    sale::Beacon,
};
use tokio::time::{Instant, sleep};

use super::App;
use crate::draw::{due::beacon_of, is_lottery, record::PublicRecord};

/// Longest an operator's call waits for the draw, which is made within a second or two of what it waits for.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why there is no draw, or not yet.
#[derive(Debug, thiserror::Error)]
pub enum DrawRefusal {
    /// The sale is first come, first served.
    #[error("the sale has no lottery")]
    NoLottery,
    /// The draw is made at the opening, not before.
    #[error("the draw is made at {0}, not before")]
    NotOpen(Timestamp),
    /// The sale ended without a draw.
    #[error("the sale is over")]
    Closed,
    /// A beacon was given to a draw that is made without one.
    #[error("the draw is made without a beacon")]
    BeaconRefused,
    /// No beacon was given to a draw that needs one.
    #[error("the draw needs a beacon")]
    BeaconMissing,
    /// The beacon is no text that can be published.
    #[error("the beacon is empty, longer than {BEACON_BYTES_MAX} bytes, or holds control characters")]
    BeaconUnfit,
    /// The pools are not frozen yet: a beacon known before would be none.
    #[error("the pools are not frozen yet")]
    NotFrozen,
    /// Another beacon was given before.
    #[error("another beacon was given before")]
    BeaconGiven,
    /// The beacon could not be stored.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl App {
    /// The public record of a sale's draw, as far as it has come.
    ///
    /// # Errors
    /// The sale has no lottery.
    pub fn draw_record(&self, sale: &Arc<StoredSale>) -> Result<PublicRecord, DrawRefusal> {
        if !is_lottery(&sale.definition) {
            return Err(DrawRefusal::NoLottery);
        }
        let snapshot = self.live(sale).snapshot();
        Ok(PublicRecord::new(sale, snapshot.record.draw.as_ref()))
    }

    /// **draw**: gives the beacon, where the sale needs one, and waits a moment for the draw. Asking again is free.
    ///
    /// # Errors
    /// Why it cannot be made, or not yet.
    pub async fn draw(
        &self,
        sale: &Arc<StoredSale>,
        beacon: Option<String>,
    ) -> Result<PublicRecord, DrawRefusal> {
        let record = self.draw_record(sale)?;
        let now = self.parts.clock.now();
        let definition = &sale.definition;
        match (beacon_of(definition), &beacon) {
            (Beacon::None, Some(_)) => return Err(DrawRefusal::BeaconRefused),
            (Beacon::Operator, Some(beacon)) if !is_fit(beacon) => return Err(DrawRefusal::BeaconUnfit),
            _ => {}
        }
        if !record.drawn {
            if sale.controls.closed || now >= definition.closes_at {
                return Err(DrawRefusal::Closed);
            }
            if now < definition.opens_at {
                return Err(DrawRefusal::NotOpen(definition.opens_at));
            }
        }
        if beacon_of(definition) == Beacon::Operator {
            self.give_beacon(sale, beacon, record.pools.is_some()).await?;
        }
        let until = Instant::now() + WAIT_MAX;
        loop {
            let record = self.draw_record(sale)?;
            if record.drawn || Instant::now() >= until {
                return Ok(record);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn give_beacon(
        &self,
        sale: &StoredSale,
        beacon: Option<String>,
        is_frozen: bool,
    ) -> Result<(), DrawRefusal> {
        match (&sale.controls.beacon, beacon) {
            (None, None) => Err(DrawRefusal::BeaconMissing),
            (Some(_), None) => Ok(()),
            (Some(given), Some(beacon)) if *given == beacon => Ok(()),
            (Some(_), Some(_)) => Err(DrawRefusal::BeaconGiven),
            (None, Some(_)) if !is_frozen => Err(DrawRefusal::NotFrozen),
            (None, Some(beacon)) => {
                let give = |sale: &mut StoredSale| {
                    sale.controls.beacon.get_or_insert_with(|| beacon.clone());
                };
                // Two operators at once: the first beacon stands, and the second operator is told.
                let sale = self.parts.catalog.change(&sale.definition.id, give).await?;
                let stands = sale.controls.beacon.as_deref() == Some(beacon.as_str());
                if stands { Ok(()) } else { Err(DrawRefusal::BeaconGiven) }
            }
        }
    }
}

/// Whether everybody can read the beacon and type it again.
fn is_fit(beacon: &str) -> bool {
    !beacon.is_empty() && beacon.len() <= BEACON_BYTES_MAX && !beacon.chars().any(char::is_control)
}
