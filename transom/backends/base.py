"""What the runtime needs of the system that it runs on: rows, files, tasks, functions and outputs.

A backend reads input, types and evaluates scalar expressions, runs tasks where rows or files are, and writes
outputs. `backends.spark` and `backends.local` implement it; the runtime, the planner and the kernel import
neither. Scalar expressions are texts in Spark SQL's dialect, evaluated with ANSI mode off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.backends.connection import FILE_FORMATS, Connection
from transom.backends.file_problems import FileProblem
from transom.columns.types import Columns
from transom.errors import BackendLimitError
from transom.sql.catalog import Scalars
from transom.sql.query import Join

RecordBatches = Iterator[pa.RecordBatch]
Task = Callable[[RecordBatches], RecordBatches]
MAX_ERROR_TEXT = 300  # characters of an error: a message may quote a whole value


class Frame(ABC):
    """Rows of a batch or of a table, wherever they are. A value: each operation returns other rows."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, pa.DataType]:
        """The columns in order, with their types."""

    @property
    def driver_rows(self) -> int | None:
        """How many rows there are, if they are on the driver: then operations start no job."""
        return None

    @abstractmethod
    def filter(self, condition: str) -> Frame:
        """The rows for which a condition is true."""

    @abstractmethod
    def project(
        self, scalars: Mapping[str, str], keep: Sequence[str] = (), joins: Sequence[TableJoin] = ()
    ) -> Frame:
        """The columns in `keep` and the named scalars, over the rows left-joined with static tables.

        A joined table's columns are named `` `<id>.column` ``; the column `` `<id>` `` tells whether a row
        of the table matched.
        """

    @abstractmethod
    def extend(self, scalars: Mapping[str, str]) -> Frame:
        """All columns and the named scalars, which replace columns of the same name."""

    @abstractmethod
    def with_row_ids(self, name: str) -> AbstractContextManager[Frame]:
        """The rows with a column that identifies each of them as long as the context is open."""

    def with_positions(self, name: str) -> PositionedFrame | None:
        """The rows with their positions in a column; None if rows can't be read by their positions."""
        return None

    @abstractmethod
    def number(self, name: str, order: Sequence[str], where: str, first: int) -> Frame:
        """The rows for which `where` is true numbered from `first` in an order, the others null."""

    @abstractmethod
    def rank(self, name: str, within: str, order: Sequence[str], ties: bool = False) -> Frame:
        """The rows numbered from 1 within equal values of the column `within`, ordered by expressions.

        With `ties`, rows that are equal in the order have the same rank.
        """

    @abstractmethod
    def order_of(self, column: str) -> str:
        """An expression that sorts rows by a column of any type."""

    @abstractmethod
    def union(self, other: Frame) -> Frame:
        """These rows and others, columns by name; a column that one side lacks is null there."""

    @abstractmethod
    def lookup(self, key: str, other: Frame, other_key: str) -> Frame:
        """Each row with the columns of the row of `other` that has the same key; rows without one are
        dropped."""

    @abstractmethod
    def aggregate(self, by: Mapping[str, str], functions: Mapping[str, tuple[str, str]]) -> Frame:
        """One row for each value of the expressions in `by`, with `count`, `min` or `max` of expressions."""

    @abstractmethod
    def distribute(self, key: str, partitions: int) -> Frame:
        """The rows in partitions: rows with the same key are in the same partition."""

    @abstractmethod
    def map(self, task: Task, schema: pa.Schema, few: bool = False) -> Frame:
        """What a task makes of each partition's rows; `few` says that it is not worth a job, if they are on the
        driver."""

    @abstractmethod
    def held(self) -> AbstractContextManager[Frame]:
        """The same rows, computed once while the context is open."""

    @abstractmethod
    def to_table(self, few: bool = False) -> pa.Table:
        """The rows on the driver; `few` says that they are few enough to be fetched without a job."""

    @abstractmethod
    def first(self, count: int) -> pa.Table:
        """At most so many of the rows, on the driver."""

    @abstractmethod
    def write_parquet(self, path: str, partition_by: str | None = None) -> None:
        """Write the rows as Parquet files to a directory, over what is there."""


