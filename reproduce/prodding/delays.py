"""Data that arrives late (section 4.3.1): table 4.2 on generated streams, figure 4.2 on freeway data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reproduce.prodding.analysis import Pairs, mean, paired
from reproduce.prodding.data import Recording, freeway, recording
from reproduce.prodding.simulation import Script, Windows, emit_at, simulate
from reproduce.report import Line, Options, Report
from transom.runtime.streamer import Streamer

MAX_WINDOWS = Windows(30, 10)
MAX_QUERY = f"SELECT max(speed) AS fastest FROM S {MAX_WINDOWS.clause}", MAX_WINDOWS
TUPLES_A_SECOND = 500 / 30
THESIS = {1000: (99.04, 2.80), 1500: (99.48, 3.02), 2000: (98.11, 2.98)}  # accuracy, gain in seconds
Q4_1 = Windows(600, 120)


def run(options: Options) -> Report:
    """Table 4.2 and, with `--data`, Q4-1 on freeway data."""
    rows = []
    lines: list[Line] = []
    for seconds, (accuracy, gain) in THESIS.items():
        pairs = Pairs.together(
            [_prodded(uniform(options.seconds(seconds), seed), *MAX_QUERY) for seed in range(options.seeds)]
        )
        name = f"Uniform_{seconds}"
        rows.append(
            {"stream": name, "accuracy": mean(pairs.accuracies), "gain": pairs.gain}
            | {"thesis_accuracy": accuracy, "thesis_gain": gain}
        )
        lines.append(Line("table 4.2", f"{name}: accuracy of MAX", accuracy, mean(pairs.accuracies)))
        lines.append(Line("table 4.2", f"{name}: latency gain", gain, pairs.gain, "s"))
    report = Report({"table_4_2": rows}, lines)
    return report if options.data is None else report + _freeway(freeway(options.data), options)


def uniform(seconds: int, seed: int) -> Recording:
    """About 500 tuples in 30 seconds with uniform values, each delayed by up to half a second."""
    draw = np.random.default_rng(seed)
    times = np.sort(draw.integers(0, seconds * 1_000_000, int(seconds * TUPLES_A_SECOND)))
    speeds = draw.integers(0, 100, len(times)).astype(np.float64)
    return recording(times, speed=speeds).delayed(Streamer.of("500 ms", seed=seed))


def _prodded(stream: Recording, query: str, windows: Windows, part: float = 0.7) -> Pairs:
    """Early results at a part of the slide, by default 7 of 10 seconds, and the final results."""
    script = Script(stream).close(windows).look(windows, [part]).measure(windows)
    results = simulate({"q": f"{query} {emit_at([part])}"}, script).results["q"]
    return paired(results, "fastest", windows.slide)


def _freeway(stream: Recording, options: Options) -> Report:
    """Q4-1 for each detector: the volume of ten minutes, 90 seconds into a slide of two minutes.

    The thesis has one detector, whose punctuations are in the stream: the first tuple after a window punctuates
    it. Here each detector has its own punctuations in the same way.
    """
    if options.short:
        few = stream.rows["detector"].unique().slice(0, 8)
        chosen = np.asarray(pc.is_in(stream.rows["detector"], few))
        stream = Recording(stream.rows.filter(pa.array(chosen)), stream.arrivals[chosen])
    stream = stream.delayed(Streamer.of("20 seconds", seed=0))
    script = Script(stream).close_each(Q4_1, "detector").look(Q4_1, [0.75]).measure(Q4_1)
    query = f"SELECT detector, sum(volume) AS volume FROM S {Q4_1.clause} GROUP BY detector"
    results = simulate({"q": f"{query} {emit_at([0.75])}"}, script).results["q"]
    pairs = paired(results, "volume", Q4_1.slide, ["detector"])
    lines = [
        Line("figure 4.2", "Q4-1, freeway, by detector: accuracy", 94.12, mean(pairs.accuracies)),
        Line("figure 4.2", "Q4-1: latency gain", 48, pairs.gain, "s"),
    ]
    return Report({"figure_4_2": list(_figure(pairs))}, lines)


def _figure(pairs: Pairs) -> Iterator[Mapping[str, Any]]:
    """The means over detectors, by window, in the order of window ends."""
    for end in np.unique(pairs.end):
        same = pairs.where(pairs.end == end)
        yield {
            "window_end": round(float(end)),
            "detectors": len(same),
            "early_latency": mean(same.early_latency),
            "final_latency": mean(same.final_latency),
            "accuracy": mean(same.accuracies),
        }
