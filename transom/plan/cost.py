"""To share or not to share: the cost of shared and of unshared slices, from measured rates.

Sharing adds each tuple once instead of once per window, but then each window combines the slices of all windows.
Per unit of time, with n windows (range r, slide s), tuples at rate `l` and edges at rate `g`:

    unshared    n * l  +  sum of h(2 / s) r / s
    shared          l  +  h(g) * sum of r / s

`h(g)`, at most `g` and at most `l`, is the rate of slices that hold tuples: empty slices are not stored.
Paper: On-the-Fly Sharing, section 3.2.2, table 3 and inequality (1), which counts empty slices too: `h(g) = g`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from transom.elements import WindowSpec
from transom.windows.ids import windows_per_row
from transom.windows.slices import edges_per_time


@dataclass(frozen=True)
class Cost:
    """Aggregations per unit of time."""

    partial: float
    final: float

    @property
    def total(self) -> float:
        return self.partial + self.final


class WindowCosts:
    """What some windows cost at any rate; what depends on the windows alone is computed once."""

    def __init__(self, windows: tuple[WindowSpec, ...], paned: bool = False):
        self.windows = windows
        self._edges = edges_per_time(windows, paned)
        self._own_edges = np.array([2 / spec.slide for spec in windows])
        self._per_row = np.array([windows_per_row(spec) for spec in windows], np.float64)

    def shared(self, rate: float) -> Cost:
        """The cost of shared slices."""
        return Cost(rate, filled(self._edges, rate) * float(self._per_row.sum()))

    def unshared(self, rate: float) -> Cost:
        """The cost of unshared slices."""
        own = -self._own_edges * np.expm1(-rate / self._own_edges)  # as `filled`
        return Cost(len(self.windows) * rate, float((own * self._per_row).sum()))


def unshared(windows: Iterable[WindowSpec], rate: float) -> Cost:
    """The cost of windows with slices of their own.

    >>> unshared([WindowSpec.ending(10, 5), WindowSpec.ending(15, 5)], 100)
    Cost(partial=200, final=2.0)
    """
    return WindowCosts(tuple(windows)).unshared(rate)


def shared(windows: Iterable[WindowSpec], rate: float, paned: bool = False) -> Cost:
    """The cost of windows that share slices, cut at the edges of all of them.

    >>> shared([WindowSpec.ending(10, 5), WindowSpec.ending(15, 5)], 100)
    Cost(partial=100, final=1.0)
    """
    return WindowCosts(tuple(windows), paned).shared(rate)


def filled(slices: float, rate: float) -> float:
    """The rate of slices that hold tuples, where slices are equally long and tuples arrive at random.

    >>> [round(filled(2.0, rate), 3) for rate in (0.001, 2.0, 100.0)]
    [0.001, 1.264, 2.0]
    """
    return -slices * math.expm1(-rate / slices)


def is_better(new: Cost, old: Cost, clearly: float) -> bool:
    """Whether the new plan costs less than this part of the old one, so that a change is worth it."""
    return new.total < clearly * old.total
