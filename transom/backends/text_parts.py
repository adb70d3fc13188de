"""CSV and JSON files in parts that tasks read with Arrow as Spark reads them: cut at line ends, if they are plain.

For Spark, each line is a row by itself, also if a quote is open at its end (unless the option `multiLine` is set). So a
file can be cut at any line end, except a compressed one. Whether a line is corrupt depends on all columns: a part
checks the values of all, and is left to Spark if one of them is not plain.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.backends.file_parts import DeclaredColumns, FilePart, PartUnreadable
from transom.backends.hidden_columns import CORRUPT
from transom.backends.input_files import DECOMPRESSORS, OTHER_COMPRESSION, READ_ERRORS
from transom.backends.plain_files import (
    csv_header,
    is_plain_separator,
    is_plain_type,
    plain_csv,
    plain_json_lines,
)

READ_BYTES = 8 << 20  # that a task reads at once
LEAST_TASK_BYTES = 1 << 20  # a task of fewer bytes costs more than it saves
MOST_DRIVER_TEXT = 8 << 20  # of files that are read on the driver
SAMPLE_BYTES = 1 << 16  # of a file, that are looked at before tasks are given the whole
_COMPRESSION = 8  # how much longer a text is than its compressed form, about
_OFFSET_BITS = 44  # of a position, for the place in a file; the others have the number of the file


@dataclass(frozen=True)
class TextForm:
    """The format of a stream's text files, and its columns."""

    format: str
    columns: DeclaredColumns
    separator: str = ","
    has_header: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether plain files have values of all columns."""
        if self.format == "csv" and not is_plain_separator(self.separator):
            return False
        return all(is_plain_type(kind, self.format) for kind in self.columns.values())


@dataclass(frozen=True)
class TextLayout:
    """A plain text file: its form, its size, and the names of its columns if it is CSV."""

    path: str
    form: TextForm
    size: int
    names: tuple[str, ...] = ()

    @property
    def is_compressed(self) -> bool:
        return os.path.splitext(self.path)[1] in DECOMPRESSORS

    @property
    def weight(self) -> int:
        """About how many bytes of text it has."""
        return self.size * _COMPRESSION if self.is_compressed else self.size

    @property
    def has_header(self) -> bool:
        return self.form.format == "csv" and self.form.has_header

    def opened(self) -> BinaryIO:
        """The text of the file; ValueError if it changed since the driver looked at it."""
        if os.stat(self.path).st_size != self.size:
            raise ValueError("it changed since the driver looked at it")
        opener: Any = DECOMPRESSORS.get(os.path.splitext(self.path)[1], open)
        opened: BinaryIO = opener(self.path, "rb")
        return opened

    def table(self, data: bytes, columns: DeclaredColumns) -> tuple[pa.Table, NDArray[np.int64]]:
        """The rows of some lines, and where their lines begin; PartUnreadable if the lines are not plain."""
        if self.form.format == "csv":
            plain: Any = plain_csv(data, self.form.separator, list(self.names))
        else:
            plain = plain_json_lines(data)
        table = None if plain is None else plain.table(self.form.columns)
        if table is None:
            raise PartUnreadable(f"{self.path}: only Spark can read a line of it")
        if CORRUPT in columns:
            table = table.append_column(CORRUPT, pa.nulls(table.num_rows, pa.string()))
        return table.select(list(columns)), plain.line_starts


def text_layout(path: str, form: TextForm) -> TextLayout | None:
    """The layout of a file whose first lines are plain; None if Spark has to read it."""
    if path.endswith(OTHER_COMPRESSION):
        return None
    layout = TextLayout(path, form, os.stat(path).st_size)
    try:
        with layout.opened() as opened:
            sample = opened.read(SAMPLE_BYTES)
            if len(sample) == SAMPLE_BYTES:
                sample += opened.readline()
        if form.format == "csv":
            header, rest = (sample.partition(b"\n")[::2]) if form.has_header else (b"", sample)
            names = csv_header(header, form.separator) if form.has_header else list(form.columns)
            if names is None:
                return None
            layout, sample = TextLayout(path, form, layout.size, tuple(names)), rest
        layout.table(sample, {})
    except (PartUnreadable, *READ_ERRORS):
        return None
    return layout


@dataclass(frozen=True)
class TextPart:
    """The lines of a file that begin between two places, `number` being the file's among all files."""

    layout: TextLayout
    number: int
    start: int
    stop: int

    def tables(self, columns: DeclaredColumns) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        try:
            for place, data in self._blocks():
                table, starts = self.layout.table(data, columns)
                yield table, (self.number << _OFFSET_BITS) + place + starts
        except READ_ERRORS as error:
            raise PartUnreadable(f"{self.layout.path}: {type(error).__name__}: {error}") from error

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """The lines in blocks, each with its place in the file's text."""
        with self.layout.opened() as opened:
            place = 0
            if self.start:  # the line that begins before belongs to another part
                opened.seek(self.start - 1)
                place = self.start - 1 + len(opened.readline())
            elif self.layout.has_header:
                place = len(opened.readline())
            while place < self.stop:
                data = opened.read(min(READ_BYTES, self.stop - place))
                if not data:
                    return
                if not data.endswith(b"\n"):
                    data += opened.readline()
                yield place, data
                place += len(data)


