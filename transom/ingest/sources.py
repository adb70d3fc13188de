"""Where batches come from: a program that pushes, files of a path, rows that are given, a stream of Spark's.

The engine drives all but the last: it asks for the next batch when it has time for one. A batch is known by a
reference that can be written ahead: reading it again gives the same rows.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.backends.base import Backend, Frame, InputFiles, PartitionOffset, StreamingInput
from transom.backends.expressions import quoted, text_literal
from transom.backends.file_problems import FileProblem, Problem, UnreadableFiles
from transom.backends.hidden_columns import CORRUPT, HIDDEN, TIME_TEXT
from transom.columns.readable_values import valid_text
from transom.columns.types import Columns
from transom.elements import Prod, Punctuation
from transom.errors import FeedFullError, SettingError
from transom.ingest.file_log import FileLog, problem_from_json, problem_to_json
from transom.ingest.pushed_values import UNFIT, pushed_column
from transom.storage.file_store import Store

log = logging.getLogger("transom")

REMEMBERED_BATCHES = 10_000  # of a feed, to tell which batch took some rows

Reference = Mapping[str, Any]
SAMPLED_ROWS = 1_000
SAMPLE_SECONDS = 1.0  # between two samples of large batches of a feed
SMALL_BYTES = 1 << 16


@dataclass(frozen=True)
class NextBatch:
    """A batch to run: where its rows are, and the control that takes effect at its end."""

    reference: Reference
    control: Sequence[Punctuation | Prod] = ()


@dataclass(frozen=True)
class SourceStatus:
    """How far a source was read; None is what it does not have."""

    kind: str
    files_read: int | None = None
    files_waiting: int | None = None  # that were found and not read yet
    rows_waiting: int | None = None
    partitions: tuple[PartitionOffset, ...] = ()


class Source(ABC):
    """The source of a stream."""

    finite = True  # whether a drain may take its end for the end of the stream
    kind = "rows"  # what it is, in a word or two for users
    time_format: str | None = None  # how times are written, where they are text

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of its rows, hidden ones included."""

    @abstractmethod
    def next(self, batch_id: int) -> NextBatch | None:
        """The next batch, or None when there is nothing now."""

    @abstractmethod
    def read(self, reference: Reference) -> Frame:
        """The rows of a batch."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to come, as far as the source can know."""
        return False

    def status(self) -> SourceStatus:
        """How far it was read. May be called from any thread."""
        return SourceStatus(self.kind)

    def sample(self) -> Frame | None:
        """Some of its rows, to see what they are like; None if there are none at hand. Any thread may call it."""
        return None

    def now(self, clock: int) -> int | None:
        """How far the rows' times could have come, in microseconds, when the engine's clock reads `clock`."""
        return clock

    def hurry(self) -> None:
        """Deliver at once what is due later by the clock: the stream is drained."""

    def without_unreadable(self, reference: Reference, error: Exception) -> Reference | None:
        """A batch without the files that made it fail with an error; None if no file did."""
        return None

    @property
    def file_log(self) -> FileLog | None:
        """The files that it has read and their problems, if it reads files."""
        return None

    def advance(self, reference: Reference) -> None:
        """Called when a batch is about to be committed: `progress` must include it."""

    def stored_files(self, reference: Reference) -> list[str]:
        """The files under the checkpoint that hold a batch's rows: they are deleted some time after its commit."""
        return []

    def progress(self) -> Any:
        """What must be remembered over a restart, as JSON."""
        return None

    def resume(self, progress: Any) -> None:
        """Continue after `progress`."""


