"""Results as rows of a table of Delta Lake, written by the library delta-rs on every backend.

Each batch is one version of the table. The version says which batch it is, by an application transaction of Delta's
protocol: `appId` names the checkpoint and the query, and `version` is the batch. A batch that is in the table is not
written again, and of two engines that write the same batch, one fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from transom.backends.base import NO_KEY, Frame, ResultKey, Sink
from transom.backends.day_sink import days_of
from transom.backends.delta_table import (
    DELTA,
    DeltaCommit,
    DeltaLocation,
    delta_errors,
    delta_library,
    is_delta,
)
from transom.backends.expressions import text_literal
from transom.columns.readable_values import readable_table
from transom.elements import Kind
from transom.errors import BatchError, SettingError, WriteError
from transom.storage.failpoints import failpoint
from transom.storage.file_store import sync_paths

log = logging.getLogger("transom")

MODE, MODES = "mode", ("append", "upsert")
DELTA_SINK_OPTIONS = (MODE, "partition_by", "compact_batches")
_CONFIGURATION = "delta."  # how properties of a table begin
_ATTEMPTS = 20  # while other writers change the table
_KEYED = "transom_keyed"


def delta_sink(format: str, options: Mapping[str, Any]) -> DeltaSink | None:
    """The sink that some options describe, if the format is that of Delta Lake."""
    return DeltaSink(options) if is_delta(format) else None


class DeltaSink(Sink):
    """A table of Delta Lake that results are appended to, or in which they replace those with the same key."""

    format, path = DELTA, None

    def __init__(self, options: Mapping[str, Any]):
        delta_library()
        properties = {str(name): str(text) for name, text in options.items() if is_table_property(name)}
        others = {name: value for name, value in options.items() if not is_table_property(name)}
        self.location, chosen = DeltaLocation.of(None, others, DELTA_SINK_OPTIONS)
        self._mode = chosen.get(MODE, MODES[0]).lower()
        if self._mode not in MODES:
            raise SettingError(f"{MODE}: expected {' or '.join(MODES)}, not {chosen[MODE]}")
        partition_by = chosen.get("partition_by")
        if partition_by not in (None, "day"):
            raise SettingError(f"partition_by: expected day, not {partition_by}")
        self._by_day = partition_by == "day"
        every = chosen.get("compact_batches")
        if every is not None and (not every.isdecimal() or int(every) < 2):
            raise SettingError(f"compact_batches: expected a whole number of at least 2, not {every}")
        self._compact_every = None if every is None else int(every)
        self._uncompacted = 0
        self._properties = properties
        self.location.storage_options()  # refuses a reference that can't be read now
        self._table: Any = self.location.open() if self.location.exists() else None
        self._check_partitions("day", "transom_day")
        self.place = self.location.uri

    @property
    def exactly_once(self) -> bool:
        return True

    def write(self, frame: Frame, batch_id: int, key: ResultKey = NO_KEY) -> None:
        """Write a batch's results as one version of the table, unless the table has them."""
        upserts = self._mode == "upsert" and bool(key.columns)  # a result without a window has no key
        if upserts:
            frame = frame.extend({_KEYED: key.condition})
        rows = self._rows(readable_table(frame.to_table()), key)
        if upserts:
            rows = _last_of_each_key(rows, key)
        checkpoint = self.writer()
        writer = checkpoint if key.query is None else f"{checkpoint}-{key.query}"
        failpoint("sink", "create")
        with self.guarded(), delta_errors(f"{self.location.path} can't be written", WriteError):
            if self._table is None:
                self._table = self._created(rows.schema, key)
            self._check_partitions(key.day)
            self._commit(rows, batch_id, key, writer)
        failpoint("sink", "renamed")
        self._compact()

    def _rows(self, rows: pa.Table, key: ResultKey) -> pa.Table:
        """The results with columns for the query and the day where the table has them, in types that Delta has."""
        if self._mode == "upsert" and key.query is not None:
            rows = rows.add_column(0, key.query_column, pa.repeat(key.query, rows.num_rows))
        if self._by_day:
            days = pa.array(days_of(rows, key).astype("int32"), pa.int32()).cast(pa.date32())
            rows = rows.append_column(key.day, days)
        for at, field in enumerate(rows.schema):
            if pa.types.is_null(field.type):  # a table with such a column can't be read by most tools
                rows = rows.set_column(at, field.name, rows[field.name].cast(pa.string()))
        return rows

    def _created(self, schema: pa.Schema, key: ResultKey) -> Any:
        columns = [field for field in schema if field.name != _KEYED]
        return delta_library().DeltaTable.create(
            self.location.uri,
            pa.schema(columns),
            mode="ignore",
            partition_by=[key.day] if self._by_day else None,
            configuration=self._properties or None,
            storage_options=self.location.storage_options(),
        )

    def _check_partitions(self, *days: str) -> None:
        if self._table is None or not self._by_day:
            return
        columns = list(self._table.metadata().partition_columns)
        if columns not in [[day] for day in days]:
            by = f"partitioned by {', '.join(columns)}" if columns else "not partitioned"
            raise SettingError(f"partition_by: day is for a new table, and {self.location.path} is {by}")

    def _commit(self, rows: pa.Table, batch_id: int, key: ResultKey, writer: str) -> None:
        """Write a version; another writer may come first, and then the attempt is repeated on top of its version."""
        library = delta_library()
        transaction = library.Transaction(writer, batch_id, time.time_ns() // 1_000_000)
        begun = int(self._table.version())
        for attempt in range(_ATTEMPTS):
            self._table.update_incremental()
            written = self._table.transaction_version(writer)
            if written == batch_id:
                # The first attempt may not have come so far.
                self._sync(int(self._table.version()) - _ATTEMPTS)
                return
            if written is not None and written > batch_id:
                raise BatchError(
                    f"{self.location.path} has results of batches up to {written}, and batch {batch_id} comes after "
                    "them: the checkpoint is older than the table; write to another table"
                )
            properties = library.CommitProperties(
                custom_metadata={"transom.batch": str(batch_id)}, app_transactions=[transaction]
            )
            failpoint("sink", "rename")
            try:
                if _KEYED in rows.column_names:
                    self._merge(rows, key, properties)
                else:
                    self._append(rows, properties)
                self._uncompacted += 1
                self._sync(begun)
                return
            except library.exceptions.CommitFailedError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * attempt)

    def _sync(self, since: int) -> None:
        """Wait until the versions from one on are on disk: the checkpoint will say that the results are there."""
        if not (self.sync and self.location.is_local):
            return
        root = Path(self.location.uri)
        for version in range(max(0, since), int(self._table.version()) + 1):
            log_file = root / f"_delta_log/{version:020}.json"
            if not log_file.exists():  # deleted as the log's retention says
                continue
            files = [
                root / unquote(file.path) for file in DeltaCommit.parse(version, log_file.read_bytes()).added
            ]
            there = [file for file in files if file.exists()]  # others were compacted and vacuumed
            directories = {file.parent for file in there}
            sync_paths([str(place) for place in (*there, log_file, *directories, log_file.parent, root)])

    def _append(self, rows: pa.Table, properties: Any) -> None:
        delta_library().write_deltalake(
            self._table, rows, mode="append", schema_mode="merge", commit_properties=properties
        )

    def _merge(self, rows: pa.Table, key: ResultKey, properties: Any) -> None:
        """Replace rows with the same key, delete those that are retracted, and append the others."""
        self._add_columns(rows.schema)
        every = {_quoted(name): f"source.{_quoted(name)}" for name in rows.column_names if name != _KEYED}
        merger = self._table.merge(
            rows,
            " AND ".join(merge_conditions(key, self._by_day)),
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        )
        is_retracted = f"source.{_quoted(key.kind)} = {text_literal(Kind.RETRACTION.value)}"
        merger.when_matched_delete(is_retracted)
        merger.when_matched_update(every).when_not_matched_insert(every, f"NOT {is_retracted}").execute()

    def _add_columns(self, schema: pa.Schema) -> None:
        """Add columns that an edit of the query has brought. A merge of schemas would add the helping column, too."""
        known = {field.name for field in self._table.schema().fields}
        new = [field for field in schema if field.name not in known and field.name != _KEYED]
        if new:
            added = delta_library().Schema.from_arrow(pa.schema(new))
            self._table.alter.add_columns(added.fields)

    def _compact(self) -> None:
        """Make large files of small ones now and then. Results are written already: if it fails, the batch does not."""
        if self._compact_every is None or self._uncompacted < self._compact_every:
            return
        self._uncompacted = 0
        try:
            with self.guarded(), delta_errors(f"{self.location.path} can't be compacted"):
                self._table.optimize.compact()
        except Exception as error:
            log.warning("%s", error)


