"""Parquet files read with Arrow as Spark reads them: which columns can be, the parts of a batch, and their rows.

Spark and Arrow agree on most columns, and not on all: Spark knows two calendars, and may refuse a file that Arrow
reads. A column outside of the set here is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds
from numpy.typing import NDArray

from transom.backends.arrow_types import plain
from transom.backends.file_parts import DeclaredColumns, FilePart, PartUnreadable
from transom.columns.readable_values import valid_text

READ_ROWS = 1 << 18  # rows that a task reads at once
LEAST_TASK_ROWS = 20_000  # a task of fewer rows costs more than it saves
MOST_DRIVER_BYTES = 64 << 20  # of files that are read on the driver
# Keys of footers whose times are of the old hybrid calendar, or may be: Spark converts them.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_FIRST_NEW_CALENDAR = (3, 1)


@dataclass(frozen=True)
class FileColumn:
    """A column of a file, by the name that it has there."""

    name: str
    type: pa.DataType
    is_int96: bool = False


@dataclass(frozen=True)
class ParquetLayout:
    """The rows of each row group of a file, and its columns by the stream's names.

    `is_unusual` says that Spark may find other columns than Arrow, and `has_old_times` that it converts times.
    """

    group_rows: tuple[int, ...]
    columns: Mapping[str, FileColumn]
    bytes: int = 0  # of all columns, not compressed
    is_unusual: bool = False
    has_old_times: bool = False

    @property
    def rows(self) -> int:
        return sum(self.group_rows)


def parquet_layout(parquet: Any, names: Mapping[str, str | None]) -> ParquetLayout:
    """The layout of an open file; `names` are its columns by the stream's names."""
    schema, metadata = parquet.schema_arrow, parquet.metadata
    leaves = {leaf.path: leaf for leaf in map(parquet.schema.column, range(len(parquet.schema.names)))}
    columns = {
        name: FileColumn(spelled, schema.field(spelled).type, _is_int96(leaves.get(spelled)))
        for name, spelled in names.items()
        if spelled is not None and len(schema.get_all_field_indices(spelled)) == 1
    }
    folded = {name.casefold() for name in schema.names}
    is_unusual = len(folded) < len(schema.names) or any("." in name for name in schema.names)
    groups = tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return ParquetLayout(groups, columns, size, is_unusual, _has_old_times(metadata.metadata or {}))


def reads_as_spark(column: FileColumn | None, kind: pa.DataType, has_old_times: bool) -> bool:
    """Whether Arrow gives the values that Spark gives for a column, in the stream's type.

    >>> reads_as_spark(FileColumn("x", pa.int32()), pa.int64(), False)
    True
    >>> reads_as_spark(FileColumn("x", pa.list_(pa.int32())), pa.list_(pa.int32()), False)
    False
    """
    if column is None or kinds.is_null(column.type):
        return not kinds.is_nested(kind)
    have = plain(column.type)
    if kinds.is_timestamp(have) or kinds.is_date32(have):
        is_same = kinds.is_timestamp(kind) if kinds.is_timestamp(have) else have == kind == column.type
        return is_same and not has_old_times
    if kinds.is_string(kind):
        return have in (pa.string(), pa.binary()) and not kinds.is_fixed_size_binary(column.type)
    if kinds.is_binary(kind):
        return column.type == pa.binary()
    if kinds.is_integer(kind):
        return kinds.is_integer(have)
    if kinds.is_floating(kind):
        return (have in (pa.float32(), pa.float64()) and column.type == have) or kinds.is_integer(have)
    if kinds.is_decimal128(kind):
        return kinds.is_decimal128(have) or kinds.is_integer(have)
    return kinds.is_boolean(kind) and column.type == kind


