"""Static tables: each version a snapshot under the checkpoint, so that a replay joins the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from transom.backends.projection import quoted
from transom.backends.spark.files import CORRUPT, PathSource
from transom.backends.spark.types import to_arrow, to_frame, to_table
from transom.errors import SettingError, StateError
from transom.runtime.file_store import Store

TableSource: TypeAlias = DataFrame | pa.Table | str | Sequence[Mapping[str, Any]]
FEW_ROWS = 10_000  # up to here a table's rows are part of the plan that joins them
_DONE = "_SUCCESS"  # Spark writes it last: a version without it was never finished


class Tables:
    """Snapshots of tables as Parquet, at `<root>/tables/<name>/v<k>`."""

    def __init__(self, root: str, spark: SparkSession):
        self._store, self._spark = Store(root), spark
        self._frames: dict[tuple[str, int], DataFrame] = {}
        self._unique: dict[tuple[str, int, tuple[str, ...]], bool] = {}

    def snapshot(
        self,
        name: str,
        source: TableSource,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> int:
        """Write the table as it is now as a new version, and return the version's number.

        `format`, `schema` and `options` are about the files of a path.
        """
        frame = self._frame_of(source, format, schema, options)
        to_arrow(frame.schema)  # refuses columns that no query could read
        version = (self.latest(name) or 0) + 1
        frame.write.mode("overwrite").parquet(self._store.path(_directory(name, version)))
        return version

    def versions(self, name: str) -> list[int]:
        """The finished versions, oldest first."""
        place = _directory(name)
        found = [int(v[1:]) for v in self._store.list(place) if v[:1] == "v" and v[1:].isdigit()]
        return sorted(v for v in found if self._store.exists(f"{place}/v{v}/{_DONE}"))

    def latest(self, name: str) -> int | None:
        """The newest version, if there is any."""
        return max(self.versions(name), default=None)

    def frame(self, name: str, version: int) -> DataFrame:
        """The rows of a version."""
        if (name, version) not in self._frames:
            if not self._store.exists(f"{_directory(name, version)}/{_DONE}"):
                raise StateError(f"the checkpoint has no version {version} of table {name}")
            path = self._store.path(_directory(name, version))
            self._frames[name, version] = self._near(self._spark.read.parquet(path))
        return self._frames[name, version]

    def _near(self, frame: DataFrame) -> DataFrame:
        """A small table's rows by value, so that the batches that join it do not read its files again."""
        rows = to_table(frame.limit(FEW_ROWS + 1))
        if rows.num_rows > FEW_ROWS:
            return frame
        near = to_frame(self._spark, rows)
        return near if near.schema == frame.schema else frame

    def columns(self, name: str, version: int | None = None) -> dict[str, pa.DataType]:
        """The columns of a version (the newest unless one is named), with their types."""
        version = version or self.latest(name)
        if version is None:
            raise StateError(f"the checkpoint has no table {name}")
        return to_arrow(self.frame(name, version).schema)

    def is_unique(self, name: str, version: int, keys: Sequence[str]) -> bool:
        """Whether no two rows have the same keys; rows with a null among them never match and don't count.

        The keys are compared in their own types: a condition that first casts them may still find two.
        """
        asked = (name, version, tuple(keys))
        if asked not in self._unique:
            columns = [F.col(quoted(key)) for key in keys]
            rows = self.frame(name, version).select(*columns).dropna()
            counts = (
                rows.groupBy(*columns).count() if columns else self.frame(name, version).groupBy().count()
            )
            self._unique[asked] = counts.where("count > 1").isEmpty()
        return self._unique[asked]

    def _frame_of(
        self, source: TableSource, format: str | None, schema: str | None, options: Mapping[str, Any] | None
    ) -> DataFrame:
        if isinstance(source, DataFrame):
            if source.isStreaming:
                raise SettingError("a table is a batch DataFrame; a streaming one is a stream")
            return source
        if isinstance(source, pa.Table):
            return to_frame(self._spark, source)
        if isinstance(source, str):
            files = PathSource(self._spark, source, format, schema, options)
            return _parsed(files.read([file for batch_id in files.pending() for file in batch_id]), source)
        rows = [dict(row) for row in source]
        if not rows:
            raise SettingError("a table of no rows has no columns: give a pyarrow.Table with a schema")
        names = dict.fromkeys(name for row in rows for name in row)
        return to_frame(self._spark, pa.table({name: [row.get(name) for row in rows] for name in names}))


def _parsed(frame: DataFrame, path: str) -> DataFrame:
    if CORRUPT not in frame.columns:
        return frame
    wrong = frame.where(F.col(CORRUPT).isNotNull()).select(CORRUPT).first()
    if wrong is not None:
        raise SettingError(f"a row of {path} can't be parsed: {wrong[0]}")
    return frame.drop(CORRUPT)


def _directory(name: str, version: int | None = None) -> str:
    place = f"tables/{quote(name, safe='')}"
    return place if version is None else f"{place}/v{version}"
