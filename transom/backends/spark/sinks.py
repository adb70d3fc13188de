"""Results written by Spark: a directory per batch in a file format, or any other writer that Spark has."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transom.backends.base import NO_KEY, Frame, ResultKey, Sink
from transom.backends.connection import FILE_FORMATS
from transom.backends.expressions import quoted
from transom.backends.secrets import option_texts, with_secrets
from transom.backends.spark.connectors import check_options, require_format, spark_options
from transom.backends.spark.frame import data_frame
from transom.elements import Kind
from transom.errors import BatchError, SettingError
from transom.storage.failpoints import failpoint
from transom.storage.file_store import sync_paths


class SparkSink(Sink):
    """An output in one format: a file format, `console`, or another of Spark's writers.

    A batch's files are a directory of their own, overwritten when the batch is replayed: exactly once.
    Other writers append: at least once.
    """

    def __init__(self, spark: SparkSession, format: str, options: Mapping[str, Any]):
        self.format, self.options = format.lower(), option_texts(options)
        path = self.options.pop("path", None)
        if self.format in FILE_FORMATS and path is None:
            raise SettingError(f"a sink of {self.format} files needs a path")
        self.target, self.path = path, path if self.format in FILE_FORMATS else None
        if self.format != "console":
            require_format(spark, self.format, "writes")
            check_options(self.format, self.options)
        # Refuses a reference that can't be read, now and not with the first results.
        with_secrets(self.options)
        needed = {"kafka": ("kafka.bootstrap.servers", "topic"), "jdbc": ("url", "dbtable")}
        for option in needed.get(self.format, ()):
            if option not in self.options:
                raise SettingError(f"a sink of {self.format} needs the option {option}")

    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
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
                writer.options(**with_secrets(self.options)).save(unfinished)
                failpoint("sink", "rename")
                with self.guarded():
                    _rename(data.sparkSession, unfinished, f"{root}/batch={batch_id}")
                failpoint("sink", "renamed")
                if self.sync:
                    sync_local(f"{root}/batch={batch_id}")
            finally:
                # With what an attempt that was killed has left.
                _delete(data.sparkSession, f"{root}/_unfinished")
        else:
            self._append(messages(data, key, self.retractions) if self.format == "kafka" else data)

    def write_messages(self, frame: Frame) -> None:
        if self.format != "kafka":
            super().write_messages(frame)
        with self.guarded():
            pass
        self._append(data_frame(frame).coalesce(1))  # one task keeps their order

    def _append(self, data: DataFrame) -> None:
        given = spark_options(self.format, self.options)
        data.write.format(self.format).options(**given).mode("append").save(self.target)


def messages(results: DataFrame, key: ResultKey, retractions: bool = False) -> DataFrame:
    """Results as messages of Kafka: a JSON object each, with what identifies the result as the key.

    A retracted result that nothing replaces is a message without a value, which deletes its key in a compacted topic.
    With `retractions`, retractions are messages like others.

    Messages with the same key go to one partition of the topic in the order in which a task writes them: a task has
    all results with its keys, and writes early ones first and the others in their order. So a replayed batch repeats
    messages, and a reader that keeps the last message of each key has each result once.
    """
    value = F.to_json(F.struct(*map(quoted, results.columns)), {"ignoreNullFields": "false"})
    if not key.columns:
        return results.select(value.alias("value"))
    of = [] if key.query is None else [F.lit(key.query).alias("query")]
    text = F.to_json(F.struct(*of, *map(quoted, key.columns)), {"ignoreNullFields": "false"})
    kind = F.col(quoted(key.kind))
    order = (kind != Kind.EARLY.value).alias("is_late"), F.monotonically_increasing_id().alias("place")
    if not retractions:
        value = F.when(kind != Kind.RETRACTION.value, value)
    rows = results.select(F.when(F.expr(key.condition), text).alias("key"), value.alias("value"), *order)
    return rows.repartition("key").sortWithinPartitions("is_late", "place").select("key", "value")


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
