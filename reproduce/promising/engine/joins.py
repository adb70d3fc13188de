"""Window joins in the engine compared with symmetric hash join with key chains (figures 11 to 14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np

from reproduce.prodding.data import SECOND, Numbers
from reproduce.promising.data import Stores
from reproduce.promising.engine.key_chains import ChainPairs, Scan, chain_join
from reproduce.promising.engine.runs import StoreBatch, result_rows, store_batches, store_engine
from reproduce.promising.engine.workloads import JoinFigure, JoinWorkload
from reproduce.promising.metrics import freshness, hist_mse, outlier_share, outliers
from transom.columns.arrays import Mask


def join_sql(figure: JoinFigure, budget: str = "") -> str:
    """The join of two stores with a figure's preference."""
    fade = "" if figure.fade == 1.0 else f"FADE FACTOR {figure.fade}"
    window = "" if figure.window_s is None else f"WINDOW '{figure.window_s} seconds'"
    return f"""
        SELECT a.n AS here, b.n AS there FROM store0 a, store1 b WHERE a.item = b.item
        WITH PREFERENCE {figure.order} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)
        {fade} {window} {budget}
    """


def summary_sql(granularity_s: int, depth: int, buckets: int) -> str:
    """The clauses of a summary after WITH."""
    return f"GRANULARITY '{granularity_s} seconds' AND COLLAPSE(4, {depth}) AND BUCKETS {buckets}"


@dataclass(frozen=True)
class EngineJoin:
    """A join of two stores, its batches and its exact answer."""

    stores: Stores
    figure: JoinFigure
    workload: JoinWorkload

    @cached_property
    def batches(self) -> list[StoreBatch]:
        return store_batches(self.stores, self.workload.batch_s * SECOND)

    @property
    def tuples(self) -> int:
        return len(self.stores.first) + len(self.stores.second)

    @property
    def window(self) -> int | None:
        return None if self.figure.window_s is None else self.figure.window_s * SECOND

    @cached_property
    def exact(self) -> ChainPairs:
        return chain_join(self.batches, self.window)

    @cached_property
    def _outliers(self) -> Mask:
        return outliers(self.stores.first.items[self.exact.left], self.stores.items)

    def budget(self, percent: int) -> int:
        """The pairs that every batch may produce: a percentage of the mean of the exact answer's."""
        return max(round(len(self.exact) / len(self.batches) * percent / 100), 1)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each system and budget, and for each system without a budget."""
        for percent in (*self.workload.budgets_percent, None):
            budget = None if percent is None else self.budget(percent)
            yield self._labels("promising", percent) | self._in_engine(budget)
            for scan in get_args(Scan):
                yield self._labels(f"key chains, {scan}", percent) | self._by_chains(budget, scan)

    def _labels(self, system: str, percent: int | None) -> dict[str, Any]:
        stores = self.stores
        return {"data": stores.name, "seed": stores.seed, "system": system, "budget_percent": percent}

    def _in_engine(self, budget: int | None) -> dict[str, Any]:
        workload = self.workload
        summary = summary_sql(workload.granularity_s, self.figure.depth, workload.buckets)
        with store_engine(summary) as made:
            query = made.register(join_sql(self.figure, "" if budget is None else f"BUDGET {budget} PROBES"))
            seconds = made.run(self.batches)
            left, right = result_rows(query.results())
        return self.metrics(left, right) | seconds.columns(self.tuples)

    def _by_chains(self, budget: int | None, scan: Scan) -> dict[str, Any]:
        """The baseline; it has no engine around it, so a step is only the join."""
        found = chain_join(self.batches, self.window, budget, scan)
        spent = 1e6 * sum(found.seconds) / self.tuples
        return self.metrics(found.left, found.right) | {"cpu_us": spent, "results_us": 0.0, "step_us": spent}

    def metrics(self, left: Numbers, right: Numbers) -> dict[str, Any]:
        """The paper's metrics of an answer; `differs` says that an answer of full size is not the exact one."""
        first, second, numbered = self.stores.first, self.stores.second, self.stores.items
        exact, obtained = first.items[self.exact.left], first.items[left]
        rare = self._outliers
        is_whole = len(left) == len(self.exact)
        differs = is_whole and not np.array_equal(
            _codes(left, right), _codes(self.exact.left, self.exact.right)
        )
        return {
            "output": len(left),
            "output_percent": 100 * len(left) / max(len(self.exact), 1),
            "hist_mse": hist_mse(exact, obtained, numbered),
            "outlier_percent": 100 * outlier_share(exact, obtained, numbered),
            "outliers_found_percent": 100 * float(rare[obtained].sum()) / max(float(rare[exact].sum()), 1)
            if rare.any()
            else float("nan"),
            "mean_age_s": freshness(first.times[left], second.times[right]),
            "differs": int(differs or len(left) > len(self.exact)),
        }


def _codes(left: Numbers, right: Numbers) -> Numbers:
    """The pairs as sorted integers."""
    return np.sort(left * (1 << 32) + right)