@dataclass(frozen=True)
class TextFiles:
    """The plain text files of a batch."""

    layouts: tuple[TextLayout, ...]

    def has_columns(self, columns: DeclaredColumns) -> bool:
        return True  # all columns of plain files can be read

    def parts(self, tasks: int) -> list[list[FilePart]]:
        total = sum(layout.weight for layout in self.layouts)
        tasks = max(1, min(tasks, total // LEAST_TASK_BYTES))
        cuts = [total * number // tasks for number in range(tasks + 1)]
        chosen = [list(self._parts_between(a, b)) for a, b in pairwise(cuts)]
        return [parts for parts in chosen if parts]

    def _parts_between(self, first: int, last: int) -> Iterator[FilePart]:
        begin = 0
        for number, layout in enumerate(self.layouts):
            end = begin + layout.weight
            if layout.is_compressed:
                if first <= begin < last:
                    yield TextPart(layout, number, 0, 1 << _OFFSET_BITS)
            elif begin < last and first < end:
                yield TextPart(layout, number, max(first - begin, 0), min(last, end) - begin)
            begin = end

    def rows_at(self, positions: NDArray[np.int64], columns: DeclaredColumns) -> pa.Table:
        tables = [pa.schema(list(columns.items())).empty_table()]
        order = np.argsort(positions, kind="stable")
        numbers, places = positions[order] >> _OFFSET_BITS, positions[order] & ((1 << _OFFSET_BITS) - 1)
        for number in np.unique(numbers).tolist():
            layout = self.layouts[number]
            try:
                lines = _lines_at(layout, places[numbers == number].tolist())
            except READ_ERRORS as error:
                raise PartUnreadable(f"{layout.path}: {type(error).__name__}: {error}") from error
            tables.append(layout.table(lines, columns)[0])
        back = np.empty(len(positions), np.int64)
        back[order] = np.arange(len(positions))
        return pa.concat_tables(tables).take(pa.array(back))

    def small_table(self, most_rows: int, columns: DeclaredColumns) -> pa.Table | None:
        if not most_rows or sum(layout.weight for layout in self.layouts) > MOST_DRIVER_TEXT:
            return None
        tables, rows = [pa.schema(list(columns.items())).empty_table()], 0
        for number, layout in enumerate(self.layouts):
            for table, _ in TextPart(layout, number, 0, 1 << _OFFSET_BITS).tables(columns):
                tables.append(table)
                rows += table.num_rows
                if rows > most_rows:
                    return None
        return pa.concat_tables(tables)


def _lines_at(layout: TextLayout, places: Sequence[int]) -> bytes:
    """The lines that begin at some places, in this order."""
    lines = []
    with layout.opened() as opened:
        for place in places:
            opened.seek(place)
            lines.append(opened.readline().rstrip(b"\r\n"))
    return b"".join(line + b"\n" for line in lines)
