"""The bars (targets) of promising tuples in the engine, and their measured values.

Counts decide most of them. Those of processor time are ratios within one run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from reproduce.promising.bars import ratio_bars
from reproduce.report import Row
from reproduce.shared_aggregates.measures import Bar, Tables

OLDEST, NEWEST = "key chains, oldest first", "key chains, newest first"
JOINS = ("sliding", "whole", "faithful", "rare")
BUDGET = 10  # percent
NEAR = 20.0  # percent: how far a batch may be from its budget, on average
AUTO = 0.9  # of the output of the best structure
FIXED = 0.8  # of the output of the best fixed setting


def engine_bars(tables: Tables) -> list[Bar]:
    """Every bar, for each kind of data; each reports the worst of all seeds."""
    return [*_answers(tables), *_costs(tables), *_structures(tables), *_time_budget(tables["time_budget"])]


def _answers(tables: Tables) -> Iterator[Bar]:
    exact = [row for name in JOINS for row in tables[name] if row["budget_percent"] is None]
    wrong = sum(row["differs"] or row["output_percent"] != 100 for row in exact)
    yield Bar(f"joins without a budget whose answer is not exact, of {len(exact)}", wrong, most=0, unit="")
    complete = [
        row["output_percent"] for row in tables["selection"] if row["budget_percent"] is None
    ]  # the engine, the index and the masks
    yield Bar("least output of selections without a budget", min(complete), least=100, unit="%")
    at = f"at a {BUDGET} % budget"
    for against in (OLDEST, NEWEST):
        short = against.split(", ")[1]
        given = {"against": against}
        what = f"desc: output against key chains, {short}, {at}"
        yield from ratio_bars(what, tables["sliding"], "output_percent", **given)  # type: ignore[arg-type]
        what = f"weighted: Hist-MSE against key chains, {short}, {at}"
        yield from ratio_bars(what, tables["faithful"], "hist_mse", most=0.5, **given)  # type: ignore[arg-type]
        what = f"whole stream, fade 0.8: age against key chains, {short}, {at}"
        yield from ratio_bars(what, tables["whole"], "mean_age_s", most=1.0, **given)  # type: ignore[arg-type]
        what = f"asc: outliers found against key chains, {short}, {at}"
        yield from ratio_bars(what, tables["rare"], "outliers_found_percent", least=1.0, **given)  # type: ignore[arg-type]
    for column in ("avg", "sum"):
        what = f"{column.upper()}: mean square error against simple, {at}"
        yield from ratio_bars(what, tables["aggregates"], f"{column}_mse", most=0.5)


def _costs(tables: Tables) -> Iterator[Bar]:
    """What a budget saves, and what the engine costs beside plain code; these have no bound."""
    for name in (*JOINS, "selection", "aggregates"):
        for data, cut, whole in _with_and_without(tables[name]):
            yield Bar(f"{data}: {name}, engine step at {BUDGET} % of its step without a budget", cut / whole)
    for name, baseline in (("sliding", NEWEST), ("selection", "predicate index")):
        for data in dict.fromkeys(row["data"] for row in tables[name]):
            exact = [row for row in tables[name] if row["budget_percent"] is None and row["data"] == data]
            plain = _mean(exact, baseline, "cpu_us")
            own = _mean(exact, "promising", "cpu_us")
            what = f"{data}: {name} without a budget, processor time against {baseline}"
            yield Bar(f"{what}, without ingest, results and commit", own / plain)


def _with_and_without(rows: Sequence[Row]) -> Iterator[tuple[str, float, float]]:
    """The mean time of a step with a budget and without one, for each kind of data."""
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == data]
        cut, whole = (
            _mean([row for row in own if row["budget_percent"] == percent], "promising", "step_us")
            for percent in (BUDGET, None)
        )
        yield data, cut, whole


def _mean(rows: Sequence[Row], system: str, column: str) -> float:
    values = [row[column] for row in rows if row["system"] == system]
    return sum(values) / len(values) if values else math.nan


def _structures(tables: Tables) -> Iterator[Bar]:
    for name, what in (("interarrival", "times per tuple"), ("windows", "windows")):
        cases: dict[tuple[Any, ...], dict[str, float]] = {}
        for row in tables[name]:
            case = tuple(row[key] for key in ("data", "seed", "tuple_us", "window_s"))
            cases.setdefault(case, {})[row["system"]] = row["output_percent"]
        ratios = []
        for found in cases.values():
            best = max(found[system] for system in ("T1", "T2", "T3", "T4"))
            ratios.append(found["auto"] / best if best else 1.0)
        yield Bar(f"auto on the executors against the best of T1 to T4, all {what}", min(ratios), least=AUTO)


def _time_budget(rows: Sequence[Row]) -> Iterator[Bar]:
    timed = [row for row in rows if row["setting"] == "time"]
    exact = [row for row in rows if row["setting"] == "no budget"]
    budget = f"BUDGET '{timed[0]['budget_ms']} ms', {timed[0]['batches']} batches"
    load = min(row["paid_ms"] / row["budget_ms"] for row in exact)
    yield Bar(f"{budget}: the exact answer's time against the budget", load)
    off = max(100 * abs(row["paid_ms"] / row["budget_ms"] - 1) for row in timed)
    yield Bar(f"{budget}: mean time of a batch, away from the budget", off, most=NEAR, unit="%")
    near = min(row["within_percent"] for row in timed)
    yield Bar(f"{budget}: batches within 20 % of the budget", near, unit="%")
    step = max(row["step_ms"] / row["budget_ms"] for row in timed)
    yield Bar(f"{budget}: the whole engine step against the budget", step)
    least = min(row["of_best_fixed"] for row in timed)
    yield Bar(f"{budget}: output against the best fixed setting in hindsight", least, least=FIXED)