class FrameSource(Source):
    """Rows that are given: a finite stream of one batch."""

    def __init__(self, frame: Frame):
        self.frame, self._done = frame, False

    @property
    def columns(self) -> Columns:
        return self.frame.columns

    def next(self, batch_id: int) -> NextBatch | None:
        return None if self._done else NextBatch({"batch": "all"})

    def read(self, reference: Reference) -> Frame:
        return self.frame

    def sample(self) -> Frame | None:
        return self.frame

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

    kind = "files"

    def __init__(self, files: InputFiles):
        self.files, self.time_format = files, files.timestamp_format
        self._log = FileLog()
        self._advanced = 0  # the last batch whose problems are noted
        self._pending: deque[list[str]] = (
            deque()
        )  # listing a path is slow: only when the last list is used up

    @property
    def columns(self) -> Columns:
        """With the text of rows that can't be parsed, in formats that have such."""
        return (
            {**self.files.columns, CORRUPT: pa.string()} if self.files.is_text else dict(self.files.columns)
        )

    def status(self) -> SourceStatus:
        waiting = sum(len(files) for files in tuple(self._pending))
        return SourceStatus(self.kind, len(self._log.read), waiting)

    def sample(self) -> Frame | None:
        """The rows of the file that was read last, or of the first one."""
        try:
            newest = next(reversed(self._log.versions), None)
        except RuntimeError:  # a batch is just noting its files
            return None
        if newest is None:
            newest = next((file for group in self.files.pending() for file in group), None)
        try:
            return None if newest is None else self.files.read([newest])
        except UnreadableFiles:
            return None

    def next(self, batch_id: int) -> NextBatch | None:
        if not self._pending:
            self._note_rewritten(batch_id)
            self._log.forget_deleted(self.files)
            self._pending.extend(self.files.pending(self._log.read))
        if not self._pending:
            return None
        files = list(
            self._pending[0]
        )  # `advance` removes them: a batch that can't be written ahead is taken again
        reference = {
            "files": files,
            "versions": {file: list(self.files.version(file) or ()) for file in files},
            "problems": [],
            "batch": batch_id,
        }
        return NextBatch(self._with_problems(reference, self._log.noteworthy(self.files.check(files))))

    def _note_rewritten(self, batch_id: int) -> None:
        rewritten = self._log.rewritten(self.files)
        self._log.add_problems(rewritten, batch_id)
        for problem in rewritten:
            log.warning("%s", problem)

    def _with_problems(self, reference: Reference, problems: Sequence[FileProblem]) -> Reference:
        """The reference with more problems, and without the files that can't be read."""
        for problem in problems:
            log.warning("%s", problem)
        unreadable = {problem.file for problem in problems if problem.problem is Problem.UNREADABLE}
        return {
            **reference,
            "files": [file for file in reference["files"] if file not in unreadable],
            "problems": [*reference["problems"], *map(problem_to_json, problems)],
        }

    def read(self, reference: Reference) -> Frame:
        return self.files.read(reference["files"])

    def without_unreadable(self, reference: Reference, error: Exception) -> Reference | None:
        problems = self.files.unreadable_of(reference["files"], error)
        return self._with_problems({"problems": [], **reference}, problems) if problems else None

    def advance(self, reference: Reference) -> None:
        batch_id = reference.get("batch", 0)
        if batch_id > self._advanced:  # not the second attempt at a commit
            self._advanced = batch_id
            self._log.add_problems(list(map(problem_from_json, reference.get("problems", ()))), batch_id)
        versions = reference.get("versions", dict.fromkeys(reference["files"]))
        self._log.add_files({file: (v[0], v[1]) if v else None for file, v in versions.items()})
        if self._pending and set(self._pending[0]) <= set(versions):
            self._pending.popleft()

    @property
    def file_log(self) -> FileLog:
        return self._log

    def progress(self) -> Any:
        return self._log.to_json()

    def resume(self, progress: Any) -> None:
        self._log = FileLog.from_json(progress)


