"""Sessions, naively: all rows of a group in the order of time, cut where two are more than the gap apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Sequence

from transom.elements import Punctuation
from transom.oracle.aggregates import ScalarValues
from transom.oracle.window_close import WindowBounds, is_closed
from transom.sql.query import Query


@dataclass
class SessionRow:
    """A row of a session: its time, its scalars, how many rows came before it, and its place in the batch, if new."""

    value: int
    values: ScalarValues
    number: int
    place: int | None = None


def chains(rows: Sequence[SessionRow], gap: int) -> Iterator[list[SessionRow]]:
    """Rows by time, in sessions: rows exactly one gap apart are in the same.

    >>> [[row.value for row in chain] for chain in chains([SessionRow(at, {}, 0) for at in (9, 0, 3, 6)], gap=3)]
    [[0, 3, 6, 9]]
    """
    chain: list[SessionRow] = []
    for row in sorted(rows, key=lambda each: each.value):
        if chain and row.value - chain[-1].value > gap:
            yield chain
            chain = []
        chain.append(row)
    if chain:
        yield chain


def extent(chain: Sequence[SessionRow], gap: int) -> WindowBounds:
    """From the first row to one gap after the last."""
    times = [row.value for row in chain]
    return min(times), max(times) + gap


def surroundings(query: Query, window: WindowBounds) -> WindowBounds:
    """The times at which a row would belong to a window; to a session also one gap before it and at its end."""
    if not query.window.is_session:
        return window
    return window[0] - query.window.range, window[1] + 1


def is_final(
    query: Query, window: WindowBounds, group: Sequence[Any], closings: Sequence[Punctuation]
) -> bool:
    """Whether no more rows can come for this window and group of a query."""
    return is_closed(query, surroundings(query, window), group, closings)
