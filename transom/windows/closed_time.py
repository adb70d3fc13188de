"""Closed time: ranges that are closed for every row, or for the rows that match a pattern.

Closed time is a set, not one number. A watermark closes everything before it; a punctuation
`[ts <= t, site = 3]` closes one site; a range punctuation closes a stretch in the middle. A window
is closed for a group when its whole extent lies in time that is closed for the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import Any

from transom.windows.intervals import LOWEST, IntervalSet, union

Pattern = frozenset[tuple[str, Any]]
ByColumns = Mapping[frozenset[str], Mapping[Pattern, IntervalSet]]


@dataclass(frozen=True)
class Closed:
    """The closed ranges of one clock: for all rows, and by pattern."""

    general: IntervalSet = IntervalSet()
    patterned: tuple[tuple[Pattern, IntervalSet], ...] = ()

    def close(self, until: int, since: int | None = None, where: Sequence[tuple[str, Any]] = ()) -> Closed:
        """Add the range `[since, until)`, closed for the rows that match `where`."""
        return self.close_all([(until, since, where)])

    def close_all(self, additions: Iterable[tuple[int, int | None, Sequence[tuple[str, Any]]]]) -> Closed:
        """Add many ranges at once: (until, since, where).

        A range of a pattern is dropped when the general ranges cover it. Until then it is kept as a whole,
        because a window may lie partly in the one and partly in the other.
        """
        general, patterned = self.general, dict(self.patterned)
        for until, since, where in additions:
            added = IntervalSet.of((LOWEST if since is None else since, until))
            if where:
                pattern = frozenset(where)
                patterned[pattern] = patterned.get(pattern, IntervalSet()) | added
            else:
                general = general | added
        return Closed(
            general, tuple((pattern, ranges) for pattern, ranges in patterned.items() if ranges - general)
        )

    def watermark(self) -> int | None:
        """The time before which everything is closed; None if that is not so from the beginning of time."""
        first = next(iter(self.general), None)
        return first[1] if first is not None and first[0] <= LOWEST else None

    @cached_property
    def _plain(self) -> View:
        """The view of every query while there are no patterns."""
        return View(self.general, {}, {}, {})

    @cached_property
    def by_columns(self) -> ByColumns:
        """The ranges of patterns by the columns of the pattern: there are few sets of columns."""
        by_columns: dict[frozenset[str], dict[Pattern, IntervalSet]] = defaultdict(dict)
        for pattern, ranges in self.patterned:
            by_columns[frozenset(column for column, _ in pattern)][pattern] = ranges
        return dict(by_columns)

    @property
    def is_prefix(self) -> bool:
        """Whether all that is closed is what lies before one moment, for every row."""
        return not self.patterned and (not self.general or self._is_from_start(self.general))

    @staticmethod
    def _is_from_start(times: IntervalSet) -> bool:
        return len(times) == 1 and times.pairs[0][0] <= LOWEST

    def view(
        self, keys: Mapping[str, int], pinned: Mapping[str, tuple[Any, ...]], in_order: bool = False
    ) -> View:
        """Closed time as a query sees it.

        `keys` are the places of columns in the query's groups, `pinned` the values that its WHERE leaves to
        columns. `in_order` is for queries whose windows close one after the other, for all groups at once: time
        is closed for them when all time before it is.
        """
        if in_order:
            return self._plain if self.is_prefix else self._in_order(pinned)
        if not self.patterned:
            return self._plain
        decided = keys.keys() | pinned.keys()
        applying = {columns: ranges for columns, ranges in self.by_columns.items() if columns <= decided}
        return View(self.general, applying, dict(keys), dict(pinned))

    def _in_order(self, pinned: Mapping[str, tuple[Any, ...]]) -> View:
        """Closed time from the beginning to the first moment that is open."""
        times = self.view({}, pinned).of({})
        first = times.pairs[:1] if times and times.pairs[0][0] <= LOWEST else ()
        return View(IntervalSet.of(*first), {}, {}, {})


@dataclass(frozen=True)
class View:
    """Closed time for the groups of one query."""

    general: IntervalSet
    patterned: ByColumns
    keys: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]

    @property
    def uniform(self) -> bool:
        """Whether the same is closed for all groups."""
        return not self.patterned

    @property
    def columns(self) -> list[int]:
        """The places of the group columns that decide what is closed."""
        used = frozenset[str]().union(*self.patterned)
        return sorted(place for column, place in self.keys.items() if column in used)

    def of(self, group: Mapping[int, Any]) -> IntervalSet:
        """The time that is closed for a group, given its values by place.

        Where WHERE leaves a column several values, a time is closed if it is closed for each of them.
        """
        if self.uniform:
            return self.general
        closed = [self._of_cell(cell) | self.general for cell in self._cells(group)]
        return (
            reduce(IntervalSet.__and__, closed) if closed else self.general
        )  # WHERE leaves it no value at all

    def _of_cell(self, cell: Mapping[str, Any]) -> IntervalSet:
        patterns = (
            (ranges, frozenset((column, cell[column]) for column in columns))
            for columns, ranges in self.patterned.items()
        )
        return union(ranges[pattern] for ranges, pattern in patterns if pattern in ranges)

    def _cells(self, group: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
        """The combinations of values that rows of a group can have in the columns of the patterns."""
        fixed = {column: group[place] for column, place in self.keys.items() if place in group}
        free = sorted(frozenset[str]().union(*self.patterned) - self.keys.keys())
        for values in product(*(self.pinned[column] for column in free)):
            yield fixed | dict(zip(free, values, strict=True))
