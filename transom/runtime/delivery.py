"""Delivery of results to sinks and subscribers, before a batch is committed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from transom.backends.base import Backend, Frame, ResultKey, Sink
from transom.errors import SettingError
from transom.results.newest_results import ResultPlaces, without_replaced_retractions
from transom.results.result_rows import ROW_SYSTEM_COLUMNS, SYSTEM_COLUMNS, Results
from transom.runtime.batch_report import BatchReport
from transom.runtime.executor_state import StoredResults, fixed_frame
from transom.runtime.fixed_schema import FixedLayout, fixed_rows, layout_of
from transom.runtime.loop import BatchLoop
from transom.sql.bound_query import BoundQuery
from transom.sql.preference_results import ANSWER_SYSTEM_COLUMNS
from transom.sql.query import Query, free_name
from transom.storage.file_store import Store

log = logging.getLogger("transom")

FIXED_KEY = ResultKey(
    ("query", "window_from", "window_to", "keys"),
    condition="window_from < window_to",  # of a query without a window, both are its time or null
    extent=("window_start", "window_end"),
)
_OF_RESULTS = ("batch=", "day=", "transom_day=")  # how directories of file sinks begin
_WRITER = "sink/writer"  # the file of the checkpoint with its name
RETRACTIONS = "retractions"  # the option of a sink that says which retractions it gets
RETRACTION_OPTIONS = ("all", "deleted")
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
        options = {**options} if path is None else {**options, "path": str(path)}
        has_retractions = _all_retractions(options.pop(RETRACTIONS, None))
        sink = self.loop.backend.sink(format, options)
        sink.retractions = has_retractions
        sink.guarded, sink.sync = self.loop.store.guarded, self.loop.store.sync
        sink.writer = partial(writer_name, self.loop.store)
        if sink.path is not None:
            self._check_path(sink.path)
        if sink.place is not None and any(
            owner == query and other.place == sink.place for owner, other in self._sinks
        ):
            raise SettingError(f"another sink of the same results writes to {sink.place} already")
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
                f"{path} holds the batches of another run: choose another directory, delete this one, or continue "
                "that run with its checkpoint"
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
                rows = _all_rows(report, backend, layout_of(sink.format), sink.retractions)
                sink.write(rows, report.batch_id, FIXED_KEY)
            elif query is not None and query in report.results:
                rows = _rows(report, query, backend, sink.retractions)
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


def writer_name(store: Store) -> str:
    """A name of the checkpoint that no other has; it stays when the checkpoint is moved."""
    if not store.exists(_WRITER):
        store.write(_WRITER, f"transom-{uuid.uuid4()}".encode())
        store.flush()  # before an output has the name: after a power failure, another one would write the batch again
    return store.read(_WRITER).decode()


def _all_retractions(option: Any) -> bool:
    """Whether a sink gets all retractions."""
    if option not in (None, *RETRACTION_OPTIONS):
        raise SettingError(
            f"retractions is {' or '.join(RETRACTION_OPTIONS)}, not {option!r}: all rows that late rows make "
            "invalid, or only those that nothing replaces"
        )
    return option == "all"


def _key_of(report: BatchReport, name: str, rows: Frame) -> ResultKey:
    """What identifies a query's results."""
    query, columns = report.queries[name], list(rows.columns)
    taken = {column.casefold() for column in columns}
    day, query_column = free_name("day", taken), free_name("query", taken)
    if not isinstance(query, Query):
        batch, made, *_ = columns[-len(ANSWER_SYSTEM_COLUMNS) :]
        return ResultKey((), name, batch=batch, made=made, day=day, query_column=query_column)
    if query.is_row_query:
        kind, batch, made = columns[-len(ROW_SYSTEM_COLUMNS) :]
        return ResultKey(
            (),
            name,
            kind,
            batch,
            extent=(columns[0], columns[0]),
            made=made,
            day=day,
            query_column=query_column,
        )
    kind, *_, batch, made, _ = columns[-len(SYSTEM_COLUMNS) :]
    keys = [column for column, is_key in query.selected if is_key]
    start, end = columns[:2]
    return ResultKey(
        (start, end, *keys),
        name,
        kind,
        batch,
        extent=(start, end),
        made=made,
        day=day,
        query_column=query_column,
    )


def _rows(report: BatchReport, query: str, backend: Backend, retractions: bool) -> Frame:
    """A query's results in a batch; results that tasks wrote are read by tasks."""
    stored = report.results.stored.get(query)
    if isinstance(stored, StoredResults):
        return stored.frame(backend)
    return backend.frame(_for_sink(report.queries[query], report.results[query], retractions))


def _for_sink(query: BoundQuery, results: pa.Table, retractions: bool) -> pa.Table:
    """The results that a sink gets: without `retractions`, only those of results that nothing replaces."""
    if retractions or not isinstance(query, Query) or query.corrections is None:
        return results
    return without_replaced_retractions(results, ResultPlaces.of(query))


def _all_rows(report: BatchReport, backend: Backend, layout: FixedLayout, retractions: bool) -> Frame:
    """The results of all queries in one schema."""
    made = Results(report.results.batches)
    queries = (report.queries[name] for name in made)
    if not retractions and any(isinstance(query, Query) and query.corrections for query in queries):
        tables = {name: _for_sink(report.queries[name], table, retractions) for name, table in made.items()}
        on_driver = fixed_rows(tables, report.queries, layout)
    else:
        on_driver = fixed_rows(made, report.queries, layout)
    if not report.results.stored:
        return backend.frame(on_driver)
    written = fixed_frame(backend, report.results.stored, report.queries, layout)
    return written.union(backend.frame(on_driver)) if on_driver.num_rows else written
