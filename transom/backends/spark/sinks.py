"""Results written by Spark: a directory per batch in a file format, or any other writer that Spark has."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from transom.backends.base import Frame, Sink
from transom.backends.spark.frame import data_frame
from transom.errors import BatchError, SettingError, near_miss
from transom.storage.failpoints import failpoint
from transom.storage.file_store import sync_paths

FILE_FORMATS = frozenset({"parquet", "json", "csv", "orc", "avro", "text", "xml"})


class SparkSink(Sink):
    """An output in one format: a file format, `console`, or another of Spark's writers.

    A batch's files are a directory of their own, overwritten when the batch is replayed: exactly once.
    Other writers append: at least once.
    """

    def __init__(self, spark: SparkSession, format: str, options: Mapping[str, Any]):
        self.format, self.options = format.lower(), {key: str(value) for key, value in options.items()}
        path = self.options.pop("path", None)
        if self.format in FILE_FORMATS and path is None:
            raise SettingError(f"a sink of {self.format} files needs a path")
        self.target, self.path = path, path if self.format in FILE_FORMATS else None
        if self.format != "console":
            self._check(spark)

    def _check(self, spark: SparkSession) -> None:
        """Refuse a format that Spark does not know now, not when the first results are there."""
        jvm: Any = spark._jvm
        lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
        try:
            lookup(self.format, spark._jsparkSession.sessionState().conf())
        except Py4JJavaError:
            guess = near_miss(self.format, FILE_FORMATS)
            raise SettingError(f"Spark has no writer for {self.format}{guess}") from None

    def write(self, frame: Frame, batch_id: int) -> None:
        """Write a batch's results. In files the name of the directory tells the batch: Spark and Arrow read
        a column from it."""
        data = data_frame(frame)
        if self.path is None:
            with self.guarded():
                pass
        if self.format == "console":
            data.show(int(self.options.get("numRows", 20)), truncate=self.options.get("truncate") == "true")
        elif self.path is not None:
            root, writer = self.path.rstrip("/"), data.drop("batch").write.format(self.format)
            unfinished = f"{root}/_unfinished/batch={batch_id}-{uuid.uuid4().hex}"  # hidden from readers
            try:
                failpoint("sink", "create")
                writer.options(**self.options).save(unfinished)
                failpoint("sink", "rename")
                with self.guarded():
                    _rename(data.sparkSession, unfinished, f"{root}/batch={batch_id}")
                failpoint("sink", "renamed")
                if self.sync:
                    sync_local(f"{root}/batch={batch_id}")
            finally:
                _delete(
                    data.sparkSession, f"{root}/_unfinished"
                )  # with what an attempt that was killed has left
        else:
            data.write.format(self.format).options(**self.options).mode("append").save(self.target)


def sync_local(path: str) -> None:
    """Wait until the files of a directory on this machine are on disk; those elsewhere are not the driver's."""
    directory = Path(path.removeprefix("file://"))
    if "://" not in str(directory) and directory.is_dir():
        sync_paths([str(place) for place in (*directory.rglob("*"), directory, directory.parent)])


def _rename(spark: SparkSession, source: str, target: str) -> None:
    """Let a directory take the place of another one."""
    system, place = _place(spark, target)
    system.delete(place, True)
    if not system.rename(_place(spark, source)[1], place):
        raise BatchError(f"{source} can't be renamed to {target}")


def _delete(spark: SparkSession, path: str) -> None:
    system, place = _place(spark, path)
    system.delete(place, True)


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path, and the path as it knows it."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), place
