"""The retained rows of streams under the checkpoint, for queries that are registered later and ask for the past.

history/bids/0000000012.arrow         the accepted rows of a batch, and what the batch did to its stream
history/bids/0000000255-5c1f03ab.rows those of many batches, or of a large one, as Parquet
history/bids/0000000256-77a0c4d2/     Parquet files that the backend wrote, and their seal

A batch that runs again overwrites its file. The commit record lists the files that count. When sixteen files of
about the same number of batches follow each other, they are made one, so that a row is written again only a few
times. An engine that has nothing else to do merges ahead: the next commit lists the file. A batch merges only what has
waited for long.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from transom.backends.base import Frame
from transom.columns.types import Columns
from transom.elements import Clock
from transom.errors import CheckpointError
from transom.runtime.row_outputs import parquet_schema, read_parquet
from transom.state.retained_rows import RetainedBatch, RetainedFile, RetainedRows
from transom.storage.file_store import Store, is_of_batches_to, packed_table
from transom.storage.sealed_directory import seal, sealed_files, write_frame
from transom.windows.intervals import LOWEST, IntervalSet

log = logging.getLogger("transom")

MERGED_FILES = 16  # of about the same number of batches
NEWEST_FILES = 128  # among which files to merge are looked for: older ones were merged, or can't be
LARGEST_MERGE = 1 << 24  # bytes; more are not merged, because that happens on the driver
# A merged file covers at most this part of the time that is retained, so that it can be deleted.
PARTS_OF_SPAN = 8
# The endings of files: a batch is written fast, and many are small.
BATCH_ENDING, PARQUET_ENDING = ".arrow", ".rows"
_BATCHES = b"transom.batches"  # the key of the batches in the metadata of a file
_SEALED_BATCHES = "_batches.json"  # the same beside files of the backend


class RowHistory:
    """Writes the accepted rows of batches, and reads back those of committed batches."""

    def __init__(self, store: Store, missed: Callable[[Clock], IntervalSet]):
        self.store = store
        # The times of accepted rows of a clock's stream so far, of a stream that is not listed.
        self.missed = missed
        self.committed: dict[str, RetainedRows] = {}  # by stream
        self._written: dict[str, RetainedFile] = {}  # by stream, of the batch that is being processed
        self._missed: dict[str, IntervalSet] = {}  # by stream, before the first batch that is retained
        self._rows: dict[str, pa.Table | str] = {}  # by stream, of the attempt: rows, or a sealed directory
        self._bytes = 0  # of that directory
        # By path, to be merged soon.
        self._recent: dict[str, tuple[list[RetainedBatch], pa.Table | None]] = {}
        self._merges: list[str] = []  # files that the batch being committed made of others
        # Files that can't be read, or have columns of other types than those after.
        self._apart: set[str] = set()
        self._ahead: dict[str, tuple[tuple[RetainedFile, ...], RetainedFile]] = {}  # by stream: files, merged

    def resume(self, committed: Mapping[str, RetainedRows]) -> None:
        """Continue with the files that a commit lists."""
        self.committed = dict(committed)

    def retained(self, clock: Clock) -> RetainedRows:
        """The committed files of a stream, given its clock; what came before its first batch is missed."""
        listed = self.committed.get(clock.stream)
        return RetainedRows(missed=self.missed(clock)) if listed is None else listed

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
            is_small = taken is None or taken.nbytes * MERGED_FILES <= LARGEST_MERGE
            path = f"{_place(stream)}/{batch.batch_id:010d}{BATCH_ENDING if is_small else PARQUET_ENDING}"
            size = self._write_rows(path, [batch], taken)
            if is_small:
                self._recent[path] = [batch], taken
        number = batch.batch_id
        is_sealed = isinstance(taken, str)
        self._written[stream] = RetainedFile(path, number, number, 1, batch.rows, low, high, size, is_sealed)
        if stream not in self.committed:
            self._missed[stream] = missed

    def _write_rows(self, path: str, batches: Sequence[RetainedBatch], rows: pa.Table | None) -> int:
        table = pa.table({}) if rows is None else rows
        table = table.replace_schema_metadata({_BATCHES: _packed(batches)})
        packed = packed_table(table, None) if path.endswith(BATCH_ENDING) else _parquet(table)
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
                listed[stream] = replace(rows, files=(*rows.files, file))
        for stream, rows in listed.items():
            files = self._merged(stream, self._with_ahead(stream, rows.files), spans[stream] // PARTS_OF_SPAN)
            listed[stream] = replace(rows, files=files) if files != rows.files else rows
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
        before += [merged.path for _, merged in self._ahead.values()]
        self._ahead = {
            stream: (files, merged)
            for stream, (files, merged) in self._ahead.items()
            if stream in listed and files[0] in listed[stream].files
        }
        kept |= {merged.path for _, merged in self._ahead.values()}
        self._apart &= kept
        self._recent = {path: rows for path, rows in self._recent.items() if path in kept}
        return [path for path in before if path not in kept]

    def strays(self, batch_id: int) -> Iterator[str]:
        """Files of batches up to one that no commit lists: attempts that failed left them."""
        listed = {file.path for rows in self.committed.values() for file in rows.files}
        for stream in self.store.directories("history"):
            for name in self.store.list(_place(stream)):
                path = f"{_place(stream)}/{name}"
                if is_of_batches_to(batch_id, name) and path not in listed:
                    yield path

    # --- merging ---

    def merge_ahead(self, spans: Mapping[str, int]) -> bool:
        """Make one file of some; the next commit lists it. Whether there were some.

        `spans` are the lengths of time that streams retain.
        """
        for stream, span in spans.items():
            if stream in self.committed and stream not in self._ahead:
                files = self.committed[stream].files
                while (at := _first_to_merge(files, span // PARTS_OF_SPAN, self._apart)) is not None:
                    last = files[at : at + MERGED_FILES]
                    merged = self._merged_file(stream, last)
                    if merged is not None:
                        self._ahead[stream] = last, merged
                        return True
        return False

    def waits_for_merge(self, stream: str, span: int) -> set[str]:
        """The files of single batches of a stream that were merged ahead, or will be if more like them follow.

        `span` is the length of time that the stream retains.
        """
        ahead, _ = self._ahead.get(stream, ((), None))
        newest = [
            file
            for file in self.committed[stream].files[-MERGED_FILES:]
            if file.path.endswith(BATCH_ENDING) and file.path not in self._apart
        ]
        as_many = MERGED_FILES / max(len(newest), 1)
        if _covered(newest) * as_many > span // PARTS_OF_SPAN:
            newest = []
        return {file.path for file in (*ahead, *newest)}

    def _with_ahead(self, stream: str, files: tuple[RetainedFile, ...]) -> tuple[RetainedFile, ...]:
        """The files, with the one that was made ahead in the place of those that it was made of."""
        parts, merged = self._ahead.get(stream, ((), None))
        if merged is None or parts[0] not in files:
            return files
        at = files.index(parts[0])
        return (*files[:at], merged, *files[at + len(parts) :])

    def _merged(self, stream: str, files: tuple[RetainedFile, ...], span: int) -> tuple[RetainedFile, ...]:
        """The files; those that have waited until there are twice as many are made one."""
        while (at := _first_to_merge(files, span, self._apart, is_patient=True)) is not None:
            merged = self._merged_file(stream, files[at : at + MERGED_FILES])
            if merged is None:
                continue
            self._merges.append(merged.path)
            files = (*files[:at], merged, *files[at + MERGED_FILES :])
        return files

    def _merged_file(self, stream: str, files: Sequence[RetainedFile]) -> RetainedFile | None:
        """One file of some; None if one can't be read, or the stream's columns changed their types in between."""
        parts = []
        for file in files:
            try:
                parts.append(self._recent.get(file.path) or self.read(file))
            except CheckpointError as error:
                self._apart.add(file.path)
                log.warning("files of retained rows are not merged: %s", error)
                return None
        tables = [table for _, table in parts if table is not None and table.num_columns]
        try:
            whole = pa.concat_tables(tables, promote_options="default") if tables else None
        except pa.ArrowException:
            self._apart.add(files[0].path)
            return None
        path = f"{_place(stream)}/{files[-1].last:010d}-{uuid.uuid4().hex[:8]}{PARQUET_ENDING}"
        size = self._write_rows(path, [batch for batches, _ in parts for batch in batches], whole)
        lows = [file.low for file in files if file.low is not None]
        highs = [file.high for file in files if file.high is not None]
        return RetainedFile(
            path,
            files[0].first,
            files[-1].last,
            sum(file.batches for file in files),
            sum(file.rows for file in files),
            min(lows, default=None),
            max(highs, default=None),
            size,
            False,
        )

    # --- reading ---

    def batches(self, file: RetainedFile) -> list[RetainedBatch]:
        """The batches of a file, without their rows."""
        if file.is_sealed:
            return _unpacked(self.store.read(f"{file.path}/{_SEALED_BATCHES}"))
        if file.path.endswith(BATCH_ENDING):
            with self.store.batches(file.path) as reader:
                return _unpacked(reader.schema.metadata[_BATCHES])
        schema = parquet_schema(file.path, self.store.read(file.path))
        return _unpacked((schema.metadata or {})[_BATCHES])

    def read(
        self, file: RetainedFile, columns: Sequence[str] | None = None
    ) -> tuple[list[RetainedBatch], pa.Table | None]:
        """The batches of a file, and the rows of all of them, in this order; CheckpointError if it is damaged.

        With `columns`, only these are read; those that the file does not have are left out.
        """
        if not file.is_sealed:
            if file.path.endswith(BATCH_ENDING):
                table = self.store.read_table(file.path)
                if columns is not None:
                    table = table.select([name for name in columns if name in table.column_names])
            else:
                table = read_parquet(file.path, self.store.read(file.path), columns)
            batches = _unpacked((table.schema.metadata or {})[_BATCHES])
            return batches, table.replace_schema_metadata() if table.num_columns else None
        batches = _unpacked(self.store.read(f"{file.path}/{_SEALED_BATCHES}"))
        names = sealed_files(self.store, file.path)
        parts = [read_parquet(name, self.store.raw(name), columns) for name in names]
        return batches, pa.concat_tables(parts) if parts else None


def _parquet(table: pa.Table) -> pa.Buffer:
    """Rows as Parquet.

    Differences of whole numbers and times, and dictionaries of texts, with lz4 are smaller than zstd alone, and take
    half the time.
    """
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    numbers = {name: "DELTA_BINARY_PACKED" for name, kind in kinds.items() if _is_whole(kind)}
    texts = [name for name, kind in kinds.items() if pa.types.is_string(kind)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="lz4",
        write_statistics=False,
        use_dictionary=texts or False,
        column_encoding=numbers or None,
    )
    return sink.getvalue()


def _is_whole(kind: pa.DataType) -> bool:
    """Whether Parquet stores values of a type as whole numbers."""
    is_time = pa.types.is_timestamp(kind) and kind.unit in ("us", "ms")
    return is_time or pa.types.is_date32(kind) or pa.types.is_int32(kind) or pa.types.is_int64(kind)


def _place(stream: str) -> str:
    return f"history/{stream}"


def _packed(batches: Sequence[RetainedBatch]) -> bytes:
    return json.dumps([batch.to_json() for batch in batches]).encode()


def _unpacked(packed: bytes) -> list[RetainedBatch]:
    return [RetainedBatch.from_json(stored) for stored in json.loads(packed)]


def _first_to_merge(
    files: Sequence[RetainedFile], span: int, apart: Collection[str], is_patient: bool = False
) -> int | None:
    """Where the first files begin that can be made one; None if there are none.

    Files in `apart` stay as they are. A patient search finds files only if just as many of the same number of batches
    follow them: each batch looks at one place more.
    """
    start = max(0, len(files) - NEWEST_FILES)
    levels = [-1 if file.path in apart else _level(file.batches) for file in files[start:]]
    wanted = 2 * MERGED_FILES if is_patient else MERGED_FILES
    run = 0  # files of the same number of batches up to here
    for place, level in enumerate(levels):
        run = run + 1 if place and level == levels[place - 1] else 1
        is_last = place + 1 == len(levels) or levels[place + 1] != level
        first = start + place + 1 - wanted
        if level < 0 or run < wanted or (is_patient and not is_last):
            continue
        if _may_merge(files[first : first + MERGED_FILES], span):
            return first
    return None


def _may_merge(files: Sequence[RetainedFile], span: int) -> bool:
    """Whether files are made one: they hold about the same number of batches, and not too much together."""
    levels = {_level(file.batches) for file in files}
    if len(levels) > 1 or any(file.is_sealed for file in files):
        return False
    return _covered(files) <= span and sum(file.bytes for file in files) <= LARGEST_MERGE


def _covered(files: Sequence[RetainedFile]) -> int:
    """How much time lies between the oldest and the newest row of some files."""
    times = [time for file in files for time in (file.low, file.high) if time is not None]
    return max(times) - min(times) if times else 0


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
