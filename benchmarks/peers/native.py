"""Native Structured Streaming: as many streaming queries as there are queries, side by side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.answers import Answers
from benchmarks.peers.single_job import condition
from benchmarks.trades import TradingHour
from benchmarks.workloads import BenchQuery

_SCHEMA = "time timestamp, symbol string, price double, vol int"


def native(
    spark: SparkSession, hour: TradingHour, queries: Sequence[BenchQuery], with_answers: bool = False
) -> tuple[float, Answers]:
    """Seconds until all queries have processed the hour's ten files, a micro-batch each; answers on request.

    Spark aligns the starts of windows with the epoch, the papers and Transom the ends: the answers differ
    where the slide does not divide the range. The work is the same.
    """
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="native-") as checkpoints:
        running = []
        for number, query in enumerate(queries):
            writer = _streaming(spark, hour, query).writeStream.trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{checkpoints}/{number}").queryName(f"q{number}")
            # Complete mode keeps all windows; append mode drops closed windows by the watermark, and costs less.
            shown = writer.format("memory").outputMode("complete")
            running.append((shown if with_answers else writer.format("noop").outputMode("append")).start())
        for streaming in running:
            streaming.awaitTermination()
    seconds = time.perf_counter() - started
    return seconds, _answers(spark, len(queries)) if with_answers else {}


def _streaming(spark: SparkSession, hour: TradingHour, query: BenchQuery) -> DataFrame:
    trades = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(hour.trades))
    closing, members = spark.read.parquet(str(hour.closing)), spark.read.parquet(str(hour.members))
    joined = trades.join(F.broadcast(closing), "symbol").join(F.broadcast(members), "symbol")
    if query.predicate is not None:
        joined = joined.where(condition(query.predicate))
    window = F.window(
        "time", f"{query.window.range_ms} milliseconds", f"{query.window.slide_ms} milliseconds"
    )
    return joined.withWatermark("time", "0 seconds").groupBy(window).agg(F.expr("sum(price * vol) AS value"))


def _answers(spark: SparkSession, count: int) -> Answers:
    answers: Answers = {}
    for number in range(count):
        rows: list[Any] = spark.sql(f"SELECT unix_micros(window.end) AS e, value FROM q{number}").collect()
        answers[number] = {row["e"]: row["value"] for row in rows}
        spark.catalog.dropTempView(f"q{number}")
    return answers
