"""HTTP/1.1 over one kept connection. A call that has no answer is told as such, never sent again by itself."""
import asyncio, json


class NoAnswer(Exception):
    """The call may have been carried out, or not."""


class Answer:
    """Status, headers (names in lower case) and body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def code(self):
        return self.json().get("code", "")

    @property
    def told_seconds(self):
        """Retry-After."""
        text = self.headers.get("retry-after", "")
        return int(text) if text.isdecimal() else None


class Connection:
    """One kept connection to a port of this machine."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def call(self, method, path, headers=None, body=None, form=None, seconds=25):
        try:
            return await asyncio.wait_for(self.exchange(method, path, headers or {}, body, form), seconds)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            self.close()
            raise NoAnswer(f"{method} {path}: {type(error).__name__}") from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def exchange(self, method, path, headers, body, form):
        # A server may close an idle connection at any time; that is seen here, before anything is sent.
        if self.writer is None or self.reader.at_eof() or self.writer.is_closing():
            self.close()
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = b""
        lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}", "accept: application/json"]
        if form is not None:
            data = form.encode()
            lines.append("content-type: application/x-www-form-urlencoded")
        elif body is not None:
            data = json.dumps(body).encode()
            lines.append("content-type: application/json")
        lines += [f"{name}: {value}" for name, value in headers.items()] + [f"content-length: {len(data)}", "", ""]
        self.writer.write("\r\n".join(lines).encode() + data)
        await self.writer.drain()
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        given = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            given[name.strip().lower()] = value.strip()
        read = await self.reader.readexactly(int(given.get("content-length", "0"))) if "transfer-encoding" not in given \
            else await self.chunks()
        if given.get("connection", "").lower() == "close":
            self.close()
        return Answer(int(head[0].split()[1]), given, read)

    async def chunks(self):
        whole = b""
        while True:
            size = int((await self.reader.readline()).split(b";")[0], 16)
            whole += await self.reader.readexactly(size)
            await self.reader.readline()
            if size == 0:
                return whole

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None
