"""Live results for many readers: one signal wakes all of them, and they share each encoded chunk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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
    DROPPED_EVENT,
    HEARTBEAT,
    RowsEncoding,
    columns_event,
    encode_rows,
    results_event,
)
from transom.server.service import Service

Value = TypeVar("Value")
ChunkFormat = RowsEncoding | str
EVENT = "event"  # a format besides those that a request can name
CacheKey = tuple[str, str, str | None, int, ChunkFormat]  # name, text, cursor, limit, format

SMALL_VALUES = 2_000  # a table with fewer values is encoded in the event loop
CACHE_BYTES = 16 << 20  # encoded chunks that are shared until the next batch


class ThreadPools:
    """Threads for blocking calls; quick calls have their own, so that slow ones can't starve them."""

    def __init__(self, slow: int = 8, quick: int = 4):
        self._slow, self._quick = anyio.CapacityLimiter(slow), anyio.CapacityLimiter(quick)

    async def slow(self, call: Callable[[], Value]) -> Value:
        """Run a call that may wait for Spark."""
        return await anyio.to_thread.run_sync(call, limiter=self._slow)

    async def quick(self, call: Callable[[], Value]) -> Value:
        """Run a call that does not wait, but may compute a little."""
        return await anyio.to_thread.run_sync(call, limiter=self._quick)


class ChangeSignal:
    """Wakes all waiting readers once after each batch or prod; belongs to one event loop."""

    def __init__(self, service: Service):
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._scheduled = False
        self.generation = 0
        self.closed = False
        self._stop_listening = service.listen(self._schedule)

    def _schedule(self) -> None:
        """Called in the engine's thread, so it does as little as possible."""
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the event loop is closed already
                self._loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        """Wake all waiting readers."""
        self._scheduled = False
        self.generation += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def next(self) -> asyncio.Event:
        """The event of the next change; take it before reading, so that no change is missed."""
        return self._changed

    def close(self) -> None:
        """Wake all readers for the last time."""
        self._stop_listening()
        self.closed = True
        self.wake()


@dataclass(frozen=True)
class EncodedChunk:
    """Some results of a query as bytes, and the cursor after them."""

    body: bytes
    cursor: str
    more: bool
    rows: int


class SharedReader:
    """Reads and encodes results; readers that want the same between two batches share the work."""

    def __init__(self, service: Service, signal: ChangeSignal, threads: ThreadPools):
        self.service, self.signal, self.threads = service, signal, threads
        self._generation = -1
        self._tasks: dict[CacheKey, asyncio.Task[EncodedChunk]] = {}
        self._bytes = 0

    async def read(
        self,
        name: str,
        cursor: str | None,
        limit: int,
        form: ChunkFormat,
        columns: Sequence[ColumnInfo] = (),
        text: str | None = None,
    ) -> EncodedChunk:
        """Results after a cursor; JSON answers include `columns`.

        With `text`, raise NotFound if another query has taken the name, or an edit has changed the columns.
        """
        current_text = self.service.text(name)
        if text is not None and not self.service.follows(name, text):
            raise NotFound(f"the query {name} was dropped or has other columns now")
        if self._generation != self.signal.generation or self._bytes > CACHE_BYTES:
            self._generation, self._bytes = self.signal.generation, 0
            self._tasks = {}
        key = (name, current_text, cursor, limit, form)
        if (task := self._tasks.get(key)) is None:
            task = asyncio.ensure_future(self._encode(name, cursor, limit, form, columns))
            task.add_done_callback(lambda done: self._finish(key, done))
            self._tasks[key] = task
        return await asyncio.shield(task)  # other readers wait for it too

    def _finish(self, key: CacheKey, done: asyncio.Task[EncodedChunk]) -> None:
        if done.cancelled() or done.exception() is not None:
            if self._tasks.get(key) is done:
                del self._tasks[key]
        else:
            self._bytes += len(done.result().body)

    async def _encode(
        self, name: str, cursor: str | None, limit: int, form: ChunkFormat, columns: Sequence[ColumnInfo]
    ) -> EncodedChunk:
        if cursor is not None and self.service.in_memory(name, cursor):
            chunk = self.service.results(name, cursor, limit)
        else:
            chunk = await self.threads.slow(lambda: self.service.results(name, cursor, limit))
        if is_large(chunk.table):
            body = await self.threads.quick(lambda: _body(chunk, form, columns))
        else:
            body = _body(chunk, form, columns)
        return EncodedChunk(body, chunk.cursor, chunk.more, chunk.table.num_rows)

    async def wait(
        self,
        name: str,
        cursor: str | None,
        limit: int,
        form: ChunkFormat,
        columns: Sequence[ColumnInfo],
        seconds: float,
    ) -> EncodedChunk:
        """Results after a cursor; if there are none, wait for new ones for at most this number of seconds."""
        deadline = asyncio.get_running_loop().time() + seconds
        text = self.service.text(name)
        while True:
            changed = self.signal.next()
            chunk = await self.read(name, cursor, limit, form, columns, text)
            left = deadline - asyncio.get_running_loop().time()
            if chunk.rows or left <= 0 or self.signal.closed:
                return chunk
            cursor = chunk.cursor
            with counted_subscriber(self.service), suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left)


