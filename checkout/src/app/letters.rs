//! Dead letters: records of the gate that no order could be made of, and their way back.

use lockgate_shared::{events::Event, ids::SaleId, problem::Problem};
use serde::Serialize;

use super::App;
use crate::{
    claim::intake_of_event,
    store::{DeadLetter, DeadLetters, is_of_data},
};

/// How a retry ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Retried {
    /// Records that were taken in.
    pub taken_in: u64,
    /// Records that are left.
    pub left: u64,
}

impl App {
    /// The records of a sale that no order could be made of.
    ///
    /// # Errors
    /// 503.
    pub async fn dead_letters(&self, sale: &SaleId) -> Result<DeadLetters, Problem> {
        Ok(self.store.dead_letters(sale).await?)
    }

    /// Tries to take the dead letters of a sale in again. A record that was taken in already, or whose order exists
    /// by other means, changes nothing.
    ///
    /// # Errors
    /// 503: the store broke; what was taken in until then is taken in.
    pub async fn retry_dead_letters(&self, sale: &SaleId) -> Result<Retried, Problem> {
        let mut taken_in = 0;
        for letter in self.store.dead_letters(sale).await?.letters {
            match self.take_in(sale, &letter).await? {
                None => {
                    self.store.clear(sale, &letter.event).await?;
                    taken_in += 1;
                }
                Some(problem) => {
                    let found_at = self.clock.now();
                    let letter = DeadLetter { problem, found_at, ..letter };
                    self.store.place(sale, &[], &[letter], found_at).await?;
                }
            }
        }
        Ok(Retried { taken_in, left: self.store.dead_letters(sale).await?.total })
    }

    /// Takes one record in, or says why it cannot be.
    async fn take_in(&self, sale: &SaleId, letter: &DeadLetter) -> Result<Option<String>, Problem> {
        let read = Event::of_record(&letter.event, &letter.record).map_err(|poison| poison.problem);
        let intake = match read.and_then(|event| intake_of_event(sale, &event)) {
            Ok(intake) => intake,
            Err(problem) => return Ok(Some(problem)),
        };
        match self.store.place(sale, &[intake], &[], self.clock.now()).await {
            Ok(placed) => {
                self.placed(&placed);
                Ok(None)
            }
            Err(error) if is_of_data(&error) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}
