"""What is closed: ranges of time, each for every row or for the rows that match a pattern.

Closed is a set, not one number. A watermark closes everything before it; a punctuation
`[ts <= t, site = 3]` closes one site; a range punctuation closes a stretch in the middle. A window
is closed for a cell (a query's group) when its whole extent lies within what is closed for the cell.
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
        """This, and also `[since, until)` for the rows that match `where`."""
        return self.close_all([(until, since, where)])

    def close_all(self, ranges: Iterable[tuple[int, int | None, Sequence[tuple[str, Any]]]]) -> Closed:
        """This, and also many ranges at once: (until, since, where).

        A patterned range is kept while it says more than the general ones, and then as a whole: a
        window may lie across the border.
        """
        general, patterned = self.general, dict(self.patterned)
        for until, since, where in ranges:
            added = IntervalSet.of((LOWEST if since is None else since, until))
            if where:
                pattern = frozenset(where)
                patterned[pattern] = patterned.get(pattern, IntervalSet()) | added
            else:
                general = general | added
        return Closed(general, tuple((pattern, own) for pattern, own in patterned.items() if own - general))

    def watermark(self) -> int | None:
        """How far everything is closed from the beginning."""
        first = next(iter(self.general), None)
        return first[1] if first is not None and first[0] <= LOWEST else None

    @cached_property
    def _plain(self) -> View:
        """What every query sees while nothing is closed for some rows only."""
        return View(self.general, {}, {}, {})

    @cached_property
    def by_columns(self) -> ByColumns:
        """The patterned ranges by the columns that they speak of: there are few such sets."""
        found: dict[frozenset[str], dict[Pattern, IntervalSet]] = defaultdict(dict)
        for pattern, ranges in self.patterned:
            found[frozenset(column for column, _ in pattern)][pattern] = ranges
        return dict(found)

    def view(self, keys: Mapping[str, int], pinned: Mapping[str, tuple[Any, ...]]) -> View:
        """What is closed as seen by a query whose groups have these columns at these places, and
        whose WHERE leaves these columns only the values given."""
        if not self.patterned:
            return self._plain
        known = keys.keys() | pinned.keys()
        applying = {columns: own for columns, own in self.by_columns.items() if columns <= known}
        return View(self.general, applying, dict(keys), dict(pinned))


@dataclass(frozen=True)
class View:
    """The closed ranges as one query's groups see them."""

    general: IntervalSet
    patterned: ByColumns
    keys: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]

    @property
    def uniform(self) -> bool:
        """Whether all groups see the same."""
        return not self.patterned

    @property
    def columns(self) -> list[int]:
        """The places of the group columns that decide what is closed."""
        used = frozenset[str]().union(*self.patterned)
        return sorted(place for column, place in self.keys.items() if column in used)

    def of(self, group: Mapping[int, Any]) -> IntervalSet:
        """What is closed for a group with these values at those places.

        When WHERE leaves a column several values, a time is closed only if it is for each of them.
        """
        if self.uniform:
            return self.general
        closed = [self._of_cell(cell) | self.general for cell in self._cells(group)]
        return (
            reduce(IntervalSet.__and__, closed) if closed else self.general
        )  # WHERE leaves it no value at all

    def _of_cell(self, cell: Mapping[str, Any]) -> IntervalSet:
        patterns = (
            (own, frozenset((column, cell[column]) for column in columns))
            for columns, own in self.patterned.items()
        )
        return union(own[pattern] for own, pattern in patterns if pattern in own)

    def _cells(self, group: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
        """The combinations of values that rows of a group can have in the columns of the patterns."""
        own = {column: group[place] for column, place in self.keys.items() if place in group}
        free = sorted(frozenset[str]().union(*self.patterned) - self.keys.keys())
        for values in product(*(self.pinned[column] for column in free)):
            yield own | dict(zip(free, values, strict=True))
