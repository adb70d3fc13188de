"""Spark as a backend: rows are DataFrames, tasks run in its executors, scalars are Spark SQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from transom.backends.arrow_frame import LOCAL_FILES, read_parquet_directories
from transom.backends.arrow_types import plain_table
from transom.backends.base import Backend, Frame, Sink, StreamingInput, Task
from transom.backends.connection import Connection
from transom.backends.day_sink import day_sink
from transom.backends.delta_sink import delta_sink
from transom.backends.secrets import option_texts, without_secrets
from transom.backends.spark.broadcast_plan import BroadcastPlan, PlanBroadcaster
from transom.backends.spark.connectors import is_file_format, load_connection
from transom.backends.spark.driver_frame import MOST_DRIVER_ROWS, DriverFrame
from transom.backends.spark.failures import failure_text, is_external_failure, is_fatal_failure
from transom.backends.spark.files import SparkFiles
from transom.backends.spark.frame import SparkFrame, data_frame
from transom.backends.spark.job_limit import job_limit
from transom.backends.spark.scalars import LOCAL_RELATION_ROWS, SparkScalars
from transom.backends.spark.session import is_local, local_session, session_in_utc, ship
from transom.backends.spark.sinks import SparkSink
from transom.backends.spark.stream_rows import stream_frame
from transom.backends.spark.streaming_input import SparkStream
from transom.backends.spark.task_expressions import TaskExpressions
from transom.backends.spark.task_frame import TaskResources
from transom.backends.spark.task_tables import TableShipper
from transom.backends.spark.types import (
    arrow_type,
    check_storable,
    schema_of,
    spark_schema,
    to_arrow,
    to_frame,
    unsupported_fields,
)
from transom.backends.spark.udf import failures, register_udf, user_functions
from transom.backends.spark.upserts import UPSERT, UpsertSink
from transom.columns.types import Columns
from transom.kernel.aggregate import BatchPlan
from transom.plan.limits import Limits


class SparkBackend(Backend):
    """A Spark session: the one given, the one that is running, or a new local one."""

    name = "spark"

    def __init__(self, spark: SparkSession | None = None, limits: Limits | None = None):
        self.spark = self.session = spark if spark is not None else local_session()
        ship(self.spark)
        self.scalars: SparkScalars = SparkScalars(self.spark)
        self.parallelism = self.spark.sparkContext.defaultParallelism
        self._broadcaster = PlanBroadcaster(self.spark)
        driver_rows = (limits or Limits()).pushed_rows if self.shares_disk else 0
        expressions = TaskExpressions(self.scalars)
        tables = TableShipper(self.spark)
        self._task_resources = TaskResources(self.spark, expressions, tables, self.parallelism, driver_rows)

    @property
    def in_utc(self) -> bool:
        self.scalars.placement.in_utc = session_in_utc(self.spark)  # the program may have changed it
        return self.scalars.placement.in_utc

    def unsupported_columns(self, source: Any) -> dict[str, str]:
        return unsupported_fields(source.schema) if isinstance(source, DataFrame) else {}

    @property
    def time_zone(self) -> str:
        return "UTC" if self.in_utc else str(self.spark.conf.get("spark.sql.session.timeZone"))

    @property
    def shares_disk(self) -> bool:
        return is_local(self.spark)

    # --- rows ---

    def frame(self, table: pa.Table) -> DriverFrame | SparkFrame:
        if table.num_rows > MOST_DRIVER_ROWS:
            return stream_frame(to_frame(self.spark, table), self._task_resources)
        table = plain_table(table)
        spark_schema({field.name: field.type for field in table.schema})  # refuses types that Spark has not
        return DriverFrame(table, self.scalars)

    def read_parquet(self, paths: Sequence[str], few: bool = False) -> DriverFrame | SparkFrame:
        if few and all(path.startswith(LOCAL_FILES) for path in paths):
            return DriverFrame(read_parquet_directories(paths), self.scalars)
        return SparkFrame(self.spark.read.parquet(*paths))

    def copied_to_driver(self, frame: Frame, most_rows: int) -> Frame:
        rows = frame.first(most_rows + 1)
        if rows.num_rows > most_rows or isinstance(frame, DriverFrame):
            return frame
        # The rows of a large copy are not part of Spark's plans: these read the frame's own.
        df = data_frame(frame) if rows.num_rows > LOCAL_RELATION_ROWS else None
        copied = DriverFrame(rows, self.scalars, df)
        return copied if copied.columns == frame.columns else frame

    def run(self, task: Task, partitions: int, schema: pa.Schema) -> SparkFrame:
        columns = spark_schema({field.name: field.type for field in schema})
        return SparkFrame(self.spark.range(0, partitions, 1, partitions).mapInArrow(task, columns))

    def ship(self, plan: BatchPlan) -> BroadcastPlan:
        return self._broadcaster.ship(plan)

    # --- input ---

    def open_files(
        self,
        path: str,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        files_per_batch: int = 1,
    ) -> SparkFiles:
        return SparkFiles(
            self.spark, path, format, schema, dict(options or {}), files_per_batch, self._task_resources
        )

    def input_of(self, source: Any) -> Frame | StreamingInput | None:
        if isinstance(source, DataFrame):
            left_out = self.unsupported_columns(source)
            if left_out:
                source = source.drop(*left_out)
            return (
                SparkStream(source, self._task_resources)
                if source.isStreaming
                else stream_frame(source, self._task_resources)
            )
        return self.frame(source) if isinstance(source, pa.Table) else None

    def reads_files(self, format: str | None) -> bool:
        return is_file_format(self.spark, format)

    def connect(self, connection: Connection, streaming: bool) -> Frame | StreamingInput:
        rows = load_connection(self.spark, connection, streaming)
        opened = self.input_of(rows)
        assert opened is not None
        return opened

    def parse_schema(self, text: str) -> dict[str, pa.DataType]:
        columns = to_arrow(schema_of(text))
        check_storable(columns)
        return columns

    # --- expressions ---

    def delegated(self, columns: Columns, texts: Iterable[str]) -> dict[str, str]:
        places = self.scalars.placement.places(columns, texts)
        return {text: place.reason for text, place in places.items() if place.reason is not None}

    def calling_python(self, columns: Columns, texts: Iterable[str]) -> set[str]:
        places = self.scalars.placement.places(columns, texts)
        return {text for text, place in places.items() if place.calls_python}

    # --- functions ---

    def register_function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        register_udf(self.spark, name, function, returns)
        self.scalars.register(name, function, arrow_type(DataType.fromDDL(returns)))

    def functions(self) -> set[str]:
        return user_functions(self.spark)

    def function_failures(self, name: str) -> int:
        return failures(self.spark, name) + self.scalars.failures(name)

    # --- output ---

    def sink(self, format: str, options: Mapping[str, Any]) -> Sink:
        if format.lower() == "jdbc" and option_texts(options).get(UPSERT) == "true":
            return UpsertSink(self.spark, options)
        return (
            delta_sink(format, options) or day_sink(format, options) or SparkSink(self.spark, format, options)
        )

    def stop(self) -> None:
        self.scalars.stop()  # and not the session, which may be the program's

    @contextmanager
    def time_limit(self, seconds: float) -> Iterator[None]:
        with self.scalars.limited(time.monotonic() + seconds), job_limit(self.spark, seconds):
            yield

    def error_text(self, error: BaseException) -> str:
        return without_secrets(failure_text(error))

    def is_external(self, error: BaseException) -> bool:
        return is_external_failure(error)

    def is_fatal(self, error: BaseException) -> bool:
        return is_fatal_failure(error)
