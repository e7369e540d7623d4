//! PURE: everything a stock keeps besides its holds, counted from the holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{AccountLine, Hold, HoldState, ItemLine, ReturnedUnit};
use crate::{
    clock::Timestamp,
    ids::{AccountHash, ItemId},
};

/// The counts of a sale, from its holds and the units it is said to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The items, in the order they were given.
    pub items: Vec<ItemLine>,
    /// What accounts have. Whoever has claimed is listed, also with nothing left.
    pub accounts: Vec<AccountLine>,
    /// Free units with a number that somebody may have had.
    pub returned: Vec<ReturnedUnit>,
    /// Holds that are held.
    pub due: u64,
    /// The latest moment a hold was made.
    pub clock: Timestamp,
    /// Units held or sold beyond the stock, which was raised by them: nobody loses what they hold.
    pub beyond: u64,
}

impl Ledger {
    /// Counts `holds` of a sale with these items and their stock. No two live holds may have a unit in common.
    #[must_use]
    pub fn of<'h>(holds: impl IntoIterator<Item = &'h Hold>, items: &[(ItemId, u32)]) -> Self {
        let mut ledger = Self::default();
        let mut accounts: BTreeMap<AccountHash, (u32, u32)> = BTreeMap::new();
        let mut shelves: Vec<Shelf> = items.iter().map(|_| Shelf::default()).collect();
        let places: BTreeMap<&ItemId, usize> =
            items.iter().enumerate().map(|(place, (item, _))| (item, place)).collect();
        for hold in holds {
            ledger.clock = ledger.clock.max(hold.claimed_at);
            ledger.due += u64::from(hold.state == HoldState::Held);
            let (units, live) = accounts.entry(hold.account).or_default();
            let count = u32::try_from(hold.units.len()).unwrap_or(u32::MAX);
            if hold.state != HoldState::Released {
                *units = units.saturating_add(count);
                *live = live.saturating_add(u32::from(hold.state != HoldState::Committed));
            }
            if let Some(shelf) = places.get(&hold.item).and_then(|place| shelves.get_mut(*place)) {
                shelf.take(hold, count);
            }
        }
        for (place, ((item, stock), shelf)) in items.iter().zip(&shelves).enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            let (line, returned) = shelf.line(item, *stock);
            ledger.beyond += u64::from(line.stock.saturating_sub(*stock));
            ledger.returned.extend(returned.into_iter().map(|unit| ReturnedUnit { place, unit }));
            ledger.items.push(line);
        }
        let lines = accounts.into_iter();
        ledger.accounts =
            lines.map(|(account, (units, holds))| AccountLine { account, units, holds }).collect();
        ledger
    }
}

/// What is known of an item.
#[derive(Default)]
struct Shelf {
    held: u32,
    sold: u32,
    owned: BTreeSet<u32>,
    /// The highest number any hold names.
    highest: u32,
}

impl Shelf {
    fn take(&mut self, hold: &Hold, count: u32) {
        self.highest = hold.units.iter().copied().fold(self.highest, u32::max);
        match hold.state {
            HoldState::Released => return,
            HoldState::Committed => self.sold = self.sold.saturating_add(count),
            HoldState::Held | HoldState::Expiring => self.held = self.held.saturating_add(count),
        }
        self.owned.extend(&hold.units);
    }

    /// The item's counts, and its free units below `next`. Where fewer are free than numbers are, the lowest are.
    fn line(&self, item: &ItemId, stock: u32) -> (ItemLine, Vec<u32>) {
        let stock = stock.max(self.held.saturating_add(self.sold));
        let available = stock - self.held - self.sold;
        let next = self.highest.saturating_add(1);
        let free = (1..next).filter(|unit| !self.owned.contains(unit));
        let returned: Vec<u32> = free.take(usize::try_from(available).unwrap_or(usize::MAX)).collect();
        let never_given = available - u32::try_from(returned.len()).unwrap_or(available);
        let last = self.highest.saturating_add(never_given);
        let (held, sold) = (self.held, self.sold);
        (ItemLine { item: item.clone(), stock, available, held, sold, next, last }, returned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn hold(n: u8, account: u8, units: &[u32], state: HoldState) -> Hold {
        Hold {
            claim: Uuid::from_bytes([n; 16]).into(),
            account: AccountHash::from_bytes([account; 16]),
            item: "phone".parse().unwrap(),
            units: units.to_vec(),
            state,
            claimed_at: Timestamp::from_seconds(i64::from(n)),
            deadline: Timestamp::from_seconds(600),
            memo: String::new(),
        }
    }

    fn phones(stock: u32) -> Vec<(ItemId, u32)> {
        vec![("case".parse().unwrap(), 3), ("phone".parse().unwrap(), stock)]
    }

    #[test]
    fn counts_come_from_the_holds() {
        let holds = [
            hold(1, 1, &[1, 2], HoldState::Committed),
            hold(2, 1, &[5], HoldState::Expiring),
            hold(3, 2, &[3], HoldState::Released),
            hold(4, 3, &[7], HoldState::Held),
        ];
        let ledger = Ledger::of(&holds, &phones(10));
        let phone = &ledger.items[1];
        assert_eq!((phone.stock, phone.available, phone.held, phone.sold), (10, 6, 2, 2));
        assert_eq!((phone.next, phone.last), (8, 10));
        let returned: Vec<_> = ledger.returned.iter().map(|free| (free.place, free.unit)).collect();
        assert_eq!(returned, [(1, 3), (1, 4), (1, 6)]);
        let accounts: Vec<_> = ledger.accounts.iter().map(|line| (line.units, line.holds)).collect();
        assert_eq!(accounts, [(3, 1), (0, 0), (1, 1)]);
        assert_eq!((ledger.due, ledger.clock, ledger.beyond), (1, Timestamp::from_seconds(4), 0));
    }

    #[test]
    fn a_stock_that_is_too_small_is_raised_to_what_is_taken() {
        let holds = [hold(1, 1, &[1, 2], HoldState::Committed), hold(2, 1, &[3], HoldState::Held)];
        let ledger = Ledger::of(&holds, &phones(2));
        assert_eq!((ledger.items[1].stock, ledger.items[1].available, ledger.beyond), (3, 0, 1));
    }

    proptest! {
        #[test]
        fn every_ledger_adds_up(
            stock in 0_u32..12,
            states in prop::collection::vec((0_u8..4, 0_u8..3), 0..12),
        ) {
            let all = [HoldState::Held, HoldState::Expiring, HoldState::Committed, HoldState::Released];
            let holds: Vec<Hold> = (1_u8..).zip(states).map(|(n, (state, account))| {
                hold(n, account, &[u32::from(n) * 2], all[usize::from(state)])
            }).collect();
            let ledger = Ledger::of(&holds, &phones(stock));
            let line = &ledger.items[1];
            prop_assert_eq!(line.available + line.held + line.sold, line.stock);
            let free = ledger.returned.iter().filter(|free| free.place == 1).count();
            prop_assert_eq!(u64::from(line.last) + 1 - u64::from(line.next) + free as u64, u64::from(line.available));
            let live: u32 = ledger.accounts.iter().map(|line| line.holds).sum();
            prop_assert_eq!(live, line.held);
            prop_assert_eq!(u64::from(line.stock - stock), ledger.beyond);
        }
    }
}
