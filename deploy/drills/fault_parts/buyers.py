"""Buyers: from entering to a paid order, through whatever happens meanwhile, writing down every answer that binds."""
import asyncio, collections, json, time, urllib.parse

from .fleet import SALE
from .http_client import Connection, NoAnswer

# What a buyer does with a claim that was won, and how many of a hundred do it.
PLANS = {"pay": 50, "fail_then_pay": 10, "fail": 8, "abandon": 10, "abandon_at_the_gateway": 6, "pay_late": 6, "cancel": 10}
# How long a buyer tries to pay or to cancel before the tab is closed.
PATIENCE_SECONDS = 15
# Answers that the contract names, beyond 2xx and 3xx. 429 and 503 are for everybody.
REFUSALS = {
    "enter": set(), "admit": {(409, "not_your_turn"), (410, "turn_missed")},
    "claim": {(409, "sold_out"), (409, "limit_reached"), (409, "in_progress"), (409, "line_up_again"), (403, "token_expired")},
    "pay": {(409, "order_expired"), (409, "order_paid"), (409, "order_cancelled"), (409, "too_many_attempts")},
    "finish": set(), "order": set(), "callback": set(), "pay_ahead": set(),
    "cancel": {(409, "order_expired"), (409, "order_paid"), (409, "order_cancelled")},
}


class Claim:
    """A claim that was answered with 202, and what its buyer was told since."""

    def __init__(self, key, item, answer):
        self.key, self.item, self.order = key, item, answer["order_id"]
        self.units, self.amount, self.access_key = answer["units"], answer["amount"], answer["access_key"]
        self.expires_at, self.told, self.paid_at_gateway = answer["hold_expires_at"], None, False
        self.answered_at, self.is_lost = time.time(), False


