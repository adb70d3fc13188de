"""Many queries over a topic of a real broker on loopback, against native Structured Streaming from the same topic.

python -m benchmarks.kafka                                        1, 16 and 64 queries, an estimated ten minutes
python -m benchmarks.kafka --queries 1,16 --rows 60000 --probes 0      less of it, without latencies

Every query has its own window and its own condition. Natively each is a streaming query of its own, as Spark offers it:
all of them read the topic, side by side. Both read what is in the topic in four batches, and end. More than 16 native
queries read a shorter topic, of a quarter of the messages; the table says how many there were. Nothing is extrapolated.

| column | meaning |
| --- | --- |
| messages | in the topic; `of` says that native queries did not come to the end within --limit seconds |
| seconds, messages a second | by the clock, from the start of the queries to the last committed batch |
| processor seconds | of Python, the JVM and its Python workers, which depend less on what else the machine does |
| latency | seconds from sending the messages that close windows of all queries to results: the median of the queries |
| slowest | the same for the query whose results come last: the median of the probes |
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import transom
from tests.kafka.broker import Topics, jars_of, kafka_broker
from transom.backends.spark.session import start_session

SCHEMA = "symbol string, price double, volume bigint, ts timestamp"
BATCHES, PARTITIONS = 4, 3
START = 1_704_110_400  # seconds since 1970
# Seconds of the stream between two probes: more than any range, so that a probe closes all windows.
STEP = 200.0
MANY = 16  # more native queries than this read a shorter topic
PATIENCE = 180.0  # seconds that a probe waits for results
PAUSE = 0.5  # seconds between two probes
TICKS = os.sysconf("SC_CLK_TCK")
TRANSOM, NATIVE = "Transom", "Structured Streaming"
HEADER = (
    "system",
    "queries",
    "messages",
    "seconds",
    "messages a second",
    "processor seconds",
    "latency",
    "slowest",
)
Listener = Callable[[int, int], None]  # gets the number of a query, and that of its new results


@dataclass(frozen=True)
class Speed:
    """How long some queries took for a topic, and how many of its messages they read."""

    messages: int
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Latency:
    """The median of all queries and probes, and the median of the slowest query of each probe."""

    median: float = math.nan
    slowest: float = math.nan


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
    """Where a source reads; `rows` is the length of a topic that is read in four batches."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return given if rows is None else given | {"maxOffsetsPerTrigger": str(-(-rows // BATCHES))}


def engine_on(spark: Any, servers: str, topic: str, count: int, rows: int | None) -> transom.Engine:
    """An engine with so many queries over a topic."""
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


@contextmanager
def native_queries(
    spark: Any, servers: str, topic: str, count: int, rows: int | None, listener: Listener | None = None
) -> Iterator[list[Any]]:
    """The same queries as streaming queries of Spark; they end with the block."""
    from pyspark.sql import functions as F

    def writer_of(query: int) -> Callable[[Any, int], None]:
        def write(df: Any, batch: int) -> None:
            if listener is None:
                df.write.format("noop").mode("overwrite").save()
            else:
                listener(query, len(df.collect()))

        return write

    started: list[Any] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            for i, (r, s, price) in enumerate(windows_of(count)):
                trades = spark.readStream.format("kafka").options(**options(servers, topic, rows)).load()
                trades = trades.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("t"))
                sums = (
                    trades.select("t.*")
                    .withWatermark("ts", "0 seconds")
                    .where(F.col("price") > price)
                    .groupBy(F.window("ts", f"{r} seconds", f"{s} seconds"), "symbol")
                    .agg(F.sum("volume").alias("v"))
                )
                writer = sums.writeStream.foreachBatch(writer_of(i)).option(
                    "checkpointLocation", f"{place}/{i}"
                )
                started.append((writer.trigger(availableNow=True) if rows is not None else writer).start())
            yield started
        finally:
            for query in started:
                query.stop()