class FeedSource(Source):
    """Rows that a program pushes; a batch is what was pushed up to a control element, or up to now.

    Rows are written under the checkpoint when their batch begins. After a crash the program pushes again
    what was pushed and not yet taken.
    """

    kind = "feed"

    def __init__(self, backend: Backend, store: Store, name: str, columns: Columns):
        self.backend, self.store, self.name, self._columns = backend, store, name, columns
        self._schema = pa.schema(list(columns.items()))
        self._queue: deque[pa.Table | Punctuation | Prod] = deque()
        self._taken = 0  # how many elements of the queue the current batch holds
        self._written: tuple[str, pa.Table] | None = None  # the file of the current batch, and its rows
        self._pushed = self._advanced = 0  # rows that were pushed, and rows that batches have taken
        self._batches: deque[tuple[int, int]] = deque(
            maxlen=REMEMBERED_BATCHES
        )  # rows taken so far, and the batch
        self._lock = threading.Lock()
        self._samples: deque[pa.Table] = deque()  # rows of the newest batches, about SAMPLED_ROWS
        self._sampled = 0.0  # when rows of a large batch were copied

    @property
    def columns(self) -> Columns:
        return self._columns

    def push(self, rows: pa.Table | Iterable[Any]) -> int:
        """Queue rows: an Arrow table, a table of pandas, Polars or DuckDB, mappings, or tuples in the order of the
        schema."""
        return self.push_up_to(rows, None)[0]

    def push_up_to(self, rows: pa.Table | Iterable[Any], limit: int | None) -> tuple[int, int]:
        """Queue rows, and return how many there are and a ticket for `batch_of`.

        With a limit, no more rows than that wait, except those of a single push; FeedFullError if they would.
        """
        table = self._table(rows)
        with self._lock:
            waiting = self._pushed - self._advanced
            if limit is not None and waiting and waiting + table.num_rows > limit:
                raise FeedFullError(
                    f"{waiting:,} rows wait to be processed, and the limit is {limit:,}: send more later"
                )
            if table.num_rows:
                self._queue.append(table)
                self._pushed += table.num_rows
            return table.num_rows, self._pushed

    @property
    def waiting(self) -> int:
        """The number of rows that no committed batch has taken."""
        with self._lock:
            return self._pushed - self._advanced

    def batch_of(self, ticket: int) -> int | None:
        """The batch that took the rows of a push; None if none has."""
        with self._lock:
            if ticket > self._advanced:
                return None
            return next((batch for taken, batch in self._batches if taken >= ticket), 0)

    def control(self, element: Punctuation | Prod) -> None:
        """Queue a control element behind the rows pushed before it."""
        with self._lock:
            self._queue.append(element)

    def _table(self, rows: pa.Table | Iterable[Any]) -> pa.Table:
        names = self._schema.names
        try:
            if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
                rows = pa.table(rows)
                repeated = [name for name in names if rows.schema.names.count(name) > 1]
                if repeated:
                    raise SettingError(f"the rows pushed into {self.name} have two columns {repeated[0]}")
                absent = [name for name in names if name not in rows.schema.names]
                if absent:
                    raise SettingError(f"the rows pushed into {self.name} have no column {absent[0]}")
                columns = [rows[name].cast(self._schema.field(name).type) for name in names]
                return pa.table([valid_text(column) for column in columns], schema=self._schema)
            is_row = isinstance(rows, tuple) and rows and not isinstance(rows[0], tuple | list | Mapping)
            if is_row or not isinstance(rows, Iterable) or isinstance(rows, str | Mapping):
                raise SettingError(f"push takes a list of rows, also for a single row of {self.name}")
            zone = self.backend.time_zone
            records = [dict(row) if isinstance(row, Mapping) else self._record(row) for row in rows]
            unknown = {name for row in records for name in row} - set(names)
            if unknown:
                raise SettingError(f"the rows pushed into {self.name} have an unknown column {min(unknown)}")
            columns = [
                pushed_column([row.get(field.name) for row in records], field, zone) for field in self._schema
            ]
            return pa.table(columns, schema=self._schema)
        except UNFIT as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(f"the rows pushed into {self.name} do not fit its schema: {error}") from error

    def _record(self, row: Any) -> dict[str, Any]:
        if not isinstance(row, Iterable) or isinstance(row, str):
            raise SettingError(f"a row pushed into {self.name} is a mapping or a tuple, not {row!r}")
        values = tuple(row)
        if len(values) != len(self._schema):
            raise SettingError(
                f"a row pushed into {self.name} has {len(values)} values, its schema {len(self._schema)}"
            )
        return dict(zip(self._schema.names, values, strict=True))

    def next(self, batch_id: int) -> NextBatch | None:
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
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        self.store.write_table(path, table)
        self._written = path, table
        if tables:
            self._keep_sample(table)
        return NextBatch({"feed": path, "rows": table.num_rows}, control)

    def _keep_sample(self, table: pa.Table) -> None:
        """Remember the newest rows. Those of a large batch are copied, about once a second, and the others released."""
        if table.num_rows > SAMPLED_ROWS or table.get_total_buffer_size() > 2 * table.nbytes + SMALL_BYTES:
            now = time.monotonic()
            if now - self._sampled < SAMPLE_SECONDS and self._samples:
                return
            self._sampled = now
            table = table.take(np.arange(max(0, table.num_rows - SAMPLED_ROWS), table.num_rows))
        with self._lock:
            self._samples.append(table)
            held = sum(each.num_rows for each in self._samples)
            while held - self._samples[0].num_rows >= SAMPLED_ROWS:
                held -= self._samples.popleft().num_rows

    def status(self) -> SourceStatus:
        with self._lock:
            waiting = sum(element.num_rows for element in self._queue if isinstance(element, pa.Table))
        return SourceStatus(self.kind, rows_waiting=waiting)

    def sample(self) -> Frame | None:
        with self._lock:
            samples = list(self._samples)
        if not samples:
            return None
        rows = pa.concat_tables(samples)
        return self.backend.frame(rows.slice(max(0, rows.num_rows - SAMPLED_ROWS)))

    def read(self, reference: Reference) -> Frame:
        if self._written is not None and self._written[0] == reference["feed"]:
            return self.backend.frame(self._written[1])  # an earlier process wrote other files
        return self.backend.frame(self.store.read_table(reference["feed"]))

    def advance(self, reference: Reference) -> None:
        """Remove the batch from the queue; a batch that could not even be written ahead is taken again."""
        batch_id = int(reference["feed"].rpartition("/")[2].partition(".")[0])
        with self._lock:
            for _ in range(self._taken):
                element = self._queue.popleft()
                self._advanced += element.num_rows if isinstance(element, pa.Table) else 0
            self._taken, self._written = 0, None
            self._batches.append((self._advanced, batch_id))

    def stored_files(self, reference: Reference) -> list[str]:
        return [reference["feed"]]


