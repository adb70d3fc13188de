"""Results as Parquet files in a directory for each day, which are merged into larger files while the stream runs.

out/day=2024-01-01/part-2-1-1440.parquet      a day that is over: one file
out/day=2024-01-02/part-1-1441-1472.parquet   32 batches, merged
out/day=2024-01-02/part-0-1473-1473.parquet   a batch
out/_unfinished                               files that are being written; readers skip them
out/_merge.json                               a merge that is not finished
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds
from numpy.typing import NDArray
from pyarrow import fs

from transom.backends.base import NO_KEY, Frame, ResultKey, Sink
from transom.backends.secrets import option_texts
from transom.columns.readable_values import readable_table
from transom.columns.record_batches import in_large_tables
from transom.errors import BatchError, SettingError, near_miss
from transom.storage.failpoints import failpoint
from transom.storage.file_store import file_system, sync_paths
from transom.storage.write_errors import writable

log = logging.getLogger("transom")

PARTITION_BY, MERGE_FILES = "partition_by", "merge_files"
DEFAULT_MERGE_FILES = 32
_OPTIONS = ("path", PARTITION_BY, MERGE_FILES)
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)
_DIRECTORY = re.compile(r"\w+=\d{4}-\d{2}-\d{2}")
_UNFINISHED, _MERGE = "_unfinished", "_merge.json"
_ROW_GROUP = 1 << 17  # rows of merged files that are in memory at the same time


@dataclass(frozen=True, order=True)
class DayFile:
    """A file of a day: the results of one batch, or of several batches that were merged `tier` times."""

    tier: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the file.

        >>> DayFile(1, 7, 40).name, DayFile.of("part-1-7-40.parquet"), DayFile.of("mine.parquet")
        ('part-1-7-40.parquet', DayFile(tier=1, first=7, last=40), None)
        """
        return f"part-{self.tier}-{self.first}-{self.last}.parquet"

    @classmethod
    def of(cls, name: str) -> DayFile | None:
        """The file of a name; None if the name is not one of these files."""
        parts = re.fullmatch(r"part-(\d+)-(\d+)-(\d+)\.parquet", name)
        return None if parts is None else cls(*map(int, parts.groups()))


def files_to_merge(files: Sequence[DayFile], limit: int, is_over: bool) -> list[DayFile]:
    """The files of a day to be merged into one, in the order of their batches; none if there are too few.

    Files of one tier are merged when there are `limit` of them, so a row is rewritten as often as the number of batches
    has digits to the base `limit`. When the day is over, all its files are.

    >>> files_to_merge([DayFile(0, 1, 1), DayFile(0, 2, 2), DayFile(1, 3, 4)], 2, is_over=False)
    [DayFile(tier=0, first=1, last=1), DayFile(tier=0, first=2, last=2)]
    >>> files_to_merge([DayFile(0, 9, 9), DayFile(2, 1, 8)], 32, is_over=True)
    [DayFile(tier=2, first=1, last=8), DayFile(tier=0, first=9, last=9)]
    """
    tiers = defaultdict[int, list[DayFile]](list)
    for file in files:
        tiers[file.tier].append(file)
    full = [tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) >= limit]
    chosen = list(files) if is_over and len(files) > 1 else next(iter(full), [])
    return sorted(chosen, key=lambda file: file.first)


def split_by_day(table: pa.Table, key: ResultKey) -> dict[str, pa.Table]:
    """The results of each day, in UTC, by the name of the day's directory.

    A result's time is its window's last microsecond, or its event time if it has no window. Results without either,
    such as those of windows over rows, have the time when they were made.
    """
    days = days_of(table, key)
    return {
        f"{key.day}={_EPOCH + timedelta(day)}": table.filter(pa.array(days == day))
        for day in np.unique(days).tolist()
    }


def days_of(table: pa.Table, key: ResultKey) -> NDArray[np.int64]:
    """The day of each result, counted from 1970."""
    instants = pc.fill_null(_instants(table, key), table[key.made].cast(pa.int64()))
    return instants.to_numpy() // _DAY_US


def _instants(table: pa.Table, key: ResultKey) -> pa.ChunkedArray:
    """The times of results in microseconds; null where neither a window nor an event time says it."""
    if key.extent is None or not all(kinds.is_timestamp(table[name].type) for name in key.extent):
        return pa.chunked_array([pa.nulls(table.num_rows, pa.int64())])
    start, end = (table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for name in key.extent)
    return pc.max_element_wise(start, pc.subtract(end, 1), skip_nulls=False)


def _newest(directories: Iterable[str]) -> str:
    """The newest day of some directories."""
    return max((name.rpartition("=")[2] for name in directories), default="")


