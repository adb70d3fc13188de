"""The entries of runs that lie in a lookup's window, and how their states are combined by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.numeric import expand_runs, numeric_form
from transom.columns.arrays import Ints
from transom.ondemand.structures.build_runs import AlignedGroups, align_divided_groups, align_groups
from transom.ondemand.structures.group_index import matching_groups
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run


@dataclass(frozen=True)
class RunPart:
    """The entries of one run in a window: of each of its `groups` the entries `starts` to `stops`.

    `codes` are the numbers of the same groups among all groups in the window.
    """

    run: Run
    groups: Ints
    starts: Ints
    stops: Ints
    codes: Ints


@dataclass(frozen=True)
class WindowEntries:
    """The entries of several runs in a window; every part has entries."""

    parts: tuple[RunPart, ...]
    keys: tuple[pa.Array, ...]
    count: int

    @property
    def codes(self) -> Ints:
        """The groups of all pieces, part after part."""
        return concatenate_arrays([part.codes for part in self.parts])

    def answers(self, states: States) -> GroupAnswers:
        """The states by group as a lookup's result."""
        return GroupAnswers(self.keys, self.count, {f"s{i}": state for i, state in enumerate(states)})


def entries_since(
    runs: Sequence[Run], since: int, where: GroupPattern = (), divided: bool = False
) -> WindowEntries:
    """The entries at or after `since`, of the groups that match a pattern.

    With `divided`, a run may have several groups with the same keys.
    """
    reached = [run for run in runs if since <= run.high]
    if not reached:
        return WindowEntries((), tuple(key.slice(0, 0) for run in runs[:1] for key in run.keys), 0)
    chosen: list[Ints | None] = [None] * len(reached)
    if where:
        alike, chosen = _matching(reached, where, divided)
    elif divided:
        alike = align_divided_groups(reached)
    else:
        alike = align_groups([run.keys for run in reached], sum(run.groups for run in reached))
    present, parts, end = np.zeros(alike.count, bool), [], 0
    for run, groups in zip(reached, chosen, strict=True):
        if where and not len(groups):  # type: ignore[arg-type]
            continue
        start, end = end, end + (run.groups if groups is None else len(groups))
        codes = alike.codes[start:end]
        starts = run.starts(since, groups)
        stops = run.bounds[1:] if groups is None else run.bounds[1:][groups]
        groups = np.arange(run.groups) if groups is None else groups
        alive = starts < stops
        if not alive.all():
            groups, starts, stops, codes = groups[alive], starts[alive], stops[alive], codes[alive]
        present[codes] = True
        parts.append(RunPart(run, groups, starts, stops, codes))
    if present.all():
        return WindowEntries(tuple(parts), alike.keys, alike.count)
    ranks, kept = np.cumsum(present) - 1, np.flatnonzero(present)
    keys = tuple(key.take(pa.array(kept)) for key in alike.keys)
    return WindowEntries(tuple(replace(part, codes=ranks[part.codes]) for part in parts), keys, len(kept))


def _matching(
    runs: Sequence[Run], where: GroupPattern, divided: bool
) -> tuple[AlignedGroups, list[Ints | None]]:
    """The groups of several runs that match a pattern, matched by key, and which these are in each run."""
    chosen: list[Ints | None] = []
    columns = []
    for run in runs:
        groups, keys = matching_groups(run, where)
        chosen.append(groups)
        columns.append(keys)
    pieces = sum(len(keys[0]) for keys in columns)
    if len(where) < len(columns[0]) or any(len(values) > 1 for _, values in where):
        return align_groups(columns, pieces, divided), chosen
    # The pattern has one value for each column, so all pieces belong to the same group.
    first = next((keys for keys in columns if len(keys[0])), columns[0])
    one = AlignedGroups(np.zeros(pieces, np.int64), min(pieces, 1), tuple(key.slice(0, 1) for key in first))
    return one, chosen


def take_ranges(columns: Sequence[pa.Array], starts: Ints, stops: Ints) -> tuple[States, Ints]:
    """The rows of some ranges of columns, and the number of the range that each row is from."""
    if len(starts) == 1:  # the common case without GROUP BY
        start, count = int(starts[0]), int(stops[0] - starts[0])
        return [column.slice(start, count) for column in columns], np.zeros(count, np.int64)
    rows, which = expand_runs(starts, stops)
    at = pa.array(rows)
    return [column.take(at) for column in columns], which


def running_totals(run: Run, name: str) -> Ints:
    """The totals of a column of whole numbers up to and including each entry, over all groups; cached in the run.

    They wrap, and so do their differences. They are not stored with the run, since parts of it have others.
    """
    known: Ints | None = run.derived.get(name)
    if known is None:
        known = run.derived[name] = np.cumsum(run.columns[name].cast(pa.int64()).to_numpy())
    return known


def concatenate_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one after the other; without any, an empty array of whole numbers."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def combine_states(accumulator: Accumulator, states: States, codes: Ints, groups: int) -> States:
    """`Accumulator.combine`, in NumPy where the accumulator has a numeric form."""
    form = numeric_form(accumulator)
    if form is None:
        return accumulator.combine(states, codes, groups)
    numbers, valid = form.values(states[0])
    if valid is None:
        return [form.column(form.gathered(numbers, codes, groups), None)]
    present = np.bincount(codes[valid], minlength=groups) > 0
    return [form.column(form.gathered(numbers, codes, groups), present)]
