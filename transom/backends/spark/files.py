"""Files of a path as batches: listed through Hadoop's file systems, rows that can't be parsed marked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from transom.backends.base import InputFiles
from transom.backends.expressions import quoted
from transom.backends.file_names import FILES_TO_INFER_FROM, format_of, is_tab_separated
from transom.backends.hidden_columns import CORRUPT
from transom.backends.spark.frame import SparkFrame
from transom.backends.spark.types import schema_of, to_arrow
from transom.backends.unread_files import unread_files
from transom.errors import SettingError

_FILE_STATUS = re.compile(
    r"FileStatus\{path=(?P<path>[^;]*(?:;(?! isDirectory)[^;]*)*); isDirectory=false; length=(?P<length>\d+);"
    r"[^{}]*?modification_time=(?P<modified>\d+);"
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
        self.is_text = self.format in ("json", "csv")
        given = {name.lower(): value for name, value in self._options.items()}
        self.timestamp_format = given.get("timestampformat")

    def pending(self, done: Iterable[str] = ()) -> list[list[str]]:
        """The files that are not done, oldest first (then by name), in groups of a batch each."""
        new = list_hadoop_files(self.spark, self.path, frozenset(done))
        return [new[i : i + self.files_per_batch] for i in range(0, len(new), self.files_per_batch)]

    def read(self, files: Sequence[str]) -> SparkFrame:
        """The rows of some files; a row that can't be parsed has its text in `_corrupt_record`."""
        if self.format == "csv" and self._has_header:
            parts = [self._read_by_header(*same) for same in self._by_header(files)]
            return SparkFrame(reduce(DataFrame.union, parts))
        return SparkFrame(self._load(self.schema, files))

    @property
    def _has_header(self) -> bool:
        return self._options.get("header", "false").lower() == "true"

    def _load(self, schema: StructType, files: Sequence[str]) -> DataFrame:
        if not self.is_text:
            return self._reader().schema(schema).load(_literal(files))
        corrupt = StructField(CORRUPT, StringType())
        frame = self._reader().schema(StructType([*schema.fields, corrupt])).load(_literal(files))
        return frame.withColumn(CORRUPT, _needing_all(frame, schema))

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
        reader = self._reader().option("inferSchema", "true").option("inferTimestamp", "true")
        try:
            schema = reader.load(_literal(names[:FILES_TO_INFER_FROM])).schema
        except AnalysisException as error:
            raise SettingError(f"can't tell the columns of {self.path}: give a schema") from error
        fields = [StructField(f.name, f.dataType) for f in schema.fields if f.name != CORRUPT]
        if not fields:
            raise SettingError(f"no columns found in {self.path}: are its files {self.format}?")
        return StructType(fields)


def _needing_all(frame: DataFrame, schema: StructType) -> Any:
    """The text of a corrupt row, in a way that needs every column to be parsed.

    Spark parses only the columns that a plan reads, and a row would be corrupt or not depending on
    which queries run. The length is always enough; working it out reads all columns.
    """
    text = F.col(CORRUPT)
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
            return unread_files(Path(target.toUri().getPath()), done, lambda file: f"file:{file}")
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
