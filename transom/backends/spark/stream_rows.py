"""Rows of a DataFrame for tasks: Spark hands the columns that are needed to one `mapInArrow`, as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from transom.backends.arrow_frame import ArrowFrame
from transom.backends.base import Frame, RecordBatches, Task
from transom.backends.expressions import quoted
from transom.backends.program_functions import FailureCount, FunctionParcel
from transom.backends.spark.broadcast_plan import freeze_modules
from transom.backends.spark.file_tasks import Step, worker_scalars
from transom.backends.spark.frame import SparkFrame, damage_reported
from transom.backends.spark.task_frame import StepRows, TaskFrame, TaskResources
from transom.backends.spark.types import spark_schema, to_arrow, to_table
from transom.backends.spark.udf import counters
from transom.columns.record_batches import in_large_tables
from transom.sql.interpreter.scalars import InterpretedScalars

# Values of these types are the same in Arrow. A text with a collation compares in another way there.
_PLAIN_TYPES = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


@dataclass(frozen=True)
class StreamJob:
    """What the tasks of a job do with the columns that Spark hands them: apply steps, and run a task of the engine."""

    columns: Mapping[str, pa.DataType]
    steps: Sequence[Step]
    task: Task | None
    functions: FunctionParcel | None = None  # of the program
    counters: Mapping[str, Accumulator[int]] = field(default_factory=dict)  # of failed calls, by function

    def __call__(self, batches: RecordBatches) -> RecordBatches:
        """The record batches that a task returns for its part of the rows."""
        scalars = worker_scalars() if self.functions is None else self.functions.scalars()
        failed = FailureCount(scalars)
        rows = self._rows(batches, scalars)
        yield from rows if self.task is None else self.task(rows)
        for name, count in failed.new().items():
            self.counters[name].add(count)
        freeze_modules()

    def _rows(self, batches: RecordBatches, scalars: InterpretedScalars) -> RecordBatches:
        schema = pa.schema(list(self.columns.items()))
        for table in in_large_tables(batches):
            rows: Frame = ArrowFrame(table.cast(schema), scalars)
            for step in self.steps:
                rows = step.apply(rows)
            yield from rows.to_table().combine_chunks().to_batches()


@dataclass(frozen=True, kw_only=True)
class StreamRows(StepRows):
    """Rows of a DataFrame after some steps."""

    df: DataFrame

    def run(self, resources: TaskResources, task: Task | None, schema: pa.Schema) -> pa.Table | None:
        if not self.is_read_by_tasks:
            return None
        functions = resources.expressions.scalars.functions.parcel
        columns = self.needed() or dict(list(self.stream.items())[:1])  # rows without columns have no number
        steps = [step for step, _ in self.steps]
        job = StreamJob(columns, steps, task, functions, counters(resources.spark, functions))
        returned = spark_schema({field.name: field.type for field in schema})
        with damage_reported():
            return to_table(self.df.select(*map(quoted, columns)).mapInArrow(job, returned)).cast(schema)

    @property
    def is_read_by_tasks(self) -> bool:
        needed = self.needed()
        return all(_is_plain(column.dataType) for column in self.df.schema if column.name in needed)


def stream_frame(df: DataFrame, resources: TaskResources) -> TaskFrame:
    """A DataFrame as a frame whose steps run in tasks where they can."""
    columns = to_arrow(df.schema)
    return TaskFrame(resources, StreamRows(columns, columns, df=df), lambda: SparkFrame(df))


def _is_plain(kind: T.DataType) -> bool:
    """Whether values of a Spark type are the same in Arrow."""
    if isinstance(kind, T.ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, T.MapType):
        return _is_plain(kind.keyType) and _is_plain(kind.valueType)
    if isinstance(kind, T.StructType):
        return all(_is_plain(column.dataType) for column in kind)
    return kind == T.StringType() or isinstance(kind, _PLAIN_TYPES)
