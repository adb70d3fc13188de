"""Real delays: a flight out of New York has its scheduled time, and arrives in the stream when it departs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduce.prodding.aggressiveness import LEVELS
from reproduce.prodding.analysis import Matched, Pairs, accuracies, mean
from reproduce.prodding.data import departures
from reproduce.prodding.simulation import Script, Windows, emit_at, simulate
from reproduce.report import Line, Options, Report

WINDOWS = Windows(3 * 3600, 3600)
SLACK = "2 hours"
ITEMS = {"n": "count(*)", "miles": "sum(value)", "mean": "avg(value)", "longest": "max(value)"}


def run(options: Options) -> Report:
    """The accuracy of early results with real delays, and how many final results the intervals cover."""
    stream = departures(options.seconds(60))
    parts = [1 - level / 100 for level in LEVELS]
    items = ", ".join(f"{call} AS {name}" for name, call in ITEMS.items())
    query = f"SELECT origin, {items} FROM S {WINDOWS.clause} GROUP BY origin {emit_at(parts)}"
    script = Script(stream).look(WINDOWS, (*parts, 1.0))
    results = simulate({"q": query}, script, slack=SLACK).results["q"]
    matched = Matched.of(results, WINDOWS.slide, ["origin"])
    pairs_by_item = {name: matched.pairs(name) for name in ITEMS}
    rows = [_row(name, level, pairs.at(level)) for name, pairs in pairs_by_item.items() for level in LEVELS]
    return Report({"departures": rows}, list(_lines(pairs_by_item)))


def _row(name: str, level: int, pairs: Pairs) -> Mapping[str, Any]:
    return {
        "item": ITEMS[name],
        "aggressiveness": level,
        "pairs": len(pairs),
        "accuracy": mean(pairs.accuracies),
        "projected": mean(accuracies(pairs.learned.projected, pairs.learned.final)),
        "coverage": pairs.coverage,
    }


def _lines(pairs_by_item: Mapping[str, Pairs]) -> Iterator[Line]:
    for name, pairs in pairs_by_item.items():
        half = pairs.at(50)
        yield Line("ours", f"flights, {ITEMS[name]} at 50 %: raw", None, mean(half.accuracies))
        projected = mean(accuracies(half.learned.projected, half.learned.final))
        yield Line("ours", f"flights, {ITEMS[name]} at 50 %: projected", None, projected)
    pooled = Pairs.together(list(pairs_by_item.values()))
    yield Line("ours", "flights, real delays: 90 % intervals cover", None, pooled.coverage)
