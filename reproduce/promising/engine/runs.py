"""Runs of preference queries in an engine on the local backend, by processor time.

The engine's own clock for budgets of time is processor time, too, so that other processes do not disturb a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import transom
from reproduce.prodding.data import Numbers
from reproduce.promising.data import Floats, Stores, Stream
from transom.runtime.handles import QueryHandle

COLUMNS = "item bigint, n bigint, ts timestamp"


@dataclass(frozen=True)
class StoreBatch:
    """A batch of one store's tuples, and their row numbers in the stream."""

    store: int
    items: Numbers
    times: Numbers
    rows: Numbers

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def table(self) -> pa.Table:
        stamps = pa.array(self.times, pa.timestamp("us", tz="UTC"))
        return pa.table({"item": self.items, "n": self.rows, "ts": stamps})


def stream_batches(stream: Stream, store: int, length: int) -> Iterator[StoreBatch]:
    """A stream's tuples in batches that are `length` microseconds long; no batch is empty."""
    edges = np.flatnonzero(np.diff(stream.times // length)) + 1
    for rows in np.split(np.arange(len(stream)), edges):
        if len(rows):
            yield StoreBatch(store, stream.items[rows], stream.times[rows], rows)


def store_batches(stores: Stores, length: int) -> list[StoreBatch]:
    """The batches of both stores in turn, in order of time."""
    batches = [
        batch
        for store, stream in enumerate((stores.first, stores.second))
        for batch in stream_batches(stream, store, length)
    ]
    return sorted(batches, key=lambda batch: (int(batch.times[0]) // length, batch.store))


@dataclass
class StepSeconds:
    """The processor time of each batch: of the whole step, of the part for preferences, and of writing results."""

    step: list[float] = field(default_factory=list)
    preference: list[float] = field(default_factory=list)
    results: list[float] = field(default_factory=list)

    def columns(self, tuples: int) -> dict[str, float]:
        """The microseconds per tuple, as columns of a table."""
        return {
            "cpu_us": 1e6 * sum(self.preference) / max(tuples, 1),
            "results_us": 1e6 * sum(self.results) / max(tuples, 1),
            "step_us": 1e6 * sum(self.step) / max(tuples, 1),
        }

    def array(self, what: str) -> Floats:
        """The seconds of each batch."""
        return np.array(getattr(self, what), np.float64)


class StoreEngine:
    """An engine with two stores and a summary of each, whose batches are measured."""

    def __init__(
        self,
        summary: str,
        structure: str = "auto",
        state: str = "driver",
        retention: int | None = None,
    ):
        """`summary` are the clauses after WITH; `retention` is the number of batches whose results are kept."""
        self.engine = transom.Engine(backend="local", state=state, retention=retention)
        self.feeds = [self.engine.feed(f"store{n}", COLUMNS, time="ts") for n in (0, 1)]
        for n in (0, 1):
            self.engine.execute(
                f"CREATE SUMMARY items{n} ON store{n}(item) WITH {summary} AND STRUCTURE {structure}"
            )
        self.seconds = StepSeconds()
        loop = self.engine._loop
        loop.promising.clock = process_time
        self._part = self._written = 0.0
        loop.promising.arrive = self._timed(loop.promising.arrive, "_part")  # type: ignore[method-assign]
        loop.promising.process = self._timed(loop.promising.process, "_part")  # type: ignore[method-assign]
        loop.outputs.write_results = self._timed(  # type: ignore[method-assign]
            loop.outputs.write_results, "_written"
        )

    def _timed(self, call: Callable[..., Any], total: str) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            began = process_time()
            made = call(*given)
            setattr(self, total, getattr(self, total) + process_time() - began)
            return made

        return timed

    def register(self, sql: str) -> QueryHandle:
        return self.engine.register(sql)

    def push(self, batch: StoreBatch) -> None:
        """Run a batch."""
        self.feeds[batch.store].push(batch.table)
        self._part = self._written = 0.0
        began = process_time()
        self.engine.step()
        self.seconds.step.append(process_time() - began)
        self.seconds.preference.append(self._part)
        self.seconds.results.append(self._written)

    def run(self, batches: Sequence[StoreBatch]) -> StepSeconds:
        """Run all batches."""
        for batch in batches:
            self.push(batch)
        return self.seconds

    @property
    def produced(self) -> int:
        """The results of all queries so far."""
        return sum(query.done.produced for query in self.engine._loop.state.promising.queries.values())


@contextmanager
def store_engine(*given: Any, **options: Any) -> Iterator[StoreEngine]:
    """A `StoreEngine` that is stopped in the end."""
    made = StoreEngine(*given, **options)
    try:
        yield made
    finally:
        made.engine.stop()


def result_rows(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row numbers of a join's pairs."""
    return table["here"].to_numpy(), table["there"].to_numpy()
