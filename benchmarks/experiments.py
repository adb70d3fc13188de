"""The experiments: each yields rows, from which the bars are computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import engine_runs
from benchmarks.engine_runs import Measure, Measured
from benchmarks.peers import SingleJob, in_polars, native
from benchmarks.rows import Row
from benchmarks.trades import ROWS, TradingHour, trading_hour
from benchmarks.workloads import SEEDS, SIZES, SQUARES, BenchQuery, load, texts

# Each strategy is a pair: how windows are computed, and how fragments are.
SHARED = ("shared_paired", "families")
UNSHARED = ("unshared_paired", "unshared")
PANED = ("shared_paned", "families")
UNSHARED_PANED = ("unshared_paned", "unshared")
PANED_SEEDS = 3  # query sets that run with panes, which take many times as long
POLARS_CHUNK = 250  # queries; several scans of fewer queries are faster than the one scan of the bars


@dataclass(frozen=True)
class Scale:
    """The size of a run: everything, or just enough to check that every experiment works."""

    rows: int = ROWS
    sizes: tuple[int, ...] = SIZES
    squares: tuple[int, ...] = SQUARES
    seeds: int = SEEDS
    unshared_queries: int = 64  # of each query set; their time is scaled to the whole set
    repeats: int = 3
    side_by_side: tuple[int, int] = (1, 16)  # native queries to scale from
    churn_batches: int = 60
    large_rows: int = 5_000_000  # in ten files, to measure rows a second
    scaled: tuple[int, ...] = (1, 1_024, 10_000)
    # Replaces the bars' numbers of queries. Both C regular and C low sharing have files of these sizes.
    instead: dict[int, int] = field(default_factory=dict)

    def size(self, queries: int) -> int:
        """The number of queries to measure for a bar with this number."""
        return self.instead.get(queries, queries)


FULL = Scale()
SHORT = Scale(
    rows=20_000,
    sizes=(16,),
    squares=(16,),
    seeds=1,
    unshared_queries=4,
    repeats=1,
    side_by_side=(1, 2),
    churn_batches=3,
    large_rows=40_000,
    scaled=(1, 10_000),
    instead={256: 16, 1_000: 16, 1_024: 32, 10_000: 64},
)


@dataclass
class Bench:
    """A run: its scale, data, Spark session and kernel, and a cache of the streaming measurements."""

    scale: Scale
    directory: Path | None = None
    step: Callable[[str], None] = lambda _: None  # called with the name of the next measurement
    _streamed: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)

    @cached_property
    def hour(self) -> TradingHour:
        self.step("generating the trading hour")
        return trading_hour(self.directory, self.scale.rows)

    @cached_property
    def batches(self) -> list[pa.Table]:
        return self.hour.batches()

    @cached_property
    def _starts(self) -> list[pa.Table]:
        """The first trades of each batch; kept for the whole run, because the kernel caches batches by id."""
        return [batch.slice(0, 1_000) for batch in self.batches]

    @cached_property
    def measure(self) -> Measure:
        """The kernel, warmed up."""
        from benchmarks.kernel import measure

        some = texts(load("C_low", 16)[0])
        for windows, fragments in (SHARED, UNSHARED):
            measure(self._starts, some, windows, fragments)
        return measure

    @cached_property
    def spark(self) -> SparkSession:
        """A session on two cores whose Python workers have run: small files would be read on the driver."""
        from transom.backends.spark.session import start_session

        self.step("starting Spark")
        spark = start_session("benchmark", "local[2]", {"spark.driver.memory": "6g"})
        engine_runs.stream(spark, self.hour, load("C_low", 16)[0])
        return spark

    def large(self, workload: str, queries: int) -> Sequence[BenchQuery]:
        """This many queries: from the workload's file of this size, or the first of its largest file."""
        stored_sizes = {"C_regular": (*SQUARES, 1_024, 10_000), "C_low": (*SIZES, 1_024, 10_000)}[workload]
        if queries in stored_sizes:
            return load(workload, queries)[0]
        return load(workload, self.scale.size(10_000))[0][:queries]

    def streamed(self, workload: str, queries: int, strategy: str | None = None) -> list[float]:
        """Seconds of each repetition, end to end; measured once per run."""
        key = (workload, queries, strategy)
        if key not in self._streamed:
            self._streamed[key] = []
            for repeat in range(self.scale.repeats):
                self.step(
                    f"streaming {queries:,} queries of {workload}, {strategy or 'shared'}, {repeat + 1}"
                )
                seconds, _ = engine_runs.stream(
                    self.spark, self.hour, self.large(workload, queries), strategy
                )
                self._streamed[key].append(seconds)
        return self._streamed[key]


def _rows(
    experiment: str, workload: str, queries: int, strategy: str, seconds: Sequence[float]
) -> Iterator[Row]:
    for repeat, value in enumerate(seconds):
        yield Row(experiment, workload, queries, 0, strategy, repeat, value)


# --- the kernel alone ---


