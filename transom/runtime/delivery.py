"""Delivery of results to sinks and subscribers, before a batch is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from transom.backends.base import Backend, Frame, ResultKey, Sink
from transom.errors import SettingError
from transom.promising.answers import ANSWER_SYSTEM_COLUMNS
from transom.results.result_rows import ROW_SYSTEM_COLUMNS, SYSTEM_COLUMNS, Results
from transom.runtime.batch_report import BatchReport
from transom.runtime.executor_state import StoredResults, fixed_frame
from transom.runtime.fixed_schema import FixedLayout, fixed_rows, layout_of
from transom.runtime.loop import BatchLoop
from transom.sql.query import Query, free_name
from transom.storage.file_store import Store

log = logging.getLogger("transom")

FIXED_KEY = ResultKey(
    ("query", "window_from", "window_to", "keys"),
    condition="window_from < window_to",  # of a query without a window, both are its time or null
    extent=("window_start", "window_end"),
)
_OF_RESULTS = ("batch=", "day=", "transom_day=")  # how directories of file sinks begin
Subscriber = Callable[[pa.Table], None]


class Delivery:
    """The sinks and subscribers of an engine. Those of a query are removed when it is dropped.

    `retention` says how long results can be read back: a number of batches if `in_batches`, else microseconds.
    """

    def __init__(self, loop: BatchLoop, retention: int | None, in_batches: bool):
        self.loop, self.retention, self.in_batches = loop, retention, in_batches
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._sinks: list[tuple[str | None, Sink]] = []  # for one query, or for all
        loop.listeners.append(self.deliver)

    def sink(self, query: str | None, format: str, path: str | None, options: Mapping[str, Any]) -> None:
        """Write a query's results, or those of all queries, from now on."""
        sink = self.loop.backend.sink(
            format, dict(options) if path is None else {**options, "path": str(path)}
        )
        sink.guarded, sink.sync = self.loop.store.guarded, self.loop.store.sync
        if sink.path is not None:
            self._check_path(sink.path)
        self._sinks.append((query, sink))

    def _check_path(self, path: str) -> None:
        """A directory per batch is written exactly once only if no other run writes batches there."""
        if any(other.path == path for _, other in self._sinks):
            raise SettingError(f"another sink writes to {path} already")
        try:
            has_batches = any(name.startswith(_OF_RESULTS) for name in Store(path).list())
        except NotADirectoryError:
            raise SettingError(f"a sink needs a directory, and {path} is a file") from None
        if has_batches and not self.loop.continues:
            raise SettingError(
                f"{path} holds the batches of another run; a checkpoint would continue that run"
            )

    def subscribe(self, query: str, callback: Subscriber) -> Callable[[], None]:
        """Call back with a query's new results; returns a function that ends it."""
        callbacks = self._subscribers.setdefault(query, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback) if callback in callbacks else None

    def forget(self, query: str) -> None:
        """Remove the sinks and subscribers of a dropped query."""
        self._subscribers.pop(query, None)
        self._sinks = [(owner, sink) for owner, sink in self._sinks if owner != query]

    def _rename(self, name: str, to: str) -> None:
        """Let the sinks and subscribers of a query follow it to another name."""
        if name in self._subscribers:
            self._subscribers[to] = self._subscribers.pop(name)
        self._sinks = [(to if owner == name else owner, sink) for owner, sink in self._sinks]

    def deliver(self, report: BatchReport) -> None:
        """Deliver the results of a batch, and forget results that are too old."""
        backend = self.loop.backend
        for name, to in report.renamed:
            self._rename(name, to)
        for query, sink in self._sinks:
            if query is None and report.results:
                rows = _all_rows(report, backend, layout_of(sink.format))
                sink.write(rows, report.batch_id, FIXED_KEY)
            elif query is not None and query in report.results:
                rows = _rows(report, query, backend)
                sink.write(rows, report.batch_id, _key_of(report, query, rows))
        self.call_subscribers(report.results)
        self._retain(report.batch_id)

    def call_subscribers(self, results: Results) -> None:
        """Call the subscribers of queries that have results; an exception in one is logged."""
        for name, callbacks in list(self._subscribers.items()):
            table = results[name] if callbacks and name in results else None
            for callback in list(callbacks) if table is not None else ():
                try:
                    callback(table)
                except Exception:
                    log.exception("a subscriber of %s failed", name)

    def _retain(self, batch_id: int) -> None:
        kept = self.retention
        if kept is None:
            return
        if self.in_batches:
            old = self.loop.outputs.drop_results(lambda made, at: made <= batch_id - kept)
        else:
            oldest = self.loop.clock() - kept
            old = self.loop.outputs.drop_results(lambda made, at: at < oldest)
        self.loop.log.discard(old, batch_id)


def _key_of(report: BatchReport, name: str, rows: Frame) -> ResultKey:
    """What identifies a query's results."""
    query, columns = report.queries[name], list(rows.columns)
    day = free_name("day", {column.casefold() for column in columns})
    if not isinstance(query, Query):
        batch, made, *_ = columns[-len(ANSWER_SYSTEM_COLUMNS) :]
        return ResultKey((), name, batch=batch, made=made, day=day)
    if query.is_row_query:
        kind, batch, made = columns[-len(ROW_SYSTEM_COLUMNS) :]
        return ResultKey((), name, kind, batch, extent=(columns[0], columns[0]), made=made, day=day)
    kind, *_, batch, made, _ = columns[-len(SYSTEM_COLUMNS) :]
    keys = [column for column, is_key in query.selected if is_key]
    start, end = columns[:2]
    return ResultKey((start, end, *keys), name, kind, batch, extent=(start, end), made=made, day=day)


def _rows(report: BatchReport, query: str, backend: Backend) -> Frame:
    """A query's results in a batch; results that tasks wrote are read by tasks."""
    stored = report.results.stored.get(query)
    return (
        stored.frame(backend) if isinstance(stored, StoredResults) else backend.frame(report.results[query])
    )


def _all_rows(report: BatchReport, backend: Backend, layout: FixedLayout) -> Frame:
    """The results of all queries in one schema."""
    on_driver = fixed_rows(Results(report.results.batches), report.queries, layout)
    if not report.results.stored:
        return backend.frame(on_driver)
    written = fixed_frame(backend, report.results.stored, report.queries, layout)
    return written.union(backend.frame(on_driver)) if on_driver.num_rows else written
