"""ORDER BY ... LIMIT: the first rows of each window, ties included."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from transom.results.top_rows import top_rows
from transom.sql.query import OrderKey

F64 = pa.float64()


def first_two(key: OrderKey, values: list[float | None], groups: list[str | None]) -> list[str | None]:
    """The groups of the first two rows of one window, in order."""
    columns = [pa.chunked_array([pa.array(values, F64)])], [pa.chunked_array([pa.array(groups, pa.string())])]
    rows = len(values)
    chosen = top_rows([key], *columns, [np.zeros(rows, np.int64)], np.full(rows, 2))
    return [groups[row] for row in chosen]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(OrderKey("x", F64), ["b", "e"], id="ascending: null, then the least"),
        pytest.param(OrderKey("x", F64, nulls_first=False), ["e", "c"], id="ascending, nulls last"),
        pytest.param(
            OrderKey("x", F64, True, nulls_first=False), ["d", "a"], id="descending: NaN, then the greatest"
        ),
        pytest.param(OrderKey("x", F64, True), ["b", "d"], id="descending, nulls first"),
    ],
)
def test_nulls_and_nan_have_sparks_places(key: OrderKey, expected: list[str]) -> None:
    assert first_two(key, [5.0, None, 2.0, math.nan, 1.0], ["a", "b", "c", "d", "e"]) == expected


@pytest.mark.parametrize("groups", [["c", "a", "b", None], ["b", None, "c", "a"]])
def test_equal_rows_are_in_the_order_of_their_groups(groups: list[str | None]) -> None:
    assert first_two(OrderKey("x", F64, True), [1.0] * 4, groups) == [None, "a"]


def test_each_window_of_each_query_has_its_own_first_rows() -> None:
    windows = [np.array([0, 0, 0, 1, 1]), np.array([7, 8, 8, 7, 7])]
    values = pa.chunked_array([pa.array([1, 2, 3, 4, 5])])
    chosen = top_rows([OrderKey("x", pa.int64())], [values], [], windows, np.array([1, 1, 1, 2, 2]))
    assert chosen.tolist() == [0, 1, 3, 4]


def test_with_ties_only_lesser_rows_count_as_before() -> None:
    values = pa.chunked_array([pa.array([1.0, 1.0, None, None, 2.0, 2.0, 1.0, 3.0])])
    windows, ties = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([True] * 4 + [True] * 4)
    groups = [pa.chunked_array([pa.array(list("abcdefgh"))])]
    key = OrderKey("x", F64, nulls_first=False)
    chosen = top_rows([key], [values], groups, [windows], np.array([1] * 4 + [2] * 4), ties)
    assert chosen.tolist() == [0, 1, 6, 4, 5]
    assert top_rows([key], [values], groups, [windows], np.full(8, 1), ~ties).tolist() == [0, 6]
