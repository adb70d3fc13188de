"""A table of Delta Lake as a stream: the files that each version adds, version by version.

A stream begins with the rows that the table has, and goes on with those that new versions add. A batch has files of
one version. Files and the log never change, so a batch that is read again has the same rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transom.backends.base import Backend, Frame, PartitionOffset
from transom.backends.delta_table import DeltaCommit, DeltaFile, DeltaLocation, DeltaReader
from transom.columns.types import Columns
from transom.errors import SettingError, StateError
from transom.ingest.source_view import SourceView
from transom.ingest.sources import NextBatch, Reference, Source, SourceStatus

log = logging.getLogger("transom")

# The names that Delta's own connector for Spark has.
STARTING_VERSION, SKIP_CHANGES = "startingVersion", "skipChangeCommits"
FILES_PER_TRIGGER, BYTES_PER_TRIGGER = "maxFilesPerTrigger", "maxBytesPerTrigger"
DELTA_STREAM_OPTIONS = (STARTING_VERSION, SKIP_CHANGES, FILES_PER_TRIGGER, BYTES_PER_TRIGGER)
_DEFAULT_FILES, _DEFAULT_BYTES = 1_000, 128 << 20  # of a batch, which is read on the driver
_LATEST = "latest"
_CHECK_SECONDS = 60.0  # between two looks at whether the log has lost the next version
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class DeltaPosition:
    """The next file to read: of all that the table has in a version, or of those that the version added."""

    version: int
    is_snapshot: bool = False
    file: int = 0

    @property
    def next_version(self) -> DeltaPosition:
        """The position after all files of this one's version."""
        return DeltaPosition(self.version + 1)

    def to_json(self) -> list[int]:
        return [self.version, int(self.is_snapshot), self.file]

    @classmethod
    def from_json(cls, stored: Any) -> DeltaPosition:
        version, is_snapshot, file = stored
        return cls(int(version), bool(is_snapshot), int(file))


@dataclass(frozen=True)
class DeltaStreamOptions:
    """How a stream reads a table."""

    starting_version: str | None = None  # a number or `latest`; None: with the rows that the table has
    skips_changes: bool = False  # whether versions that remove rows are left out; otherwise they are errors
    most_files: int = _DEFAULT_FILES
    most_bytes: int = _DEFAULT_BYTES

    @classmethod
    def of(cls, given: Mapping[str, str]) -> DeltaStreamOptions:
        """The options of a source, by their names.

        >>> DeltaStreamOptions.of({"maxBytesPerTrigger": "64m"}).most_bytes
        67108864
        """
        start = given.get(STARTING_VERSION)
        if start is not None and start.lower() != _LATEST and not start.isdecimal():
            raise SettingError(f"{STARTING_VERSION}: expected the number of a version or latest, not {start}")
        skips = given.get(SKIP_CHANGES, "false").lower()
        if skips not in ("true", "false"):
            raise SettingError(f"{SKIP_CHANGES}: expected true or false, not {skips}")
        files, size = (
            given.get(FILES_PER_TRIGGER, str(_DEFAULT_FILES)),
            given.get(BYTES_PER_TRIGGER, "128m").lower(),
        )
        if not files.isdecimal() or int(files) < 1:
            raise SettingError(f"{FILES_PER_TRIGGER}: expected a whole number of at least 1, not {files}")
        digits, unit = (size[:-1], _UNITS[size[-1]]) if size[-1:] in _UNITS else (size, 1)
        if not digits.isdecimal() or int(digits) < 1:
            raise SettingError(f"{BYTES_PER_TRIGGER}: expected a number of bytes such as 128m, not {size}")
        return cls(start and start.lower(), skips == "true", int(files), int(digits) * unit)


