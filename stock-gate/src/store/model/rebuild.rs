//! Freezing and rebuilding, in memory.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_shared::{
    gate::{
        ConcludeAnswer, ConcludeRequest, Freeze, FreezeAnswer, Hold, HoldState, HoldsPage, ItemLine,
        StageAnswer, StageRequest,
    },
    ids::{AccountHash, ClaimId, ItemId},
};

use super::{Live, Sale, Shelf};
use crate::{stock::Counts, store::FreezeOrder};

/// A rebuilt stock, as far as it was uploaded.
#[derive(Default)]
pub(super) struct Staged {
    holds: BTreeMap<ClaimId, Hold>,
    accounts: BTreeMap<AccountHash, Live>,
    returned: BTreeSet<(ItemId, u32)>,
}

impl Sale {
    pub(super) fn freeze(&mut self, order: &FreezeOrder) -> FreezeAnswer {
        if self.frozen.is_none() {
            let is_there = self.generation > 0;
            if is_there && order.if_generation.is_some_and(|generation| generation != self.generation) {
                return FreezeAnswer::Rebuilt { generation: self.generation };
            }
            self.generation = self.generation.max(order.at_least);
        }
        let id = *self.frozen.get_or_insert(order.id);
        FreezeAnswer::Frozen(Freeze { id, generation: self.generation })
    }

    pub(super) fn page(&self, after: Option<&str>, max: usize) -> HoldsPage {
        let after: Option<ClaimId> = after.and_then(|after| after.parse().ok());
        let rest = self.holds.values().filter(|hold| after.is_none_or(|after| hold.claim > after));
        let holds: Vec<Hold> = rest.take(max).cloned().collect();
        let next = holds.last().filter(|_| holds.len() == max).map(|hold| hold.claim.to_string());
        HoldsPage { holds, unreadable: 0, next }
    }

    pub(super) fn stage(&mut self, page: &StageRequest) -> StageAnswer {
        if self.frozen != Some(page.freeze) {
            return StageAnswer::Stale;
        }
        let staged = self.staged.entry(page.token).or_default();
        staged.holds.extend(page.holds.iter().map(|hold| (hold.claim, hold.clone())));
        for line in &page.accounts {
            staged.accounts.insert(line.account, Live { units: line.units, holds: line.holds });
        }
        for free in &page.returned {
            if let Some(item) = usize::try_from(free.place).ok().and_then(|place| page.items.get(place)) {
                staged.returned.insert((item.clone(), free.unit));
            }
        }
        StageAnswer::Staged
    }

    pub(super) fn conclude(&mut self, request: &ConcludeRequest) -> ConcludeAnswer {
        if self.frozen != Some(request.freeze.id) || self.generation != request.freeze.generation {
            return ConcludeAnswer::Stale;
        }
        let staged = self.staged.remove(&request.token).unwrap_or_default();
        let due = staged.holds.values().filter(|hold| hold.state == HoldState::Held).count();
        let sizes = [staged.holds.len(), due, staged.accounts.len(), staged.returned.len()];
        let expected = [request.holds, request.due, request.accounts, request.returned];
        if sizes.map(|size| size as u64) != expected {
            return ConcludeAnswer::Incomplete;
        }
        self.items = request
            .items
            .iter()
            .map(|line| {
                let own = staged.returned.iter().filter(|(item, _)| *item == line.item);
                let shelf = Shelf { counts: counts(line), returned: own.map(|(_, unit)| *unit).collect() };
                (line.item.clone(), shelf)
            })
            .collect();
        (self.holds, self.accounts) = (staged.holds, staged.accounts);
        self.clock = self.clock.max(request.clock);
        self.staged.clear();
        self.frozen = None;
        self.generation += 1;
        ConcludeAnswer::Reopened { generation: self.generation }
    }
}

fn counts(line: &ItemLine) -> Counts {
    let ItemLine { stock, available, held, sold, next, last, .. } = *line;
    Counts { stock, available, held, sold, next, last }
}
