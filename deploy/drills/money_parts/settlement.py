"""The account of a drill: the gateway's own ledger, the orders, the stock's books and what buyers were told, held against
one another. Nothing here asks Lockgate whether it agrees with itself: the sums are made from the rows."""
import asyncio, collections, contextlib, sqlite3, time

from fault_parts import account

OVER = "('paid', 'expired', 'cancelled', 'refunded')"
TABLES = {
    "payments": "SELECT id, order_id, state, paid_amount FROM payments",
    "anomalies": "SELECT order_id, kind FROM anomalies",
    "dead": "SELECT event, problem FROM dead_letters",
}
LEDGER = "SELECT id, order_id, amount, state, refund_calls FROM payments"
WEBHOOKS = "SELECT count(*) AS n FROM webhooks"


class Settled:
    """What everything came to when it was at rest. `differences` is empty where all of it agrees."""

    def __init__(self):
        self.differences, self.states, self.sold = [], collections.Counter(), 0
        self.money_in = self.money_back = self.price_of_paid = self.refunds = self.refund_calls = self.late = 0


async def rest(shop, seconds):
    """Waits until nothing is under way: no order, no hold, no webhook. Answers what is left after `seconds`, in words, or
    nothing."""
    moving = (f"SELECT state, gate, count(*) AS n FROM orders WHERE sale = '{shop.sale}' AND (unsettled OR state NOT IN {OVER}) "
              "GROUP BY state, gate")
    end, left = time.monotonic() + seconds, "the books were never read"
    while time.monotonic() < end:
        with contextlib.suppress(sqlite3.Error):
            books, under_way = await shop.books(), await shop.rows(moving)
            webhooks = account.rows_of(shop.ledger, WEBHOOKS)[0]["n"]
            if books is not None and under_way is not None:
                held = sum(item["held"] for item in books["items"])
                if books["balanced"] and held == 0 and not under_way and webhooks == 0:
                    return None
                words = ", ".join(f"{row['n']} {row['state']}/{row['gate']}" for row in under_way)
                left = (f"after {seconds:.0f} s {held} units are held, orders not over: {words or 'none'}, {webhooks} webhooks "
                        f"not delivered, balanced: {books['balanced']}")
        await asyncio.sleep(0.3)
    return left


def told_late(claims, orders, moved):
    """Whoever paid late may have been told `expired` first, and may have been given other units of the item: as many."""
    differences = []
    for claim in claims:
        order = orders.get(claim.order)
        if order is None or claim.order not in moved:
            continue
        if len(order["units"]) != len(claim.units):
            differences.append(f"order {claim.order}: {len(claim.units)} units were claimed, {len(order['units'])} reclaimed")
        claim.units = order["units"]
        if claim.told == "expired":
            claim.told = None
    return differences


def sums(orders, payments, ledger):
    """Money in and out against what is paid for; each refund that is owed was made, and none that is not."""
    differences, found = [], Settled()
    for order in orders.values():
        found.states[order["state"]] += 1
        found.price_of_paid += order["amount"] if order["state"] == "paid" else 0
    for entry in ledger:
        found.money_in += entry["amount"] if entry["state"] in ("paid", "refunded") else 0
        found.money_back += entry["amount"] if entry["state"] == "refunded" else 0
        found.refunds += entry["state"] == "refunded"
        found.refund_calls += entry["refund_calls"]
    if found.money_in - found.money_back != found.price_of_paid:
        differences.append(f"{found.money_in} came in, {found.money_back} went back, and paid orders cost {found.price_of_paid}")
    back = {entry["id"]: entry for entry in ledger if entry["state"] == "refunded"}
    counted = {payment["id"]: payment for payment in payments if payment["state"] == "refunded"}
    for id in back.keys() - counted.keys():
        differences.append(f"payment {id} was given back at the gateway and does not count as refunded")
    for id in back.keys() & counted.keys():
        if back[id]["amount"] != counted[id]["paid_amount"]:
            differences.append(f"payment {id}: {counted[id]['paid_amount']} were owed, {back[id]['amount']} given back")
    differences += [f"payment {payment['id']} is owed and was not given back" for payment in payments
                    if payment["state"] == "refund_due"]
    known = {payment["id"]: payment["state"] for payment in payments}
    differences += [f"payment {entry['id']} was taken and is {known.get(entry['id'], 'unknown')} here" for entry in ledger
                    if entry["state"] == "paid" and known.get(entry["id"]) != "succeeded"]
    found.differences = differences
    return found


async def settle(shop, claims, seconds, wrong=()):
    """Waits until everything is at rest, for `seconds` at most, and settles the account."""
    left = await rest(shop, seconds)
    query = f"SELECT id, item, units, amount, state, gate, unsettled FROM orders WHERE sale = '{shop.sale}'"
    rows = await shop.rows(query)
    tables = {name: await shop.rows(query) for name, query in TABLES.items()}
    books = await shop.books()
    ledger = account.rows_of(shop.ledger, LEDGER)
    if rows is None or None in tables.values():
        broken = Settled()
        broken.differences = ["the orders cannot be read"]
        return broken
    orders = {row["id"]: {**row, "units": sorted(int(unit) for unit in row["units"].split(","))} for row in rows}
    # Also whoever got no units after all was told `expired` first, and has the money back.
    moved = {row["order_id"] for row in tables["anomalies"] if row["kind"] in ("paid_late", "reclaimed")}
    found = sums(orders, tables["payments"], ledger)
    found.late = sum(row["kind"] == "paid_late" for row in tables["anomalies"])
    of_units, found.sold = account.units(orders, books, shop.stock)
    found.differences += ([left] if left else []) + told_late(claims, orders, moved) + account.told(claims, orders) + of_units \
        + account.money(claims, orders, tables["payments"], ledger) \
        + [f"a dead letter: {letter['problem']}" for letter in tables["dead"]] + list(wrong)
    return found
