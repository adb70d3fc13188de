"""Files of a path as batches: listed through Hadoop's file systems, rows that can't be parsed marked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from transom.backends.base import FileVersion, InputFiles
from transom.backends.expressions import quoted
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of, is_tab_separated
from transom.backends.file_parts import PartedFiles, PartUnreadable
from transom.backends.file_problems import FileProblem, unreadable
from transom.backends.hidden_columns import CORRUPT
from transom.backends.input_files import CheckedFile, FileCheck, FileTypes, unread_files
from transom.backends.parquet_parts import ParquetFiles
from transom.backends.spark.driver_frame import DriverFrame
from transom.backends.spark.failures import failure_text, is_read_failure
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.hadoop_file import LOCAL_SCHEME, hadoop_version, local_part, open_hadoop_file
from transom.backends.spark.session import UTC_NAMES
from transom.backends.spark.task_frame import FileRows, TaskFrame, TaskResources
from transom.backends.spark.types import check_storable, schema_of, to_arrow, to_spark
from transom.backends.text_parts import TextFiles, TextForm, text_layout
from transom.errors import SettingError

_FILE_STATUS = re.compile(
    r"FileStatus\{path=(?P<path>[^;]*(?:;(?! isDirectory)[^;]*)*); isDirectory=false; length=(?P<length>\d+);"
    r"[^{}]*?modification_time=(?P<modified>\d+);"
)


# Options of CSV files that the check of their headers does not know.
_UNUSUAL_CSV = frozenset(
    {"encoding", "charset", "multiline", "linesep", "comment", "quote", "escape", "delimiter"}
)

_PLAIN_OPTIONS = frozenset({"sep", "header"})  # of text files that tasks can read

# Settings of the session under which Spark reads files as Arrow does: the default, and the values.
_USUAL_SETTINGS = (
    ("spark.sql.session.timeZone", "", UTC_NAMES),
    ("spark.sql.caseSensitive", "false", ("false",)),
    ("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED", ("CORRECTED",)),
    ("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED", ("CORRECTED",)),
    ("spark.sql.parquet.int96TimestampConversion", "false", ("false",)),
    ("spark.sql.files.ignoreCorruptFiles", "false", ("false",)),
    ("spark.sql.files.ignoreMissingFiles", "false", ("false",)),
    ("spark.sql.legacy.timeParserPolicy", "CORRECTED", ("CORRECTED", "EXCEPTION")),
)


class SparkFiles(InputFiles):
    """The files of a path: one file, those of a directory, or those that match a glob."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        format: str | None = None,
        schema: str | StructType | None = None,
        options: Mapping[str, str] | None = None,
        files_per_batch: int = 1,
        tasks: TaskResources | None = None,
    ):
        if files_per_batch < 1:
            raise SettingError(f"files_per_batch is at least 1, not {files_per_batch}")
        self.spark, self.path, self.files_per_batch = spark, path, files_per_batch
        names = list_hadoop_files(spark, path)
        if not names and (format is None or schema is None):
            raise SettingError(f"no files in {path}: give their format and schema to wait for the first")
        self.format = format.lower() if format else format_of(names)
        self._options = self._with_defaults(options or {}, names)
        self.schema = self._given(schema) if schema is not None else self._inferred(names)
        self.columns = to_arrow(self.schema)
        check_storable(self.columns)
        self.is_text = self.format in ("json", "csv")
        given = {name.lower(): value for name, value in self._options.items()}
        self.timestamp_format = given.get("timestampformat")
        self.versions_per_poll = (
            100 if names and names[0].startswith(LOCAL_SCHEME) else 20
        )  # calls of the JVM
        self._check = self._file_check(given)
        self._checked: dict[str, CheckedFile] = {}  # the files of the last check
        self._tasks = tasks if self._can_be_plain(options or {}) else None

    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        """The files that are not done, oldest first (then by name), in groups of a batch each."""
        new = list_hadoop_files(self.spark, self.path, frozenset(done))
        return [new[i : i + self.files_per_batch] for i in range(0, len(new), self.files_per_batch)]

    def check(self, files: Sequence[str]) -> list[FileProblem]:
        self._checked = {file: self._check.check(file) for file in files}
        return [problem for checked in self._checked.values() for problem in checked.problems]

    def unreadable_of(self, files: Sequence[str], error: Exception) -> list[FileProblem]:
        """The files that can't be read one by one, if the error is one of reading files."""
        if not is_read_failure(error) or self._read_error(files) is None:
            return []
        errors = {file: self._read_error([file]) for file in files}
        return [unreadable(file, self._reason(file, e)) for file, e in errors.items() if e is not None]

    def _read_error(self, files: Sequence[str]) -> Exception | None:
        """The error of reading some files to their ends; an error of another kind is raised."""
        try:
            self._read_by_spark(files).df.write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not is_read_failure(error):
                raise
            return error
        return None

    def _reason(self, file: str, error: Exception) -> str:
        if self.version(file) is None:
            return "it was deleted after it was listed"
        return failure_text(error)

    def version(self, file: str) -> FileVersion | None:
        return hadoop_version(self.spark, file)

    def read(self, files: Sequence[str]) -> DriverFrame | SparkFrame:
        """The rows of some files; a row that can't be parsed has its text in `_corrupt_record`."""
        if files and self._tasks is not None and (parted := self._parted(files)) is not None:
            hidden = {CORRUPT: pa.string()} if self.is_text else {}
            columns = {**self.columns, **hidden}
            try:
                table = parted.small_table(self._tasks.driver_rows, columns)
            except PartUnreadable:
                return self._read_by_spark(files)
            if table is not None:
                return DriverFrame(table, self._tasks.expressions.scalars)
            rows = FileRows(columns, columns, files=parted)
            return TaskFrame(self._tasks, rows, lambda: self._read_by_spark(files))
        return self._read_by_spark(files)

    def _can_be_plain(self, options: Mapping[str, str]) -> bool:
        """Whether tasks may read files of this format, with these options and columns, with Arrow."""
        if self.format == "parquet":
            return not options
        if not self.is_text or any(field.metadata for field in self.schema.fields) or CORRUPT in self.columns:
            return False
        return set(options) <= _PLAIN_OPTIONS and self._text_form.is_plain

    @property
    def _text_form(self) -> TextForm:
        return TextForm(self.format, self.columns, self._options.get("sep", ","), self._has_header)

    def _parted(self, files: Sequence[str]) -> PartedFiles | None:
        """Files that tasks can read with Arrow; None if Spark has to read one of them."""
        if any(self.spark.conf.get(name, usual) not in values for name, usual, values in _USUAL_SETTINGS):
            return None
        if not all(file.startswith(LOCAL_SCHEME) for file in files):
            return None
        if self.is_text:
            return self._parted_text(files)
        layouts = []
        for file in files:
            layout = self._checked_file(file).layout
            if layout is None or layout.is_unusual:
                return None
            layouts.append((local_part(file), layout))
        return ParquetFiles(tuple(layouts))

    def _parted_text(self, files: Sequence[str]) -> TextFiles | None:
        layouts, form = [], self._text_form
        for file in files:
            try:
                layout = text_layout(local_part(file), form)
            except OSError:
                return None
            if layout is None:
                return None
            layouts.append(layout)
        return TextFiles(tuple(layouts))

    def _read_by_spark(self, files: Sequence[str]) -> SparkFrame:
        if not files:
            return SparkFrame(self._empty())
        if self.format == "parquet":
            parts = [self._read_parquet(*alike) for alike in self._by_types(files)]
            return SparkFrame(reduce(DataFrame.union, parts))
        if self.format == "csv" and self._has_header:
            parts = [self._read_by_header(*same) for same in self._by_header(files)]
            return SparkFrame(reduce(DataFrame.union, parts))
        return SparkFrame(self._load(self.schema, files))

    def _file_check(self, options: Mapping[str, str]) -> FileCheck:
        plain = self.format != "csv" or not _UNUSUAL_CSV & options.keys()
        return FileCheck(
            self.format if plain else "other",
            self.columns,
            partial(open_hadoop_file, self.spark),
            options.get("sep", ","),
            self._has_header,
        )

    @property
    def _has_header(self) -> bool:
        return self._options.get("header", "false").lower() == "true"

    def _load(self, schema: StructType, files: Sequence[str]) -> DataFrame:
        if not self.is_text:
            return self._reader().schema(schema).load(_literal(files))
        corrupt = StructField(CORRUPT, StringType())
        frame = self._reader().schema(StructType([*schema.fields, corrupt])).load(_literal(files))
        return frame.withColumn(CORRUPT, _needing_all(frame, schema))

    def _empty(self) -> DataFrame:
        corrupt = [StructField(CORRUPT, StringType())] if self.is_text else []
        return self.spark.createDataFrame([], StructType([*self.schema.fields, *corrupt]))

    def _by_types(self, files: Sequence[str]) -> list[tuple[FileTypes, list[str]]]:
        """Files grouped by the types of their columns, where these differ from the stream's."""
        groups: dict[FileTypes, list[str]] = {}
        for file in files:
            groups.setdefault(self._checked_file(file).types, []).append(file)
        return list(groups.items())

    def _checked_file(self, file: str) -> CheckedFile:
        return self._checked.get(file) or self._check.check(file)

    def _read_parquet(self, types: FileTypes, files: list[str]) -> DataFrame:
        """Parquet files, read in their own types and cast to the stream's."""
        own = dict(types)
        fields = [
            StructField(f.name, _type_to_read(own[f.name]) if f.name in own else f.dataType)
            for f in self.schema.fields
            if not pa.types.is_null(own.get(f.name, pa.string()))
        ]
        frame = self._load(StructType(fields), files)
        return frame.select(*(_as_declared(field, own.get(field.name)) for field in self.schema.fields))

    def _by_header(self, files: Sequence[str]) -> list[tuple[tuple[str, ...], list[str]]]:
        """Files grouped by their first line: given a schema, Spark takes CSV columns by position."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for file in files:
            groups.setdefault(tuple(self._reader().load(_literal([file])).columns), []).append(file)
        return list(groups.items())

    def _read_by_header(self, header: tuple[str, ...], files: list[str]) -> DataFrame:
        known = {field.name.casefold(): field for field in self.schema.fields}
        fields = [known.get(name.casefold(), StructField(name, StringType())) for name in header]
        frame = self._load(StructType(fields), files)
        have = {field.name for field in fields}
        columns = [
            F.col(quoted(field.name))
            if field.name in have
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in self.schema.fields
        ]
        return frame.select(*columns, CORRUPT)

    def _reader(self) -> DataFrameReader:
        return self.spark.read.format(self.format).options(**self._options)

    def _with_defaults(self, options: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
        defaults = {}
        if self.format == "csv":
            tabs = bool(names) and is_tab_separated(names)
            defaults = {"header": "true", "sep": "\t" if tabs else ","}
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return defaults | {key: str(value) for key, value in options.items()} | ours

    def _given(self, schema: str | StructType) -> StructType:
        return schema_of(schema) if isinstance(schema, str) else schema

    def _inferred(self, names: Sequence[str]) -> StructType:
        looked_at = names[:FILES_TO_INFER_FROM]
        groups = [looked_at, *([name] for name in looked_at)]  # one by one if some of them can't be read
        schema = next((found for group in groups if (found := self._schema_of(group)) is not None), None)
        if schema is None:
            raise SettingError(
                f"can't read the first files of {self.path} to tell its columns: give a schema"
            )
        fields = [StructField(f.name, f.dataType) for f in schema.fields if f.name != CORRUPT]
        if not fields:
            raise SettingError(f"no columns found in {self.path}: are its files {self.format}?")
        return StructType(fields)

    def _schema_of(self, files: Sequence[str]) -> StructType | None:
        """The schema that Spark infers from files; None if it can't read one of them."""
        reader = self._reader().option("inferSchema", "true").option("inferTimestamp", "true")
        try:
            return reader.load(_literal(files)).schema
        except Exception as error:
            if is_read_failure(error):
                return None
            if isinstance(error, AnalysisException):
                raise SettingError(f"can't tell the columns of {self.path}: give a schema") from error
            raise