def day_sink(format: str, options: Mapping[str, Any]) -> DaySink | None:
    """The sink that some options describe, if they have `partition_by`."""
    given = option_texts(options)
    for name in (PARTITION_BY, MERGE_FILES):
        if name in given and format.lower() != "parquet":
            raise SettingError(f"{name} is for parquet: a sink of {format.lower()} has no such option")
    if PARTITION_BY not in given:
        if MERGE_FILES in given:
            raise SettingError(f"{MERGE_FILES} needs {PARTITION_BY}: day")
        return None
    return DaySink(given)


class DaySink(Sink):
    """Parquet files by day. A replayed batch overwrites its files, and merges take only batches that are committed.

    The engine writes batches one after the other. So when a batch is written, all batches before it are committed, and
    none of them is replayed: their files can be merged. A merge is written ahead (`_merge.json`), and one that was
    interrupted is finished before the next batch is written. So every result is in the files exactly once.
    """

    format = "parquet"

    def __init__(self, options: Mapping[str, str]):
        for name in options:
            if name not in _OPTIONS:
                hint = near_miss(name, _OPTIONS) or f"; it has {', '.join(_OPTIONS)}"
                raise SettingError(f"a sink by day has no option {name}{hint}")
        if options[PARTITION_BY] != "day":
            raise SettingError(f"{PARTITION_BY}: expected day, not {options[PARTITION_BY]}")
        if "path" not in options:
            raise SettingError("a sink of parquet files needs a path")
        self.path: str = options["path"]
        limit = options.get(MERGE_FILES, str(DEFAULT_MERGE_FILES))
        if not limit.isdecimal() or int(limit) < 2:
            raise SettingError(f"{MERGE_FILES}: expected a whole number of at least 2, not {limit}")
        self._limit = int(limit)
        self._fs, self._root = file_system(self.path)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        self._days: dict[str, set[DayFile]] | None = None  # by directory; None: not listed yet
        try:
            names = self._names("")
        except NotADirectoryError:
            raise SettingError(f"a sink needs a directory, and {self.path} is a file") from None
        if any(name.startswith("batch=") for name in names):
            raise SettingError(
                f"{self.path} holds a directory for each batch: give the sink by day another path"
            )

    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
        """Write a batch's results, and merge files of earlier batches."""
        parts = split_by_day(readable_table(frame.to_table()), key)
        try:
            with writable(self.path):
                days = self._opened()
                newest = _newest(days)
                self._check_repeated(days, batch_id)
                self._place(days, parts, DayFile(0, batch_id, batch_id))
                began = _newest(days) > newest  # only then days end: a straggler rewrites no large file
                self._merge_files(list(days) if began else list(parts), batch_id, began)
        except BaseException:
            self._days = None  # list the files again
            raise

    def _check_repeated(self, days: Mapping[str, Iterable[DayFile]], batch_id: int) -> None:
        """Refuse a batch that is part of a merged file already: its results would be there twice."""
        last = max((file.last for files in days.values() for file in files if file.tier), default=-1)
        if last >= batch_id:
            raise BatchError(
                f"{self.path} has merged results of batches up to {last}, and batch {batch_id} comes after them: "
                "the checkpoint is older than the files; write to another path"
            )

    def _place(self, days: dict[str, set[DayFile]], parts: Mapping[str, pa.Table], file: DayFile) -> None:
        """Write a batch's file of each day; those of an earlier attempt are replaced or deleted."""
        failpoint("sink", "create")
        unfinished = {directory: self._write([part], part.schema) for directory, part in parts.items()}
        failpoint("sink", "rename")
        outdated = [
            directory for directory, files in days.items() if file in files and directory not in parts
        ]
        with self.guarded():
            for directory in outdated:
                self._fs.delete_file(self._at(directory, file.name))
            for directory, name in unfinished.items():
                self._fs.create_dir(self._at(directory))
                self._fs.move(self._at(_UNFINISHED, name), self._at(directory, file.name))
        failpoint("sink", "renamed")
        for directory in outdated:
            days[directory].discard(file)
        for directory in parts:
            days.setdefault(directory, set()).add(file)
        self._sync(
            *(self._at(directory, file.name) for directory in parts), *map(self._at, parts), self._root
        )

    # --- merges ---

    def _merge_files(self, directories: Sequence[str], batch_id: int, began: bool) -> None:
        """Merge files of committed batches. Results are written already: if a merge fails, the batch does not."""
        days = self._opened()
        newest = _newest(days)
        for directory in directories:
            committed = [file for file in days[directory] if file.last < batch_id]
            chosen = files_to_merge(committed, self._limit, began and _newest([directory]) < newest)
            for schema, files in self._by_schema(days, directory, chosen):
                self._merge(days, directory, schema, files)

    def _by_schema(
        self, days: dict[str, set[DayFile]], directory: str, files: Iterable[DayFile]
    ) -> list[tuple[pa.Schema, list[DayFile]]]:
        """Files with the same columns. Some have no file to merge with: the query was edited, or they are damaged."""
        groups: list[tuple[pa.Schema, list[DayFile]]] = []
        for file in files:
            place = self._at(directory, file.name)
            try:
                with self._fs.open_input_file(place) as source:
                    schema = pq.read_schema(source)
            except FileNotFoundError:  # a user has deleted it
                days[directory].discard(file)
                continue
            except (OSError, pa.ArrowException) as error:
                log.warning("%s can't be merged with others: %s", place, error)
                continue
            group = next((group for known, group in groups if known.equals(schema)), None)
            if group is None:
                groups.append((schema, [file]))
            else:
                group.append(file)
        return [(schema, group) for schema, group in groups if len(group) > 1]

    def _merge(
        self, days: dict[str, set[DayFile]], directory: str, schema: pa.Schema, files: Sequence[DayFile]
    ) -> None:
        merged = DayFile(
            max(file.tier for file in files) + 1,
            min(file.first for file in files),
            max(file.last for file in files),
        )
        failpoint("merge", "create")
        try:
            unfinished = self._write(self._rows_of(directory, files), schema)
        except (OSError, pa.ArrowException) as error:
            log.warning("files of %s can't be merged: %s", self._at(directory), error)
            return
        plan = {
            "directory": directory,
            "file": merged.name,
            "unfinished": unfinished,
            "replaced": [file.name for file in files],
        }
        with self.guarded():
            self._write_plan(plan)
            failpoint("merge", "begin")
            self._finish_merge(plan)
        days[directory] = (days[directory] - set(files)) | {merged}

    def _write_plan(self, plan: Mapping[str, Any]) -> None:
        place = self._at(_UNFINISHED, uuid.uuid4().hex)
        with self._fs.open_output_stream(place) as file:
            file.write(json.dumps(plan).encode())
        self._sync(place, self._at(_UNFINISHED))
        self._fs.move(place, self._at(_MERGE))
        self._sync(self._root)

    def _finish_merge(self, plan: Mapping[str, Any]) -> None:
        """Let a merged file take the place of others; each step may have been done before."""
        directory, unfinished = plan["directory"], self._at(_UNFINISHED, plan["unfinished"])
        for name in plan["replaced"]:
            with suppress(FileNotFoundError):
                self._fs.delete_file(self._at(directory, name))
        failpoint("merge", "rename")
        if self._exists(unfinished):
            self._fs.move(unfinished, self._at(directory, plan["file"]))
        self._sync(self._at(directory))
        failpoint("merge", "renamed")
        self._fs.delete_file(self._at(_MERGE))

    # --- files ---

    def _opened(self) -> dict[str, set[DayFile]]:
        """The files of each day. What a killed process has left is finished or deleted first."""
        if self._days is None:
            with self.guarded():
                if self._exists(self._at(_MERGE)):
                    with self._fs.open_input_file(self._at(_MERGE)) as file:
                        plan = json.loads(file.read())
                    self._finish_merge(plan)
                if self._exists(self._at(_UNFINISHED)):
                    self._fs.delete_dir(self._at(_UNFINISHED))
                self._fs.create_dir(self._at(_UNFINISHED))
            directories = [name for name in self._names("") if _DIRECTORY.fullmatch(name)]
            self._days = {
                directory: {file for name in self._names(directory) if (file := DayFile.of(name)) is not None}
                for directory in directories
            }
        return self._days

    def _write(self, tables: Iterable[pa.Table], schema: pa.Schema) -> str:
        """Write rows under a name that readers skip."""
        name = uuid.uuid4().hex
        place = self._at(_UNFINISHED, name)
        try:
            with self._fs.open_output_stream(place) as file, pq.ParquetWriter(file, schema) as writer:
                for table in tables:
                    writer.write_table(table)
        except BaseException:
            with suppress(OSError):
                self._fs.delete_file(place)
            raise
        self._sync(place)
        return name

    def _rows_of(self, directory: str, files: Iterable[DayFile]) -> Iterator[pa.Table]:
        """The rows of files in order, in pieces of the size of a row group."""
        return in_large_tables(self._batches_of(directory, files), _ROW_GROUP)

    def _batches_of(self, directory: str, files: Iterable[DayFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with self._fs.open_input_file(self._at(directory, file.name)) as source:
                yield from pq.ParquetFile(source).iter_batches()

    def _names(self, directory: str) -> list[str]:
        selector = fs.FileSelector(self._at(directory) if directory else self._root, allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def _exists(self, place: str) -> bool:
        return self._fs.get_file_info(place).type != fs.FileType.NotFound

    def _at(self, *names: str) -> str:
        return "/".join((self._root, *names))

    def _sync(self, *places: str) -> None:
        if self.sync and self._is_local:
            sync_paths(places)
