"""Results in the order in which they were made, for readers with cursors.

The engine keeps nothing per reader. The newest results are in memory, once for all readers; a reader that
falls behind reads the results of older batches from the checkpoint.

    checkpoint    batch 1 ... batch 812            (results of batches)
    memory                       batch 813, a prod, batch 814, ...
                                 1         2       3            numbers of entries
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from transom.errors import SettingError
from transom.results.result_rows import ResultBatch, Results
from transom.runtime.batch_report import BatchReport
from transom.runtime.loop import BatchLoop
from transom.runtime.registry import identity

UNLIMITED = 1 << 30  # rows, for readers that set no limit
MOST_ENTRIES = 10_000
MOST_READ = 64  # queries whose older results are cached
QUERY_OVERHEAD = 600  # bytes that a query takes in an entry, beside its values
DEEP = 64  # batches that are read back to show older results
BEFORE_ANY = 1 << 62  # for a query that has not joined yet: it has no results


# Readers store cursors: the names of their parts are independent of the attributes.
_CURSOR = re.compile(
    r"batch\.(?P<batch>[0-9]{1,18})-epoch\.(?P<epoch>[0-9a-f]{0,8})"
    r"-entry\.(?P<entry>[0-9]{1,18})-row\.(?P<row>[0-9]{1,18})"
)


@dataclass(frozen=True)
class Cursor:
    """A reader's position: it has read the results of all batches before `batch_id`; while the journal has
    this `epoch`, all entries up to `number`; and `row` rows of the next part.

    >>> str(Cursor(813, "c0ffee", 2, 10))
    'batch.813-epoch.c0ffee-entry.2-row.10'
    >>> Cursor.parse("batch.813-epoch.c0ffee-entry.2-row.10")
    Cursor(batch_id=813, epoch='c0ffee', number=2, row=10)
    """

    batch_id: int = 0
    epoch: str = ""
    number: int = 0
    row: int = 0

    def __str__(self) -> str:
        return f"batch.{self.batch_id}-epoch.{self.epoch}-entry.{self.number}-row.{self.row}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor of a text that a reader sends back."""
        parts = _CURSOR.fullmatch(text)
        if parts is None:
            raise SettingError(f"not a cursor: {text!r}; take one that came with results")
        return cls(int(parts["batch"]), parts["epoch"], int(parts["entry"]), int(parts["row"]))


@dataclass(frozen=True)
class JournalQuery:
    """A query whose results are read: the name and the batch that it joined with, and its schema."""

    name: str
    since: int
    schema: pa.Schema

    @property
    def identity(self) -> str:
        return identity(self.name, self.since)


@dataclass(frozen=True)
class Read:
    """Some results of a query, and the cursor after them."""

    table: pa.Table
    cursor: Cursor
    more: bool  # whether there is more already


@dataclass(frozen=True)
class JournalEntry:
    """The results of a batch, or the answer to a prod."""

    number: int
    batch_id: int  # the last batch that was committed by then
    made: int  # the batch that its results are as of; a newer one may be committed
    results: Results
    is_batch: bool
    bytes: int
    renamed: Mapping[str, str] = field(
        default_factory=dict
    )  # the names of renamed queries by their identities

    def name(self, query: JournalQuery) -> str:
        """The name that a query had in the entry."""
        return self.renamed.get(query.identity, query.name)

    def of(self, query: JournalQuery) -> pa.Table | None:
        """The results of one query, if it has any."""
        name = self.name(query)
        if self.made < query.since or name not in self.results:
            return None
        try:
            table = self.results[name]
        except FileNotFoundError:  # stored in files that were deleted since
            return None
        return table if table.schema == query.schema else None  # of another query that had its name


@dataclass(frozen=True)
class Part:
    """The results of a query in a batch or an entry, if any, between two cursors."""

    before: Cursor
    behind: Cursor
    table: pa.Table | None = None


