"""Aggressiveness against accuracy and latency gain (section 4.4, figures 4.6 to 4.11); estimates, intervals.

One run serves all figures for a kind of arrivals: every distribution of values is a column, every degree of
aggressiveness a mark, and the tumbling windows of figure 4.11 are a second query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from reproduce.prodding.analysis import Matched, Pairs, accuracies, best_constant, mean
from reproduce.prodding.data import ARRIVALS, VALUES, Recording, recording
from reproduce.prodding.simulation import Script, Windows, emit_at, simulate
from reproduce.report import Line, Options, Report

LEVELS = (10, 20, 30, 40, 50)  # per cent
SHAPES = {"sliding": Windows(30, 10), "tumbling": Windows(30, 30)}
AGGREGATES = ("avg", "max", "sum", "count")
FIGURES = {
    "figure_4_6": "uniform",
    "figure_4_7": "normal_100",
    "figure_4_8": "normal_400",
    "figure_4_9": "normal_1000",
}
THESIS = {
    ("avg", 10): 99.53,
    ("avg", 50): 99.03,
    ("max", 10): 99.96,
    ("max", 50): 99.93,
    ("sum", 50): 79.5,
    ("count", 50): 79.87,
}
PairsByKey = dict[tuple[str, str, str, str, int], Pairs]  # arrivals, shape, values, aggregate, level


def run(options: Options) -> Report:
    """All figures of section 4.4, the accuracy of projected values, and the coverage of intervals."""
    runs = [dict(_measured(kind, seed, options)) for kind in ARRIVALS for seed in range(options.seeds)]
    pairs_by_key: PairsByKey = {}
    for key in dict.fromkeys(key for pairs_of_run in runs for key in pairs_of_run):
        pairs_by_key[key] = Pairs.together(
            [pairs_of_run[key] for pairs_of_run in runs if key in pairs_of_run]
        )
    report = Report(lines=list(_lines(pairs_by_key)))
    for figure, values in FIGURES.items():
        report.tables[figure] = [_row(pairs_by_key, "clumped", "sliding", values, a, p) for a, p in _levels()]
    for figure, shape in (("figure_4_10", "sliding"), ("figure_4_11", "tumbling")):
        report.tables[figure] = [
            _row(pairs_by_key, "clumped", shape, "normal_400", a, p) for a, p in _levels()
        ]
    report.tables["estimates"] = [
        _estimates(pairs_by_key, kind, shape, values, a, p)
        for kind in ARRIVALS
        for shape in SHAPES
        for values in VALUES
        for a, p in _levels()
    ]
    return report


def stream(kind: str, seconds: int, seed: int) -> Recording:
    """A stream of section 4.4 with a column for each distribution of values."""
    draw = np.random.default_rng(seed)
    times = ARRIVALS[kind](draw, seconds)
    return recording(times, **{name: values(draw, len(times)) for name, values in VALUES.items()})


def _measured(
    kind: str, seed: int, options: Options
) -> Iterator[tuple[tuple[str, str, str, str, int], Pairs]]:
    script = Script(stream(kind, options.seconds(2000), seed))
    calls = [f"{a}({name}) AS {a}_{name}" for name in VALUES for a in ("avg", "max", "sum")]
    queries, parts = {}, [1 - level / 100 for level in LEVELS]
    for shape, windows in SHAPES.items():
        script.close(windows).look(windows, parts).measure(windows)
        selected = f"SELECT {', '.join(calls)}, count(*) AS n FROM S {windows.clause}"
        queries[shape] = f"{selected} {emit_at(parts)}"
    results = simulate(queries, script).results
    for shape, windows in SHAPES.items():
        matched = Matched.of(results[shape], windows.slide)
        for values in VALUES:
            for aggregate in AGGREGATES:
                item = "n" if aggregate == "count" else f"{aggregate}_{values}"
                pairs = matched.pairs(item)
                for level in LEVELS:
                    yield (kind, shape, values, aggregate, level), pairs.at(level)


def _levels() -> Iterator[tuple[str, int]]:
    return ((aggregate, level) for aggregate in AGGREGATES for level in LEVELS)


def _row(
    pairs_by_key: PairsByKey, kind: str, shape: str, values: str, aggregate: str, level: int
) -> Mapping[str, Any]:
    pairs = pairs_by_key[kind, shape, values, aggregate, level]
    return {
        "arrivals": kind,
        "windows": shape,
        "values": values,
        "aggregate": aggregate,
        "aggressiveness": level,
        "pairs": len(pairs),
        "accuracy": mean(pairs.accuracies),
        "worst": float(pairs.accuracies.min()),
        "latency_gain": pairs.gain,
        "latency_gain_percent": pairs.gain_percent,
        "thesis": THESIS.get((aggregate, level), "") if (values, shape) == ("uniform", "sliding") else "",
    }


def _estimates(
    pairs_by_key: PairsByKey, kind: str, shape: str, values: str, aggregate: str, level: int
) -> Mapping[str, Any]:
    pairs = pairs_by_key[kind, shape, values, aggregate, level]
    learned = pairs.learned if len(pairs.learned) else pairs
    factor = best_constant(learned.early, learned.final)
    inside = _inside(pairs.learned, SHAPES[shape])
    width = mean((pairs.bounded.high - pairs.bounded.low) / np.abs(pairs.bounded.final))
    return {
        "arrivals": kind,
        "windows": shape,
        "values": values,
        "aggregate": aggregate,
        "aggressiveness": level,
        "pairs": len(pairs.learned),
        "raw": mean(accuracies(learned.early, learned.final)),
        "projected": mean(accuracies(pairs.learned.projected, pairs.learned.final)),
        "best_constant": mean(accuracies(factor * learned.early, learned.final)),
        "factor": factor,
        "projected_inside": mean(accuracies(inside.projected, inside.final)),
        "coverage": pairs.coverage,
        "width": width,
    }


def _inside(pairs: Pairs, windows: Windows) -> Pairs:
    """The pairs of windows that lie completely between the stream's first and last row."""
    if not len(pairs):
        return pairs
    across = windows.range - windows.slide
    return pairs.where((pairs.end >= windows.range) & (pairs.end <= pairs.end.max() - across))


