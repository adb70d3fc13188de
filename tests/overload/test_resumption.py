"""When sidelined chunks are resumed, and budgets that are times."""

from __future__ import annotations

import pytest

from transom.overload.chunks import SidelinedChunk
from transom.overload.resumption import (
    MIN_ROWS_IN_TIME,
    chunks_to_resume,
    chunks_without_new_rows,
    credit_after,
    rows_within,
)

SIDELINED = [SidelinedChunk(name, rows, 0) for name, rows in (("a", 2), ("b", 3), ("c", 1))]


@pytest.mark.parametrize(
    ("credit", "share", "expected"),
    [(0, 3, ""), (5, 3, ""), (6, 3, "a"), (14, 3, "a"), (15, 3, "ab"), (99, 3, "abc"), (5, 1, "ab")],
)
def test_new_rows_pay_for_old_ones_oldest_first(credit: int, share: int, expected: str) -> None:
    assert "".join(chunk.name for chunk in chunks_to_resume(SIDELINED, credit, share)) == expected


@pytest.mark.parametrize(("budget", "expected"), [(None, "a"), (1, "a"), (5, "ab"), (6, "abc")])
def test_a_batch_without_new_rows_resumes_what_fits_and_at_least_one_chunk(
    budget: int | None, expected: str
) -> None:
    assert "".join(chunk.name for chunk in chunks_without_new_rows(SIDELINED, budget)) == expected


def test_credit_is_earned_while_rows_wait_and_spent_on_resumed_rows() -> None:
    assert credit_after(4, waiting=True, new=10, resumed=2, share=3) == 8
    assert (
        credit_after(4, waiting=True, new=0, resumed=2, share=3) == 4
    )  # a batch without new rows costs nothing
    assert credit_after(4, waiting=False, new=10, resumed=2, share=3) == 0


def test_a_time_budget_is_as_many_rows_as_the_best_batch_processed_in_that_time() -> None:
    assert rows_within(2_000_000, []) is None
    assert rows_within(2_000_000, [(0, 1.0)]) is None
    assert rows_within(2_000_000, [(10, 0.5), (90_000, 3.0)]) == 60_000
    assert rows_within(2_000_000, [(10, 0.5)]) == MIN_ROWS_IN_TIME
