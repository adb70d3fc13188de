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
from transom.windows import ids as windows
from transom.windows.intervals import IntervalSet

# A progression that has no edge at any time of a row in calendar windows.
NO_EDGES = -(1 << 60), 1 << 61


@dataclass(frozen=True)
class Progressions:
    """Edges as arithmetic progressions `base + k * step`; an owner may have several.

    Calendar windows have other edges: `calendars` are these windows, with their owners.
    """

    bases: Ints
    steps: Ints
    owners: Ints
    calendars: tuple[tuple[int, WindowSpec], ...] = ()

    def of_owners(self, start: int, stop: int) -> Progressions:
        """The edges of some owners, numbered from the first of them."""
        chosen = (self.owners >= start) & (self.owners < stop)
        calendars = tuple((owner - start, spec) for owner, spec in self.calendars if start <= owner < stop)
        return Progressions(self.bases[chosen], self.steps[chosen], self.owners[chosen] - start, calendars)

    @classmethod
    def of_one(cls, parts: Sequence[Progressions]) -> Progressions:
        """The edges of all owners of some progressions, each once, as those of one owner."""
        pairs = [np.stack([part.bases, part.steps]) for part in parts]
        bases, steps = np.unique(np.concatenate(pairs, axis=1), axis=1)
        calendars = dict.fromkeys((0, spec) for part in parts for _, spec in part.calendars)
        return cls(bases, steps, np.zeros(len(bases), np.int64), tuple(calendars))

    def between(self, low: int, high: int) -> tuple[Ints, Ints]:
        """The owners and times of all edges in `(low, high]`."""
        first = (low - self.bases) // self.steps + 1
        counts = np.maximum((high - self.bases) // self.steps - first + 1, 0)
        which = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        owners, times = self.owners[which], self.bases[which] + (first[which] + offsets) * self.steps[which]
        if not self.calendars:
            return owners, times
        edges = {spec: calendar_edges(spec, low, high) for _, spec in self.calendars}
        of_calendars = [np.full(len(edges[spec]), owner) for owner, spec in self.calendars]
        return (
            np.concatenate([owners, *of_calendars]),
            np.concatenate([times, *(edges[spec] for _, spec in self.calendars)]),
        )

    def count(self, low: int, high: int) -> int:
        """How many edges `between` would return, repeats included; of calendars, about."""
        # A float, because the times may be further apart than int64 holds.
        counts = float((float(high - low) // self.steps + 1).sum())
        return int(counts + sum(2 * (float(high - low) // spec.slide + 1) for _, spec in self.calendars))

    def before(self, time: int, owners: int) -> Ints:
        """The last edge of each owner at or before a time."""
        edges = np.full(owners, np.iinfo(np.int64).min)
        np.maximum.at(edges, self.owners, time - (time - self.bases) % self.steps)
        for owner, spec in self.calendars:
            edges[owner] = max(edges[owner], calendar_around(spec, np.array([time]))[0][0])
        return edges

    def after(self, time: int, owners: int) -> Ints:
        """The first edge of each owner after a time."""
        edges = np.full(owners, np.iinfo(np.int64).max)
        np.minimum.at(edges, self.owners, time - (time - self.bases) % self.steps + self.steps)
        for owner, spec in self.calendars:
            edges[owner] = min(edges[owner], calendar_around(spec, np.array([time]))[1][0])
        return edges

    def around(self, times: Ints, owner: int | None = None) -> tuple[Ints, Ints]:
        """The last edge at or before each time and the first after it: of one owner, or of all together."""
        starts = np.full(len(times), np.iinfo(np.int64).min)
        stops = np.full(len(times), np.iinfo(np.int64).max)
        for i in range(len(self.owners)) if owner is None else np.flatnonzero(self.owners == owner):
            start = times - (times - self.bases[i]) % self.steps[i]
            np.maximum(starts, start, out=starts)
            np.minimum(stops, start + self.steps[i], out=stops)
        for spec in dict.fromkeys(spec for own, spec in self.calendars if owner in (None, own)):
            befores, afters = calendar_around(spec, times)
            np.maximum(starts, befores, out=starts)
            np.minimum(stops, afters, out=stops)
        return starts, stops


def calendar_edges(spec: WindowSpec, low: int, high: int) -> Ints:
    """The times in `(low, high]` at which calendar windows start or end."""
    ends = windows.window_end(spec, np.arange(windows.wid_from(spec, low), windows.wid_from(spec, high) + 1))
    starts = windows.window_start(spec, np.arange(windows.wid_to(spec, low), windows.wid_to(spec, high) + 2))
    edges = np.unique(np.concatenate([ends, starts]))
    return edges[(edges > low) & (edges <= high)]


def calendar_around(spec: WindowSpec, times: Ints) -> tuple[Ints, Ints]:
    """The last edge of a calendar's windows at or before each time, and the first after it."""
    ending, starting = windows.wid_from(spec, times), windows.wid_to(spec, times)
    before = np.maximum(windows.window_end(spec, ending - 1), windows.window_start(spec, starting))
    after = np.minimum(windows.window_end(spec, ending), windows.window_start(spec, starting + 1))
    return before, after


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


def progressions(windows_of: Sequence[Iterable[WindowSpec]], paned: bool = False) -> Progressions:
    """The edges of the windows of each owner."""
    bases, steps, owners = list[int](), list[int](), list[int]()
    calendars: dict[tuple[int, WindowSpec], None] = {}
    for owner, specs in enumerate(windows_of):
        own = tuple(specs)
        edges = (
            cuts(own[0], paned) if len(own) == 1 else {cut: None for spec in own for cut in cuts(spec, paned)}
        )
        for base, step in edges or [NO_EDGES]:
            bases.append(base)
            steps.append(step)
            owners.append(owner)
        for spec in own:
            if spec.calendar is not None:
                calendars[owner, spec] = None
    return Progressions(
        np.array(bases, np.int64), np.array(steps, np.int64), np.array(owners, np.int64), tuple(calendars)
    )


def cuts(spec: WindowSpec, paned: bool = False) -> list[tuple[int, int]]:
    """The edges that a window needs, as (base, step); none for calendar windows.

    Paired: where windows start and end. Paned: at every multiple of the greatest common divisor.

    >>> cuts(WindowSpec.ending(18, 15)), cuts(WindowSpec.ending(18, 15), paned=True)
    ([(0, 15), (12, 15)], [(0, 3)])
    """
    if spec.calendar is not None:
        return []
    if paned:
        pane = gcd(spec.range, spec.slide)
        return [(spec.phase % pane, pane)]
    ends, starts = spec.phase % spec.slide, (spec.phase - spec.range) % spec.slide
    return [(ends, spec.slide)] if ends == starts else [(ends, spec.slide), (starts, spec.slide)]


def edges_per_time(specs: Iterable[WindowSpec], paned: bool = False) -> float:
    """How many edges some windows have in a unit of time, on average; edges at the same time may count twice."""
    each = tuple(specs)
    steps = [step for _, step in dict.fromkeys(cut for spec in each for cut in cuts(spec, paned))]
    steps += [spec.slide for spec in dict.fromkeys(each) if spec.calendar is not None]
    return sum(1 / step for step in steps)


def next_edges(cut: Progressions, now: int, count: int) -> list[int]:
    """The next edges after a time.

    >>> next_edges(progressions([[WindowSpec.ending(18, 15)]]), now=20, count=3)
    [27, 30, 42]
    """
    found = list[int]()
    while len(found) < count:
        now = int(cut.around(np.array([now]))[1][0])
        found.append(now)
    return found


def count_edges(cut: Progressions, low: int, high: int, most: int) -> int:
    """How many different edges there are in `(low, high]`; if there may be more than `most`, about.

    >>> cut = progressions([[WindowSpec.ending(15, 15), WindowSpec.starting(15, 15, 12), WindowSpec(10, 10)]])
    >>> count_edges(cut, 0, 30, most=1000)
    6
    """
    about = cut.count(low, high)
    return about if about > most else len(np.unique(cut.between(low, high)[1]))


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
