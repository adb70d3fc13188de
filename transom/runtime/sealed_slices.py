"""Sealed slices: what retained rows add up to for the selections of registered queries.

slices/bids/0000000255-5c1f03ab-9d03b7c4.arrow   the slices of one selection, of the rows of one file

A file of retained rows never changes once it is large. So its slices by seconds, minutes and hours are made once, when
the engine has nothing else to do, and take the place of the rows in replays and lookups. They are a copy: no commit
lists them, they go with their file of rows, and slices that can't be read are made again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from posixpath import basename, dirname, splitext

import pyarrow as pa

from transom.errors import CheckpointError, TransomError
from transom.ingest.streams import Stream
from transom.runtime.batch_replay import BatchReplay, ReplaySlices
from transom.runtime.row_history import RowHistory
from transom.runtime.slice_records import SliceRecord, may_have_slices
from transom.runtime.slice_tiers import TierRecord
from transom.state.retained_rows import RetainedBatch, RetainedFile
from transom.storage.file_store import Store
from transom.storage.framed_file import damaged

log = logging.getLogger("transom")

_RECORD = b"transom.slices"  # the key of the record in the metadata of a file
_NAME = re.compile(r"[0-9]{10,}(-[0-9a-f]{8})?-[0-9a-f]{8}\.arrow")  # others are none of an engine's


class SealedSlices:
    """The files of sealed slices of an engine, and those that answer a query."""

    def __init__(self, store: Store, history: RowHistory, zone: str):
        self.store, self.history, self.zone = store, history, zone
        self._names: dict[str, dict[str, list[str]]] = {}  # files by stream and file of rows
        self._records: dict[str, SliceRecord] = {}  # of the files that were read
        self.strays: list[str] = []  # files that an engine that died did not get to delete
        for stream in store.directories("slices"):
            listed = history.committed.get(stream)
            bases = {_base(file.path) for file in listed.files} if listed is not None else set()
            for name in filter(_NAME.fullmatch, store.list(f"slices/{stream}")):
                path = f"slices/{stream}/{name}"
                if _base_of_slices(path) in bases:
                    self._note(stream, path)
                else:
                    self.strays.append(path)

    def _note(self, stream: str, name: str) -> None:
        self._names.setdefault(stream, {}).setdefault(_base_of_slices(name), []).append(name)

    def names_of(self, stream: str, file: RetainedFile) -> list[str]:
        """The slices of a file of rows; a list of its own, because lookups read beside the thread that makes slices."""
        return list(self._names.get(stream, {}).get(_base(file.path), ()))

    def without_rows(self, paths: Iterable[str]) -> list[str]:
        """The slices of files of rows that are not listed any more; they are forgotten."""
        gone: list[str] = []
        for path in paths:
            stream = basename(dirname(path))
            gone += self._names.get(stream, {}).pop(_base(path), ())
        for name in gone:
            self._records.pop(name, None)
        return gone

    def rows(self, stream: str) -> int:
        """How many retained rows of a stream are in slices, of some selection; of files that were read so far."""
        by_file = [
            [self._records.get(name) for name in names]
            for names in list(self._names.get(stream, {}).values())
        ]
        return sum(
            max((tier.rows for record in records if record for tier in record.tiers), default=0)
            for records in by_file
        )

    # --- reading ---

    def for_replay(self, file: RetainedFile, replay: BatchReplay) -> ReplaySlices | None:
        """The slices of a file's rows for a replayed query, and the rows that are in none; None if rows are needed."""
        for name, record, place in self._places(file, replay):
            try:
                tier, table = record.tiers[place], self._table(name, place)
                rows = self._left_out(file, tier, replay.columns)
            except CheckpointError as error:
                log.warning("sealed slices are left alone, and rows are read: %s", error)
                continue
            return ReplaySlices(
                record.read(table, replay), tier.rows, file.low, file.high, tier.batches, rows
            )
        return None

    def rows_to_read(self, file: RetainedFile, replay: BatchReplay) -> int:
        """How many rows of a file are in no slice that answers a replayed query; the slices are not read."""
        for _, record, place in self._places(file, replay):
            return file.rows - record.tiers[place].rows
        return file.rows

    def _places(self, file: RetainedFile, replay: BatchReplay) -> Iterator[tuple[str, SliceRecord, int]]:
        """The slices of a file that answer a replayed query: their name, what they hold, and the place of a tier."""
        stream, query = replay.stream, replay.query
        if not replay.has_slices_from(file.low) or not may_have_slices(query, stream):
            return
        for name in self.names_of(stream.name, file):
            try:
                record = self.record(name)
            except CheckpointError as error:
                log.warning("sealed slices are left alone, and rows are read: %s", error)
                continue
            place = record.tier(query.query.window)
            if place is not None and record.answers(query, stream, self.zone):
                yield name, record, place

    def has_slices(self, stream: str, file: RetainedFile) -> bool:
        """Whether some of a file's rows are in slices: then the stream did not end or fall idle in its batches."""
        return any(
            record.tiers for name in self.names_of(stream, file) if (record := self.readable_record(name))
        )

    def readable_record(self, name: str) -> SliceRecord | None:
        """What a file of slices holds; None if it can't be read."""
        try:
            return self.record(name)
        except CheckpointError:
            return None

    def record(self, name: str) -> SliceRecord:
        """What a file of slices holds; CheckpointError if it can't be read."""
        record = self._records.get(name)
        if record is None:
            with self.store.batches(name) as reader:
                try:
                    record = self._records[name] = SliceRecord.unpacked(
                        (reader.schema.metadata or {})[_RECORD]
                    )
                except (KeyError, TypeError, ValueError) as error:
                    raise damaged(name, f"its record can't be read: {error!r}") from error
        return record

    def _table(self, name: str, place: int) -> pa.Table:
        with self.store.batches(name) as reader:
            return pa.Table.from_batches([reader.get_batch(place)]).replace_schema_metadata()

    def _left_out(self, file: RetainedFile, tier: TierRecord, columns: Sequence[str]) -> pa.Table | None:
        """The rows that are in no slice, batch by batch."""
        if not tier.left_out:
            return None
        batches, table = self.history.read(file, columns)
        return (
            None
            if table is None
            else pa.concat_tables(
                [rows for batch, rows in by_batch(batches, table) if batch.batch_id in tier.left_out]
            )
        )

    # --- writing ---

    def write(
        self,
        file: RetainedFile,
        stream: Stream,
        record: SliceRecord,
        tiers: Sequence[tuple[TierRecord, pa.Table]],
    ) -> None:
        """Write the slices of a selection, also if no tier is worth it: then rows are not added up again."""
        listed = self.history.committed.get(stream.name)
        if listed is None or file not in listed.files:
            return
        record = replace(record, tiers=tuple(one for one, _ in tiers))
        digest = hashlib.sha256(repr((record.where, record.keys, record.slots)).encode()).hexdigest()[:8]
        name = f"slices/{stream.name}/{_base(file.path)}-{digest}.arrow"
        schema = tiers[0][1].schema if tiers else pa.schema([])
        with self.store.writer(name, schema.with_metadata({_RECORD: record.packed()})) as writer:
            for _, table in tiers:
                writer.write_batch(table.combine_chunks().to_batches()[0])
        self._records[name] = record
        if name not in self.names_of(stream.name, file):
            self._note(stream.name, name)

    def delete(self, stream: Stream, file: RetainedFile, name: str) -> None:
        """Delete slices of a file of rows."""
        self._names[stream.name][_base(file.path)].remove(name)
        self._records.pop(name, None)
        try:
            self.store.delete(name)
        except (OSError, TransomError) as error:  # the next engine finds it again
            log.warning("sealed slices can't be deleted: %s", error)


def by_batch(batches: Sequence[RetainedBatch], table: pa.Table) -> Iterator[tuple[RetainedBatch, pa.Table]]:
    """The batches of a file with their rows."""
    start = 0
    for batch in batches:
        yield batch, table.slice(start, batch.rows)
        start += batch.rows


def _base(path: str) -> str:
    """The name of a file of rows, without its ending."""
    return splitext(basename(path))[0]


def _base_of_slices(name: str) -> str:
    """The name of the file of rows that slices belong to."""
    return _base(name).rpartition("-")[0]
