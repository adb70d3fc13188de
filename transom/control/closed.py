"""What is closed: ranges of time, each for every row or for the rows that match a pattern.

Closed is a set, not one number. A watermark closes everything before it; a punctuation
`[ts <= t, site = 3]` closes one site; a range punctuation closes a stretch in the middle. A window
is closed for a cell (a query's group) when its whole extent lies within what is closed for the cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from transom.algorithms.intervals import LOWEST, IntervalSet, union

Pattern = frozenset[tuple[str, Any]]


@dataclass(frozen=True)
class Closed:
    """The closed ranges of one clock: for all rows, and by pattern."""

    general: IntervalSet = IntervalSet()
    patterned: tuple[tuple[Pattern, IntervalSet], ...] = ()

    def close(self, until: int, since: int | None = None, where: Sequence[tuple[str, Any]] = ()) -> Closed:
        """This, and also `[since, until)` for the rows that match `where`."""
        added = IntervalSet.of((LOWEST if since is None else since, until))
        if not where:
            return self._with(self.general | added, self.patterned)
        pattern = frozenset(where)
        known = dict(self.patterned)
        known[pattern] = known.get(pattern, IntervalSet()) | added
        return self._with(self.general, tuple(known.items()))

    def _with(self, general: IntervalSet, patterned: tuple[tuple[Pattern, IntervalSet], ...]) -> Closed:
        """Patterned ranges are kept only as far as they say more than the general ones.

        A range that the general ones swallow in part keeps the part that touches them: a window may
        lie across the border.
        """
        kept = tuple((pattern, ranges) for pattern, ranges in patterned if ranges - general)
        return Closed(general, kept)

    def watermark(self) -> int | None:
        """How far everything is closed from the beginning."""
        first = next(iter(self.general), None)
        return first[1] if first is not None and first[0] <= LOWEST else None

    def view(self, keys: Mapping[str, int], pinned: Mapping[str, tuple[Any, ...]]) -> View:
        """What is closed as seen by a query whose groups have these columns at these places, and
        whose WHERE leaves these columns only the values given."""
        known = keys.keys() | pinned.keys()
        applying = tuple(
            (pattern, ranges) for pattern, ranges in self.patterned if {column for column, _ in pattern} <= known
        )
        return View(self.general, applying, dict(keys), dict(pinned))


@dataclass(frozen=True)
class View:
    """The closed ranges as one query's groups see them."""

    general: IntervalSet
    patterned: tuple[tuple[Pattern, IntervalSet], ...]
    keys: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]

    @property
    def uniform(self) -> bool:
        """Whether all groups see the same."""
        return not self.patterned

    @property
    def columns(self) -> list[int]:
        """The places of the group columns that decide what is closed."""
        used = {column for pattern, _ in self.patterned for column, _ in pattern}
        return sorted(place for column, place in self.keys.items() if column in used)

    def of(self, group: Mapping[int, Any]) -> IntervalSet:
        """What is closed for a group with these values at those places.

        When WHERE leaves a column several values, a time is closed only if it is for each of them.
        """
        if self.uniform:
            return self.general
        return reduce(
            IntervalSet.__and__,
            (
                union(ranges for pattern, ranges in self.patterned if pattern <= cell) | self.general
                for cell in self._cells(group)
            ),
        )

    def _cells(self, group: Mapping[int, Any]) -> Iterator[Pattern]:
        """The combinations of values that rows of a group can have in the columns of the patterns."""
        own = {(column, group[place]) for column, place in self.keys.items() if place in group}
        used = {column for pattern, _ in self.patterned for column, _ in pattern} - self.keys.keys()
        for choice in product(*([(column, value) for value in self.pinned[column]] for column in sorted(used))):
            yield frozenset((*own, *choice))
