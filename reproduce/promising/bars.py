"""The bars (targets) of promising tuples, and their measured values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from reproduce.report import Row
from reproduce.shared_aggregates.measures import Bar, Tables

BUDGET = 10  # percent of the exact answer's cost: the budget of bars that name no other
RARE = 5  # percent; outliers are 5 % of the output, and a larger budget finds all of them
OVERLOADED = range(100, 201)  # queries


def bars(tables: Tables) -> list[Bar]:
    """Every bar, for each kind of data; each reports the worst of all seeds."""
    return [*_joins(tables), *_selections(tables), *_engine(tables)]


def _joins(tables: Tables) -> Iterator[Bar]:
    at = f"at a {BUDGET} % budget"
    yield from ratio_bars(f"desc: output against SHJ, {at}", tables["sliding"], "output_percent", least=1.5)
    yield from ratio_bars(f"weighted: Hist-MSE against SHJ, {at}", tables["faithful"], "hist_mse", most=0.5)
    yield from ratio_bars(
        f"weighted: output against SHJ, {at}", tables["faithful"], "output_percent", least=1
    )
    for budget in (RARE, BUDGET):
        for system, bound in (("promising", {"least": 80.0}), ("simple", {"most": 15.0})):
            name = {"promising": "asc", "simple": "SHJ"}[system]
            rows = [row for row in tables["rare"] if row["system"] == system]
            what = f"{name}: outliers in the output, at a {budget} % budget"
            yield from _values(what, rows, "outlier_percent", budget=budget, **bound)
    yield from ratio_bars(
        f"whole stream, fade 0.8: age against SHJ, {at}", tables["whole"], "mean_age_s", most=0.5
    )


def _selections(tables: Tables) -> Iterator[Bar]:
    at = f"at a {BUDGET} % budget"
    what = f"selection, 100 queries: output against simple, {at}"
    yield from ratio_bars(what, tables["selection"], "output_percent", least=1.33)
    what = "selection, 100 queries: output against simple with as many more looks as the guide"
    yield from ratio_bars(what, tables["selection"], "output_percent", against="simple, more looks")
    crowd = [row for row in tables["queries"] if row["queries"] in OVERLOADED]
    what = "selection, 100 to 200 queries, overloaded: output against simple"
    yield from ratio_bars(what, crowd, "output_percent", budget=None, least=1.33)
    for column in ("avg", "sum"):
        what = f"{column.upper()}: mean square error against simple, {at}"
        yield from ratio_bars(what, tables["aggregates"], f"{column}_mse", most=0.5)
    for column, what in (
        ("avg_both_mse", "AVG, where both found something"),
        ("sum_scaled_mse", "SUM, the simple one scaled up"),
    ):
        what = f"{what}: mean square error against simple, {at}"
        yield from ratio_bars(what, tables["aggregates"], column, most=0.5)


def _engine(tables: Tables) -> Iterator[Bar]:
    inserted = [1 / row["insert_us"] for row in tables["insertion"] if row["structure"] == "T4"]
    yield Bar("T4: tuples inserted a second, one core", min(inserted), least=1, unit="M")
    joins = [row for name in ("sliding", "whole", "faithful", "rare") for row in tables[name]]
    for percent, budget in ((100, "at 100 % of what SHJ needs"), (None, "with no budget")):
        own = [row for row in joins if row["system"] == "promising" and row["budget_percent"] == percent]
        what = f"answers {budget} that are not the exact one, of {len(own)}"
        yield Bar(what, sum(row["differs"] for row in own), most=0, unit="")
        yield Bar(f"the least output {budget}", min(row["output_percent"] for row in own), unit="%")
    for name, what in (("interarrival", "interarrival times"), ("windows", "windows")):
        yield Bar(
            f"auto against the best of T1 to T4, all {what}", min(_auto_against_best(tables[name])), least=0.9
        )


def _auto_against_best(rows: Sequence[Row]) -> list[float]:
    """The output of `auto` as a share of the output of the best structure in the same case."""
    cases: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        case = tuple(row[key] for key in ("data", "seed", "interarrival_us", "window_s"))
        cases.setdefault(case, {})[row["system"]] = row["output_percent"]
    best = [(found["auto"], max(v for k, v in found.items() if k != "auto")) for found in cases.values()]
    return [auto / most if most else 1.0 for auto, most in best]


def ratio_bars(
    what: str,
    rows: Sequence[Row],
    column: str,
    budget: int | None = BUDGET,
    against: str = "simple",
    **bound: float,
) -> Iterator[Bar]:
    """The ratio of the promising system's value to the simple system's, for each kind of data."""
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if budget is None or row["budget_percent"] == budget:
            case = tuple(row.get(key) for key in ("data", "seed", "budget_percent", "queries"))
            cases.setdefault(case, {})[row["system"]] = row
    ratios = [
        {"data": case[0], "ratio": _ratio(pair["promising"][column], pair[against][column])}
        for case, pair in cases.items()
    ]
    yield from _worst(what, ratios, "ratio", "x", **bound)


def _values(what: str, rows: Sequence[Row], column: str, budget: int, **bound: float) -> Iterator[Bar]:
    yield from _worst(what, [row for row in rows if row["budget_percent"] == budget], column, "%", **bound)


def _worst(what: str, rows: Sequence[Row], column: str, unit: str, **bound: float) -> Iterator[Bar]:
    for data in dict.fromkeys(row["data"] for row in rows):
        own = [row[column] for row in rows if row["data"] == data and not math.isnan(row[column])]
        if not own:
            yield Bar(f"{data}: {what}; not defined there", math.nan, unit=unit)
            continue
        worst = max(own) if "most" in bound else min(own)
        yield replace(Bar(f"{data}: {what}", worst, unit=unit), **bound)  # type: ignore[arg-type]


def _ratio(ours: float, theirs: float) -> float:
    """The ratio of two values; 1 if both are 0."""
    return ours / theirs if theirs else float("inf") if ours else 1.0
