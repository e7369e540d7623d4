"""A whole Lockgate for a drill: roles, stores and gateway as processes of their own, or the all-in-one; one folder."""
import asyncio, os, pathlib, re, shutil, struct, subprocess, tempfile
from datetime import datetime, timedelta, timezone

from .http_client import Connection, NoAnswer
from .processes import Postgres, Redis, Role, Sentinel, until
from .proxy import LossyProxy

SALE = "drill"
KEY = "operator-key-for-drills-0123456789abcdef"
# Scarce is fought over from the first second and comes back unit by unit; plenty never sells out.
SCARCE, PLENTY = 40, 20_000


def sale(hold_seconds):
    at = lambda seconds: (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"""
id = "{SALE}"
name = "Drill"
doors_open_at = {at(-60)}
opens_at = {at(-30)}
closes_at = {at(7200)}
queueing_method = "fifo"
lanes = 8
entry = "open"
per_account_limit = 3
hold_seconds = {hold_seconds}
[admission]
rate_per_minute = 600000
burst = 10000
turn_seconds = 300
token_seconds = 1800
[[items]]
item = "scarce"
name = "Scarce"
stock = {SCARCE}
price = 49900
currency = "EUR"
[[items]]
item = "plenty"
name = "Plenty"
stock = {PLENTY}
price = 1900
currency = "EUR"
"""


class Fleet:
    """`settings` are keys of Lockgate's configuration, for every role."""

    def __init__(self, binary, rng, hold_seconds=6, all_in_one=False, is_lossy=False, has_sentinels=False, own_clocks=False,
                 disk=None, **settings):
        self.binary, self.rng, self.hold_seconds = binary, rng, hold_seconds
        self.all_in_one, self.is_lossy, self.has_sentinels = all_in_one, is_lossy, has_sentinels
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockgate-faults-"))
        self.folder.chmod(0o755)
        self.disk, self.settings = disk, settings
        self.own_clocks, self.clocks = own_clocks, {}
        self.redis = self.replica = self.postgres = self.gateway = self.gate = self.proxy = None
        self.sentinels, self.roles, self.checkouts, self.rooms = [], [], [], []
        self.keep = False

    def environment(self, name, **more):
        own = {k: v for k, v in os.environ.items() if not k.startswith("LOCKGATE_")}
        own["LOCKGATE_OPERATOR_KEY"] = KEY
        own.update({f"LOCKGATE_{k.upper()}": str(v) for k, v in {**self.settings, **more}.items()})
        if self.own_clocks:
            own["LD_PRELOAD"] = str(self.folder / "wall_clock.so")
            self.set_clock(name, 0)
            own["DRILL_WALL_CLOCK"] = str(self.folder / f"{name}.clock")
        return own

    def set_clock(self, name, seconds):
        """Moves the wall clock of one process, from now on."""
        self.clocks[name] = seconds
        path = self.folder / f"{name}.clock"
        with open(path, "r+b" if path.exists() else "wb") as file:
            file.write(struct.pack("=q", int(seconds * 1_000_000)))

    def role(self, name, kind, arguments=(), **settings):
        folder = self.disk if self.disk and self.all_in_one else self.folder
        made = Role(name, kind, self.binary, folder, self.environment(name, **settings), arguments)
        made.log = self.folder / f"{name}.log"
        self.roles.append(made)
        return made

    async def start(self):
        (self.folder / "sale.toml").write_text(sale(self.hold_seconds))
        if self.own_clocks:
            source = pathlib.Path(__file__).with_name("wall_clock.c")
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.folder / "wall_clock.so", source], check=True)
        sales = ["--sale", self.folder / "sale.toml"]
        if self.all_in_one:
            one = self.role("all-in-one", "serve", sales)
            self.gateway = self.gate = one
            self.checkouts = self.rooms = [one]
        else:
            await self.start_stores()
            await self.make_roles(sales)
        for role in self.roles:
            role.launch()
        for role in self.roles:
            await until(f"{role.name} serves", role.is_serving)
        await until("the sale is known everywhere", self.is_ready)
        return self

    async def start_stores(self):
        self.redis = Redis("redis", self.folder, data=self.disk / "redis" if self.disk else None)
        if self.own_clocks:
            self.redis.environment = self.environment("redis")
        self.postgres = await asyncio.to_thread(Postgres, self.folder)
        stores = [self.redis, self.postgres]
        if self.has_sentinels:
            self.replica = Redis("replica", self.folder)
            self.replica.launch_as_replica_of(self.redis.port)
        for store in stores:
            store.launch()
        for store in stores:
            await until(f"{store.name} answers", store.is_serving)
        if self.has_sentinels:
            await until("the replica has what its master has", self.replica.is_synced)
            self.sentinels = [Sentinel(f"sentinel-{n}", self.folder, self.redis.port, 2) for n in (1, 2, 3)]
            for sentinel in self.sentinels:
                sentinel.launch()
            for sentinel in self.sentinels:
                await until(f"{sentinel.name} knows the others", sentinel.is_serving)

    def store_url(self):
        if self.has_sentinels:
            return "redis+sentinel://" + ",".join(f"127.0.0.1:{own.port}" for own in self.sentinels) + "/lockgate"
        return f"redis://127.0.0.1:{self.redis.port}"

    async def make_roles(self, sales):
        ring = self.folder / "keys.toml"
        subprocess.run([self.binary, "keys", "new", "--file", ring], check=True, stdout=subprocess.DEVNULL,
                       env={k: v for k, v in os.environ.items() if not k.startswith("LOCKGATE_")})
        # Pages and links name one public address; buyers take their paths to the role that serves them.
        shared = {"keys__file": ring, "store__url": self.store_url(), "public_url": "http://127.0.0.1:1"}
        orders = {"orders__url": self.postgres.url}
        self.gate = self.role("stock-gate", "stock-gate", **shared)
        gate_url = self.gate.url
        if self.is_lossy:
            self.proxy = await LossyProxy(self.gate.port, self.rng).start()
            gate_url = f"http://127.0.0.1:{self.proxy.port}"
        self.gateway = self.role("simulated-gateway", "simulated-gateway", **shared)
        apart = {**shared, "gate__url": gate_url, "gateway__url": self.gateway.url}
        self.checkouts = [self.role(f"checkout-{n}", "checkout", **apart, **orders) for n in (1, 2)]
        # Known only now, and needed before it starts.
        self.gateway.environment["LOCKGATE_GATEWAY__WEBHOOK_URL"] = f"{self.checkouts[0].url}/payment/webhook"
        self.rooms = [self.role("waiting-room", "waiting-room", sales, **{**shared, "gate__url": self.gate.url})]

    async def is_ready(self):
        for role in {*self.rooms, *self.checkouts}:
            try:
                if (await Connection(role.port).call("GET", "/readyz", seconds=5)).status != 200:
                    return False
            except NoAnswer:
                return False
        return await self.books() is not None

    def port_for(self, path):
        """Who serves this path: what a proxy on the public address would know."""
        if path.startswith("/simulated-gateway"):
            return self.gateway.port
        if path.startswith(("/orders/", "/payment/")) or re.fullmatch(r"/sale/[^/]+/checkout", path):
            return self.rng.choice(self.checkouts).port
        return self.rng.choice(self.rooms).port

    async def books(self):
        try:
            path = f"/operator/v1/sales/{SALE}/books"
            answer = await Connection(self.checkouts[0].port).call("GET", path, {"authorization": f"Bearer {KEY}"}, seconds=10)
        except NoAnswer:
            return None
        return answer.json() if answer.status == 200 else None

    def close(self):
        if self.proxy is not None:
            self.proxy.close()
        stores = [process for process in [*self.sentinels, self.replica, self.redis, self.postgres] if process is not None]
        for together in (self.roles, stores):
            for process in together:
                process.end()
            for process in together:
                process.close()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
