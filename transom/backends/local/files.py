"""Files of a local path: Parquet by Arrow; JSON and CSV row by row, with rows that can't be parsed marked."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transom.backends.arrow_types import plain_table
from transom.backends.base import InputFiles
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of, is_tab_separated
from transom.backends.hidden_columns import CORRUPT
from transom.backends.local.frame import LocalFrame, local_path
from transom.backends.unread_files import unread_files
from transom.errors import SettingError, SQLError
from transom.sql.catalog import Scalars
from transom.sql.interpreter.casts import cast

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


class LocalFiles(InputFiles):
    """The files of a path of this machine."""

    def __init__(
        self,
        path: str,
        format: str | None,
        schema: Mapping[str, pa.DataType] | None,
        options: Mapping[str, Any],
        files_per_batch: int,
        scalars: Scalars,
    ):
        if files_per_batch < 1:
            raise SettingError(f"files_per_batch is at least 1, not {files_per_batch}")
        self.path, self.files_per_batch, self.scalars = path, files_per_batch, scalars
        files = list_local_files(path)
        if not files and (format is None or schema is None):
            raise SettingError(f"no files in {path}: give their format and schema to wait for the first")
        self.format = format.lower() if format else format_of(files)
        if self.format not in ("json", "csv", "parquet"):
            raise SettingError(f"the local backend reads json, csv and parquet files, not {self.format}")
        given = {name.lower(): str(value) for name, value in options.items()}
        self.timestamp_format = given.get("timestampformat")
        self._separator = given.get("sep", "\t" if files and is_tab_separated(files) else ",")
        self._has_header = given.get("header", "true").lower() == "true"
        self.is_text = self.format in ("json", "csv")
        self.columns = dict(schema) if schema is not None else self._inferred(files[:FILES_TO_INFER_FROM])

    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        new = list_local_files(self.path, frozenset(done))
        return [new[i : i + self.files_per_batch] for i in range(0, len(new), self.files_per_batch)]

    def read(self, files: Sequence[str]) -> LocalFrame:
        if not self.is_text:
            tables = [plain_table(pq.read_table(local_path(file))) for file in files]
            whole = pa.concat_tables(tables, promote_options="default")
            columns = [
                whole[name].cast(kind) if name in whole.column_names else pa.nulls(whole.num_rows, kind)
                for name, kind in self.columns.items()
            ]
            return LocalFrame(pa.table(columns, names=list(self.columns)), self.scalars)
        records = [record for file in files for record in self._records(file)]
        arrays = [
            pa.array([record.get(name) for record in records], kind)
            for name, kind in [*self.columns.items(), (CORRUPT, pa.string())]
        ]
        return LocalFrame(pa.table(arrays, names=[*self.columns, CORRUPT]), self.scalars)

    def _records(self, file: str) -> Iterator[dict[str, Any]]:
        """Each row of a file by column; a row that can't be parsed has its text in `CORRUPT`."""
        for text, values in self._texts(file):
            record: dict[str, Any] = {CORRUPT: text if values is None else None}
            for name, kind in self.columns.items() if values is not None else ():
                value = (values or {}).get(name.casefold())
                try:
                    record[name] = _typed(value, kind)
                except (ValueError, TypeError, SQLError):
                    record[name], record[CORRUPT] = None, text
            yield record

    def _texts(self, file: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
        with _opened(file) as lines:
            if self.format == "json":
                for line in lines:
                    if text := line.rstrip("\r\n"):
                        yield text, _json_object(text)
                return
            rows = csv.reader(lines, delimiter=self._separator)
            names = next(rows, []) if self._has_header else list(self.columns)
            for row in rows:
                text = self._separator.join(row)
                if not row:
                    continue
                is_whole = len(row) == len(names)
                values = {name.casefold(): value or None for name, value in zip(names, row, strict=False)}
                yield text, values if is_whole else None

    def _inferred(self, files: Sequence[str]) -> dict[str, pa.DataType]:
        if not self.is_text:
            schema = plain_table(pq.read_table(local_path(files[0])).slice(0, 0)).schema
            return dict(zip(schema.names, schema.types, strict=True))
        kinds: dict[str, pa.DataType] = {}
        spelled: dict[str, str] = {}
        for file in files:
            if self.format == "csv" and self._has_header:
                with _opened(file) as lines:
                    for name in next(csv.reader(lines, delimiter=self._separator), []):
                        spelled.setdefault(name.casefold(), name)
            for text, values in self._texts(file):
                if self.format == "json":
                    values = _json_object(text, fold=False)
                for name, value in (values or {}).items():
                    folded = name.casefold()
                    spelled.setdefault(folded, name)
                    kinds[folded] = _wider(kinds.get(folded), _kind_of(value, self.format == "csv"))
        columns = {spelled[name]: kinds.get(name) or pa.string() for name in spelled}
        if not columns:
            raise SettingError(f"no columns found in {self.path}: are its files {self.format}?")
        if self.format == "json":
            columns = dict(sorted(columns.items()))  # as Spark orders the fields of JSON objects
        return {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in columns.items()}


def list_local_files(path: str, done: Collection[str] = ()) -> list[str]:
    """The visible files with something in them that are not done, oldest first, then by name."""
    if "://" in path and not path.startswith("file://"):
        raise SettingError(f"the local backend reads files of this machine, not {path}")
    return unread_files(local_path(path).expanduser().absolute(), done)


def _opened(file: str) -> io.TextIOBase:
    opener = _OPENERS.get(os.path.splitext(file)[1], open)
    return opener(local_path(file), "rt", encoding="utf-8", newline="")


def _json_object(text: str, fold: bool = True) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return {name.casefold(): part for name, part in value.items()} if fold else value


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A value of a file in its column's type; raises where it does not fit."""
    if value is None or pa.types.is_nested(kind):
        return value
    if isinstance(value, str) and not pa.types.is_string(kind):
        typed = cast(value, pa.string(), kind)
        if typed is None:
            raise ValueError(f"not {kind}: {value!r}")
        return typed
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value)
    return pa.scalar(value, kind).as_py()


def _kind_of(value: Any, is_text: bool) -> pa.DataType:
    """The type that a value of a file suggests."""
    if value is None:
        return pa.null()
    if not is_text and not isinstance(value, str):
        return pa.array([value]).type
    for kind, parse in (
        (pa.int64(), int),
        (pa.float64(), float),
        (pa.bool_(), _boolean),
        (pa.date32(), date.fromisoformat),
        (pa.timestamp("us", tz="UTC"), datetime.fromisoformat),
    ):
        if is_text or pa.types.is_timestamp(kind):
            try:
                parse(value)
            except ValueError:
                continue
            return kind
    return pa.string()


def _boolean(value: str) -> bool:
    if value.casefold() not in ("true", "false"):
        raise ValueError(value)
    return value.casefold() == "true"


def _wider(left: pa.DataType | None, right: pa.DataType) -> pa.DataType:
    """The type that holds the values of two."""
    if left is None or pa.types.is_null(left) or left == right:
        return right
    if pa.types.is_null(right):
        return left
    if {left, right} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if {left, right} == {pa.date32(), pa.timestamp("us", tz="UTC")}:
        return pa.timestamp("us", tz="UTC")
    return pa.string()
