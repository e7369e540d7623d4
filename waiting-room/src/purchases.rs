//! Who has bought is no longer active, and whoever let too many holds run out has used up the right to claim: the
//! gate's events, read by a group of the waiting room's own.
//!
//! Each event comes at least once, and concluding twice does no harm. An account whose lane does not answer is left
//! out: its right runs out by itself, and the other lanes must not wait for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockgate_shared::{
    catalog::StoredSale,
    clock::Timestamp,
    events::{Batch, EventKind, WAITING_ROOM_GROUP},
    ids::{AccountHash, SaleId},
    limits::EVENT_BATCH_MAX,
    store::StoreError,
};
use tokio::time::sleep;

use crate::{
    app::{App, lane_of},
    phase::{Phase, phase},
    store::{Forfeit, WhichRight},
};

/// The group under which the waiting room reads the event log.
pub const GROUP: &str = WAITING_ROOM_GROUP;
/// Pause after a read that brought nothing: a place that is freed counts with the admitter's next step.
const PAUSE: Duration = Duration::from_millis(100);
/// The same for a sale that admits nobody.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the log could not be read.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Follows the events of one sale for ever.
pub(crate) async fn follow(app: Arc<App>, id: SaleId) {
    let mut is_lost = false;
    loop {
        let Ok(sale) = app.sale(&id) else {
            sleep(IDLE_PAUSE).await;
            continue;
        };
        let pause = match take_batch(&app, &sale).await {
            // Whoever leads looks often; the others only so that nothing is left when it stops.
            Ok(0) if is_open(&app, &sale) && app.live(&sale).figures().leads => PAUSE,
            Ok(0) => IDLE_PAUSE,
            Ok(_) => Duration::ZERO,
            Err(error) => {
                if !is_lost {
                    tracing::warn!(sale = %id, %error, "purchases cannot be followed; places of buyers are freed later");
                }
                is_lost = true;
                sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        is_lost = false;
        sleep(pause).await;
    }
}

/// Whether people may be buying, as far as that can be told without the stock: what is sold out may return.
fn is_open(app: &App, sale: &Arc<StoredSale>) -> bool {
    let is_drawn = app.live(sale).snapshot().record.is_drawn();
    phase(&sale.definition, &sale.controls, None, is_drawn, app.parts.clock.now()) == Phase::Open
}

/// Takes one batch in and answers how many events it had.
async fn take_batch(app: &App, sale: &StoredSale) -> Result<usize, StoreError> {
    let id = &sale.definition.id;
    let batch = app.parts.events.read(id, GROUP, &app.parts.process_id, EVENT_BATCH_MAX).await?;
    let ids: Vec<String> = batch
        .events
        .iter()
        .map(|event| event.id.clone())
        .chain(batch.poison.iter().map(|poison| poison.id.clone()))
        .collect();
    for (lane, accounts) in buyers(sale, &batch) {
        if let Err(error) = app.parts.store.conclude(id, lane, &accounts).await {
            tracing::debug!(sale = %id, lane, %error, "buyers of a lane stay active until their rights run out");
        }
    }
    for (lane, forfeits) in forfeits(sale, &batch) {
        if let Err(error) = app.parts.store.forfeit(id, lane, &forfeits).await {
            tracing::debug!(sale = %id, lane, %error, "rights of a lane that are used up stand until they run out");
        }
    }
    app.parts.events.acknowledge(id, GROUP, &ids).await?;
    Ok(ids.len())
}

/// The accounts that have bought, by lane.
fn buyers(sale: &StoredSale, batch: &Batch) -> BTreeMap<u16, Vec<AccountHash>> {
    let mut lanes: BTreeMap<u16, Vec<AccountHash>> = BTreeMap::new();
    for event in batch.events.iter().filter(|event| event.kind == EventKind::Committed) {
        let lane = lane_of(&sale.secrets.lane_key, event.account, sale.definition.lanes);
        lanes.entry(lane).or_default().push(event.account);
    }
    lanes
}

/// The rights that are used up by holds that ran out, by lane.
fn forfeits(sale: &StoredSale, batch: &Batch) -> BTreeMap<u16, Vec<Forfeit>> {
    let mut lanes: BTreeMap<u16, Vec<Forfeit>> = BTreeMap::new();
    let Some(limit) = sale.definition.abandoned_holds_limit else { return lanes };
    for event in &batch.events {
        if let Some(abandoned) = event.abandoned.filter(|abandoned| abandoned.holds >= limit) {
            let lane = lane_of(&sale.secrets.lane_key, event.account, sale.definition.lanes);
            let which = WhichRight::GivenAt(Timestamp::from_seconds(abandoned.admitted_at));
            lanes.entry(lane).or_default().push(Forfeit { account: event.account, which });
        }
    }
    lanes
}
