"""Closed time: ranges that are closed for every row, or for the rows that match a pattern.

Closed time is a set, not one number. A watermark closes everything before it; a punctuation
`[ts <= t, site = 3]` closes one site; a range punctuation closes a stretch in the middle. A window
is closed for a group when its whole extent lies in time that is closed for the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.windows.group_closings import GroupClosings
from transom.windows.intervals import HIGHEST, LOWEST, IntervalSet, union

Pattern = frozenset[tuple[str, Any]]
ByColumns = Mapping[frozenset[str], Mapping[Pattern, IntervalSet]]


@dataclass(frozen=True)
class Closed:
    """The closed ranges of one clock: for all rows, and by pattern."""

    general: IntervalSet = IntervalSet()
    patterned: tuple[tuple[Pattern, IntervalSet], ...] = ()
    groups: GroupClosings | None = None  # of a stream whose groups have clocks of their own
    delay: int = 0
    undelayed: IntervalSet = IntervalSet()  # the general ranges without the delay, if there is one

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
        kept = tuple((pattern, ranges) for pattern, ranges in patterned.items() if ranges - general)
        return Closed(general, kept, self.groups)

    def with_groups(self, groups: GroupClosings) -> Closed:
        """With the closed time of groups; what was closed for other groups is kept as patterns."""
        before = self.groups
        if before is None:
            return replace(self, groups=groups)
        own = groups.since(before) if before.column == groups.column else groups
        if before.values is groups.values:
            return replace(self, groups=own)
        gone = before if before.column != groups.column else before.without(groups)
        left = replace(self, groups=own)
        closings = [
            (until, None, ((gone.column, value),)) for value, until in gone.beyond(self.watermark() or LOWEST)
        ]
        return left.close_all(closings) if closings else left

    @property
    def varies(self) -> bool:
        """Whether something is closed for some groups only."""
        return bool(self.patterned) or self.groups is not None

    @property
    def latest(self) -> int | None:
        """A time after which nothing is closed; None if nothing is."""
        stops = [stop for _, stop in self.general]
        stops += [stop for _, ranges in self.patterned for _, stop in ranges]
        if self.groups is not None and self.groups.latest > LOWEST:
            stops.append(self.groups.latest)
        return max(stops, default=None)

    def patterns(self) -> Iterator[tuple[Pattern, IntervalSet]]:
        """What is closed by pattern, groups included."""
        yield from self.patterned
        if self.groups is not None:
            for value, until in self.groups.beyond(self.watermark() or LOWEST):
                yield frozenset([(self.groups.column, value)]), IntervalSet.of((LOWEST, until))

    def delayed(self, by: int) -> Closed:
        """The same, with every closed range of a group ending earlier by a distance on the clock.

        A window lies in it if the window, longer by that distance, lies in closed time.

        >>> Closed().close(100).delayed(30).general
        IntervalSet([-4611686018427387904, 70))
        """
        if not by or not (self.general or self.varies):
            return self
        known = self._delayed.get(by)
        if known is None:
            general = _ending_earlier(self.general, by)
            known = self._delayed[by] = Closed(general, self.patterned, self.groups, by, self.general)
        return known

    @cached_property
    def _delayed(self) -> dict[int, Closed]:
        """By distance: all queries with the same have one object."""
        return {}

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
        return not self.varies and (not self.general or self._is_from_start(self.general))

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
        decided = keys.keys() | pinned.keys()
        groups = self.groups if self.groups is not None and self.groups.column in decided else None
        if not self.patterned and groups is None:
            return self._plain
        applying = {columns: ranges for columns, ranges in self.by_columns.items() if columns <= decided}
        return View(self.general, applying, dict(keys), dict(pinned), groups, self.delay, self.undelayed)

    def _in_order(self, pinned: Mapping[str, tuple[Any, ...]]) -> View:
        """Closed time from the beginning to the first moment that is open."""
        times = self.view({}, pinned).of({})
        first = times.pairs[:1] if times and times.pairs[0][0] <= LOWEST else ()
        return View(IntervalSet.of(*first), {}, {}, {})


def _ending_earlier(ranges: IntervalSet, by: int) -> IntervalSet:
    """Ranges that end earlier; the end of all time stays."""
    return IntervalSet.of(*((start, stop if stop >= HIGHEST else stop - by) for start, stop in ranges))


@dataclass(frozen=True)
class View:
    """Closed time for the groups of one query."""

    general: IntervalSet
    patterned: ByColumns
    keys: Mapping[str, int]
    pinned: Mapping[str, tuple[Any, ...]]
    groups: GroupClosings | None = None
    delay: int = 0
    undelayed: IntervalSet = IntervalSet()

    @property
    def uniform(self) -> bool:
        """Whether the same is closed for all groups."""
        return not self.patterned and self.groups is None

    def patterns(self) -> Iterator[tuple[frozenset[str], Pattern, IntervalSet]]:
        """What is closed by pattern, groups included."""
        for columns, ranges_by_pattern in self.patterned.items():
            for pattern, ranges in ranges_by_pattern.items():
                yield columns, pattern, ranges
        if self.groups is not None:
            first = self.general.pairs[0] if self.general else (0, LOWEST)
            for value, until in self.groups.beyond(first[1] if first[0] <= LOWEST else LOWEST):
                pattern = frozenset([(self.groups.column, value)])
                yield frozenset([self.groups.column]), pattern, IntervalSet.of((LOWEST, until))

    @property
    def is_from_start(self) -> bool:
        """Whether what is closed for all groups is what lies before one moment."""
        return not self.general or Closed._is_from_start(self.general)

    @property
    def anywhere(self) -> IntervalSet:
        """The time that is closed for all groups or for some."""
        patterned = union(ranges for own in self.patterned.values() for ranges in own.values())
        latest = LOWEST if self.groups is None else self.groups.latest
        return self.general | patterned | IntervalSet.of((LOWEST, latest))

    def until(self, keys: Sequence[pa.Array], rows: int) -> Ints | None:
        """For each row, given the columns of its group, the time before which all is closed; None: it has none."""
        if self.patterned or not self.is_from_start:
            return None
        until = np.full(rows, self.general.pairs[0][1] if self.general else LOWEST)
        return until if self.groups is None else np.maximum(until, self._until_of_groups(keys) - self.delay)

    def _until_of_groups(self, keys: Sequence[pa.Array]) -> Ints:
        assert self.groups is not None
        place = self.keys.get(self.groups.column)
        if place is None:
            return np.array(min(self._clocks({}).values(), default=LOWEST))
        return self.groups.of_values(keys[place])

    @property
    def columns(self) -> list[int]:
        """The places of the group columns that decide what is closed."""
        return sorted(place for column, place in self.keys.items() if column in self._deciding)

    @property
    def _deciding(self) -> frozenset[str]:
        """The columns of patterns, and the one with clocks."""
        deciding = frozenset[str]().union(*self.patterned)
        return deciding if self.groups is None else deciding | {self.groups.column}

    def of(self, group: Mapping[int, Any]) -> IntervalSet:
        """The time that is closed for a group, given its values by place.

        Where WHERE leaves a column several values, a time is closed if it is closed for each of them.
        """
        if self.uniform:
            return self.general
        general = self.undelayed if self.delay else self.general
        clocks = self._clocks(group)
        if not self.patterned:
            closed = [general | IntervalSet.of((LOWEST, min(clocks.values(), default=LOWEST)))]
        else:
            closed = [general | self._of_cell(cell, clocks) for cell in self._cells(group)]
        times = reduce(IntervalSet.__and__, closed) if closed else general  # WHERE leaves it no value at all
        return _ending_earlier(times, self.delay) if self.delay else times

    def _clocks(self, group: Mapping[int, Any]) -> Mapping[Any, int]:
        """By value that rows of a group can have in the column with clocks, until when its clock has closed time."""
        if self.groups is None:
            return {}
        place = self.keys.get(self.groups.column)
        return self.groups.of_each(self.pinned[self.groups.column] if place is None else (group.get(place),))

    def _of_cell(self, cell: Mapping[str, Any], clocks: Mapping[Any, int]) -> IntervalSet:
        patterns = (
            (ranges, frozenset((column, cell[column]) for column in columns))
            for columns, ranges in self.patterned.items()
        )
        closed = union(ranges[pattern] for ranges, pattern in patterns if pattern in ranges)
        if self.groups is None:
            return closed
        return closed | IntervalSet.of((LOWEST, clocks[cell[self.groups.column]]))

    def _cells(self, group: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
        """The combinations of values that rows of a group can have in the columns of the patterns."""
        fixed = {column: group[place] for column, place in self.keys.items() if place in group}
        free = sorted(self._deciding - self.keys.keys())
        for values in product(*(self.pinned[column] for column in free)):
            yield fixed | dict(zip(free, values, strict=True))
