"""Combined pairs: how many partners rows have, and the sums and extremes of their values, without the pairs.

The partners of a row are a range of a run, which is sorted by key and time. Sums over blocks of 2, 4, 8 ... rows answer
a range with at most two blocks of each length. Differences of running totals would be faster, but lose digits of
doubles, and a NaN would spread to other keys.

    pairs of row r, by time          pair time
    partners up to r's time          r's time: one combined row for r
    later partners                   theirs: one combined row for each of them, with all earlier rows of the batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.columns.arrays import Ints
from transom.columns.hashes import Hashes
from transom.kernel.join_pairs import are_equal, ranges_of
from transom.sql.query import JOIN_TIME, PAIR_COUNT, CombinedPart, CombinedValue, StreamJoin
from transom.state.stream_joins import HASH, TIME, JoinRun, key_name, value_name

_Numbers = NDArray[Any]  # of 64 bits, integers or doubles
_Combine = Callable[..., _Numbers]

_COMBINED: dict[CombinedPart, _Combine] = {
    CombinedPart.COUNT: np.add,
    CombinedPart.SUM: np.add,
    CombinedPart.TOTAL: np.add,
    CombinedPart.MIN: np.fmin,  # a number rather than NaN, which is the greatest value
    CombinedPart.MAX: np.maximum,  # NaN if there is one
}


class RangeBlocks:
    """Values combined in blocks of 1, 2, 4 ... neighbours, to combine any range of them.

    >>> RangeBlocks(np.array([5, 1, 4, 2, 3]), np.add, 0).between(np.array([0, 1]), np.array([5, 3])).tolist()
    [15, 5]
    """

    def __init__(self, values: _Numbers, combine: _Combine, identity: object):
        self.combine, self.identity = combine, identity
        self.levels = [values]
        while len(self.levels[-1]) > 1:
            last = self.levels[-1]
            if len(last) % 2:
                last = np.append(last, np.array(identity, last.dtype))
            self.levels.append(combine(last[::2], last[1::2]))

    def between(self, starts: Ints, stops: Ints) -> _Numbers:
        """The combined values of each range; the identity for an empty one."""
        first, last = starts.copy(), np.maximum(starts, stops)
        made = np.full(len(starts), self.identity, self.levels[0].dtype)
        for level in self.levels:
            is_open = first < last
            if not is_open.any():
                break
            takes = is_open & (first % 2 == 1)
            made[takes] = self.combine(made[takes], level[first[takes]])
            first += takes
            takes = (first < last) & (last % 2 == 1)
            made[takes] = self.combine(made[takes], level[last[takes] - 1])
            last -= takes
            first, last = first // 2, last // 2
        return made


@dataclass(frozen=True)
class CombinedRows:
    """Rows of one stream, each with a range of its partners in a run: a combined row for each."""

    place: int  # the side of the rows
    rows: pa.Table
    run: JoinRun
    starts: Ints
    stops: Ints

    def table(self, join: StreamJoin, schema: pa.Schema) -> pa.Table:
        counts = self.stops - self.starts
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            key.name: self.rows[key_name(key.number)].cast(key.type) for key in join.combined_keys
        }
        columns[PAIR_COUNT] = pa.array(counts)
        for value in join.values or ():
            own = value.place == self.place
            columns[value.name] = self._repeated(value, counts) if own else self._of_partners(value, counts)
        columns[JOIN_TIME] = pa.array(self.rows[TIME].to_numpy()).cast(join.time_type)
        return pa.table(columns, schema=schema)

    def _repeated(self, value: CombinedValue, counts: Ints) -> pa.Array:
        """The value of each row, as often as it has partners."""
        numbers, is_valid = _numbers(self.rows, value)
        if value.part is CombinedPart.COUNT:
            return pa.array(np.where(is_valid, counts, 0))
        if value.part in (CombinedPart.MIN, CombinedPart.MAX):
            return pa.array(numbers, mask=~is_valid).cast(value.type)
        with np.errstate(over="ignore", invalid="ignore"):
            return pa.array(numbers * counts, mask=~is_valid)

    def _of_partners(self, value: CombinedValue, counts: Ints) -> pa.Array:
        """The combined values of the partners of each row."""
        valid = counts
        if (known := _blocks(self.run, value, CombinedPart.COUNT)) is not None:
            valid = known.between(self.starts, self.stops)
        if value.part is CombinedPart.COUNT:
            return pa.array(valid)
        blocks = _blocks(self.run, value, value.part)
        assert blocks is not None
        with np.errstate(over="ignore", invalid="ignore"):
            made = blocks.between(self.starts, self.stops)
        return pa.array(made, mask=valid == 0).cast(value.type)


def _numbers(table: pa.Table, value: CombinedValue) -> tuple[_Numbers, NDArray[np.bool_]]:
    """The values of rows as 64-bit numbers, 0 for nulls, and which are not null.

    A column that no query read when the rows came is null: no query that reads it reports windows of their time.
    """
    name = value_name(value.sql)
    is_float = value.type == pa.float64() or pa.types.is_floating(value.input)
    kind = pa.float64() if is_float else pa.int64()
    if name not in table.column_names:
        return np.zeros(table.num_rows, kind.to_pandas_dtype()), np.zeros(table.num_rows, bool)
    column = table[name].combine_chunks().cast(kind, safe=False)
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), is_valid


def _blocks(run: JoinRun, value: CombinedValue, part: CombinedPart) -> RangeBlocks | None:
    """The blocks of a run's values, computed once; None for the counts of values without a null."""
    key = value.sql, value.type, part
    if key not in run.blocks:
        numbers, is_valid = _numbers(run.table, value)
        made: RangeBlocks | None
        if part is CombinedPart.COUNT:
            made = None if is_valid.all() else RangeBlocks(is_valid.astype(np.int64), np.add, 0)
        else:
            identity = _identity(part, numbers.dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                made = RangeBlocks(np.where(is_valid, numbers, identity), _COMBINED[part], identity)
        run.blocks[key] = made
    found = run.blocks[key]
    assert found is None or isinstance(found, RangeBlocks)
    return found


def _identity(part: CombinedPart, kind: np.dtype) -> int | float:
    """The value that combining leaves out; masked where nothing else is combined."""
    if part in (CombinedPart.SUM, CombinedPart.TOTAL):
        return 0
    if kind == np.float64:
        return np.nan if part is CombinedPart.MIN else -np.inf
    limits = np.iinfo(np.int64)
    return int(limits.max if part is CombinedPart.MIN else limits.min)


def combined_rows(
    join: StreamJoin,
    place: int,
    table: pa.Table,
    bounds: tuple[Ints, Ints],
    closed: int | None,
    run: JoinRun,
    batch: JoinRun,
) -> list[CombinedRows] | None:
    """The combined pairs of a batch's rows with the rows of a run; None if hashes of different keys are equal.

    `bounds` are the first and the last time of partners whose pairs are not closed; `batch` has the same rows, sorted.
    """
    since, until = bounds
    times, hashes = table[TIME].to_numpy(), table[HASH].to_numpy()
    starts, stops = ranges_of(hashes, since, until, run)
    keys, mine = len(join.first.keys), np.flatnonzero(stops > starts)
    if not len(mine):
        return []
    if (
        _has_collisions(run, keys)
        or _has_collisions(batch, keys)
        or not _have_equal_keys(table, mine, run.table, starts[mine], keys)
    ):
        return None
    _, middle = ranges_of(hashes, since, np.minimum(until, times), run)
    middle = np.clip(middle, starts, stops)
    found = []
    earlier = middle > starts
    if earlier.any():
        rows = table.filter(pa.array(earlier))
        found.append(CombinedRows(place, rows, run, starts[earlier], middle[earlier]))
    later = np.flatnonzero(stops > middle)
    if len(later):
        found += _later_partners(join, place, batch, run, (middle[later], stops[later]), closed)
    return found


def _later_partners(
    join: StreamJoin,
    place: int,
    batch: JoinRun,
    run: JoinRun,
    ranges: tuple[Ints, Ints],
    closed: int | None,
) -> list[CombinedRows]:
    """The rows of a run that are later than their partners in the batch, each with these."""
    partners = _union(*ranges)
    rows, times = run.table.take(pa.array(partners)), run.times[partners]
    since, until = join.partner_times(1 - place, times)
    until = np.minimum(until, times - 1)
    if closed is not None:
        until = np.where(times < closed, since - 1, until)
    starts, stops = ranges_of(run.hashes[partners], since, until, batch)
    some = stops > starts
    if not some.any():
        return []
    return [CombinedRows(1 - place, rows.filter(pa.array(some)), batch, starts[some], stops[some])]


def _union(starts: Ints, stops: Ints) -> Ints:
    """The numbers that are in some of the ranges, each once; the ranges are not expanded one by one."""
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    first = np.flatnonzero(np.r_[True, starts[1:] > reach[:-1]])
    begins, ends = starts[first], reach[np.r_[first[1:] - 1, len(starts) - 1]]
    counts = ends - begins
    return np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)