def aggregation(bench: Bench) -> Iterator[Row]:
    """Partial and final aggregation without moving data: figures 13 to 16.

    Seconds are processor time: a run takes half an hour, and hardly depends on what else the machine does.
    """
    scale = bench.scale
    for workload in ("A", "A_seconds", "B", "C_regular", "C_low"):
        for size in scale.squares if workload == "C_regular" else scale.sizes:
            for seed in range(scale.seeds):
                bench.step(f"aggregation, {workload}, {size} queries, seed {seed}")
                queries = texts(load(workload, size)[seed])
                for strategy in _strategies(workload, seed):
                    for repeat in range(1 if strategy[0].startswith("unshared") else scale.repeats):
                        measured = _aggregate(bench, queries, *strategy)
                        yield _measured_row(measured, "aggregation", workload, size, seed, strategy, repeat)


def _strategies(workload: str, seed: int) -> Iterator[tuple[str, str]]:
    yield SHARED
    yield UNSHARED
    if workload in ("A", "A_seconds") and seed < PANED_SEEDS:
        yield PANED
    # Without whole seconds, the panes of one query are about a millisecond long.
    if workload == "A_seconds" and seed < PANED_SEEDS:
        yield UNSHARED_PANED


@dataclass(frozen=True)
class _Total:
    partial_seconds: float = 0.0
    final_seconds: float = 0.0
    partials: int = 0
    finals: int = 0
    state_bytes: int = 0

    def plus(self, other: Measured) -> _Total:
        names = self.__dataclass_fields__
        return _Total(*(getattr(self, name) + getattr(other, name) for name in names))

    def scaled(self, factor: float) -> _Total:
        return _Total(
            self.partial_seconds * factor,
            self.final_seconds * factor,
            round(self.partials * factor),
            round(self.finals * factor),
            round(self.state_bytes * factor),
        )


