"""Many queries over a topic of a real broker on loopback, against native Structured Streaming from the same topic.

python -m benchmarks.kafka                             1, 16 and 64 queries over 300,000 messages
python -m benchmarks.kafka --queries 1,16 --rows 60000 --native-most 16

Every query has its own window and its own condition. Natively each is a streaming query of its own, as Spark offers it:
all of them read the topic, side by side. Both read what is in the topic in four batches, and end.

| column | meaning |
| --- | --- |
| seconds, rows_a_second | by the clock, from the start of the queries to the last committed batch |
| cpu | processor time of Python, the JVM and its Python workers, which depends less on what else the machine does |
| latency | seconds from the message that closes a window, sent while the queries run, to its results; the median |
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import transom
from tests.kafka.broker import Topics, jars_of, kafka_broker
from transom.backends.spark.session import start_session

SCHEMA = "symbol string, price double, volume bigint, ts timestamp"
BATCHES, PARTITIONS = 4, 3
START = 1_704_110_400  # seconds since 1970
FIELDS = ("system", "queries", "rows", "seconds", "rows_a_second", "cpu", "latency", "load")
TICKS = os.sysconf("SC_CLK_TCK")


def windows_of(count: int) -> list[tuple[int, int, float]]:
    """Range and slide in seconds, and the least price, of each query: no two are alike."""
    return [(60 + 10 * (i % 7), 20 + 10 * (i % 4), 100.0 + i / count) for i in range(count)]


def fill(spark: Any, servers: str, topic: str, rows: int) -> None:
    """Write a recording of ten minutes into a topic, in the order of time."""
    step = 600_000_000 // rows
    spark.sql(
        f"SELECT CAST(id % {PARTITIONS} AS INT) AS partition, to_json(struct(concat('S', id % 50) AS symbol, "
        f"99.5 + (id * 7919 % 1000) / 500.0 AS price, id % 100 AS volume, "
        f"date_format(timestamp_micros({START} * 1000000L + id * {step}), 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS ts)) "
        f"AS value FROM range(0, {rows}, 1, 1)"
    ).write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def message(seconds: float) -> str:
    """A message of a time after the start of the recording."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(START + seconds))
    return f'{{"symbol": "S1", "price": 200.0, "volume": 1, "ts": "{stamp}"}}'