def _has_collisions(run: JoinRun, keys: int) -> bool:
    """Whether rows with the same hash have different keys; that is rare."""
    if "collisions" not in run.blocks:
        hashes: Hashes = run.hashes
        same = np.flatnonzero(hashes[1:] == hashes[:-1])
        run.blocks["collisions"] = not _have_equal_keys(run.table, same, run.table, same + 1, keys)
    return bool(run.blocks["collisions"])


def _have_equal_keys(one: pa.Table, mine: Ints, other: pa.Table, theirs: Ints, keys: int) -> bool:
    return all(
        are_equal(
            one[key_name(place)].take(pa.array(mine)), other[key_name(place)].take(pa.array(theirs))
        ).all()
        for place in range(keys)
    )


def combined_singly(
    join: StreamJoin, place: int, table: pa.Table, found: Sequence[tuple[JoinRun, tuple[Ints, Ints]]]
) -> list[CombinedRows]:
    """Pairs as combined pairs of one pair each, if ranges are not enough to find them."""
    made = []
    for run, (mine, theirs) in found:
        own = table.take(pa.array(mine))
        is_later = own[TIME].to_numpy() >= run.times[theirs]
        first = own.filter(pa.array(is_later))
        made.append(CombinedRows(place, first, run, theirs[is_later], theirs[is_later] + 1))
        batch = JoinRun(table)
        partners = run.table.take(pa.array(theirs[~is_later]))
        made.append(CombinedRows(1 - place, partners, batch, mine[~is_later], mine[~is_later] + 1))
    return [each for each in made if each.rows.num_rows]