def merge_conditions(key: ResultKey, by_day: bool) -> list[str]:
    """The conditions under which a row of the table (`target`) has the key of a new one (`source`). A null is a group.

    >>> merge_conditions(ResultKey(("window_end", "site"), "q"), by_day=False)[-1]
    '(target."site" IS NOT DISTINCT FROM source."site")'
    """
    # An equality lets the library skip files by their statistics, and partitions of other days.
    equal = [key.query_column, *((key.day,) if by_day else ())]
    others = [name for name in key.columns if name not in equal]
    return [
        f"source.{_quoted(_KEYED)}",
        *(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in equal),
        *(f"(target.{_quoted(name)} IS NOT DISTINCT FROM source.{_quoted(name)})" for name in others),
    ]


def _last_of_each_key(rows: pa.Table, key: ResultKey) -> pa.Table:
    """The rows that no other row of the batch replaces: the last of each key; an early one replaces only early ones."""
    keys = map(repr, rows.select(list(dict.fromkeys((key.query_column, *key.columns)))).to_pylist())
    is_late = [kind != Kind.EARLY.value for kind in rows[key.kind].to_pylist()]
    last: dict[Any, int] = {}
    for at, (identity, is_keyed) in enumerate(zip(keys, rows[_KEYED].to_pylist(), strict=True)):
        name = identity if is_keyed else at
        if name not in last or is_late[at] >= is_late[last[name]]:
            last[name] = at
    return rows if len(last) == rows.num_rows else rows.take(sorted(last.values()))


def is_table_property(name: str) -> bool:
    """Whether an option is a property of a new table, such as `delta.appendOnly`."""
    return name.startswith(_CONFIGURATION)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
