"""`:name` in a query's text: values become constants, and wrong names are errors that point at the text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.api.parameters import sql_literal, with_parameters
from transom.errors import SettingError, SQLError

COUNT = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] WHERE "
VALUES: list[tuple[str, Any, str]] = [
    ("site", 2, "int"),
    ("price", 2.5, "double"),
    ("price", -1e-7, "double"),
    ("amount", Decimal("12.50"), "decimal(10,2)"),
    ("amount", Decimal("-12"), "decimal(10,2)"),
    ("kind", 'it\'s \\ a "text" -- :x', "string"),
    ("kind", "", "string"),
    ("live", True, "boolean"),
    ("day", date(2020, 2, 29), "date"),
    ("at", datetime(2020, 1, 2, 3, 4, 5, 678900, tzinfo=UTC), "timestamp"),
    ("at", datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), "timestamp"),
]


@ON_BOTH
@pytest.mark.parametrize(("column", "value", "kind"), VALUES)
def test_a_row_has_the_value_of_the_parameter(
    make_engine: EngineFactory, column: str, value: Any, kind: str
) -> None:
    engine = make_engine()
    feed = engine.feed("bids", f"{column} {kind}, ts timestamp", time="ts")
    query = engine.register(f"{COUNT}{column} = :wanted", parameters={"wanted": value})
    first, second = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)
    feed.push([{column: value, "ts": first}, {column: None, "ts": first}, {column: None, "ts": second}])
    engine.step()
    assert query.results().to_pydict()["n"] == [1]


def test_parameters_stand_anywhere_in_a_query(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.feed("bids", "site int, price double, ts timestamp", time="ts")
    text = (
        "SELECT site, sum(price * :factor) AS s FROM bids [RANGE :range SLIDE :slide] "
        "WHERE array_contains(:sites, site) AND price > -:least GROUP BY site HAVING s > :least EMIT EARLY EVERY :every"
    )
    given_values = {
        "factor": 2,
        "range": timedelta(minutes=2),
        "slide": "1 minute",
        "sites": [1, 2],
        "least": -3,
        "every": "5 seconds",
    }
    query = engine.register(text, parameters=given_values)
    assert query.text == (
        "SELECT site, sum(price * 2) AS s FROM bids [RANGE INTERVAL 120000000 MICROSECONDS SLIDE '1 minute'] "
        "WHERE array_contains(array(1, 2), site) AND price > - -3 GROUP BY site HAVING s > -3 "
        "EMIT EARLY EVERY '5 seconds'"
    )


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("':x' = :x", "':x' = 1"),
        ("`a:x` = :x -- :x", "`a:x` = 1 -- :x"),
        ('"it:x" = :x /* :x */', '"it:x" = 1 /* :x */'),
        ("x::int = :x", "x::int = 1"),
        ("js:x = :x", "js:x = 1"),
        ("f(js):x[0] = :x", "f(js):x[0] = 1"),
        ("a IN (:x,:x)", "a IN (1,1)"),
        (r"'\':x' = :x", r"'\':x' = 1"),
    ],
)
def test_only_parameters_are_replaced(text: str, filled: str) -> None:
    assert with_parameters(text, {"x": 1}) == filled


@given(st.text())
def test_any_text_is_a_literal_that_has_no_parameter(value: str) -> None:
    assert with_parameters(f"{sql_literal(value)} = :x", {"x": 1}) == f"{sql_literal(value)} = 1"


def test_a_parameter_without_a_value_points_at_the_text(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.feed("bids", "price double, ts timestamp", time="ts")
    for parameters, hint in (
        (None, "give it with parameters={'limit': ...}"),
        ({"limti": 4}, "did you mean limti?"),
    ):
        with pytest.raises(SQLError) as caught:
            engine.check(f"{COUNT}price > :limit", parameters=parameters)
        assert caught.value.message.startswith("the parameter :limit has no value; ")
        assert hint in caught.value.message
        assert caught.value.text[caught.value.start : caught.value.end] == ":limit"


def test_a_value_without_its_parameter_is_an_error() -> None:
    with pytest.raises(SettingError, match=r"the query has no parameter :limti; did you mean limit\?"):
        with_parameters(f"{COUNT}price > :limit", {"limit": 4, "limti": 4})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": 1}, {1}, object(), b"x", Decimal("NaN")])
def test_a_value_that_is_no_constant_is_an_error(value: Any) -> None:
    with pytest.raises(SettingError, match="parameters are a dictionary of names and values, not list"):
        with_parameters("SELECT :x", [4])  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="the parameter x is a number, a text"):
        with_parameters(":x", {"x": value})


def test_a_path_into_a_value_is_no_parameter(make_engine: EngineFactory) -> None:
    text = "js:offer.price::double > :offer AND js:['a :b'] = :b AND js:items[0]:offer = 'x'"
    filled = with_parameters(text, {"offer": 1, "b": "y"})
    assert filled == "js:offer.price::double > 1 AND js:['a :b'] = 'y' AND js:items[0]:offer = 'x'"
    engine = make_engine()
    engine.feed("bids", "js string, ts timestamp", time="ts")
    with pytest.raises(SQLError) as caught:
        engine.check(f"{COUNT}js:offer = 'a' AND js:price > :limit")
    assert caught.value.text[caught.value.start : caught.value.end] == ":limit"
