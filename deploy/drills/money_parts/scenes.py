"""The drills: what the gateway does, what buyers do, and how long."""
import asyncio, time

from fault_parts.account import orders_of, rows_of
from fault_parts.fleet import KEY, PLENTY, SALE, SCARCE, Fleet
from fault_parts.http_client import Connection
from fault_parts.processes import until

from .payers import Payers
from .settlement import Settled, settle

PLANS = {"pay": 60, "fail_then_pay": 10, "fail": 6, "abandon": 6, "abandon_at_the_gateway": 6, "pay_late": 6, "cancel": 6}
LATE_PLANS = {"pay": 45, "pay_after_hold": 35, "abandon_at_the_gateway": 10, "pay_late": 10}
AHEAD_PLANS = {"pay_ahead": 70, "pay": 20, "abandon": 10}


class FleetShop:
    """A fleet of roles, as the settlement reads it."""

    def __init__(self, fleet):
        self.fleet, self.sale, self.stock = fleet, SALE, {"scarce": SCARCE, "plenty": PLENTY}
        command = fleet.gateway.command
        self.ledger = command[command.index("--data") + 1] + "/simulated-gateway.db"

    async def rows(self, query):
        return await orders_of(self.fleet, query)

    async def books(self):
        return await self.fleet.books()


class Drill:
    """What a drill has to do with: its fleet, its buyers, its dice, and what it found."""

    def __init__(self, name, binary, rng, is_short, say):
        self.name, self.binary, self.rng, self.is_short, self.say = name, binary, rng, is_short, say
        self.began, self.settled, self.differences = time.monotonic(), Settled(), []
        self.fleet = self.payers = None

    def tell(self, words):
        so_far = len(self.payers.claims) if self.payers else 0
        self.say(f"  {time.monotonic() - self.began:6.1f} s  {so_far:5} claims  {words}")

    async def open(self, behaviour, hold_seconds, plans=None, at_once=32, looks=8, forgiven=(), **fleet):
        self.fleet = Fleet(self.binary, self.rng, hold_seconds, **fleet)
        await self.fleet.start()
        await self.behave(**behaviour)
        self.payers = Payers(self.fleet, self.rng, at_once, forgiven, plans=plans or PLANS, looks=looks).start()
        self.tell(f"buyers buy; the gateway: {behaviour or 'as it should'}, holds of {hold_seconds} s")

    async def behave(self, **knobs):
        call = Connection(self.fleet.gateway.port).call
        answer = await call("PUT", "/simulated-gateway/behaviour", {"authorization": f"Bearer {KEY}"}, body=knobs)
        if answer.status != 200:
            raise RuntimeError(f"the gateway refused {knobs}: {answer.body!r}")

    async def go_on(self, long, short):
        await asyncio.sleep(short if self.is_short else long)

    async def finish(self, patience_seconds=10, settle_seconds=60, least=20):
        """Buyers go home; everything comes to rest, and the account is settled."""
        await self.payers.stop(patience_seconds)
        self.tell(f"no more buyers; {', '.join(f'{n} {what}' for what, n in self.payers.fates.items()) or 'all as planned'}")
        self.settled = await settle(FleetShop(self.fleet), self.payers.claims, self.fleet.hold_seconds + settle_seconds,
                                    self.payers.wrong)
        self.differences += self.settled.differences
        if self.settled.states["paid"] < least:
            self.differences.append(f"only {self.settled.states['paid']} orders were paid: this run proves nothing")
        self.tell(f"settled: {self.settled.states['paid']} orders paid, {self.settled.refunds} refunds, "
                  f"{len(self.differences)} differences")

    async def until_a_refund_is_asked_for(self, seconds):
        ledger, end = FleetShop(self.fleet).ledger, time.monotonic() + seconds
        asked = "SELECT coalesce(sum(refund_calls), 0) AS n FROM payments"
        while rows_of(ledger, asked)[0]["n"] == 0 and time.monotonic() < end:
            await asyncio.sleep(0.2)

    def check_lost_refunds(self):
        if self.settled.refund_calls <= self.settled.refunds:
            self.differences.append("no refund was asked for twice: this run proves nothing")

    def close(self):
        for task in self.payers.tasks if self.payers else []:
            task.cancel()
        if self.fleet:
            self.fleet.keep = bool(self.differences)
            if self.payers:
                self.payers.write_down(self.fleet.folder / "claims.jsonl")
                answers = sorted(self.payers.answers.items())
                (self.fleet.folder / "answers.txt").write_text("".join(f"{n:7} {answer}\n" for answer, n in answers))
            self.fleet.close()


