//! PURE: counting, order by order, in whatever order they come.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_shared::{ids::ItemId, sale::SaleDefinition};

use super::{GatewayLine, ItemLine, RefundsFailedLine, StateLine, is_open, words};
use crate::{
    order::{GateSide, OrderRecord, OrderState},
    payment::{PaymentId, PaymentState},
};

/// What the payments of an item or gateway come to in one currency.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    payments: u64,
    gross: i128,
    refunds: u64,
    refunded: i128,
    refunds_due: u64,
    refund_due: i128,
    undecided: i128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sold {
    orders: u64,
    units: u64,
    price: i128,
}

/// A sale's orders, counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    sold: BTreeMap<(ItemId, String), Sold>,
    flows: BTreeMap<(ItemId, String), Flow>,
    gateways: BTreeMap<(String, String), Flow>,
    /// Payments of which a refund failed later, as the anomalies say.
    failed: BTreeSet<PaymentId>,
    /// What of them is counted as given back, by currency.
    bounced: BTreeMap<String, (u64, i128)>,
    states: BTreeMap<OrderState, (u64, u64)>,
    /// Units that orders know to be sold at the gate.
    committed: BTreeMap<ItemId, u64>,
    /// The part of them whose orders are not paid any more: refunded, and not put on sale again.
    kept_out: BTreeMap<ItemId, u64>,
    /// Orders that may still change by themselves.
    pub open: u64,
    /// Orders with work left: units to sell or to give back, attempts to make unpayable, money to give back.
    pub unsettled: u64,
}

impl Flow {
    fn add(&mut self, state: PaymentState, amount: i64) {
        let amount = i128::from(amount);
        self.payments += 1;
        self.gross += amount;
        match state {
            PaymentState::Refunded => {
                self.refunds += 1;
                self.refunded += amount;
            }
            PaymentState::RefundDue => {
                self.refunds_due += 1;
                self.refund_due += amount;
            }
            _ => {}
        }
    }
}

impl Tally {
    /// With nothing counted yet, and the payments of which a refund failed later.
    #[must_use]
    pub fn knowing(failed: BTreeSet<PaymentId>) -> Self {
        Self { failed, ..Self::default() }
    }

    /// Counts an order whose payments went through `gateway`.
    pub fn add(&mut self, order: &OrderRecord, gateway: &str) {
        let units = order.units.len() as u64;
        let (orders, counted) = self.states.entry(order.state).or_default();
        *orders += 1;
        *counted += units;
        let is_at_gate = matches!(order.gate, GateSide::Committed | GateSide::Released | GateSide::Disputed);
        self.open += u64::from(is_open(order.state));
        self.unsettled += u64::from(order.is_unsettled() || !is_at_gate);
        if order.gate == GateSide::Committed {
            *self.committed.entry(order.item.clone()).or_default() += units;
            let kept_out = if order.state == OrderState::Paid { 0 } else { units };
            *self.kept_out.entry(order.item.clone()).or_default() += kept_out;
        }
        if order.state == OrderState::Paid {
            let sold = self.sold.entry((order.item.clone(), order.price.currency.clone())).or_default();
            sold.orders += 1;
            sold.units += units;
            sold.price += i128::from(order.price.amount);
        }
        for attempt in &order.payments {
            let arrived = attempt.state >= PaymentState::Succeeded;
            let Some(paid) = attempt.paid.as_ref().filter(|_| arrived) else { continue };
            let item = (order.item.clone(), paid.currency.clone());
            let flow = self.flows.entry(item).or_default();
            flow.add(attempt.state, paid.amount);
            if order.is_reclaiming() && attempt.state == PaymentState::Succeeded {
                flow.undecided += i128::from(paid.amount);
            }
            if attempt.state == PaymentState::Refunded && self.failed.contains(&attempt.id) {
                let (payments, amount) = self.bounced.entry(paid.currency.clone()).or_default();
                *payments += 1;
                *amount += i128::from(paid.amount);
            }
            let way = (gateway.to_owned(), paid.currency.clone());
            self.gateways.entry(way).or_default().add(attempt.state, paid.amount);
        }
    }