@dataclass(frozen=True)
class ParquetPart:
    """Some rows of a file: those from `start` to `stop` among the rows of some of its row groups.

    `first` is the position of the first of them among the rows of all files.
    """

    path: str
    layout: ParquetLayout
    groups: tuple[int, ...]
    start: int
    stop: int
    first: int = 0

    def tables(self, columns: DeclaredColumns) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        first = self.first
        for table in read_part(self, columns):
            yield table, np.arange(first, first + table.num_rows)
            first += table.num_rows


@dataclass(frozen=True)
class ParquetFiles:
    """The Parquet files of a batch; a row's position is its number among the rows of all files."""

    layouts: tuple[tuple[str, ParquetLayout], ...]  # by path

    def has_columns(self, columns: DeclaredColumns) -> bool:
        return all(
            reads_as_spark(layout.columns.get(name), kind, layout.has_old_times)
            for _, layout in self.layouts
            for name, kind in columns.items()
        )

    def parts(self, tasks: int) -> list[list[FilePart]]:
        return [list(parts) for parts in split_parts(self.layouts, tasks, LEAST_TASK_ROWS)]

    def rows_at(self, positions: NDArray[np.int64], columns: DeclaredColumns) -> pa.Table:
        return read_rows(self.layouts, positions, columns)

    def small_table(self, most_rows: int, columns: DeclaredColumns) -> pa.Table | None:
        rows = sum(layout.rows for _, layout in self.layouts)
        size = sum(layout.bytes for _, layout in self.layouts)
        if rows > most_rows or size > MOST_DRIVER_BYTES or not self.has_columns(columns):
            return None
        return read_rows(self.layouts, np.arange(rows), columns)


