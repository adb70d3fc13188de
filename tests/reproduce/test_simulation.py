"""The simulation applies prods, punctuations and marks exactly at the scripted moments."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reproduce.prodding.data import INSTANT, SECOND, Recording
from reproduce.prodding.simulation import Script, Windows, simulate

WINDOWS = Windows(20, 10)
PER_SITE = f"SELECT site, sum(value) AS s FROM S {WINDOWS.clause} GROUP BY site"


def recorded(*rows: tuple[int, float, int]) -> Recording:
    """A recording of (site, value, second) rows that arrive at their event times."""
    sites, values, seconds = zip(*rows, strict=True)
    times = np.array(seconds) * SECOND
    table = pa.table(
        {"ts": pa.array(times).cast(INSTANT), "site": pa.array(sites), "value": pa.array(values)}
    )
    return Recording(table, times)


def results(query: str, script: Script) -> list[tuple[object, ...]]:
    """The query's results: kind, end of the window in seconds, site, sum, latency."""
    return [
        (row["kind"], round(row["window_end"].timestamp()), row["site"], row["s"], row["latency"])
        for row in simulate({"q": query}, script).results["q"].to_pylist()
    ]


def test_prods_and_punctuations_apply_to_exactly_the_rows_that_arrived_before() -> None:
    script = Script(recorded((1, 2.0, 1), (2, 5.0, 3), (1, 3.0, 9), (1, 4.0, 12))).measure(WINDOWS)
    script.prods[8 * SECOND].append(10 * SECOND)
    script.punctuations[13 * SECOND].append((10 * SECOND, ()))
    emitted = results(PER_SITE, script)
    assert emitted[:4] == [
        ("early", 10, 1, 2.0, 7.0),
        ("early", 10, 2, 5.0, 7.0),
        ("final", 10, 1, 5.0, 12.0),
        ("final", 10, 2, 5.0, 12.0),
    ]
    assert sorted(row[:4] for row in emitted[4:]) == [
        ("final", 20, 1, 9.0),
        ("final", 20, 2, 5.0),
        ("final", 30, 1, 4.0),
    ]


def test_a_punctuation_of_one_group_closes_the_windows_of_that_group() -> None:
    script = Script(recorded((1, 2.0, 1), (2, 5.0, 3), (1, 1.0, 19)))
    script.punctuations[5 * SECOND].append((10 * SECOND, (("site", 2),)))
    assert results(PER_SITE, script)[0][:4] == ("final", 10, 2, 5.0)


def test_the_clock_passes_marks_at_a_moment_without_rows() -> None:
    script = Script(recorded((1, 2.0, 1))).look(WINDOWS, [0.5]).measure(WINDOWS)
    emitted = results(f"{PER_SITE} EMIT EARLY AT 50% OF SLIDE", script)
    assert emitted[0] == ("early", 10, 1, 2.0, 4.0)
