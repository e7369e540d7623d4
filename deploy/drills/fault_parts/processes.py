"""Processes: started on a port of their own, killed and started again, ended by the one who started them."""
import asyncio, os, pathlib, re, signal, socket, subprocess, time


ROOT = pathlib.Path(__file__).resolve().parents[3]


def found_binary(name, variable):
    """The program that the environment names, or the newest build of it; built when there is none."""
    if variable in os.environ:
        return pathlib.Path(os.environ[variable])
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for path in (target / kind / name for kind in ("release", "debug")) if path.exists()]
    if not built:
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", name], cwd=ROOT, check=True)
        built = [target / "release" / name]
    return max(built, key=lambda path: path.stat().st_mtime)


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


async def until(what, ready, seconds=30):
    """Asks `ready` until it is true; says after `seconds` what did not come."""
    end = time.monotonic() + seconds
    while not await ready():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        await asyncio.sleep(0.05)


async def output_of(*command):
    """What a short command printed; None when it failed."""
    child = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out, _ = await child.communicate()
    return out.decode() if child.returncode == 0 else None


class Process:
    """A command that can be started again and again. Its output goes to `log`."""

    def __init__(self, name, command, log, environment=None, stop_signal=signal.SIGTERM):
        self.name, self.command, self.log = name, [str(part) for part in command], pathlib.Path(log)
        self.environment, self.stop_signal, self.child = environment, stop_signal, None

    def launch(self):
        # Of its own session: what a terminal sends is for the drill, which ends its processes in their order.
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          start_new_session=True)

    def is_alive(self):
        return self.child is not None and self.child.poll() is None

    def send(self, what):
        if self.is_alive():
            self.child.send_signal(what)

    async def kill(self, what=signal.SIGKILL):
        self.send(what)
        await self.gone()

    async def gone(self, seconds=30):
        async def is_gone():
            return not self.is_alive()
        await until(f"{self.name} is gone", is_gone, seconds)

    def end(self):
        """Asks it to end."""
        self.send(signal.SIGCONT)
        self.send(self.stop_signal)

    def close(self):
        """Waits until it has ended, and kills it when it does not."""
        if not self.is_alive():
            return
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()

    def last_words(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:]) if self.log.exists() else ""


class Role(Process):
    """One of Lockgate's roles on a port that it keeps."""

    def __init__(self, name, role, binary, folder, environment, arguments=()):
        self.port, self.kind = free_port(), role
        command = [binary, role, "--listen", f"127.0.0.1:{self.port}", "--data", folder / name, *arguments]
        super().__init__(name, command, folder / f"{name}.log", environment)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def is_serving(self):
        """Whether it answers at all; what it cannot reach is its own affair."""
        if not self.is_alive():
            raise RuntimeError(f"{self.name} ended by itself ({self.child.returncode}):\n{self.last_words()}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        except OSError:
            return False


class Redis(Process):
    """A redis-server that syncs every write before it answers."""

    def __init__(self, name, folder, arguments=(), port=None, data=None):
        self.port, self.data = port or free_port(), data or folder / name
        self.data.mkdir(exist_ok=True)
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--dir", self.data, "--save", "",
                   "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", 0, *arguments]
        super().__init__(name, command, folder / f"{name}.log")

    async def ask(self, *words):
        answer = await output_of("redis-cli", "-p", self.port, *words)
        return answer.strip() if answer is not None else None

    async def is_serving(self):
        return await self.ask("ping") == "PONG"

    async def is_synced(self):
        """Whether it is a replica that has all its master has."""
        said = await self.ask("info", "replication") or ""
        return "role:slave" in said and "master_link_status:up" in said

    def launch_as_replica_of(self, port):
        kept = self.command
        self.command = [*kept, "--replicaof", "127.0.0.1", str(port)]
        self.launch()
        self.command = kept

    def forget(self):
        """Removes its data, as a new disk would."""
        for path in sorted(self.data.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


class Sentinel(Process):
    """A Sentinel that watches one master under the name `lockgate`."""

    def __init__(self, name, folder, master_port, quorum):
        self.port, own = free_port(), folder / f"{name}.conf"
        own.write_text(f"port {self.port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor lockgate 127.0.0.1 {master_port} {quorum}\n"
                       "sentinel down-after-milliseconds lockgate 2000\nsentinel failover-timeout lockgate 5000\n")
        super().__init__(name, ["redis-server", own, "--sentinel"], folder / f"{name}.log")

    async def master_port(self):
        answer = await output_of("redis-cli", "-p", self.port, "sentinel", "get-master-addr-by-name", "lockgate")
        return int(answer.split()[1]) if answer and len(answer.split()) == 2 else None

    async def is_serving(self):
        """Whether it knows the master, a replica and the other Sentinels."""
        answer = await output_of("redis-cli", "-p", self.port, "sentinel", "master", "lockgate")
        words = answer.split("\n") if answer else []
        known = dict(zip(words[::2], words[1::2]))
        return known.get("num-slaves", "0") != "0" and known.get("num-other-sentinels") == "2"


class Postgres(Process):
    """A PostgreSQL cluster. It refuses to run as root, so root hands it to the user `postgres`."""

    def __init__(self, folder):
        self.port, self.data = free_port(), folder / "postgres"
        self.data.mkdir()
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(re.sub(r"\D", "", path.parent.name)))
        if not found:
            raise RuntimeError("PostgreSQL's server programs are missing under /usr/lib/postgresql; deploy/test installs them")
        self.bin, self.user = found[-1], []
        if os.getuid() == 0:
            subprocess.run(["chown", "postgres", folder, self.data], check=True)
            self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        subprocess.run([*self.user, self.bin / "initdb", "--username=lockgate", "--auth=trust", "--no-sync", "--encoding=UTF8",
                        "--locale=C", "-D", self.data], check=True, stdout=subprocess.DEVNULL)
        command = [*self.user, self.bin / "postgres", "-D", self.data, "-p", self.port, "-c", "listen_addresses=127.0.0.1",
                   "-c", "max_connections=200", "-k", self.data]
        # SIGINT ends sessions that are open; SIGTERM would wait for them.
        super().__init__("postgres", command, folder / "postgres.log", stop_signal=signal.SIGINT)

    @property
    def url(self):
        return f"postgres://lockgate@127.0.0.1:{self.port}/postgres"

    async def rows(self, query):
        """The rows of a query as text, each a JSON object; None when it cannot be asked."""
        wrapped = f"SELECT row_to_json(row) FROM ({query}) AS row"
        answer = await output_of("psql", "-X", "-A", "-t", "-d", self.url, "-c", wrapped)
        return answer.splitlines() if answer is not None else None

    async def is_serving(self):
        return await output_of("psql", "-X", "-A", "-t", "-d", self.url, "-c", "SELECT 1") is not None
