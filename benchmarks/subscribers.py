"""Many readers of one server in a separate process, on plain sockets to keep their cost low.

The process reads a line of JSON, {"host", "port", "names", "slow", "look"}, connects a reader for each name and
writes {"ready": n}. It then reads a second line, {"expect": {name: rows}, "patience"}, waits until all rows have
arrived or `patience` seconds have passed, and writes a report. Until the second line, slow readers read a
kilobyte every fifth of a second. A client requests the server's status every `look` seconds.
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
STATUS_PATHS = ("/api/status", "/api/streams", "/api/queries?limit=100", "/metrics")


@dataclass
class Reader:
    """A reader of one query's tail: it counts rows, and records when each batch's first row arrived."""

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
        if self.slow:  # otherwise the operating system buffers the results
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
        """Process a line of the response; the lengths of chunks are skipped."""
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
    """Send the requests of a dashboard and of Prometheus at regular intervals."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            for path in STATUS_PATHS:
                start = time.perf_counter()
                (await client.get(path)).raise_for_status()
                took.append(time.perf_counter() - start)
            await asyncio.sleep(every)


async def serve(lines: Iterator[str], report: Callable[[Any], None]) -> None:
    """Run one round: connect, report, wait for the expected rows, and report again."""
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
    report({"ready": sum(reader.error is None for reader in readers)})
    if not (line := await loop.run_in_executor(None, next, lines, "")):
        return  # the parent process has ended
    order = json.loads(line)
    early = {reader.name: reader.rows for reader in readers if reader.slow}
    hurry.set()
    deadline = time.monotonic() + order["patience"]
    while time.monotonic() < deadline and any(r.rows < order["expect"][key(r)] for r in readers):
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    report(
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
    """The reader's name in the report; a slow reader may read the same query as another reader."""
    return f"slow {reader.name}" if reader.slow else reader.name


def main() -> int:
    def report(value: Any) -> None:
        print(json.dumps(value), flush=True)

    asyncio.run(serve(iter(sys.stdin), report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