class Journal:
    """The newest results of a batch loop in memory, at most `limit` bytes; older ones are read back.

    Answers to prods are delivered while they are in memory, and not read back: a later reader sees the finals.
    """

    def __init__(self, loop: BatchLoop, limit: int):
        self.loop, self.limit, self.epoch = loop, limit, uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        self._entries: list[JournalEntry] = []
        self._last, self._bytes = 0, 0
        self._evicted = False
        self._listeners: list[Callable[[], None]] = []
        self._read: dict[tuple[str, int, int], tuple[pa.Table, int]] = {}  # what was before, and until where
        with loop.lock:
            self._through = loop.state.batch_id  # the last batch that was committed, and is in no later entry
            loop.followers.append(self._batch)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call back after every batch and prod, in the thread that made it; returns a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _batch(self, report: BatchReport) -> None:
        self._add(report.batch_id, report.results, is_batch=True)

    def add_prod(self, results: Results, batch_id: int) -> None:
        """Add the answer to a prod, from the state after a batch."""
        if results:
            self._add(batch_id, results, is_batch=False)

    def _add(self, batch_id: int, results: Results, is_batch: bool) -> None:
        kept, registry = compact(results), self.loop.directory.registry
        renamed = {entry.identity: entry.name for entry in registry if entry.origin is not None}
        size = sum(part.table.nbytes for part in kept.batches) + QUERY_OVERHEAD * len(kept)
        with self._lock:
            self._through = batch_id if is_batch else self._through
            if results:
                self._last += 1
                self._entries.append(
                    JournalEntry(self._last, self._through, batch_id, kept, is_batch, size, renamed)
                )
                self._bytes += size
            while (self._bytes > self.limit or len(self._entries) > MOST_ENTRIES) and len(self._entries) > 1:
                self._bytes -= self._entries.pop(0).bytes
                self._evicted = True
        for listener in list(self._listeners):
            listener()

    # --- reading ---

    @property
    def is_whole(self) -> bool:
        """Whether all results since the journal began are in memory."""
        return not self._evicted

    def end(self) -> Cursor:
        """The cursor after the last result."""
        with self._lock:
            return Cursor(self._through + 1, self.epoch, self._last)

    def is_in_memory(self, query: JournalQuery, cursor: Cursor) -> bool:
        """Whether what comes after a cursor is in memory, and can be read at once."""
        with self._lock:
            if not self._holds(cursor):
                return False
            entries = self._behind(cursor)
        return not any(entry.name(query) in entry.results.stored for entry in entries)

    def read(self, query: JournalQuery, cursor: Cursor, limit: int = UNLIMITED) -> Read:
        """At most `limit` results after a cursor, the oldest first."""
        with self._lock:
            is_held = self._holds(cursor)
            entries = self._behind(cursor) if is_held else list(self._entries)
            first = entries[0].number if entries else self._last + 1
            batches = (entry.batch_id for entry in entries if entry.is_batch)
            here = Cursor(next(batches, self._through + 1), self.epoch, first - 1)
        if is_held:
            return _filled(query, cursor, self._in_memory(query, entries), limit)
        if cursor.epoch:  # rows of an entry that is no longer there
            cursor = Cursor(cursor.batch_id)
        stored = self._stored(query, cursor.batch_id, here.batch_id)
        return _filled(
            query,
            cursor,
            chain(stored, [Part(here, here)], self._in_memory(query, entries, cursor.batch_id)),
            limit,
        )

    def recent(self, query: JournalQuery, limit: int, deep: bool = False) -> pa.Table:
        """The newest results that are in memory, the oldest of them first; if they are few, and it may be
        `deep`, those of some batches before that too."""
        with self._lock:
            entries = list(self._entries)
            through = self._through
        first = next((entry.batch_id for entry in entries if entry.is_batch), through + 1)
        tables_read: list[pa.Table] = []
        rows = 0
        for entry in reversed(entries):
            if (table := entry.of(query)) is not None:
                tables_read.append(table)
                rows += table.num_rows
            if rows >= limit:
                break
        if deep and rows < limit:
            tables_read.append(self._before(query, first, limit))
        newest = pa.concat_tables([query.schema.empty_table(), *reversed(tables_read)])
        return newest.slice(max(newest.num_rows - limit, 0))

    def _before(self, query: JournalQuery, until: int, limit: int) -> pa.Table:
        """The newest results of the batches before one; those that were read once are not read again."""
        key = query.name, query.since, limit
        with self._lock:
            read_before, since = self._read.pop(key, (query.schema.empty_table(), query.since))
        retained = (batch.batch_id for batch in self.loop.outputs.result_batches)
        batches = [batch_id for batch_id in retained if since <= batch_id < until][-DEEP:]
        tables = (
            self.loop.outputs.batch_results(query.name, query.schema, query.since, batch_id)
            for batch_id in batches
        )
        table = pa.concat_tables([read_before, *tables])
        table = table.slice(max(table.num_rows - limit, 0))
        with self._lock:
            self._read[key] = table, until
            while len(self._read) > MOST_READ:
                del self._read[next(iter(self._read))]
        return table

    def _holds(self, cursor: Cursor) -> bool:
        first = self._entries[0].number if self._entries else self._last + 1
        return cursor.epoch == self.epoch and first - 1 <= cursor.number <= self._last

    def _behind(self, cursor: Cursor) -> list[JournalEntry]:
        if not self._entries:
            return []
        return self._entries[cursor.number - self._entries[0].number + 1 :]

    def _in_memory(self, query: JournalQuery, entries: list[JournalEntry], unread: int = 0) -> Iterator[Part]:
        """What entries hold; those of batches before `unread` are read already."""
        for entry in entries:
            behind = Cursor(entry.batch_id + 1, self.epoch, entry.number)
            before = Cursor(entry.batch_id) if entry.is_batch else replace(behind, number=entry.number - 1)
            yield Part(before, behind, entry.of(query) if entry.batch_id >= unread else None)

    def _stored(self, query: JournalQuery, since: int, until: int) -> Iterator[Part]:
        """Results of some batches under the checkpoint."""
        retained = [batch.batch_id for batch in self.loop.outputs.result_batches] if since < until else []
        for batch_id in retained:
            if max(since, query.since) <= batch_id < until:
                table = self.loop.outputs.batch_results(query.name, query.schema, query.since, batch_id)
                yield Part(Cursor(batch_id), Cursor(batch_id + 1), table)