def _body(chunk: ResultChunk, form: ChunkFormat, columns: Sequence[ColumnInfo]) -> bytes:
    if isinstance(form, RowsEncoding):
        return encode_rows(chunk.table, columns, form, (chunk.cursor, chunk.more))
    return results_event(chunk.table, chunk.cursor) if chunk.table.num_rows else b""


def is_large(table: pa.Table) -> bool:
    """Whether encoding a table would block the event loop for too long."""
    return table.num_rows * max(1, table.num_columns) > SMALL_VALUES


class EventStream(Response):
    """Server-sent events, until the reader leaves, there is nothing more to send, or the server stops.

    A slow reader blocks only its own coroutine and falls behind; only the current event is buffered for it.
    """

    media_type = "text/event-stream"

    def __init__(self, service: Service, parts: AsyncIterator[bytes]):
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._service, self._parts = service, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with counted_subscriber(self._service):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            gone = asyncio.ensure_future(_until_disconnect(receive))
            follow = asyncio.ensure_future(self._follow(send))
            try:
                await asyncio.wait({gone, follow}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                follow.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await follow

    async def _follow(self, send: Send) -> None:
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def result_events(
    reader: SharedReader, name: str, text: str, columns: Sequence[ColumnInfo], start: str, first: EncodedChunk
) -> AsyncIterator[bytes]:
    """The results of a query with this text as server-sent events, until it is dropped or the server stops."""
    cursor, limits = first.cursor, reader.service.limits
    # A reader that leaves before the first rows resumes here.
    yield columns_event(columns, start) + first.body
    while not reader.signal.closed:
        changed = reader.signal.next()
        try:
            chunk = await reader.read(name, cursor, limits.event_rows, EVENT, text=text)
        except NotFound:
            yield DROPPED_EVENT
            return
        cursor = chunk.cursor
        if chunk.rows:
            yield chunk.body
        if not chunk.more:
            async for heartbeat in heartbeats_until(changed, limits.heartbeat_seconds):
                yield heartbeat


async def heartbeats_until(changed: asyncio.Event, seconds: float) -> AsyncIterator[bytes]:
    """Wait for the next change; heartbeats keep the connection open meanwhile."""
    while True:
        try:
            await asyncio.wait_for(changed.wait(), seconds)
            return
        except TimeoutError:
            yield HEARTBEAT


@contextmanager
def counted_subscriber(service: Service) -> Iterator[None]:
    """Count a reader that follows results; only the event loop changes the count."""
    if service.subscribers >= service.limits.subscribers:
        raise LimitError(f"{service.limits.subscribers:,} readers follow results already")
    service.subscribers += 1
    try:
        yield
    finally:
        service.subscribers -= 1


async def _until_disconnect(receive: Receive) -> None:
    """Wait until the reader leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
