"""When the first row of each stretch of event time arrived: the latency of a result counts from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.windows.intervals import IntervalSet

MAX_ARRIVAL_PIECES = 512
MOST_OF_BATCH = 16  # stretches that one batch adds
UNKNOWN = -1
LAST_TIME = 2**63 - 1


@dataclass(frozen=True)
class Arrivals:
    """Disjoint stretches of event time in order: (start, stop, the engine's clock when the first rows arrived).

    In `shed` are the stretches of which some rows were dropped.

    >>> early = Arrivals().with_rows(IntervalSet.of((0, 10)), 100)
    >>> both = early.with_rows(IntervalSet.of((5, 20)), 200)
    >>> both.pieces
    ((0, 10, 100), (10, 20, 200))
    >>> both.first(np.array([0, 12, 30]), np.array([15, 15, 40])).tolist()
    [100, 200, -1]
    """

    pieces: tuple[tuple[int, int, int], ...] = ()
    shed: IntervalSet = IntervalSet()

    def with_rows(self, occupied: IntervalSet, clock: int, since: int | None = None) -> Arrivals:
        """These arrivals and those of a batch; no window needs stretches that end before `since`."""
        arrived = occupied.coarsened(MOST_OF_BATCH)
        pieces = [piece for piece in self.pieces if since is None or piece[1] > since]
        if arrived:
            earlier = [(start, stop) for start, stop, _ in pieces if stop > arrived.pairs[0][0]]
            new = arrived - IntervalSet(tuple(earlier))
            pieces += [(start, min(stop, LAST_TIME), clock) for start, stop in new]
        return Arrivals(tuple(_merge_neighbours(sorted(pieces))), self.shed)

    def first(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the first row of each of the half-open intervals arrived; -1 if that is unknown."""
        if not self.pieces or not len(starts):
            return np.full(len(starts), UNKNOWN)
        piece_starts, piece_stops, clocks = np.array(self.pieces, np.int64).T
        low = np.searchsorted(piece_stops, starts, side="right")
        high = np.searchsorted(piece_starts, stops, side="left")
        first = np.full(len(starts), UNKNOWN)
        has_rows = low < high
        if has_rows.any():
            runs = np.stack([low[has_rows], high[has_rows]], axis=1).ravel()
            padded = np.r_[clocks, LAST_TIME]  # a run may end where the pieces do
            first[has_rows] = np.minimum.reduceat(padded, runs)[::2]
        return first


def _merge_neighbours(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """At most `MAX_ARRIVAL_PIECES`: neighbours that arrived within the same quantum of the clock are merged.

    Quanta lie on a fixed grid, so that merging again and again does not move an arrival further and further.
    """
    if len(pieces) <= MAX_ARRIVAL_PIECES:
        return pieces
    clocks = [clock for _, _, clock in pieces]
    quantum = 1 << max(0, ((max(clocks) - min(clocks)) * 2 // MAX_ARRIVAL_PIECES).bit_length())
    while True:
        merged = pieces[:1]
        for start, stop, clock in pieces[1:]:
            first, _, previous = merged[-1]
            if clock // quantum == previous // quantum:
                merged[-1] = (first, stop, min(clock, previous))
            else:
                merged.append((start, stop, clock))
        if len(merged) <= MAX_ARRIVAL_PIECES:
            return merged
        quantum *= 2
