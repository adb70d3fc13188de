"""`BUDGET '200 ms'` in the engine at three times capacity, compared with the best fixed setting in hindsight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduce.prodding.data import SECOND
from reproduce.promising.data import START, Floats, zipf
from reproduce.promising.engine.joins import summary_sql
from reproduce.promising.engine.runs import StoreBatch, store_engine
from reproduce.promising.engine.workloads import TimeBudgetWorkload

EXPONENT = 1.0  # of Zipf's distribution
DEPTH, BUCKETS, GRANULARITY_S = 3, 64, 10
CALIBRATIONS = 2
FIRST_WINDOW_MS, MOST_WINDOW_MS = 4_000, 200_000  # the summary's granularities cover 210 seconds
NEAR = 0.2  # a batch is near its budget if it takes so much more or less at most


@dataclass(frozen=True)
class BudgetRun:
    """The pairs per batch, and the seconds of each batch: those that the budget pays for, and of the whole step.

    The budget pays for keeping and finding tuples and for writing results. It does not pay for the rest of the engine,
    such as the commit.
    """

    output: float
    paid: Floats
    step: Floats


@dataclass(frozen=True)
class TimeBudget:
    """A join of two stores with a window, in batches of a seed."""

    workload: TimeBudgetWorkload
    window_ms: int
    seed: int = 0

    def batches(self, count: int) -> Iterator[StoreBatch]:
        """Batches of two stores in turn."""
        draw = np.random.default_rng(self.seed)
        workload, likely = self.workload, zipf(self.workload.items, EXPONENT)
        for number in range(count):
            began = START + number // 2 * workload.batch_s * SECOND
            times = np.sort(draw.integers(0, workload.batch_s * SECOND, workload.tuples)) + began
            items = draw.choice(workload.items, workload.tuples, p=likely)
            rows = np.arange(workload.tuples) + number // 2 * workload.tuples
            yield StoreBatch(number % 2, items, times, rows)

    def run(self, budget: str, count: int) -> BudgetRun:
        """A run of some batches, after those that fill the window and some more."""
        workload = self.workload
        settled = 2 * (self.window_ms // (1000 * workload.batch_s) + 1) + workload.settled
        with store_engine(summary_sql(GRANULARITY_S, DEPTH, BUCKETS), retention=2) as made:
            made.register(_join_sql(self.window_ms, budget))
            before = 0
            for number, batch in enumerate(self.batches(settled + count)):
                if number == settled:
                    before = made.produced
                made.push(batch)
            seconds = made.seconds
            paid = seconds.array("preference") + seconds.array("results")
            return BudgetRun(
                (made.produced - before) / count, paid[settled:], seconds.array("step")[settled:]
            )

    def row(self, setting: str, run: BudgetRun, best: float | None = None) -> dict[str, Any]:
        """A run as a row of a table; `best` is the output per batch of the best fixed setting."""
        limit = self.workload.budget_ms / 1e3
        return {
            "seed": self.seed,
            "setting": setting,
            "budget_ms": self.workload.budget_ms,
            "window_s": self.window_ms / 1e3,
            "batches": len(run.paid),
            "paid_ms": 1e3 * float(run.paid.mean()),
            "step_ms": 1e3 * float(run.step.mean()),
            "within_percent": 100 * float(np.mean(np.abs(run.paid / limit - 1) <= NEAR)),
            "output_per_batch": run.output,
            "of_best_fixed": float("nan") if best is None else run.output / best,
        }

    def rows(self, exact: float) -> Iterator[dict[str, Any]]:
        """A row for every fixed setting, and for the budget of time; `exact` is the exact answer's output per batch."""
        workload, limit = self.workload, self.workload.budget_ms / 1e3
        fixed = []
        for percent in workload.fixed_percent:
            run = self.run(f"BUDGET {round(exact * percent / 100)} PROBES", workload.fixed_batches)
            fixed.append((float(run.paid.mean()), run.output))
            yield self.row(f"fixed, {percent} %", run)
        means, outputs = (np.array(numbers) for numbers in zip(*sorted(fixed), strict=True))
        best = float(np.interp(limit, means, outputs))  # between two settings, a line
        timed = self.run(f"BUDGET '{workload.budget_ms} ms'", workload.batches)
        yield self.row("time", timed, best)


def overloaded(workload: TimeBudgetWorkload) -> tuple[TimeBudget, BudgetRun]:
    """The join whose exact answer takes `overload` times the budget, by short runs, and a run of it.

    The number of partners grows with the window, and the time of a batch with the number of partners.
    """
    window, wanted = FIRST_WINDOW_MS, workload.overload * workload.budget_ms / 1e3
    for _ in range(CALIBRATIONS):
        took = float(np.median(TimeBudget(workload, window).run("", workload.exact_batches).paid))
        window = min(max(round(window * wanted / took), 1), MOST_WINDOW_MS)
    join = TimeBudget(workload, window)
    return join, join.run("", workload.exact_batches)


def time_budget_rows(workload: TimeBudgetWorkload, seeds: int) -> Iterator[dict[str, Any]]:
    """The rows of all seeds, with the same window; the exact answer is that of the first one."""
    join, exact = overloaded(workload)
    yield join.row("no budget", exact)
    for seed in range(seeds):
        yield from TimeBudget(workload, join.window_ms, seed).rows(exact.output)


def _join_sql(window_ms: int, budget: str) -> str:
    return f"""
        SELECT a.n AS here, b.n AS there FROM store0 a, store1 b WHERE a.item = b.item
        WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)
        WINDOW '{window_ms} ms' {budget}
    """
