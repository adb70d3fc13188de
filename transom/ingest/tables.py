"""Static tables: each version is a snapshot under the checkpoint, so that a replayed batch joins the same rows."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from transom.backends.base import Backend, Frame
from transom.backends.expressions import quoted
from transom.columns.table_columns import group_column
from transom.errors import StateError
from transom.ingest.source_description import SourceDescription
from transom.storage.file_store import Store
from transom.storage.sealed_directory import is_sealed, seal, sealed_files, write_frame


class StaticTables:
    """Snapshots of tables as Parquet, at `<checkpoint>/tables/<name>/v<k>`.

    A table of at most `in_memory` rows is kept on the driver with its indexes, so that batches that join it do not
    read its files again.
    """

    def __init__(self, store: Store, backend: Backend, in_memory: int = 100_000):
        self._store, self._backend, self._in_memory = store, backend, in_memory
        self._frames: dict[tuple[str, int], Frame] = {}
        self._source_versions: dict[str, int | None] = {}  # of tables that were read by this process
        self._unique: dict[tuple[str, int, tuple[str, ...]], bool] = {}

    def snapshot(
        self,
        name: str,
        source: Any,
        format: str | None = None,
        schema: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> int:
        """Write the table as it is now as a new version, and return the version's number.

        `format`, `schema` and `options` are about the files of a path.
        """
        return self.write(SourceDescription(name, source, format, schema, options))

    def write(self, described: SourceDescription) -> int:
        """Write a described table as it is now as a new version, and return the version's number."""
        source_version = described.source_version()
        version = self._write(described.name, described.open_table(self._backend))
        self._source_versions[described.name] = source_version
        return version

    def write_changed(self, described: SourceDescription) -> int | None:
        """Write a described table as a new version; None if it has not changed.

        Sources with versions say whether they have. Others are read, and compared if they fit into memory.
        """
        name, latest = described.name, self.latest(described.name)
        source_version = described.source_version()
        if source_version is not None and source_version == self._source_versions.get(name):
            return None
        frame = self._backend.copied_to_driver(described.open_table(self._backend), self._in_memory)
        if latest is not None and frame.driver_rows is not None:
            before = self.frame(name, latest)
            if before.driver_rows == frame.driver_rows and _same_rows(before.to_table(), frame.to_table()):
                self._source_versions[name] = source_version
                return None
        version = self._write(name, frame)
        self._source_versions[name] = source_version
        return version

    def _write(self, name: str, frame: Frame) -> int:
        version = (self.latest(name) or 0) + 1
        directory = _directory(name, version)
        # Under a name of its own: the backend's writer is not stopped when another engine takes over.
        attempt = uuid.uuid4().hex
        write_frame(self._store, f"{directory}/{attempt}", frame)
        seal(self._store, directory, attempt)
        return version

    def forget(self, name: str, version: int) -> str:
        """Keep a version in memory no longer; the directory that holds it."""
        self._frames.pop((name, version), None)
        self._unique = {key: value for key, value in self._unique.items() if key[:2] != (name, version)}
        return _directory(name, version)

    def versions(self, name: str) -> list[int]:
        """The finished versions, oldest first."""
        directory = _directory(name)
        numbers = [int(v[1:]) for v in self._store.list(directory) if v[:1] == "v" and v[1:].isdigit()]
        return sorted(v for v in numbers if is_sealed(self._store, f"{directory}/v{v}"))

    def latest(self, name: str) -> int | None:
        """The newest version, if there is any."""
        return max(self.versions(name), default=None)

    def frame(self, name: str, version: int) -> Frame:
        """The rows of a version."""
        if (name, version) not in self._frames:
            directory = _directory(name, version)
            if not is_sealed(self._store, directory):
                raise StateError(f"the checkpoint has no version {version} of table {name}")
            paths = {posixpath.dirname(file) for file in sealed_files(self._store, directory)}
            path = self._store.path(paths.pop())
            self._frames[name, version] = self._backend.copied_to_driver(
                self._backend.read_parquet([path]), self._in_memory
            )
        return self._frames[name, version]

    def columns(self, name: str, version: int | None = None) -> dict[str, pa.DataType]:
        """The columns of a version (the newest unless one is named), with their types."""
        version = version or self.latest(name)
        if version is None:
            raise StateError(f"the checkpoint has no table {name}")
        return self.frame(name, version).columns

    def is_unique(self, name: str, version: int, keys: Sequence[str]) -> bool:
        """Whether no two rows have the same keys; rows with a null among them never match and don't count.

        The keys are compared in their own types: a condition that first casts them may still match two.
        """
        question = (name, version, tuple(keys))
        if question not in self._unique:
            frame = self.frame(name, version)
            if keys:
                frame = frame.filter(" AND ".join(f"{quoted(key)} IS NOT NULL" for key in keys))
            counts = frame.aggregate(
                {group_column(i): quoted(key) for i, key in enumerate(keys)}, {"n": ("count", "*")}
            )
            self._unique[question] = counts.filter("n > 1").first(1).num_rows == 0
        return self._unique[question]


def _same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same columns and rows, in the same order."""
    return one.schema.equals(other.schema) and one.equals(other)


def _directory(name: str, version: int | None = None) -> str:
    directory = f"tables/{quote(name, safe='')}"
    return directory if version is None else f"{directory}/v{version}"
