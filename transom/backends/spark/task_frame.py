"""Frames whose steps run in tasks on Arrow, if the values equal Spark's; otherwise Spark plans a DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from transom.backends.arrow_frame import ArrowFrame
from transom.backends.base import Frame, PositionedFrame, TableJoin, Task
from transom.backends.file_parts import PartedFiles, PartUnreadable
from transom.backends.spark.file_tasks import (
    ExtendStep,
    FileJob,
    FilterStep,
    ProjectStep,
    Step,
)
from transom.backends.spark.frame import SparkFrame, damage_reported
from transom.backends.spark.task_expressions import TaskExpressions
from transom.backends.spark.task_tables import TableShipper
from transom.backends.spark.udf import counters
from transom.columns.types import Columns
from transom.sql.catalog import Scalars

RowsAt: TypeAlias = Callable[[NDArray[np.int64]], pa.Table | None]


@dataclass(frozen=True)
class TaskResources:
    """What frames need to run tasks."""

    spark: SparkSession
    expressions: TaskExpressions
    tables: TableShipper
    parallelism: int
    driver_rows: int  # files of at most so many rows are read on the driver


@dataclass(frozen=True)
class StepRows(ABC):
    """Rows after some steps, as tasks compute them."""

    stream: Columns  # the columns of the stream, hidden ones included
    columns: Columns  # after the steps
    steps: tuple[tuple[Step, frozenset[str]], ...] = ()  # each with the columns that it reads
    position: str | None = None  # the column that has their positions

    def then(self, step: Step, reads: set[str], columns: Columns) -> Self:
        return replace(self, columns=columns, steps=(*self.steps, (step, frozenset(reads))))

    @abstractmethod
    def run(self, resources: TaskResources, task: Task | None, schema: pa.Schema) -> pa.Table | None:
        """The result of a task over the rows, or the rows themselves; None if Spark has to read them."""

    @property
    @abstractmethod
    def is_read_by_tasks(self) -> bool:
        """Whether tasks can read the columns that the steps need."""

    def positioned(self, name: str, scalars: Scalars) -> tuple[Self, RowsAt] | None:
        """The rows with their positions, and a function that reads some of them again; None if there is none."""
        return None

    def needed(self) -> dict[str, pa.DataType]:
        """The columns of the stream that the steps, and what comes after them, need."""
        needed = set(self.columns)
        for step, reads in reversed(self.steps):
            if isinstance(step, ProjectStep):
                needed = set(reads)
            elif isinstance(step, ExtendStep):
                needed = needed - set(step.scalars) | reads
            else:
                needed |= reads
        return {name: kind for name, kind in self.stream.items() if name in needed}


@dataclass(frozen=True, kw_only=True)
class FileRows(StepRows):
    """Rows of files after some steps."""

    files: PartedFiles

    def run(self, resources: TaskResources, task: Task | None, schema: pa.Schema) -> pa.Table | None:
        columns = self.needed()
        if not self.files.has_columns(columns):
            return None
        functions = resources.expressions.scalars.functions.parcel
        job = FileJob(
            self.files.parts(resources.parallelism),
            columns,
            [step for step, _ in self.steps],
            task,
            self.position,
            functions,
            counters(resources.spark, functions),
        )
        with damage_reported():
            try:
                batches = job.run(resources.spark.sparkContext)
            except PartUnreadable:
                return None  # Spark says what is wrong with the file
        return pa.Table.from_batches(batches, schema)

    @property
    def is_read_by_tasks(self) -> bool:
        return self.files.has_columns(self.needed())

    def positioned(self, name: str, scalars: Scalars) -> tuple[FileRows, RowsAt] | None:
        is_projected = any(isinstance(step, ProjectStep) for step, _ in self.steps)
        if is_projected or not self.is_read_by_tasks:
            return None
        rows = replace(self, columns={**self.columns, name: pa.int64()}, position=name)
        return rows, lambda positions: self._at(positions, scalars)

    def _at(self, positions: NDArray[np.int64], scalars: Scalars) -> pa.Table | None:
        """The rows at some positions, read in this process; None if Spark has to read them."""
        try:
            rows: Frame = ArrowFrame(self.files.rows_at(positions, self.needed()), scalars)
        except PartUnreadable:
            return None
        for step, _ in self.steps:
            rows = step.apply(rows)
        return rows.to_table()


class TaskFrame(SparkFrame):
    """Rows after some steps. Tasks compute them on Arrow if no step needs Spark.

    `load` gives the same rows as a frame that Spark plans.
    """

    def __init__(self, resources: TaskResources, rows: StepRows, load: Callable[[], SparkFrame]):
        self._resources, self._rows, self._load = resources, rows, load

    @cached_property
    def df(self) -> DataFrame:  # type: ignore[override]  # planned only where Spark has to read the rows
        return self._load().df

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return dict(self._rows.columns)

    def filter(self, condition: str) -> SparkFrame:
        compiled = self._resources.expressions.compiled(self._rows.columns, [condition])
        if compiled is None:
            return SparkFrame(self.df).filter(condition)
        rows = self._rows.then(FilterStep(condition), compiled.used, self._rows.columns)
        return TaskFrame(self._resources, rows, lambda: SparkFrame(self.df).filter(condition))

    def extend(self, scalars: Mapping[str, str]) -> SparkFrame:
        compiled = self._resources.expressions.compiled(self._rows.columns, [*scalars.values()])
        if compiled is None:
            return SparkFrame(self.df).extend(scalars)
        columns = {**self._rows.columns, **dict(zip(scalars, compiled.types, strict=True))}
        rows = self._rows.then(ExtendStep(dict(scalars)), compiled.used, columns)
        return TaskFrame(self._resources, rows, lambda: SparkFrame(self.df).extend(scalars))

    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> SparkFrame:
        rows = self._projected(scalars, keep, joins)
        if rows is None:
            return SparkFrame(self.df).project(scalars, keep, joins)
        return TaskFrame(self._resources, rows, lambda: SparkFrame(self.df).project(scalars, keep, joins))

    def _projected(
        self, scalars: Mapping[str, str], keep: Sequence[str], joins: Sequence[TableJoin]
    ) -> StepRows | None:
        columns, reads = dict(self._rows.columns), set(keep)
        shipped = []
        for table in joins:
            parcel = self._resources.tables.ship(table)
            columns |= dict(_side_columns(table))
            condition = self._resources.expressions.compiled(columns, [table.join.on])
            if parcel is None or condition is None or condition.calls_python:
                return None
            columns[table.join.id] = pa.bool_()
            reads |= condition.used
            shipped.append((table.join, parcel))
        compiled = self._resources.expressions.compiled(columns, [*scalars.values()])
        if compiled is None:
            return None
        reads = (reads | compiled.used) & set(self._rows.columns)
        result = {name: columns[name] for name in keep} | dict(zip(scalars, compiled.types, strict=True))
        return self._rows.then(ProjectStep(dict(scalars), tuple(keep), tuple(shipped)), reads, result)

    def with_positions(self, name: str) -> PositionedFrame | None:
        positioned = self._rows.positioned(name, self._resources.expressions.scalars)
        if positioned is None:
            return None
        rows, rows_at = positioned
        frame = TaskFrame(
            self._resources, rows, lambda: SparkFrame(self.df).extend({name: "CAST(NULL AS BIGINT)"})
        )
        return PositionedFrame(frame, rows_at)

    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> SparkFrame:
        return _MappedRows(self._resources, self._rows, task, schema, lambda: SparkFrame(self.df))

    @property
    def is_read_by_tasks(self) -> bool:
        """Whether tasks compute the rows; Spark plans them otherwise."""
        return self._rows.is_read_by_tasks

    def to_table(self, few: bool = False) -> pa.Table:
        schema = pa.schema(list(self._rows.columns.items()))
        table = self._rows.run(self._resources, None, schema)
        return SparkFrame(self.df).to_table(few) if table is None else table


class _MappedRows(SparkFrame):
    """The result of a task over the rows."""

    def __init__(
        self,
        resources: TaskResources,
        rows: StepRows,
        task: Task,
        schema: pa.Schema,
        load: Callable[[], SparkFrame],
    ):
        self._resources, self._rows, self._task, self._schema, self._load = (
            resources,
            rows,
            task,
            schema,
            load,
        )

    @cached_property
    def df(self) -> DataFrame:  # type: ignore[override]
        return self._load().map(self._task, self._schema).df

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def to_table(self, few: bool = False) -> pa.Table:
        table = self._rows.run(self._resources, self._task, self._schema)
        return SparkFrame(self.df).to_table(few) if table is None else table


def _side_columns(table: TableJoin) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of a joined table, by the names that expressions use."""
    columns = table.frame.columns
    for name in dict.fromkeys((*table.join.keys, *table.join.columns)):
        yield f"{table.join.id}.{name}", columns[name]
