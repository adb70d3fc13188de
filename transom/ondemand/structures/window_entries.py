"""What a lookup's window reaches of each run, and how states found there become one a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.accumulators import Accumulator, States
from transom.aggregates.numeric import expanded, numeric_form
from transom.ondemand.structures.build_runs import align_divided_groups, align_groups
from transom.ondemand.structures.runs import GroupAnswers, Numbers, Run


@dataclass(frozen=True)
class RunPart:
    """What a window reaches of a run: the run's `groups`, and of each the entries `starts` to `stops`.

    `codes` are the same groups among all that the window has.
    """

    run: Run
    groups: Numbers
    starts: Numbers
    stops: Numbers
    codes: Numbers


@dataclass(frozen=True)
class WindowEntries:
    """What a window reaches of some runs; no part of it is empty."""

    parts: tuple[RunPart, ...]
    keys: tuple[pa.Array, ...]
    count: int

    @property
    def codes(self) -> Numbers:
        """The groups of all pieces, part after part."""
        return concatenate_arrays([part.codes for part in self.parts])

    def found(self, states: States) -> GroupAnswers:
        """States as the answers."""
        return GroupAnswers(self.keys, self.count, {f"s{i}": state for i, state in enumerate(states)})


def entries_since(runs: Sequence[Run], since: int, divided: bool = False) -> WindowEntries:
    """What has a time from `since` on; `divided` if a run may have several groups with the same keys."""
    reached = [run for run in runs if since <= run.high]
    if not reached:
        return WindowEntries((), tuple(key.slice(0, 0) for run in runs[:1] for key in run.keys), 0)
    ends = np.cumsum([run.groups for run in reached])
    alike = (
        align_divided_groups(reached)
        if divided
        else align_groups([run.keys for run in reached], int(ends[-1]))
    )
    present, parts = np.zeros(alike.count, bool), []
    for run, codes in zip(reached, np.split(alike.codes, ends[:-1]), strict=True):
        starts, stops = run.starts(since), run.bounds[1:]
        groups = np.arange(run.groups)
        alive = starts < stops
        if not alive.all():
            groups = groups[alive]
            starts, stops, codes = starts[groups], stops[groups], codes[groups]
        present[codes] = True
        parts.append(RunPart(run, groups, starts, stops, codes))
    if present.all():
        return WindowEntries(tuple(parts), alike.keys, alike.count)
    ranks, kept = np.cumsum(present) - 1, np.flatnonzero(present)
    keys = tuple(key.take(pa.array(kept)) for key in alike.keys)
    return WindowEntries(tuple(replace(part, codes=ranks[part.codes]) for part in parts), keys, len(kept))


def take_ranges(columns: Sequence[pa.Array], starts: Numbers, stops: Numbers) -> tuple[States, Numbers]:
    """The rows of some stretches of columns, and which stretch each is of."""
    if len(starts) == 1:  # as without GROUP BY
        start, count = int(starts[0]), int(stops[0] - starts[0])
        return [column.slice(start, count) for column in columns], np.zeros(count, np.int64)
    rows, which = expanded(starts, stops)
    at = pa.array(rows)
    return [column.take(at) for column in columns], which


def running_totals(run: Run, name: str) -> Numbers:
    """The totals of a column of whole numbers up to and with each entry, over all groups; remembered.

    They wrap, and so do their differences. They are not kept with the run: parts of it have others.
    """
    known: Numbers | None = run.derived.get(name)
    if known is None:
        known = run.derived[name] = np.cumsum(run.columns[name].cast(pa.int64()).to_numpy())
    return known


def concatenate_arrays(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one after the other; whole numbers, if there are none."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def combine_states(accumulator: Accumulator, states: States, codes: Numbers, groups: int) -> States:
    """`combine`, as arrays where the accumulator has a numeric form."""
    form = numeric_form(accumulator)
    if form is None:
        return accumulator.combine(states, codes, groups)
    numbers, valid = form.values(states[0])
    if valid is None:
        return [form.column(form.gathered(numbers, codes, groups), None)]
    present = np.bincount(codes[valid], minlength=groups) > 0
    return [form.column(form.gathered(numbers, codes, groups), present)]
