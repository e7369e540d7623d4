//! PURE: the counts of an item and whether a claim fits them.
//!
//! The invariant: `available + held + sold = stock`, and every unit number has at most one live owner. Numbers run
//! 1..stock until operators change the stock. Units that came back are given first, lowest first; then the next that
//! nobody ever had. Added units get numbers above every number so far. Withdrawn are first the highest that nobody
//! ever had, then the highest that came back: those leave a hole that is never filled again.

use lockgate_shared::{
    gate::{ClaimAnswer, ReclaimAnswer},
    limits::{STOCK_MAX, UNIT_NUMBER_MAX},
};

/// The counts of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Units on sale.
    pub stock: u32,
    /// Units nobody has.
    pub available: u32,
    /// Units held.
    pub held: u32,
    /// Units sold.
    pub sold: u32,
    /// The lowest unit number nobody ever had; `last + 1` once all have been given.
    pub next: u32,
    /// The highest unit number on sale. It is `stock` until units that came back are withdrawn.
    pub last: u32,
}

impl Counts {
    /// The counts before the first claim.
    #[must_use]
    pub fn fresh(stock: u32) -> Self {
        Self { stock, available: stock, held: 0, sold: 0, next: 1, last: stock }
    }

    /// Whether the counts agree with each other and with the number of units that came back and are free.
    #[must_use]
    pub fn balanced(&self, returned: u32) -> bool {
        let sum = u64::from(self.available) + u64::from(self.held) + u64::from(self.sold);
        let never_given = (u64::from(self.last) + 1).checked_sub(u64::from(self.next));
        self.next >= 1
            && sum == u64::from(self.stock)
            && never_given.map(|count| count + u64::from(returned)) == Some(u64::from(self.available))
    }

    /// The counts after `units` were taken, `fresh` of which nobody had before; `None` where that cannot be.
    #[must_use]
    pub fn taken(self, units: u32, fresh: u32) -> Option<Self> {
        Some(Self {
            available: self.available.checked_sub(units)?,
            held: self.held.checked_add(units)?,
            next: self.next.checked_add(fresh)?,
            ..self
        })
    }

    /// The counts after `units` held ones were sold.
    #[must_use]
    pub fn committed(self, units: u32) -> Option<Self> {
        Some(Self { held: self.held.checked_sub(units)?, sold: self.sold.checked_add(units)?, ..self })
    }

    /// The counts after `units` held ones came back.
    #[must_use]
    pub fn released(self, units: u32) -> Option<Self> {
        Some(Self {
            held: self.held.checked_sub(units)?,
            available: self.available.checked_add(units)?,
            ..self
        })
    }
}

/// What the sale file allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units one account may hold or have bought, across items.
    pub per_account: u32,
    /// Units the sale sells, across items; `None` for as many as there are.
    pub total: Option<u32>,
    /// Holds one admission may let run out; `None` for any number.
    pub abandoned_holds: Option<u32>,
    /// Holds one account may have live at a time; `None` for any number.
    pub live_holds: Option<u32>,
}

/// Where the sale and the claiming account stand before the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Units held or sold, across items.
    pub total: u32,
    /// Units held, across items.
    pub held: u32,
    /// Units the account holds or has bought, across items.
    pub account: u32,
    /// Holds of the account that are held or expiring.
    pub live_holds: u32,
    /// Holds that the account has let run out under the admission it claims by.
    pub abandoned: u32,
}

/// Why `quantity` units cannot be taken; `None` when they can. Sold out comes before the limits, so that nobody is
/// told to buy less of what is gone, or to line up for it.
#[must_use]
pub fn refusal(counts: &Counts, standing: &Standing, limits: &Limits, quantity: u32) -> Option<ClaimAnswer> {
    if counts.available < quantity {
        return Some(ClaimAnswer::SoldOut { may_return: counts.held > 0 });
    }
    if total_left(standing.total, limits.total).is_some_and(|left| left < quantity) {
        return Some(ClaimAnswer::SoldOut { may_return: standing.held > 0 });
    }
    if limits.abandoned_holds.is_some_and(|limit| standing.abandoned >= limit) {
        return Some(ClaimAnswer::LineUpAgain { abandoned: standing.abandoned });
    }
    if u64::from(standing.account) + u64::from(quantity) > u64::from(limits.per_account) {
        return Some(ClaimAnswer::LimitReached { limit: limits.per_account, taken: standing.account });
    }
    let limit = limits.live_holds.filter(|limit| standing.live_holds >= *limit)?;
    Some(ClaimAnswer::LiveHoldsReached { limit, live: standing.live_holds })
}