def split_parts(
    files: Sequence[tuple[str, ParquetLayout]], tasks: int, least_rows: int
) -> list[list[ParquetPart]]:
    """The rows of some files for at most so many tasks, in order; cuts are at row groups where these are near.

    >>> layout = ParquetLayout((60, 50), {})
    >>> [[(part.groups, part.start, part.stop) for part in task] for task in split_parts([("a", layout)], 2, 10)]
    [[((0,), 0, 60)], [((1,), 0, 50)]]
    >>> layout = ParquetLayout((100,), {})
    >>> [[(part.groups, part.start, part.stop) for part in task] for task in split_parts([("a", layout)], 2, 10)]
    [[((0,), 0, 50)], [((0,), 50, 100)]]
    """
    ends = np.array(list(accumulate(rows for _, layout in files for rows in layout.group_rows)), np.int64)
    total = int(ends[-1]) if len(ends) else 0
    tasks = max(1, min(tasks, total // max(least_rows, 1)))
    cuts = [0]
    for number in range(1, tasks):
        cut = total * number // tasks
        nearest = int(ends[np.argmin(np.abs(ends - cut))])
        cuts.append(nearest if abs(nearest - cut) * 10 * tasks <= total else cut)
    cuts.append(total)
    tasks_parts = [list(_parts_between(files, a, b)) for a, b in pairwise(cuts) if a < b]
    return [parts for parts in tasks_parts if parts]


def _parts_between(
    files: Sequence[tuple[str, ParquetLayout]], first: int, last: int
) -> Iterator[ParquetPart]:
    """The parts of the rows from `first` to `last`, counted over all files."""
    begin = 0
    for path, layout in files:
        chosen: list[int] = []
        skipped = 0  # rows of the file before the chosen row groups
        at = begin
        for number, rows in enumerate(layout.group_rows):
            if at + rows <= first:
                skipped += rows
            elif at < last and rows:
                chosen.append(number)
            at += rows
        if chosen:
            start = max(first - begin - skipped, 0)
            stop = min(last, at) - begin - skipped
            yield ParquetPart(path, layout, tuple(chosen), start, stop, begin + skipped + start)
        begin = at


def read_part(part: ParquetPart, columns: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """The rows of a part in tables of a good size, with these columns of the stream in the stream's types."""
    try:
        yield from _read(part, columns)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise PartUnreadable(f"{part.path}: {type(error).__name__}: {error}") from error


def read_rows(
    files: Sequence[tuple[str, ParquetLayout]],
    positions: NDArray[np.int64],
    columns: Mapping[str, pa.DataType],
) -> pa.Table:
    """The rows at some positions among the rows of all files, in the order of the positions."""
    ordered = np.sort(positions)
    tables = [pa.schema(list(columns.items())).empty_table()]
    begin = 0
    for path, layout in files:
        ends = begin + np.cumsum([0, *layout.group_rows])
        chosen = (
            np.unique(np.searchsorted(ends, ordered[(ordered >= begin) & (ordered < ends[-1])], "right")) - 1
        )
        for group in chosen.tolist():
            at = int(ends[group])
            for table in read_part(ParquetPart(path, layout, (group,), 0, layout.group_rows[group]), columns):
                low, high = np.searchsorted(ordered, [at, at + table.num_rows])
                tables.append(table.take(pa.array(ordered[low:high] - at)))
                at += table.num_rows
        begin = int(ends[-1])
    places = np.empty(len(positions), np.int64)
    places[np.argsort(positions, kind="stable")] = np.arange(len(positions))
    return pa.concat_tables(tables).take(pa.array(places))


def _read(part: ParquetPart, columns: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    layout = part.layout
    present = {name: layout.columns[name].name for name in columns if name in layout.columns}
    with pq.ParquetFile(part.path, coerce_int96_timestamp_unit="us") as parquet:
        groups = tuple(parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups))
        if groups != layout.group_rows:
            raise ValueError("it changed since the driver looked at it")
        names = list(dict.fromkeys(present.values()))
        position = 0
        for batch in parquet.iter_batches(READ_ROWS, list(part.groups), names, use_threads=False):
            begin, position = position, position + batch.num_rows
            if position <= part.start:
                continue
            first, last = max(part.start - begin, 0), min(part.stop - begin, batch.num_rows)
            if first >= last:
                break
            yield _declared(batch.slice(first, last - first), present, columns)


def _declared(
    batch: pa.RecordBatch, present: Mapping[str, str], columns: Mapping[str, pa.DataType]
) -> pa.Table:
    arrays = [
        as_declared(batch.column(batch.schema.get_field_index(present[name])), kind)
        if name in present
        else pa.nulls(batch.num_rows, kind)
        for name, kind in columns.items()
    ]
    if not arrays:
        return pa.table({"_": pa.nulls(batch.num_rows)}).select([])
    return pa.table(arrays, names=list(columns))


def as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column of a file in the stream's type; ArrowInvalid where a value does not fit.

    >>> as_declared(pa.array([-1, 1999], pa.timestamp("ns")), pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    [-1, 1]
    """
    have = column.type
    if have == kind and not kinds.is_string(kind):
        return column
    if kinds.is_timestamp(have):
        return _micros(column).cast(kind)
    if kinds.is_string(kind):
        texts = column.cast(plain(have)).cast(kind, safe=False)
        return valid_text(pa.chunked_array([texts]))
    return column.cast(plain(have)).cast(kind)


def _micros(column: pa.Array) -> pa.Array:
    """Times as microseconds, cut towards the past; without a zone they are in UTC."""
    if column.type.unit != "ns":
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    numbers = column.cast(pa.int64())
    is_null = numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers.fill_null(0).to_numpy() // 1000, mask=is_null)


def _is_int96(leaf: Any) -> bool:
    return leaf is not None and leaf.physical_type == "INT96"


def _has_old_times(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether Spark may convert the times of a file from the calendar of old versions."""
    if any(key in metadata for key in _OLD_CALENDAR):
        return True
    version = metadata.get(_SPARK_VERSION)
    if version is None:
        return False
    try:
        return tuple(map(int, version.decode().split(".")[:2])) < _FIRST_NEW_CALENDAR
    except ValueError:
        return True
