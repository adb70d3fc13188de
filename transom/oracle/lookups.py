"""Lookups of queries without SLIDE: who is asked, for which window, and which rows lie in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transom.elements import ClockKind
from transom.oracle.aggregates import Values
from transom.oracle.batches import Lookup
from transom.oracle.window_close import Window
from transom.sql.query import Query


@dataclass(frozen=True)
class Held:
    """A matching row that lookups may ask for: where it lies on the query's clock, and what it is."""

    value: int
    group: tuple[Any, ...]
    values: Values
    earlier: bool  # than the query


def newest(values: Sequence[int], length: int) -> Window | None:
    """The window of a length that ends at the newest row; none before there is one.

    >>> newest([3, 12, 7], length=10), newest([], length=10)
    ((3, 13), None)
    """
    return (max(values) + 1 - length, max(values) + 1) if values else None


def floor_of(query: Query, values: Sequence[int]) -> int | None:
    """Below which time a row comes too late for a query, whose clock has shown these values; None: never."""
    window = newest(values, query.window.range)
    return None if window is None or query.clock.kind is ClockKind.ROWS else window[0]


def who_is_asked(lookups: Iterable[Lookup], queries: Mapping[str, Query]) -> Iterator[tuple[str, int]]:
    """The queries that lookups ask, each with a length; a lookup of all asks those that reach so far."""
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
