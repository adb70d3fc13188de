"""The best single job that Spark SQL allows: conditional sums of all queries over shared slices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.peers.answers import Answers, add_up, columns, paired_edges, slices_of
from benchmarks.workloads import BenchQuery, Predicate

_MAX_FIELDS = "spark.sql.codegen.maxFields"
_QUANTITIES = {"volume": "vol", "value": "price * vol", "change": "abs(price - cp) / cp"}


def condition(predicate: Predicate) -> str:
    """A predicate in Spark SQL over joined trades."""
    member = predicate.member if predicate.is_member else f"NOT {predicate.member}"
    return f"{member} AND {_QUANTITIES[predicate.quantity]} {predicate.op} {predicate.constant!r}D"


class SingleJob:
    """A batch job over cached trades, with joins, slices and quantities computed ahead and not timed."""

    def __init__(self, spark: SparkSession, trades: pa.Table, queries: Sequence[BenchQuery]):
        self.spark, self.queries = spark, queries
        data = columns(trades)
        self.span = int(data["time"].min()), int(data["time"].max())
        self.edges = paired_edges((query.window for query in queries), *self.span)
        flags = {name: data[name] for name in ("r3000", "r2000", "r1000")}
        quantities = {name: data[name] for name in ("volume", "value", "change")}
        slices = slices_of(data["time"], self.edges).astype(np.int32)
        table = pa.table({"slice": slices, **quantities, **flags})
        self.cached = spark.createDataFrame(table).repartition(2).cache()
        self.cached.createOrReplaceTempView("sliced_trades")
        self.cached.count()
        # Otherwise Spark generates no code for more than 100 columns, and takes two to three times as long.
        spark.conf.set(_MAX_FIELDS, "100000")

    def __enter__(self) -> SingleJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spark.conf.unset(_MAX_FIELDS)
        self.cached.unpersist()
        self.spark.catalog.dropTempView("sliced_trades")

    def run(self, chunk: int | None = None) -> tuple[float, Answers]:
        """Seconds and answers; with `chunk`, each job has this many queries, and jobs run one after the other."""
        started = time.perf_counter()
        answers: Answers = {}
        step = chunk or len(self.queries)
        for start in range(0, len(self.queries), step):
            part = self._run_chunk(self.queries[start : start + step])
            answers |= {start + number: windows for number, windows in part.items()}
        return time.perf_counter() - started, answers

    def _run_chunk(self, queries: Sequence[BenchQuery]) -> Answers:
        sums = ", ".join(f"{_sum(query.predicate)} AS q{number}" for number, query in enumerate(queries))
        text = f"SELECT slice, {sums} FROM sliced_trades GROUP BY slice"
        found = self.spark.sql(text).toArrow().sort_by("slice")
        slices = found["slice"].to_numpy().astype(np.int64)
        by_query = (found[f"q{number}"].to_numpy() for number in range(len(queries)))
        return add_up(queries, by_query, slices, self.edges, self.span)


def _sum(predicate: Predicate | None) -> str:
    if predicate is None:
        return "sum(value)"
    member = predicate.member if predicate.is_member else f"NOT {predicate.member}"
    chosen = f"{member} AND {predicate.quantity} {predicate.op} {predicate.constant!r}D"
    return f"sum(CASE WHEN {chosen} THEN value END)"