@dataclass(frozen=True)
class PositionedFrame:
    """Rows with their positions in a column, and a function that reads the rows at some positions, in that order.

    The positions are null, and the function returns None, if it turns out that rows can't be read so.
    """

    frame: Frame
    rows_at: Callable[[NDArray[np.int64]], pa.Table | None]


@dataclass(frozen=True)
class TableJoin:
    """A static table as a query joins it."""

    join: Join
    frame: Frame


FileVersion = tuple[int, int]


class InputFiles(ABC):
    """The files of a path: one file, those of a directory, or those that match a glob."""

    columns: Columns
    is_text: bool  # whether rows are parsed, and may be corrupt
    timestamp_format: str | None  # the format of times in text, if one is declared
    versions_per_poll: int  # files whose versions can be asked for in the time of a poll

    @abstractmethod
    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        """The files that are not done, oldest first (then by name), in groups of a batch each."""

    @abstractmethod
    def read(self, files: Sequence[str]) -> Frame:
        """The rows of some files; a row that can't be parsed has its text in `CORRUPT`.

        Raises UnreadableFiles if that shows at once; rows that are read later may fail in other ways.
        """

    @abstractmethod
    def check(self, files: Sequence[str]) -> list[FileProblem]:
        """The problems that a quick look at some files finds."""

    @abstractmethod
    def unreadable_of(self, files: Sequence[str], error: Exception) -> list[FileProblem]:
        """The files that made a batch fail with an error; none if no file did."""

    @abstractmethod
    def version(self, file: str) -> FileVersion | None:
        """When a file was modified, in milliseconds, and its size; None if it does not exist."""


@dataclass(frozen=True)
class ResultKey:
    """The columns that identify a result: its window and its group, and its query unless that is a column.

    Results of a query without a window have no such columns. Their batch identifies them together.
    """

    columns: tuple[str, ...]
    query: str | None = None
    kind: str = "kind"  # the column that tells early results from final ones
    batch: str = "batch"  # the column with the batch
    condition: str = "true"  # which results have the key, in SQL
    # The columns with the start and the end of a result, if it has a time.
    extent: tuple[str, str] | None = None
    made: str = "made"  # the column that says when a result was made
    day: str = "day"  # a name that no column has, for the day of a result
    query_column: str = "query"  # the column with the query, or a name for it that no column has


NO_KEY = ResultKey(())


class Sink(ABC):
    """An output for results in one format."""

    format: str  # in lower case
    path: str | None  # of a directory that holds a directory per batch, if it writes files
    guarded: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    """A moment in which the engine owns its checkpoint, so that output may appear; raises if it does not."""
    sync = False
    """Whether `write` waits until local files are on disk."""
    writer: Callable[[], str] = staticmethod(lambda: "transom")
    """The name of the checkpoint, which no other has, for an output that notes which batches of it are there."""
    place: str | None = None
    """Where the output is, if a query can have only one sink there."""
    retractions = False
    """Whether it gets all retractions as rows. Otherwise a retraction says that a result is to be deleted."""

    @property
    def exactly_once(self) -> bool:
        """Whether a replayed batch overwrites what the first attempt wrote."""
        return self.path is not None

    @abstractmethod
    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
        """Write a batch's results. Later results replace those with the same key, where the output can do that."""

    def write_messages(self, frame: Frame) -> None:
        """Append rows with the columns `key` and `value`, in their order, if the output is a topic."""
        raise BackendLimitError(f"{self.format} is no format of messages")


@dataclass(frozen=True)
class PartitionOffset:
    """How far a partition of a stream was read, as its own system counts; None: it does not say."""

    name: str
    offset: int | None
    latest: int | None = None  # how far it could be read


