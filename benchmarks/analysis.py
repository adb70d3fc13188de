"""The analysis of On-the-Fly Sharing, figures 4 and 10: aggregations by formula, without running a query.

python -m benchmarks.analysis [--out DIRECTORY]

Figure 4 compares shared with unshared slices by the number of windows, at 375 trades a second and at 1.8 an hour.
Figure 10 compares shared with unshared fragments by their number, for 256 predicates and the trades of ten minutes.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.run import RESULTS
from benchmarks.trades import trading_hour
from benchmarks.workloads import SIZES, Predicate, load
from transom.elements import WindowSpec
from transom.plan.cost import Cost, shared, unshared
from transom.windows.slices import cuts

HOUR = 3_600  # seconds
RATES = (375.0, 0.0005)  # tuples a second
INTERVAL_TUPLES = 189_445  # the paper's tuples in ten minutes
SIGNATURE = 76  # queries that a tuple satisfies, on average: the paper's alpha and beta
PAPER_FRAGMENTS = 12_068


@dataclass(frozen=True)
class Point:
    """Aggregations of a technique: in an hour for figure 4, in ten minutes for figure 10."""

    figure: int
    rate: float | None  # tuples a second
    x: int  # windows, or fragments
    technique: str
    partial: float
    final: float

    @property
    def total(self) -> float:
        return self.partial + self.final


def figure_4() -> Iterator[Point]:
    """Slices of different windows, with edges on whole seconds as in the paper.

    The paper's formula for shared slices counts all slices. Ours counts those that hold tuples.
    """
    for rate in RATES:
        for size in (1, 2, 4, 8, *SIZES):
            windows = [_seconds(q.window.range_ms, q.window.slide_ms) for q in _windows(size)]
            costs = {
                "unshared": unshared(windows, rate),
                "shared": shared(windows, rate),
                "unshared, empty slices counted": _unshared_with_empty(windows, rate),
                "shared, empty slices counted": _shared_with_empty(windows, rate),
            }
            for technique, cost in costs.items():
                yield Point(4, rate, size, technique, cost.partial * HOUR, cost.final * HOUR)


def figure_10(observed: int) -> Iterator[Point]:
    """Fragments of 256 predicates: table 5, with the paper's sizes; `observed` is our number of fragments."""
    counts = {
        1,
        PAPER_FRAGMENTS,
        observed,
        INTERVAL_TUPLES,
        *np.geomspace(1, INTERVAL_TUPLES, 20).astype(int),
    }
    for fragments in sorted(int(count) for count in counts):
        yield Point(10, None, fragments, "unshared", 0, SIGNATURE * INTERVAL_TUPLES)
        yield Point(10, None, fragments, "shared", INTERVAL_TUPLES, SIGNATURE * fragments)


def observed_fragments() -> int:
    """Distinct signatures of the trades of ten minutes under the 256 predicates of workload B, on average."""
    trades = pa.concat_tables(trading_hour().batches())
    minutes = trades["time"].cast(pa.int64()).to_numpy() // (600 * 1_000_000)
    predicates = [query.predicate for query in load("B", 256)[0]]
    bits = np.packbits(np.stack([_holds(trades, p) for p in predicates if p is not None], axis=1), axis=1)
    # A hash of 64 bits tells signatures apart: among a million of them, a collision has a chance of 3 in 100 million.
    weights = np.random.default_rng(1).integers(1, 2**63, bits.shape[1], dtype=np.uint64) | np.uint64(1)
    hashed = (bits.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    counts = [len(np.unique(hashed[minutes == interval])) for interval in np.unique(minutes)]
    return round(float(np.mean(counts)))


def _holds(trades: pa.Table, predicate: Predicate) -> np.ndarray:
    price, vol, cp = (trades[name].to_numpy().astype(float) for name in ("price", "vol", "cp"))
    quantity = {"volume": vol, "value": price * vol, "change": np.abs(price - cp) / cp}[predicate.quantity]
    matches = quantity > predicate.constant if predicate.op == ">" else quantity < predicate.constant
    return matches & (trades[predicate.member].to_numpy(zero_copy_only=False) == predicate.is_member)


def _windows(size: int) -> Sequence:
    return load("A_seconds", size)[0] if size in SIZES else load("A_seconds", SIZES[0])[0][:size]


def _seconds(range_ms: int, slide_ms: int) -> WindowSpec:
    return WindowSpec.ending(range_ms // 1_000, slide_ms // 1_000)


def _unshared_with_empty(windows: Sequence[WindowSpec], rate: float) -> Cost:
    return Cost(len(windows) * rate, sum(2 * spec.range / spec.slide**2 for spec in windows))


def _shared_with_empty(windows: Sequence[WindowSpec], rate: float) -> Cost:
    period = (
        12 * HOUR
    )  # edges are counted over half a day: the common period of 256 slides is longer than a century
    edges = {
        edge
        for spec in windows
        for offset, step in cuts(spec, False)
        for edge in range(offset % step, period, step)
    }
    return Cost(rate, len(edges) / period * sum(spec.range / spec.slide for spec in windows))


def write(points: Sequence[Point], directory: Path) -> Path:
    """Write the points to analysis.csv."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "analysis.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
        writer.writeheader()
        for point in points:
            row = asdict(point)
            writer.writerow({**row, "partial": f"{point.partial:.6g}", "final": f"{point.final:.6g}"})
    return path


def read_points(directory: Path) -> list[Point]:
    """The points of analysis.csv; none if there is no file."""
    path = directory / "analysis.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Point(
                int(row["figure"]),
                float(row["rate"]) if row["rate"] else None,
                int(row["x"]),
                row["technique"],
                float(row["partial"]),
                float(row["final"]),
            )
            for row in csv.DictReader(file)
        ]


def main(given: Sequence[str] | None = None) -> None:
    """Compute the points of both figures, write them, and print where the lines cross."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(given)
    fragments = observed_fragments()
    write([*figure_4(), *figure_10(fragments)], options.out)
    print(f"{fragments:,} fragments of {INTERVAL_TUPLES:,} tuples; the paper has {PAPER_FRAGMENTS:,}")


if __name__ == "__main__":
    main()
