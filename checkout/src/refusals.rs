//! What checkout says when it does not do what was asked: one place for every code.

use http::StatusCode;
use lockgate_shared::{
    clock::Timestamp,
    gate::{ClaimAnswer, ItemStock, RestockAnswer},
    problem::Problem,
};

use crate::{order::Refusal, outbox::MessageId};

/// 404 `no_such_item`.
pub(crate) fn no_such_item() -> Problem {
    let detail =
        "This sale has no such item. Its items are listed on the sale page and in the sale's status.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_item", detail)
}

/// 409 `sold_out`.
pub(crate) fn sold_out(may_return: bool) -> Problem {
    let detail = if may_return {
        "Every unit is taken at this moment, but not all are paid for. Try again in a while."
    } else {
        "Every unit is sold."
    };
    Problem::conflict("sold_out", detail).with("may_return", may_return)
}

/// The gate's refusal of a claim.
pub(crate) fn of_claim(answer: &ClaimAnswer, opens_at: Timestamp) -> Problem {
    match answer {
        ClaimAnswer::SoldOut { may_return } => sold_out(*may_return),
        ClaimAnswer::LimitReached { limit, taken } => Problem::conflict(
            "limit_reached",
            format!("One account may have {limit} of this sale's units; this one has {taken} already."),
        )
        .with("limit", *limit)
        .with("taken", *taken),
        ClaimAnswer::LiveHoldsReached { limit, live } => Problem::conflict(
            "limit_reached",
            format!(
                "One account may have {limit} unpaid orders of this sale at a time; this one has {live}. Pay for one or \
                 cancel it, then try again."
            ),
        )
        .with("limit", *limit)
        .with("live", *live),
        ClaimAnswer::LineUpAgain { abandoned } => Problem::conflict(
            "line_up_again",
            "What was held for you ran out unpaid, so this admission takes no further orders. You can join the line \
             again, at its end; what is held for you now can still be paid.",
        )
        .with("abandoned", *abandoned),
        ClaimAnswer::Forfeited => Problem::conflict(
            "line_up_again",
            "This admission was given up, so it takes no further orders. You can join the line again, at its end; what \
             is held for you now can still be paid.",
        ),
        ClaimAnswer::NotOpen => Problem::conflict("not_open", "The sale takes no orders at this moment.")
            .with("opens_at", opens_at.to_string()),
        ClaimAnswer::Revoked => Problem::forbidden(
            "token_revoked",
            "The admissions of this sale were called back. Return to the queue page to see what to do next.",
        ),
        ClaimAnswer::NoSuchItem => no_such_item(),
        ClaimAnswer::Held { .. } => Problem::internal(),
    }
}

/// The gate's refusal of a changed stock.
pub(crate) fn of_restock(answer: &RestockAnswer, change: i64) -> Problem {
    let with_counts = |problem: Problem, counts: &ItemStock| {
        problem
            .with("stock", counts.stock)
            .with("available", counts.available)
            .with("held", counts.held)
            .with("sold", counts.sold)
    };
    match answer {
        RestockAnswer::Taken { counts, least } => {
            let ItemStock { item, stock, held, sold, .. } = counts;
            let most = stock - least.min(stock);
            let detail = format!(
                "'{item}' has {stock} units, of which {held} are held and {sold} are sold; {least} must stay. At most \
                 {most} can be withdrawn at this moment, not {}.",
                change.unsigned_abs()
            );
            with_counts(Problem::conflict("units_taken", detail), counts).with("least", *least)
        }
        RestockAnswer::TooMany { counts, most } => {
            let detail = format!("An item has at most {most} units; this one has {}.", counts.stock);
            with_counts(Problem::conflict("too_many_units", detail), counts).with("most", *most)
        }
        RestockAnswer::BelowTotalLimit { limit, total } => Problem::conflict(
            "below_total_limit",
            format!(
                "The sale would have {total} units, fewer than its total_limit of {limit}. Lower or remove total_limit \
                 first (lockgate sale apply)."
            ),
        )
        .with("total_limit", *limit)
        .with("total", *total),
        RestockAnswer::TooManyChanges { most } => Problem::conflict(
            "too_many_changes",
            format!("The stock of one sale is changed at most {most} times. Change it in larger steps."),
        ),
        RestockAnswer::Mismatch => Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_mismatch",
            "This Idempotency-Key was used for another change of the stock. Use a new key for a new change.",
        ),
        RestockAnswer::NoSuchItem => no_such_item(),
        RestockAnswer::Changed { .. } => Problem::internal(),
    }
}

