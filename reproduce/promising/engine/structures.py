"""The structures of summaries in the engine: cost, benefit and the choice of `auto` (figures 9 and 10).

Structures matter on the executors, where only summaries are at hand to plan with. On the driver, tuples are found
by key: `by key` is the engine's own plan there. The local backend runs the tasks of executors in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from reproduce.prodding.data import SECOND
from reproduce.promising.data import Stores
from reproduce.promising.engine.joins import join_sql, summary_sql
from reproduce.promising.engine.key_chains import chain_join
from reproduce.promising.engine.runs import StepSeconds, StoreBatch, store_batches, store_engine
from reproduce.promising.engine.workloads import JoinFigure, StructureWorkload

DEPTH = 3  # of the summary's granularities: they cover 210 seconds
SYSTEMS = {  # the structure of a summary, and where its tuples are
    "T1": ("none", "executors"),
    "T2": ("time", "executors"),
    "T3": ("cells", "executors"),
    "T4": ("adjusting", "executors"),
    "auto": ("auto", "executors"),
    "by key": ("auto", "driver"),
}


@dataclass(frozen=True)
class StructureRuns:
    """A join of two stores with every structure."""

    stores: Stores
    workload: StructureWorkload

    @cached_property
    def batches(self) -> list[StoreBatch]:
        return store_batches(self.stores, self.workload.batch_s * SECOND)

    @property
    def tuples(self) -> int:
        return len(self.stores.first) + len(self.stores.second)

    @cached_property
    def exact(self) -> int:
        """The pairs of the exact answer."""
        return len(chain_join(self.batches, self.workload.window_s * SECOND))

    def run(self, system: str, budget: str | None) -> tuple[int, StepSeconds]:
        """The pairs that a join with a budget produces, and the time; without a query if there is no budget."""
        structure, state = SYSTEMS[system]
        workload = self.workload
        summary = summary_sql(workload.granularity_s, DEPTH, workload.buckets)
        with store_engine(summary, structure, state, retention=2) as made:
            if budget is not None:
                made.register(join_sql(JoinFigure("desc", workload.window_s, 1.0, DEPTH), budget))
            seconds = made.run(self.batches)
            return made.produced, seconds

    def labels(self, system: str) -> dict[str, Any]:
        return {"data": self.stores.name, "seed": self.stores.seed, "system": system}

    def costs(self) -> Iterator[dict[str, Any]]:
        """The time to insert a tuple, the time to find an output tuple, and the output per input tuple (figure 9)."""
        probes = max(round(self.exact / len(self.batches) * self.workload.budget_percent / 100), 1)
        for system in SYSTEMS:
            insert = min(sum(self.run(system, None)[1].preference) for _ in range(self.workload.repeats))
            runs = [self.run(system, f"BUDGET {probes} PROBES") for _ in range(self.workload.repeats)]
            found, whole = runs[0][0], min(sum(seconds.preference) for _, seconds in runs)
            yield self.labels(system) | {
                "insert_us": 1e6 * insert / self.tuples,
                "hit_us": 1e6 * max(whole - insert, 0.0) / max(found, 1),
                "output_per_input": found / self.tuples,
                "output_percent": 100 * found / max(self.exact, 1),
            }

    def timed(self, tuple_us: int) -> Iterator[dict[str, Any]]:
        """The output if a batch may take `tuple_us` microseconds of processor time for each of its tuples."""
        millis = max(round(tuple_us * self.tuples / len(self.batches) / 1e3), 1)
        for system in SYSTEMS:
            found, seconds = self.run(system, f"BUDGET '{millis} ms'")
            case = {"tuple_us": tuple_us, "window_s": self.workload.window_s}
            percent = {"output_percent": 100 * found / max(self.exact, 1)}
            yield self.labels(system) | case | percent | seconds.columns(self.tuples)

    def by_time(self) -> Iterator[dict[str, Any]]:
        """Output by the time per tuple (figure 10a)."""
        for tuple_us in self.workload.tuple_us:
            yield from self.timed(tuple_us)

    def by_window(self) -> Iterator[dict[str, Any]]:
        """Output by the size of the window (figure 10b)."""
        for window in self.workload.windows_s:
            runs = StructureRuns(self.stores, replace(self.workload, window_s=window))
            yield from runs.timed(self.workload.window_tuple_us)
