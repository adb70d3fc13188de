"""Tables of Delta Lake, opened by the library delta-rs (the package `deltalake`), without Spark and its jars.

table/_delta_log/00000000000000000007.json    version 7: the files that it added and removed
table/part-00000-....parquet                  a file of data; it never changes
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds
from pyarrow import fs

from transom.backends.arrow_frame import local_path
from transom.backends.arrow_types import plain, plain_table
from transom.backends.secrets import option_texts, with_secrets, without_secrets
from transom.errors import SettingError, StateError, TransomError, near_miss
from transom.extras import extra_needed

DELTA = "delta"
# What a reader of single files must understand. Of the others, those that only writers need are no problem.
_READ_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "appendOnly", "invariants"}
_LOCAL_FILES = "file://"
_MOST_ERROR_TEXT = 300
_STACK = re.compile(r"\n\s*0: .*", re.DOTALL)
_COLORS = re.compile(r"\x1b\[\d+m")


def is_delta(format: str | None) -> bool:
    """Whether a format is that of Delta Lake."""
    return format is not None and format.lower() == DELTA


def delta_library() -> Any:
    """The module `deltalake`; MissingPackage says how to install it."""
    with extra_needed("a table of Delta Lake"):
        import deltalake
    return deltalake


@contextmanager
def delta_errors(doing: str, error_type: type[TransomError] = StateError) -> Iterator[None]:
    """Report what the library raises as one line without stack and secrets."""
    try:
        yield
    except TransomError:
        raise
    except Exception as error:  # some are plain Exceptions
        raise error_type(f"{doing}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = _COLORS.sub("", _STACK.sub("", str(error)))
    short = " ".join(text.replace("↳", ":").split())[:_MOST_ERROR_TEXT]
    return without_secrets(short) or type(error).__name__


@dataclass(frozen=True)
class DeltaLocation:
    """Where a table is, with the options of its object store; references to secrets are resolved when it is opened."""

    path: str
    storage: Mapping[str, str]

    @classmethod
    def of(
        cls, path: str | None, options: Mapping[str, Any], known: Sequence[str]
    ) -> tuple[DeltaLocation, dict[str, str]]:
        """The location that options describe, and those of the options that are `known`, by these names.

        All others are for the object store, and a directory of this machine has none.
        """
        given = option_texts(options)
        path = given.pop("path", path)
        if path is None:
            raise SettingError("a table of Delta Lake needs a path")
        folded = {name.casefold(): name for name in known}
        chosen = {folded[name.casefold()]: text for name, text in given.items() if name.casefold() in folded}
        others = {name: text for name, text in given.items() if name.casefold() not in folded}
        location = cls(path, others)
        for name in others:
            hint = near_miss(name, known)
            if hint or location.is_local:
                hint = hint or f"; it has {', '.join(known)}"
                raise SettingError(f"delta has no option {name}{hint}")
        return location, chosen

    @property
    def is_local(self) -> bool:
        """Whether the table is a directory of this machine."""
        return "://" not in self.path or self.path.startswith(_LOCAL_FILES)

    @property
    def uri(self) -> str:
        """The path as the library takes it."""
        return str(local_path(self.path).expanduser().absolute()) if self.is_local else self.path

    def storage_options(self) -> dict[str, str] | None:
        """The options of the object store, with the values of secrets."""
        return with_secrets(self.storage) if self.storage else None

    def open(self, version: int | None = None) -> Any:
        """The table as it is now or was in a version; SettingError if there is none."""
        library = delta_library()
        what = self.path if version is None else f"version {version} of {self.path}"
        try:
            with delta_errors(f"{what} can't be opened"):
                return library.DeltaTable(self.uri, version=version, storage_options=self.storage_options())
        except StateError as error:
            if isinstance(error.__cause__, library.exceptions.TableNotFoundError):
                raise SettingError(f"there is no table of Delta Lake at {self.path}") from None
            raise

    def exists(self) -> bool:
        """Whether there is a table."""
        library = delta_library()
        with delta_errors(f"{self.path} can't be read"):
            return bool(library.DeltaTable.is_deltatable(self.uri, self.storage_options()))

    def files(self) -> fs.FileSystem:
        """The file system below the table."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        delta_library()
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self.storage_options()))


@dataclass(frozen=True)
class DeltaFile:
    """A file of data: its address in the log, its size in bytes, and the values of its partition."""

    path: str
    size: int
    partition: Mapping[str, Any]  # texts in the log, values in a snapshot


