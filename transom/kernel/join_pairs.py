"""The pairs of two streams: rows of a batch, and the rows of the other stream that they meet.

The rows that a join keeps are sorted by the hash of their keys, then by time. So the partners of a row are a range of
them, which two searches find; the keys of the pairs are compared afterwards, because hashes of different keys can be
equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.columns.hashes import Hashes, row_hashes
from transom.state.stream_joins import HASH, JoinRun, key_name
from transom.windows.intervals import IntervalSet

PairPlaces = tuple[Ints, Ints]  # places of rows of the batch, and of rows of a run


def with_hashes(table: pa.Table, keys: int) -> pa.Table:
    """The rows without a null among their keys, with the hashes of these; rows with one have no partners."""
    columns = [table[key_name(place)].combine_chunks() for place in range(keys)]
    if any(column.null_count for column in columns):
        table = table.drop_null() if len(table.column_names) == keys else _without_nulls(table, columns)
        columns = [table[key_name(place)].combine_chunks() for place in range(keys)]
    # The hashes of decimals would be made one by one; decimals of one type are equal if their texts are.
    plain = [column.cast(pa.string()) if pa.types.is_decimal(column.type) else column for column in columns]
    return table.append_column(HASH, pa.array(row_hashes(plain, table.num_rows)))


def _without_nulls(table: pa.Table, columns: Sequence[pa.Array]) -> pa.Table:
    return table.filter(pa.array(are_whole(table, len(columns))))


def are_whole(table: pa.Table, keys: int) -> NDArray[np.bool_]:
    """Which rows have no null among their keys."""
    is_whole = np.ones(table.num_rows, bool)
    for place in range(keys):
        is_whole &= table[key_name(place)].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    return is_whole


class PairSearch:
    """The partners of some rows among the runs of the other stream: from `since` to `until`, both included."""

    def __init__(self, hashes: Hashes, since: Ints, until: Ints, runs: Sequence[JoinRun]):
        self.runs = runs
        self._ranges = [ranges_of(hashes, since, until, run) for run in runs]

    @property
    def count(self) -> int:
        """How many pairs there are at most: their keys have the same hash."""
        return sum(int((stops - starts).sum()) for starts, stops in self._ranges)

    def pairs(self, table: pa.Table, keys: int) -> list[tuple[JoinRun, PairPlaces]]:
        """The pairs with each run; `table` has the rows whose partners are found."""
        found = []
        for run, (starts, stops) in zip(self.runs, self._ranges, strict=True):
            counts = stops - starts
            mine = np.repeat(np.arange(len(counts)), counts)
            theirs = np.arange(len(mine)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
            if len(mine):
                is_equal = np.ones(len(mine), bool)
                for place in range(keys):
                    left, right = table[key_name(place)], run.table[key_name(place)]
                    is_equal &= are_equal(left.take(pa.array(mine)), right.take(pa.array(theirs)))
                found.append((run, (mine[is_equal], theirs[is_equal])))
        return found


def are_equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> np.ndarray:
    """Where values are equal; NaN equals itself."""
    equal = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return equal.to_numpy().astype(bool)


def ranges_of(hashes: Hashes, since: Ints, until: Ints, run: JoinRun) -> tuple[Ints, Ints]:
    """For each row the range of a run with the same hash and times from `since` to `until`."""
    first = np.searchsorted(run.hashes, hashes, "left")
    last = np.searchsorted(run.hashes, hashes, "right")
    starts = _search(run.times, first, last, since)
    return starts, np.maximum(starts, _search(run.times, first, last, until + 1))


def _search(times: Ints, first: Ints, last: Ints, time: Ints) -> Ints:
    """In each range of sorted times, the place of the first one that is not before a time: a binary search."""
    low, high = first.copy(), last.copy()
    for _ in range(int((last - first).max(initial=0)).bit_length()):
        middle = (low + high) // 2
        is_open = low < high
        is_before = times[np.minimum(middle, len(times) - 1)] < time
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    return low


def spans(starts: Ints, stops: Ints) -> IntervalSet:
    """The union of many half-open intervals."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    if not len(starts):
        return IntervalSet()
    is_new = np.r_[True, starts[1:] > reach[:-1]]
    first = np.flatnonzero(is_new)
    ends = reach[np.r_[first[1:] - 1, len(starts) - 1]]
    return IntervalSet.of(*zip(starts[first].tolist(), ends.tolist(), strict=True))