def _type_to_read(kind: pa.DataType) -> DataType:
    """The Spark type in which a column of a Parquet file is read; Spark reads nanoseconds as integers only."""
    return LongType() if pa.types.is_timestamp(kind) and kind.unit == "ns" else to_spark(kind)


def _as_declared(field: StructField, kind: pa.DataType | None) -> Column:
    """A column that was read in a file's type, in the stream's."""
    column, name = F.col(quoted(field.name)), quoted(field.name)
    if kind is not None and pa.types.is_null(kind):
        column = F.lit(None)
    elif kind is not None and pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = F.expr(f"timestamp_micros(({name} - pmod({name}, 1000)) div 1000)")
    elif isinstance(field.dataType, StringType):
        column = F.make_valid_utf8(column)  # Spark reads any bytes; Arrow's texts are UTF-8
    elif kind is None:
        return column
    return column.cast(field.dataType).alias(field.name)


def _needing_all(frame: DataFrame, schema: StructType) -> Any:
    """The text of a corrupt row, in a way that needs every column to be parsed.

    Spark parses only the columns that a plan reads, and a row would be corrupt or not depending on
    which queries run. The length is always enough; working it out reads all columns.
    """
    text = F.make_valid_utf8(F.col(CORRUPT))
    nulls = F.pmod(F.hash(*[F.col(quoted(name)).isNull() for name in schema.names]), F.lit(2))
    return F.when(text.isNotNull(), F.substring(text, F.lit(1), F.length(text) + nulls))


