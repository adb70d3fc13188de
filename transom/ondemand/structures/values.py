"""What most exact structures keep: the tuples' values by group and time, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, CountRows
from transom.aggregates.numeric import added_up
from transom.ondemand.structures.build_runs import align_groups, merge_entries, sorted_run, without_nulls
from transom.ondemand.structures.runs import GroupAnswers, Run, Structure, TupleBatch
from transom.ondemand.structures.window_entries import concatenate_arrays, entries_since, take_ranges


@dataclass(frozen=True)
class ValueStructure(Structure):
    """A store of values (column `value`, without nulls), or of times where only tuples count.

    All recipes that read it keep the same, whatever their accumulators: one store serves them all.
    """

    accumulator: Accumulator

    def run(self, batch: TupleBatch) -> Run:
        counts = isinstance(self.accumulator, CountRows)
        return sorted_run(replace(batch, values=None) if counts else without_nulls(batch))

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups = align_groups([run.keys for run in runs], sum(run.groups for run in runs))
        return merge_entries(runs, groups, floor).run


@dataclass(frozen=True)
class RawTuples(ValueStructure):
    """Tuples as they are (column `value`, without nulls); a lookup reads all of its window."""

    def lookup(self, runs: Sequence[Run], since: int) -> GroupAnswers:
        seen = entries_since(runs, since)
        values, codes = [], []
        for part in seen.parts:
            column = part.run.columns["value"] if part.run.columns else pa.nulls(part.run.entries)
            [own], which = take_ranges([column], part.starts, part.stops)
            values.append(own)
            codes.append(part.codes[which])
        found = pa.concat_arrays(values) if values else pa.nulls(0)
        return seen.found(added_up(self.accumulator, found, None, concatenate_arrays(codes), seen.count))
