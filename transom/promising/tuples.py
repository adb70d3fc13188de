"""The kept tuples of a stream, in the order in which cells list them (section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.columns.arrays import Ints, Keys

MOST_FLOORS = 8  # of windows whose cut batches are remembered
FIELDS = (
    pa.field("key", pa.uint64()),
    pa.field("bucket", pa.int32()),
    pa.field("time", pa.int64()),
    pa.field("batch", pa.int64()),
)


@dataclass(frozen=True)
class KeptTuples:
    """Tuples by bucket, time, batch and arrival, so that those of a cell and time are adjacent.

    The table has `key`, `bucket`, `time` and `batch`, then the kept columns of the stream.

    >>> made = KeptTuples.of_arrays(np.array([7, 5], np.uint64), np.array([1, 0]), np.array([10, 20]), batch_id=3)
    >>> made.key.tolist(), made.batch_id.tolist()
    ([5, 7], [3, 3])
    """

    table: pa.Table

    @staticmethod
    def of(table: pa.Table) -> KeptTuples:
        """The tuples of a table, sorted; ties stay in order of arrival."""
        table = table.combine_chunks()
        batch, time, bucket = (table.column(name).to_numpy() for name in ("batch", "time", "bucket"))
        if (
            len(batch) and (batch[0] == batch).all()
        ):  # one number for bucket and time sorts faster than two columns
            order = np.argsort(CellPlaces.of(bucket.astype(np.int64), time).codes, kind="stable")
        else:
            order = np.lexsort((batch, time, bucket))
        if np.array_equal(order, np.arange(len(order))):
            return KeptTuples(table)
        return KeptTuples(table.take(pa.array(order)))

    @staticmethod
    def of_arrays(
        key: Keys, bucket: Ints, time: Ints, batch_id: int | Ints, **columns: pa.Array
    ) -> KeptTuples:
        """Tuples from plain arrays, in order of arrival."""
        batches = np.broadcast_to(np.asarray(batch_id, np.int64), len(key))
        given = zip((key, bucket, time, batches), FIELDS, strict=True)
        plain = [pa.array(np.asarray(array), field.type) for array, field in given]
        names = [field.name for field in FIELDS] + list(columns)
        return KeptTuples.of(pa.table([*plain, *columns.values()], names=names))

    @staticmethod
    def merged(parts: Iterable[KeptTuples]) -> KeptTuples:
        """The tuples of several parts; earlier parts arrived earlier."""
        return KeptTuples.of(pa.concat_tables([part.table for part in parts]))

    def __len__(self) -> int:
        return self.table.num_rows

    def since(self, floor: int | None) -> KeptTuples:
        """The tuples from a time on; earlier tuples are evicted."""
        return (
            self
            if floor is None or not len(self) or self.times[0] >= floor
            else self.where(self.time >= floor)
        )

    def count_since(self, floor: int) -> int:
        """How many tuples there are from a time on."""
        low, high = self.times
        return len(self) if low >= floor else 0 if high < floor else int((self.time >= floor).sum())

    def between(self, since: int | None, until: int | None) -> KeptTuples:
        """The tuples from a time to before another; None is unbounded."""
        low, high = self.times
        if (since is None or since <= low) and (until is None or until > high):
            return self
        return self.where(
            (self.time >= (low if since is None else since))
            & (self.time < (high + 1 if until is None else until))
        )

    def of_cut_batches(self, floor: int) -> KeptTuples:
        """The tuples from a time on of the batches that also have older ones; hundreds of queries ask for the same."""
        known = self._cut_batches.get(floor)
        if known is None:
            is_old = self.time < floor
            cut = np.unique(self.batch_id[is_old])
            known = self.where(~is_old & np.isin(self.batch_id, cut))
            if len(self._cut_batches) >= MOST_FLOORS:  # windows move on
                self._cut_batches.clear()
            self._cut_batches[floor] = known
        return known

    @cached_property
    def _cut_batches(self) -> dict[int, KeptTuples]:
        return {}

    @cached_property
    def times(self) -> tuple[int, int]:
        """The first and the last time."""
        return (int(self.time.min()), int(self.time.max())) if len(self) else (0, 0)

    def in_batch(self, batch_id: int) -> KeptTuples:
        """The tuples of a batch."""
        return self.where(self.batch_id == batch_id)

    def where(self, mask: NDArray[np.bool_]) -> KeptTuples:
        """The tuples where a mask is true."""
        return self if mask.all() else KeptTuples(self.table.filter(pa.array(mask)).combine_chunks())

    @cached_property
    def key(self) -> Keys:
        return self.table.column("key").to_numpy()

    @cached_property
    def bucket(self) -> Ints:
        return self.table.column("bucket").to_numpy().astype(np.int64)

    @cached_property
    def time(self) -> Ints:
        return self.table.column("time").to_numpy()

    @cached_property
    def batch_id(self) -> Ints:
        return self.table.column("batch").to_numpy()

    def integers(self, name: str) -> Ints | None:
        """A column of integers without NULLs; None if it is another column."""
        if name not in self._integers:
            at = self.table.schema.get_field_index(name)
            column = self.table.column(at) if at >= 0 else None
            plain = column is not None and pa.types.is_signed_integer(column.type) and not column.null_count
            self._integers[name] = column.to_numpy() if column is not None and plain else None
        return self._integers[name]

    @cached_property
    def _integers(self) -> dict[str, Ints | None]:
        return {}

    @cached_property
    def by_key(self) -> KeyRuns:
        """The rows of each key, computed once for all queries of a batch."""
        return KeyRuns.of(self.key)

    @cached_property
    def places(self) -> CellPlaces:
        """The rows of each bucket and time."""
        return CellPlaces.of(self.bucket, self.time)


@dataclass(frozen=True)
class KeyRuns:
    """Rows by key: `keys` are the distinct keys, `starts` where the `rows` of each begin."""

    keys: Keys
    rows: Ints
    starts: Ints

    @staticmethod
    def of(key: Keys) -> KeyRuns:
        rows = np.argsort(key, kind="stable")
        ordered = key[rows]
        first = np.ones(len(key), bool)
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        return KeyRuns(ordered[starts], rows, starts)

    @cached_property
    def counts(self) -> Ints:
        """The number of rows of each key."""
        return np.diff(self.starts, append=len(self.rows))

    @property
    def firsts(self) -> Ints:
        """The first row of each key."""
        return self.rows[self.starts]

    @cached_property
    def codes(self) -> Ints:
        """The ascending pairs (number of the key, row)."""
        return np.repeat(np.arange(len(self.keys)), self.counts) * len(self.rows) + self.rows

    def between(self, key: Keys, since: Ints, until: Ints) -> tuple[Ints, Ints]:
        """For each key, the range of `rows` with its rows from `since` to before `until`."""
        if not len(self.keys):
            nothing = np.zeros(len(key), np.int64)
            return nothing, nothing
        number = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        base = number * len(self.rows)
        start = np.searchsorted(self.codes, base + since)
        stop = np.searchsorted(self.codes, base + until)
        return start, np.where(self.keys[number] == key, np.maximum(stop, start), start)


@dataclass(frozen=True)
class CellPlaces:
    """Rows by bucket and time, in one number: bucket * span + time - first.

    If buckets times kept microseconds don't fit 64 bits, because a tuple is centuries older or newer than the
    others, times are replaced by their places among the different `times`.

    >>> places = CellPlaces.of(np.array([0, 1000, 1000]), np.array([5, 0, 2**62]))
    >>> places.at(np.array([0, 1000, 1000]), np.array([0, 1, 2**62 + 1])).tolist()
    [0, 2, 3]
    """

    codes: Ints
    first: int
    span: int
    times: Ints | None = None

    @staticmethod
    def of(bucket: Ints, time: Ints) -> CellPlaces:
        first = int(time.min()) if len(time) else 0
        span = int(time.max()) - first + 2 if len(time) else 2
        if (int(bucket.max(initial=0)) + 1) * span < 2**63:
            return CellPlaces(bucket * span + (time - first), first, span)
        times = np.unique(time)
        span = len(times) + 1
        return CellPlaces(bucket * span + np.searchsorted(times, time), 0, span, times)

    def at(self, bucket: Ints, time: Ints) -> Ints:
        """The first row of a bucket at or after a time."""
        if self.times is not None:
            place = np.searchsorted(self.times, time)
        else:
            # Clipped before the subtraction, which could overflow.
            place = np.clip(time, self.first, self.first + self.span - 1) - self.first
        return np.searchsorted(self.codes, bucket * self.span + place)


def run_positions(counts: Ints) -> tuple[Ints, Ints]:
    """For runs of the given lengths: the run of each item, and its position in the run.

    >>> [a.tolist() for a in run_positions(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    run = np.repeat(np.arange(len(counts)), counts)
    return run, np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