def options(servers: str, topic: str, rows: int | None) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return given if rows is None else given | {"maxOffsetsPerTrigger": str(-(-rows // BATCHES))}


def engine_on(spark: Any, servers: str, topic: str, count: int, rows: int | None) -> transom.Engine:
    engine = transom.Engine(spark)
    read = options(servers, topic, rows)
    engine.stream("trades", format="kafka", options=read, decode="json", schema=SCHEMA, time="ts")
    engine.register_all(
        {
            f"q{i}": f"SELECT symbol, sum(volume) AS v FROM trades [RANGE {r} seconds SLIDE {s} seconds] "
            f"WHERE price > {price} GROUP BY symbol"
            for i, (r, s, price) in enumerate(windows_of(count))
        }
    )
    return engine


def native_queries(
    spark: Any,
    servers: str,
    topic: str,
    count: int,
    rows: int | None,
    place: str,
    seen: Callable[[Any, int], None],
) -> list[Any]:
    """The same queries as streaming queries of Spark."""
    from pyspark.sql import functions as F

    started = []
    for i, (r, s, price) in enumerate(windows_of(count)):
        trades = spark.readStream.format("kafka").options(**options(servers, topic, rows)).load()
        trades = trades.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("t")).select("t.*")
        sums = (
            trades.withWatermark("ts", "0 seconds")
            .where(F.col("price") > price)
            .groupBy(F.window("ts", f"{r} seconds", f"{s} seconds"), "symbol")
            .agg(F.sum("volume").alias("v"))
        )
        writer = sums.writeStream.foreachBatch(seen).option("checkpointLocation", f"{place}/{i}")
        started.append((writer.trigger(availableNow=True) if rows is not None else writer).start())
    return started


def cpu_seconds() -> float:
    """The processor time of this process and all below it, with those that have ended."""
    parents, times = {}, {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(directory.name)] = int(fields[1])
            times[int(directory.name)] = sum(map(int, fields[11:15]))
    mine, added = {os.getpid()}, True
    while added:
        below = {process for process, parent in parents.items() if parent in mine} - mine
        mine |= below
        added = bool(below)
    return sum(times.get(process, 0) for process in mine) / TICKS


def throughput(run: Callable[[], None]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), cpu_seconds()
    run()
    return time.perf_counter() - began, cpu_seconds() - cpu


def drained(spark: Any, servers: str, topic: str, count: int, rows: int) -> None:
    with engine_on(spark, servers, topic, count, rows) as engine:
        engine.drain(close=False)
        assert engine.progress().streams["trades"].rows == rows


def discard(df: Any, batch: int) -> None:
    """Compute the results of a native query's batch, and write them nowhere."""
    df.write.format("noop").mode("overwrite").save()


def drained_natively(spark: Any, servers: str, topic: str, count: int, rows: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        queries = native_queries(
            spark,
            servers,
            topic,
            count,
            rows,
            place,
            lambda df, batch: df.write.format("noop").mode("overwrite").save(),
        )
        for query in queries:
            query.awaitTermination()


def latencies(topics: Topics, topic: str, probes: int, arrived: Callable[[], int]) -> Iterator[float]:
    """From a message that closes windows of every query to results; the first probes are not counted."""
    for probe in range(probes + 2):
        before = arrived()
        topics.send(topic, [(p, None, message(200.0 * (probe + 1))) for p in range(PARTITIONS)])
        began = time.perf_counter()  # the broker has it
        while arrived() == before and time.perf_counter() - began < 120:
            time.sleep(0.005)
        if probe >= 2:
            yield time.perf_counter() - began
        time.sleep(0.5)


def latency(topics: Topics, count: int, probes: int) -> float:
    topic, seen = topics.create("live", PARTITIONS), [0]

    def note(table: Any) -> None:
        seen[0] += table.num_rows

    with engine_on(topics.spark, topics.servers, topic, count, None) as engine:
        engine.query(f"q{count - 1}").subscribe(note)
        engine.start()
        return statistics.median(latencies(topics, topic, probes, lambda: seen[0]))


def native_latency(topics: Topics, count: int, probes: int) -> float:
    topic, seen = topics.create("live", PARTITIONS), [0]

    def note(df: Any, batch: int) -> None:
        seen[0] += len(df.collect())

    with tempfile.TemporaryDirectory() as place:
        queries = native_queries(topics.spark, topics.servers, topic, count, None, place, note)
        try:
            return statistics.median(latencies(topics, topic, probes, lambda: seen[0]))
        finally:
            for query in queries:
                query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default="1,16,64", help="numbers of queries")
    parser.add_argument("--rows", type=int, default=300_000, help="messages in the topic")
    parser.add_argument("--native-most", type=int, default=64, help="no more native queries than this")
    parser.add_argument("--probes", type=int, default=5, help="messages whose latency is measured; 0: none")
    given = parser.parse_args()
    with kafka_broker() as servers:
        spark = start_session("kafka", "local[2]", {"spark.jars": ",".join(jars_of("connector.xml"))})
        topics = Topics(spark, servers)
        topic = topics.create("trades", PARTITIONS)
        fill(spark, servers, topic, given.rows)
        drained(
            spark, servers, topic, 1, given.rows
        )  # both are warm: Spark has compiled, and Python has imported
        drained_natively(spark, servers, topic, 1, given.rows)
        out = csv.DictWriter(sys.stdout, FIELDS)
        out.writeheader()
        for count in map(int, given.queries.split(",")):
            for system, run, live in (
                ("transom", drained, latency),
                ("structured streaming", drained_natively, native_latency),
            ):
                if system != "transom" and count > given.native_most:
                    continue
                seconds, cpu = throughput(partial(run, spark, servers, topic, count, given.rows))
                measured = live(topics, count, given.probes) if given.probes else float("nan")
                out.writerow(
                    {
                        "system": system,
                        "queries": count,
                        "rows": given.rows,
                        "seconds": f"{seconds:.1f}",
                        "rows_a_second": f"{given.rows / seconds:.0f}",
                        "cpu": f"{cpu:.1f}",
                        "latency": f"{measured:.2f}",
                        "load": f"{os.getloadavg()[0]:.1f}",
                    }
                )
                sys.stdout.flush()
        spark.stop()


if __name__ == "__main__":
    main()
