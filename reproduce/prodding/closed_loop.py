"""The closed loop (figure 6.4): given a target accuracy, the engine chooses the aggressiveness itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reproduce.prodding.analysis import accuracies, mean, paired
from reproduce.prodding.data import SECOND, VALUES, Recording, clumped, recording
from reproduce.prodding.simulation import Script, Windows, simulate
from reproduce.report import Line, Options, Report

WINDOWS = Windows(10, 10)  # with clumped arrivals, the row counts of these windows differ by a third
TARGETS = (0.85, 0.9, 0.95)
STEPS = tuple(step / 20 for step in range(1, 21))  # parts of the slide at which the engine may emit
SETTLED = 0.5  # the part of the run after which the loop must have settled


def spread(seconds: int, seed: int) -> Recording:
    """The generator's clumps, each spread over its second, so that every target accuracy can be reached."""
    draw = np.random.default_rng(seed)
    times = clumped(draw, seconds)
    times = np.sort(times + draw.integers(0, SECOND, len(times)))
    return recording(times, value=VALUES["uniform"](draw, len(times)))


def run(options: Options) -> Report:
    """The accuracy at which the loop settles, for several targets."""
    script = Script(spread(options.seconds(2000), 0)).close(WINDOWS).look(WINDOWS, STEPS)
    names = {f"at_{round(100 * target)}": target for target in TARGETS}
    queries = {
        name: f"SELECT sum(value) AS s FROM S {WINDOWS.clause} EMIT EARLY WITH ACCURACY {100 * target:g}%"
        for name, target in names.items()
    }
    results = simulate(queries, script).results
    rows: list[Mapping[str, Any]] = []
    lines = []
    for name, target in names.items():
        pairs = paired(results[name], "s", WINDOWS.slide)
        settled = pairs.where(np.arange(len(pairs)) >= SETTLED * len(pairs))
        emitted = settled.projected if len(settled.learned) == len(settled) else settled.early
        reached = mean(accuracies(emitted, settled.final))
        rows += [
            {"target": 100 * target, "window": i, "aggressiveness": a, "early": e, "projected": p, "final": f}
            for i, (a, e, p, f) in enumerate(
                zip(pairs.aggressiveness, pairs.early, pairs.projected, pairs.final, strict=True)
            )
        ]
        lines.append(Line("ours", f"SUM WITH ACCURACY {100 * target:.0f}%: settles at", None, reached))
    return Report({"accuracy_loop": rows}, lines)
