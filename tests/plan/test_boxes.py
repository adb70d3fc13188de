"""Boxes of predicates over several scalars: they are disjoint, and hold just the tuples that SQL selects."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.bids import bound
from transom.kernel.predicates import evaluate
from transom.kernel.rows import in_boxes
from transom.plan.boxes import Grid, own_boxes
from transom.sql.query import And, Predicate, Scalar, scalars_of

VALUES: dict[str, list[Any]] = {
    "price": [None, -math.inf, -1.0, -0.0, 0.0, 2.0, 2.5, math.inf, math.nan],
    "seq": [None, -(2**63), 0, 1, 2, 2**63 - 1],
    "kind": [None, "", "a", "aa", "b"],
}
PARTS = ["price > 2", "price <= 0", "price >= 2.5", "price IS NULL", "seq >= 1", "seq IN (0, 2)",
         "seq != 1", "kind < 'aa'", "kind <=> 'b'", "kind IN ('a', NULL)"]  # fmt: skip


def where(text: str) -> tuple[Predicate, ...]:
    predicate = bound(f"SELECT count(*) FROM bids [RANGE 10 SLIDE 10 WATTR seq] WHERE {text}").where
    assert predicate is not None
    return predicate.parts if isinstance(predicate, And) else (predicate,)


def scalars(predicates: list[tuple[Predicate, ...]]) -> list[Scalar]:
    found = {scalar.sql: scalar for parts in predicates for part in parts for scalar in scalars_of(part)}
    return [found[sql] for sql in sorted(found)]


def texts(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(PARTS)
    if not depth:
        return leaf
    inner = texts(depth - 1)
    joined = st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
        lambda p: f"({p[0]}) {p[1]} ({p[2]})"
    )
    return st.one_of(leaf, joined, inner.map(lambda text: f"NOT ({text})"))


@settings(max_examples=60)
@given(st.lists(texts(3), min_size=1, max_size=3))
def test_boxes_hold_what_the_predicate_selects_and_each_tuple_once(drawn: list[str]) -> None:
    predicates = [where(text) for text in drawn]
    axes = scalars(predicates)
    boxes = [own_boxes(parts, axes, 1_000) for parts in predicates]
    grid = Grid.of([own for own in boxes if own is not None])
    rows = list(product(*VALUES.values()))
    columns = {f"`{name}`": [row[i] for row in rows] for i, name in enumerate(VALUES)}
    table = {scalar.sql: pa.array(columns[scalar.sql], scalar.type, from_pandas=False) for scalar in axes}
    codes = [axis.codes(table[axis.scalar.sql]) for axis in grid.axes]
    for place, parts in enumerate(predicates):
        truth = evaluate(And(parts), lambda scalar: table[scalar.sql]).fill_null(False)
        expected = truth.to_numpy(zero_copy_only=False).astype(int)
        held = np.zeros(len(rows), int)
        for box in np.flatnonzero(grid.owners == place):
            held += in_boxes(codes, grid, np.arange(len(grid.owners)) == box, len(rows))
        assert held.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("price > 1 AND seq < 5", 1),
        ("price BETWEEN 1 AND 2 AND seq BETWEEN 3 AND 4", 1),
        ("price > 1 OR seq < 5", 3),  # price > 1; else price <= 1 or null, and seq < 5
        ("price IN (1, 2) AND seq IN (3, 5)", 4),
        ("price > 1 AND price < 0 AND seq < 5", 0),
    ],
)
def test_the_number_of_boxes(text: str, count: int) -> None:
    parts = where(text)
    found = own_boxes(parts, scalars([parts]), 64)
    assert found is not None and len(found.boxes) == count


def test_too_many_boxes_are_none() -> None:
    parts = where("price IN (1, 2, 3) AND seq IN (1, 3, 5)")
    assert own_boxes(parts, scalars([parts]), 9) is not None
    assert own_boxes(parts, scalars([parts]), 8) is None
