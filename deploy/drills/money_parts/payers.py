"""Buyers whose payments meet a gateway that misbehaves: they return to the shop as it says, pay when it is too late, or
before the shop has asked."""
import asyncio, collections, time, urllib.parse

from fault_parts.buyers import Buyers, PATIENCE_SECONDS
from fault_parts.fleet import KEY

AHEAD = "/simulated-gateway/paid-ahead"


class Payers(Buyers):
    """`plans` is how many of a hundred do what with a claim that was won."""

    def __init__(self, *given, plans, looks=8, **more):
        super().__init__(*given, **more)
        self.plans, self.looks, self.fates = plans, looks, collections.Counter()

    async def at_gateway(self, own, claim, page, outcome):
        answer = await self.insist(own, "finish", "POST", page, PATIENCE_SECONDS, form=f"outcome={outcome}")
        if answer is None:
            return
        claim.paid_at_gateway |= outcome == "paid"
        if answer.status == 303:
            back = urllib.parse.urlsplit(answer.headers["location"])
            await self.ask(own, "callback", "GET", f"{back.path}?{back.query}")
        else:
            self.fates["callback dropped"] += 1

    async def watch(self, own, claim, looks=None):
        await super().watch(own, claim, looks or self.looks)

    async def pay_after_hold(self, own, claim):
        """Has the page open and presses the button when the order has ended."""
        page = await self.page_of(own, claim)
        if page is not None:
            wait = self.fleet.hold_seconds - (time.time() - claim.answered_at) + self.rng.uniform(1.0, 2.5)
            await asyncio.sleep(max(0.0, wait))
            self.fates["paid after the hold"] += 1
            await self.at_gateway(own, claim, page, "paid")
            await self.watch(own, claim)

    async def pay_wrongly_first(self, own, claim):
        """A wrong amount arrives at the gateway, which must go back; then the buyer pays as asked."""
        body = {"order": claim.order, "price": {"amount": claim.amount + 1, "currency": "EUR"}}
        await self.ask(own, "pay_ahead", "POST", AHEAD, headers={"authorization": f"Bearer {KEY}"}, body=body)
        await self.pay(own, claim)

    async def pay_ahead(self, own, claim):
        """Pays at the gateway before the shop has asked for anything; looks whether the order was there already."""
        bearer = {"authorization": f"Bearer {claim.access_key}"}
        body = {"order": claim.order, "price": {"amount": claim.amount, "currency": "EUR"}}
        answer = await self.ask(own, "pay_ahead", "POST", AHEAD, headers={"authorization": f"Bearer {KEY}"}, body=body)
        if answer is not None:
            claim.paid_at_gateway = answer.status == 200
            seen = await self.ask(own, "order", "GET", f"/orders/{claim.order}", headers=bearer)
            if seen is not None and seen.json().get("state") == "placing":
                self.fates["paid before the order was there"] += 1
            await self.watch(own, claim)
