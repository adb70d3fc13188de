"""When the first rows of windows arrived."""

from __future__ import annotations

from random import Random

import numpy as np

from transom.windows.arrivals import MAX_ARRIVAL_PIECES, UNKNOWN, Arrivals
from transom.windows.intervals import IntervalSet


def test_later_rows_do_not_change_the_first_arrival() -> None:
    arrivals = Arrivals().with_rows(IntervalSet.of((0, 5), (8, 10)), 7).with_rows(IntervalSet.of((3, 9)), 9)
    first = arrivals.first(np.array([0, 5, 8, 20]), np.array([5, 8, 9, 30]))
    assert first.tolist() == [7, 9, 7, UNKNOWN]


def test_in_a_long_stream_of_small_batches_the_first_arrival_stays_near_the_truth() -> None:
    """Ten batches a second, rows up to a second late, windows of ten minutes."""
    rng, arrivals, second = Random(1), Arrivals(), 1_000_000
    for batch_id in range(8_000):
        now = batch_id * second // 10
        times = sorted(now - rng.randrange(second) for _ in range(20))
        occupied = IntervalSet.of(*((time, time + 1) for time in times))
        arrivals = arrivals.with_rows(occupied, now, since=now - 601 * second)
        assert len(arrivals.pieces) <= MAX_ARRIVAL_PIECES
    now = 7_999 * second // 10
    starts = np.array([now - 600 * second, now - 300 * second, now - 5 * second])
    off = np.abs(arrivals.first(starts, starts + 4 * second) - starts)
    assert off.max() < 8 * second, "one part in a hundred of the time that is kept"


def test_stretches_that_no_window_needs_are_dropped() -> None:
    arrivals = Arrivals()
    for now in range(0, 100_000, 10):
        arrivals = arrivals.with_rows(IntervalSet.of((now, now + 5)), now, since=now - 100)
    assert len(arrivals.pieces) <= 12


def test_batches_in_any_order_make_a_bounded_number_of_pieces() -> None:
    rng, arrivals = Random(2), Arrivals()
    for clock in range(3_000):
        start = rng.randrange(1_000_000)
        arrivals = arrivals.with_rows(IntervalSet.of((start, start + 3)), clock)
        assert len(arrivals.pieces) <= MAX_ARRIVAL_PIECES
    starts = [start for start, _, _ in arrivals.pieces]
    assert starts == sorted(starts)
