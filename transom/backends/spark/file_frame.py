"""Frames over input files: tasks read them with Arrow where that gives what Spark gives, else Spark reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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


@dataclass(frozen=True)
class FileTasks:
    """What frames over files need to run tasks."""

    spark: SparkSession
    expressions: TaskExpressions
    tables: TableShipper
    parallelism: int
    driver_rows: int  # files of at most so many rows are read on the driver


@dataclass(frozen=True)
class FileRows:
    """Rows of files after some steps, as tasks compute them."""

    files: PartedFiles
    stream: Columns  # the columns of the stream, hidden ones included
    columns: Columns  # after the steps
    steps: tuple[tuple[Step, frozenset[str]], ...] = ()  # each with the columns that it reads
    position: str | None = None  # the column that has their positions

    def then(self, step: Step, reads: set[str], columns: Columns) -> FileRows:
        return replace(self, columns=columns, steps=(*self.steps, (step, frozenset(reads))))

    def job(self, parallelism: int, task: Task | None) -> FileJob | None:
        """The job that computes the rows; None if Spark reads a column that it needs in another way."""
        columns = self._needed_columns()
        if columns is None:
            return None
        return FileJob(
            self.files.parts(parallelism), columns, [step for step, _ in self.steps], task, self.position
        )

    def at(self, positions: NDArray[np.int64], scalars: Scalars) -> pa.Table | None:
        """The rows at some positions, read in this process; None if Spark has to read them."""
        columns = self._needed_columns()
        assert columns is not None
        try:
            rows: Frame = ArrowFrame(self.files.rows_at(positions, columns), scalars)
        except PartUnreadable:
            return None
        for step, _ in self.steps:
            rows = step.apply(rows)
        return rows.to_table()

    def _needed_columns(self) -> dict[str, pa.DataType] | None:
        """The columns that are read from the files; None if Spark reads one of them in another way."""
        needed = self._needed()
        columns = {name: kind for name, kind in self.stream.items() if name in needed}
        return columns if self.files.has_columns(columns) else None

    def _needed(self) -> set[str]:
        """The columns of the stream that the steps, and what comes after them, need."""
        needed = set(self.columns)
        for step, reads in reversed(self.steps):
            if isinstance(step, ProjectStep):
                needed = set(reads)
            elif isinstance(step, ExtendStep):
                needed = needed - set(step.scalars) | reads
            else:
                needed |= reads
        return needed


class FileFrame(SparkFrame):
    """The rows of some files after some steps. Tasks read them with Arrow if no step needs Spark.

    `load` is the same as a frame that Spark reads.
    """

    def __init__(self, tasks: FileTasks, rows: FileRows, load: Callable[[], SparkFrame]):
        self._tasks, self._rows, self._load = tasks, rows, load

    @cached_property
    def df(self) -> DataFrame:  # type: ignore[override]  # planned only where Spark has to read the files
        return self._load().df

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return dict(self._rows.columns)

    def filter(self, condition: str) -> SparkFrame:
        compiled = self._tasks.expressions.compiled(self._rows.columns, [condition])
        if compiled is None:
            return SparkFrame(self.df).filter(condition)
        rows = self._rows.then(FilterStep(condition), compiled.used, self._rows.columns)
        return FileFrame(self._tasks, rows, lambda: SparkFrame(self.df).filter(condition))

    def extend(self, scalars: Mapping[str, str]) -> SparkFrame:
        compiled = self._tasks.expressions.compiled(self._rows.columns, [*scalars.values()])
        if compiled is None:
            return SparkFrame(self.df).extend(scalars)
        columns = {**self._rows.columns, **dict(zip(scalars, compiled.types, strict=True))}
        rows = self._rows.then(ExtendStep(dict(scalars)), compiled.used, columns)
        return FileFrame(self._tasks, rows, lambda: SparkFrame(self.df).extend(scalars))

    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> SparkFrame:
        rows = self._projected(scalars, keep, joins)
        if rows is None:
            return SparkFrame(self.df).project(scalars, keep, joins)
        return FileFrame(self._tasks, rows, lambda: SparkFrame(self.df).project(scalars, keep, joins))

    def _projected(
        self, scalars: Mapping[str, str], keep: Sequence[str], joins: Sequence[TableJoin]
    ) -> FileRows | None:
        columns, reads = dict(self._rows.columns), set(keep)
        shipped = []
        for table in joins:
            parcel = self._tasks.tables.ship(table)
            columns |= dict(_side_columns(table))
            condition = self._tasks.expressions.compiled(columns, [table.join.on])
            if parcel is None or condition is None or condition.calls_python:
                return None
            columns[table.join.id] = pa.bool_()
            reads |= condition.used
            shipped.append((table.join, parcel))
        compiled = self._tasks.expressions.compiled(columns, [*scalars.values()])
        if compiled is None:
            return None
        reads = (reads | compiled.used) & set(self._rows.columns)
        result = {name: columns[name] for name in keep} | dict(zip(scalars, compiled.types, strict=True))
        return self._rows.then(ProjectStep(dict(scalars), tuple(keep), tuple(shipped)), reads, result)

    def with_positions(self, name: str) -> PositionedFrame | None:
        rows = self._rows
        is_projected = any(isinstance(step, ProjectStep) for step, _ in rows.steps)
        if is_projected or not self.is_read_by_tasks:
            return None
        positioned = replace(rows, columns={**rows.columns, name: pa.int64()}, position=name)
        frame = FileFrame(
            self._tasks, positioned, lambda: SparkFrame(self.df).extend({name: "CAST(NULL AS BIGINT)"})
        )
        scalars = self._tasks.expressions.scalars
        return PositionedFrame(frame, lambda positions: rows.at(positions, scalars))

    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> SparkFrame:
        return _MappedFiles(self._tasks, self._rows, task, schema, lambda: SparkFrame(self.df))

    @property
    def is_read_by_tasks(self) -> bool:
        """Whether tasks read the files with Arrow; Spark reads them otherwise."""
        return self._rows.job(self._tasks.parallelism, None) is not None

    def to_table(self, few: bool = False) -> pa.Table:
        schema = pa.schema(list(self._rows.columns.items()))
        table = _run(self._tasks, self._rows, None, schema)
        return SparkFrame(self.df).to_table(few) if table is None else table


class _MappedFiles(SparkFrame):
    """What a task makes of the rows of files."""

    def __init__(
        self, tasks: FileTasks, rows: FileRows, task: Task, schema: pa.Schema, load: Callable[[], SparkFrame]
    ):
        self._tasks, self._rows, self._task, self._schema, self._load = tasks, rows, task, schema, load

    @cached_property
    def df(self) -> DataFrame:  # type: ignore[override]
        return self._load().map(self._task, self._schema).df

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return dict(zip(self._schema.names, self._schema.types, strict=True))

    def to_table(self, few: bool = False) -> pa.Table:
        table = _run(self._tasks, self._rows, self._task, self._schema)
        return SparkFrame(self.df).to_table(few) if table is None else table


def _run(tasks: FileTasks, rows: FileRows, task: Task | None, schema: pa.Schema) -> pa.Table | None:
    """What tasks make of rows of files; None if Spark has to read them, or to say what is wrong with a file."""
    job = rows.job(tasks.parallelism, task)
    if job is None:
        return None
    functions = tasks.expressions.scalars.functions.parcel
    job = replace(job, functions=functions, counters=counters(tasks.spark, functions))
    with damage_reported():
        try:
            batches = job.run(tasks.spark.sparkContext)
        except PartUnreadable:
            return None
    return pa.Table.from_batches(batches, schema)


def _side_columns(table: TableJoin) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of a joined table, by the names that expressions use."""
    columns = table.frame.columns
    for name in dict.fromkeys((*table.join.keys, *table.join.columns)):
        yield f"{table.join.id}.{name}", columns[name]
