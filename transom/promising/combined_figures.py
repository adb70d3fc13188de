"""Aggregates over a join without its pairs: a tuple counts as often as it has partners.

A figure reads the tuples of one side. The tuples of the other side are counted: those with the same value, and the same
keys of GROUP BY if it has some on that side. So the work grows with the tuples and groups, not with the pairs.

    GROUP BY b.till    a 7    b 7 till 1, b 7 till 1, b 7 till 2    sum(a.price): twice for till 1, once for till 2

Every batch computes the figures from the tuples in the window. They are exact whatever the budget, because a budget
limits the pairs that are produced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import States
from transom.aggregates.repeated_values import lift_repeated
from transom.aggregates.table import aggregate_function
from transom.columns.arrays import Ints, one_array
from transom.columns.groups import Encoded, encode, group
from transom.columns.table_columns import group_column
from transom.promising.figures import FigureColumns, key_groups
from transom.promising.found_tuples import chosen_rows, column_reader
from transom.promising.key_matches import partner_counts
from transom.promising.tuples import KeptTuples, run_positions
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Scalar


@dataclass(frozen=True)
class CombinedWork:
    """A query whose aggregates need no pairs: the joined columns, its first batch, and where its windows start."""

    query: PreferenceQuery
    columns: tuple[str, str]
    since: int
    starts: tuple[int | None, int | None]
    batch_id: int

    @cached_property
    def sides(self) -> list[int]:
        """The sides whose tuples are weighted, because figures read them; the first one counts the pairs."""
        read = {figure.side for figure in self.query.figures if figure.argument is not None}
        return sorted(side for side in read if side is not None) or [0]


@dataclass(frozen=True)
class PartialFigures:
    """The groups of some tuples of a side: their keys, their pairs, and the states of the figures over that side.

    `added` are the pairs that the batch has added.
    """

    side: int
    keys: pa.Table
    pairs: Ints
    states: dict[int, list[States]]
    added: int


ReadTuples = Callable[
    [int, bool], KeptTuples
]  # of a side, from the window's start on; True: as partners of the other


class CombinedFigures:
    """Computes the figures of queries over the same tuples; queries with the same join and keys share its weights."""

    def __init__(self) -> None:
        self._weights: dict[Hashable, _Weights] = {}

    def parts(self, work: CombinedWork, read: ReadTuples) -> list[PartialFigures]:
        """The partial figures of a query over the tuples at hand."""
        return [self._part(work, side, read) for side in work.sides]

    def _part(self, work: CombinedWork, side: int, read: ReadTuples) -> PartialFigures:
        query, weights = work.query, self._weights_of(work, side, read)
        rows, partner, times = weights.rows, weights.partner, weights.times
        columns = [
            _values(weights.mine, rows, key.scalar)
            if key.side == side
            else _values(weights.others, partner, key.scalar)
            for key in query.keys
        ]
        groups = key_groups(query, columns, len(rows))
        size = groups.count if query.keys else 1
        firsts = pa.array(groups.firsts)
        keys = pa.table({group_column(place): column.take(firsts) for place, column in enumerate(columns)})
        states = {}
        for place, figure in enumerate(query.figures):
            if figure.argument is None or figure.side != side:
                continue
            values = _values(weights.mine, rows, figure.argument)
            accumulators = aggregate_function(figure.function).accumulators(values.type, ())
            states[place] = [
                lift_repeated(accumulator, values, times, groups.codes, size) for accumulator in accumulators
            ]
        pairs = np.bincount(groups.codes, times, size).astype(np.int64)
        return PartialFigures(side, keys, pairs, states, weights.added if side == work.sides[0] else 0)

    def _weights_of(self, work: CombinedWork, side: int, read: ReadTuples) -> _Weights:
        other, query = 1 - side, work.query
        counted = tuple(key.scalar for key in query.keys if key.side == other)
        shared = query.sides, query.preference.window, work.columns, work.since, work.starts, side, counted
        if shared not in self._weights:
            mine, others = read(side, False), read(other, True)
            self._weights[shared] = _weighted(work, side, mine, others, counted)
        return self._weights[shared]


@dataclass(frozen=True)
class _Weights:
    """Tuples of a side, each with a kind of partners: one such partner, and how many there are."""

    mine: KeptTuples
    others: KeptTuples
    rows: Ints
    partner: Ints
    times: Ints
    added: int


def _weighted(
    work: CombinedWork, side: int, mine: KeptTuples, others: KeptTuples, counted: Sequence[Scalar]
) -> _Weights:
    """The tuples of a side with their partners, by the kinds of partners: their value, and what is `counted`."""
    own, theirs = (_rows(work, at, tuples) for at, tuples in ((side, mine), (1 - side, others)))
    nothing = np.zeros(0, np.int64)
    if not len(own) or not len(theirs):
        return _Weights(mine, others, nothing, nothing, nothing, 0)
    value, other_value = _numbered(
        _column(mine, work.columns[side]).take(pa.array(own)),
        _column(others, work.columns[1 - side]).take(pa.array(theirs)),
    )
    kinds = group([other_value, *(_values(others, theirs, scalar) for scalar in counted)], len(theirs))
    value_of_kind = other_value.codes[kinds.firsts]
    by_value = np.argsort(value_of_kind, kind="stable")
    ordered = value_of_kind[by_value]
    first = np.searchsorted(ordered, value.codes)
    at, place = run_positions(np.searchsorted(ordered, value.codes, side="right") - first)
    kind = by_value[first[at] + place]
    window, time, other_time = work.query.preference.window, mine.time[own], others.time[theirs]
    wanted = kind, time[at]
    times = partner_counts(wanted, (kinds.codes, other_time), window)
    is_new, is_new_partner = (
        tuples.batch_id[rows] == work.batch_id for tuples, rows in ((mine, own), (others, theirs))
    )
    added = int(times[is_new[at]].sum())
    if is_new_partner.any() and not is_new.all():
        some = ~is_new[at]
        new = kinds.codes[is_new_partner], other_time[is_new_partner]
        added += int(partner_counts((kind[some], time[at][some]), new, window).sum())
    some = np.flatnonzero(times)
    return _Weights(mine, others, own[at[some]], theirs[kinds.firsts[kind[some]]], times[some], added)


def _rows(work: CombinedWork, side: int, tuples: KeptTuples) -> Ints:
    """The tuples of a side that the query sees, that are in its window and that its conditions select."""
    rows = chosen_rows(tuples, work.query.sides[side].where, work.columns[side], work.since)
    start = work.starts[side]
    return rows if start is None else rows[tuples.time[rows] >= start]


def _numbered(one: pa.Array, other: pa.Array) -> tuple[Encoded, Encoded]:
    """The values of two columns as numbers that are equal where the values are: no two values share one."""
    encoded = encode(pa.concat_arrays([one, other]))
    split = len(one)
    return Encoded(encoded.codes[:split], encoded.size), Encoded(encoded.codes[split:], encoded.size)


def _column(tuples: KeptTuples, name: str) -> pa.Array:
    return one_array(tuples.table[f".{name}"])


def _values(tuples: KeptTuples, rows: Ints, scalar: Scalar) -> pa.Array:
    """The values of a scalar in some rows."""
    values = column_reader(tuples.table)(scalar).take(pa.array(rows))
    return values if values.type == scalar.type else values.cast(scalar.type)


# --- results ----------------------------------------------------------------------------------


def combined_columns(query: PreferenceQuery, parts: Iterable[PartialFigures]) -> FigureColumns:
    """The figures of a query from the partial ones of all its tuples."""
    parts = list(parts)
    keys = [
        pa.concat_arrays([one_array(part.keys[group_column(place)]) for part in parts])
        for place in range(len(query.keys))
    ]
    sizes = [len(part.pairs) for part in parts]
    groups = key_groups(query, keys, sum(sizes))
    size = groups.count if query.keys else 1
    codes = np.split(groups.codes, np.cumsum(sizes)[:-1])
    first = parts[0].side
    pairs = np.zeros(size, np.int64)
    for part, own in zip(parts, codes, strict=True):
        if part.side == first:
            np.add.at(pairs, own, part.pairs)
    values = []
    for place, figure in enumerate(query.figures):
        if figure.argument is None:
            values.append(pa.array(pairs))
            continue
        with_states = [(part, own) for part, own in zip(parts, codes, strict=True) if place in part.states]
        function = aggregate_function(figure.function)
        of_rows = np.concatenate([own for _, own in with_states])
        combined = []
        for number, accumulator in enumerate(function.accumulators(_argument_type(query, place), ())):
            rows = [part.states[place][number] for part, _ in with_states]
            columns = [pa.concat_arrays(column) for column in zip(*rows, strict=True)]
            combined.append(accumulator.combine(columns, of_rows, size))
        values.append(function.lower(combined, figure.type, ()).cast(figure.type, safe=False))
    return FigureColumns([key.take(pa.array(groups.firsts)) for key in keys], values, pairs)


def _argument_type(query: PreferenceQuery, place: int) -> pa.DataType:
    argument = query.figures[place].argument
    assert argument is not None
    return argument.type
