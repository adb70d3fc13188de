"""The files of a stream: which were not read yet, and whether their columns fit the stream.

Columns are compared by Parquet footers, CSV headers and first JSON rows. The check is cheap and runs on the driver
before a batch begins. What it does not see, such as a page that is damaged, makes the read itself fail.
"""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from transom.backends.arrow_types import plain
from transom.backends.base import MAX_ERROR_TEXT
from transom.backends.file_problems import FileProblem, Problem, unreadable
from transom.backends.parquet_parts import ParquetLayout, parquet_layout
from transom.errors import SettingError

JSON_ROWS = 100  # of a file, that are looked at
JSON_BYTES = 1 << 18
DECOMPRESSORS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
OTHER_COMPRESSION = (".zst", ".deflate", ".snappy", ".lz4")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of integers, by their bits
_EXACT_BITS = {16: 11, 32: 24, 64: 53}  # of the integers that a float holds, by its bits
READ_ERRORS = (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError, csv.Error, ValueError)


FileTypes = tuple[tuple[str, pa.DataType], ...]  # by column of the stream


# --- files that were not read yet: only those are looked at for size and age ---


def unread_files(path: Path, done: Collection[str], spelled: Callable[[str], str] = str) -> list[str]:
    """The visible files with something in them that are not done, oldest first, then by name.

    A path is a file, a directory or a glob. `spelled` is how a file's path is spelled in the list and in `done`.
    """
    places = [str(path)] if path.exists() else glob.glob(str(path))
    if not places:
        raise SettingError(f"no such file or directory: {path}")
    modified: dict[str, int] = {}
    for place in places:
        for file in _visible_files(place, done, spelled):
            name = spelled(file)
            try:
                status = os.stat(file)
            except FileNotFoundError:  # deleted since it was listed
                continue
            if status.st_size:
                modified[name] = status.st_mtime_ns // 1_000_000
    return sorted(modified, key=lambda name: (modified[name], name))


def file_version(path: str) -> tuple[int, int] | None:
    """When a file was modified, in milliseconds, and its size; None if there is no such file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns // 1_000_000, status.st_size


def _visible_files(place: str, done: Collection[str], spelled: Callable[[str], str]) -> list[str]:
    """The visible files of a directory, or a file, unless they are done."""
    if not os.path.isdir(place):
        return [] if os.path.basename(place).startswith((".", "_")) or spelled(place) in done else [place]
    with os.scandir(place) as entries:
        return [
            entry.path
            for entry in entries
            if not entry.name.startswith((".", "_")) and spelled(entry.path) not in done and entry.is_file()
        ]


# --- the columns of a file ---


@dataclass(frozen=True)
class CheckedFile:
    """The problems of a file, and the types of its columns that differ from the stream's, by the stream's name.

    Parquet files also have a layout.
    """

    problems: tuple[FileProblem, ...] = ()
    types: FileTypes = ()
    layout: ParquetLayout | None = None

    @property
    def is_readable(self) -> bool:
        return all(problem.problem is not Problem.UNREADABLE for problem in self.problems)


@dataclass(frozen=True)
class FileCheck:
    """Checks files of a stream. `open_file` opens a file for reading bytes."""

    format: str
    columns: Mapping[str, pa.DataType]
    open_file: Callable[[str], BinaryIO]
    separator: str = ","
    has_header: bool = True

    def check(self, file: str) -> CheckedFile:
        """The problems that a look at a file finds; errors of the disk or the network are not the file's."""
        try:
            if self.format == "parquet":
                return self._parquet(file)
            if file.endswith(OTHER_COMPRESSION):
                return CheckedFile()
            if self.format == "csv" and self.has_header:
                return CheckedFile(tuple(self._compared(file, self._header(file))))
            if self.format == "json":
                return CheckedFile(tuple(self._json(file)))
        except FileNotFoundError:  # the read tells whether the file or its whole directory is gone
            return CheckedFile()
        except READ_ERRORS as error:
            reason = unreadable_reason(error)
            return CheckedFile(() if reason is None else (unreadable(file, reason),))
        return CheckedFile()

    def _parquet(self, file: str) -> CheckedFile:
        with self.open_file(file) as opened, pq.ParquetFile(opened) as parquet:
            schema = parquet.schema_arrow
            problems = list(self._compared(file, schema.names))
            types = {}
            by_name = columns_by_name(schema.names)
            for name, kind in self.columns.items():
                if (spelled := by_name(name)) is None:
                    continue
                if len(schema.get_all_field_indices(spelled)) > 1:
                    problems.append(unreadable(file, f"it has several columns {spelled}", spelled))
                    continue
                have = schema.field(spelled).type
                if have == kind:
                    continue
                if not holds_every_value(kind, have) and not _fits_by_statistics(
                    parquet.metadata, spelled, have, kind
                ):
                    problems.append(unreadable(file, mismatch(spelled, have, kind), spelled))
                if _needs_cast(parquet, spelled, have, kind):
                    types[name] = have
            layout = parquet_layout(parquet, {name: by_name(name) for name in self.columns})
        return CheckedFile(tuple(problems), tuple(types.items()), layout)

    def _compared(self, file: str, names: Iterable[str], where: str | None = None) -> Iterator[FileProblem]:
        """The columns that a file lacks, and those that the stream does not have."""
        present = {name.casefold() for name in names}
        wanted = {name.casefold() for name in self.columns}
        for name in self.columns:
            if name.casefold() not in present:
                yield FileProblem(Problem.MISSING_COLUMN, file, name, where or "its values are null")
        for name in names:
            if name.casefold() not in wanted:
                yield FileProblem(Problem.NEW_COLUMN, file, name, "no query can read it")

    def _header(self, file: str) -> list[str]:
        with self._decompressed(file) as opened:
            lines = io.TextIOWrapper(opened, "utf-8", errors="replace", newline="")
            return next(csv.reader(lines, delimiter=self.separator), list(self.columns))

    def _json(self, file: str) -> Iterator[FileProblem]:
        with self._decompressed(file) as opened:
            lines = opened.read(JSON_BYTES).split(b"\n")
        names: dict[str, None] = {}
        for line in lines[:JSON_ROWS]:
            try:
                row = json.loads(line)
            except ValueError:  # rejected later, or cut off here
                continue
            if isinstance(row, dict):
                names |= dict.fromkeys(row)
        if names:
            rows = f"it is in none of the first {JSON_ROWS} rows"
            yield from self._compared(file, names, rows)

    @contextmanager
    def _decompressed(self, file: str) -> Iterator[BinaryIO]:
        with self.open_file(file) as opened:
            decompress = DECOMPRESSORS.get(os.path.splitext(file)[1])
            if decompress is None:
                yield opened
                return
            with decompress(opened) as content:
                yield content


