"""The bars (performance targets) as data, and how measurements are compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.rows import Row


@dataclass(frozen=True)
class Side:
    """One side of a ratio: the rows that it selects, and a column of them."""

    workload: str
    queries: int
    strategy: str
    column: str = "seconds"


@dataclass(frozen=True)
class Bar:
    """A limit for the ratio of two sides, or for one side alone.

    `reference` is a value from the paper or from an earlier measurement, as text.
    """

    what: str
    experiment: str
    over: Side
    under: Side | None
    limit: float
    at_least: bool = True
    unit: str = "x"
    reference: str = ""

    def measured(self, rows: Sequence[Row]) -> float | None:
        """The median over the seeds that have both sides; each side is the median of its repetitions."""
        over = _by_seed(rows, self.experiment, self.over)
        if self.under is None:
            return median(over.values()) if over else None
        under = _by_seed(rows, self.experiment, self.under)
        ratios = [over[seed] / under[seed] for seed in over.keys() & under.keys() if under[seed]]
        return median(ratios) if ratios else None

    def met(self, measured: float) -> bool:
        """Whether a measurement clears the bar."""
        return measured >= self.limit if self.at_least else measured <= self.limit

    def sizes(self) -> str:
        """The numbers of queries that are compared; in a short run they differ from those in `what`."""
        sides = [self.over] if self.under is None else [self.over, self.under]
        return " / ".join(dict.fromkeys(f"{side.queries:,}" for side in sides))

    def shown_limit(self) -> str:
        """The limit as text.

        >>> Bar("", "", Side("", 0, ""), None, 30, at_least=False, unit=" s").shown_limit()
        'at most 30 s'
        """
        return f"at {'least' if self.at_least else 'most'} {self.limit:g}{self.unit}"


def _by_seed(rows: Sequence[Row], experiment: str, side: Side) -> dict[int, float]:
    by_seed: dict[int, list[float]] = {}
    for row in rows:
        key = row.experiment, row.workload, row.queries, row.strategy
        value = getattr(row, side.column)
        if key == (experiment, side.workload, side.queries, side.strategy) and value is not None:
            by_seed.setdefault(row.seed, []).append(value)
    return {seed: median(values) for seed, values in by_seed.items()}


def _aggregation(workload: str, limit: float, reference: str, over: str = "unshared_paired") -> Bar:
    what = f"aggregation, {workload}, 256 queries: {over} / shared_paired"
    sides = Side(workload, 256, over), Side(workload, 256, "shared_paired")
    return Bar(what, "aggregation", *sides, limit, reference=f"the paper: {reference}")


def _end_to_end(experiment: str, peer: str, queries: int, limit: float, reference: str) -> Bar:
    what = f"streaming end to end, C low sharing, {queries:,} queries: {peer} / transom"
    sides = Side("C_low", queries, peer), Side("C_low", queries, "transom")
    return Bar(what, experiment, *sides, limit, reference=reference)


def _polars(queries: int, limit: float, reference: str = "") -> Bar:
    what = f"kernel and final aggregation, C low sharing, {queries:,} queries: polars / transom"
    sides = Side("C_low", queries, "polars"), Side("C_low", queries, "transom")
    return Bar(what, "polars", *sides, limit, reference=reference)


def _polars_in_memory(queries: int, limit: float, at_least: bool) -> Bar:
    sides = Side("C_low", queries, "transom"), Side("C_low", queries, "polars")
    over, under = reversed(sides) if at_least else sides
    compared = f"{over.strategy} / {under.strategy}"
    what = f"files to results, against rows in memory, C low sharing, {queries:,} queries: {compared}"
    return Bar(what, "polars_in_memory", over, under, limit, at_least)


def _throughput(queries: int, limit: float) -> Bar:
    what = f"a million rows of large Parquet files, C low sharing, {queries:,} queries"
    side = Side("C_low", queries, "transom")
    return Bar(what, "throughput", side, None, limit, at_least=False, unit=" s")


def _scale(workload: str, limit: float) -> Bar:
    what = f"streaming end to end, {workload}: 10,000 queries / 1 query"
    sides = Side(workload, 10_000, "transom"), Side(workload, 1, "transom")
    return Bar(what, "scale", *sides, limit, at_least=False)


def _memory(workload: str) -> Bar:
    what = f"state, {workload}: 10,000 queries / 1,000"
    sides = Side(workload, 10_000, "transom", "state_bytes"), Side(workload, 1_000, "transom", "state_bytes")
    return Bar(what, "memory", *sides, 4, at_least=False)


BARS = (
    _aggregation("A", 100, "19x"),
    _aggregation("B", 20, "9x"),
    _aggregation("C_regular", 20, "8.5x"),
    _aggregation("C_low", 8, "2x"),
    _aggregation("A", 2, "2.6x", over="shared_paned"),
    _end_to_end("native", "native_scaled", 256, 800, "native: 3.2 s for one query, 37 s for 16"),
    _end_to_end("single_job", "single_job", 256, 2, "the job: 2.8 s"),
    _end_to_end("single_job", "single_job", 1_024, 40, "the job: 57 s"),
    _polars(256, 2, "Polars: 0.6 s"),
    _polars(1_024, 5, "Polars: 2.5 s"),
    _polars(10_000, 20),
    _polars_in_memory(256, 3, at_least=False),
    _polars_in_memory(1_024, 1, at_least=False),
    _polars_in_memory(10_000, 5, at_least=True),
    _throughput(1, 0.333),
    _throughput(1_024, 0.667),
    Bar(
        "streaming end to end, C low sharing, 1,024 queries: transom / a kernel that does nothing",
        "noop",
        Side("C_low", 1_024, "transom"),
        Side("C_low", 1_024, "noop"),
        1.5,
        at_least=False,
    ),
    _scale("C_regular", 2),
    _scale("C_low", 5),
    _memory("C_regular"),
    _memory("C_low"),
    Bar(
        "registering 10,000 queries at once",
        "register",
        Side("C_low", 10_000, "register_all"),
        None,
        30,
        at_least=False,
        unit=" s",
    ),
    Bar(
        "the longest delay of a batch while queries join and leave",
        "register",
        Side("C_low", 1_000, "churn_delay"),
        None,
        0.1,
        at_least=False,
        unit=" s",
    ),
)


def resized(bar: Bar, sizes: dict[int, int]) -> Bar:
    """The bar for a run with other numbers of queries; its text and limit do not change."""

    def side(of: Side) -> Side:
        return replace(of, queries=sizes.get(of.queries, of.queries))

    return replace(bar, over=side(bar.over), under=None if bar.under is None else side(bar.under))
