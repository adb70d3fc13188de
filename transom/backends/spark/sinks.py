"""Where results go: a directory per batch in a file format, or any other writer that Spark has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from transom.backends.spark.types import to_frame
from transom.errors import SettingError, near_miss

FILE_FORMATS = frozenset({"parquet", "json", "csv", "orc", "avro", "text", "xml"})


@dataclass(frozen=True)
class Sink:
    """An output in one format: a file format, `console`, or another of Spark's writers.

    A batch's files are a directory of their own, overwritten when the batch is replayed: exactly once.
    Other writers append: at least once.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", self.format.lower())
        if self.exactly_once and "path" not in self.options:
            raise SettingError(f"a sink of {self.format} files needs a path")

    @property
    def exactly_once(self) -> bool:
        """Whether a replayed batch leaves no trace."""
        return self.format in FILE_FORMATS

    def check(self, spark: SparkSession) -> None:
        """Refuse a format that Spark does not know now, not when the first results are there."""
        if self.format == "console":
            return
        jvm: Any = spark._jvm
        lookup = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
        try:
            lookup(self.format, spark._jsparkSession.sessionState().conf())
        except Py4JJavaError:
            guess = near_miss(self.format, FILE_FORMATS)
            raise SettingError(f"Spark has no writer for {self.format}{guess}") from None

    def write(self, data: DataFrame | pa.Table, batch_id: int, spark: SparkSession) -> None:
        """Write a batch's rows; an Arrow table without rows writes nothing.

        In files the batch is told by the directory's name, from which Spark and Arrow make a column.
        """
        if isinstance(data, pa.Table):
            if data.num_rows == 0:
                return
            data = to_frame(spark, data)
        if self.exactly_once:
            data = data.drop("batch")
        if self.format == "console":
            data.show(int(self.options.get("numRows", 20)), truncate=self.options.get("truncate") == "true")
            return
        options = {key: str(value) for key, value in self.options.items() if key != "path"}
        writer = data.write.format(self.format).options(**options)
        path = self.options.get("path")
        if self.exactly_once:
            writer.mode("overwrite").save(f"{str(path).rstrip('/')}/batch={batch_id}")
        else:
            writer.mode("append").save(path)
