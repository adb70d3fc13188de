"""Looks up the matches of a query by key, among tuples that are at hand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Floats, Ints, Keys, Mask, one_array
from transom.columns.groups import group
from transom.columns.hashes import mix_bits
from transom.kernel.predicates import evaluate
from transom.promising.batch_tuples import column_name, scalars_read_by
from transom.promising.key_matches import (
    EARLIEST,
    LATEST,
    KeyMatches,
    Lines,
    TupleRows,
    join_matches,
    selection_matches,
)
from transom.promising.regions import Regions
from transom.promising.tuples import KeptTuples
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import And, Comparison, Or, Predicate, Scalar

RETURNING_BATCH = "ended"  # the column with the batch that returned a tuple at the end of both streams


@dataclass(frozen=True)
class TupleReading:
    """How a query reads tuples: the side whose tuples arrive, the summarized columns, and its first batch.

    An outer join does not read the tuples that it `returned` without a partner at the end of its streams, by side.
    """

    query: PreferenceQuery
    side: int
    keys: tuple[str, ...]
    since: int
    returned: tuple[pa.Table | None, pa.Table | None] = (None, None)

    @property
    def other(self) -> int:
        """The side that is probed; of a selection, the only one."""
        return len(self.query.sides) - 1 - self.side

    @property
    def spreads(self) -> bool:
        """Whether matches are sampled, and not taken in order of time."""
        return self.query.preference.order == "weighted"

    def seed(self, batch_id: int) -> int | None:
        """The number of the permutation by which a join draws a sample of a batch's pairs; None if it draws none."""
        is_drawn = self.query.samples and len(self.query.sides) == 2
        return 2 * batch_id + self.side if is_drawn else None


@dataclass(frozen=True)
class FoundTuples:
    """Matches, and the tables that their rows are of: of the arriving side, then of the other."""

    lines: Lines
    matches: KeyMatches
    tables: tuple[pa.Table, ...]
    collide: bool = False  # whether different values have the same key

    def rows(
        self,
        done: Ints | None = None,
        taken: Ints | None = None,
        spread: bool = False,
        seed: int | None = None,
    ) -> tuple[Ints, ...]:
        """The rows of the next matches of each line, or of all, by table."""
        if done is None or taken is None:
            both = self.matches.all()
        else:
            both = self.matches.next(done, taken, spread, seed)
        return both if len(self.tables) == 2 else both[1:]

    def as_one_line(self) -> FoundTuples:
        """The same matches as a single line, from which a sample is drawn."""
        return replace(self, lines=Lines.of_keys(np.zeros(1, np.uint64)), matches=self.matches.as_one_line())

    def times(self) -> tuple[Ints, Ints]:
        """For each line, the first time of a partner, and the time after the last."""
        matches = self.matches
        some = np.flatnonzero(matches.stop > matches.start)
        first, last = np.full(matches.lines, LATEST), np.full(matches.lines, EARLIEST)
        time = self.tables[1]["time"].to_numpy()[matches.order]
        np.minimum.at(first, matches.line[some], time[matches.start[some]])
        np.maximum.at(last, matches.line[some], time[matches.stop[some] - 1] + 1)
        is_empty = first > last
        return np.where(is_empty, 0, first), np.where(is_empty, 1, last)

    def table(self, reading: TupleReading, rows: Sequence[Ints]) -> pa.Table:
        """The columns that the query reads, as `0.item` and `1.ts`, with `0time` and `1time`."""
        if self.collide and len(rows) == 2:
            sides = (reading.side, reading.other)
            values = [
                table[f".{reading.keys[side]}"].take(pa.array(some))
                for table, some, side in zip(self.tables, rows, sides, strict=True)
            ]
            equal = np.flatnonzero(equal_values(*values))
            rows = [some[equal] for some in rows]
        columns: dict[str, pa.Array] = {}
        places = {reading.side: 0, reading.other: len(self.tables) - 1}
        for number in range(len(reading.query.sides)):
            table, some = self.tables[places[number]], pa.array(rows[places[number]])
            for name in names_read(reading.query, number):
                # The query sees no tuple from before its registration, so it needs no value of a missing column.
                at = table.schema.get_field_index(name)
                columns[f"{number}{name}"] = (
                    pa.nulls(len(some)) if at < 0 else one_array(table.column(at)).take(some)
                )
        return pa.table(columns)


