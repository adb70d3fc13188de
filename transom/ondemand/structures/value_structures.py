"""Structures that keep plain values by group and time, and the simplest of them: a scan of the window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator
from transom.aggregates.numeric import lift_where_numeric
from transom.ondemand.structures.build_runs import align_groups, merge_entries, sorted_run, without_nulls
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Run, Structure, TupleBatch
from transom.ondemand.structures.window_entries import concatenate_arrays, entries_since, take_ranges


@dataclass(frozen=True)
class ValueStructure(Structure):
    """A structure over values (column `value`, without nulls), or over times alone where tuples are counted.

    The stored data does not depend on the accumulators, so one store serves all of these structures.
    """

    accumulator: Accumulator

    @property
    def id(self) -> str:
        return "values"

    def run(self, batch: TupleBatch) -> Run:
        if not self.accumulator.traits.reads_values:
            return sorted_run(replace(batch, values=None))
        return sorted_run(without_nulls(batch))

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups = align_groups([run.keys for run in runs], sum(run.groups for run in runs))
        return merge_entries(runs, groups, floor).run


@dataclass(frozen=True)
class RawTuples(ValueStructure):
    """Plain values; a lookup reads all tuples of its window."""

    def lookup(self, runs: Sequence[Run], since: int, where: GroupPattern = ()) -> GroupAnswers:
        window = entries_since(runs, since, where)
        if not window.parts:
            return window.answers([pa.nulls(0, type) for type in self.accumulator.types()])
        values, codes = [], []
        for part in window.parts:
            entries = part.run.columns["value"] if part.run.columns else pa.nulls(part.run.entries)
            [in_window], which = take_ranges([entries], part.starts, part.stops)
            values.append(in_window)
            codes.append(part.codes[which])
        states = lift_where_numeric(
            self.accumulator, pa.concat_arrays(values), None, concatenate_arrays(codes), window.count
        )
        return window.answers(states)
