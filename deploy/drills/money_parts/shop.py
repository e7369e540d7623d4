"""One Lockgate in one process for drills of figures: on SQLite alone, or on Redis and PostgreSQL; one folder."""
import asyncio, json, os, pathlib, shutil, subprocess, tempfile
from datetime import datetime, timedelta, timezone

from fault_parts.account import rows_of
from fault_parts.fleet import KEY
from fault_parts.http_client import Connection, NoAnswer
from fault_parts.processes import Postgres, Redis, Role, found_binary, until


def moment(seconds):
    """So many seconds from now, as a sale file writes it."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Shop:
    """`back` is redis or sqlite; `stock` says how many units of which item the sale has."""

    def __init__(self, back, sale, stock):
        self.back, self.sale, self.stock = back, sale, stock
        self.binary, self.crowd = found_binary("lockgate", "LOCKGATE_BIN"), found_binary("lockgate-crowd", "LOCKGATE_CROWD_BIN")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"lockgate-{sale}-{back}-"))
        self.folder.chmod(0o755)
        self.stores, self.role, self.keep = [], None, False
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKGATE_")}
        self.environment["LOCKGATE_OPERATOR_KEY"] = KEY

    async def start(self, sale_file, **behaviour):
        if self.back == "redis":
            self.stores = [Redis("redis", self.folder), await asyncio.to_thread(Postgres, self.folder)]
            for store in self.stores:
                store.launch()
            for store in self.stores:
                await until(f"{store.name} answers", store.is_serving)
            self.environment["LOCKGATE_STORE__URL"] = f"redis://127.0.0.1:{self.stores[0].port}"
            self.environment["LOCKGATE_ORDERS__URL"] = self.stores[1].url
        path = self.folder / "sale.toml"
        path.write_text(sale_file)
        self.role = Role("lockgate", "serve", self.binary, self.folder, self.environment, ["--sale", path])
        self.ledger = self.folder / "lockgate" / "simulated-gateway.db"
        self.role.launch()
        await until("Lockgate serves", self.role.is_serving)
        await until("the sale is there", self.is_ready)
        await self.behave(**behaviour)
        return self

    async def is_ready(self):
        return await self.books() is not None

    async def ask(self, method, path, body=None):
        """An operator's call; None when it was not answered with 200."""
        try:
            answer = await Connection(self.role.port).call(method, path, {"authorization": f"Bearer {KEY}"}, body=body)
        except NoAnswer:
            return None
        return answer.json() if answer.status == 200 else None

    async def books(self):
        return await self.ask("GET", f"/operator/v1/sales/{self.sale}/books")

    async def behave(self, **knobs):
        if await self.ask("PUT", "/simulated-gateway/behaviour", knobs) is None:
            raise RuntimeError(f"the simulated gateway refused {knobs}")

    async def rows(self, query):
        if self.back == "sqlite":
            return rows_of(self.folder / "lockgate" / "lockgate.db", query)
        rows = await self.stores[1].rows(query)
        return None if rows is None else [json.loads(row) for row in rows]

    def command(self, *words):
        """A command of the binary against this Lockgate: exit code and what it said."""
        environment = {**self.environment, "LOCKGATE_OPERATOR_URL": self.role.url}
        done = subprocess.run([self.binary, *map(str, words)], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    async def visit(self, *options):
        """A run of the crowd; its exit code and its report."""
        report = self.folder / "crowd.json"
        report.unlink(missing_ok=True)
        words = [self.crowd, self.role.url, self.sale, "--sell-out", "--report", report, *options]
        with open(self.folder / "crowd.txt", "wb") as out:
            child = await asyncio.create_subprocess_exec(*map(str, words), stdout=out, stderr=out)
            try:
                code = await child.wait()
            except asyncio.CancelledError:
                child.kill()
                await child.wait()
                raise
        if not report.exists():
            raise RuntimeError(f"the crowd ended with {code}:\n{(self.folder / 'crowd.txt').read_text()}")
        return code, json.loads(report.read_text())

    def close(self):
        for process in [self.role, *reversed(self.stores)]:
            if process is not None:
                process.end()
                process.close()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)
