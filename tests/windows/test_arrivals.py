"""When the first rows of windows arrived."""

from __future__ import annotations

from random import Random

import numpy as np

from transom.windows.arrivals import MOST_PIECES, UNKNOWN, Arrivals
from transom.windows.intervals import IntervalSet


def test_rows_that_come_later_do_not_arrive_earlier() -> None:
    known = Arrivals().with_rows(IntervalSet.of((0, 5), (8, 10)), 7).with_rows(IntervalSet.of((3, 9)), 9)
    first = known.first(np.array([0, 5, 8, 20]), np.array([5, 8, 9, 30]))
    assert first.tolist() == [7, 9, 7, UNKNOWN]


def test_in_a_long_stream_of_small_batches_the_first_arrival_stays_near_the_truth() -> None:
    """Ten batches a second, rows up to a second late, windows of ten minutes."""
    rng, known, second = Random(1), Arrivals(), 1_000_000
    for batch_id in range(20_000):
        now = batch_id * second // 10
        times = sorted(now - rng.randrange(second) for _ in range(20))
        occupied = IntervalSet.of(*((time, time + 1) for time in times))
        known = known.with_rows(occupied, now, since=now - 601 * second)
        assert len(known.pieces) <= MOST_PIECES
    now = 19_999 * second // 10
    starts = np.array([now - 600 * second, now - 300 * second, now - 5 * second])
    off = np.abs(known.first(starts, starts + 4 * second) - starts)
    assert off.max() < 8 * second, "one part in a hundred of the time that is kept"


def test_what_nobody_asks_for_is_forgotten() -> None:
    known = Arrivals()
    for now in range(0, 100_000, 10):
        known = known.with_rows(IntervalSet.of((now, now + 5)), now, since=now - 100)
    assert len(known.pieces) <= 12


def test_batches_in_no_order_at_all_are_kept_in_bounds() -> None:
    rng, known = Random(2), Arrivals()
    for clock in range(3_000):
        start = rng.randrange(1_000_000)
        known = known.with_rows(IntervalSet.of((start, start + 3)), clock)
        assert len(known.pieces) <= MOST_PIECES
    starts = [start for start, _, _ in known.pieces]
    assert starts == sorted(starts)