async def latency(drill):
    """Every call of the gateway and every payment takes 5 s."""
    await drill.open({"latency_ms": 5_000}, hold_seconds=20, at_once=64, looks=40)
    await drill.go_on(45, 15)
    await drill.finish(patience_seconds=25)


async def failures(drill):
    """30 % of the gateway's calls fail, half of them after they took effect."""
    await drill.open({"failure_share": 0.3}, hold_seconds=8)
    await drill.go_on(25, 6)
    await drill.finish()


async def duplicates(drill):
    """Every webhook comes five times."""
    await drill.open({"duplicate_webhooks": 4}, hold_seconds=6)
    await drill.go_on(20, 5)
    await drill.finish()


async def early(drill):
    """Webhooks come before the order is there: orders are taken in slower than claims are won."""
    await drill.open({}, hold_seconds=60, plans=AHEAD_PLANS, looks=100, orders__pace_per_second=8)
    await drill.go_on(15, 6)
    await drill.finish(patience_seconds=30)
    if not drill.payers.fates["paid before the order was there"]:
        drill.differences.append("no payment came before its order: this run proves nothing")


async def late(drill):
    """Webhooks come ten minutes late, hold and session long over, and nothing else tells: no callback; a third pays after the end."""
    delay_seconds = 12 if drill.is_short else 600
    knobs = {"webhook_delay_ms": delay_seconds * 1_000, "drop_callback": True, "late_success": True}
    await drill.open(knobs, hold_seconds=4, plans=LATE_PLANS)
    await drill.go_on(20, 6)
    await drill.finish(settle_seconds=60 + delay_seconds)
    if not drill.settled.late:
        drill.differences.append("no order was paid after its end: this run proves nothing")


async def callback(drill):
    """The buyer's return to the shop is lost."""
    await drill.open({"drop_callback": True}, hold_seconds=6)
    await drill.go_on(20, 5)
    await drill.finish()


async def refund(drill):
    """Every answer to a refund is lost, after the money went back; then answers come again."""
    # Whoever pays late is mostly given units; a wrong amount always goes back.
    plans = {**LATE_PLANS, "pay_wrongly_first": 15}
    await drill.open({"lose_refund_answers": True, "late_success": True}, hold_seconds=4, plans=plans)
    await drill.go_on(25, 12)
    await drill.behave(late_success=True)
    drill.tell("answers to refunds come again")
    await drill.go_on(3, 1)
    await drill.finish()
    drill.check_lost_refunds()


async def down(drill):
    """The gateway is killed and away for a minute (4 s in short), twice as long as a hold."""
    away = 4 if drill.is_short else 60
    await drill.open({}, hold_seconds=away // 2)
    await drill.go_on(8, 4)
    await drill.fleet.gateway.kill()
    drill.tell(f"the gateway is down, for {away} s")
    await asyncio.sleep(away)
    drill.fleet.gateway.launch()
    await until("the gateway serves", drill.fleet.gateway.is_serving)
    drill.tell("the gateway is back")
    await drill.go_on(8, 4)
    await drill.finish(patience_seconds=20)


async def quick(drill):
    """A short run of three at once, all in one process: 30 % failures, every webhook five times, refunds' answers lost."""
    knobs = {"failure_share": 0.3, "duplicate_webhooks": 4, "late_success": True}
    await drill.open({**knobs, "lose_refund_answers": True}, hold_seconds=2, at_once=16, all_in_one=True,
                     plans={**PLANS, "pay_after_hold": 30, "pay_wrongly_first": 20})
    await asyncio.sleep(4)
    await drill.until_a_refund_is_asked_for(10)
    await drill.behave(**knobs)
    await drill.finish(patience_seconds=3, settle_seconds=30, least=5)
    drill.check_lost_refunds()


DRILLS = {"latency": latency, "failures": failures, "duplicates": duplicates, "early": early, "late": late, "callback": callback,
          "refund": refund, "down": down}
ALONE = {"quick": quick}