def _lines(pairs_by_key: PairsByKey) -> Iterator[Line]:
    for (aggregate, level), thesis in THESIS.items():
        pairs = pairs_by_key["clumped", "sliding", "uniform", aggregate, level]
        what = f"{aggregate.upper()}, uniform values, {level} % aggressive"
        yield Line("figure 4.6", what, thesis, mean(pairs.accuracies))
    for level in (10, 50):
        pairs = pairs_by_key["clumped", "sliding", "uniform", "avg", level]
        yield Line("figure 4.6", f"latency gain at {level} %", None, pairs.gain_percent)
    for level, thesis in ((10, 87.13), (50, 65.96)):
        worst = float(pairs_by_key["clumped", "tumbling", "normal_400", "avg", level].accuracies.min())
        yield Line("figure 4.11", f"worst AVG, tumbling, SD 400, {level} % aggressive", thesis, worst)
    for kind, values in (("clumped", "uniform"), ("poisson", "uniform"), ("poisson", "normal_1000")):
        for aggregate in ("sum", "count"):
            row = _estimates(pairs_by_key, kind, "sliding", values, aggregate, 50)
            what = f"projected {aggregate.upper()} at 50 %, {kind} arrivals, {values} values"
            note = f"best constant {row['best_constant']:.2f} %; "
            note += f"in windows wholly inside the stream {row['projected_inside']:.2f} %"
            yield Line("ours", what, None, row["projected"], note=note)
    for kind in ARRIVALS:
        for values in VALUES:
            pooled = [p for key, p in pairs_by_key.items() if key[:3] == (kind, "sliding", values)]
            yield Line(
                "ours", f"90 % intervals cover, {kind}, {values}", None, Pairs.together(pooled).coverage
            )
