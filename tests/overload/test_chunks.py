"""Chunks of sidelined rows: the times that they hold open."""

from __future__ import annotations

from transom.elements import Clock, ClockKind
from transom.overload.chunks import MAX_HELD_RANGES, SidelinedChunk, closed_except_held, held_times
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

TIME, SEQ = Clock("s", "ts"), Clock("s", "seq", ClockKind.INTEGER)


def test_held_times_close_when_their_rows_are_resumed_and_closed_times_stay_closed() -> None:
    before, all_closed = Closed().close(10), Closed().close(40).close(60, 50, (("site", 1),))
    closed = closed_except_held(before, all_closed, IntervalSet.of((5, 20), (55, 58)))
    assert closed.general == IntervalSet.of((LOWEST, 10), (20, 40))
    assert dict(closed.patterned) == {frozenset({("site", 1)}): IntervalSet.of((50, 55), (58, 60))}
    assert closed_except_held(closed, all_closed, IntervalSet()) == all_closed


def test_times_are_held_in_few_ranges() -> None:
    chunks = [SidelinedChunk(str(i), 1, 0, {TIME: (100 * i, 100 * i + i % 2)}) for i in range(40)]
    held = held_times(chunks, TIME)
    assert len(held) == MAX_HELD_RANGES and not held_times(chunks, SEQ)
    assert all((held & IntervalSet.of((100 * i, 100 * i + 1))) for i in range(40))
