"""Values that sketches hash: equal values have the same text, other values another, and the text never changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from transom.aggregates.sketches import Distinct, nested_text, sketched_count
from transom.aggregates.table import aggregate_function


def distinct(values: pa.Array) -> int:
    sketch = Distinct.with_error(values.type, 0.01)
    state = sketch.lift(values, np.zeros(len(values), np.int64), 1)
    return int(sketch.estimates(state[0])[0].as_py())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n"),
        (True, "b1"),
        (-7, "i-7"),
        (1.5, "d0x1.8000000000000p+0"),
        (float("nan"), "dnan"),
        (Decimal("1.50"), "e1.50"),
        ("it's", "s4:it's"),
        (b"\x00\xff", "x00ff"),
        (date(2013, 1, 2), "t2013-01-02"),
        (time(1, 2, 3), "t01:02:03"),
        (datetime(2013, 1, 2, 3, tzinfo=UTC), "t2013-01-02T03:00:00+00:00"),
        (timedelta(days=1, microseconds=2), "u86400000002"),
        ([], "()"),
        ({"a": 1, "b": [2, None]}, "(i1,(i2,n))"),
        ([("key", 1)], "((s3:key,i1))"),
    ],
)
def test_the_text_of_a_part_of_a_nested_value_never_changes(value: object, text: str) -> None:
    assert nested_text(value) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a,s1:b"], ["a", "b"]),
        ([[1], 2], [[1, 2]]),
        ([1], ["1"]),
        ([1], [True]),
        ([None], []),
        ([None], ["n"]),
    ],
)
def test_different_values_have_different_texts(one: object, other: object) -> None:
    assert nested_text(one) != nested_text(other)


def test_a_negative_zero_within_a_struct_is_a_zero() -> None:
    values = pa.array([{"a": 0.0}, {"a": -0.0}], pa.struct([("a", pa.float64())]))
    assert distinct(values) == 1
    assert distinct(pa.array([0.0, -0.0])) == 1


def test_an_empty_text_counts_as_a_value() -> None:
    """DataSketches ignores empty texts; approx_count_distinct must not, and hll_sketch_agg does so as Spark's."""
    for values in (pa.array(["", "a", None, ""]), pa.array([b"", b"a", None])):
        assert aggregate_function("approx_count_distinct").over(values, pa.int64(), (0.05,)) == 2
    sketch = aggregate_function("hll_sketch_agg").over(pa.array(["", "a"]), pa.binary(), (12,))
    assert isinstance(sketch, bytes) and sketched_count(sketch) == 1
