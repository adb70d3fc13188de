"""Frames on Spark: a DataFrame, and scalar expressions as texts that Spark analyses with ANSI mode off."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from transom.backends.base import Frame, TableJoin, Task
from transom.backends.expressions import quoted
from transom.backends.spark.failures import checkpoint_failure
from transom.backends.spark.scalars import beside, chunks, collect_small, is_wide
from transom.backends.spark.session import ansi_off, interpreted
from transom.backends.spark.types import spark_schema, to_arrow, to_frame, to_table
from transom.sql.query import Join


@runtime_checkable
class WithDataFrame(Protocol):
    """Rows that Spark can read as a DataFrame."""

    @property
    def df(self) -> DataFrame:
        """The rows for Spark."""


class SparkFrame(Frame):
    """A DataFrame as the runtime sees it."""

    def __init__(self, df: DataFrame):
        self.df = df

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return to_arrow(self.df.schema)

    def filter(self, condition: str) -> SparkFrame:
        with ansi_off(self.df.sparkSession):
            return SparkFrame(self.df.filter(condition))

    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> SparkFrame:
        # As texts, and in few steps: each column object and each step is several calls of the JVM.
        df = self.df
        with ansi_off(df.sparkSession):
            for table in joins:
                right, on = _side(data_frame(table.frame), table.join), F.expr(table.join.on)
                df = (
                    _with_membership(df, right, table.join)
                    if table.join.is_membership
                    else df.join(right, on, "left")
                )
            ids = [table.join.id for table in joins if not table.join.is_membership]
            if ids:
                df = df.withColumns({id: F.expr(f"coalesce({quoted(id)}, false)") for id in ids})
            computed = [f"{text} AS {quoted(name)}" for name, text in scalars.items()]
            texts = [*map(quoted, keep), *computed]
            return WideFrame(df, texts) if is_wide(texts) else SparkFrame(df.selectExpr(*texts))

    def extend(self, scalars: Mapping[str, str]) -> SparkFrame:
        with ansi_off(self.df.sparkSession):
            return SparkFrame(self.df.withColumns({name: F.expr(text) for name, text in scalars.items()}))

    @contextmanager
    def with_row_ids(self, name: str) -> Iterator[SparkFrame]:
        with SparkFrame(self.df.withColumn(name, F.monotonically_increasing_id())).held() as frame:
            yield frame

    def number(self, name: str, order: Sequence[str], where: str, first: int) -> SparkFrame:
        over = f"PARTITION BY {where} ORDER BY {', '.join(order)}"
        number = f"CAST({first - 1} AS BIGINT) + row_number() OVER ({over})"
        return self.extend({name: f"CASE WHEN {where} THEN {number} END"})

    def order_of(self, column: str) -> str:
        is_unordered = isinstance(self.df.schema[column].dataType, MapType | VariantType)
        return f"to_json(struct({quoted(column)}))" if is_unordered else quoted(column)

    def rank(self, name: str, within: str, order: Sequence[str], ties: bool = False) -> SparkFrame:
        function = "rank" if ties else "row_number"
        return self.extend({name: f"{function}() OVER (PARTITION BY {within} ORDER BY {', '.join(order)})"})

    def union(self, other: Frame) -> SparkFrame:
        return SparkFrame(self.df.unionByName(data_frame(other), allowMissingColumns=True))

    def lookup(self, key: str, other: Frame, other_key: str) -> SparkFrame:
        with ansi_off(self.df.sparkSession):
            joined = self.df.join(data_frame(other), F.expr(key) == F.col(quoted(other_key)))
            return SparkFrame(joined.drop(other_key))

    def aggregate(self, by: Mapping[str, str], functions: Mapping[str, tuple[str, str]]) -> SparkFrame:
        with ansi_off(self.df.sparkSession):
            groups = self.df.groupBy(*(F.expr(text).alias(name) for name, text in by.items()))
            computed = [F.expr(f"{f}({text})").alias(name) for name, (f, text) in functions.items()]
            return SparkFrame(groups.agg(*computed) if computed else groups.count().drop("count"))

    def distribute(self, key: str, partitions: int) -> SparkFrame:
        with ansi_off(self.df.sparkSession):
            return SparkFrame(self.df.repartition(partitions, F.expr(key)))

    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> SparkFrame:
        columns = spark_schema({field.name: field.type for field in schema})
        return SparkFrame(self.df.mapInArrow(task, columns))

    @contextmanager
    def held(self) -> Iterator[SparkFrame]:
        df = self.df.persist()
        try:
            yield SparkFrame(df)
        finally:
            df.unpersist()

    def to_table(self, few: bool = False) -> pa.Table:
        with damage_reported():
            return collect_small(self.df) if few else to_table(self.df)

    def first(self, count: int) -> pa.Table:
        with damage_reported():
            return to_table(self.df.limit(count))

    def write_parquet(self, path: str, partition_by: str | None = None) -> None:
        writer = self.df.write.mode("overwrite")
        with damage_reported():
            (writer if partition_by is None else writer.partitionBy(partition_by)).parquet(path)


class WideFrame(SparkFrame):
    """A projection of many expressions. If there are few rows, they are evaluated in chunks.

    Jobs over many rows evaluate one projection: its tasks need all columns of a row.
    """

    def __init__(self, source: DataFrame, expressions: Sequence[str]):
        self._source, self._expressions = source, expressions

    @cached_property
    def df(self) -> DataFrame:  # type: ignore[override]  # analysing it takes seconds
        with ansi_off(self._source.sparkSession):
            return self._source.selectExpr(*self._expressions)

    def to_table(self, few: bool = False) -> pa.Table:
        if not few:
            return super().to_table()
        spark = self._source.sparkSession
        with damage_reported(), interpreted(spark):
            # The rows are fixed first, so that all chunks see them in the same order.
            rows = to_frame(spark, collect_small(self._source))
            return beside([self._chunk(rows, texts) for texts in chunks(self._expressions)])

    def _chunk(self, rows: DataFrame, texts: Sequence[str]) -> pa.Table:
        with ansi_off(rows.sparkSession):
            chosen = rows.selectExpr(*texts)
        return collect_small(chosen)


@contextmanager
def damage_reported() -> Iterator[None]:
    """Raise what a task found in the checkpoint as it is, without Spark's stack trace around it."""
    try:
        yield
    except Exception as error:
        damage = checkpoint_failure(error)
        if damage is not None:
            raise damage from error
        raise


def data_frame(frame: Frame) -> DataFrame:
    """The DataFrame of a frame of this backend."""
    assert isinstance(frame, WithDataFrame)
    return frame.df


def _with_membership(df: DataFrame, right: DataFrame, join: Join) -> DataFrame:
    """The rows, each once, with a flag: whether some row of a table satisfies the condition."""
    session, views = df.sparkSession, [f"transom_{uuid.uuid4().hex}" for _ in range(2)]
    for view, frame in zip(views, (df, right.drop(join.id)), strict=True):
        frame.createOrReplaceTempView(view)
    try:
        exists = f"EXISTS (SELECT 1 FROM {views[1]} WHERE {join.on})"
        return session.sql(f"SELECT *, {exists} AS {quoted(join.id)} FROM {views[0]}")
    finally:
        for view in views:
            session.catalog.dropTempView(view)


def _side(table: DataFrame, join: Join) -> DataFrame:
    """A table's columns as `<id>.column`, and `<id>`, which is null for rows that find no match."""
    names = dict.fromkeys((*join.keys, *join.columns))
    renamed = [f"{quoted(name)} AS {quoted(f'{join.id}.{name}')}" for name in names]
    return table.selectExpr(*renamed, f"true AS {quoted(join.id)}")
