"""Selections without preferences: a shared predicate index, plain masks, and the paper's simple selection.

The index is the strong baseline: the items of a batch are sorted once, and two binary searches find the tuples of
each range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np

from reproduce.prodding.data import Numbers
from reproduce.promising.baselines import simple_selection
from reproduce.promising.data import Floats
from reproduce.promising.engine.runs import StoreBatch
from reproduce.promising.selection import Ranges


@dataclass(frozen=True)
class SelectedRows:
    """The rows that queries select in a batch, and the seconds that it took to find and read them."""

    batch: StoreBatch
    rows: list[Numbers]  # of the batch, by query
    seconds: float

    @property
    def counts(self) -> Numbers:
        return np.array([len(rows) for rows in self.rows], np.int64)


def indexed_selection(batches: Sequence[StoreBatch], predicates: Ranges) -> Iterator[SelectedRows]:
    """All rows of each query, by an index of the batch's items."""
    for batch in batches:
        began = process_time()
        order = np.argsort(batch.items, kind="stable")
        items, rows = batch.items[order], batch.rows[order]
        start, stop = np.searchsorted(items, predicates.low), np.searchsorted(items, predicates.high)
        selected = [order[low:high] for low, high in zip(start.tolist(), stop.tolist(), strict=True)]
        # The output has the same columns as that of the engine. Rows of a query are contiguous in the index.
        _ = [(items[low:high], rows[low:high]) for low, high in zip(start, stop, strict=True)]
        yield SelectedRows(batch, selected, process_time() - began)


def masked_selection(batches: Sequence[StoreBatch], predicates: Ranges) -> Iterator[SelectedRows]:
    """All rows of each query, by a mask for each."""
    for batch in batches:
        began = process_time()
        selected = []
        for low, high in zip(predicates.low.tolist(), predicates.high.tolist(), strict=True):
            some = np.flatnonzero((batch.items >= low) & (batch.items < high))
            _ = batch.items[some], batch.rows[some]
            selected.append(some)
        yield SelectedRows(batch, selected, process_time() - began)


def first_selected(batches: Sequence[StoreBatch], predicates: Ranges, percent: int) -> Iterator[SelectedRows]:
    """The paper's simple selection: queries probe the tuples in order of arrival until the budget is used.

    The budget is a percentage of the probes that all queries need for all tuples. Its time is that of masks over the
    tuples that are probed.
    """
    for batch in batches:
        began = process_time()
        whole = len(batch) * len(predicates)
        probed = simple_selection(len(batch), len(predicates), whole * percent // 100)
        selected = []
        for low, high, some in zip(
            predicates.low.tolist(), predicates.high.tolist(), probed.tolist(), strict=True
        ):
            items = batch.items[:some]
            found = np.flatnonzero((items >= low) & (items < high))
            _ = items[found], batch.rows[found]
            selected.append(found)
        yield SelectedRows(batch, selected, process_time() - began)


@dataclass(frozen=True)
class WindowAggregates:
    """Sums and counts of each query's selected tuples in the window, after each batch: [batch, query].

    `share` is the share of the tuples that were probed.
    """

    found_sums: Floats
    counts: Floats
    share: float
    seconds: float

    @property
    def sums(self) -> Floats:
        """The sums, scaled up to all tuples: the best estimate that a simple selection has."""
        return self.found_sums / self.share

    @property
    def averages(self) -> Floats:
        """The averages; NaN where nothing was selected."""
        none = np.full_like(self.found_sums, np.nan)
        return np.divide(self.found_sums, self.counts, out=none, where=self.counts > 0)


def window_aggregates(selected: Iterator[SelectedRows], window: int, share: float = 1.0) -> WindowAggregates:
    """Aggregates over the tuples of the last `window` microseconds; the time covers selecting and adding up."""
    parts: list[tuple[int, list[Numbers], list[Numbers]]] = []  # newest time, times and items by query
    sums, counts, seconds = [], [], 0.0
    newest = 0
    for part in selected:
        began = process_time()
        batch, newest = part.batch, max(newest, int(part.batch.times.max()))
        times, items = ([column[rows] for rows in part.rows] for column in (batch.times, batch.items))
        parts.append((int(batch.times.max()), times, items))
        parts = [one for one in parts if one[0] > newest - window]
        total, count = np.zeros(len(part.rows)), np.zeros(len(part.rows))
        for _, times, items in parts:
            for query, (stamps, values) in enumerate(zip(times, items, strict=True)):
                inside = stamps > newest - window
                total[query] += values[inside].sum()
                count[query] += np.count_nonzero(inside)
        sums.append(total)
        counts.append(count)
        seconds += part.seconds + process_time() - began
    return WindowAggregates(np.array(sums), np.array(counts), share, seconds)
