"""Groups of equal rows, against a dict."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transom.columns import groups
from transom.columns.groups import Groups, each_row_alone, group

NAN = math.nan
COLUMNS = {
    "text": (pa.string(), st.sampled_from(["", "a", "é", None])),
    "small": (pa.int8(), st.sampled_from([-128, 0, 127, None])),
    "real": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, 1.5, None])),
    "single": (pa.float32(), st.sampled_from([0.0, -0.0, NAN, None])),
    "truth": (pa.bool_(), st.sampled_from([True, False, None])),
    "exact": (pa.decimal128(5, 2), st.sampled_from([Decimal("1.00"), Decimal("0.00"), None])),
    "nothing": (pa.null(), st.none()),
    "pair": (pa.struct([("a", pa.int32())]), st.sampled_from([{"a": 1}, {"a": None}, None])),
    "list": (pa.list_(pa.int32()), st.sampled_from([[], [1], [1, None], None])),
}


def spelled(value: Any) -> str:
    """Values that Spark puts into one group have one spelling."""
    return repr(value + 0.0 if isinstance(value, float) else value)


def by_dict(rows: list[tuple[Any, ...]]) -> list[int]:
    """For each row the first row that is equal to it."""
    first: dict[tuple[str, ...], int] = {}
    return [first.setdefault(tuple(map(spelled, row)), number) for number, row in enumerate(rows)]


def check(groups: Groups, expected: list[int]) -> None:
    assert groups.firsts[groups.codes].tolist() == expected
    assert sorted(set(groups.codes.tolist())) == list(range(groups.count)), "codes are dense"


@given(st.data())
def test_rows_are_grouped_as_a_dict_groups_them(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(COLUMNS[name][1] for name in names)), max_size=12))
    arrays = [
        pa.array([row[i] for row in rows], COLUMNS[name][0], from_pandas=False)
        for i, name in enumerate(names)
    ]
    check(group(arrays, len(rows)), by_dict(rows))


@example([(-(2**63), "a"), (2**63 - 1, "a"), (-(2**63), "a")])
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.sampled_from("ab")), max_size=12))
def test_numbers_of_all_64_bits_are_grouped_beside_columns(rows: list[tuple[int, str]]) -> None:
    numbers = np.array([number for number, _ in rows], np.int64)
    check(group([numbers, pa.array([text for _, text in rows], pa.string())], len(rows)), by_dict(rows))


def test_more_combinations_than_64_bits_can_number_are_still_told_apart() -> None:
    rng = np.random.default_rng(5)
    columns = [rng.integers(0, 5000, 5000) for _ in range(8)]  # 5000 ** 8 combinations, most of them absent
    columns.append(np.zeros(5000, np.int64))
    check(group([pa.array(column) for column in columns], 5000), by_dict(list(zip(*columns, strict=True))))


def test_sorting_and_counting_give_the_same_codes() -> None:
    codes = np.random.default_rng(6).integers(0, 60_000, 500)
    by_counting, by_sorting = groups.densify(codes, 60_000), groups.densify(codes, 2**40)
    assert by_counting[0].tolist() == by_sorting[0].tolist()
    assert by_counting[1] == by_sorting[1]


def test_without_columns_all_rows_are_one_group() -> None:
    check(group([], 3), [0, 0, 0])


@pytest.mark.parametrize("columns", [[], [pa.array([], pa.string())], [np.array([], np.int64)]])
def test_no_rows_make_no_groups(columns: list[Any]) -> None:
    assert group(columns, 0).count == 0


def test_each_alone_has_as_many_groups_as_rows() -> None:
    check(each_row_alone(4), [0, 1, 2, 3])
