"""Where the rows of a stream or a table come from, as a program or a pipeline file describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pyarrow as pa

from transom.backends.base import Backend, Frame, StreamingInput
from transom.backends.connection import Connection, Decoder
from transom.backends.delta_rows import DeltaRows
from transom.backends.delta_table import is_delta
from transom.backends.expressions import quoted
from transom.backends.hidden_columns import CORRUPT
from transom.backends.secrets import with_secrets
from transom.errors import SettingError
from transom.ingest.delta_source import DeltaSource
from transom.ingest.source_view import SourceView, ViewedFiles, ViewedStream
from transom.ingest.sources import FileSource, FrameSource, Source, StreamingSource


@dataclass(frozen=True)
class SourceDescription:
    """A source: an object of the program, a path of files, or a format such as kafka with its options.

    `decode` says how a binary column becomes columns, and `select` is an SQL view over the rows, in which the source
    has the name of the stream or table.
    """

    name: str
    source: Any = None
    format: str | None = None
    schema: str | None = None
    options: Mapping[str, Any] | None = None
    decode: Any = None
    select: str | None = None
    files_per_batch: int = 1

    def open_stream(self, backend: Backend) -> Source:
        """The source of a stream."""
        if self._is_delta:
            return DeltaSource.open(backend, self.name, self._delta_path(), self.options or {}, self.select)
        opened = self._opened(backend, streaming=True)
        if isinstance(opened, Frame):
            view = self._view(opened.columns, backend)
            return FrameSource(opened if view is None else view.apply(opened))
        if opened is not None:
            view = self._view(opened.columns, backend)
            return StreamingSource(opened if view is None else ViewedStream(opened, view))
        files = backend.open_files(
            str(self.source), self.format, self.schema, with_secrets(self.options), self.files_per_batch
        )
        view = self._view(files.columns, backend)
        return FileSource(files if view is None else ViewedFiles(files, view))

    def open_table(self, backend: Backend) -> Frame:
        """The rows of a table as they are now."""
        frame = self._table(backend)
        view = self._view(frame.columns, backend)
        return frame if view is None else view.apply(frame)

    def source_version(self) -> int | None:
        """The version of what a table would read now; None if its source has no versions."""
        return DeltaRows(self._delta_path(), self.options).version() if self._is_delta else None

    @property
    def _is_delta(self) -> bool:
        return is_delta(self.format) and (self.source is None or isinstance(self.source, str | PathLike))

    def _delta_path(self) -> str | None:
        for name, given in (("decode", self.decode), ("schema", self.schema)):
            if given is not None:
                raise SettingError(f"a table of Delta Lake has its own columns: leave out {name}")
        return None if self.source is None else str(self.source)

    def _table(self, backend: Backend) -> Frame:
        if self._is_delta:
            return backend.frame(DeltaRows(self._delta_path(), self.options).read())
        if self.source is None or isinstance(self.source, str) or self.decode is not None:
            opened = self._opened(backend, streaming=False)
            if opened is None:
                files = backend.open_files(
                    str(self.source), self.format, self.schema, with_secrets(self.options)
                )
                opened = files.read([file for batch in files.pending() for file in batch])
            assert isinstance(opened, Frame)
            return _parsed(opened, str(self.source or self.format))
        rows = backend.input_of(self.source)
        if isinstance(rows, Frame):
            return rows
        if rows is not None:
            raise SettingError("a table is a batch DataFrame; a streaming one is a stream")
        records = [dict(row) for row in self.source]
        if not records:
            raise SettingError("a table of no rows has no columns: give a pyarrow.Table with a schema")
        names = dict.fromkeys(name for row in records for name in row)
        return backend.frame(pa.table({name: [row.get(name) for row in records] for name in names}))

    def _opened(self, backend: Backend, streaming: bool) -> Frame | StreamingInput | None:
        """The rows or the stream that the backend opens; None if the source is a path of files."""
        decoder = None if self.decode is None else Decoder.of(self.decode)
        if self.source is not None and not isinstance(self.source, str):
            given = backend.input_of(self.source)
            if given is not None and decoder is not None:
                raise SettingError(
                    "decode is for a format such as kafka: decode the columns of a DataFrame in Spark"
                )
            if given is not None:
                return given
        elif self.source is None and self.format is None:
            raise SettingError(
                f"{self.name} needs a source: a path of files, a DataFrame, or a format such as kafka"
            )
        path = None if self.source is None else str(self.source)
        if backend.reads_files(self.format):
            if path is None:
                raise SettingError(f"files of {self.format} need a path")
            if decoder is not None:
                raise SettingError(f"decode is for a format such as kafka, and {path} is a path of files")
            return None
        assert self.format is not None
        keeps_columns = self.select is not None
        options = dict(self.options or {})
        connection = Connection(self.format, path, self.schema, options, decoder, keeps_columns)
        return backend.connect(connection, streaming)

    def _view(self, columns: Mapping[str, pa.DataType], backend: Backend) -> SourceView | None:
        if self.select is None:
            return None
        return SourceView.bind(self.select, self.name, columns, backend.scalars)


def _parsed(frame: Frame, source: str) -> Frame:
    """The rows of a table, which must all be readable."""
    if CORRUPT not in frame.columns:
        return frame
    corrupt = frame.filter(f"{quoted(CORRUPT)} IS NOT NULL").first(1)
    if corrupt.num_rows:
        raise SettingError(f"a row of {source} can't be parsed: {corrupt[CORRUPT][0].as_py()}")
    return frame.project({}, [name for name in frame.columns if name != CORRUPT])
