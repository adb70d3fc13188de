"""Where batches come from: a program that pushes, files of a path, a batch DataFrame, a Spark stream.

All but the last are driven by the engine itself, which asks for the next batch when it has time for
one. A batch is known by a reference that can be written ahead: reading it again gives the same rows.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from transom.backends.spark.files import CORRUPT, PathSource
from transom.backends.spark.session import ansi_off
from transom.backends.spark.types import to_arrow, to_frame
from transom.durations import parse_instant
from transom.elements import Prod, Punctuation
from transom.errors import SettingError
from transom.runtime.file_store import Store

TIME_TEXT = "_time_text"  # what stood in a time column of text, before it became a time
HIDDEN = (CORRUPT, TIME_TEXT)

Reference = Mapping[str, Any]


@dataclass(frozen=True)
class Taken:
    """A batch to run: where its rows are, and what takes effect at its end."""

    reference: Reference
    control: Sequence[Punctuation | Prod] = ()


class Source(ABC):
    """A stream's source that the engine drives."""

    finite = True  # whether a drain may take its end for the end of the stream
    time_format: str | None = None  # how times are written, where they are text

    @abstractmethod
    def schema(self) -> StructType:
        """The columns of its rows."""

    @abstractmethod
    def take(self, batch_id: int) -> Taken | None:
        """The next batch, or None when there is nothing now."""

    @abstractmethod
    def frame(self, reference: Reference) -> DataFrame:
        """The rows of a batch."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to come, as far as it can know."""
        return False

    def now(self, clock: int) -> int | None:
        """How far its rows' times could have come, in microseconds, when the engine's clock is so far."""
        return clock

    def hurry(self) -> None:
        """Called when the stream is drained: what is yet to come by the clock comes now."""

    def advance(self, reference: Reference) -> None:
        """Called when a batch is about to be committed: `progress` is to include it."""

    def release(self, reference: Reference) -> None:
        """Called after a batch was committed: it will never be asked for again."""

    def progress(self) -> Any:
        """What must be remembered over a restart, as JSON."""
        return None

    def resume(self, progress: Any) -> None:
        """Continue from there."""


class BatchSource(Source):
    """A batch DataFrame: a finite stream of one batch."""

    def __init__(self, df: DataFrame):
        self.df, self._done = df, False

    def schema(self) -> StructType:
        return self.df.schema

    def take(self, batch_id: int) -> Taken | None:
        return None if self._done else Taken({"batch": "all"})

    def frame(self, reference: Reference) -> DataFrame:
        return self.df

    def advance(self, reference: Reference) -> None:
        self._done = True

    @property
    def finished(self) -> bool:
        return self._done

    def progress(self) -> Any:
        return self._done

    def resume(self, progress: Any) -> None:
        self._done = bool(progress)


class FileSource(Source):
    """Files of a path, in (modification time, name) order, some a batch; new ones are found as they come."""

    def __init__(self, path: PathSource):
        self.path, self.time_format = path, path.timestamp_format
        self._done: set[str] = set()
        self._found: deque[list[str]] = deque()  # listing a path is slow: only when the last list is used up

    def schema(self) -> StructType:
        """With the text of rows that can't be parsed, in formats that have such."""
        fields = self.path.schema.fields
        return StructType([*fields, StructField(CORRUPT, StringType())] if self.path.is_text else [*fields])

    def take(self, batch_id: int) -> Taken | None:
        if not self._found:
            self._found.extend(self.path.pending(self._done))
        return Taken({"files": list(self._found.popleft())}) if self._found else None

    def frame(self, reference: Reference) -> DataFrame:
        return self.path.read(reference["files"])

    def advance(self, reference: Reference) -> None:
        self._done.update(reference["files"])

    def progress(self) -> Any:
        return sorted(self._done)

    def resume(self, progress: Any) -> None:
        self._done = set(progress)


