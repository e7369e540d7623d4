"""The drills: each starts a Lockgate of its own, lets buyers in, does harm at random moments, and settles the account."""
import asyncio, os, pathlib, signal, subprocess, tempfile, time

from .account import settle
from .buyers import Buyers
from .fleet import Fleet
from .processes import until

# Longest until buyers are served again after a fault is over.
RECOVERY_SECONDS_MAX = 45

# Where the store lost the sale itself, nobody can be told more than that it is not there, or not open.
LOST_SALE = ((404, "no_such_sale"), (403, "ticket_invalid"), (403, "token_invalid"), (409, "not_open"))
# What is right to say for a process whose clock is an hour off.
WRONG_TIME = ((409, "doors_closed"), (410, "sale_closed"), (409, "not_open"), (403, "token_invalid"), (403, "token_expired"),
              (403, "ticket_invalid"), (403, "webhook_invalid"))


class Drill:
    """What a drill has to do with: its fleet, its buyers, its dice, and what it found."""

    def __init__(self, name, binary, rng, is_short, say):
        self.name, self.binary, self.rng, self.is_short, self.say = name, binary, rng, is_short, say
        self.began, self.faults, self.recoveries, self.differences = time.monotonic(), 0, [], []
        self.claims = self.sold = 0
        # When a store lost its data, if it did.
        self.lost_at = None
        self.fleet = self.buyers = self.disk = None

    def tell(self, words):
        so_far = len(self.buyers.claims) if self.buyers else 0
        self.say(f"  {time.monotonic() - self.began:6.1f} s  {so_far:5} claims  {words}")

    async def open(self, at_once=64, forgiven=(), **fleet):
        hold_seconds = fleet.pop("hold_seconds", 4 if self.is_short else 8)
        self.fleet = Fleet(self.binary, self.rng, hold_seconds, **fleet)
        await self.fleet.start()
        self.buyers = Buyers(self.fleet, self.rng, at_once, forgiven).start()
        await self.served("claim", time.monotonic())
        self.tell("buyers are served")

    async def pause(self, least=0.3, most=2.0):
        await asyncio.sleep(self.rng.uniform(least, most))

    async def served(self, kind, since, port=None):
        """Waits until a call of this kind (to this port) succeeds that was sent after `since`; None and a difference if
        none does."""
        took = await self.buyers.first(kind, since, RECOVERY_SECONDS_MAX, port)
        if took is None:
            self.differences.append(f"no {kind} succeeded within {RECOVERY_SECONDS_MAX} s")
        return took

    async def recovered(self, kind, since, words, port=None):
        took = await self.served(kind, since, port)
        if took is not None:
            self.recoveries.append(took)
        self.tell(f"{words}; {f'{kind} again after {took:.2f} s' if took is not None else 'NOT SERVED AGAIN'}")

    async def finish(self):
        """Buyers buy on for a while, then go home; everything comes to rest, and the account is settled."""
        await asyncio.sleep(1 if self.is_short else 5)
        await self.buyers.stop(8 if self.is_short else 20)
        self.tell(f"no more buyers; {self.buyers.unanswered} claims never had an answer")
        found, self.sold = await settle(self.fleet, self.buyers, self.fleet.hold_seconds + 60, self.lost_at)
        self.differences += found
        self.claims = len(self.buyers.claims)
        lost = sum(claim.is_lost for claim in self.buyers.claims)
        words = f"; {lost} claims were lost with the data before they were written as orders, none charged" if lost else ""
        self.tell(f"settled: {self.sold} units sold, {len(self.differences)} differences{words}")

    def close(self):
        for task in self.buyers.tasks if self.buyers else []:
            task.cancel()
        if self.fleet:
            self.fleet.keep = bool(self.differences)
            if self.buyers:
                self.buyers.write_down(self.fleet.folder / "claims.jsonl")
                answers = sorted(self.buyers.answers.items())
                (self.fleet.folder / "answers.txt").write_text("".join(f"{n:7} {answer}\n" for answer, n in answers))
            self.fleet.close()
        if self.disk:
            self.disk.close()


def served_by(role):
    """The call that shows that a role is back."""
    return {"waiting-room": "admit", "stock-gate": "claim", "checkout": "claim", "simulated-gateway": "finish",
            "serve": "claim"}[role.kind]


def port_of(fleet, role):
    """Where it must be seen to be back; buyers never call the gate themselves."""
    return None if role is fleet.gate and not fleet.all_in_one else role.port


async def kill_roles(drill, rounds):
    for _ in range(rounds):
        roles = list(drill.fleet.roles)
        drill.rng.shuffle(roles)
        for role in roles:
            await drill.pause(0.1, 0.6 if drill.is_short else 2)
            await role.kill()
            since = time.monotonic()
            role.launch()
            drill.faults += 1
            await drill.recovered(served_by(role), since, f"kill -9 of {role.name}, started again at once",
                                  port_of(drill.fleet, role))


