"""Late and rejected rows under the checkpoint: a directory for the rows of a batch, listed by the commit record.

late/bids/0000000012/part.arrow      rows that were on the driver
late/bids/0000000013-5c1f/           Parquet files that the backend wrote, and their seal
late/bids/.../queries.json           the queries that the bits of late rows stand for, batch by batch

When there are many, the newest ones are merged into one file. A file that is merged is at least half as large as
all newer ones together, so that a row is merged only a few times.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transom.backends.base import Frame
from transom.backends.hidden_columns import TIME_TEXT
from transom.columns.bit_columns import bit_matrix
from transom.columns.readable_values import readable_table
from transom.errors import CheckpointError
from transom.ingest.late_rows import MISSED_BY
from transom.ingest.streams import Stream
from transom.state.commit_record import RowFiles
from transom.storage.file_store import Store, is_of_batches_to
from transom.storage.framed_file import damaged
from transom.storage.sealed_directory import seal, sealed_files, write_frame

ROW_OUTPUTS = ("late", "rejected")
BATCH_COLUMN = "batch"  # the column that says which batch a row came with
QUERIES_FILE = "queries.json"  # beside late rows
NAME_LISTS = pa.list_(pa.string())
QueryGroups = Sequence[
    Sequence[tuple[str, int]]
]  # for each bit the queries, and the batches they joined with
_PART = "part.arrow"
_MERGED_BATCH = "__batch__"  # the same column in files of several batches
MOST_PARTS = 16  # of a kind and stream, before the newest are merged
_LARGE = 1 << 24  # bytes; larger files are not merged, as that happens on the driver


class RowOutputs:
    """Writes the late and rejected rows of batches, and reads back those of committed batches."""

    def __init__(self, store: Store):
        self.store = store
        self.committed: dict[str, tuple[RowFiles, ...]] = {}  # by kind and stream, such as `late/bids`
        self._written: dict[str, RowFiles] = {}  # by the batch that is being processed

    def resume(self, committed: Mapping[str, tuple[RowFiles, ...]]) -> None:
        """Continue with the files that a commit lists."""
        self.committed = dict(committed)

    def write(
        self, kind: str, stream: str, batch_id: int, rows: Frame | None, on_driver: bool = False
    ) -> None:
        """Write a batch's rows: here if they are on the driver, else by the backend."""
        where = f"{kind}/{stream}"
        if (before := self._written.pop(where, None)) is not None:  # of an attempt that failed
            self.store.delete(before.directory)
        if rows is None:
            return
        if on_driver:
            table = rows.to_table(few=True)
            if table.num_rows:
                directory = f"{where}/{batch_id:010d}"
                self.store.write_table(f"{directory}/{_PART}", table)
                self._written[where] = RowFiles(directory, batch_id, batch_id, 0, table.nbytes, False)
            return
        # Under a name of its own: the backend's writer is not stopped when another engine takes over.
        directory = f"{where}/{batch_id:010d}-{uuid.uuid4().hex[:8]}"
        write_frame(self.store, directory, rows)
        self._written[where] = RowFiles(directory, batch_id, batch_id, 0, seal(self.store, directory), True)

    def after(
        self, batch_id: int, made: int, is_dropped: Callable[[str], bool]
    ) -> dict[str, tuple[RowFiles, ...]]:
        """The files that the commit of a batch lists, without those of dropped queries; many small ones are merged."""
        listed = {
            where: parts for where, parts in self.committed.items() if not is_dropped(where.partition("/")[2])
        }
        for where, part in self._written.items():
            if part.last == batch_id:
                parts = (*listed.get(where, ()), part._replace(made=made))
                listed[where] = self._merged(where, parts) if len(parts) > MOST_PARTS else parts
        return listed

    def commit(self, listed: Mapping[str, tuple[RowFiles, ...]]) -> list[str]:
        """Let readers see the files that a commit lists; the directories that it does not list any more."""
        kept = {part.directory for parts in listed.values() for part in parts}
        before = [*self.committed.values(), tuple(self._written.values())]
        self.committed, self._written = dict(listed), {}
        return [part.directory for parts in before for part in parts if part.directory not in kept]

    def _merged(self, where: str, parts: tuple[RowFiles, ...]) -> tuple[RowFiles, ...]:
        """The files with the newest ones made into one."""
        start, total = len(parts), 0
        while start and parts[start - 1].bytes <= _LARGE:
            if len(parts) - start >= MOST_PARTS // 2 and parts[start - 1].bytes > 2 * total:
                break
            start -= 1
            total += parts[start].bytes
        small = parts[start:]
        if len(small) < 2:
            return parts
        tables = [self._with_batch(table, part) for part in small for table in self._tables(part)]
        try:
            whole = pa.concat_tables(tables, promote_options="default")
        except pa.ArrowException:  # the stream's columns changed their types in between
            return parts
        directory = f"{where}/{small[-1].last:010d}-{uuid.uuid4().hex[:8]}"
        self.store.write_table(f"{directory}/{_PART}", whole)
        if MISSED_BY in whole.column_names:
            queries = [self._late_queries(part) for part in small]
            self._write_queries(
                directory, {batch: groups for each in queries for batch, groups in each.items()}
            )
        merged = RowFiles(directory, small[0].first, small[-1].last, small[-1].made, total, False)
        return (*parts[:start], merged)

    @staticmethod
    def _with_batch(table: pa.Table, part: RowFiles) -> pa.Table:
        """The rows with the batch that each came with."""
        if _MERGED_BATCH in table.column_names:
            return table
        batch = pa.repeat(pa.scalar(part.first, pa.int64()), table.num_rows)
        return table.append_column(_MERGED_BATCH, batch)

    def strays(self, batch_id: int) -> Iterator[str]:
        """Directories of batches up to one that no commit lists: attempts that failed left them."""
        listed = {part.directory for parts in self.committed.values() for part in parts}
        for kind in ROW_OUTPUTS:
            for stream in self.store.directories(kind):
                for name in self.store.list(f"{kind}/{stream}"):
                    directory = f"{kind}/{stream}/{name}"
                    if is_of_batches_to(batch_id, name) and directory not in listed:
                        yield directory

    def write_late_queries(self, stream: str, groups: QueryGroups) -> None:
        """Write what the bits of a batch's late rows stand for."""
        written = self._written.get(f"late/{stream}")
        if written is not None:
            self._write_queries(written.directory, {written.first: groups})

    def _write_queries(self, directory: str, by_batch: Mapping[int, QueryGroups]) -> None:
        """Write the groups of each batch; those of most batches are the same, and are stored once."""
        texts = {batch_id: json.dumps(groups) for batch_id, groups in by_batch.items()}
        places = {text: place for place, text in enumerate(dict.fromkeys(texts.values()))}
        stored = {
            "groups": [json.loads(text) for text in places],
            "batches": {str(batch_id): places[text] for batch_id, text in texts.items()},
        }
        self.store.write(f"{directory}/{QUERIES_FILE}", json.dumps(stored).encode())

    def _late_queries(self, part: RowFiles) -> dict[int, QueryGroups]:
        """What the bits of late rows stand for, by batch."""
        stored = json.loads(self.store.read(f"{part.directory}/{QUERIES_FILE}"))
        return {int(batch_id): stored["groups"][place] for batch_id, place in stored["batches"].items()}

    def late(
        self,
        stream: Stream,
        since: Mapping[str, int] | None = None,
        renamed: Mapping[tuple[str, int], str] | None = None,
    ) -> pa.Table:
        """A stream's late rows up to the last committed batch, each with the names of the queries that missed it.

        With `since`, only the rows that these queries missed, which joined with these batches. `renamed` has the names
        of queries by the names and batches that they joined with.
        """
        columns = [*stream.columns.items(), ("reason", pa.string()), (MISSED_BY, NAME_LISTS)]

        def with_names(part: RowFiles, table: pa.Table) -> pa.Table:
            groups = self._late_queries(part)
            batches = self._with_batch(table, part)[_MERGED_BATCH].to_numpy()
            borders = np.r_[0, np.flatnonzero(np.diff(batches)) + 1, len(batches)].tolist()
            names = [
                query_names(
                    table[MISSED_BY].slice(start, stop - start),
                    groups[int(batches[start])],
                    since,
                    renamed or {},
                )
                for start, stop in pairwise(borders)
                if start < stop
            ]
            column = pa.chunked_array(names, NAME_LISTS)
            return table.set_column(table.schema.get_field_index(MISSED_BY), MISSED_BY, column)

        late = self._read("late", stream.name, pa.schema(columns), with_names)
        if since is None:
            return late
        return late.filter(pc.greater(pc.list_value_length(late[MISSED_BY]), 0))

    def rejected(self, stream: Stream) -> pa.Table:
        """A stream's rejected rows up to the last committed batch, with the text of what could not be parsed."""
        read = dict(stream.source.columns)
        text = {TIME_TEXT: pa.string()} if read[stream.rules.clock.attribute] == pa.string() else {}
        columns = read | dict(stream.columns) | text
        schema = pa.schema([*columns.items(), ("reason", pa.string())])
        return self._read("rejected", stream.name, schema)

    def _read(
        self,
        kind: str,
        stream: str,
        schema: pa.Schema,
        decode: Callable[[RowFiles, pa.Table], pa.Table] | None = None,
    ) -> pa.Table:
        """All rows of committed batches, each with its batch; CheckpointError if some are missing."""
        where = f"{kind}/{stream}"
        schema = schema.append(pa.field(BATCH_COLUMN, pa.int64()))
        parts_read = [schema.empty_table()]
        for part in self.committed.get(where, ()):
            try:
                tables = list(self._tables(part))
                if decode is not None:
                    tables = [decode(part, table) for table in tables]
            except CheckpointError:
                if part in self.committed.get(where, ()):
                    raise
                return self._read(kind, stream, schema.remove(len(schema) - 1), decode)  # deleted meanwhile
            for table in tables:
                columns = [table[name].cast(schema.field(name).type) for name in schema.names[:-1]]
                columns.append(self._with_batch(table, part)[_MERGED_BATCH])
                parts_read.append(pa.Table.from_arrays(columns, schema=schema))
        return readable_table(pa.concat_tables(parts_read))

    def _tables(self, part: RowFiles) -> Iterator[pa.Table]:
        if not part.is_sealed:
            yield self.store.read_table(f"{part.directory}/{_PART}")
            return
        for file in sealed_files(self.store, part.directory):
            yield read_parquet(file, self.store.raw(file))


