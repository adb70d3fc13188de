"""Burst processing strategies (section 6.2 a, figure 6.3): every tuple in turn, with prods."""

from __future__ import annotations

from transom.app.reproduce.bursts import COST, LATE, Q4_2, latencies
from transom.app.reproduce.data import wireless
from transom.app.reproduce.report import Options, Report
from transom.app.reproduce.simulate import Script, simulate


def run(options: Options) -> Report:
    """Figure 6.3 (a): without burst handling, a burst delays the windows after it."""
    query, windows = Q4_2
    stream = wireless(options.seconds(28_000), 0).served(COST)
    script = Script(stream).close(windows).prod(windows, after=LATE).measure(windows)
    results = simulate({"q": query}, script).results["q"]
    return Report({"figure_6_3_a": latencies(results, "counter")})
