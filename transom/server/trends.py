"""A query's newest final results as a small series of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.results.newest_results import ResultPlaces, newest_results
from transom.server.query_description import QueryDescription


@dataclass(frozen=True)
class Trend:
    """One value per window: of a query without groups, or of one group.

    The group is the one with the highest value in the newest window. If each group has windows of its own
    (SESSION, PARTITION BY), it is the group of the newest result.
    """

    name: str  # of the column
    ends: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    group: tuple[Any, ...] = ()  # the values of its GROUP BY columns
    groups: int = 0  # of the newest window, or of all results that were read if windows differ by group
    is_highest: bool = True  # whether the group is the one with the highest value


def trend(query: QueryDescription, results: pa.Table, points: int) -> Trend | None:
    """The first numeric value of a query, in at most `points` windows."""
    roles = [column.role for column in query.columns]
    numeric = (
        index
        for index, role in enumerate(roles)
        if role == "value" and _is_number(results.schema.field(index).type)
    )
    index = next(numeric, None)
    if index is None:
        return None
    keys = [at for at, role in enumerate(roles) if role == "key"]
    # The first text among the system columns is `kind`.
    kind = next(at for at, role in enumerate(roles) if role == "system" and _is_text(results, at))
    finals = newest_results(results, ResultPlaces(kind, (1, *keys)))
    finals, name = finals.filter(pc.is_valid(finals.column(index))), query.columns[index].name
    if not finals.num_rows:
        return Trend(name)
    series = pa.table(
        {"end": finals.column(1).cast(pa.int64()), "value": finals.column(index).cast(pa.float64())}
    )
    if not keys:
        return Trend(name, *_newest(series, points))
    newest = _newest_rows(series)
    place = newest[_highest(series["value"].take(pa.array(newest)))]
    group = tuple(finals.column(at)[place].as_py() for at in keys)
    groups = len(newest) if query.shares_windows else _count_groups(finals.select(keys))
    mine = series.filter(_is_group(finals.select(keys), group))
    return Trend(name, *_newest(mine, points), group, groups, query.shares_windows)


def _is_text(results: pa.Table, place: int) -> bool:
    return pa.types.is_string(results.schema.field(place).type)


def _newest(series: pa.Table, points: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The newest ends in order, each with its last value."""
    by_end = dict(zip(series["end"].to_pylist(), series["value"].to_pylist(), strict=True))
    ends = sorted(by_end)[-points:]
    return tuple(ends), tuple(by_end[end] for end in ends)


def _newest_rows(series: pa.Table) -> list[int]:
    is_newest = pc.equal(series["end"], pc.max(series["end"]))
    return pc.indices_nonzero(is_newest).to_pylist()


def _highest(values: pa.ChunkedArray) -> int:
    """The place of the highest value; NaN is below all others."""
    numbers = values.to_pylist()
    return max(range(len(numbers)), key=lambda at: (numbers[at] == numbers[at], numbers[at]))


def _count_groups(keys: pa.Table) -> int:
    try:
        return keys.group_by(keys.column_names).aggregate([]).num_rows
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # keys that Arrow can't group by
        return len({repr(row) for row in zip(*(column.to_pylist() for column in keys.columns), strict=True)})


def _is_group(keys: pa.Table, group: tuple[Any, ...]) -> pa.Array:
    """Which rows are of a group; null is equal to null, and NaN to NaN."""
    text = repr(group)
    if any(not _is_comparable(column.type) for column in keys.columns) or any(
        value is not None and value != value for value in group
    ):
        rows = zip(*(column.to_pylist() for column in keys.columns), strict=True)
        return pa.array([repr(row) == text for row in rows])
    matches = pa.chunked_array([pa.array([True] * keys.num_rows)])
    for column, value in zip(keys.columns, group, strict=True):
        same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
        matches = pc.and_(matches, pc.fill_null(same, False))
    return matches


def _is_comparable(kind: pa.DataType) -> bool:
    return not kinds.is_nested(kind)


def _is_number(kind: pa.DataType) -> bool:
    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