def cpu_seconds() -> float:
    """The processor time of this process and all below it but the broker, with those that have ended."""
    parents, times = {}, {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                if b"kafka.Kafka" in (directory / "cmdline").read_bytes().split(b"\0"):
                    continue
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


def timed(run: Callable[[], int]) -> Speed:
    """How long a run takes, which returns the number of messages that it read."""
    began, cpu = time.perf_counter(), cpu_seconds()
    messages = run()
    return Speed(messages, time.perf_counter() - began, cpu_seconds() - cpu)


def drained(spark: Any, servers: str, topic: str, count: int, rows: int) -> int:
    with engine_on(spark, servers, topic, count, rows) as engine:
        engine.drain(close=False)
        read = engine.progress().streams["trades"].rows
    if read != rows:
        raise RuntimeError(f"the engine has read {read} of {rows} messages")
    return read


def drained_natively(spark: Any, servers: str, topic: str, count: int, rows: int, limit: float) -> int:
    """The messages that each query has read, on average, when the last has ended or the time is up."""
    deadline = time.monotonic() + limit
    with native_queries(spark, servers, topic, count, rows) as queries:
        for query in queries:
            query.awaitTermination(max(1, int(deadline - time.monotonic())))
        read = [sum(batch.numInputRows for batch in query.recentProgress) for query in queries]
    return sum(read) // count


class Arrivals:
    """When the first results of each query arrive after a message was sent."""

    def __init__(self, count: int):
        self.count = count
        self._seconds: dict[int, float] = {}

    def note(self, query: int, rows: int) -> None:
        if rows:
            self._seconds.setdefault(query, time.perf_counter())

    def after(self, send: Callable[[], None]) -> list[float]:
        """Seconds from sending to the first results of each query that has some in time."""
        self._seconds.clear()
        began = time.perf_counter()
        send()
        while len(self._seconds) < self.count and time.perf_counter() - began < PATIENCE:
            time.sleep(0.002)
        return [seconds - began for seconds in self._seconds.values()]


class Producer:
    """Sends messages to all partitions of a topic by Kafka's own client: without a job of Spark."""

    def __init__(self, spark: Any, servers: str, topic: str):
        self._jvm, self._topic = spark._jvm, topic
        properties = self._jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", servers)
        serializer = self._jvm.org.apache.kafka.common.serialization.StringSerializer
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(
            properties, serializer(), serializer()
        )

    def send(self, value: str) -> None:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for partition in range(PARTITIONS):
            self._producer.send(record(self._topic, partition, None, value))
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


def probe(producer: Producer, arrivals: Arrivals, probes: int, limit: float) -> Latency:
    """Latencies of so many probes, or of fewer if they take longer than the limit.

    A probe closes the windows of the one before. The first two are not counted: the first closes nothing, and with the
    second the queries read, compile and write for the first time.
    """
    producer.send(message(STEP))
    found: list[list[float]] = []
    deadline = math.inf
    for number in range(probes + 1):
        seconds = arrivals.after(partial(producer.send, message(STEP * (number + 2))))
        if len(seconds) < arrivals.count:
            print(
                f"no results of {arrivals.count - len(seconds)} queries in {PATIENCE:.0f} s", file=sys.stderr
            )
            return Latency()
        if number:
            found.append(seconds)
        else:
            deadline = time.monotonic() + limit
        if found and time.monotonic() > deadline:
            break
        time.sleep(PAUSE)
    return Latency(
        statistics.median(each for probe in found for each in probe),
        statistics.median(max(probe) for probe in found),
    )


def latency(topics: Topics, system: str, count: int, probes: int, limit: float) -> Latency:
    """Latencies of running queries; each system has a topic of its own."""
    topic, arrivals = topics.create("live", PARTITIONS), Arrivals(count)
    producer = Producer(topics.spark, topics.servers, topic)
    try:
        if system == NATIVE:
            with native_queries(topics.spark, topics.servers, topic, count, None, arrivals.note):
                return probe(producer, arrivals, probes, limit)
        with engine_on(topics.spark, topics.servers, topic, count, None) as engine:
            for i in range(count):
                engine.query(f"q{i}").subscribe(lambda rows, query=i: arrivals.note(query, rows.num_rows))  # type: ignore[misc]
            engine.start()
            return probe(producer, arrivals, probes, limit)
    finally:
        producer.close()


def line(system: str, count: int, rows: int, speed: Speed, measured: Latency) -> tuple[str, ...]:
    """A row of the table."""
    read = f"{speed.messages:,}" if speed.messages == rows else f"{speed.messages:,} of {rows:,}"
    numbers = (f"{speed.seconds:.1f}", f"{speed.messages / speed.seconds:,.0f}", f"{speed.cpu:.1f}")
    latencies = ("" if math.isnan(each) else f"{each:.2f}" for each in (measured.median, measured.slowest))
    return (system, str(count), read, *numbers, *latencies)


def show(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def measure(spark: Any, servers: str, given: argparse.Namespace) -> None:
    topics = Topics(spark, servers)
    lengths = {given.rows: "", given.rows // 4: ""}
    for rows in lengths:
        lengths[rows] = topics.create("trades", PARTITIONS)
        fill(spark, servers, lengths[rows], rows)
    short = given.rows // 4
    drained(
        spark, servers, lengths[short], 1, short
    )  # both are warm: Spark has compiled, Python has imported
    drained_natively(spark, servers, lengths[short], 1, short, given.limit)
    show(HEADER)
    show(["---"] * len(HEADER))
    for count in map(int, given.queries.split(",")):
        for system in (TRANSOM, NATIVE):
            rows = short if system == NATIVE and count > MANY else given.rows
            run = partial(drained, spark, servers, lengths[rows], count, rows)
            if system == NATIVE:
                run = partial(drained_natively, spark, servers, lengths[rows], count, rows, given.limit)
            speed = timed(run)
            measured = (
                latency(topics, system, count, given.probes, given.probe_limit) if given.probes else Latency()
            )
            show(line(system, count, rows, speed, measured))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", default="1,16,64", help="numbers of queries")
    parser.add_argument("--rows", type=int, default=200_000, help="messages in the topic")
    parser.add_argument(
        "--limit", type=float, default=200, help="seconds after which native queries are stopped"
    )
    parser.add_argument("--probes", type=int, default=9, help="messages whose latency is measured; 0: none")
    parser.add_argument(
        "--probe-limit", type=float, default=40, help="seconds after which no further probe is sent"
    )
    given = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    with kafka_broker() as broker:
        spark = start_session("kafka", "local[2]", {"spark.jars": ",".join(jars_of("connector.xml"))})
        try:
            measure(spark, broker.servers, given)
        finally:
            spark.stop()
    minutes = (time.monotonic() - began) / 60
    print(f"\n{os.cpu_count()} cores, load {load:.1f} at the start, {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