@cache
def names_read(query: PreferenceQuery, side: int) -> dict[str, None]:
    """The names of the columns that a query reads of a side's tuples."""
    columns = query.sides[side].columns
    names = ["time", *(["batch"] if query.samples else []), *(f".{column}" for column in columns)]
    return dict.fromkeys([*names, *(column_name(scalar) for scalar in scalars_read_by(query, side))])


def found_pairs(
    reading: TupleReading, lines: Lines | None, batch_id: int, arriving: KeptTuples, others: KeptTuples
) -> FoundTuples:
    """The pairs of a batch's tuples with `others` of earlier batches; without lines, one line for each value.

    If a stream is joined with itself, its tuples of the first side meet those of their own batch, too.
    """
    query, keys = reading.query, reading.keys
    sides = query.sides[reading.side], query.sides[reading.other]
    own = chosen_rows(arriving, sides[0].where, keys[reading.side], reading.since)
    rows = chosen_rows(others, sides[1].where, keys[reading.other], reading.since)
    last = batch_id if query.meets_own_batch(reading.side) else batch_id - 1
    if int(others.batch_id.max(initial=-1)) > last:
        rows = rows[others.batch_id[rows] <= last]
    if (returned := reading.returned[reading.other]) is not None:
        rows = rows[~_are_returned(others.table, rows, returned, batch_id)]
    mine = TupleRows(own, arriving.key[own], arriving.time[own])
    theirs = TupleRows(rows, others.key[rows], others.time[rows], others.batch_id[rows])
    lines = Lines.of_keys(np.unique(mine.key)) if lines is None else lines
    matches = join_matches(lines, mine, theirs, query.preference.window)
    columns = arriving.table[f".{keys[reading.side]}"], others.table[f".{keys[reading.other]}"]
    collide = do_collide(columns, (own, matches.order), (arriving.key, others.key))
    return FoundTuples(lines, matches, (arriving.table, others.table), collide)


def _are_returned(tuples: pa.Table, rows: Ints, returned: pa.Table, batch_id: int) -> Mask:
    """Which rows of kept tuples were returned without a partner before a batch.

    Tuples are the same if all columns are equal. Nested columns are not compared: no condition of ON reads a whole one.
    """
    some = returned.filter(pc.less(returned[RETURNING_BATCH], batch_id)).drop_columns([RETURNING_BATCH])
    among = np.isin(tuples["key"].to_numpy()[rows], some["key"].to_numpy())
    near = np.flatnonzero(among)  # mostly none
    if not len(near):
        return among
    names = [name for name in some.column_names if not pa.types.is_nested(some.schema.field(name).type)]
    mine = tuples.select(names).take(pa.array(rows[near]))
    columns = [pa.chunked_array([*mine[name].chunks, *some[name].chunks]) for name in names]
    codes = group([one_array(column) for column in columns], len(near) + some.num_rows).codes
    among[near] = np.isin(codes[: len(near)], codes[len(near) :])
    return among


def selected_rows(reading: TupleReading, tuples: KeptTuples) -> Ints:
    """The rows of the tuples that a selection selects."""
    return chosen_rows(tuples, reading.query.sides[0].where, None, reading.since)


def selected_lines(reading: TupleReading, keys: Keys | None, tuples: KeptTuples, rows: Ints) -> FoundTuples:
    """The selected rows of a batch's tuples, as a line for each key."""
    some = TupleRows(rows, tuples.key[rows], tuples.time[rows])
    keys = np.unique(some.key) if keys is None else keys
    seed = int(tuples.batch_id[0]) if reading.spreads and len(tuples) else None
    return FoundTuples(Lines.of_keys(keys), selection_matches(keys, some, seed), (tuples.table,))


def even_places(tuples: KeptTuples, batch_id: int) -> Ints:
    """The place of each tuple of a batch in an order that has nothing to do with time or value."""
    order = np.lexsort((tuples.key, tuples.time))  # in whatever order the buckets are
    numbers = np.arange(len(order), dtype=np.uint64)
    mixed = mix_bits(numbers ^ mix_bits(np.array([batch_id], np.uint64)))
    return _places(order[np.argsort(mixed, kind="stable")])


def ranked_places(tuples: KeptTuples, ranking: Keys) -> Ints:
    """The place of each tuple of a batch whose values are taken in the order of a ranking, each by time."""
    by_key = np.argsort(ranking)
    rank = by_key[np.searchsorted(ranking, tuples.key, sorter=by_key)]
    return _places(np.lexsort((tuples.time, rank)))


