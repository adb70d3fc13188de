"""An axis tells every predicate over its scalar, as evaluating the predicate would."""

from __future__ import annotations

import math
import pickle
from datetime import date
from decimal import Decimal as D
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.kernel.predicates import evaluate
from transom.plan.axis import Axis, AxisKind, axis_kind, is_searchable
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Predicate, Scalar, Truth
from transom.windows.intervals import IntervalSet

NAN, INF = math.nan, math.inf
OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]

# For each type the values of a column and the constants that it is compared with.
TYPES: dict[pa.DataType, tuple[list[Any], list[Any]]] = {
    pa.bool_(): ([True, False], [True, False]),
    pa.int8(): ([-128, -1, 0, 1, 127], [0, 1, 127, 128, -129, D("0.5"), D("-0.5")]),
    pa.int32(): ([-(2**31), -1, 0, 5, 2**31 - 1], [-1, 0, 5, D("5.5"), D("5.00"), 2**31, -(2**40)]),
    pa.int64(): (
        [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
        [0, 2**53 + 1, 2**63 - 1, -(2**63), D("0.1"), D("-0.1"), 2**63, -(2**63) - 1],
    ),
    pa.float32(): ([-INF, -1.5, -0.0, 0.0, 0.5, 0.1, INF, NAN], [0.0, -0.0, 0.5, 0.1, NAN, INF, -INF]),
    pa.float64(): (
        [-INF, -1.5, -0.0, 0.0, 0.1, math.nextafter(0.1, 1), 5e-324, 1e308, INF, NAN],
        [0.0, -0.0, 0.1, 5e-324, 1e308, NAN, INF, -INF, 5],
    ),
    pa.decimal128(10, 2): (
        [D("-1.10"), D("0.00"), D("1.10"), D("1.11"), D("99999999.99")],
        [0, 1, D("1.1"), D("1.105"), D("-1.105"), D("1.10000"), 10**8, -(10**30)],
    ),
    pa.decimal128(18, 0): ([D(-(10**18) + 1), D(0), D(10**18 - 1)], [0, 10**18, D("0.5"), -(10**18)]),
    pa.string(): (["", "a", "A", "aa", "z", "é", "\uffff", "😀"], ["", "a", "é", "\uffff", "😀", "b"]),
    pa.binary(): ([b"", b"\0", b"a", b"\xff"], [b"", b"a", b"\xff"]),
    pa.date32(): (
        [date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
        [date(1970, 1, 1), date(1, 1, 1)],
    ),
    pa.timestamp("us", tz="UTC"): ([-1, 0, 1, 10**15], [0, 10**15, -5]),
    pa.timestamp("us"): ([-1, 0, 1, 10**15], [0, 10**15, -5]),
}


@cache  # Hypothesis checks a strategy when it is first drawn from
def predicates(scalar: Scalar) -> st.SearchStrategy[Predicate]:
    constants = st.sampled_from(TYPES[scalar.type][1])
    leaves: list[st.SearchStrategy[Predicate]] = [
        st.builds(Comparison, st.just(scalar), st.sampled_from(OPERATORS), constants),
        st.builds(
            Member, st.just(scalar), st.lists(constants, min_size=1, max_size=3).map(tuple), st.booleans()
        ),
        st.just(IsNull(scalar)),
    ]
    if pa.types.is_boolean(scalar.type):
        leaves.append(st.just(Truth(scalar)))
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=5,
    )


def told(axis: Axis, predicate: Predicate, column: pa.Array) -> list[bool]:
    """Where a predicate is true, by the codes of the values."""
    true = axis.true(predicate)
    return [any(start <= code < stop for start, stop in true) for code in axis.codes(column).tolist()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_codes_tell_what_evaluating_tells(kind: pa.DataType, data: st.DataObject) -> None:
    scalar = Scalar("x", kind, "x")
    asked = data.draw(st.lists(predicates(scalar), min_size=1, max_size=4))
    values = data.draw(st.lists(st.sampled_from([*TYPES[kind][0], None]), max_size=12))
    column = pa.array([None, *values], kind, from_pandas=False).slice(1)  # an offset is no matter
    assert all(map(is_searchable, asked))
    axis = Axis.of(scalar, asked)
    codes = axis.codes(column)
    assert ((codes >= 0) & (codes < axis.size)).all()
    for predicate in asked:
        expected = evaluate(predicate, lambda _: column).fill_null(False).to_pylist()
        assert told(axis, predicate, column) == expected, predicate


@pytest.mark.parametrize("kind", TYPES, ids=str)
@settings(max_examples=15)
@given(data=st.data())
def test_an_axis_merged_of_several_is_finer_than_each(kind: pa.DataType, data: st.DataObject) -> None:
    scalar = Scalar("x", kind, "x")
    parts = data.draw(st.lists(st.lists(predicates(scalar), min_size=1, max_size=2), min_size=1, max_size=3))
    axes = [Axis.of(scalar, asked) for asked in parts]
    merged = Axis.merged(axes)
    column = pa.array([*TYPES[kind][0], None], kind, from_pandas=False)
    for axis in axes:
        assert axis.translation(merged)[merged.codes(column)].tolist() == axis.codes(column).tolist()


# --- thresholds, drawn -----------------------------------------------------------------------
#
#   price > 5, price <= 10, price = 10:      5+     10    10+
#                                   code  0   |  1   |  2  |  3     4: null


def test_constants_become_thresholds_in_order() -> None:
    price = Scalar("price", pa.int64())
    asked = [Comparison(price, ">", 5), Comparison(price, "<=", 10), Comparison(price, "=", 10)]
    axis = Axis.of(price, asked)
    assert (axis.kind, axis.thresholds, axis.null) == (AxisKind.WHOLE, (6, 10, 11), 4)
    assert [axis.true(predicate) for predicate in asked] == [
        IntervalSet.of((1, 4)),
        IntervalSet.of((0, 3)),
        IntervalSet.of((2, 3)),
    ]
    assert axis.codes(pa.array([5, 6, 9, 10, 11, None])).tolist() == [0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("predicate", "pieces"),
    [
        pytest.param(lambda x: Comparison(x, "<", 3), 1, id="one side"),
        pytest.param(lambda x: And((Comparison(x, ">", 3), Comparison(x, "<", 9))), 1, id="two sides"),
        pytest.param(lambda x: Comparison(x, "!=", 3), 2, id="a hole"),
        pytest.param(lambda x: Member(x, (1, 3, 9)), 3, id="a few values"),
        pytest.param(lambda x: Member(x, (1, 2, 3)), 1, id="integers side by side are one run"),
        pytest.param(lambda x: Or((Comparison(x, "<", 3), IsNull(x))), 2, id="null is apart from the values"),
        pytest.param(lambda x: And((Comparison(x, "<", 3), Comparison(x, ">", 9))), 0, id="nothing"),
        pytest.param(
            lambda x: Not(Member(x, (1,), null=True)), 0, id="NOT IN a list with NULL is never true"
        ),
    ],
)
def test_a_predicate_is_a_few_runs_of_codes(predicate: Any, pieces: int) -> None:
    asked = predicate(Scalar("x", pa.int32()))
    assert len(Axis.of(Scalar("x", pa.int32()), [asked]).true(asked)) == pieces


@pytest.mark.parametrize(
    ("predicate", "searchable"),
    [
        (Comparison(Scalar("x", pa.int64()), "<", 3), True),
        (Comparison(Scalar("x", pa.int64()), "<", 3.5), False),
        (Member(Scalar("x", pa.int64()), (1, 2.0)), False),
        (Comparison(Scalar("x", pa.float64()), "<", 3), True),
        (Comparison(Scalar("x", pa.decimal128(18, 2)), "<", 3), True),
        (Comparison(Scalar("x", pa.decimal128(19, 2)), "<", 3), False),
        (Truth(Scalar("x LIKE 'a%'", pa.bool_())), True),
        (Or((Comparison(Scalar("x", pa.int64()), "<", 3), IsNull(Scalar("y", pa.int64())))), False),
        (IsNull(Scalar("x", pa.list_(pa.int64()))), False),
        (IsNull(Scalar("x", pa.null())), False),
    ],
    ids=repr,
)
def test_what_an_axis_can_tell(predicate: Predicate, searchable: bool) -> None:
    assert is_searchable(predicate) is searchable


def test_every_type_has_one_kind_of_axis() -> None:
    assert {kind: axis_kind(kind) for kind in TYPES if axis_kind(kind) is not AxisKind.WHOLE} == {
        pa.float32(): AxisKind.DOUBLE,
        pa.float64(): AxisKind.DOUBLE,
        pa.string(): AxisKind.BYTES,
        pa.binary(): AxisKind.BYTES,
    }
    assert axis_kind(pa.timestamp("ns")) is None


def test_an_axis_travels_to_the_tasks() -> None:
    price = Scalar("price", pa.float64())
    axis = Axis.of(price, [Comparison(price, ">=", NAN), Comparison(price, "<", 0.0)])
    column = pa.array([NAN, -0.0, -1.0, None], from_pandas=False)
    there = pickle.loads(pickle.dumps(axis))
    assert there.codes(column).tolist() == axis.codes(column).tolist() == [2, 1, 0, 3]
