"""Bursts that overwhelm the system (section 4.3.2): table 4.3 and figures 4.4, 4.5 and 6.3.

The Expensive operator processes tuples one after the other, and prods overtake it: an early result is made
of the tuples that have left the operator when the clock reaches the end of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from reproduce.prodding.analysis import Pairs, mean, paired
from reproduce.prodding.data import SECOND, Recording, requests, wireless
from reproduce.prodding.simulation import Script, Windows, simulate
from reproduce.report import Line, Options, Report

LATE = SECOND // 50  # a prod's delay, so that a window that is processed in time gets its final result first
COST = 1 / 300  # seconds per tuple: too much for bursts of 400 tuples a second, but not for the mean of 140
WINDOWS = Windows(5, 1)
Q4_2 = f"SELECT max(counter) AS counter FROM S {WINDOWS.clause}", WINDOWS
THESIS = {14_000: (97.62, 1.33), 28_000: (98.38, 1.27), 56_000: (98.65, 1.18)}
REQUESTS_WINDOWS = Windows(60, 10)
REQUESTS_COST = 0.5


def run(options: Options) -> Report:
    """Table 4.3 with its figures and, with `--data`, the web server's requests."""
    rows: list[Mapping[str, Any]] = []
    report = Report({"table_4_3": rows})
    for times, (records, (accuracy, gain)) in zip((1, 2, 4), THESIS.items(), strict=True):
        runs = [_prodded(wireless(options.seconds(records), seed), *Q4_2) for seed in range(options.seeds)]
        pairs = Pairs.together([paired(results, "counter", WINDOWS.slide) for results in runs])
        name = f"Burst_{times}"
        rows.append(
            {"stream": name, "windows_with_early": len(pairs), "accuracy": mean(pairs.accuracies)}
            | {"gain": pairs.gain, "thesis_accuracy": accuracy, "thesis_gain": gain}
        )
        report.lines.append(Line("table 4.3", f"{name}: accuracy of MAX", accuracy, mean(pairs.accuracies)))
        report.lines.append(Line("table 4.3", f"{name}: latency gain", gain, pairs.gain, "s"))
        if times == 1:
            report.tables["figure_4_5"] = latencies(runs[0], "counter")
            report.tables["figure_4_4"] = _arrivals(wireless(options.seconds(records), 0))
    return report if options.data is None else report + _requests(requests(options.data), options)


def _prodded(stream: Recording, query: str, windows: Windows, cost: float = COST) -> pa.Table:
    """The results with a prod for every window when the clock reaches its end."""
    served = stream.served(cost)
    script = Script(served).close(windows).prod(windows, after=LATE).measure(windows)
    return simulate({"q": query}, script).results["q"]


def latencies(results: pa.Table, item: str) -> Sequence[Mapping[str, Any]]:
    """Each window's early and final latency, and the early result's accuracy."""
    rows_by_end: dict[int, dict[str, Any]] = {}
    for row in results.to_pylist():
        end = round(row["window_end"].timestamp())
        latency_row = rows_by_end.setdefault(
            end, {"window_end": end, "early_latency": "", "final_latency": "", "accuracy": ""}
        )
        latency_row[f"{row['kind']}_latency"] = row["latency"]
        latency_row[row["kind"]] = row[item]
    for latency_row in rows_by_end.values():
        early, final = latency_row.pop("early", None), latency_row.pop("final", None)
        if early is not None and final:
            latency_row["accuracy"] = 100 * (1 - abs(final - early) / abs(final))
    return [rows_by_end[end] for end in sorted(rows_by_end)]


def _arrivals(stream: Recording) -> Sequence[Mapping[str, Any]]:
    seconds, counts = np.unique(stream.times // SECOND, return_counts=True)
    return [
        {"second": int(second), "tuples": int(count)} for second, count in zip(seconds, counts, strict=True)
    ]


def _requests(stream: Recording, options: Options) -> Report:
    """The same with real requests of half a second each, which is too much only in bursts."""
    rows = options.seconds(stream.rows.num_rows)
    part = Recording(stream.rows.slice(0, rows), stream.arrivals[:rows])
    query = f"SELECT max(bytes) AS largest, count(*) AS n FROM S {REQUESTS_WINDOWS.clause}"
    results = _prodded(part, query, REQUESTS_WINDOWS, REQUESTS_COST)
    lines = []
    for item, what in (("largest", "MAX"), ("n", "COUNT")):
        pairs = paired(results, item, REQUESTS_WINDOWS.slide)
        lines.append(Line("section 4.3.2", f"web requests: accuracy of {what}", None, mean(pairs.accuracies)))
    lines.append(Line("section 4.3.2", "web requests: latency gain", None, pairs.gain, "s"))
    return Report({"requests": latencies(results, "n")}, lines)