class FeedSource(Source):
    """Rows that a program pushes; a batch is what was pushed up to a control element, or up to now.

    Rows are written under the checkpoint when their batch begins; what was pushed and not yet taken is
    the program's to push again after a crash.
    """

    def __init__(self, spark: SparkSession, store: Store, name: str, schema: StructType):
        self.spark, self.store, self.name, self._schema = spark, store, name, schema
        self._arrow = pa.schema(list(to_arrow(schema).items()))
        self._queue: deque[pa.Table | Punctuation | Prod] = deque()
        self._taken = 0  # how many of the queue the batch at hand holds
        self._lock = threading.Lock()

    def schema(self) -> StructType:
        return self._schema

    def push(self, rows: pa.Table | Iterable[Any]) -> int:
        """Queue rows: an Arrow table, mappings, or tuples in the order of the schema."""
        table = self._table(rows)
        if table.num_rows:
            with self._lock:
                self._queue.append(table)
        return table.num_rows

    def control(self, element: Punctuation | Prod) -> None:
        """Queue a control element behind the rows pushed before it."""
        with self._lock:
            self._queue.append(element)

    def _table(self, rows: pa.Table | Iterable[Any]) -> pa.Table:
        names = self._arrow.names
        try:
            if isinstance(rows, pa.Table | pa.RecordBatch):
                absent = [name for name in names if name not in rows.schema.names]
                if absent:
                    raise SettingError(f"the rows pushed into {self.name} have no column {absent[0]}")
                return pa.table(
                    [rows[name].cast(self._arrow.field(name).type) for name in names], schema=self._arrow
                )
            if isinstance(rows, tuple) and rows and not isinstance(rows[0], tuple | list | Mapping):
                raise SettingError(f"rows pushed into {self.name} come in a list, also a single one")
            records = [dict(row) if isinstance(row, Mapping) else self._record(row) for row in rows]
            unknown = {name for row in records for name in row} - set(names)
            if unknown:
                raise SettingError(f"the rows pushed into {self.name} have an unknown column {min(unknown)}")
            columns = [_column([row.get(field.name) for row in records], field.type) for field in self._arrow]
            return pa.table(columns, schema=self._arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(f"the rows pushed into {self.name} do not fit its schema: {error}") from error

    def _record(self, row: Any) -> dict[str, Any]:
        values = tuple(row)
        if len(values) != len(self._arrow):
            raise SettingError(
                f"a row pushed into {self.name} has {len(values)} values, its schema {len(self._arrow)}"
            )
        return dict(zip(self._arrow.names, values, strict=True))

    def take(self, batch_id: int) -> Taken | None:
        tables: list[pa.Table] = []
        control: list[Punctuation | Prod] = []
        with self._lock:
            for element in self._queue:
                if isinstance(element, Punctuation | Prod):
                    control.append(element)
                elif control:
                    break
                else:
                    tables.append(element)
            self._taken = len(tables) + len(control)
        if not tables and not control:
            return None
        path = f"feeds/{self.name}/{batch_id:010d}.arrow"
        table = pa.concat_tables(tables) if tables else self._arrow.empty_table()
        self.store.write_table(path, table)
        return Taken({"feed": path, "rows": table.num_rows}, control)

    def frame(self, reference: Reference) -> DataFrame:
        return to_frame(self.spark, self.store.read_table(reference["feed"])).to(self._schema)

    def advance(self, reference: Reference) -> None:
        """Only now does the queue lose the batch: one that could not even be written ahead is taken again."""
        with self._lock:
            for _ in range(self._taken):
                self._queue.popleft()
            self._taken = 0

    def release(self, reference: Reference) -> None:
        self.store.delete(reference["feed"])


class SparkSource(Source):
    """A streaming DataFrame: Spark decides when its batches come, through `foreachBatch`."""

    finite = False

    def __init__(self, df: DataFrame):
        self.df = df
        self.batch = -1  # the last one committed

    def schema(self) -> StructType:
        return self.df.schema

    def take(self, batch_id: int) -> Taken | None:
        return None

    def frame(self, reference: Reference) -> DataFrame:
        raise SettingError("a Spark stream brings its own batches")

    def advance(self, reference: Reference) -> None:
        self.batch = reference["spark"]

    def progress(self) -> Any:
        return self.batch

    def resume(self, progress: Any) -> None:
        self.batch = int(progress)


class ResultSource(Source):
    """The results of a query, which come with its own batches."""

    def schema(self) -> StructType:
        return StructType([])

    def take(self, batch_id: int) -> Taken | None:
        return None

    def frame(self, reference: Reference) -> DataFrame:
        raise SettingError("a query brings its results itself")


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Python values as a column; times may also be text or microseconds."""
    if pa.types.is_timestamp(kind):
        return pa.array([None if v is None else parse_instant(v) for v in values], pa.int64()).cast(kind)
    return pa.array(values, kind, from_pandas=False)


def with_time(df: DataFrame, time: str, form: str | None = None) -> DataFrame:
    """The rows with a time column that is a time: text is parsed, and kept beside what became of it.

    Text is read in the reader's `timestampFormat`, if there is one, or as Spark casts it.
    """
    if not isinstance(df.schema[time].dataType, StringType):
        return df
    with ansi_off(df.sparkSession):
        parsed = F.expr(f"CAST(`{time}` AS TIMESTAMP)")
        if form is not None:
            parsed = F.coalesce(F.try_to_timestamp(F.col(f"`{time}`"), F.lit(form)), parsed)
        return df.withColumns({TIME_TEXT: F.col(f"`{time}`"), time: parsed})


def with_time_schema(columns: Mapping[str, pa.DataType], time: str) -> dict[str, pa.DataType]:
    """The columns as `with_time` leaves them."""
    is_text = pa.types.is_string(columns[time])
    return {**columns, time: pa.timestamp("us", tz="UTC")} if is_text else dict(columns)


def visible(columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns that queries can name."""
    return {name: kind for name, kind in columns.items() if name not in HIDDEN}