class StreamingSource(Source):
    """A stream of the backend's own system, which decides when its batches come."""

    finite = False
    kind = "Spark stream"

    def __init__(self, stream: StreamingInput):
        self.stream = stream
        self.last_batch = -1  # the last one committed, by the number that its own system gave it

    @property
    def columns(self) -> Columns:
        return self.stream.columns

    def next(self, batch_id: int) -> NextBatch | None:
        return None

    def read(self, reference: Reference) -> Frame:
        raise SettingError("a streaming source brings its batches itself")

    def status(self) -> SourceStatus:
        return SourceStatus(self.kind, partitions=self.stream.partitions())

    def advance(self, reference: Reference) -> None:
        self.last_batch = reference["stream"]

    def progress(self) -> Any:
        return self.last_batch

    def resume(self, progress: Any) -> None:
        self.last_batch = int(progress)


class ResultSource(Source):
    """The results of a query, which come with its own batches."""

    @property
    def columns(self) -> Columns:
        return {}

    def next(self, batch_id: int) -> NextBatch | None:
        return None

    def read(self, reference: Reference) -> Frame:
        raise SettingError("a query brings its results itself")


class DerivedSource(ResultSource):
    """The source of a derived stream, whose rows come from other streams; it ends when they do."""

    finite = False

    def __init__(self, columns: Columns):
        self._columns = columns

    @property
    def columns(self) -> Columns:
        return self._columns


def with_time(frame: Frame, time: str, form: str | None = None) -> Frame:
    """The rows with a time column that holds times: text is parsed, and kept in a hidden column.

    Text is read in the reader's `timestampFormat`, if there is one, or as Spark casts it.
    """
    if not pa.types.is_string(frame.columns[time]):
        return frame
    parsed = f"CAST({quoted(time)} AS TIMESTAMP)"
    if form is not None:
        parsed = f"coalesce(try_to_timestamp({quoted(time)}, {text_literal(form)}), {parsed})"
    return frame.extend({TIME_TEXT: quoted(time), time: parsed})


def with_time_column(columns: Columns, time: str) -> dict[str, pa.DataType]:
    """The columns as `with_time` leaves them."""
    is_text = pa.types.is_string(columns[time])
    return {**columns, time: pa.timestamp("us", tz="UTC")} if is_text else dict(columns)


def visible(columns: Columns) -> dict[str, pa.DataType]:
    """The columns that queries can name."""
    return {name: kind for name, kind in columns.items() if name not in HIDDEN}
