"""The Slice Manager: the slices of many windows over the times of one batch.

A slice ends wherever a window starts or ends. The paper keeps a queue of the next edge of each window and
never computes a common period. Here all edges between the first and the last time of a batch are listed at
once, and the slice of a tuple is found by binary search.
Paper: On-the-Fly Sharing, sections 3.1 (paned, paired), 3.2 (shared slices) and 3.3 (Slice Manager).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from transom.columns.arrays import Ints, Mask, count_offsets
from transom.columns.groups import sorted_distinct
from transom.elements import WindowSpec
from transom.windows.intervals import IntervalSet


@dataclass(frozen=True)
class Progressions:
    """Edges as arithmetic progressions `base + k * step`; an owner may have several."""

    bases: Ints
    steps: Ints
    owners: Ints

    def between(self, low: int, high: int) -> tuple[Ints, Ints]:
        """The owners and times of all edges in `(low, high]`."""
        first = (low - self.bases) // self.steps + 1
        counts = np.maximum((high - self.bases) // self.steps - first + 1, 0)
        which = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.owners[which], self.bases[which] + (first[which] + offsets) * self.steps[which]

    def count(self, low: int, high: int) -> int:
        """How many edges `between` would return, repeats included."""
        # A float, because the times may be further apart than int64 holds.
        return int((float(high - low) // self.steps + 1).sum())

    def before(self, time: int, owners: int) -> Ints:
        """The last edge of each owner at or before a time."""
        edges = np.full(owners, np.iinfo(np.int64).min)
        np.maximum.at(edges, self.owners, time - (time - self.bases) % self.steps)
        return edges

    def after(self, time: int, owners: int) -> Ints:
        """The first edge of each owner after a time."""
        edges = np.full(owners, np.iinfo(np.int64).max)
        np.minimum.at(edges, self.owners, time - (time - self.bases) % self.steps + self.steps)
        return edges

    def around(self, times: Ints, owner: int | None = None) -> tuple[Ints, Ints]:
        """The last edge at or before each time and the first after it: of one owner, or of all together."""
        starts = np.full(len(times), np.iinfo(np.int64).min)
        stops = np.full(len(times), np.iinfo(np.int64).max)
        for i in range(len(self.owners)) if owner is None else np.flatnonzero(self.owners == owner):
            start = times - (times - self.bases[i]) % self.steps[i]
            np.maximum(starts, start, out=starts)
            np.minimum(stops, start + self.steps[i], out=stops)
        return starts, stops


@dataclass(frozen=True)
class Slices:
    """The slices of several owners around some times.

    Fine slice `i` lies between `edges[i - 1]` and `edges[i]`. Owner `o` has the slices `bounds[o]` to
    `bounds[o + 1]`; each is a run of fine slices from `firsts` to the next slice's. `starts` and `stops` are
    the times of slices.
    """

    edges: Ints
    bounds: Ints
    firsts: Ints
    starts: Ints
    stops: Ints

    @property
    def fine(self) -> int:
        return len(self.edges) + 1

    def of(self, times: Ints, in_order: bool = False) -> Ints:
        """The fine slice of each time; where times are in order, edges are searched among the times instead."""
        if not in_order:
            return np.searchsorted(self.edges, times, side="right")
        borders = np.searchsorted(times, self.edges)
        counts = np.empty(self.fine, np.int64)
        counts[:-1], counts[-1] = borders, len(times)
        counts[1:] -= borders
        return np.repeat(np.arange(self.fine), counts)


def progressions(windows: Sequence[Iterable[WindowSpec]], paned: bool = False) -> Progressions:
    """The edges of the windows of each owner."""
    bases, steps, owners = [], [], []
    for owner, specs in enumerate(windows):
        for base, step in dict.fromkeys(cut for spec in specs for cut in cuts(spec, paned)):
            bases.append(base)
            steps.append(step)
            owners.append(owner)
    return Progressions(np.array(bases, np.int64), np.array(steps, np.int64), np.array(owners, np.int64))


def cuts(spec: WindowSpec, paned: bool = False) -> list[tuple[int, int]]:
    """The edges that a window needs, as (base, step).

    Paired: where windows start and end. Paned: at every multiple of the greatest common divisor.

    >>> cuts(WindowSpec.ending(18, 15)), cuts(WindowSpec.ending(18, 15), paned=True)
    ([(0, 15), (12, 15)], [(0, 3)])
    """
    if paned:
        pane = gcd(spec.range, spec.slide)
        return [(spec.phase % pane, pane)]
    ends, starts = spec.phase % spec.slide, (spec.phase - spec.range) % spec.slide
    return [(ends, spec.slide)] if ends == starts else [(ends, spec.slide), (starts, spec.slide)]


def next_edges(cut: Sequence[tuple[int, int]], now: int, count: int) -> list[int]:
    """The next edges after a time.

    >>> next_edges(cuts(WindowSpec.ending(18, 15)), now=20, count=3)
    [27, 30, 42]
    """
    firsts = ((now - (now - base) % step + step, step) for base, step in cut)
    return sorted({first + k * step for first, step in firsts for k in range(count)})[:count]


def count_edges(cut: Sequence[tuple[int, int]], low: int, high: int, most: int) -> int:
    """How many different edges there are in `(low, high]`; if there may be more than `most`, about.

    >>> count_edges([(0, 15), (12, 15), (0, 10)], 0, 30, most=1000)
    6
    """
    counts = [(high - base) // step - (low - base) // step for base, step in cut]
    if len({step for _, step in cut}) == 1 or sum(counts) > most:  # with one step none are the same
        return sum(counts)
    firsts = ((low - (low - base) % step + step, step) for base, step in cut)
    return len(np.unique(np.concatenate([np.arange(first, high + 1, step) for first, step in firsts])))


def slices(cut: Progressions, owners: int, low: int, high: int) -> Slices:
    """The slices that hold the times from `low` to `high`."""
    whose, times = cut.between(low, high)
    order = np.lexsort((times, whose))
    whose, times = whose[order], times[order]
    if len(times) > 1:
        is_new = np.ones(len(times), bool)
        np.logical_or(times[1:] != times[:-1], whose[1:] != whose[:-1], out=is_new[1:])
        whose, times = whose[is_new], times[is_new]
    edges = sorted_distinct(times)
    counts = np.bincount(whose, minlength=owners) + 1
    bounds = count_offsets(counts)
    heads = bounds[:-1]
    inner = np.ones(bounds[-1], bool)
    inner[heads] = False
    starts, firsts = np.empty(bounds[-1], np.int64), np.zeros(bounds[-1], np.int64)
    starts[heads], starts[inner] = cut.before(low, owners), times
    firsts[inner] = np.searchsorted(edges, times) + 1
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[bounds[1:] - 1] = cut.after(high, owners)
    return Slices(edges, bounds, firsts, starts, stops)


def crossed_slices(
    starts: Ints, stops: Ints, window: WindowSpec, missed: IntervalSet, paned: bool = False
) -> tuple[Mask, Ints]:
    """Which existing slices an edge of a new query's windows crosses, and where slices start from now on.

    A crossed slice starts at the first missed time inside it. Windows of other queries hold it as before. A
    window of the new query that holds this start has missed a row, and is incomplete anyway.
    """
    around, _ = progressions([[window]], paned).around(stops - 1, 0)
    crossed = around > starts  # an edge lies inside
    if not missed or not crossed.any():
        return crossed, starts
    lows, highs = missed.arrays()
    at = np.minimum(np.searchsorted(highs, starts, side="right"), len(lows) - 1)
    return crossed, np.where(crossed, np.clip(lows[at], starts, stops - 1), starts)