async def kill(drill):
    """kill -9 of every role at random moments, each started again at once."""
    await drill.open()
    await kill_roles(drill, 1 if drill.is_short else 3)
    await drill.finish()


async def kill_one(drill):
    """kill -9 of the all-in-one on SQLite at random moments, started again at once."""
    await drill.open(all_in_one=True)
    await kill_roles(drill, 2 if drill.is_short else 6)
    await drill.finish()


async def kill_redis(drill, times):
    for _ in range(times):
        await drill.pause()
        await drill.fleet.redis.kill()
        drill.faults += 1
        down = drill.rng.uniform(0, 0.5 if drill.is_short else 3)
        await asyncio.sleep(down)
        since = time.monotonic()
        drill.fleet.redis.launch()
        await drill.recovered("claim", since, f"kill -9 of redis, back with its data after {down:.1f} s")


async def redis(drill):
    """Redis is killed and comes back with its data (append-only file, every write synced)."""
    await drill.open()
    await kill_redis(drill, 2 if drill.is_short else 4)
    await drill.finish()


async def lose_the_data(drill, also_killed):
    await drill.open(forgiven=LOST_SALE)
    await drill.pause(2, 4)
    await drill.fleet.redis.kill()
    for role in also_killed(drill.fleet):
        await role.kill()
    drill.faults += 1
    drill.lost_at = time.time()
    drill.fleet.redis.forget()
    since = time.monotonic()
    drill.fleet.redis.launch()
    await until("redis answers", drill.fleet.redis.is_serving)
    for role in also_killed(drill.fleet):
        role.launch()
        drill.faults += 1
    await drill.recovered("claim", since, "redis is back without its data")
    await drill.finish()


async def empty_redis(drill):
    """Redis is killed and comes back without its data, while the roles run on."""
    await lose_the_data(drill, lambda fleet: [])


async def empty_all(drill):
    """Everything is killed but PostgreSQL, and comes back with an empty Redis: nobody remembers the stock."""
    await lose_the_data(drill, lambda fleet: fleet.roles)


async def pair(fleet):
    """The master, by Sentinel's word, and the other one."""
    is_first = await fleet.sentinels[0].master_port() == fleet.redis.port
    return (fleet.redis, fleet.replica) if is_first else (fleet.replica, fleet.redis)


async def promote(drill, is_killed):
    """Freezes the master until the replica is promoted; it ends or is thawed, and comes back as a replica."""
    master, replica = await pair(drill.fleet)
    since, frozen = time.monotonic(), drill.rng.uniform(0.2, 2.0)
    master.send(signal.SIGSTOP)
    drill.faults += 1
    if is_killed:
        await asyncio.sleep(frozen)
        await master.kill()
        drill.faults += 1

    async def is_promoted():
        return (await pair(drill.fleet))[0] is replica
    await until("Sentinel promotes the replica", is_promoted, 60)
    took = time.monotonic() - since
    # With one replica required and none there, nothing is sold: the old master comes back as the replica.
    if is_killed:
        master.launch_as_replica_of(replica.port)
        what = f"master frozen for {frozen:.1f} s, then kill -9"
    else:
        master.send(signal.SIGCONT)
        what = "master frozen, thawed after the promotion"
    await drill.recovered("claim", since, f"{what}; replica promoted after {took:.1f} s")

    async def is_whole():
        # On a busy machine Sentinel may have changed its mind once more, and the roles with it.
        return await (await pair(drill.fleet))[1].is_synced()
    await until("the one that is not the master is its replica", is_whole, 60)


async def fail_over(drill):
    """The master is frozen, then killed, and the replica promoted; the new master is frozen, replaced and thawed."""
    # Every claim waits for the replica. Recovery counts from the freeze.
    await drill.open(has_sentinels=True, store__replicas_required=1)
    await drill.pause(1, 3)
    await promote(drill, is_killed=True)
    await drill.pause(1, 2)
    await promote(drill, is_killed=False)
    await drill.finish()


async def postgres(drill):
    """PostgreSQL goes down at once, without a checkpoint, and comes back: for 60 s, or 4 s in short."""
    down = 4 if drill.is_short else 60
    await drill.open(hold_seconds=down + 6)
    await drill.pause(1, 3)
    before = len(drill.buyers.claims)
    await drill.fleet.postgres.kill(signal.SIGQUIT)
    drill.faults += 1
    drill.tell(f"postgres is down, for {down} s")
    await asyncio.sleep(down)
    drill.tell(f"{len(drill.buyers.claims) - before} claims were answered meanwhile")
    since = time.monotonic()
    drill.fleet.postgres.launch()
    await drill.recovered("pay", since, "postgres is back")
    await drill.recovered("claim", since, "claims flow")
    await drill.finish()


