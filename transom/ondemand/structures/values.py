"""What most exact structures keep: the tuples' values by group and time, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transom.aggregates.accumulators import Accumulator, CountRows
from transom.ondemand.structures.build_runs import aligned, raw, without_nulls, woven
from transom.ondemand.structures.runs import Batch, Recipe, Run


@dataclass(frozen=True)
class Values(Recipe):
    """A store of values (column `value`, without nulls), or of times where only tuples count.

    All recipes that read it keep the same, whatever their accumulators: one store serves them all.
    """

    accumulator: Accumulator

    def run(self, batch: Batch) -> Run:
        counts = isinstance(self.accumulator, CountRows)
        return raw(replace(batch, values=None) if counts else without_nulls(batch))

    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        groups = aligned([run.keys for run in runs], sum(run.groups for run in runs))
        return woven(runs, groups, floor).run