def columns_by_name(names: Iterable[str]) -> Callable[[str], str | None]:
    """A function that finds a column of a file by its name: spelled the same, or else in other cases."""
    exact = dict.fromkeys(names)
    folded = {name.casefold(): name for name in exact}
    return lambda name: name if name in exact else folded.get(name.casefold())


def mismatch(column: str, have: pa.DataType, kind: pa.DataType) -> str:
    """Why a column of a file does not fit the stream's column."""
    return f"its column {column} is {have}, the stream's is {kind}: not every value fits"


def unreadable_reason(error: Exception) -> str | None:
    """What is wrong with a file, in one line; None if the disk or the network is to blame."""
    if isinstance(error, FileNotFoundError):
        return "it was deleted after it was listed"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, IsADirectoryError):
        return None
    text = " ".join(str(error).split("\n")[0].split())
    return text[:MAX_ERROR_TEXT] or type(error).__name__


def holds_every_value(kind: pa.DataType, have: pa.DataType) -> bool:
    """Whether a type holds every value of another; times are cut to microseconds.

    >>> [holds_every_value(*pair) for pair in ((pa.int64(), pa.int32()), (pa.int32(), pa.int64()))]
    [True, False]
    >>> holds_every_value(pa.decimal128(12, 2), pa.decimal128(10, 2))
    True
    """
    have = plain(have)
    if have == kind or kinds.is_null(have):
        return True
    if kinds.is_timestamp(have):
        return kinds.is_timestamp(kind)
    if _is_bytes(have):  # older writers do not mark texts
        return _is_bytes(kind)
    if kinds.is_nested(have):  # compared by the reader
        return have.id == kind.id
    if kinds.is_decimal(kind):
        whole = kind.precision - kind.scale
        if kinds.is_decimal(have):
            return have.scale <= kind.scale and have.precision - have.scale <= whole
        return kinds.is_integer(have) and _DIGITS[have.bit_width] <= whole
    if kinds.is_floating(kind):
        if kinds.is_floating(have):
            return have.bit_width <= kind.bit_width
        return kinds.is_integer(have) and have.bit_width - 1 <= _EXACT_BITS[kind.bit_width]
    return kinds.is_integer(have) and kinds.is_integer(kind) and have.bit_width <= kind.bit_width


def _fits_by_statistics(metadata: Any, column: str, have: pa.DataType, kind: pa.DataType) -> bool:
    """Whether the footer shows that all values of an integer column fit into a smaller integer type."""
    if not (kinds.is_integer(have) and kinds.is_integer(kind)):
        return False
    highest = (1 << (kind.bit_width - 1)) - 1
    place = metadata.schema.names.index(column) if column in metadata.schema.names else None
    if place is None:
        return False
    for number in range(metadata.num_row_groups):
        part = metadata.row_group(number).column(place)
        statistics = part.statistics
        if statistics is None:
            return False
        if not statistics.has_min_max:
            if statistics.null_count != part.num_values:
                return False
        elif not -highest - 1 <= statistics.min <= statistics.max <= highest:
            return False
    return True


def _needs_cast(parquet: Any, column: str, have: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a reader that is asked for the stream's type would refuse the column."""
    if kinds.is_timestamp(have):
        return _is_int64_nanoseconds(parquet, column, have) or (have.tz is not None and kind.tz is None)
    return plain(have) != kind and not kinds.is_nested(have) and not _is_bytes(have)


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.binary())


def _is_int64_nanoseconds(parquet: Any, column: str, have: pa.DataType) -> bool:
    """Whether a column holds nanoseconds as 64-bit integers; the older INT96 form looks the same in Arrow."""
    if have.unit != "ns":
        return False
    leaves = (parquet.schema.column(place) for place in range(len(parquet.schema.names)))
    return any(leaf.path == column and leaf.physical_type == "INT64" for leaf in leaves)
