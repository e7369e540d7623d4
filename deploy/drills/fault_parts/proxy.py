"""A TCP proxy that does to replies what networks do: it delays them, drops them, swallows them. Requests always arrive."""
import asyncio


class LossyProxy:
    """Stands before `target`. Each reply, once it is there, meets one fate: forwarded after a delay of up to
    `delay_seconds`; with probability `drop` the connection is cut in its place; with probability `swallow` nothing ever
    comes. While `is_calm` all are forwarded at once."""

    def __init__(self, target, rng, drop=0.05, swallow=0.005, delay_seconds=0.05):
        self.target, self.rng, self.drop, self.swallow, self.delay_seconds = target, rng, drop, swallow, delay_seconds
        self.dropped = self.swallowed = self.delayed = 0
        self.is_calm, self.server, self.port, self.tasks = True, None, 0, set()

    @property
    def faults(self):
        return self.dropped + self.swallowed

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            self.tasks.discard(asyncio.current_task())
            return
        requests = asyncio.create_task(self.copy(reader, there_writer))
        try:
            await self.replies(there_reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            requests.cancel()
            writer.transport.abort()
            there_writer.transport.abort()
            self.tasks.discard(asyncio.current_task())

    async def copy(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            # The caller has gone; whoever waits for the reply learns it by the end of this side.
            writer.write_eof()
        except OSError:
            pass

    async def replies(self, reader, writer):
        while data := await reader.read(65536):
            if not self.is_calm:
                fate = self.rng.random()
                if fate < self.drop:
                    self.dropped += 1
                    return
                if fate < self.drop + self.swallow:
                    self.swallowed += 1
                    await asyncio.sleep(60)
                    return
                self.delayed += 1
                await asyncio.sleep(self.rng.random() * self.delay_seconds)
            writer.write(data)
            await writer.drain()

    def close(self):
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