/// What a change of an item's stock comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restock {
    /// The stock changes.
    Changes {
        /// The counts afterwards.
        counts: Counts,
        /// Units to take away from those that came back, highest first.
        withdrawn: u32,
    },
    /// Fewer units would be left than must be.
    Taken {
        /// Units that stay at least: all that are held or sold, and one.
        least: u32,
    },
    /// There would be more units than one item has.
    TooMany {
        /// Units that one item has at most.
        most: u32,
    },
}

/// The sale-wide limit and the units all items would have together, where `change` would leave fewer than it of `units`:
/// a definition whose limit is above its stock is refused wherever it is written.
#[must_use]
pub fn below_total_limit(units: u64, change: i64, limit: Option<u32>) -> Option<(u32, u64)> {
    let total = units.saturating_add_signed(change);
    let limit = limit.filter(|limit| change < 0 && total < u64::from(*limit))?;
    Some((limit, total))
}

/// What adding `change` units (or withdrawing so many, where it is negative) comes to.
#[must_use]
pub fn restock(counts: Counts, change: i64) -> Restock {
    let units = u32::try_from(change.unsigned_abs()).unwrap_or(u32::MAX);
    if change >= 0 {
        let bounded = |number: u32, most: u32| number.checked_add(units).filter(|sum| *sum <= most);
        let (Some(stock), Some(last)) =
            (bounded(counts.stock, STOCK_MAX), bounded(counts.last, UNIT_NUMBER_MAX))
        else {
            return Restock::TooMany { most: STOCK_MAX };
        };
        let available = counts.available.saturating_add(units);
        return Restock::Changes { counts: Counts { stock, last, available, ..counts }, withdrawn: 0 };
    }
    let least = counts.held.saturating_add(counts.sold).max(1);
    let (Some(stock), Some(available)) = (
        counts.stock.checked_sub(units).filter(|stock| *stock >= least),
        counts.available.checked_sub(units),
    ) else {
        return Restock::Taken { least };
    };
    let never_given = counts.last.saturating_add(1).saturating_sub(counts.next);
    let from_top = units.min(never_given);
    let counts = Counts { stock, available, last: counts.last - from_top, ..counts };
    Restock::Changes { counts, withdrawn: units - from_top }
}

/// Units the sale-wide limit still allows when `total` are held or sold.
#[must_use]
pub fn total_left(total: u32, limit: Option<u32>) -> Option<u32> {
    limit.map(|limit| limit.saturating_sub(total))
}

/// The unit numbers a claim takes, ascending, and how many of them nobody had before. `returned` are the free ones
/// that came back, ascending. `None` when there are not enough: then the counts were wrong.
#[must_use]
pub fn pick(
    returned: impl IntoIterator<Item = u32>,
    counts: &Counts,
    quantity: u32,
) -> Option<(Vec<u32>, u32)> {
    let mut units: Vec<u32> = returned.into_iter().take(usize::try_from(quantity).ok()?).collect();
    let fresh = quantity.checked_sub(u32::try_from(units.len()).ok()?)?;
    let end = counts.next.checked_add(fresh)?;
    if u64::from(end) > u64::from(counts.last) + 1 {
        return None;
    }
    units.extend(counts.next..end);
    Some((units, fresh))
}

/// Why a reclaim of `quantity` units takes none; `None` when it does. Only what is free and the limits on units count:
/// whoever paid in time is not asked about abandoned or live holds, nor whether the sale is open.
#[must_use]
pub fn reclaim_refusal(
    counts: &Counts,
    standing: &Standing,
    limits: &Limits,
    quantity: u32,
) -> Option<ReclaimAnswer> {
    let limits = Limits { abandoned_holds: None, live_holds: None, ..*limits };
    match refusal(counts, standing, &limits, quantity)? {
        ClaimAnswer::LimitReached { limit, taken } => Some(ReclaimAnswer::LimitReached { limit, taken }),
        _ => Some(ReclaimAnswer::SoldOut),
    }
}