def _aggregate(bench: Bench, queries: dict[str, str], windows: str, fragments: str) -> Measured:
    """Run the kernel; an unshared strategy is the sum over runs with one query each, scaled from some of them."""
    if not windows.startswith("unshared"):
        return bench.measure(bench.batches, queries, windows, fragments, clock=time.process_time)
    total = _Total()
    step = max(1, len(queries) // bench.scale.unshared_queries)
    chosen = list(queries.items())[::step]
    for name, text in chosen:
        measured = bench.measure(bench.batches, {name: text}, windows, fragments, clock=time.process_time)
        total = total.plus(measured)
    return total.scaled(len(queries) / len(chosen))


def _measured_row(
    measured: Measured,
    experiment: str,
    workload: str,
    size: int,
    seed: int,
    strategy: tuple[str, str],
    repeat: int,
) -> Row:
    seconds = measured.partial_seconds + measured.final_seconds
    return Row(
        experiment, workload, size, seed, strategy[0], repeat, seconds, measured.partial_seconds,
        measured.final_seconds, measured.partials, measured.finals, measured.state_bytes, note=strategy[1],
    )  # fmt: skip


def polars(bench: Bench) -> Iterator[Row]:
    """The kernel on one core against Polars on two."""
    for queries in map(bench.scale.size, (256, 1_024, 10_000)):
        bench.step(f"polars, {queries:,} queries")
        ours = texts(load("C_low", queries)[0])
        for repeat in range(bench.scale.repeats):
            measured = bench.measure(bench.batches, ours, *SHARED)
            row = _measured_row(measured, "polars", "C_low", queries, 0, ("transom", SHARED[1]), repeat)
            yield row
        repeats = bench.scale.repeats
        theirs = in_polars(bench.hour, "C_low", queries, repeats=repeats)
        yield from _rows("polars", "C_low", queries, "polars", theirs)
        theirs = in_polars(bench.hour, "C_low", queries, repeats=repeats, chunk=POLARS_CHUNK)
        yield from _rows("polars", "C_low", queries, "polars_in_chunks", theirs)


# --- streaming, end to end ---


def native_streaming(bench: Bench) -> Iterator[Row]:
    """Compare with native streaming queries, extrapolated from a few that run side by side."""
    queries = bench.scale.size(256)
    chosen = bench.large("C_low", queries)
    few, more = bench.scale.side_by_side
    if bench.scale.repeats > 1:
        native(bench.spark, bench.hour, chosen[:1])  # a warm-up
    times = {}
    for count in (few, more):
        bench.step(f"{count} native streaming queries")
        times[count] = native(bench.spark, bench.hour, chosen[:count])[0]
        yield Row("native", "C_low", count, 0, "native", seconds=times[count])
    each = (times[more] - times[few]) / (more - few)
    scaled = times[few] + each * (queries - few)
    yield Row("native", "C_low", queries, 0, "native_scaled", seconds=scaled, note=f"scaled from {more}")
    yield from _rows("native", "C_low", queries, "transom", bench.streamed("C_low", queries))


def single_job(bench: Bench) -> Iterator[Row]:
    """Compare with the best single job of Spark SQL, and with jobs of 64 queries, which are faster."""
    trades = pa.concat_tables(bench.batches)
    for queries in map(bench.scale.size, (256, 1_024)):
        chosen = load("C_low", queries)[0]
        with SingleJob(bench.spark, trades, chosen) as job:
            for strategy, chunk in (("single_job", None), ("jobs_of_64", 64)):
                bench.step(f"{strategy} of Spark SQL, {queries:,} queries")
                if bench.scale.repeats > 1:
                    job.run(chunk)  # a warm-up: code generation and compilation are not timed
                yield Row("single_job", "C_low", queries, 0, strategy, seconds=job.run(chunk)[0])
        yield from _rows("single_job", "C_low", queries, "transom", bench.streamed("C_low", queries))


def polars_in_memory(bench: Bench) -> Iterator[Row]:
    """The engine, from ten Parquet files to committed results, against one scan of Polars over rows in memory."""
    for queries in map(bench.scale.size, (256, 1_024, 10_000)):
        ours = bench.streamed("C_low", queries)
        yield from _rows("polars_in_memory", "C_low", queries, "transom", ours)
        bench.step(f"polars, {queries:,} queries")
        theirs = in_polars(bench.hour, "C_low", queries, repeats=bench.scale.repeats)
        yield from _rows("polars_in_memory", "C_low", queries, "polars", theirs)


def throughput(bench: Bench) -> Iterator[Row]:
    """Seconds for a million rows of large Parquet files."""
    rows = bench.scale.large_rows
    bench.step(f"generating {rows:,} trades")
    hour = trading_hour(bench.directory, rows)
    for queries in map(bench.scale.size, (1, 1_024)):
        for repeat in range(bench.scale.repeats):
            bench.step(f"{rows:,} rows, {queries:,} queries, {repeat + 1}")
            seconds, _ = engine_runs.stream(bench.spark, hour, bench.large("C_low", queries))
            seconds *= 1e6 / rows
            yield Row("throughput", "C_low", queries, 0, "transom", repeat, seconds, note=f"{rows} rows")


def noop(bench: Bench) -> Iterator[Row]:
    """Compare with the same batch loop and a kernel that does nothing."""
    queries = bench.scale.size(1_024)
    yield from _rows("noop", "C_low", queries, "noop", bench.streamed("C_low", queries, "noop"))
    yield from _rows("noop", "C_low", queries, "transom", bench.streamed("C_low", queries))


def scale_up(bench: Bench) -> Iterator[Row]:
    """One query, a thousand, ten thousand."""
    for workload in ("C_regular", "C_low"):
        for queries in bench.scale.scaled:
            size = bench.scale.size(queries)
            yield from _rows("scale", workload, size, "transom", bench.streamed(workload, size))


def memory(bench: Bench) -> Iterator[Row]:
    """Bytes of state after the last batch, while its windows are open."""
    for workload in ("C_regular", "C_low"):
        for queries in map(bench.scale.size, (1_000, 10_000)):
            bench.step(f"state of {queries:,} queries of {workload}")
            # C regular has 1,024 queries instead of a thousand: the nearest square.
            count = 1_024 if workload == "C_regular" and queries == 1_000 else queries
            chosen = bench.large(workload, count)
            seconds, state = engine_runs.stream(bench.spark, bench.hour, chosen, close=False)
            yield Row("memory", workload, queries, 0, "transom", seconds=seconds, state_bytes=state)


def registration(bench: Bench) -> Iterator[Row]:
    """Register many queries at once, and let queries join and leave while batches run."""
    queries = bench.scale.size(10_000)
    bench.step(f"registering {queries:,} queries")
    seconds = engine_runs.register(bench.spark, bench.hour, load("C_low", queries)[0])
    yield Row("register", "C_low", queries, 0, "register_all", seconds=seconds)
    standing = bench.scale.size(1_000)
    stay, visit = bench.large("C_low", standing), load("C_low", 256)[1]
    batches = bench.scale.churn_batches
    bench.step("batches while no query joins")
    quiet = engine_runs.churn(bench.spark, bench.hour, stay, [], batches)
    bench.step("batches while queries join and leave")
    busy = engine_runs.churn(bench.spark, bench.hour, stay, visit, batches)
    delay = max(ours - theirs for ours, theirs in zip(busy.batches, quiet.batches, strict=True))
    note = f"{busy.changes_a_minute:.0f} changes a minute"
    yield Row("register", "C_low", standing, 0, "quiet_batch", seconds=median(quiet.batches))
    yield Row("register", "C_low", standing, 0, "churn_batch", seconds=median(busy.batches), note=note)
    yield Row("register", "C_low", standing, 0, "churn_delay", seconds=delay, note=note)


EXPERIMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "aggregation": aggregation,
    "polars": polars,
    "native": native_streaming,
    "single_job": single_job,
    "polars_in_memory": polars_in_memory,
    "throughput": throughput,
    "noop": noop,
    "scale": scale_up,
    "memory": memory,
    "register": registration,
}
