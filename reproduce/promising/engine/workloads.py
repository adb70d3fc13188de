"""The workloads of the experiments through the engine: data files, each with what a short run has instead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parent / "workloads"


@dataclass(frozen=True)
class JoinFigure:
    """The preference of a figure; a window of None is the whole stream."""

    order: str
    window_s: int | None
    fade: float
    depth: int  # of the summary's granularities


@dataclass(frozen=True)
class JoinWorkload:
    """Joins of two stores (figures 11 to 14)."""

    seconds: int
    interarrival_s: float
    batch_s: int
    budgets_percent: tuple[int, ...]
    granularity_s: int
    buckets: int
    figures: Mapping[str, JoinFigure]


@dataclass(frozen=True)
class StructureWorkload:
    """A join with each structure of its summaries (figures 9 and 10)."""

    seconds: int
    interarrival_s: float
    batch_s: int
    budget_percent: int
    granularity_s: int
    buckets: int
    window_s: int
    repeats: int  # processor time is noisy: the fastest run counts
    tuple_us: tuple[int, ...]  # processor time per tuple
    windows_s: tuple[int, ...]
    window_tuple_us: int


@dataclass(frozen=True)
class SelectionWorkload:
    """Many selections and aggregates over one store (figures 15 and 16)."""

    seconds: int
    interarrival_s: float
    batch_s: int
    queries: int
    budgets_percent: tuple[int, ...]
    numbers_of_queries: tuple[int, ...]
    numbers_budget_percent: int
    granularity_s: int
    buckets: int
    window_s: int


@dataclass(frozen=True)
class TimeBudgetWorkload:
    """A join whose budget is a time, at `overload` times the load that fits this time."""

    budget_ms: int
    batches: int
    tuples: int  # of a batch
    items: int
    batch_s: int
    overload: int
    settled: int  # batches that are not measured, after those that fill the window
    exact_batches: int  # measured without a budget
    fixed_batches: int  # measured with a fixed setting
    fixed_percent: tuple[int, ...]  # fixed settings, in percent of the exact answer's pairs per batch


def join_workload(short: bool) -> JoinWorkload:
    values = _values("joins", short)
    figures = {name: JoinFigure(**figure) for name, figure in values.pop("figures").items()}
    return JoinWorkload(**values, figures=figures)


def structure_workload(short: bool) -> StructureWorkload:
    return StructureWorkload(**_values("structures", short))


def selection_workload(short: bool) -> SelectionWorkload:
    return SelectionWorkload(**_values("selections", short))


def time_budget_workload(short: bool) -> TimeBudgetWorkload:
    return TimeBudgetWorkload(**_values("time_budget", short))


def _values(name: str, short: bool) -> dict[str, Any]:
    """The values of a data file; lists become tuples."""
    file = json.loads((WORKLOADS / f"{name}.json").read_text(encoding="utf-8"))
    values = file["full"] | (file["short"] if short else {})
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
