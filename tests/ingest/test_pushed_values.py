"""Values that a program pushes: what a column takes, and what it refuses."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from transom.ingest.pushed_values import pushed_column

STRUCT = pa.struct({"n": pa.int64(), "x": pa.float64()})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3.0, pa.int32()),
        (Decimal("3.00"), pa.int32()),
        ([1, 2.0, None], pa.list_(pa.int64())),
        ({"n": 1.0, "x": 1.5}, STRUCT),
        ({"a": 1.5}, pa.map_(pa.string(), pa.float64())),
        (None, pa.list_(pa.int64())),
    ],
)
def test_whole_numbers_are_integers_whatever_their_type(value: Any, kind: pa.DataType) -> None:
    column = pushed_column([value, None], pa.field("c", kind), "UTC")
    assert column.type == kind
    assert column.null_count == 1 + (value is None)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int32()),
        (Decimal("1.5"), pa.int64()),
        (float("nan"), pa.int16()),
        (1.5, pa.date32()),
        ([1, 1.5], pa.list_(pa.int64())),
        ([[1], [1.5]], pa.list_(pa.list_(pa.int64()))),
        ({"n": 1.5}, STRUCT),
        ([{"n": 1.5}], pa.list_(STRUCT)),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int32())),
    ],
)
def test_a_number_that_is_not_whole_is_refused_where_integers_are_expected(
    value: Any, kind: pa.DataType
) -> None:
    with pytest.raises(ValueError, match=r"column c: .*is not a whole number"):
        pushed_column([value], pa.field("c", kind), "UTC")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1234567890123456789012345678.0123456789", "1234567890123456789012345678.0123456789"),
        ("-0.00000000005", "-0.0000000001"),
        (1.5, "1.5000000000"),
    ],
)
def test_decimals_are_read_with_all_their_digits(value: Any, expected: str) -> None:
    column = pushed_column([value], pa.field("c", pa.decimal128(38, 10)), "UTC")
    assert column.to_pylist() == [Decimal(expected)]


@pytest.mark.parametrize("value", ["12345678901234567890123456789", "one", "NaN", float("inf")])
def test_what_is_no_decimal_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="column c: "):
        pushed_column([value], pa.field("c", pa.decimal128(38, 10)), "UTC")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}),
        (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, {"b": 2}]),
        (pa.map_(pa.string(), pa.struct([("a", pa.int64())])), {"k": {"b": 2}}),
        (pa.struct([("a", pa.struct([("c", pa.string())]))]), {"a": {"b": 2}}),
    ],
)
def test_a_field_that_the_struct_does_not_have_is_refused_and_not_dropped(
    kind: pa.DataType, value: Any
) -> None:
    with pytest.raises(ValueError, match="column c: it has no field b; its fields are"):
        pushed_column([value], pa.field("c", kind), "UTC")
