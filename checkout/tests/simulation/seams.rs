//! What goes wrong between two parts. Every wrapper does the real thing, or does not, or does it and says otherwise.

use std::sync::Arc;

use lockgate_shared::store::StoreError;
use tokio::time::sleep;

use crate::world::{Fault, Seam, World};

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It was not done.
    Refused,
    /// It may have been done, or may yet be.
    Lost,
}

/// Takes one call over `seam`: there, done, and back, with what the weather makes of it.
pub async fn over<T, F>(
    world: &Arc<World>,
    seam: Seam,
    what: &str,
    call: impl Fn() -> F + Send + 'static,
) -> Result<T, Cut>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let fault = world.fault(seam);
    if fault != Fault::None {
        world.note(format!("{seam:?} {what}: {fault:?}"));
    }
    sleep(world.way(seam)).await;
    let answer = match fault {
        Fault::Refused => Err(Cut::Refused),
        Fault::Late => {
            let pause = world.between_ms(1, 3_000);
            tokio::spawn(async move {
                sleep(pause).await;
                call().await;
            });
            Err(Cut::Lost)
        }
        Fault::Lost => {
            call().await;
            Err(Cut::Lost)
        }
        Fault::Twice => {
            let answer = call().await;
            let pause = world.between_ms(1, 3_000);
            tokio::spawn(async move {
                sleep(pause).await;
                call().await;
            });
            Ok(answer)
        }
        Fault::None => Ok(call().await),
    };
    sleep(world.way(seam)).await;
    answer
}

/// Verbs that change nothing, after which nothing needs to be held against the rules.
pub const READS: [&str; 10] =
    ["stock", "hold", "generation", "restocks", "holds", "order", "order_of", "orders", "unsettled", "books"];

/// The error of a store whose call was cut.
pub fn broken(verb: &'static str, cut: Cut) -> StoreError {
    match cut {
        Cut::Refused => StoreError::untouched(verb, "the simulation refused it"),
        Cut::Lost => StoreError::unknown(verb, "the simulation lost the answer"),
    }
}
