"""The second half of a page: partials of closed windows -> the aggregates of each window and group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.aggregates.functions import FUNCTIONS
from transom.algorithms import windows
from transom.algorithms.grouping import group
from transom.algorithms.intervals import IntervalSet
from transom.control.closed import View
from transom.partial.kernel import one_array, regroup, split_by_view
from transom.plan.compiled import CompiledQuery

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Boundary:
    """What is closed for a query, at one moment."""

    view: View
    forced: IntervalSet

    def wids(self, query: CompiledQuery, closed: IntervalSet) -> IntervalSet:
        return windows.closed_wids(query.query.window, closed) | self.forced


def close(
    query: CompiledQuery, slices: pa.Table, before: Boundary, after: Boundary
) -> tuple[pa.Table | None, pa.Table]:
    """The windows that became closed, combined from their slices, and the slices that are still needed.

    The first has columns `wid`, the keys, `rows` and the states; None when no window closed.
    """
    if not slices.num_rows:
        return None, slices
    spec = query.query.window
    starts = slices["slice"].to_numpy()
    firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
    rows, wids, keep = [], [], np.ones(len(starts), bool)
    for chosen, closed_before, closed_after in _by_group(query, slices, before, after):
        keep[chosen] = ~closed_after.covers(firsts[chosen], lasts[chosen])
        for start, stop in closed_after - closed_before:
            of, wid = _expand(np.maximum(firsts[chosen], start), np.minimum(lasts[chosen], stop - 1))
            rows.append(chosen[of])
            wids.append(wid)
    kept = slices if keep.all() else slices.filter(pa.array(keep))
    if not rows or not sum(map(len, rows)):
        return None, kept
    return _combined(query, slices, np.concatenate(rows), np.concatenate(wids)), kept


def open_windows(query: CompiledQuery, slices: pa.Table, boundary: Boundary) -> int:
    """How many windows hold rows and are not closed, over all groups together."""
    if not slices.num_rows:
        return 0
    starts = np.unique(slices["slice"].to_numpy())
    spec = query.query.window
    firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
    held = IntervalSet.of(*zip(firsts.tolist(), (lasts + 1).tolist(), strict=True))
    closed = boundary.wids(query, boundary.view.general)
    return sum(stop - start for start, stop in held - closed)


def _by_group(
    query: CompiledQuery, slices: pa.Table, before: Boundary, after: Boundary
) -> Iterator[tuple[Numbers, IntervalSet, IntervalSet]]:
    """The slices in parts whose groups see the same closed windows, before and after."""
    keys = [one_array(slices[f"k{i}"]) for i in range(len(query.query.keys))]
    for rows, (earlier, closed) in split_by_view([before.view, after.view], keys, slices.num_rows):
        yield rows, before.wids(query, earlier), after.wids(query, closed)


def _expand(firsts: Numbers, lasts: Numbers) -> tuple[Numbers, Numbers]:
    """Every (index, number) with the number in that index's run `firsts..lasts`."""
    lengths = np.maximum(lasts - firsts + 1, 0)
    index = np.repeat(np.arange(len(firsts)), lengths)
    offsets = np.arange(len(index)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return index, firsts[index] + offsets


def _combined(query: CompiledQuery, slices: pa.Table, rows: Numbers, wids: Numbers) -> pa.Table:
    table = slices.take(pa.array(rows)).append_column("wid", pa.array(wids)).combine_chunks()
    keys = [one_array(table[f"k{i}"]) for i in range(len(query.query.keys))]
    groups = group([wids, *keys], len(rows))
    return regroup(query, table, groups.codes, groups.firsts, ["wid"])


def lower(query: CompiledQuery, closed: pa.Table) -> pa.Table:
    """What a SELECT list is written over: `k0`.., `a0`.., `window_start`, `window_end`; and `rows`."""
    bound, spec = query.query, query.query.window
    ends = windows.window_end(spec, closed["wid"].to_numpy())
    columns = {f"k{i}": closed[f"k{i}"] for i in range(len(bound.keys))}
    for i, (call, places) in enumerate(zip(bound.calls, query.reads, strict=True)):
        states = [
            [one_array(closed[f"s{p}_{j}"]) for j in range(len(query.slots[p].accumulator.types()))]
            for p in places
        ]
        columns[f"a{i}"] = FUNCTIONS[call.function].lower(states, call.type, call.parameters)
    columns["window_start"] = pa.array(ends - spec.range).cast(bound.clock_type)
    columns["window_end"] = pa.array(ends).cast(bound.clock_type)
    columns["rows"] = closed["rows"]
    return pa.table(columns)
