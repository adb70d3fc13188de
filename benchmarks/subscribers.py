"""Many readers of one server in a process of their own, on plain sockets, so that they cost little.

It reads a line of JSON, {"host", "port", "names", "slow", "look"}, connects a reader for each name and says
{"ready": n}; reads another, {"expect": {name: rows}, "patience"}; and, when all have come or patience is at
an end, says what came. The slow ones read a kilobyte every fifth of a second until then. Meanwhile somebody
looks at the server as a whole, every `look` seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

BATCH = re.compile(rb'"batch": (\d+)')
LINE = 1 << 24  # bytes of the longest event
SIP, PAUSE = 1024, 0.2  # bytes and seconds of a slow reader
LOOKED_AT = ("/api/status", "/api/streams", "/api/queries?limit=100", "/metrics")


@dataclass
class Reader:
    """A reader of one query's tail: the rows that came, and when each batch's first one did."""

    name: str
    cursor: str | None = None
    slow: bool = False
    rows: int = 0
    events: int = 0
    came: dict[int, float] = field(default_factory=dict)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    error: str | None = None

    async def follow(self, host: str, port: int, hurry: asyncio.Event) -> None:
        """Read events until the server ends them."""
        try:
            await self._follow(host, port, hurry)
        except OSError as error:
            self.error = str(error)
        finally:
            self.connected.set()

    async def _follow(self, host: str, port: int, hurry: asyncio.Event) -> None:
        plug = socket.socket()
        plug.setblocking(False)
        if self.slow:  # else the kernel reads for it
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * SIP)
        await asyncio.get_running_loop().sock_connect(plug, (host, port))
        source, sink = await asyncio.open_connection(sock=plug, limit=SIP if self.slow else LINE)
        start = "" if self.cursor is None else f"?cursor={quote(self.cursor)}"
        path = f"/api/queries/{quote(self.name, safe='')}/tail{start}"
        sink.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        rest = b""
        while part := await source.read(SIP if self.slow and not hurry.is_set() else 1 << 16):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                self.take(line)
            if self.slow and not hurry.is_set():
                await asyncio.sleep(PAUSE)
        sink.close()

    def take(self, line: bytes) -> None:
        """A line of events; between them are the lengths of chunks."""
        if line.startswith(b"HTTP/") and b" 200 " not in line:
            raise OSError(line.decode(errors="replace").strip())
        if line.startswith(b"event: columns"):
            self.connected.set()
        if not line.startswith(b'data: {"rows"'):
            return
        now, batches = time.time(), BATCH.findall(line)
        self.rows += len(batches)
        self.events += 1
        for batch_id in set(batches):
            self.came.setdefault(int(batch_id), now)


async def look(url: str, every: float, took: list[float]) -> None:
    """Ask what a batch of all queries and Prometheus ask, again and again."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            for path in LOOKED_AT:
                start = time.perf_counter()
                (await client.get(path)).raise_for_status()
                took.append(time.perf_counter() - start)
            await asyncio.sleep(every)


async def serve(lines: Iterator[str], say: Callable[[Any], None]) -> None:
    """One round: connect, tell, wait for all that is expected, tell what came."""
    loop = asyncio.get_running_loop()
    order = json.loads(await loop.run_in_executor(None, next, lines))
    readers = [Reader(name) for name in order["names"]]
    readers += [Reader(name, cursor, slow=True) for name, cursor in order["slow"].items()]
    hurry = asyncio.Event()
    tasks = [asyncio.create_task(reader.follow(order["host"], order["port"], hurry)) for reader in readers]
    for reader in readers:
        await reader.connected.wait()
    looks: list[float] = []
    tasks.append(asyncio.create_task(look(f"http://{order['host']}:{order['port']}", order["look"], looks)))
    say({"ready": sum(reader.error is None for reader in readers)})
    if not (line := await loop.run_in_executor(None, next, lines, "")):
        return  # nobody is there any more
    order = json.loads(line)
    early = {reader.name: reader.rows for reader in readers if reader.slow}
    hurry.set()
    deadline = time.monotonic() + order["patience"]
    while time.monotonic() < deadline and any(r.rows < order["expect"][key(r)] for r in readers):
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    say(
        {
            "rows": {key(reader): reader.rows for reader in readers},
            "events": sum(reader.events for reader in readers),
            "errors": [reader.error for reader in readers if reader.error is not None],
            "early": early,
            "looks": looks,
            "came": [(batch_id, at) for r in readers if not r.slow for batch_id, at in r.came.items()],
        }
    )


def key(reader: Reader) -> str:
    """What a reader is called where rows are counted: a slow one may read the query of another."""
    return f"slow {reader.name}" if reader.slow else reader.name


def main() -> int:
    def say(told: Any) -> None:
        print(json.dumps(told), flush=True)

    asyncio.run(serve(iter(sys.stdin), say))
    return 0


if __name__ == "__main__":
    sys.exit(main())
