"""Whether prodding delays final results (section 4.2, table 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reproduce.prodding.analysis import Floats
from reproduce.prodding.bursts import COST, Q4_2
from reproduce.prodding.data import SECOND, Recording, wireless
from reproduce.prodding.delays import MAX_QUERY, uniform
from reproduce.prodding.simulation import Run, Script, Windows, simulate
from reproduce.report import Line, Options, Report

REPEATED = 3  # processor time is noisy: the fastest of these runs counts
THESIS = {"Uniform_1500": (11, 11), "Burst_2": (6, 6), "Burst_4": (6, 6)}  # with and without prodding


def run(options: Options) -> Report:
    """Final latencies with and without prods, and whether the final results are the same."""
    rows = [compare_latencies(*case, 1 if options.short else REPEATED) for case in cases(options)]
    return Report({"table_4_1": rows}, [line for row in rows for line in _lines(row)])


def cases(options: Options) -> Iterator[tuple[str, Recording, str, Windows]]:
    """The streams of the table and their queries."""
    yield "Uniform_1500", uniform(options.seconds(1500), 0), *MAX_QUERY
    for name, records in (("Burst_2", 28_000), ("Burst_4", 56_000)):
        yield name, wireless(options.seconds(records), 0).served(COST), *Q4_2


def compare_latencies(
    name: str, stream: Recording, query: str, windows: Windows, times: int
) -> Mapping[str, Any]:
    """A row of the table: a stream's final latencies with and without prods."""
    plain = Script(stream).close(windows).measure(windows)
    prodded = (
        Script(stream)
        .close(windows)
        .measure(windows)
        .prod(windows, after=-round(0.3 * windows.slide * SECOND))
    )
    runs = [(simulate({"q": query}, prodded), simulate({"q": query}, plain)) for _ in range(times)]
    with_prods, without = (min(pair, key=lambda run: run.seconds) for pair in zip(*runs, strict=True))
    return {
        "stream": name,
        "with_prodding": _latency(with_prods),
        "without_prodding": _latency(without),
        "ratio": _latency(with_prods) / _latency(without),
        "closing_to_result_with": float(np.mean(_processing_delay(with_prods))),
        "closing_to_result_without": float(np.mean(_processing_delay(without))),
        "processor_with": with_prods.seconds,
        "processor_without": without.seconds,
        "finals_are_the_same": _finals(with_prods).equals(_finals(without)),
    }


def _finals(run: Run) -> pa.Table:
    results = run.results["q"]
    finals = results.filter(pc.equal(results["kind"], "final"))
    return finals.drop_columns(["batch", "made", "latency"]).sort_by("window_end")


def _processing_delay(run: Run) -> Floats:
    """The seconds from a window's closing to its final result: the processing of its batch and of batches before it."""
    results = run.results["q"]
    finals = results.filter(pc.equal(results["kind"], "final"))
    made = finals["made"].cast(pa.int64()).to_numpy() / SECOND
    return np.array([run.made[batch_id] for batch_id in finals["batch"].to_pylist()]) - made


def _latency(run: Run) -> float:
    """The mean latency of final results in seconds, with processing time."""
    results = run.results["q"]
    finals = results.filter(pc.equal(results["kind"], "final"))
    return float(np.mean(finals["latency"].to_numpy() + _processing_delay(run)))


def _lines(row: Mapping[str, Any]) -> Iterator[Line]:
    name, thesis = row["stream"], THESIS[row["stream"]]
    same = "finals identical" if row["finals_are_the_same"] else "finals differ"
    for what, thesis_latency in (("with", thesis[0]), ("without", thesis[1])):
        yield Line(
            "table 4.1",
            f"{name}: final latency {what} prods",
            thesis_latency,
            row[f"{what}_prodding"],
            "s",
            same,
        )
    yield Line("table 4.1", f"{name}: with against without", None, row["ratio"], "times")
    for what in ("with", "without"):
        waited = 1000 * row[f"closing_to_result_{what}"]
        yield Line("table 4.1", f"{name}: from closing to result, {what} prods", None, waited, "ms")
