"""Files of a local path: Parquet and plain text files by Arrow, other JSON and CSV row by row.

Rows that can't be parsed are marked.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from transom.backends.arrow_frame import LOCAL_FILES, ArrowFrame, local_path
from transom.backends.arrow_types import plain, plain_table
from transom.backends.base import FileVersion, InputFiles
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of, is_tab_separated
from transom.backends.file_problems import FileProblem, UnreadableFiles, unreadable
from transom.backends.hidden_columns import CORRUPT
from transom.backends.input_files import (
    DECOMPRESSORS,
    READ_ERRORS,
    FileCheck,
    columns_by_name,
    file_version,
    mismatch,
    unread_files,
    unreadable_reason,
)
from transom.backends.plain_files import PlainText, plain_columns, plain_csv, plain_json_lines
from transom.columns.readable_values import valid_text
from transom.errors import BackendLimitError, SettingError, SQLError
from transom.sql.catalog import Scalars
from transom.sql.interpreter.casts import cast

USUAL_OPTIONS = frozenset({"sep", "header"})  # options of text files that plain files may have
MAX_DECIMAL_DIGITS = 38
LONGEST_FIELD = 1 << 30  # of CSV; the parser's own limit is 128 KB


class LocalFiles(InputFiles):
    """The files of a path of this machine."""

    versions_per_poll = 100

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
            raise BackendLimitError(f"the local backend reads json, csv and parquet files, not {self.format}")
        given = {name.lower(): str(value) for name, value in options.items()}
        self.timestamp_format = given.get("timestampformat")
        self._separator = given.get("sep", "\t" if files and is_tab_separated(files) else ",")
        self._has_header = given.get("header", "true").lower() == "true"
        self.is_text = self.format in ("json", "csv")
        self._has_usual_options = self.is_text and given.keys() <= USUAL_OPTIONS
        self._is_usual = self._has_usual_options  # and the columns are those that Spark infers
        self._plain_files: dict[str, tuple[FileVersion | None, PlainText | None]] = {}  # that were looked at
        self.columns = dict(schema) if schema is not None else self._inferred(files[:FILES_TO_INFER_FROM])
        self._check = FileCheck(self.format, self.columns, _opened_bytes, self._separator, self._has_header)

    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        new = list_local_files(self.path, frozenset(done))
        return [new[i : i + self.files_per_batch] for i in range(0, len(new), self.files_per_batch)]

    def check(self, files: Sequence[str]) -> list[FileProblem]:
        return [problem for file in files for problem in self._check.check(file).problems]

    def unreadable_of(self, files: Sequence[str], error: Exception) -> list[FileProblem]:
        return error.problems if isinstance(error, UnreadableFiles) else []

    def version(self, file: str) -> FileVersion | None:
        return file_version(file.removeprefix(LOCAL_FILES))

    def read(self, files: Sequence[str]) -> ArrowFrame:
        columns = {**self.columns, CORRUPT: pa.string()} if self.is_text else dict(self.columns)
        tables, problems = [pa.schema(list(columns.items())).empty_table()], []
        for file in files:
            try:
                tables.append(self._text(file, columns) if self.is_text else self._parquet(file))
            except UnreadableFiles as error:
                problems += error.problems
            except READ_ERRORS as error:
                is_gone = isinstance(error, FileNotFoundError)
                reason = unreadable_reason(error)
                if reason is None or (is_gone and not local_path(file).parent.is_dir()):
                    raise
                problems.append(unreadable(file, reason))
        if problems:
            raise UnreadableFiles(problems)
        return ArrowFrame(pa.concat_tables(tables), self.scalars)

    def _parquet(self, file: str) -> pa.Table:
        """The rows of a file in the types of the stream; columns that it does not have are null."""
        with pq.ParquetFile(local_path(file)) as parquet:
            spelled = columns_by_name(parquet.schema_arrow.names)
            names = {name: spelled(name) for name in self.columns}
            table = parquet.read(columns=[name for name in names.values() if name is not None])
        columns = []
        for name, kind in self.columns.items():
            if (own := names[name]) is None:
                columns.append(pa.nulls(table.num_rows, kind))
                continue
            have = table[own].type
            try:
                column = table[own].cast(plain(have), safe=False)
                columns.append(valid_text(column if column.type == kind else column.cast(kind)))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise UnreadableFiles([unreadable(file, mismatch(own, have, kind), own)]) from None
        return pa.table(columns, names=list(self.columns))

    def unusual_file(self) -> str | None:
        """The first file that Spark may read in another way than this backend; None if there is none."""
        if not self.is_text:
            return None
        for file in list_local_files(self.path):
            plain = self._plain(file) if self._is_usual else None
            if plain is None or plain.table(self.columns) is None:
                return file
        return None

    def _plain(self, file: str) -> PlainText | None:
        """The content of a text file if it is plain."""
        if not self._has_usual_options:
            return None
        version = self.version(file)
        if file in self._plain_files and self._plain_files[file][0] == version:
            return self._plain_files[file][1]
        with DECOMPRESSORS.get(os.path.splitext(file)[1], open)(local_path(file), "rb") as opened:
            data = opened.read()
        names = None if self._has_header else list(self.columns)
        plain: PlainText | None = (
            plain_json_lines(data) if self.format == "json" else plain_csv(data, self._separator, names)
        )
        self._plain_files[file] = version, plain
        return plain

    def _text(self, file: str, columns: Mapping[str, pa.DataType]) -> pa.Table:
        plain = self._plain(file)
        self._plain_files.pop(file, None)
        if plain is not None and (table := plain.table(self.columns)) is not None:
            return table.append_column(CORRUPT, pa.nulls(table.num_rows, pa.string()))
        records = list(self._records(file))
        arrays = [pa.array([record.get(name) for record in records], kind) for name, kind in columns.items()]
        return pa.table(arrays, names=list(columns))

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
                        # As Spark does, take a row with bytes that are no text for one that can't be parsed.
                        if (shown := _shown(text)) is None:
                            yield text, _json_object(text)
                        else:
                            yield shown, None
                return
            csv.field_size_limit(LONGEST_FIELD)
            rows = csv.reader(lines, delimiter=self._separator)
            names = next(rows, []) if self._has_header else list(self.columns)
            for row in rows:
                row = [value if (shown := _shown(value)) is None else shown for value in row]
                text = self._separator.join(row)
                if not row:
                    continue
                is_whole = len(row) == len(names)
                values = {name.casefold(): value or None for name, value in zip(names, row, strict=False)}
                yield text, values if is_whole else None

    def _is_readable(self, file: str) -> bool:
        """Whether a file can be read to infer the columns of the stream."""
        try:
            if not self.is_text:
                pq.read_schema(local_path(file))
            else:
                for _ in self._texts(file):
                    pass
        except READ_ERRORS as error:
            if unreadable_reason(error) is None:
                raise
            return False
        return True

    def _inferred(self, files: Sequence[str]) -> dict[str, pa.DataType]:
        readable = [file for file in files if self._is_readable(file)]
        if not readable:
            raise SettingError(
                f"can't read the first files of {self.path} to tell its columns: give a schema"
            )
        if not self.is_text:
            with pq.ParquetFile(local_path(readable[0])) as parquet:
                schema = plain_table(parquet.schema_arrow.empty_table()).schema
            return dict(zip(schema.names, schema.types, strict=True))
        certain = self._plain_columns(readable)
        self._is_usual = self._is_usual and certain is not None
        return certain or self._likely_columns(readable)

    def _plain_columns(self, files: Sequence[str]) -> dict[str, pa.DataType] | None:
        """The columns that Spark infers; None if it takes more than plain files to tell."""
        if self.format == "csv" and not self._has_header:
            return None
        plain = [self._plain(file) for file in files]
        known = [each for each in plain if each is not None]
        return plain_columns(known, self.format == "csv") if len(known) == len(plain) else None

    def _likely_columns(self, readable: Sequence[str]) -> dict[str, pa.DataType]:
        kinds: dict[str, pa.DataType] = {}
        spelled: dict[str, str] = {}
        for file in readable:
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
        raise BackendLimitError(f"the local backend reads files of this machine, not {path}")
    return unread_files(local_path(path).expanduser().absolute(), done)


def _opened(file: str) -> io.TextIOBase:
    """A file of text; bytes that are no UTF-8 become lone surrogates."""
    opener = DECOMPRESSORS.get(os.path.splitext(file)[1], open)
    return opener(local_path(file), "rt", encoding="utf-8", errors="surrogateescape", newline="")


def _opened_bytes(file: str) -> BinaryIO:
    return open(local_path(file), "rb")


def _shown(text: str) -> str | None:
    """A text with bytes that are no UTF-8 replaced; None if it has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape").decode(errors="replace")
    return None


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
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        digits = len(str(abs(value)))
        return pa.decimal128(digits, 0) if digits <= MAX_DECIMAL_DIGITS else pa.float64()
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
