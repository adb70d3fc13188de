"""When the first row of each stretch of time arrived: where the latency of a result is counted from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.windows.intervals import IntervalSet

MOST_PIECES = 512
MOST_OF_BATCH = 16  # stretches in which a batch's rows lie, for this purpose
UNKNOWN = -1
END = 2**63 - 1


@dataclass(frozen=True)
class Arrivals:
    """Disjoint stretches of time in order (start, stop, clock): the clock read so when rows first came there.

    Of those that came in `shed`, some were dropped.

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
        """This after rows came at some times; what lies before `since` is not asked for any more."""
        few = occupied.coarsened(MOST_OF_BATCH)
        old = [piece for piece in self.pieces if since is None or piece[1] > since]
        if few:
            near = [(start, stop) for start, stop, _ in old if stop > few.pairs[0][0]]
            old += [(start, min(stop, END), clock) for start, stop in few - IntervalSet(tuple(near))]
        return Arrivals(tuple(_fewer(sorted(old))), self.shed)

    def first(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
        """When the first row of each of the half-open intervals arrived; -1 if that is not known."""
        if not self.pieces or not len(starts):
            return np.full(len(starts), UNKNOWN)
        own = np.array(self.pieces, np.int64)
        low = np.searchsorted(own[:, 1], starts, side="right")
        high = np.searchsorted(own[:, 0], stops, side="left")
        found = np.full(len(starts), UNKNOWN)
        met = low < high
        if met.any():
            runs = np.stack([low[met], high[met]], axis=1).ravel()
            padded = np.r_[own[:, 2], END]  # a run may end where the pieces do
            found[met] = np.minimum.reduceat(padded, runs)[::2]
        return found


def _fewer(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """At most so many: neighbours that arrived within the same quantum of the clock become one.

    Quanta lie on a fixed grid, so that one that was made stays what it is, and nothing creeps up.
    """
    if len(pieces) <= MOST_PIECES:
        return pieces
    clocks = [clock for _, _, clock in pieces]
    quantum = 1 << max(0, ((max(clocks) - min(clocks)) * 2 // MOST_PIECES).bit_length())
    while True:
        found = pieces[:1]
        for start, stop, clock in pieces[1:]:
            first, _, known = found[-1]
            if clock // quantum == known // quantum:
                found[-1] = (first, stop, min(clock, known))
            else:
                found.append((start, stop, clock))
        if len(found) <= MOST_PIECES:
            return found
        quantum *= 2
