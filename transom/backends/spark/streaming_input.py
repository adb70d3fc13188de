"""Streaming DataFrames: Spark decides when a batch comes, and calls back through `foreachBatch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transom.backends.base import Frame, PartitionOffset, StreamingInput
from transom.backends.secrets import without_secrets
from transom.backends.spark.failures import failure_text
from transom.backends.spark.stream_rows import stream_frame
from transom.backends.spark.task_frame import TaskResources
from transom.backends.spark.types import to_arrow
from transom.errors import BatchError


class SparkStream(StreamingInput):
    """A streaming DataFrame as the runtime sees it."""

    def __init__(self, df: DataFrame, resources: TaskResources):
        self.df, self._resources = df, resources
        self._query: StreamingQuery | None = None

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return to_arrow(self.df.schema)

    def start(self, handler: Callable[[Frame, int], None], checkpoint: str, available_now: bool) -> None:
        def handle(df: DataFrame, batch: int) -> None:
            handler(stream_frame(rebound(df, self._resources.spark), self._resources), batch)

        writer = self.df.writeStream.foreachBatch(handle).option("checkpointLocation", checkpoint)
        self._query = (writer.trigger(availableNow=True) if available_now else writer).start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None

    def finish(self) -> None:
        if self._query is not None:
            self._query.processAllAvailable()

    def partitions(self) -> tuple[PartitionOffset, ...]:
        """The offsets of the last batch, from Spark's progress report: Kafka has one for each partition."""
        query = self._query
        progress = None if query is None else query.lastProgress
        if progress is None:
            return ()
        return tuple(
            offset
            for source in progress.sources
            for offset in partition_offsets(source.endOffset, source.latestOffset)
        )

    @property
    def active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def error(self) -> BaseException | None:
        error = None if self._query is None else self._query.exception()
        if error is None:
            return None
        return BatchError(f"the source failed: {without_secrets(failure_text(error))}")


def partition_offsets(read: str | None, latest: str | None) -> list[PartitionOffset]:
    """Offsets as Spark's progress report has them: a number, or numbers by partition, maybe within topics.

    >>> partition_offsets('{"bids": {"0": 5, "1": 7}}', '{"bids": {"0": 9, "1": 7}}')
    [PartitionOffset(name='bids 0', offset=5, latest=9), PartitionOffset(name='bids 1', offset=7, latest=7)]
    >>> partition_offsets("12", None)
    [PartitionOffset(name='all', offset=12, latest=None)]
    """
    ends, newest = (_offsets(text) for text in (read, latest))
    return [
        PartitionOffset(" ".join(path) or "all", offset, newest.get(path)) for path, offset in ends.items()
    ]


def _offsets(text: str | None) -> dict[tuple[str, ...], int]:
    """The numbers in a JSON text by the keys that lead to them."""
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    found: dict[tuple[str, ...], int] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        path, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting += [((*path, str(key)), each) for key, each in value.items()]
        elif isinstance(value, int) and not isinstance(value, bool):
            found[path] = value
    return found


def rebound(df: DataFrame, spark: SparkSession) -> DataFrame:
    """A batch of a stream in the engine's own session: a stream runs in a copy of it that was made when
    the stream was started, and does not know functions registered since."""
    jvm: Any = spark._jvm
    plan = df._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
