"""When sidelined chunks are resumed, and how many rows a batch can process in a given time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transom.overload.chunks import SidelinedChunk

PACES = 8  # the last batches from which the pace is determined
MIN_ROWS_IN_TIME = 1024  # starting a job takes as long as processing these: fewer rows are no burst


def chunks_to_resume(
    sidelined: Sequence[SidelinedChunk], credit: int, share: int
) -> tuple[SidelinedChunk, ...]:
    """The oldest chunks that a batch may resume, if `credit` new rows came and a row costs `share`."""
    count = 0
    for chunk in sidelined:
        credit -= share * chunk.rows
        if credit < 0:
            break
        count += 1
    return tuple(sidelined[:count])


def chunks_without_new_rows(
    sidelined: Sequence[SidelinedChunk], budget: int | None
) -> tuple[SidelinedChunk, ...]:
    """The oldest chunks that fit the budget of a batch without new rows; at least one."""
    chunks = chunks_to_resume(sidelined, budget, 1) if budget is not None else ()
    return chunks or tuple(sidelined[:1])


def credit_after(credit: int, waiting: bool, new: int, resumed: int, share: int) -> int:
    """The credit that new rows earn for sidelined rows; none unless some are `waiting`.

    Rows that a batch without new rows resumes cost nothing.
    """
    return max(0, credit + new - share * resumed) if waiting and new else credit if waiting else 0


def rows_within(micros: int, batches: Iterable[tuple[int, float]]) -> int | None:
    """How many rows fit a time at the best pace of some batches, given by their rows and seconds.

    The fixed cost of a job makes the pace of small batches too low, and with it the next budget. A batch
    that uses this budget shows a better pace. None while no pace is known.
    """
    paces = [rows / seconds for rows, seconds in batches if rows and seconds > 0]
    return max(MIN_ROWS_IN_TIME, int(max(paces) * micros / 1e6)) if paces else None