def _places(order: Ints) -> Ints:
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def all_selected(tuples: KeptTuples, rows: Ints, place: Ints | None = None) -> FoundTuples:
    """The selected rows as a single line; in the order of their places, if these are given."""
    rows = rows if place is None else rows[np.argsort(place[rows])]
    none, one = np.zeros(0, np.int64), np.array([len(rows)])
    matches = KeyMatches(1, np.zeros(1, np.int64), none, rows, np.zeros(1, np.int64), one)
    return FoundTuples(Lines.of_keys(np.zeros(1, np.uint64)), matches, (tuples.table,))


def chosen_rows(tuples: KeptTuples, where: Predicate | None, column: str | None, since: int) -> Ints:
    """The rows that a query sees and its conditions select; with a column, without NULLs of it."""
    if not len(tuples):  # of a summary without tuples, whose columns have no type
        return np.zeros(0, np.int64)
    keep = None
    if where is not None:
        keep = integers_match(where, tuples)
        keep = truth_of(evaluate(where, column_reader(tuples.table))) if keep is None else keep
    if column is not None and tuples.table[f".{column}"].null_count:
        valid = truth_of(tuples.table[f".{column}"].is_valid())
        keep = valid if keep is None else keep & valid
    if int(tuples.batch_id.min(initial=since)) < since:
        seen = tuples.batch_id >= since
        keep = seen if keep is None else keep & seen
    return np.arange(len(tuples)) if keep is None else np.flatnonzero(keep)


def do_collide(
    columns: tuple[pa.ChunkedArray, pa.ChunkedArray], rows: tuple[Ints, Ints], keys: tuple[Keys, Keys]
) -> bool:
    """Whether tuples with the same key have different values; that is rare.

    The hash of an integer is a chain of invertible steps, so different integers have different keys.
    """
    if not len(rows[0]) or not len(rows[1]):
        return False
    if columns[0].type == columns[1].type and pa.types.is_integer(columns[0].type):
        return False
    own, first = np.unique(keys[0][rows[0]], return_index=True)
    value = columns[0].take(pa.array(rows[0][first]))
    for column, some, key in zip(columns, rows, keys, strict=True):
        same = np.searchsorted(own, key[some])
        if not equal_values(column.take(pa.array(some)), value.take(pa.array(same))).all():
            return True
    return False


_COMPARE: dict[str, Callable[[Ints, int], Mask]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def integers_match(predicate: Predicate, tuples: KeptTuples) -> Mask | None:
    """The rows for which a predicate holds; None if it is not over integers without NULLs.

    Hundreds of selections spend most of their time here, and NumPy compares a few thousand integers ten times
    as fast as Arrow.
    """
    match predicate:
        case And(parts) | Or(parts):
            masks = [integers_match(part, tuples) for part in parts]
            known = [mask for mask in masks if mask is not None]
            if len(known) < len(masks):
                return None
            return reduce(operator.and_ if isinstance(predicate, And) else operator.or_, known)
        case Comparison(scalar, op, int(value)) if op in _COMPARE and abs(value) < 2**63:
            column = tuples.integers(column_name(scalar))
            return None if column is None else _COMPARE[op](column, value)
    return None


def equal_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    """Whether values are equal, as in Spark: NaN equals NaN, and NULL equals nothing."""
    equal = truth_of(pc.equal(one, other))
    if pa.types.is_floating(one.type):
        equal |= truth_of(pc.is_nan(one)) & truth_of(pc.is_nan(other))
    return equal


def column_reader(table: pa.Table) -> Callable[[Scalar], pa.Array]:
    """Reads the columns of kept tuples for predicates."""

    def column(scalar: Scalar) -> pa.Array:
        name = column_name(scalar)
        if name not in table.column_names:  # the tuples are older than the query
            return pa.nulls(table.num_rows, scalar.type)
        return one_array(table[name])

    return column


def truth_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """A mask of the true values; null is false."""
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(bool, copy=False)


def regions_by_key(
    found: FoundTuples, batch_id: int, bucket: Ints, low: Ints, promise: Floats, times: tuple[Ints, Ints]
) -> Regions:
    """The lines of matches as regions; `low` are the first arriving times, `times` those of the partners."""
    return Regions.of_matches(found.lines.key, bucket, batch_id, times, low, found.matches.counts, promise)