/// The units a reclaim takes, ascending, and how many of them nobody had before: `own` where all of them are among the
/// `returned`, which are ascending, else what a claim would take.
#[must_use]
pub fn pick_again(own: &[u32], returned: &[u32], counts: &Counts) -> Option<(Vec<u32>, u32)> {
    if own.iter().all(|unit| returned.binary_search(unit).is_ok()) {
        return Some((own.to_vec(), 0));
    }
    pick(returned.iter().copied(), counts, u32::try_from(own.len()).ok()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const FREE: Limits = Limits { per_account: 10, total: None, abandoned_holds: None, live_holds: None };

    #[test]
    fn sold_out_is_said_before_any_limit() {
        let counts = Counts { available: 0, held: 1, sold: 4, next: 6, ..Counts::fresh(5) };
        let standing = Standing { total: 5, held: 1, account: 10, abandoned: 9, live_holds: 1 };
        let limits = Limits { total: Some(5), abandoned_holds: Some(1), live_holds: Some(1), ..FREE };
        assert_eq!(refusal(&counts, &standing, &limits, 1), Some(ClaimAnswer::SoldOut { may_return: true }));
    }

    #[test]
    fn the_sale_wide_limit_counts_what_is_held_of_any_item() {
        let counts = Counts::fresh(5);
        let limits = Limits { total: Some(3), ..FREE };
        let standing = Standing { total: 2, ..Standing::default() };
        assert_eq!(refusal(&counts, &standing, &limits, 1), None);
        assert_eq!(refusal(&counts, &standing, &limits, 2), Some(ClaimAnswer::SoldOut { may_return: false }));
        let held = Standing { held: 1, ..standing };
        assert_eq!(refusal(&counts, &held, &limits, 2), Some(ClaimAnswer::SoldOut { may_return: true }));
    }

    #[test]
    fn the_account_limit_says_what_is_taken() {
        let standing = Standing { account: 9, ..Standing::default() };
        assert_eq!(refusal(&Counts::fresh(5), &standing, &FREE, 1), None);
        assert_eq!(
            refusal(&Counts::fresh(5), &standing, &FREE, 2),
            Some(ClaimAnswer::LimitReached { limit: 10, taken: 9 })
        );
    }

    #[test]
    fn whoever_let_too_many_holds_run_out_lines_up_again() {
        let ask = |abandoned, limit| {
            let standing = Standing { abandoned, account: 10, ..Standing::default() };
            refusal(&Counts::fresh(5), &standing, &Limits { abandoned_holds: limit, ..FREE }, 1)
        };
        let reached = Some(ClaimAnswer::LimitReached { limit: 10, taken: 10 });
        assert_eq!(ask(1, Some(2)), reached);
        assert_eq!(ask(9, None), reached);
        assert_eq!(
            ask(2, Some(2)),
            Some(ClaimAnswer::LineUpAgain { abandoned: 2 }),
            "before the account's limit"
        );
    }

    #[test]
    fn the_limit_on_live_holds_comes_last_and_says_how_many_live() {
        let ask = |live_holds, account| {
            let standing = Standing { live_holds, account, ..Standing::default() };
            refusal(&Counts::fresh(5), &standing, &Limits { live_holds: Some(2), ..FREE }, 1)
        };
        assert_eq!(ask(1, 9), None);
        assert_eq!(ask(2, 9), Some(ClaimAnswer::LiveHoldsReached { limit: 2, live: 2 }));
        assert_eq!(ask(2, 10), Some(ClaimAnswer::LimitReached { limit: 10, taken: 10 }));
    }

    #[test]
    fn a_reclaim_prefers_its_own_units_and_takes_all_or_none_of_them() {
        let counts = Counts { available: 4, held: 0, sold: 4, next: 7, ..Counts::fresh(8) };
        assert_eq!(pick_again(&[3, 5], &[3, 5], &counts), Some((vec![3, 5], 0)));
        assert_eq!(pick_again(&[5], &[3, 5], &counts), Some((vec![5], 0)), "not the lowest");
        assert_eq!(pick_again(&[4, 5], &[3, 5], &counts), Some((vec![3, 5], 0)), "4 is somebody's");
        assert_eq!(pick_again(&[1, 2, 4], &[3, 5], &counts), Some((vec![3, 5, 7], 1)));
        assert_eq!(pick_again(&[1, 2, 4, 6, 9], &[3, 5], &counts), None);
    }

    #[test]
    fn a_reclaim_is_bounded_by_what_is_free_and_by_the_limits_on_units() {
        let ask = |available, total, account| {
            let counts = Counts { available, ..Counts::fresh(9) };
            let standing = Standing { total, account, abandoned: 9, live_holds: 9, held: 1 };
            let limits =
                Limits { per_account: 3, total: Some(5), abandoned_holds: Some(1), live_holds: Some(1) };
            reclaim_refusal(&counts, &standing, &limits, 2)
        };
        assert_eq!(ask(2, 3, 1), None);
        assert_eq!(ask(1, 3, 1), Some(ReclaimAnswer::SoldOut));
        assert_eq!(ask(2, 4, 1), Some(ReclaimAnswer::SoldOut));
        assert_eq!(ask(2, 3, 2), Some(ReclaimAnswer::LimitReached { limit: 3, taken: 2 }));
    }

    #[test]
    fn units_are_withdrawn_from_the_top_and_never_below_what_is_taken() {
        let counts = Counts { available: 5, held: 2, sold: 1, next: 5, ..Counts::fresh(8) };
        assert!(counts.balanced(1), "unit 4, say, came back; 5 to 8 were never given");
        let changed = |change| match restock(counts, change) {
            Restock::Changes { counts, withdrawn } => (counts.stock, counts.last, withdrawn),
            refused => panic!("{refused:?}"),
        };
        assert_eq!(changed(2), (10, 10, 0));
        assert_eq!(changed(-4), (4, 4, 0));
        assert_eq!(changed(-5), (3, 4, 1), "the one that came back leaves a hole");
        assert_eq!(restock(counts, -6), Restock::Taken { least: 3 });
        assert_eq!(restock(Counts::fresh(1), -1), Restock::Taken { least: 1 });
        for change in [i64::MAX, i64::from(STOCK_MAX)] {
            assert_eq!(restock(counts, change), Restock::TooMany { most: STOCK_MAX });
        }
    }

    proptest! {
        #[test]
        fn any_sequence_keeps_the_invariant_and_one_owner_per_unit(
            stock in 1_u32..30,
            steps in prop::collection::vec((0_u8..5, 1_u32..5, any::<prop::sample::Index>()), 0..60),
        ) {
            let mut counts = Counts::fresh(stock);
            let mut returned = BTreeSet::new();
            let (mut held, mut sold): (Vec<Vec<u32>>, Vec<Vec<u32>>) = Default::default();
            let mut highest = stock;
            for (verb, quantity, index) in steps {
                if verb == 0 {
                    let standing = Standing::default();
                    if refusal(&counts, &standing, &FREE, quantity).is_none() {
                        let (units, fresh) = pick(returned.iter().copied(), &counts, quantity).unwrap();
                        prop_assert!(units.is_sorted());
                        counts = counts.taken(quantity, fresh).unwrap();
                        returned.retain(|unit| !units.contains(unit));
                        held.push(units);
                    } else {
                        prop_assert!(counts.available < quantity);
                    }
                } else if verb > 2 {
                    let change = if verb == 3 { i64::from(quantity) } else { -i64::from(quantity) };
                    if let Restock::Changes { counts: after, withdrawn } = restock(counts, change) {
                        prop_assert_eq!(i64::from(after.stock), i64::from(counts.stock) + change);
                        for _ in 0..withdrawn {
                            prop_assert!(returned.pop_last().is_some());
                        }
                        counts = after;
                        highest = highest.max(counts.last);
                    } else {
                        let least = (counts.held + counts.sold).max(1);
                        prop_assert!(change < 0 && i64::from(counts.stock) + change < i64::from(least));
                    }
                } else if !held.is_empty() {
                    let units = held.swap_remove(index.index(held.len()));
                    let count = u32::try_from(units.len()).unwrap();
                    if verb == 1 {
                        counts = counts.committed(count).unwrap();
                        sold.push(units);
                    } else {
                        counts = counts.released(count).unwrap();
                        returned.extend(units);
                    }
                }
                prop_assert!(counts.balanced(u32::try_from(returned.len()).unwrap()));
                let owned: Vec<u32> = held.iter().chain(&sold).flatten().copied().collect();
                let distinct: BTreeSet<u32> = owned.iter().copied().collect();
                prop_assert_eq!(owned.len(), distinct.len());
                prop_assert!(distinct.iter().all(|unit| (1..=highest).contains(unit) && !returned.contains(unit)));
            }
        }

        #[test]
        fn nothing_overflows(
            parts in any::<[u32; 6]>(), standing in any::<[u32; 5]>(),
            limits in any::<(u32, Option<u32>, Option<u32>, Option<u32>)>(),
            quantity in 1_u32..=100, change: i64,
        ) {
            let [stock, available, held, sold, next, last] = parts;
            let counts = Counts { stock, available, held, sold, next, last };
            let _ = restock(counts, change);
            let [total, held, account, abandoned, live_holds] = standing;
            let (per_account, total_limit, abandoned_holds, live_limit) = limits;
            let limits = Limits { per_account, total: total_limit, abandoned_holds, live_holds: live_limit };
            let standing = Standing { total, held, account, abandoned, live_holds };
            let _ = refusal(&counts, &standing, &limits, quantity);
            let _ = counts.balanced(quantity);
            let _ = pick([], &counts, quantity);
            let _ = counts.taken(quantity, quantity).and_then(|c| c.committed(held)).and_then(|c| c.released(held));
        }
    }
}