def compact(results: Results) -> Results:
    """The same results in one table for each schema that occurs, instead of many small ones."""
    alike: dict[pa.Schema, list[ResultBatch]] = {}
    for batch in results.batches:
        alike.setdefault(batch.table.schema, []).append(batch)
    made = []
    for batches in alike.values():
        table = pa.concat_tables([batch.table for batch in batches]).combine_chunks()
        starts = np.cumsum([0, *(batch.table.num_rows for batch in batches)])
        bounds = [batch.bounds[:-1] + start for batch, start in zip(batches, starts, strict=False)]
        names = [name for batch in batches for name in batch.names]
        made.append(ResultBatch(names, np.concatenate([*bounds, starts[-1:]]), table))
    return Results(made, results.stored)


def _filled(query: JournalQuery, cursor: Cursor, parts: Iterable[Part], limit: int) -> Read:
    """As many results of some parts as a limit allows; the cursor may point into one of them."""
    tables_read, room, start = [query.schema.empty_table()], limit, replace(cursor, row=0)
    position = cursor
    for part in parts:
        if part.table is not None:
            skipped = cursor.row if part.before == start else 0
            left = part.table.slice(skipped)
            if left.num_rows > room:
                tables_read.append(left.slice(0, room))
                return Read(
                    pa.concat_tables(tables_read), replace(part.before, row=skipped + room), more=True
                )
            tables_read.append(left)
            room -= left.num_rows
        position = part.behind
    return Read(pa.concat_tables(tables_read), position, more=False)
