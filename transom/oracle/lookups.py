"""Lookups of on-demand queries: which queries, over which window, and which rows lie in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transom.elements import ClockKind
from transom.oracle.aggregates import ScalarValues
from transom.oracle.batches import OracleLookup
from transom.oracle.window_close import WindowBounds
from transom.sql.query import Query


@dataclass(frozen=True)
class KeptRow:
    """A matching row that is kept for lookups: its value on the query's clock, its group and its scalars."""

    value: int
    group: tuple[Any, ...]
    values: ScalarValues
    earlier: bool  # whether it came before the query joined


def newest(values: Sequence[int], length: int) -> WindowBounds | None:
    """The window of a length that ends at the newest row; None before the first row.

    >>> newest([3, 12, 7], length=10), newest([], length=10)
    ((3, 13), None)
    """
    return (max(values) + 1 - length, max(values) + 1) if values else None


def oldest_kept(query: Query, values: Sequence[int]) -> int | None:
    """The clock value below which a row comes too late for a query, after these values; None if none does."""
    window = newest(values, query.window.range)
    return None if window is None or query.clock.kind is ClockKind.ROWS else window[0]


def looked_up(lookups: Iterable[OracleLookup], queries: Mapping[str, Query]) -> Iterator[tuple[str, int]]:
    """The queries that lookups ask, each with a length; a lookup of all asks those whose windows are as long."""
    for lookup in lookups:
        for name in queries if lookup.query is None else [lookup.query]:
            query, length = queries[name], lookup.length
            if lookup.query is None and (query.is_standing or query.window.range < (length or 1)):
                continue
            if query.is_standing:
                raise ValueError(f"{name} has SLIDE: its results are pushed")
            length = query.window.range if length is None else length
            if not 0 < length <= query.window.range:
                raise ValueError(f"a lookup of {name} is for 1 to {query.window.range}, not {length}")
            yield name, length
