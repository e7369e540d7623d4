"""The settlement: everything buyers were told against the orders, the stock and the gateway's ledger. Each line of
`differences` is one thing that does not agree; an empty list is what a drill is for."""
import asyncio, collections, contextlib, json, sqlite3, time, uuid

from .fleet import PLENTY, SALE, SCARCE

ORDERS = "SELECT id, item, units, amount, state, gate, unsettled FROM orders WHERE sale = '" + SALE + "'"
PAYMENTS = "SELECT id, order_id, state, paid_amount FROM payments"
DEAD = "SELECT event, problem FROM dead_letters"
# Longest an answered claim may be known to the stock's store alone.
INTAKE_SECONDS = 2
OVER = {"paid", "expired", "cancelled", "refunded"}


def text_of(value):
    return str(uuid.UUID(bytes=value)) if isinstance(value, bytes) else value


def rows_of(path, query):
    """The rows of a SQLite file that is in use."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as db:
        db.row_factory = sqlite3.Row
        return [{name: text_of(row[name]) for name in row.keys()} for row in db.execute(query)]


async def orders_of(fleet, query):
    """Rows of the orders' store; None while it cannot be asked."""
    if fleet.all_in_one:
        try:
            return rows_of((fleet.disk or fleet.folder) / "all-in-one" / "lockgate.db", query)
        except sqlite3.Error:
            return None
    rows = await fleet.postgres.rows(query)
    return None if rows is None else [json.loads(row) for row in rows]


async def quiet(fleet, seconds):
    """Waits until nothing is under way: every order is over and told to the gate, and no unit is held. Answers what is
    left after `seconds`, in words, or nothing."""
    end, left = time.monotonic() + seconds, "the books were never read"
    while time.monotonic() < end:
        books, orders = await fleet.books(), await orders_of(fleet, ORDERS)
        if books is not None and orders is not None:
            held = sum(item["held"] for item in books["items"])
            moving = [order for order in orders if order["unsettled"] or order["state"] not in OVER]
            if books["balanced"] and held == 0 and not moving:
                return None
            left = (f"after {seconds:.0f} s {held} units are held, {len(moving)} orders are not over "
                    f"({dict(collections.Counter(order['state'] + '/' + order['gate'] for order in moving))}), "
                    f"balanced: {books['balanced']}")
        await asyncio.sleep(0.3)
    return left


def told(claims, orders, lost_at=None):
    """Every 202 has its one order, with the units it named; whoever was told an end has that end. Where a store lost all
    its data at `lost_at`, what it alone knew is lost: claims answered in the last seconds before."""
    differences = []
    for order, times in collections.Counter(claim.order for claim in claims).items():
        if times > 1:
            differences.append(f"order {order} was given to {times} buyers")
    for claim in claims:
        order = orders.get(claim.order)
        claim.is_lost = order is None and lost_at is not None and -INTAKE_SECONDS < claim.answered_at - lost_at < 0.5
        if claim.is_lost:
            continue
        if order is None:
            differences.append(f"order {claim.order} was answered with 202 and is nowhere")
            continue
        if order["units"] != sorted(claim.units) or order["item"] != claim.item or order["amount"] != claim.amount:
            differences.append(f"order {claim.order}: told {claim.item} {claim.units}, written {order['item']} {order['units']}")
        if claim.told in ("paid", "refunded", "expired", "cancelled") and claim.told != order["state"] \
                and order["state"] not in ("refund_due", "refunded"):
            differences.append(f"order {claim.order}: its buyer was told {claim.told}, it is {order['state']}")
    return differences


def units(orders, books, stock=None):
    """No unit has two owners; what the gate counts as sold is what is paid for; everything else is back."""
    differences, owners = [], {}
    sold = collections.Counter()
    for order in orders.values():
        if order["state"] not in ("paid", "awaiting_payment", "refund_due"):
            continue
        sold[order["item"]] += len(order["units"])
        for unit in order["units"]:
            first = owners.setdefault((order["item"], unit), order["id"])
            if first != order["id"]:
                differences.append(f"{order['item']} {unit} belongs to {first} and {order['id']}")
    if books is None:
        return [*differences, "the books cannot be read"], sum(sold.values())
    stock = stock or {"scarce": SCARCE, "plenty": PLENTY}
    for item in books["items"]:
        name = item["item"]
        if item["difference"] or item["stock"] != stock[name] or item["available"] + item["held"] + item["sold"] != item["stock"]:
            differences.append(f"the books of {name} do not add up: {item}")
        if item["sold"] != sold[name]:
            differences.append(f"{name}: the gate has sold {item['sold']}, {sold[name]} are paid for")
        if sold[name] > stock[name]:
            differences.append(f"{name}: {sold[name]} sold of {stock[name]}")
    if not books["balanced"]:
        differences.append("the books do not balance")
    return differences, sum(sold.values())


def money(claims, orders, payments, ledger):
    """Whoever was charged has the units or the money back; whoever has the units paid for them, once."""
    differences, charged = [], collections.Counter()
    for payment in ledger:
        if payment["state"] != "paid":
            continue
        order = orders.get(payment["order_id"])
        charged[payment["order_id"]] += 1
        if order is None or order["state"] != "paid":
            differences.append(f"payment {payment['id']} was taken for order {payment['order_id']}, which is "
                               f"{order['state'] if order else 'nowhere'}")
        elif payment["amount"] != order["amount"]:
            differences.append(f"order {order['id']} costs {order['amount']}, {payment['amount']} were taken")
    for order in orders.values():
        if order["state"] == "paid" and charged[order["id"]] != 1:
            differences.append(f"order {order['id']} is paid, by {charged[order['id']]} payments of the gateway")
        if order["state"] == "refund_due":
            differences.append(f"order {order['id']} waits for its refund")
    back = {payment["id"] for payment in ledger if payment["state"] == "refunded"}
    for payment in payments:
        if payment["state"] == "refunded" and payment["id"] not in back:
            differences.append(f"payment {payment['id']} counts as refunded, the gateway has not given it back")
    in_order = {claim.order for claim in claims if claim.paid_at_gateway}
    for order in in_order & orders.keys():
        if not charged[order] and not any(payment["order_id"] == order for payment in ledger):
            differences.append(f"order {order} was paid at the gateway, whose ledger does not know it")
    return differences


async def settle(fleet, buyers, seconds, lost_at=None):
    """The differences, and how many units are sold."""
    left = await quiet(fleet, seconds)
    differences = [] if left is None else [left]
    rows, payments, dead = [await orders_of(fleet, query) for query in (ORDERS, PAYMENTS, DEAD)]
    if rows is None or payments is None or dead is None:
        return [*differences, "the orders cannot be read"], 0
    orders = {row["id"]: {**row, "units": sorted(int(unit) for unit in row["units"].split(","))} for row in rows}
    ledger = rows_of(fleet.gateway.command[fleet.gateway.command.index("--data") + 1] + "/simulated-gateway.db",
                     "SELECT id, order_id, amount, state FROM payments")
    of_units, sold = units(orders, await fleet.books())
    differences += told(buyers.claims, orders, lost_at) + of_units + money(buyers.claims, orders, payments, ledger)
    differences += [f"a dead letter: {letter['problem']}" for letter in dead]
    return differences + buyers.wrong, sold
