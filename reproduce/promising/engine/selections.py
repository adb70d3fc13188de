"""Selections and aggregates in the engine, a predicate index, masks and simple selection (figures 15 and 16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reproduce.prodding.data import SECOND, Numbers
from reproduce.promising.data import Floats, Stores
from reproduce.promising.engine.joins import summary_sql
from reproduce.promising.engine.predicate_index import (
    SelectedRows,
    WindowAggregates,
    first_selected,
    indexed_selection,
    masked_selection,
    window_aggregates,
)
from reproduce.promising.engine.runs import StoreBatch, store_engine, stream_batches
from reproduce.promising.engine.workloads import SelectionWorkload
from reproduce.promising.metrics import mean_square_error
from reproduce.promising.selection import Ranges, ranges

DEPTH = 3  # of the summary's granularities

Selecting = Callable[[list[StoreBatch], Ranges], Iterator[SelectedRows]]
EXACT: Mapping[str, Selecting] = {"predicate index": indexed_selection, "masks": masked_selection}


@dataclass(frozen=True)
class EngineSelections:
    """Selections of ranges over the first store, and their exact answer."""

    stores: Stores
    queries: int
    workload: SelectionWorkload

    @cached_property
    def predicates(self) -> Ranges:
        return ranges(self.stores, self.queries, self.stores.seed)

    @cached_property
    def batches(self) -> list[StoreBatch]:
        return list(stream_batches(self.stores.first, 0, self.workload.batch_s * SECOND))

    @cached_property
    def exact(self) -> Numbers:
        """The number of tuples that each query selects."""
        return self.predicates.matching(self.stores.first.items).sum(axis=1)

    def budget(self, percent: int) -> int:
        """The tuples that a query may select in a batch: a percentage of the mean over queries and batches."""
        return max(round(float(self.exact.mean()) / len(self.batches) * percent / 100), 1)

    @property
    def where(self) -> list[str]:
        bounds = zip(self.predicates.low.tolist(), self.predicates.high.tolist(), strict=True)
        return [f"item >= {low} AND item < {high}" for low, high in bounds]

    def labels(self, system: str, percent: int | None) -> dict[str, Any]:
        stores = self.stores
        labels = {"data": stores.name, "seed": stores.seed, "system": system, "queries": self.queries}
        return labels | {"budget_percent": percent}

    # --- selections ---

    def selection_rows(self, budgets: tuple[int | None, ...]) -> Iterator[dict[str, Any]]:
        """A row for each budget of the engine and of simple selection, and one for each exact baseline."""
        for percent in budgets:
            yield self.labels("promising", percent) | self._in_engine(percent)
            if percent is not None:
                simple = first_selected(self.batches, self.predicates, percent)
                yield self.labels("simple", percent) | self._outside(simple)
        for system, select in EXACT.items():
            yield self.labels(system, None) | self._outside(select(self.batches, self.predicates))

    def _in_engine(self, percent: int | None) -> dict[str, Any]:
        budget = "" if percent is None else f"BUDGET {self.budget(percent)} PROBES"
        summary = summary_sql(self.workload.granularity_s, DEPTH, self.workload.buckets)
        with store_engine(summary) as made:
            for where in self.where:
                made.register(
                    f"SELECT item, n FROM store0 WHERE {where}"
                    f" WITH PREFERENCE desc SUMMARY.Estimate.Count(item) {budget}"
                )
            made.engine.step()  # queries join in a batch of their own
            seconds = made.run(self.batches)
            counts = np.array(
                [query.done.produced for query in made.engine._loop.state.promising.queries.values()]
            )
        return self._found(counts) | seconds.columns(len(self.stores.first))

    def _outside(self, selected: Iterator[SelectedRows]) -> dict[str, Any]:
        """A baseline; it has no engine around it, so a step is only the selection."""
        counts, seconds = np.zeros(self.queries, np.int64), 0.0
        for part in selected:
            counts += part.counts
            seconds += part.seconds
        spent = 1e6 * seconds / len(self.stores.first)
        return self._found(counts) | {"cpu_us": spent, "results_us": 0.0, "step_us": spent}

    def _found(self, counts: Numbers) -> dict[str, Any]:
        return {"output_percent": 100 * float(counts.sum()) / max(int(self.exact.sum()), 1)}

    # --- aggregates ---

    def aggregate_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each budget: the error of AVG and SUM over all queries and batches.

        The engine's SUM is an estimate of the whole sum. That of simple selection is scaled up, too.
        """
        window = self.workload.window_s * SECOND
        exact = window_aggregates(indexed_selection(self.batches, self.predicates), window)
        for percent in (*self.workload.budgets_percent, None):
            averages, sums, spent = self._aggregates_in_engine(percent)
            yield self.labels("promising", percent) | _errors(exact, averages, sums) | spent
            if percent is not None:
                some = first_selected(self.batches, self.predicates, percent)
                simple = window_aggregates(some, window, percent / 100)
                yield self._aggregates_outside("simple", percent, exact, simple)
        for system, select in EXACT.items():
            found = window_aggregates(select(self.batches, self.predicates), window)
            yield self._aggregates_outside(system, None, exact, found)

    def _aggregates_outside(
        self, system: str, percent: int | None, exact: WindowAggregates, found: WindowAggregates
    ) -> dict[str, Any]:
        spent = 1e6 * found.seconds / len(self.stores.first)
        times = {"cpu_us": spent, "results_us": 0.0, "step_us": spent}
        return self.labels(system, percent) | _errors(exact, found.averages, found.sums) | times

    def _aggregates_in_engine(self, percent: int | None) -> tuple[Floats, Floats, dict[str, float]]:
        """The averages and sums after each batch, and the time per tuple."""
        budget = "" if percent is None else f"BUDGET {self.budget(percent)} PROBES"
        summary = summary_sql(self.workload.granularity_s, DEPTH, self.workload.buckets)
        shape = len(self.batches), self.queries
        averages, sums = np.full(shape, np.nan), np.zeros(shape)
        with store_engine(summary) as made:
            queries = [
                made.register(
                    f"SELECT avg(item) AS mean, sum(item) AS total, count(*) AS number FROM store0 WHERE {where}"
                    " WITH PREFERENCE weighted SUMMARY.Estimate.Count(item)"
                    f" WINDOW '{self.workload.window_s} seconds' {budget}"
                )
                for where in self.where
            ]
            made.engine.step()
            first = made.engine._loop.state.batch_id + 1
            seconds = made.run(self.batches)
            for number, query in enumerate(queries):
                for row in query.results().select(["mean", "total", "batch"]).to_pylist():
                    at = row["batch"] - first
                    averages[at, number] = np.nan if row["mean"] is None else row["mean"]
                    sums[at, number] = row["total"] or 0
        return averages, sums, seconds.columns(len(self.stores.first))


def _errors(exact: WindowAggregates, averages: Floats, sums: Floats) -> dict[str, float]:
    return {
        "avg_mse": mean_square_error(exact.averages, averages),
        "sum_mse": mean_square_error(exact.sums, sums),
    }