def query_names(
    bits: pa.ChunkedArray,
    groups: QueryGroups,
    since: Mapping[str, int] | None,
    renamed: Mapping[tuple[str, int], str],
) -> pa.Array:
    """The queries that missed each row; of those in `since` only, if they joined with these batches."""
    chosen = [
        [
            renamed.get((name, joined), name)
            for name, joined in group
            if since is None or since.get(name) == joined
        ]
        for group in groups
    ]
    names_by_bits: dict[bytes, list[str]] = {}  # many rows are missed by the same queries
    names = []
    for row in bit_matrix(bits, len(groups)):
        key = row.tobytes()
        if key not in names_by_bits:
            names_by_bits[key] = [name for place in np.flatnonzero(row) for name in chosen[place]]
        names.append(names_by_bits[key])
    return pa.array(names, NAME_LISTS)


def parquet_schema(name: str, packed: bytes) -> pa.Schema:
    """The schema of a file, with its metadata."""
    try:
        return pq.read_schema(pa.BufferReader(packed))
    except pa.ArrowException as error:
        raise damaged(name, str(error)) from error


def read_parquet(name: str, packed: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """A file that Spark wrote, or some of its columns: its times may be of any year, which nanoseconds can't hold."""
    try:
        if columns is not None:
            with pq.ParquetFile(pa.BufferReader(packed), coerce_int96_timestamp_unit="us") as file:
                return file.read(list(columns))
        return pq.read_table(pa.BufferReader(packed), coerce_int96_timestamp_unit="us")
    except pa.ArrowException as error:
        raise damaged(name, str(error)) from error