    /// Units that orders know to be sold at the gate.
    pub(super) fn units_committed(&self, item: &ItemId) -> u64 {
        self.committed.get(item).copied().unwrap_or(0)
    }

    /// Units sold at the gate to orders that are not paid any more.
    pub(super) fn units_kept_out(&self, item: &ItemId) -> u64 {
        self.kept_out.get(item).copied().unwrap_or(0)
    }

    /// Units of paid orders.
    pub(super) fn units_sold(&self, item: &ItemId) -> u64 {
        self.sold.iter().filter(|((of, _), _)| of == item).map(|(_, sold)| sold.units).sum()
    }

    /// Orders in a state.
    pub(super) fn orders_in(&self, state: OrderState) -> u64 {
        self.states.get(&state).map_or(0, |(orders, _)| *orders)
    }

    /// Payments whose money must still go back.
    pub(super) fn refunds_due(&self) -> u64 {
        self.flows.values().map(|flow| flow.refunds_due).sum()
    }

    /// Item by item in the order of the sale, also those nothing was sold of; then items it no longer has.
    pub(super) fn item_lines(&self, sale: &SaleDefinition) -> Vec<ItemLine> {
        let mut keys: Vec<(ItemId, String)> =
            sale.items.iter().map(|item| (item.item.clone(), item.currency.clone())).collect();
        for key in self.sold.keys().chain(self.flows.keys()) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        let place =
            |item: &ItemId| sale.items.iter().position(|known| known.item == *item).unwrap_or(usize::MAX);
        keys.sort_by_key(|(item, _)| place(item));
        keys.into_iter().map(|key| self.item_line(sale, key)).collect()
    }

    fn item_line(&self, sale: &SaleDefinition, key: (ItemId, String)) -> ItemLine {
        let sold = self.sold.get(&key).copied().unwrap_or_default();
        let flow = self.flows.get(&key).copied().unwrap_or_default();
        let net = flow.gross - flow.refunded;
        let (item, currency) = key;
        ItemLine {
            name: sale.item(&item).map_or_else(|| item.to_string(), |known| known.name.clone()),
            item,
            currency,
            orders_paid: sold.orders,
            units_sold: sold.units,
            sold_for: sold.price,
            payments: flow.payments,
            gross: flow.gross,
            refunds: flow.refunds,
            refunded: flow.refunded,
            refunds_due: flow.refunds_due,
            refund_due: flow.refund_due,
            undecided: flow.undecided,
            net,
            difference: net - flow.refund_due - flow.undecided - sold.price,
        }
    }

    pub(super) fn gateway_lines(&self) -> Vec<GatewayLine> {
        let lines = self.gateways.iter().map(|((gateway, currency), flow)| GatewayLine {
            gateway: gateway.clone(),
            currency: currency.clone(),
            payments: flow.payments,
            money_in: flow.gross,
            refunds: flow.refunds,
            money_back: flow.refunded,
            net: flow.gross - flow.refunded,
        });
        lines.collect()
    }

    /// What is counted as given back although the gateway has it again.
    pub(super) fn refunds_failed_lines(&self) -> Vec<RefundsFailedLine> {
        let lines = self.bounced.iter().map(|(currency, (payments, amount))| RefundsFailedLine {
            currency: currency.clone(),
            payments: *payments,
            amount: *amount,
            remark: words::refunds_failed(*payments, *amount, currency),
        });
        lines.collect()
    }

    pub(super) fn state_lines(&self) -> Vec<StateLine> {
        let all = OrderState::ALL.iter().map(|state| {
            let (orders, units) = self.states.get(state).copied().unwrap_or_default();
            StateLine { state: state.as_str(), orders, units }
        });
        all.collect()
    }
}
