"""The account finds what it is there for: `python3 -m unittest discover -s deploy/drills/money_parts -t deploy/drills`."""
import types, unittest

from money_parts.settlement import sums, told_late


def order(id, units=(1,), state="paid", amount=10):
    return {"id": id, "item": "plenty", "units": list(units), "amount": amount, "state": state}


def entry(id, order, state="paid", amount=10, refund_calls=0):
    return {"id": id, "order_id": order, "amount": amount, "state": state, "refund_calls": refund_calls}


def payment(id, order, state="succeeded", amount=10):
    return {"id": id, "order_id": order, "state": state, "paid_amount": amount}


class Account(unittest.TestCase):
    def differences(self, orders, payments, ledger):
        return sums({order["id"]: order for order in orders}, payments, ledger).differences

    def test_money_that_agrees_has_no_differences(self):
        orders = [order("a"), order("b", [2], "refunded"), order("c", [2], "expired")]
        payments = [payment("1", "a"), payment("2", "b", "refunded"), payment("3", "c", "unpayable", None)]
        ledger = [entry("1", "a"), entry("2", "b", "refunded", refund_calls=3), entry("3", "c", "cancelled")]
        found = sums({each["id"]: each for each in orders}, payments, ledger)
        self.assertEqual(found.differences, [])
        self.assertEqual((found.money_in, found.money_back, found.price_of_paid), (20, 10, 10))
        self.assertEqual((found.refunds, found.refund_calls, found.states["paid"]), (1, 3, 1))

    def test_somebody_charged_for_nothing_is_found(self):
        found = self.differences([order("a", state="expired")], [payment("1", "a", "unpayable", None)], [entry("1", "a")])
        self.assertEqual(len(found), 2)

    def test_an_order_that_nobody_paid_is_found(self):
        self.assertEqual(len(self.differences([order("a")], [payment("1", "a")], [entry("1", "a", "open")])), 1)

    def test_a_refund_that_was_not_owed_or_not_made_is_found(self):
        refunded, kept = entry("1", "a", "refunded"), entry("1", "a")
        self.assertEqual(len(self.differences([order("a")], [payment("1", "a")], [refunded])), 2)
        self.assertEqual(len(self.differences([order("a", state="refunded")], [payment("1", "a", "refund_due")], [kept])), 3)
        less = self.differences([order("a", state="refunded")], [payment("1", "a", "refunded")], [{**refunded, "amount": 9}])
        self.assertEqual(len(less), 1)

    def test_only_whoever_paid_late_may_be_moved_and_to_as_many(self):
        claim = lambda: types.SimpleNamespace(order="a", units=[7, 8], told="expired")
        moved, few = claim(), claim()
        self.assertEqual(told_late([moved], {"a": order("a", [1, 2])}, {"a"}), [])
        self.assertEqual((moved.units, moved.told), ([1, 2], None))
        self.assertEqual(len(told_late([few], {"a": order("a", [1])}, {"a"})), 1)
        kept = claim()
        self.assertEqual(told_late([kept], {"a": order("a", [1, 2])}, set()), [])
        self.assertEqual((kept.units, kept.told), ([7, 8], "expired"))


if __name__ == "__main__":
    unittest.main()
