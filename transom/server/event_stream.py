"""Results as they come, for many readers at once: one wake for all, and each chunk read and written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.to_thread
import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transom.api.errors import LimitError, NotFound
from transom.api.records import ColumnInfo
from transom.api.result_chunk import ResultChunk
from transom.server.formats import (
    DROPPED,
    HEARTBEAT,
    RowsFormat,
    answer,
    columns_event,
    results_event,
)
from transom.server.service import Service

Made = TypeVar("Made")
Form = RowsFormat | str
EVENT = "event"  # a form besides those that a request can name
Key = tuple[str, str, str | None, int, Form]  # name, text, cursor, limit

HEARTBEAT_EVERY = 15.0  # seconds
CHUNK = 1_000  # rows of an event
SMALL = 2_000  # values that are written without a thread of their own
KEPT = 16 << 20  # bytes of chunks that are kept until the next batch


class Threads:
    """Where calls wait that may take long, apart from those that are quick, so that neither starves the
    other."""

    def __init__(self, slow: int = 8, quick: int = 4):
        self._slow, self._quick = anyio.CapacityLimiter(slow), anyio.CapacityLimiter(quick)

    async def slow(self, call: Callable[[], Made]) -> Made:
        """For calls that may wait for Spark."""
        return await anyio.to_thread.run_sync(call, limiter=self._slow)

    async def quick(self, call: Callable[[], Made]) -> Made:
        """For calls that wait for nothing, and may compute a little."""
        return await anyio.to_thread.run_sync(call, limiter=self._quick)


class Broadcast:
    """Wakes all who wait for results, once for each batch or prod; made and awaited in one event loop."""

    def __init__(self, service: Service):
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._told = False
        self.generation = 0
        self.closed = False
        self._end = service.listen(self._tell)

    def _tell(self) -> None:
        """In the engine's thread: as little as can be."""
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the event loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        self._told = False
        self.generation += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def next(self) -> asyncio.Event:
        """What is set with the next change; take it before looking, so that none is missed."""
        return self._changed

    def close(self) -> None:
        """Let all go who wait."""
        self._end()
        self.closed = True
        self.wake()


@dataclass(frozen=True)
class Written:
    """Some results of a query as text or bytes, and where to go on."""

    body: bytes
    cursor: str
    more: bool
    rows: int


class Reader:
    """Reads and writes results for many: whoever asks for the same between two batches shares the answer."""

    def __init__(self, service: Service, broadcast: Broadcast, threads: Threads):
        self.service, self.broadcast, self.threads = service, broadcast, threads
        self._generation = -1
        self._made: dict[Key, asyncio.Task[Written]] = {}
        self._bytes = 0

    async def read(
        self,
        name: str,
        cursor: str | None,
        limit: int,
        form: Form,
        columns: Sequence[ColumnInfo] = (),
        text: str | None = None,
    ) -> Written:
        """Results behind a cursor; `columns` are of JSON answers, and the same for all of a query.

        With a `text`, only of the query that is written so: another may have come by its name.
        """
        found = self.service.text(name)
        if text is not None and found != text:
            raise NotFound(f"the query {name} was dropped, and another has its name")
        if self._generation != self.broadcast.generation or self._bytes > KEPT:
            self._generation, self._bytes = self.broadcast.generation, 0
            self._made = {}
        key = (name, found, cursor, limit, form)
        if (task := self._made.get(key)) is None:
            task = asyncio.ensure_future(self._make(name, cursor, limit, form, columns))
            task.add_done_callback(lambda done: self._keep(key, done))
            self._made[key] = task
        return await asyncio.shield(task)  # others wait for it, too

    def _keep(self, key: Key, done: asyncio.Task[Written]) -> None:
        if done.cancelled() or done.exception() is not None:
            if self._made.get(key) is done:
                del self._made[key]
        else:
            self._bytes += len(done.result().body)

    async def _make(
        self, name: str, cursor: str | None, limit: int, form: Form, columns: Sequence[ColumnInfo]
    ) -> Written:
        if cursor is not None and self.service.is_recent(name, cursor):
            chunk = self.service.results(name, cursor, limit)
        else:
            chunk = await self.threads.slow(lambda: self.service.results(name, cursor, limit))
        table = chunk.table
        if table.num_rows * max(1, table.num_columns) <= SMALL:
            body = _body(chunk, form, columns)
        else:
            body = await self.threads.quick(lambda: _body(chunk, form, columns))
        return Written(body, chunk.cursor, chunk.more, table.num_rows)

    async def wait(
        self,
        name: str,
        cursor: str | None,
        limit: int,
        form: Form,
        columns: Sequence[ColumnInfo],
        seconds: float,
    ) -> Written:
        """The same, but wait for something new, if there is nothing, for at most so many seconds."""
        until = asyncio.get_running_loop().time() + seconds
        text = self.service.text(name)
        while True:
            changed = self.broadcast.next()
            found = await self.read(name, cursor, limit, form, columns, text)
            left = until - asyncio.get_running_loop().time()
            if found.rows or left <= 0 or self.broadcast.closed:
                return found
            cursor = found.cursor
            with subscribing(self.service), suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)


def _body(chunk: ResultChunk, form: Form, columns: Sequence[ColumnInfo]) -> bytes:
    if isinstance(form, RowsFormat):
        return answer(chunk.table, columns, form, (chunk.cursor, chunk.more))
    return results_event(chunk.table, chunk.cursor) if chunk.table.num_rows else b""


def large(table: pa.Table) -> bool:
    """Whether a table is written in a thread of its own."""
    return table.num_rows * max(1, table.num_columns) > SMALL


class EventStream(Response):
    """A query's results as server-sent events, until the reader or the query leaves, or the server stops.

    A reader that is slow keeps its own coroutine waiting, and falls behind its cursor; nothing is buffered
    for it but the event at hand.
    """

    media_type = "text/event-stream"

    def __init__(self, reader: Reader, name: str, columns: Sequence[ColumnInfo], start: str, first: Written):
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._reader, self._name, self._first = reader, name, first
        self._text = reader.service.text(name)
        self._columns = columns_event(columns, start)  # whoever leaves before the first rows begins there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with subscribing(self._reader.service):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            gone = asyncio.ensure_future(_until_gone(receive))
            follow = asyncio.ensure_future(self._follow(send))
            try:
                await asyncio.wait({gone, follow}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                follow.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await follow

    async def _follow(self, send: Send) -> None:
        reader, cursor = self._reader, self._first.cursor
        await _send(send, self._columns + self._first.body)
        while not reader.broadcast.closed:
            changed = reader.broadcast.next()
            try:
                written = await reader.read(self._name, cursor, CHUNK, EVENT, text=self._text)
            except NotFound:
                await _send(send, DROPPED)
                break
            cursor = written.cursor
            if written.rows:
                await _send(send, written.body)
            if not written.more:
                await self._rest(changed, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _rest(changed: asyncio.Event, send: Send) -> None:
        """Wait for the next change, and tell the reader now and then that all is well."""
        while True:
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT_EVERY)
                return
            except TimeoutError:
                await _send(send, HEARTBEAT)


@contextmanager
def subscribing(service: Service) -> Iterator[None]:
    """Meanwhile one more follows results; they are counted in the event loop, and nowhere else."""
    if service.subscribers >= service.limits.subscribers:
        raise LimitError(f"{service.limits.subscribers:,} readers follow results already")
    service.subscribers += 1
    try:
        yield
    finally:
        service.subscribers -= 1


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
