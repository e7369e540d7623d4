//! PURE. What a sale is doing at a moment.

use lockgate_shared::{
    catalog::Controls, clock::Timestamp, gate::StockSnapshot, ids::ItemId, sale::SaleDefinition,
};

use crate::draw::is_lottery;

/// The phase of a sale, as the public status names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody may enter yet.
    Scheduled,
    /// People may enter; nobody is admitted yet.
    DoorsOpen,
    /// The opening has come, and the draw of a lottery is not made yet.
    Drawing,
    /// People are admitted.
    Open,
    /// Admissions are stopped for now; claims go on.
    Paused,
    /// Nothing can be claimed at this moment; admission goes on should units return.
    SoldOut,
    /// The sale is over.
    Closed,
}

impl Phase {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::DoorsOpen => "doors_open",
            Self::Drawing => "drawing",
            Self::Open => "open",
            Self::Paused => "paused",
            Self::SoldOut => "sold_out",
            Self::Closed => "closed",
        }
    }

    /// Whether people are admitted.
    #[must_use]
    pub fn admits(self) -> bool {
        self == Self::Open
    }
}

/// The phase at `now`. Stock that nobody could read counts as available: the gate alone decides what can be
/// claimed, and "sold out" is never guessed. `is_drawn`: a lottery's draw was made; a sale without one needs none.
#[must_use]
pub fn phase(
    definition: &SaleDefinition,
    controls: &Controls,
    stock: Option<&StockSnapshot>,
    is_drawn: bool,
    now: Timestamp,
) -> Phase {
    if controls.closed || now >= definition.closes_at {
        Phase::Closed
    } else if now < definition.doors_open_at {
        Phase::Scheduled
    } else if now < definition.opens_at {
        Phase::DoorsOpen
    } else if is_lottery(definition) && !is_drawn {
        Phase::Drawing
    } else if stock.is_some_and(StockSnapshot::all_sold_out) {
        Phase::SoldOut
    } else if controls.paused {
        Phase::Paused
    } else {
        Phase::Open
    }
}

/// What can be had of an item, as the public status names it.
#[must_use]
pub fn item_state(stock: Option<&StockSnapshot>, item: &ItemId) -> &'static str {
    let Some((stock, item)) = stock.and_then(|stock| Some((stock, stock.item(item)?))) else {
        return "available";
    };
    if !stock.sold_out(item) {
        "available"
    } else if item.held > 0 || (stock.total_left == Some(0) && stock.may_return()) {
        "all_held"
    } else {
        "sold_out"
    }
}

#[cfg(test)]
mod tests {
    use lockgate_shared::{gate::ItemStock, sale::parse_toml};

    use super::*;

    fn stock(available: u32, held: u32, total_left: Option<u32>) -> StockSnapshot {
        let item = ItemStock {
            item: "phone-black".parse().unwrap(),
            stock: 10,
            available,
            held,
            sold: 10 - available - held,
        };
        StockSnapshot { items: vec![item], total_left, claimants: Vec::new(), too_many_claimants: false }
    }

    #[test]
    fn each_phase_has_its_time_and_closing_wins() {
        let sale = parse_toml("example", lockgate_shared::sale::EXAMPLE_TOML).unwrap();
        let at = |moment: Timestamp, controls: &Controls, stock: Option<&StockSnapshot>| {
            phase(&sale, controls, stock, false, moment)
        };
        let (none, gone) = (Controls::default(), stock(0, 0, None));
        assert_eq!(at(sale.doors_open_at.minus_seconds(1), &none, None), Phase::Scheduled);
        assert_eq!(at(sale.doors_open_at, &none, Some(&gone)), Phase::DoorsOpen);
        assert_eq!(at(sale.opens_at, &none, None), Phase::Open);
        assert_eq!(at(sale.opens_at, &none, Some(&stock(1, 0, None))), Phase::Open);
        assert_eq!(at(sale.opens_at, &none, Some(&gone)), Phase::SoldOut);
        assert_eq!(at(sale.closes_at, &none, Some(&gone)), Phase::Closed);
        let paused = Controls { paused: true, ..Controls::default() };
        assert_eq!(at(sale.opens_at, &paused, None), Phase::Paused);
        let closed = Controls { paused: true, closed: true, ..Controls::default() };
        assert_eq!(at(sale.doors_open_at.minus_seconds(1), &closed, None), Phase::Closed);
    }

    #[test]
    fn p2_a_lottery_admits_nobody_before_its_draw() {
        let mut sale = parse_toml("example", lockgate_shared::sale::EXAMPLE_TOML).unwrap();
        sale.queueing_method = lockgate_shared::sale::QueueingMethod::Lottery;
        let (none, gone) = (Controls::default(), stock(0, 0, None));
        let at = |moment: Timestamp, is_drawn: bool, controls: &Controls| {
            phase(&sale, controls, Some(&gone), is_drawn, moment)
        };
        assert_eq!(at(sale.doors_open_at, false, &none), Phase::DoorsOpen);
        assert_eq!(at(sale.opens_at, false, &none), Phase::Drawing);
        assert!(!Phase::Drawing.admits());
        assert_eq!(at(sale.opens_at, true, &none), Phase::SoldOut);
        let paused = Controls { paused: true, ..Controls::default() };
        assert_eq!(
            at(sale.opens_at, false, &paused),
            Phase::Drawing,
            "a pause stops admissions, not the draw"
        );
        assert_eq!(at(sale.closes_at, false, &none), Phase::Closed);
    }

    #[test]
    fn items_that_may_return_are_held_not_sold_out() {
        let (black, other): (ItemId, ItemId) = ("phone-black".parse().unwrap(), "x".parse().unwrap());
        assert_eq!(item_state(None, &black), "available");
        assert_eq!(item_state(Some(&stock(1, 0, None)), &black), "available");
        assert_eq!(item_state(Some(&stock(0, 1, None)), &black), "all_held");
        assert_eq!(item_state(Some(&stock(0, 0, None)), &black), "sold_out");
        assert_eq!(item_state(Some(&stock(4, 0, Some(0))), &black), "sold_out");
        assert_eq!(item_state(Some(&stock(4, 2, Some(0))), &black), "all_held");
        assert_eq!(item_state(Some(&stock(4, 2, None)), &other), "available");
    }
}
