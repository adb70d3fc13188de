"""Frames of rows that are on the driver: Arrow in this process, and a DataFrame only where Spark is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame

from transom.backends.arrow_frame import LOCAL_FILES, ArrowFrame
from transom.backends.arrow_joins import pairs_to_try
from transom.backends.base import Frame, TableJoin, Task
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.scalars import SparkScalars
from transom.backends.spark.types import to_frame

# Up to here rows are worked on in this process. Projections of more rows are left to Spark's tasks: there may be
# thousands of expressions, and their columns must not fill the driver's memory.
MOST_DRIVER_ROWS = 100_000
MOST_PAIRS = 1_000_000  # of rows that a join without equal keys tries in this process


class DriverFrame(ArrowFrame):
    """An Arrow table on the driver. Its operations start no Spark job, except for what Spark has to evaluate."""

    scalars: SparkScalars

    def __init__(self, table: pa.Table, scalars: SparkScalars, df: DataFrame | None = None):
        super().__init__(table, scalars)
        self._df = df

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame, for operations of Spark."""
        return to_frame(self.scalars.spark, self.table) if self._df is None else self._df

    def _with(self, table: pa.Table) -> DriverFrame:
        return DriverFrame(table, self.scalars)

    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> Frame:
        if all(self._joins_here(table) for table in joins):
            return super().project(scalars, keep, joins)
        return self.on_spark().project(scalars, keep, joins)

    def _joins_here(self, joined: TableJoin) -> bool:
        """Whether the table is on the driver, and the join does not try too many pairs of rows."""
        if not isinstance(joined.frame, DriverFrame):
            return False
        return pairs_to_try(self.table, joined.frame.table, joined.join) <= MOST_PAIRS

    def union(self, other: Frame) -> Frame:
        return super().union(other) if isinstance(other, DriverFrame) else self.on_spark().union(other)

    def lookup(self, key: str, other: Frame, other_key: str) -> Frame:
        if isinstance(other, DriverFrame):
            return super().lookup(key, other, other_key)
        return self.on_spark().lookup(key, other, other_key)

    def distribute(self, key: str, partitions: int) -> Frame:
        return self.on_spark().distribute(key, partitions)

    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> Frame:
        return super().map(task, schema) if few else self.on_spark().map(task, schema)

    def write_parquet(self, path: str, partition_by: str | None = None) -> None:
        if path.startswith(LOCAL_FILES) and all(map(_is_same_in_parquet, self.table.schema.types)):
            super().write_parquet(path, partition_by)
        else:
            self.on_spark().write_parquet(path, partition_by)

    def on_spark(self) -> SparkFrame:
        """The same rows as a frame of Spark's."""
        return SparkFrame(self.df)


def _is_same_in_parquet(kind: pa.DataType) -> bool:
    """Whether Spark reads a column that Arrow wrote in the same type."""
    if pa.types.is_nested(kind):
        return all(_is_same_in_parquet(kind.field(i).type) for i in range(kind.num_fields))
    return not pa.types.is_duration(kind) and not pa.types.is_null(kind)
