"""Results that depend on earlier windows, by the definitions: LAG and EMIT EMPTY."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from transom.elements import Punctuation
from transom.oracle.aggregates import ScalarValues
from transom.oracle.window_close import WindowBounds, is_closed, windows_of
from transom.sql.interpreter.values import sameness
from transom.sql.query import Query

_Group = tuple[Any, ...]


@dataclass
class PastResults:
    """Every result that a query had so far, and where it began."""

    aggregates: dict[Hashable, dict[int, list[Any]]] = field(
        default_factory=dict
    )  # by group and window's end
    with_rows: dict[Hashable, set[int]] = field(
        default_factory=dict
    )  # the same, the ends of windows with rows
    groups: dict[Hashable, _Group] = field(default_factory=dict)
    first: int | None = None  # the end of the first window to report
    closed_at_first: list[Punctuation] = field(default_factory=list)  # what was closed before

    def begin(self, query: Query, values: Sequence[int], closings: list[Punctuation]) -> None:
        """Note the first rows that came after the query joined: it is the first of their windows to report."""
        if query.empty is not None and self.first is None and values:
            value, spec = min(values), query.window
            self.first = value + 1 + (spec.phase - (value + 1)) % spec.slide
            self.closed_at_first = closings

    def add(
        self, window: WindowBounds, group: _Group, rows: Sequence[ScalarValues], values: list[Any]
    ) -> None:
        """Note a result."""
        key = sameness(group)
        self.groups[key] = group
        self.aggregates.setdefault(key, {})[window[1]] = values
        if rows:
            self.with_rows.setdefault(key, set()).add(window[1])

    def empty_windows(
        self, query: Query, is_over: Callable[[WindowBounds], bool], closings: Sequence[Punctuation]
    ) -> Iterator[tuple[WindowBounds, _Group]]:
        """The windows without rows that are closed and have not been reported, of groups that had rows before."""
        slide, length = query.window.slide, query.window.range
        assert query.empty is not None
        most = query.empty.windows if query.empty.length is None else query.empty.length // slide
        known = {(key, end) for key, ends in self.with_rows.items() for end in ends}
        if self.first is not None and not query.keys:
            known.add((sameness(()), self.first - slide))
        wanted = {(key, end + number * slide) for key, end in known for number in range(1, most + 1)}
        for key, end in sorted(wanted, key=repr):
            window, group = (end - length, end), self.groups.get(key, ())
            if end in self.aggregates.get(key, {}) or is_closed(query, window, group, self.closed_at_first):
                continue
            if is_over(window) or is_closed(query, window, group, closings):
                yield window, group

    def last_window(self, query: Query, values: Sequence[int]) -> int | None:
        """Where the last window ends that starts no later than any row, if the query has begun."""
        if self.first is None or not values:
            return None
        spec, newest = query.window, max(values)
        inside = windows_of(newest, spec)
        if inside:
            return max(end for _, end in inside)
        end = newest + spec.range
        return end - (end - spec.phase) % spec.slide

    def lags(
        self,
        query: Query,
        window: WindowBounds,
        group: _Group,
        is_final: Callable[[WindowBounds], bool],
    ) -> list[Any]:
        """The values of earlier windows that a result reads."""
        known, values = self.aggregates.get(sameness(group), {}), []
        for lag in query.lags:
            back = lag.windows * query.window.slide
            earlier = window[0] - back, window[1] - back
            if lag.call is None:
                values.append(earlier[1] in known if is_final(earlier) else None)
            else:
                values.append(known[earlier[1]][lag.call] if earlier[1] in known else None)
        return values