@dataclass(frozen=True)
class DeltaCommit:
    """What a version changed."""

    version: int
    operation: str
    added: tuple[DeltaFile, ...]
    removes: bool  # whether rows were removed or changed; files that are only rewritten are neither
    columns: frozenset[str] | None  # of the table from this version on, if the version says it

    @classmethod
    def parse(cls, version: int, log: bytes) -> DeltaCommit:
        """The commit that a file of the log holds; StateError if its rows can't be read file by file."""
        added, removes, operation, columns = list[DeltaFile](), False, "unknown", None
        for line in log.splitlines():
            action = json.loads(line) if line.strip() else {}
            if "add" in action and action["add"].get("dataChange", True):
                file = action["add"]
                added.append(DeltaFile(file["path"], int(file["size"]), file.get("partitionValues") or {}))
            elif "remove" in action and action["remove"].get("dataChange", True):
                removes = True
            elif "commitInfo" in action:
                operation = str(action["commitInfo"].get("operation", operation))
            elif "protocol" in action:
                check_features(action["protocol"].get("readerFeatures") or ())
            elif "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                columns = frozenset(field["name"] for field in fields)
        return cls(version, operation, tuple(added), removes, columns)


def check_features(features: Sequence[str]) -> None:
    """Refuse a table whose files do not say by themselves which rows it has."""
    unknown = sorted(set(features) - _READ_FEATURES)
    if unknown:
        raise StateError(
            f"a stream can't read a table of Delta Lake with {', '.join(unknown)}: "
            "declare it as a static table, or write one without"
        )


class DeltaReader:
    """The versions and files of a table."""

    def __init__(self, location: DeltaLocation):
        self.location = location
        table = location.open()
        check_features(table.protocol().reader_features or ())
        self.columns = columns_of_table(table)
        self.newest = int(table.version())
        self._partitioned_by = tuple(table.metadata().partition_columns)

    @cached_property
    def _files(self) -> fs.FileSystem:
        return self.location.files()

    def newest_version(self) -> int:
        """The number of the newest version, asked for again."""
        self.newest = int(self.location.open().version())
        return self.newest

    def commit(self, version: int) -> DeltaCommit | None:
        """What a version changed; None if there is no such version in the log."""
        with delta_errors(f"version {version} of {self.location.path} can't be read"):
            try:
                with self._files.open_input_stream(f"_delta_log/{version:020}.json") as file:
                    log = file.read()
            except FileNotFoundError:
                return None
            self.newest = max(self.newest, version)
            return DeltaCommit.parse(version, log)

    def snapshot(self, version: int) -> tuple[DeltaFile, ...]:
        """All files that the table has in a version, oldest first, then by name."""
        table = self.location.open(version)
        with delta_errors(f"version {version} of {self.location.path} can't be read"):
            actions = pa.table(table.get_add_actions())
        rows = actions.select(["path", "size_bytes", "modification_time"]).to_pylist()
        has_partition = "partition" in actions.column_names
        partitions = actions["partition"].to_pylist() if has_partition else [{}] * len(rows)
        order = sorted(range(len(rows)), key=lambda at: (rows[at]["modification_time"], rows[at]["path"]))
        return tuple(DeltaFile(rows[at]["path"], rows[at]["size_bytes"], partitions[at]) for at in order)

    def rows(self, files: Sequence[DeltaFile]) -> pa.Table:
        """The rows of some files, with the columns that the table had when it was opened."""
        schema = pa.schema(list(self.columns.items()))
        with delta_errors(f"files of {self.location.path} can't be read"):
            return pa.concat_tables([schema.empty_table(), *map(self._rows_of, files)])

    def _rows_of(self, file: DeltaFile) -> pa.Table:
        try:
            with self._files.open_input_file(unquote(file.path)) as source:
                rows = plain_table(pq.ParquetFile(source).read())
        except FileNotFoundError:
            raise StateError(
                f"{file.path} of {self.location.path} is gone: VACUUM deletes files that newer versions do not need; "
                "keep them for longer than the stream may be behind"
            ) from None
        columns = []
        for name, kind in self.columns.items():
            if name in self._partitioned_by:
                columns.append(pa.repeat(partition_value(file.partition.get(name), kind), rows.num_rows))
            elif name in rows.column_names:
                columns.append(rows[name].cast(kind))
            else:
                columns.append(pa.nulls(rows.num_rows, kind))
        return pa.table(columns, names=list(self.columns))


def columns_of_table(table: Any) -> dict[str, pa.DataType]:
    """The columns of an opened table, in the types that Transom has."""
    schema = pa.schema(table.schema().to_arrow())
    return {field.name: plain(field.type) for field in schema}


def partition_value(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column, which the log has as text; an empty text is null.

    >>> partition_value("2024-01-01 12:00:00", pa.timestamp("us", "UTC")).as_py().isoformat()
    '2024-01-01T12:00:00+00:00'
    >>> partition_value("", pa.string()).as_py(), partition_value("7", pa.int32()).as_py()
    (None, 7)
    """
    if value is None or value == "":
        return pa.scalar(None, kind)
    if not isinstance(value, str) or kinds.is_string(kind):
        return pa.scalar(value, kind)
    if kinds.is_binary(kind):
        return pa.scalar(value.encode(), kind)
    if kinds.is_timestamp(kind) and kind.tz is not None and not re.search(r"(Z|[+-]\d\d:?\d\d)$", value):
        local = pa.scalar(value).cast(pa.timestamp("us"))
        return pc.assume_timezone(local, "UTC").cast(kind)
    return pa.scalar(value).cast(kind)
