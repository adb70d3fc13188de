"""Tasks that read parts of files with Arrow and compute on them, without a DataFrame: one job for a batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
from pyspark import RDD, Accumulator, SparkContext
from pyspark.broadcast import Broadcast

from transom.backends.arrow_frame import ArrowFrame
from transom.backends.base import Frame, TableJoin, Task
from transom.backends.file_parts import FilePart, PartUnreadable
from transom.backends.program_functions import FailureCount, FunctionParcel
from transom.backends.spark.broadcast_plan import freeze_modules
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.query import Join

_UNREADABLE = b"unreadable: "  # what a task returns instead of record batches: Spark would log an error
_KEPT_TABLES = 16
_KEPT_RDDS = 64
_tables: OrderedDict[str, Frame] = OrderedDict()  # of this process: Spark uses its workers again
_empty_rdds: dict[tuple[str, int], RDD[Any]] = {}


class Step(Protocol):
    """What a task does with its rows."""

    def apply(self, rows: Frame) -> Frame:
        """Other rows."""
        ...


@dataclass(frozen=True)
class FilterStep:
    """Passes on the rows for which a condition is true."""

    condition: str

    def apply(self, rows: Frame) -> Frame:
        return rows.filter(self.condition)


@dataclass(frozen=True)
class ExtendStep:
    """Adds scalars, which replace columns of the same name."""

    scalars: Mapping[str, str]

    def apply(self, rows: Frame) -> Frame:
        return rows.extend(self.scalars)


@dataclass(frozen=True)
class ProjectStep:
    """Passes on some columns and scalars, over the rows left-joined with static tables."""

    scalars: Mapping[str, str]
    keep: tuple[str, ...] = ()
    joins: tuple[tuple[Join, TableParcel], ...] = ()

    def apply(self, rows: Frame) -> Frame:
        joins = [TableJoin(join, parcel.frame()) for join, parcel in self.joins]
        return rows.project(self.scalars, self.keep, joins)


class TableParcel:
    """A static table on its way to tasks; a worker process unpacks it when it first sees it."""

    def __init__(self, key: str, packed: Broadcast[bytes]):
        self.key, self.packed = key, packed

    def frame(self) -> Frame:
        """The table in this process, with the indexes that joins have made for it."""
        if self.key not in _tables:
            table = pa.ipc.open_stream(self.packed.value).read_all().combine_chunks()
            _tables[self.key] = ArrowFrame(table, worker_scalars())
            while len(_tables) > _KEPT_TABLES:
                _tables.popitem(last=False)
        return _tables[self.key]


@dataclass(frozen=True)
class FileJob:
    """What the tasks of a job do: read columns of their parts, apply steps, and run a task of the engine."""

    parts: Sequence[Sequence[FilePart]]  # by task
    columns: Mapping[str, pa.DataType]  # that are read
    steps: Sequence[Step]
    task: Task | None
    position: str | None = None  # a column for the positions of rows among the rows of all files
    functions: FunctionParcel | None = None  # of the program
    counters: Mapping[str, Accumulator[int]] = field(default_factory=dict)  # of failed calls, by function

    def run(self, context: SparkContext) -> list[pa.RecordBatch]:
        """The record batches that the tasks return, in the order of their parts; PartUnreadable if Spark has to read
        a part."""
        if not self.parts:
            return []
        packed = _empty_rdd(context, len(self.parts)).mapPartitionsWithIndex(self._run_task).collect()
        for stream in packed:
            if stream.startswith(_UNREADABLE):
                raise PartUnreadable(stream.removeprefix(_UNREADABLE).decode())
        return [batch for stream in packed for batch in pa.ipc.open_stream(stream)]

    def _run_task(self, number: int, nothing: Iterable[Any]) -> Iterator[bytes]:
        for _ in nothing:  # Spark ends a worker whose task does not read its input to the end
            pass
        scalars = worker_scalars() if self.functions is None else self.functions.scalars()
        failed = FailureCount(scalars)
        batches = self._batches(number, scalars)
        try:
            results = list(batches if self.task is None else self.task(batches))
        except PartUnreadable as error:
            yield _UNREADABLE + str(error).encode()
            return
        for name, count in failed.new().items():
            self.counters[name].add(count)
        freeze_modules()
        if results:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, results[0].schema) as writer:
                for batch in results:
                    writer.write_batch(batch)
            yield sink.getvalue().to_pybytes()

    def _batches(self, number: int, scalars: InterpretedScalars) -> Iterator[pa.RecordBatch]:
        for part in self.parts[number]:
            for table, positions in part.tables(self.columns):
                if self.position is not None:
                    table = table.append_column(self.position, pa.array(positions))
                rows: Frame = ArrowFrame(table, scalars)
                for step in self.steps:
                    rows = step.apply(rows)
                yield from rows.to_table().combine_chunks().to_batches()


@cache
def worker_scalars() -> InterpretedScalars:
    """The scalars of this process, with the expressions that it has compiled."""
    return InterpretedScalars()


def _empty_rdd(context: SparkContext, partitions: int) -> RDD[Any]:
    """An RDD of so many empty partitions; making one takes several calls of the JVM."""
    key = context.applicationId, partitions
    if key not in _empty_rdds:
        if len(_empty_rdds) >= _KEPT_RDDS:
            _empty_rdds.clear()
        _empty_rdds[key] = context.parallelize([], partitions)
    return _empty_rdds[key]