class Buyers:
    """`at_once` buyers at any time, each a new account, until told to stop."""

    plans = PLANS

    def __init__(self, fleet, rng, at_once, forgiven=()):
        self.fleet, self.rng, self.at_once = fleet, rng, at_once
        self.claims, self.answers, self.wrong = [], collections.Counter(), []
        self.unanswered, self.is_stopped, self.waiting, self.tasks = 0, False, [], []
        # Refusals (status and code) that a drill's own fault makes right; buyers try again.
        self.forgiven = set(forgiven)
        self.number = 0

    def start(self):
        self.tasks = [asyncio.create_task(self.shop()) for _ in range(self.at_once)]
        return self

    async def stop(self, seconds=20):
        """No new buyers; those under way finish or are given up after `seconds`."""
        self.is_stopped = True
        _, late = await asyncio.wait(self.tasks, timeout=seconds)
        # A cancellation can be lost on a call that ends in the same moment (asyncio.wait_for); it is repeated until it is heard.
        while late:
            for task in late:
                task.cancel()
            _, late = await asyncio.wait(late, timeout=1)
        for done in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(done, Exception) and not isinstance(done, asyncio.CancelledError):
                self.wrong.append(f"a buyer broke: {done!r}")

    async def first(self, kind, since, seconds, port=None):
        """How long after `since` a call of this kind (to this port) succeeded that was sent after it; None if none did
        in time."""
        found = asyncio.get_running_loop().create_future()
        self.waiting.append((kind, since, port, found))
        try:
            return await asyncio.wait_for(found, seconds) - since
        except asyncio.TimeoutError:
            return None

    def refused_since(self, process):
        """Whether, from now on, a call had to be answered 503, or the process ended itself."""
        count = lambda: sum(n for answer, n in self.answers.items() if " 503 " in answer)
        before = count()

        async def is_refused():
            return count() > before or not process.is_alive()
        return is_refused

    def succeeded(self, kind, sent, port):
        for wanted, since, at, found in self.waiting:
            if wanted == kind and sent >= since and at in (None, port) and not found.done():
                found.set_result(time.monotonic())
        self.waiting = [waiting for waiting in self.waiting if not waiting[3].done()]

    def note(self, kind, answer):
        """Counts an answer and looks whether the contract has it."""
        code = answer.code if answer.status >= 400 else ""
        self.answers[f"{kind} {answer.status} {code}".strip()] += 1
        known = {200, 201, 202, 303, *REFUSALS[kind], *self.forgiven, (503, code), (429, code)}
        if answer.status not in known and (answer.status, code) not in known:
            self.wrong.append(f"{kind} was answered {answer.status} {code or answer.body[:80]!r}")
        if answer.status in (429, 503) and answer.told_seconds is None:
            self.wrong.append(f"{kind} was answered {answer.status} {code} without Retry-After")

    async def ask(self, own, kind, method, path, **call):
        """One call; None when there is no answer."""
        port, sent = self.fleet.port_for(path), time.monotonic()
        connection = own.setdefault(port, Connection(port))
        try:
            answer = await connection.call(method, path, **call)
        except NoAnswer:
            self.answers[f"{kind} no answer"] += 1
            return None
        self.note(kind, answer)
        if answer.status < 400:
            self.succeeded(kind, sent, port)
        return answer

    async def insist(self, own, kind, method, path, patience_seconds=None, **call):
        """The same call until there is an answer that decides something, or nobody waits for it any more (None)."""
        end = time.monotonic() + patience_seconds if patience_seconds else None
        while end is None or time.monotonic() < end:
            answer = await self.ask(own, kind, method, path, **call)
            if answer is not None and answer.status not in (429, 503) and answer.code not in ("not_your_turn", "in_progress") \
                    and (answer.status, answer.code) not in self.forgiven:
                return answer
            # People obey Retry-After; these stay a little closer, so that the moment of recovery is seen.
            told = (answer.told_seconds or 0) if answer is not None else 0
            await asyncio.sleep(min(told, 1) * 0.5 + 0.05 + self.rng.random() * 0.2)

    async def shop(self):
        while not self.is_stopped:
            own = {}
            try:
                await self.buy(own)
            finally:
                for connection in own.values():
                    connection.close()

    async def buy(self, own):
        self.number += 1
        key = f"buyer-{self.number:08}-{self.rng.getrandbits(48):012x}"
        entered = await self.insist(own, "enter", "POST", f"/sale/{SALE}/enter", headers={"idempotency-key": key})
        bearer = {"authorization": f"Bearer {entered.json().get('ticket', '')}"}
        admitted = await self.insist(own, "admit", "POST", f"/sale/{SALE}/admit", headers=bearer)
        if admitted.status != 200:
            return
        claim = await self.claim(own, key, admitted.json()["token"])
        if claim is not None:
            plan = self.rng.choices(list(self.plans), list(self.plans.values()))[0]
            await getattr(self, plan)(own, claim)

    async def claim(self, own, key, token):
        item = "scarce" if self.rng.random() < 0.3 else "plenty"
        wish = {"headers": {"authorization": f"Bearer {token}", "idempotency-key": key},
                "body": {"item": item, "quantity": self.rng.choice([1, 1, 1, 2, 3])}}
        path = f"/sale/{SALE}/checkout"
        self.unanswered += 1
        answer = await self.insist(own, "claim", "POST", path, **wish)
        self.unanswered -= 1
        if answer.status != 202:
            if item == "plenty" and answer.code == "sold_out":
                self.wrong.append("plenty was said to be sold out")
            return None
        claim = Claim(key, item, answer.json())
        self.claims.append(claim)
        if len(set(claim.units)) != wish["body"]["quantity"]:
            self.wrong.append(f"order {claim.order}: {wish['body']['quantity']} units were asked for, {claim.units} answered")
        if self.rng.random() < 0.2:
            again = await self.insist(own, "claim", "POST", path, **wish)
            if again.status != 202 or (again.json()["order_id"], again.json()["units"]) != (claim.order, claim.units):
                self.wrong.append(f"order {claim.order}: the same key was answered {again.status} {again.body[:200]!r}")
        return claim

    async def page_of(self, own, claim):
        """Starts or resumes the payment: the gateway's page, or None when the order takes none."""
        bearer = {"authorization": f"Bearer {claim.access_key}"}
        answer = await self.insist(own, "pay", "POST", f"/orders/{claim.order}/pay", PATIENCE_SECONDS, headers=bearer)
        if answer is None or answer.status != 200:
            return None
        return urllib.parse.urlsplit(answer.json()["redirect_url"]).path

    async def finish(self, own, claim, outcome):
        page = await self.page_of(own, claim)
        if page is not None:
            await self.at_gateway(own, claim, page, outcome)
        return page

    async def at_gateway(self, own, claim, page, outcome):
        answer = await self.insist(own, "finish", "POST", page, PATIENCE_SECONDS, form=f"outcome={outcome}")
        claim.paid_at_gateway |= answer is not None and outcome == "paid"

    async def watch(self, own, claim, looks=8):
        """Looks at the order for a while, as a page would."""
        bearer = {"authorization": f"Bearer {claim.access_key}"}
        for _ in range(looks):
            answer = await self.ask(own, "order", "GET", f"/orders/{claim.order}", headers=bearer)
            if answer is not None and answer.status == 200:
                claim.told = answer.json()["state"]
                if claim.told not in ("placing", "awaiting_payment"):
                    return
            await asyncio.sleep(0.3)

    async def pay(self, own, claim):
        await self.finish(own, claim, "paid")
        await self.watch(own, claim)

    async def fail(self, own, claim):
        await self.finish(own, claim, "failed")

    async def fail_then_pay(self, own, claim):
        if await self.finish(own, claim, "failed") is not None:
            await self.pay(own, claim)

    async def abandon(self, own, claim):
        pass

    async def abandon_at_the_gateway(self, own, claim):
        await self.page_of(own, claim)

    async def pay_late(self, own, claim):
        """Presses the button about when the hold runs out."""
        page = await self.page_of(own, claim)
        if page is not None:
            wait = self.fleet.hold_seconds - (time.time() - claim.answered_at) + self.rng.uniform(-1.0, 1.5)
            await asyncio.sleep(max(0.0, wait))
            await self.at_gateway(own, claim, page, "paid")
            await self.watch(own, claim)

    async def cancel(self, own, claim):
        bearer = {"authorization": f"Bearer {claim.access_key}"}
        if self.rng.random() < 0.5:
            await self.page_of(own, claim)
        answer = await self.insist(own, "cancel", "POST", f"/orders/{claim.order}/cancel", PATIENCE_SECONDS,
                                   headers=bearer)
        if answer is not None and answer.status == 200:
            claim.told = answer.json().get("state")

    def write_down(self, path):
        path.write_text("".join(json.dumps(vars(claim)) + "\n" for claim in self.claims))