class Disk:
    """A disk of a few MiB that can be filled."""

    def __init__(self, mib):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockgate-faults-disk-"))
        self.as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
        mounted = subprocess.run([*self.as_root, "mount", "-t", "tmpfs", "-o", f"size={mib}m", "lockgate-drill", self.folder])
        if mounted.returncode:
            self.folder.rmdir()
            raise RuntimeError("a small disk cannot be mounted; this drill needs root, or sudo without a password")

    def fill(self):
        with open(self.folder / "filler", "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                pass

    def free(self):
        (self.folder / "filler").unlink()

    def close(self):
        subprocess.run([*self.as_root, "umount", self.folder])
        self.folder.rmdir()


async def full_disk(drill, disk, process, words):
    for _ in range(1 if drill.is_short else 2):
        await drill.pause(1, 2)
        disk.fill()
        drill.faults += 1
        before, began = len(drill.buyers.claims), time.monotonic()
        # What a store has set aside may last for a while; the fault begins when it is used up.
        await until("a call is refused because the disk is full", drill.buyers.refused_since(process), 60)
        await drill.pause(1, 3)
        full = time.monotonic() - began
        ended, meanwhile = not process.is_alive(), len(drill.buyers.claims) - before
        disk.free()
        since = time.monotonic()
        if ended:
            process.launch()
        state = "it ended itself and is started again" if ended else "it kept running"
        await drill.recovered("claim", since, f"{words} full for {full:.1f} s, {meanwhile} claims answered meanwhile; {state}")


async def on_small_disk(drill, words, process_of, **fleet):
    drill.disk = Disk(48)
    await drill.open(disk=drill.disk.folder, **fleet)
    await full_disk(drill, drill.disk, process_of(drill.fleet), words)
    await drill.finish()


async def disk_redis(drill):
    """The disk under Redis' append-only file is full, then has room again."""
    await on_small_disk(drill, "redis' disk", lambda fleet: fleet.redis)


async def disk_sqlite(drill):
    """The disk under the all-in-one's SQLite file is full, then has room again."""
    await on_small_disk(drill, "the all-in-one's disk", lambda fleet: fleet.roles[0], all_in_one=True)


async def clocks(drill):
    """The wall clock of one process jumps, forwards or backwards, and is put right later."""
    await drill.open(forgiven=WRONG_TIME, own_clocks=True)
    names = list(drill.fleet.clocks)
    drill.rng.shuffle(names)
    for name in names if not drill.is_short else names[:2]:
        # Time never goes back for a sale: after a jump of its store, holds last as much longer.
        steps = [-3600, -60, -2, 2, 20] + ([60, 3600] if name != "redis" else [])
        for step in drill.rng.sample(steps, 1 if drill.is_short else 2):
            await drill.pause()
            drill.fleet.set_clock(name, step)
            drill.faults += 1
            await drill.pause(1, 2)
            drill.fleet.set_clock(name, 0)
            drill.faults += 1
            await drill.recovered("claim", time.monotonic(), f"{name}'s clock jumped by {step} s, and back")
    await drill.finish()


async def proxy(drill):
    """Between checkout and gate a proxy delays replies, cuts connections in place of replies, and swallows replies."""
    await drill.open(is_lossy=True)
    own = drill.fleet.proxy
    for _ in range(1 if drill.is_short else 3):
        own.is_calm = False
        await asyncio.sleep(3 if drill.is_short else 8)
        own.is_calm = True
        await drill.recovered("claim", time.monotonic(), f"{own.dropped} replies dropped, {own.swallowed} swallowed, {own.delayed} delayed")
    drill.faults += own.faults
    await drill.finish()


async def quick(drill):
    """A short run of three at once: roles and Redis are killed while replies between checkout and gate are lost."""
    drill.is_short = True
    await drill.open(is_lossy=True, at_once=32, hold_seconds=3)
    drill.fleet.proxy.is_calm = False
    await kill_roles(drill, 1)
    await kill_redis(drill, 1)
    drill.fleet.proxy.is_calm = True
    drill.faults += drill.fleet.proxy.faults
    await drill.finish()


DRILLS = {"kill": kill, "kill-one": kill_one, "redis": redis, "empty-redis": empty_redis, "empty-all": empty_all, "fail-over": fail_over,
          "postgres": postgres, "disk-redis": disk_redis, "disk-sqlite": disk_sqlite, "clocks": clocks, "proxy": proxy}
ALONE = {"quick": quick}