class DeltaSource(Source):
    """The rows that versions of a table add."""

    kind = "Delta table"

    def __init__(
        self,
        backend: Backend,
        table: DeltaReader,
        options: DeltaStreamOptions | None = None,
        view: SourceView | None = None,
    ):
        self._backend, self._table, self._view = backend, table, view
        self._options = options or DeltaStreamOptions()
        start = self._options.starting_version
        if start is None:
            self._next = DeltaPosition(table.newest, is_snapshot=True)
        else:
            self._next = DeltaPosition(table.newest + 1 if start == _LATEST else int(start))
        self._listed: tuple[tuple[int, bool], tuple[DeltaFile, ...]] | None = None  # files of a version
        self._sampled: DeltaFile | None = None
        self._checked = 0.0
        self._new_columns: set[str] = set()  # that were noted in the log

    @classmethod
    def open(
        cls, backend: Backend, name: str, path: str | None, options: Mapping[str, Any], select: str | None
    ) -> DeltaSource:
        """The source that a description's options describe."""
        location, chosen = DeltaLocation.of(path, options, DELTA_STREAM_OPTIONS)
        stream_options = DeltaStreamOptions.of(chosen)
        table = DeltaReader(location)
        view = None if select is None else SourceView.bind(select, name, table.columns, backend.scalars)
        return cls(backend, table, stream_options, view)

    @property
    def columns(self) -> Columns:
        return self._table.columns if self._view is None else self._view.columns

    def next(self, batch_id: int) -> NextBatch | None:
        while (files := self._files(self._next)) is not None:
            position = self._next
            if position.file < len(files):
                end = self._end(files, position.file)
                after = replace(position, file=end) if end < len(files) else position.next_version
                reference = {"delta": position.to_json(), "end": end, "next": after.to_json()}
                return NextBatch(reference)
            self._next = position.next_version  # no rows: a change of the schema, or files that were merged
        return None

    def _end(self, files: tuple[DeltaFile, ...], start: int) -> int:
        """Where the batch ends that begins with a file."""
        size, end = files[start].size, start + 1
        while end < min(len(files), start + self._options.most_files):
            size += files[end].size
            if size > self._options.most_bytes:
                break
            end += 1
        return end

    def _files(self, position: DeltaPosition) -> tuple[DeltaFile, ...] | None:
        """The files of a position's version; None if there is no such version yet."""
        name = (position.version, position.is_snapshot)
        if self._listed is None or self._listed[0] != name:
            files = self._files_of(position)
            if files is None:
                return None
            self._listed = name, files
        return self._listed[1]

    def _files_of(self, position: DeltaPosition) -> tuple[DeltaFile, ...] | None:
        if position.is_snapshot:
            return self._table.snapshot(position.version)
        commit = self._table.commit(position.version)
        if commit is None:
            self._check_log(position.version)
            return None
        self._note_columns(commit)
        if not commit.removes:
            return commit.added
        if not self._options.skips_changes:
            raise StateError(
                f"version {commit.version} of {self._table.location.path} ({commit.operation}) removes or changes "
                f"rows, and a stream can't take back what it has counted: set {SKIP_CHANGES}: true to leave out "
                "such versions as a whole"
            )
        log.warning(
            "version %d of %s (%s) removes or changes rows: it is left out",
            commit.version,
            self._table.location.path,
            commit.operation,
        )
        return ()

    def _check_log(self, version: int) -> None:
        """Raise if a version is missing because Delta has deleted it, not because it is still to come."""
        if time.monotonic() - self._checked < _CHECK_SECONDS:
            return
        newest = self._table.newest_version()
        self._checked = time.monotonic()
        if newest >= version and self._table.commit(version) is None:
            raise StateError(
                f"version {version} of {self._table.location.path} is not in its log any more, and the newest is "
                f"{newest}: keep the log for longer (delta.logRetentionDuration) than the stream may be behind"
            )

    def _note_columns(self, commit: DeltaCommit) -> None:
        new = (commit.columns or frozenset()) - self._table.columns.keys() - self._new_columns
        for name in sorted(new):
            log.warning(
                "%s has a new column %s: restart the engine to read it", self._table.location.path, name
            )
        self._new_columns |= new

    def read(self, reference: Reference) -> Frame:
        position = DeltaPosition.from_json(reference["delta"])
        files = self._files_to_read(position)[position.file : reference["end"]]
        self._sampled = files[-1]
        return self._frame(self._table.rows(files))

    def _files_to_read(self, position: DeltaPosition) -> tuple[DeltaFile, ...]:
        """The files of a begun batch's version, whatever the options say about its changes."""
        if self._listed is not None and self._listed[0] == (position.version, position.is_snapshot):
            return self._listed[1]
        if position.is_snapshot:
            return self._table.snapshot(position.version)
        commit = self._table.commit(position.version)
        if commit is None:
            raise StateError(
                f"version {position.version} of {self._table.location.path} is not in its log any more"
            )
        return commit.added

    def _frame(self, rows: Any) -> Frame:
        frame = self._backend.frame(rows)
        return frame if self._view is None else self._view.apply(frame)

    def sample(self) -> Frame | None:
        file = self._sampled
        if file is None:
            file = next(iter(self._table.snapshot(self._table.newest)), None)
        return None if file is None else self._frame(self._table.rows([file]))

    def status(self) -> SourceStatus:
        last = self._next.version if self._next.file else self._next.version - 1
        return SourceStatus(
            self.kind, partitions=(PartitionOffset("version", max(last, 0), self._table.newest),)
        )

    def advance(self, reference: Reference) -> None:
        self._next = DeltaPosition.from_json(reference["next"])

    def progress(self) -> Any:
        return self._next.to_json()

    def resume(self, progress: Any) -> None:
        self._next = DeltaPosition.from_json(progress)
