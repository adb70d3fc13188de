"""Timed runs of the engine: streaming, registration, and queries that join and leave."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import transom
from benchmarks.trades import HOUR, START, TradingHour
from benchmarks.workloads import BenchQuery, texts
from transom.kernel.query_counts import QueryIndex

_TRADES = "time timestamp, symbol string, price double, vol int"
_MINUTES = 60
NOOP = "noop"  # not a strategy of the engine: a kernel that does nothing


class Measured(Protocol):
    """The cost of aggregating the hour."""

    @property
    def partial_seconds(self) -> float: ...

    @property
    def final_seconds(self) -> float: ...

    @property
    def partials(self) -> int: ...

    @property
    def finals(self) -> int: ...

    @property
    def state_bytes(self) -> int: ...


class Measure(Protocol):
    """Aggregates batches with one strategy for windows and one for fragments, and returns the cost."""

    def __call__(
        self,
        batches: list[pa.Table],
        queries: dict[str, str],
        windows: str,
        fragments: str,
        clock: Callable[[], float] = ...,
    ) -> Measured: ...


@contextmanager
def engine_with_tables(
    spark: SparkSession, hour: TradingHour, strategy: str | None = None
) -> Iterator[transom.Engine]:
    """An engine on an empty checkpoint with the static tables declared."""
    options = {} if strategy in (None, NOOP) else {"strategy": strategy}
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as checkpoint,
        transom.Engine(spark, checkpoint, **options) as engine,  # type: ignore[arg-type]
    ):
        if strategy == NOOP:
            _empty_kernel(engine)
        engine.table("closing", str(hour.closing))
        engine.table("members", str(hour.members))
        yield engine


def _empty_kernel(engine: transom.Engine) -> None:
    """Make batches deliver all columns to a kernel that has nothing to compute."""
    planner = engine._loop.planner
    plan = planner.plan

    def planned(state: Any, queries: Any) -> Any:
        return replace(plan(state, queries), families=(), interests=(), index=QueryIndex())

    planner.plan = planned  # type: ignore[method-assign]


def stream(
    spark: SparkSession,
    hour: TradingHour,
    queries: Sequence[BenchQuery],
    strategy: str | None = None,
    close: bool | None = None,
) -> tuple[float, int]:
    """Seconds from the first of the ten batches to the last result, and the remaining bytes of state.

    Registration is not timed. With `close` False the windows that are open after the last batch stay open.
    """
    with engine_with_tables(spark, hour, strategy) as engine:
        engine.stream("trades", str(hour.trades), time="time")
        engine.register_all(texts(queries))
        seconds = timed(lambda: engine.drain(close))
        return seconds, engine.progress().state_bytes


def register(spark: SparkSession, hour: TradingHour, queries: Sequence[BenchQuery]) -> float:
    """Seconds to register all queries in one call."""
    with engine_with_tables(spark, hour) as engine:
        engine.stream("trades", str(hour.trades), time="time")
        return timed(lambda: engine.register_all(texts(queries)))


def timed(work: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Churn:
    """Seconds of each batch, and how many queries joined or left in a minute."""

    batches: list[float]
    changes_a_minute: float


def churn(
    spark: SparkSession,
    hour: TradingHour,
    standing: Sequence[BenchQuery],
    passing: Sequence[BenchQuery],
    batches: int = _MINUTES,
) -> Churn:
    """Push the hour minute by minute while ten queries join and ten leave every fifth of a second."""
    with engine_with_tables(spark, hour) as engine:
        feed = engine.feed("trades", _TRADES, time="time")
        engine.register_all(texts(standing))
        visitors = _VisitingQueries(engine, passing)
        seconds = []
        started = time.perf_counter()
        with visitors:
            for trades in minutes(hour)[:batches]:
                feed.push(trades)
                seconds.append(timed(engine.step))
        return Churn(seconds, 60 * visitors.changes / (time.perf_counter() - started))


class _VisitingQueries:
    """A thread that repeatedly registers some queries and drops the previous ones, until it is stopped."""

    together = 10
    pause = 0.2

    def __init__(self, engine: transom.Engine, queries: Sequence[BenchQuery]):
        self.engine = engine
        self.texts = list(texts(queries).values())
        self.changes = 0
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        if self.texts:
            self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        if self.texts:
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            self._register_and_drop()
        except BaseException as error:
            self._failed = error

    def _register_and_drop(self) -> None:
        present: list[transom.QueryHandle] = []
        number = 0
        while not self._stop.wait(self.pause):
            some = {
                f"visitor{i}": self.texts[i % len(self.texts)] for i in range(number, number + self.together)
            }
            number += len(some)
            arrived = list(self.engine.register_all(some).values())
            for handle in present:
                handle.drop()
            self.changes += len(arrived) + len(present)
            present = arrived


def minutes(hour: TradingHour) -> list[pa.Table]:
    """The trades of each minute in order of arrival, without the joins."""
    trades = pa.concat_tables([pq.read_table(file) for file in hour.files()])
    times = trades["time"].cast(pa.int64()).to_numpy()
    cuts = times.searchsorted(START + HOUR // _MINUTES * np.arange(_MINUTES + 1))
    return [trades.slice(a, b - a) for a, b in pairwise(cuts)]
