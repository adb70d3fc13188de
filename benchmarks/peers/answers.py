"""Windows, slices and answers, without any of the engine's code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.workloads import BenchQuery, Predicate, Window

# Query number -> end of a window in microseconds -> sum. Windows without matching trades are left out.
Answers = dict[int, dict[int, float]]


def window_ends(window: Window, low: int, high: int, starts_aligned: bool = False) -> np.ndarray:
    """Ends of the windows that contain a time from `low` to `high`; ends (or starts) are multiples of the
    slide."""
    range_, slide = window.range_ms * 1_000, window.slide_ms * 1_000
    offset = range_ % slide if starts_aligned else 0
    first, last = (low - offset) // slide + 1, (high + range_ - offset) // slide
    return np.arange(first, last + 1) * slide + offset


def paired_edges(windows: Iterable[Window], low: int, high: int) -> np.ndarray:
    """All starts and ends of windows: the slices that paired windows share."""
    edges = []
    for window in set(windows):
        ends = window_ends(window, low, high)
        edges += [ends, ends - window.range_ms * 1_000]
    return np.unique(np.concatenate(edges))


def slices_of(times: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The number of each time's slice; the times are sorted, so that each slice is a run."""
    cuts = np.searchsorted(times, edges)
    lengths = np.diff(cuts, prepend=0, append=len(times))
    return np.repeat(np.arange(len(edges) + 1, dtype=np.uint32), lengths)


def add_up(
    queries: Sequence[BenchQuery],
    sums: Iterable[np.ndarray],
    slices: np.ndarray,
    edges: np.ndarray,
    span: tuple[int, int],
) -> Answers:
    """Final aggregation: a window is a run of slices, the difference of two running sums.

    `sums` are each query's by slice, `slices` the numbers of those slices, in order.
    """
    answers: Answers = {}
    for number, (query, own) in enumerate(zip(queries, sums, strict=True)):
        running = np.concatenate([[0.0], np.cumsum(np.nan_to_num(own))])
        ends = window_ends(query.window, *span)
        # A slice of number i ends at edge i, so that the slices before an edge are those up to its number.
        until = np.searchsorted(slices, np.searchsorted(edges, ends), side="right")
        since = np.searchsorted(
            slices, np.searchsorted(edges, ends - query.window.range_ms * 1_000), side="right"
        )
        found = running[until] - running[since]
        answers[number] = {int(end): float(v) for end, v in zip(ends, found, strict=True) if v}
    return answers


def matches(trades: Mapping[str, np.ndarray], predicate: Predicate | None) -> np.ndarray:
    """Which trades a predicate selects."""
    if predicate is None:
        return np.ones(len(trades["price"]), bool)
    quantity = trades[predicate.quantity]
    value = quantity > predicate.constant if predicate.op == ">" else quantity < predicate.constant
    return value & (trades[predicate.member] == predicate.is_member)


def columns(trades: pa.Table) -> dict[str, np.ndarray]:
    """A joined table's columns, the time in microseconds, and the quantities that predicates compare."""
    found = {name: trades[name].to_numpy() for name in trades.column_names if name not in ("time", "symbol")}
    found["time"] = trades["time"].cast(pa.int64()).to_numpy()
    found["volume"] = found["vol"]
    found["value"] = found["price"] * found["vol"]
    found["change"] = np.abs(found["price"] - found["cp"]) / found["cp"]
    return found


def plain_answers(trades: pa.Table, queries: Sequence[BenchQuery], starts_aligned: bool = False) -> Answers:
    """The expected answers: each window of each query, computed from the raw trades."""
    data = columns(trades)
    span = int(data["time"].min()), int(data["time"].max())
    answers: Answers = {}
    for number, query in enumerate(queries):
        chosen = matches(data, query.predicate)
        times, values = data["time"][chosen], data["value"][chosen]
        ends = window_ends(query.window, *span, starts_aligned)
        inside = {int(end): (times < end) & (times >= end - query.window.range_ms * 1_000) for end in ends}
        answers[number] = {end: float(values[rows].sum()) for end, rows in inside.items() if rows.any()}
    return answers
