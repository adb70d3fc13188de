"""The reports of a batch by group, as arrays: a result may have many more groups than an alert tracks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.alerts.machine import WindowReport
from transom.columns.arrays import Ints, Mask

GROUPS_AT_ONCE = 1_000  # groups whose reports are made at once

ReportMaker = Callable[[Ints], Sequence[WindowReport]]


class GroupReports(Mapping[str, Sequence[WindowReport]]):
    """The reports of a batch by group, in the order of the groups. Those of a group are made when they are read."""

    def __init__(self, groups: pa.Array, windows: Ints, is_early: Mask, make: ReportMaker):
        """Result rows, each with its group as JSON, the id of its window, and whether it is early.

        `make` makes the reports of some rows.
        """
        encoded = groups.dictionary_encode()
        self._groups, self._of_row = encoded.dictionary, encoded.indices.to_numpy()
        self._windows, self._is_early, self._make = windows, is_early, make
        self._made: dict[str, Sequence[WindowReport]] = {}
        self._may_matter = lru_cache(maxsize=4)(self._find_what_may_matter)

    @classmethod
    def none(cls) -> GroupReports:
        """No reports."""
        return cls(pa.array([], pa.large_string()), np.empty(0, np.int64), np.empty(0, bool), lambda rows: ())

    @cached_property
    def _places(self) -> dict[str, int]:
        return {group: place for place, group in enumerate(self._groups.to_pylist())}

    @cached_property
    def _sorted_places(self) -> Ints:
        places: Ints = pc.array_sort_indices(self._groups).to_numpy()
        return places

    @cached_property
    def _rows(self) -> tuple[Ints, Ints]:
        """The rows, group by group, and where those of each group begin."""
        counts = np.bincount(self._of_row, minlength=len(self))
        return np.argsort(self._of_row, kind="stable"), np.append(0, np.cumsum(counts))

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups.take(pa.array(self._sorted_places)).to_pylist())

    def __contains__(self, group: object) -> bool:
        return group in self._places

    def __getitem__(self, group: str) -> Sequence[WindowReport]:
        if group not in self._made:
            if group not in self._places:
                raise KeyError(group)
            self.read([group])
        return self._made[group]

    def read(self, groups: Iterable[str]) -> None:
        """Make the reports of some groups at once; groups without reports are left out."""
        places = self._places
        missing = [group for group in groups if group in places and group not in self._made]
        order, bounds = self._rows
        spans = [(int(bounds[place]), int(bounds[place + 1])) for place in map(places.__getitem__, missing)]
        if not spans:
            return
        made = self._make(np.concatenate([order[start:stop] for start, stop in spans]))
        at = 0
        for group, (start, stop) in zip(missing, spans, strict=True):
            self._made[group] = made[at : at + stop - start]
            at += stop - start

    def new_groups(
        self, tracked: Collection[str], for_windows: int, closed_below: int | None
    ) -> tuple[int, Iterator[str]]:
        """How many groups that are not tracked may become pending or fire, and these groups in order.

        The alert fires when the condition holds for so many windows in a row. Windows below `closed_below` are closed
        for all groups; None: that differs by group.
        """
        wanted = self._may_matter(for_windows, closed_below).copy()
        wanted[[self._places[group] for group in tracked if group in self._places]] = False
        return int(np.count_nonzero(wanted)), self._in_order(wanted)

    def _in_order(self, wanted: Mask) -> Iterator[str]:
        places = self._sorted_places[wanted[self._sorted_places]]
        for start in range(0, len(places), GROUPS_AT_ONCE):
            groups = self._groups.take(pa.array(places[start : start + GROUPS_AT_ONCE])).to_pylist()
            self.read(groups)
            yield from groups

    def _find_what_may_matter(self, for_windows: int, closed_below: int | None) -> Mask:
        """The groups with an early report, a run of so many windows, or one that has not ended."""
        if for_windows <= 1 or closed_below is None:
            return np.ones(len(self), bool)
        order = np.lexsort((self._windows, self._of_row))
        groups, windows = self._of_row[order], self._windows[order]
        goes_on = (groups[1:] == groups[:-1]) & (windows[1:] - windows[:-1] <= 1)
        firsts = np.flatnonzero(np.append(True, ~goes_on)) if len(order) else order
        lasts = np.append(firsts[1:], len(order)) - 1 if len(order) else order
        is_long = windows[lasts] - windows[firsts] + 1 >= for_windows
        matters = np.zeros(len(self), bool)
        matters[groups[firsts[is_long | (windows[lasts] >= closed_below - 1)]]] = True
        matters[self._of_row[self._is_early]] = True
        return matters