/// 422 `idempotency_mismatch`.
pub(crate) fn idempotency_mismatch() -> Problem {
    let detail = "This Idempotency-Key was used for another order. Use a new key for a new order.";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch", detail)
}

/// 409: the order takes no payment, or no cancellation.
pub(crate) fn of_order(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Paid => Problem::conflict("order_paid", "This order is paid. Nothing is left to do."),
        Refusal::Expired => Problem::conflict("order_expired", "The time to pay for this order is over."),
        Refusal::Cancelled => Problem::conflict("order_cancelled", "This order was cancelled."),
        Refusal::NotPaid => Problem::conflict(
            "order_not_paid",
            "Nothing was paid for this order that could go back. To end an order that waits for payment, cancel it.",
        ),
        Refusal::Reclaiming => Problem::conflict(
            "order_reclaiming",
            "This order was paid after it had expired, and units are being reclaimed for it. In a moment it is paid, or \
             its money goes back by itself. Ask again then.",
        ),
        Refusal::TooManyAttempts => Problem::conflict(
            "too_many_attempts",
            "Too many payments of this order failed. Cancel it and order again.",
        ),
    }
}

/// The same as an operator is told.
pub(crate) fn of_act(refusal: Refusal) -> Problem {
    let detail = match refusal {
        Refusal::Paid => "This order is paid. To give the money back, refund it: lockgate sale refund.",
        Refusal::Expired => {
            "This order has ended already; what was paid for it too late has units or goes back by itself."
        }
        Refusal::Cancelled => "This order is cancelled already.",
        Refusal::NotPaid | Refusal::Reclaiming | Refusal::TooManyAttempts => return of_order(refusal),
    };
    Problem { detail: detail.into(), ..of_order(refusal) }
}

/// 404 `no_such_order`, as an operator is told.
pub(crate) fn no_such_order() -> Problem {
    let detail = "There is no order with this id. Orders are found by account, address or unit: POST \
                  /operator/v1/sales/{sale}/orders/search.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_order", detail)
}

/// 503 `stock_unavailable`, because too many claims wait to become orders.
pub(crate) fn orders_behind(retry_after_seconds: u32) -> Problem {
    let detail =
        "Orders are being written as fast as they can. Keep your place and try again with the same key.";
    Problem::unavailable("stock_unavailable", detail)
        .with("reason", "orders_behind")
        .retry_after(retry_after_seconds)
}

/// 503 `order_not_ready`.
pub(crate) fn order_not_ready() -> Problem {
    let detail = "Your units are held; the order is being written. Try again in a moment.";
    Problem::unavailable("order_not_ready", detail).retry_after(1)
}

/// 404 `no_such_payment`.
pub(crate) fn no_such_payment() -> Problem {
    let detail = "There is no such payment. Open your order to see how it stands.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_payment", detail)
}

/// 404 `no_such_payment`, as an operator is told who strikes a parked one off.
pub(crate) fn nothing_parked() -> Problem {
    let detail = "Nothing is parked of this payment. It was struck off already, or its order came and was paid by it: GET \
                  /operator/v1/payments/parked lists what waits.";
    Problem::new(StatusCode::NOT_FOUND, "no_such_payment", detail)
}

/// 404 `no_such_message`.
pub(crate) fn no_such_message(message: MessageId) -> Problem {
    let detail = format!(
        "There is no dead message {message}. It may have been delivered meanwhile, or it waits to be tried again; GET \
         /operator/v1/outbox lists the dead ones."
    );
    Problem::new(StatusCode::NOT_FOUND, "no_such_message", detail)
}