def _literal(files: Iterable[str]) -> list[str]:
    """The paths with what would be taken for a glob escaped."""
    return [re.sub(r"[\\{}\[\]*?]", r"\\\g<0>", file) for file in files]


# --- Hadoop's file systems, so that any that Spark knows works -------------------------------------


def list_hadoop_files(spark: SparkSession, path: str, done: Collection[str] = ()) -> list[str]:
    """The visible files with something in them that are not done, oldest first, then by name.

    SettingError if the path leads nowhere. Files of this machine are listed here, others by Hadoop.
    """
    jvm: Any = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop = jvm.org.apache.hadoop.fs
    if "://" not in path and hadoop.FileSystem.getDefaultUri(conf).getScheme() == "file":
        path = os.path.abspath(os.path.expanduser(path))  # the JVM may live in another directory
    target = hadoop.Path(path)
    try:
        system = target.getFileSystem(conf)
        if system.getScheme() == "file":
            return unread_files(Path(target.toUri().getPath()), done, lambda file: f"{LOCAL_SCHEME}{file}")
        exact = system.exists(target)  # before globs: a name may contain a bracket
        statuses = [system.getFileStatus(target)] if exact else list(system.globStatus(target) or ())
    except SettingError:
        raise SettingError(f"no such file or directory: {path}") from None
    except Exception as error:
        raise SettingError(f"can't list {path}: {_first_line(error)}") from error
    if not statuses:
        raise SettingError(f"no such file or directory: {path}")
    return unread_of_statuses(_status_texts(jvm, system, statuses), done)


