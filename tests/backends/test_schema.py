"""Schemas as texts, and Python functions in queries: the same on every backend."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH
from transom.backends.base import Backend
from transom.errors import SettingError

pytestmark = ON_BOTH

INSTANT = pa.timestamp("us", tz="UTC")
COLUMNS = {
    "flag boolean": pa.bool_(),
    "tiny tinyint": pa.int8(),
    "small smallint": pa.int16(),
    "site int": pa.int32(),
    "whole integer": pa.int32(),
    "big bigint": pa.int64(),
    "wide long": pa.int64(),
    "single float": pa.float32(),
    "price double": pa.float64(),
    "fee decimal(10, 2)": pa.decimal128(10, 2),
    "round decimal": pa.decimal128(10, 0),
    "name string": pa.string(),
    "raw binary": pa.binary(),
    "day date": pa.date32(),
    "ts timestamp": INSTANT,
    "at timestamp_ntz": pa.timestamp("us"),
    "tags array<string>": pa.list_(pa.string()),
    "extra map<string, int>": pa.map_(pa.string(), pa.int32()),
    "spot struct<lat: double, at: timestamp>": pa.struct({"lat": pa.float64(), "at": INSTANT}),
}


@pytest.mark.parametrize("text", COLUMNS)
def test_a_column_has_its_type(backend: Backend, text: str) -> None:
    assert backend.parse_schema(text) == {text.split()[0]: COLUMNS[text]}


def test_columns_keep_their_order_and_their_spelling(backend: Backend) -> None:
    assert list(backend.parse_schema("Site int, `unit price` double, ts timestamp")) == [
        "Site",
        "unit price",
        "ts",
    ]


@pytest.mark.parametrize("text", ["site", "site itn", "int", "", "site int,"])
def test_a_wrong_schema_is_refused_with_an_example(backend: Backend, text: str) -> None:
    with pytest.raises(SettingError, match="expected one like 'site int, ts timestamp'"):
        backend.parse_schema(text)


def test_a_function_that_raises_gives_null_and_is_counted(backend: Backend) -> None:
    backend.register_function("Inverse_of", lambda x: 1 / x, "double")
    backend.register_function("plus_one", lambda x: x + 1, "bigint")
    assert {"inverse_of", "plus_one"} <= backend.functions() and "abs" not in backend.functions()
    frame = backend.frame(pa.table({"x": [-1, 0, 1]}))
    found = frame.project({"a": "inverse_of(`x`)", "b": "plus_one(`x`)"}).to_table()
    assert sorted(zip(found["b"].to_pylist(), found["a"].to_pylist(), strict=True)) == [
        (0, -1.0),
        (1, None),
        (2, 1.0),
    ]
    assert backend.function_failures("INVERSE_OF") == 1 and backend.function_failures("plus_one") == 0
    assert backend.function_failures("never_registered") == 0


def test_a_type_of_a_function_that_is_none_is_refused(backend: Backend) -> None:
    with pytest.raises(SettingError, match="not a type: 'duoble'"):
        backend.register_function("f", lambda x: x, "duoble")
