"""The settlement finds what it is there for: `python3 -m unittest discover -s deploy/drills/fault_parts -t deploy/drills`."""
import types, unittest

from fault_parts.account import money, told, units
from fault_parts.fleet import PLENTY, SCARCE


def claim(order, units, **more):
    return types.SimpleNamespace(**{"order": order, "units": units, "item": "plenty", "amount": 10 * len(units), "told": None,
                                    "paid_at_gateway": False, "answered_at": 100.0, **more})


def order(id, units, state="paid", **more):
    return {"id": id, "item": "plenty", "units": units, "amount": 10 * len(units), "state": state, **more}


def books(sold, **more):
    line = lambda item, stock, sold: {"item": item, "stock": stock, "available": stock - sold, "held": 0, "sold": sold, "difference": 0}
    return {"balanced": True, "items": [line("scarce", SCARCE, 0), {**line("plenty", PLENTY, sold), **more}]}


def payment(id, order, amount=10, state="paid"):
    return {"id": id, "order_id": order, "amount": amount, "state": state}


class Settlement(unittest.TestCase):
    def test_what_agrees_has_no_differences(self):
        orders = {"a": order("a", [1]), "b": order("b", [2], "expired"), "c": order("c", [2, 3], "refunded")}
        claims = [claim("a", [1], told="paid", paid_at_gateway=True), claim("b", [2]), claim("c", [2, 3], paid_at_gateway=True)]
        ledger = [payment("1", "a"), payment("2", "c", 20, "refunded")]
        self.assertEqual(told(claims, orders), [])
        self.assertEqual(units(orders, books(1)), ([], 1))
        self.assertEqual(money(claims, orders, [{"id": "2", "order_id": "c", "state": "refunded"}], ledger), [])

    def test_what_buyers_were_told_stands(self):
        orders = {"a": order("a", [1]), "b": order("b", [2], "expired")}
        self.assertEqual(len(told([claim("gone", [9])], orders)), 1)
        self.assertEqual(len(told([claim("a", [1]), claim("a", [1])], orders)), 1)
        self.assertEqual(len(told([claim("a", [4])], orders)), 1)
        self.assertEqual(len(told([claim("b", [2], told="paid")], orders)), 1)

    def test_only_the_last_moments_are_lost_with_the_data(self):
        recent, old = claim("gone", [9]), claim("gone too", [8], answered_at=90.0)
        self.assertEqual(len(told([recent, old], {}, lost_at=100.5)), 1)
        self.assertEqual((recent.is_lost, old.is_lost), (True, False))

    def test_no_unit_has_two_owners_and_none_is_lost(self):
        twice = {"a": order("a", [1]), "b": order("b", [1, 2])}
        self.assertEqual(len(units(twice, books(3))[0]), 1)
        one = {"a": order("a", [1])}
        self.assertEqual(len(units(one, books(2))[0]), 1)
        self.assertEqual(len(units(one, books(1, available=PLENTY))[0]), 1)
        self.assertEqual(len(units(one, {**books(1), "balanced": False})[0]), 1)
        self.assertEqual(len(units(one, None)[0]), 1)

    def test_nobody_pays_for_nothing_and_nobody_gets_anything_unpaid(self):
        for state in ("expired", "cancelled", "awaiting_payment"):
            self.assertEqual(len(money([], {"a": order("a", [1], state)}, [], [payment("1", "a")])), 1)
        paid = {"a": order("a", [1])}
        self.assertEqual(len(money([], paid, [], [])), 1)
        self.assertEqual(len(money([], paid, [], [payment("1", "a"), payment("2", "a")])), 1)
        self.assertEqual(len(money([], paid, [], [payment("1", "a", 11)])), 1)
        self.assertEqual(len(money([], {}, [], [payment("1", "gone")])), 1)
        self.assertEqual(len(money([], {"a": order("a", [1], "refund_due")}, [], [payment("1", "a", state="refunded")])), 1)
        refunded = {"a": order("a", [1], "refunded")}
        counted = [{"id": "1", "order_id": "a", "state": "refunded"}]
        # Counted as given back, but the gateway still has it: seen from either side.
        self.assertEqual(len(money([], refunded, counted, [payment("1", "a")])), 2)


if __name__ == "__main__":
    unittest.main()