def _status_texts(jvm: Any, system: Any, statuses: Sequence[Any]) -> str:
    """The statuses of files, and of files in directories, as one text: a call of the JVM for each would be slow."""
    inside = [system.listStatus(status.getPath()) for status in statuses if status.isDirectory()]
    files = [status.toString() for status in statuses if not status.isDirectory()]
    return "\n".join([*(jvm.scala.runtime.ScalaRunTime.stringOf(listed) for listed in inside), *files])


def unread_of_statuses(texts: str, done: Collection[str]) -> list[str]:
    """The files of `FileStatus` texts that are not done, in the order in which files are read.

    >>> text = "FileStatus{path=hdfs://n/a; isDirectory=false; length=3; replication=1; modification_time=7; x}"
    >>> unread_of_statuses(text, ()), unread_of_statuses(text, {"hdfs://n/a"})
    (['hdfs://n/a'], [])
    """
    files: dict[str, int] = {}
    for status in _FILE_STATUS.finditer(texts):
        path = status["path"]
        is_visible = not path.rpartition("/")[2].startswith((".", "_"))
        if is_visible and int(status["length"]) and path not in done:
            files[path] = int(status["modified"])
    return sorted(files, key=lambda path: (files[path], path))


def _first_line(error: Exception) -> str:
    cause = getattr(error, "java_exception", None)
    return (cause.getMessage() if cause is not None else str(error)).splitlines()[0]
