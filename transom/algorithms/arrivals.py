"""When the first row of each stretch of time arrived: where the latency of a result is counted from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transom.algorithms.intervals import IntervalSet

MOST_PIECES = 1024
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
        covered = IntervalSet.of(*((start, stop) for start, stop, _ in self.pieces))
        fresh = [(start, min(stop, END), clock) for start, stop in occupied - covered]
        pieces = sorted((*self.pieces, *fresh))
        if since is not None:
            pieces = [piece for piece in pieces if piece[1] > since]
        return Arrivals(tuple(_fewer(pieces)), self.shed)

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
    """At most so many: the oldest neighbours become one, which arrived when the first of them did."""
    extra = len(pieces) - MOST_PIECES
    if extra <= 0:
        return pieces
    old = pieces[: 2 * extra]
    pairs = zip(old[::2], old[1::2], strict=True)
    joined = [(first[0], second[1], min(first[2], second[2])) for first, second in pairs]
    return joined + pieces[2 * extra :]