class StreamingInput(ABC):
    """A stream whose batches its own system brings, one after the other, when it has them."""

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of its rows."""

    @abstractmethod
    def start(self, handler: Callable[[Frame, int], None], checkpoint: str, available_now: bool) -> None:
        """Call the handler with each batch and its number. With `available_now` it ends with what is there."""

    @abstractmethod
    def stop(self) -> None:
        """Bring no more batches."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until the handler has been called with all that is available."""

    def partitions(self) -> tuple[PartitionOffset, ...]:
        """How far each partition was read with the last batch; none if its system does not say."""
        return ()

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether more batches may come."""

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """What made it stop, if it failed."""


class ShippedPlan(ABC):
    """A plan on its way to tasks."""

    @abstractmethod
    def plan(self) -> Any:
        """The plan, where a task runs."""


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes; one that was raised `from None` has none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


class Backend(ABC):
    """Where an engine reads, computes and writes."""

    name: str
    scalars: Scalars
    parallelism: int  # how many tasks run at once
    session: Any = None  # of the system that it computes with, for a program that uses that system too

    @property
    @abstractmethod
    def in_utc(self) -> bool:
        """Whether a time written without a zone is in UTC."""

    def unsupported_columns(self, source: Any) -> dict[str, str]:
        """The columns of a source that `input_of` leaves out, because no query could use them, and their types."""
        return {}

    @property
    def time_zone(self) -> str:
        """The zone of times that are written without an offset."""
        return "UTC"

    @property
    @abstractmethod
    def shares_disk(self) -> bool:
        """Whether tasks see the files of the driver's own machine."""

    # --- rows ---

    @abstractmethod
    def frame(self, table: pa.Table) -> Frame:
        """A frame of rows that are on the driver."""

    @abstractmethod
    def read_parquet(self, paths: Sequence[str], few: bool = False) -> Frame:
        """The rows of Parquet files that this backend wrote; `few` says that the driver can hold them."""

    @abstractmethod
    def copied_to_driver(self, frame: Frame, most_rows: int) -> Frame:
        """The same rows, with a copy on the driver if they are at most so many."""

    @abstractmethod
    def run(self, task: Task, partitions: int, schema: pa.Schema) -> Frame:
        """What a task makes of the numbers of partitions, one partition each."""

    @abstractmethod
    def ship(self, plan: Any) -> ShippedPlan:
        """The kernel's plan of a batch for tasks; parts that were sent for the batch before are not sent again."""

    # --- input ---

    @abstractmethod
    def open_files(
        self,
        path: str,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
        files_per_batch: int = 1,
    ) -> InputFiles:
        """The files of a path, with their format and columns inferred unless they are given."""

    @abstractmethod
    def input_of(self, source: Any) -> Frame | StreamingInput | None:
        """An object of the user's as rows or as a stream; None if it is neither here."""

    def reads_files(self, format: str | None) -> bool:
        """Whether a format is one of files, for `open_files`; others are for `connect`."""
        return format is None or format.lower() in FILE_FORMATS

    def connect(self, connection: Connection, streaming: bool) -> Frame | StreamingInput:
        """A source by its format and options: a stream, or the rows that are there now."""
        raise BackendLimitError(f"{connection.format} is read by Spark, not by the {self.name} backend")

    @abstractmethod
    def parse_schema(self, text: str) -> dict[str, pa.DataType]:
        """The columns that a text such as `site int, ts timestamp` describes."""

    # --- expressions ---

    def delegated(self, columns: Columns, texts: Iterable[str]) -> dict[str, str]:
        """The expressions that the backend's own system evaluates for rows on the driver, with the reasons.

        This process evaluates the others, by compiled code.
        """
        return {}

    def calling_python(self, columns: Columns, texts: Iterable[str]) -> set[str]:
        """The expressions whose Python functions a worker process calls for rows on the driver."""
        return set()

    # --- functions ---

    @abstractmethod
    def register_function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Let queries call a Python function; where it raises, its value is null."""

    @abstractmethod
    def functions(self) -> set[str]:
        """The user-defined functions that queries can call, in lower case."""

    @abstractmethod
    def function_failures(self, name: str) -> int:
        """How many calls of a function have raised so far."""

    # --- output ---

    @abstractmethod
    def sink(self, format: str, options: Mapping[str, Any]) -> Sink:
        """An output in a format that this backend can write; refuses others at once."""

    # --- the rest ---

    @abstractmethod
    def stop(self) -> None:
        """End what the engine started here and nobody else uses."""

    @abstractmethod
    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Raise DeadlineError if what this thread evaluates in the block takes longer; it is cancelled then."""

    @abstractmethod
    def error_text(self, error: BaseException) -> str:
        """What is wrong, in one line."""

    @abstractmethod
    def is_external(self, error: BaseException) -> bool:
        """Whether a failure has its cause outside of all queries: in the source, the disk or the cluster."""

    def is_fatal(self, error: BaseException) -> bool:
        """Whether the backend is gone: nothing can be evaluated until the process is started again."""
        return False
