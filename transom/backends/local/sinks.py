"""Results written by this process: Parquet, JSON or CSV files, a directory per batch, or the console."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from transom.backends.arrow_frame import local_path
from transom.backends.base import NO_KEY, Frame, ResultKey, Sink
from transom.columns.readable_values import readable_table
from transom.durations import format_instant
from transom.errors import BackendLimitError, SettingError, near_miss
from transom.storage.failpoints import failpoint
from transom.storage.file_store import sync_paths
from transom.storage.write_errors import writable

_UNFINISHED = ".unfinished-"
SINK_FORMATS = ("parquet", "json", "csv", "console")
_TEXT_FORMATS = ("json", "csv")
_COMPRESSIONS = {
    "none": "",
    "uncompressed": "",
    "gzip": ".gz",
    "bzip2": ".bz2",
}  # Spark's names, and endings of files


class LocalSink(Sink):
    """An output in one format; a replayed batch overwrites its directory: exactly once."""

    def __init__(self, format: str, options: Mapping[str, Any]):
        self.format = format.lower()
        if self.format not in SINK_FORMATS:
            formats = (*SINK_FORMATS, "delta")  # which another class writes
            raise BackendLimitError(
                f"the local backend writes {', '.join(formats)}: it has no writer for {self.format}"
                f"{near_miss(self.format, formats)}"
            )
        path = options.get("path")
        if self.format != "console" and path is None:
            raise SettingError(f"a sink of {self.format} files needs a path")
        self.path = None if self.format == "console" else str(path)
        given = {name.lower(): str(value) for name, value in options.items()}
        self._has_header = given.get("header", "false").lower() == "true"
        self._separator = given.get("sep", ",")
        self._ignores_nulls = given.get("ignorenullfields", "true").lower() == "true"
        self._compression = given.get("compression", "none").lower()
        if self.format in _TEXT_FORMATS and self._compression not in _COMPRESSIONS:
            raise BackendLimitError(
                f"the local backend compresses {self.format} files with {', '.join(_COMPRESSIONS)}: it has no "
                f"{self._compression}{near_miss(self._compression, _COMPRESSIONS)}"
            )

    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
        table = readable_table(frame.to_table())
        if self.path is None:
            with self.guarded():
                pass
            for row in table.to_pylist():
                print(", ".join(f"{name} {_plain(value)}" for name, value in row.items()))
            return
        if "batch" in table.column_names:  # the directory's name tells it
            table = table.drop_columns(["batch"])
        directory = local_path(self.path) / f"batch={batch_id}"
        unfinished = directory / f"{_UNFINISHED}{uuid.uuid4().hex}"  # hidden from readers
        ending = _COMPRESSIONS[self._compression] if self.format in _TEXT_FORMATS else ""
        target = directory / f"part.{self.format}{ending}"
        try:
            with writable(str(target)):
                failpoint("sink", "create")
                directory.mkdir(parents=True, exist_ok=True)
                self._write(table, unfinished)
                if self.sync:
                    sync_paths([str(unfinished)])
                failpoint("sink", "rename")
                with self.guarded():
                    unfinished.replace(target)
                    for left in directory.glob(f"{_UNFINISHED}*"):  # by an attempt that was killed
                        left.unlink()
                    for other in directory.glob("part.*"):  # by an attempt with another compression
                        if other != target:
                            other.unlink()
                failpoint("sink", "renamed")
            if self.sync:
                sync_paths([str(directory), str(directory.parent)])
        finally:
            unfinished.unlink(missing_ok=True)

    def _write(self, table: pa.Table, file: Path) -> None:
        if self.format == "parquet":
            pq.write_table(table, file)
        else:
            with _opened(file, self._compression) as target:
                if self.format == "json":
                    _write_json(table, target, self._ignores_nulls)
                else:
                    _write_csv(table, target, self._has_header, self._separator)


def _opened(file: Path, compression: str) -> TextIO:
    """A new text file, compressed or not."""
    if compression == "gzip":
        return cast(TextIO, gzip.open(file, "wt", encoding="utf-8", newline=""))
    if compression == "bzip2":
        return cast(TextIO, bz2.open(file, "wt", encoding="utf-8", newline=""))
    return file.open("w", encoding="utf-8", newline="")


def _write_json(table: pa.Table, target: TextIO, ignores_nulls: bool) -> None:
    """A JSON object for each row; without nulls, as Spark writes it, unless `ignoreNullFields` is false."""
    for row in table.to_pylist(maps_as_pydicts="lossy"):  # the names in a map are different
        plain = {name: _plain(value) for name, value in row.items() if value is not None or not ignores_nulls}
        target.write(json.dumps(plain, separators=(",", ":")) + "\n")


def _write_csv(table: pa.Table, target: TextIO, has_header: bool, separator: str) -> None:
    rows = csv.writer(target, delimiter=separator)
    if has_header:
        rows.writerow(table.column_names)
    for row in table.to_pylist():
        rows.writerow([_plain(value) for value in row.values()])


def _plain(value: Any) -> Any:
    """A value as files hold it: instants in ISO form, other types that JSON lacks by their text."""
    if hasattr(value, "tzinfo"):
        return format_instant(pa.scalar(value, pa.timestamp("us")).value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
