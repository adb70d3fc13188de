"""The shared index of selections: what it selects is what each condition selects by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from transom.kernel.predicates import evaluate
from transom.promising import selection_index
from transom.promising.selection_index import SelectedRows, SelectionIndex
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth

ITEM = Scalar("`item`", pa.int64(), "item")
PRICE = Scalar("`price`", pa.float64(), "price")
NAME = Scalar("`name`", pa.string(), "name")
LARGE = Scalar("`large`", pa.decimal128(38, 2), "large")  # too long for an axis
FLAG = Scalar("`flag`", pa.bool_(), "flag")
NAMES = ["", "a", "ab", "b", "é", "z"]


def table_of(rng: np.random.Generator, rows: int) -> pa.Table:
    """Rows with NULLs, NaN, infinities and zeros of both signs."""

    def some(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in rng.integers(0, len(values), rows)], kind)

    return pa.table(
        {
            "item": some([*range(-3, 12), None], pa.int64()),
            "price": some(
                [0.0, -0.0, 1.5, 2.5, -7.0, math.nan, math.inf, -math.inf, None, 3.25], pa.float64()
            ),
            "name": some([*NAMES, None], pa.string()),
            "large": some([None, 1, 5, 10**30], pa.decimal128(38, 2)),
            "flag": some([True, False, None], pa.bool_()),
        }
    )


def predicate_of(rng: np.random.Generator, depth: int = 2) -> Predicate:
    """A condition over some of the columns."""
    kind = int(rng.integers(0, 9 if depth else 6))
    if kind >= 6:
        parts = tuple(predicate_of(rng, depth - 1) for _ in range(int(rng.integers(2, 4))))
        return And(parts) if kind == 6 else Or(parts) if kind == 7 else Not(parts[0])
    op = ["=", "!=", "<", "<=", ">", ">=", "<=>"][int(rng.integers(0, 7))]
    leaves: list[Callable[[], Predicate]] = [
        lambda: Comparison(ITEM, op, int(rng.integers(-4, 13))),
        lambda: Comparison(PRICE, op, [0.0, 1.5, math.nan, -7.5][int(rng.integers(0, 4))]),
        lambda: Comparison(NAME, op, NAMES[int(rng.integers(0, len(NAMES)))]),
        lambda: Member(ITEM, (1, 5, 7), bool(rng.integers(0, 2))),
        lambda: IsNull([ITEM, PRICE, NAME, LARGE][int(rng.integers(0, 4))]),
        lambda: Truth(FLAG) if rng.integers(0, 2) else Comparison(LARGE, op, 5),
    ]
    return leaves[kind]()


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_every_selection_selects_what_its_condition_says(
    rows: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection_index, "FIRST_ROWS", 8)
    rng = np.random.default_rng(seed)
    table = table_of(rng, rows)
    conditions: list[Predicate | None] = [None, *(predicate_of(rng) for _ in range(80))]
    conditions.append(And((Comparison(ITEM, ">", 100), Comparison(LARGE, "=", 5))))  # selects nothing

    def column(scalar: Scalar) -> pa.Array:
        return table[scalar.column or ""].combine_chunks()

    indexed = SelectionIndex.of(conditions).placed(rows, column)
    selected, counts = indexed.selected(), indexed.counts()
    order = rng.permutation(rows)
    members = np.flatnonzero(rng.random(len(conditions)) < 0.7)
    members = members[counts[members] > 0]
    limits = np.minimum(rng.integers(1, 30, len(members)), counts[members])
    first = indexed.first_selected(members, limits, order)
    for number, condition in enumerate(conditions):
        truth = [True] * rows if condition is None else evaluate(condition, column).to_pylist()
        assert selected.of(number).tolist() == [row for row in range(rows) if truth[row]], condition
        assert counts[number] == sum(map(bool, truth))
        if number in members:
            (place,) = np.flatnonzero(members == number)
            expected = [row for row in order.tolist() if truth[row]][: limits[place]]
            assert first.rows[first.bounds[place] : first.bounds[place + 1]].tolist() == expected


def test_an_index_without_selections_selects_nothing() -> None:
    selected = SelectionIndex.of([]).placed(5, lambda scalar: pa.nulls(5)).selected()
    assert selected.rows.tolist() == [] and selected.bounds.tolist() == [0]


def test_rows_of_some_selections_in_another_order() -> None:
    selected = SelectedRows(np.array([0, 1, 2, 1, 3, 0]), np.array([0, 3, 3, 5, 6]))
    ordered = selected.ordered_by(np.array([3, 2, 1, 0]))  # from the last row to the first
    assert ordered.rows.tolist() == [2, 1, 0, 3, 1, 0]
    chosen = ordered.where(np.array([0, 2]))
    assert chosen.rows.tolist() == [2, 1, 0, 3, 1] and chosen.bounds.tolist() == [0, 3, 5]
    first = chosen.first(np.array([2, 1]))
    assert first.rows.tolist() == [2, 1, 3] and first.bounds.tolist() == [0, 2, 3]
