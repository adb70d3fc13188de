"""Streaming DataFrames: Spark decides when a batch comes, and calls back through `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from transom.backends.base import Frame, StreamingInput
from transom.backends.spark.stream_rows import stream_frame
from transom.backends.spark.task_frame import TaskResources
from transom.backends.spark.types import to_arrow


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

    @property
    def active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def error(self) -> BaseException | None:
        return None if self._query is None else self._query.exception()


def rebound(df: DataFrame, spark: SparkSession) -> DataFrame:
    """A batch of a stream in the engine's own session: a stream runs in a copy of it that was made when
    the stream was started, and does not know functions registered since."""
    jvm: Any = spark._jvm
    plan = df._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
