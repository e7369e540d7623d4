//! PURE: which money must go back, and when an order's last has.

use crate::{
    order::{OrderRecord, OrderState},
    payment::{Money, PaymentId, PaymentState},
};

/// The attempts whose money must go back, with what was paid.
pub fn due(order: &OrderRecord) -> impl Iterator<Item = (PaymentId, Money)> {
    order
        .payments
        .iter()
        .filter(|attempt| attempt.state == PaymentState::RefundDue)
        .filter_map(|attempt| Some((attempt.id, attempt.paid.clone()?)))
}

/// The order cannot keep its units: everything that was paid must go back. Answers whether anything was.
pub(crate) fn owe_all(order: &mut OrderRecord) -> bool {
    let mut was_paid = false;
    for attempt in &mut order.payments {
        if attempt.state == PaymentState::Succeeded {
            attempt.state = PaymentState::RefundDue;
            was_paid = true;
        }
    }
    was_paid
}

/// The money of `payment` went back.
pub(crate) fn refunded(order: &mut OrderRecord, payment: PaymentId) {
    for attempt in &mut order.payments {
        if attempt.id == payment && attempt.state == PaymentState::RefundDue {
            attempt.state = PaymentState::Refunded;
        }
    }
    if order.state == OrderState::RefundDue && due(order).next().is_none() {
        order.state = OrderState::Refunded;
    }
}
