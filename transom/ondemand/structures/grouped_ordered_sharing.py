"""OrderedSharing over the runs of raw tuples, group by group.

Paper: Aggregate Sharing in Stream Databases, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Extreme
from transom.aggregates.numeric import numeric_form
from transom.columns.arrays import Ints
from transom.columns.nan_order import orderable
from transom.ondemand.structures.build_runs import align_groups
from transom.ondemand.structures.group_index import match_pattern
from transom.ondemand.structures.ordered_sharing import Counters, OrderedSharing, WindowSizes
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run
from transom.ondemand.structures.staircase import Staircase

TimesAndValues = tuple[list[int], list[Any]]


class GroupedOrderedSharing:
    """The answers of a MAX or a MIN for the registered windows, one OrderedSharing per group.

    The caller passes every run of the store to `insert`, the existing ones first, in any order. The tuples
    stay in the runs; a lookup receives these for its recalculations. Nothing here needs saving: an empty
    instance recalculates at the first lookup. Not thread-safe: the caller holds a lock.
    """

    def __init__(self, accumulator: Extreme, windows: Iterable[int] = ()) -> None:
        self.accumulator = accumulator
        self.windows = WindowSizes(windows)
        self._climb = Staircase(accumulator)
        self._form = numeric_form(accumulator)
        self._keys: tuple[pa.Array, ...] = ()
        self._groups: list[OrderedSharing] = []
        self._newest: Ints = np.zeros(0, np.int64)  # the newest tuple's time in each group
        self._steps: dict[int, TimesAndValues] = {}  # the tuples that a lookup rescans, by group
        self._counters = Counters()  # shared by the groups; tuples are counted by this class
        self._inserted = self._scanned = 0

    @property
    def counters(self) -> Counters:
        """The work done so far; a lookup counts once for each group."""
        return replace(self._counters, inserts=self._inserted, scanned=self._scanned)

    @property
    def entries(self) -> int:
        """How many answers are cached."""
        return sum(len(group.entries) for group in self._groups)

    def insert(self, run: Run) -> None:
        """Insert the tuples of a run of raw entries with the column `value`."""
        if not run.entries:
            return
        self._inserted += run.entries
        steps = self._climb.merged([run], run.base)
        for place, (times, values) in self._by_group(steps):
            self._groups[place].insert_all(times, values)
            self._newest[place] = max(self._newest[place], times[-1])

    def lookup(self, runs: Sequence[Run], since: int, now: int, where: GroupPattern = ()) -> GroupAnswers:
        """The answers of the window from `since` to `now` for the groups that match a pattern, as the column `s0`.

        `now` is the newest time of the clock over all groups; `runs` are the inserted runs.
        """
        size = now + 1 - since
        is_wanted = self._newest >= since
        if where and self._keys:
            is_wanted &= match_pattern(self._keys, len(self._groups), where)
        alive = np.flatnonzero(is_wanted)
        unknown = []
        for place in alive.tolist():
            self._groups[place].advance(now)
            if not self._groups[place].has_answer(size):
                unknown.append(place)
        if unknown:
            self._steps = self._read(runs, since, np.array(unknown))
        answers = [self._groups[place].lookup(size) for place in alive.tolist()]
        self._steps = {}
        keys = tuple(key.take(pa.array(alive)) for key in self._keys)
        return GroupAnswers(keys, len(alive), {"s0": self._column(answers)})

    def expire(self, before: int) -> None:
        """Evict groups without tuples at or after a time."""
        remaining = np.flatnonzero(self._newest >= before)
        if len(remaining) < len(self._groups):
            self._keys = tuple(key.take(pa.array(remaining)) for key in self._keys)
            self._groups = [self._groups[place] for place in remaining.tolist()]
            self._newest = self._newest[remaining]
            for place, group in enumerate(self._groups):
                group.rescan = partial(self._reread, place)

    def _read(self, runs: Sequence[Run], since: int, wanted: Ints) -> dict[int, TimesAndValues]:
        """The tuples of some groups that no later tuple beats: all that a recalculation needs."""
        reached = [run for run in runs if run.entries and run.high >= since]
        parts = []
        for run in reached:
            groups = np.flatnonzero(np.isin(self._places(run), wanted))
            if len(groups):
                part = run if len(groups) == run.groups else run.take_groups(groups)
                self._scanned += int((part.bounds[1:] - part.starts(since)).sum())
                parts.append(part)
        steps = self._by_group(self._climb.merged(parts, since)) if parts else ()
        return {place: (times, list(map(orderable, values))) for place, (times, values) in steps}

    def _reread(self, place: int, since: int) -> TimesAndValues:
        return self._steps.get(place, ([], []))

    def _by_group(self, run: Run) -> Iterator[tuple[int, TimesAndValues]]:
        """The times and values of each group of a run, with the group's place in this instance."""
        times, values = run.times.tolist(), self._plain(run.columns["value"])
        bounds = run.bounds.tolist()
        for group, place in enumerate(self._places(run).tolist()):
            own = slice(bounds[group], bounds[group + 1])
            yield place, (times[own], values[own])

    def _places(self, run: Run) -> Ints:
        """The places of a run's groups in this instance; new groups get new places."""
        existing = len(self._groups)
        if not existing:
            self._keys = tuple(key.slice(0, 0) for key in run.keys)
        alike = align_groups([self._keys, run.keys], existing + run.groups)
        places = np.full(alike.count, -1)
        places[alike.codes[:existing]] = np.arange(existing)
        group_places = places[alike.codes[existing:]]
        new = np.flatnonzero(group_places < 0)
        if len(new):
            group_places[new] = np.arange(existing, existing + len(new))
            self._keys = tuple(
                pa.concat_arrays([mine, key.take(pa.array(new))])
                for mine, key in zip(self._keys, run.keys, strict=True)
            )
            self._newest = np.r_[self._newest, run.times[run.bounds[1:][new] - 1]]
            self._groups += [self._group(existing + place) for place in range(len(new))]
        return group_places

    def _group(self, place: int) -> OrderedSharing:
        group = OrderedSharing(self.windows, self.accumulator.function == "max", partial(self._reread, place))
        group.counters = self._counters
        return group

    def _plain(self, values: pa.Array) -> list[Any]:
        """Values in a form that Python compares; numbers in Arrow are numbers here."""
        return values.to_pylist() if self._form is None else self._form.values(values)[0].tolist()

    def _column(self, answers: list[Any]) -> pa.Array:
        if self._form is None:
            return pa.array(answers, self.accumulator.input)
        return self._form.column(np.array(answers, self._form.dtype), None)
