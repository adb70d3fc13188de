"""The retained rows of streams under the checkpoint, for queries that are registered later and ask for the past.

history/bids/0000000012.rows          the accepted rows of a batch, as Parquet, and what the batch did to its stream
history/bids/0000000255-5c1f03ab.rows those of many batches
history/bids/0000000256-77a0c4d2/     Parquet files that the backend wrote, and their seal

A batch that runs again overwrites its file. The commit record lists the files that count. When sixteen files of
about the same number of batches follow each other, they are made one, so that a row is written again only a few
times.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transom.backends.base import Frame
from transom.columns.types import Columns
from transom.runtime.row_outputs import read_parquet
from transom.state.retained_rows import RetainedBatch, RetainedFile, RetainedRows
from transom.storage.file_store import Store
from transom.storage.sealed_directory import seal, sealed_files, write_frame
from transom.windows.intervals import LOWEST, IntervalSet

MERGED_FILES = 16  # of about the same number of batches
LARGEST_MERGE = 1 << 24  # bytes; more are not merged, because that happens on the driver
PARTS_OF_SPAN = (
    8  # a merged file covers at most this part of the time that is retained, so that it can be deleted
)
# Dictionaries take longer than they save. What one batch writes is fast, and what many do is small.
BATCH_OPTIONS: dict[str, Any] = {"compression": "lz4"}
MERGED_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
_BATCHES = b"transom.batches"  # the key of the batches in the metadata of a file
_SEALED_BATCHES = "_batches.json"  # the same beside files of the backend


class RowHistory:
    """Writes the accepted rows of batches, and reads back those of committed batches."""

    def __init__(self, store: Store):
        self.store = store
        self.committed: dict[str, RetainedRows] = {}  # by stream
        self._written: dict[str, RetainedFile] = {}  # by stream, of the batch that is being processed
        self._missed: dict[str, IntervalSet] = {}  # by stream, before the first batch that is retained
        self._rows: dict[str, pa.Table | str] = {}  # by stream, of the attempt: rows, or a sealed directory
        self._bytes = 0  # of that directory
        self._recent: dict[
            str, tuple[list[RetainedBatch], pa.Table | None]
        ] = {}  # by path, to be merged soon
        self._merges: list[str] = []  # files that the batch being committed made of others

    def resume(self, committed: Mapping[str, RetainedRows]) -> None:
        """Continue with the files that a commit lists."""
        self.committed = dict(committed)

    # --- writing ---

    def begin_attempt(self) -> None:
        """Forget what an earlier attempt at the batch wrote."""
        for rows in self._rows.values():
            if isinstance(rows, str):
                self.store.delete(rows)
        self._rows, self._written = {}, {}

    def take(self, stream: str, batch_id: int, rows: Frame, columns: Columns, on_driver: bool) -> None:
        """Take the accepted rows of a batch. Rows that are not on the driver are written by the backend."""
        if on_driver:
            self._rows[stream] = rows.to_table(few=True).select(list(columns))
            return
        directory = f"{_place(stream)}/{batch_id:010d}-{uuid.uuid4().hex[:8]}"
        self._rows[stream] = directory
        write_frame(self.store, directory, rows.project({}, list(columns)))
        self._bytes = seal(self.store, directory)

    def write(
        self, stream: str, batch: RetainedBatch, span: tuple[int, int] | None, missed: IntervalSet
    ) -> None:
        """Write what a batch did to a stream, and the rows that were taken; `span` are their least and greatest time.

        `missed` are the times of accepted rows from before the batch, if it is the first that is retained.
        """
        low, high = (None, None) if span is None else span
        taken = self._rows.get(stream)
        if isinstance(taken, str):
            self.store.write(f"{taken}/{_SEALED_BATCHES}", _packed([batch]))
            size, path = self._bytes, taken
        else:
            batch = replace(batch, rows=0 if taken is None else taken.num_rows)
            path = f"{_place(stream)}/{batch.batch_id:010d}.rows"
            size = self._write_rows(path, [batch], taken)
            if size * MERGED_FILES <= LARGEST_MERGE:
                self._recent[path] = [batch], taken
        number = batch.batch_id
        is_sealed = isinstance(taken, str)
        self._written[stream] = RetainedFile(path, number, number, 1, batch.rows, low, high, size, is_sealed)
        if stream not in self.committed:
            self._missed[stream] = missed

    def _write_rows(self, path: str, batches: Sequence[RetainedBatch], rows: pa.Table | None) -> int:
        table = pa.table({}) if rows is None else rows
        table = table.replace_schema_metadata({_BATCHES: _packed(batches)})
        sink = pa.BufferOutputStream()
        options = MERGED_OPTIONS if len(batches) > 1 else BATCH_OPTIONS
        pq.write_table(table, sink, write_statistics=False, use_dictionary=False, **options)
        packed = sink.getvalue()
        self.store.write(path, packed)
        return packed.size

    # --- committing ---

    def after(
        self, batch_id: int, expired: Mapping[str, int], spans: Mapping[str, int]
    ) -> dict[str, RetainedRows]:
        """What the commit of a batch lists.

        Of the streams in `expired`, files of rows before a time are left out; of others, all. `spans` are the
        lengths of time that streams retain. A declared stream that retains nothing any more is listed in neither,
        and leaves the list.
        """
        listed = {stream: rows for stream, rows in self.committed.items() if stream in spans}
        for stream, file in self._written.items():
            if file.last == batch_id:
                rows = listed.get(stream) or RetainedRows(missed=self._missed[stream])
                files = self._merged(stream, (*rows.files, file), spans[stream] // PARTS_OF_SPAN)
                listed[stream] = replace(rows, files=files)
        return {
            stream: _without_expired(rows, expired[stream]) if stream in expired else rows
            for stream, rows in listed.items()
        }

    def commit(self, listed: Mapping[str, RetainedRows]) -> list[str]:
        """Let readers see the files that a commit lists; those that it does not list any more."""
        kept = {file.path for rows in listed.values() for file in rows.files}
        before = [file.path for rows in self.committed.values() for file in rows.files]
        before += [*(file.path for file in self._written.values()), *self._merges]
        self.committed, self._written, self._rows, self._missed = dict(listed), {}, {}, {}
        self._merges = []
        self._recent = {path: rows for path, rows in self._recent.items() if path in kept}
        return [path for path in before if path not in kept]

    def strays(self, batch_id: int) -> Iterator[str]:
        """Files of batches up to one that no commit lists: attempts that failed left them."""
        listed = {file.path for rows in self.committed.values() for file in rows.files}
        for stream in self.store.list("history"):
            for name in self.store.list(_place(stream)):
                path = f"{_place(stream)}/{name}"
                if int(name[:10]) <= batch_id and path not in listed:
                    yield path

    def _merged(self, stream: str, files: tuple[RetainedFile, ...], span: int) -> tuple[RetainedFile, ...]:
        """The files, with the last ones made one as often as there are enough of them."""
        while len(last := files[-MERGED_FILES:]) == MERGED_FILES and _may_merge(last, span):
            parts = [self._recent.get(file.path) or self.read(file) for file in last]
            tables = [table for _, table in parts if table is not None and table.num_columns]
            try:
                whole = pa.concat_tables(tables, promote_options="default") if tables else None
            except pa.ArrowException:  # the stream's columns changed their types in between
                return files
            path = f"{_place(stream)}/{last[-1].last:010d}-{uuid.uuid4().hex[:8]}.rows"
            self._merges.append(path)
            size = self._write_rows(path, [batch for batches, _ in parts for batch in batches], whole)
            lows = [file.low for file in last if file.low is not None]
            highs = [file.high for file in last if file.high is not None]
            merged = RetainedFile(
                path,
                last[0].first,
                last[-1].last,
                sum(file.batches for file in last),
                sum(file.rows for file in last),
                min(lows, default=None),
                max(highs, default=None),
                size,
                False,
            )
            files = (*files[:-MERGED_FILES], merged)
        return files

    # --- reading ---

    def read(self, file: RetainedFile) -> tuple[list[RetainedBatch], pa.Table | None]:
        """The batches of a file, and the rows of all of them, in this order; CheckpointError if it is damaged."""
        if not file.is_sealed:
            table = read_parquet(file.path, self.store.read(file.path))
            batches = _unpacked((table.schema.metadata or {})[_BATCHES])
            return batches, table.replace_schema_metadata() if table.num_columns else None
        batches = _unpacked(self.store.read(f"{file.path}/{_SEALED_BATCHES}"))
        parts = [read_parquet(name, self.store.raw(name)) for name in sealed_files(self.store, file.path)]
        return batches, pa.concat_tables(parts) if parts else None


def _place(stream: str) -> str:
    return f"history/{stream}"


def _packed(batches: Sequence[RetainedBatch]) -> bytes:
    return json.dumps([batch.to_json() for batch in batches]).encode()


def _unpacked(packed: bytes) -> list[RetainedBatch]:
    return [RetainedBatch.from_json(stored) for stored in json.loads(packed)]


def _may_merge(files: Sequence[RetainedFile], span: int) -> bool:
    """Whether files are made one: they hold about the same number of batches, and not too much together."""
    levels = {_level(file.batches) for file in files}
    if len(levels) > 1 or any(file.is_sealed for file in files):
        return False
    times = [time for file in files for time in (file.low, file.high) if time is not None]
    covered = max(times) - min(times) if times else 0
    return covered <= span and sum(file.bytes for file in files) <= LARGEST_MERGE


def _level(batches: int) -> int:
    """How often a file of so many batches was merged.

    >>> [_level(batches) for batches in (1, 15, 16, 255, 256)]
    [0, 0, 1, 1, 2]
    """
    return (batches.bit_length() - 1) // (MERGED_FILES.bit_length() - 1)


def _without_expired(rows: RetainedRows, before: int) -> RetainedRows:
    """The rows without files that are older than a time, and without batches of no rows that no others precede."""
    missed, files = rows.missed, list[RetainedFile]()
    for file in rows.files:
        if file.high is not None and file.high < before:
            missed |= IntervalSet.of((LOWEST, file.high + 1))
        elif file.high is not None or files:
            files.append(file)
    if len(files) == len(rows.files):
        return rows
    return RetainedRows(tuple(files), missed)
