"""What charts learn from a query's text: slide, counts, units, and the constants of HAVING."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids_engine
from transom.server.chart_hints import ChartHints, Threshold, ValueHint
from transom.server.service import Service

MINUTE = 60_000_000
WINDOW = "[RANGE 5 minutes SLIDE 1 minute]"


@pytest.fixture
def service(make_engine: EngineFactory, tmp_path: Path) -> Service:
    engine, _ = bids_engine(make_engine, tmp_path)
    return Service(engine)


def hints(service: Service, sql: str) -> ChartHints:
    service.register(sql, "q")
    return service.chart_hints("q")


@pytest.mark.parametrize(
    ("items", "having", "expected"),
    [
        ("count(*) AS n", "", ValueHint("count(*)", "rows", True)),
        ("count(DISTINCT price) AS n", "", ValueHint("count(DISTINCT price)", "", True)),
        ("count_if(price > 3) AS n", "", ValueHint("count(*) FILTER (WHERE price > 3.0)", "rows", True)),
        ("approx_count_distinct(price) AS n", "", ValueHint("approx_count_distinct(price, 0.05)", "", True)),
        ("avg(price) AS n", "", ValueHint("avg(price)")),
        ("avg(price) / 2 AS n_ms", "", ValueHint("", "ms")),
        ("sum(price) AS n", "HAVING n > 10", ValueHint("sum(price)", thresholds=(Threshold(">", 10.0),))),
        (
            "sum(price) AS n",
            "HAVING count(*) > 2 AND (n <= 10.5 OR sum(price) > 99)",
            ValueHint("sum(price)", thresholds=(Threshold("<=", 10.5), Threshold(">", 99.0))),
        ),
        (
            "sum(price) AS n",
            "HAVING NOT (n > 10)",
            ValueHint("sum(price)", thresholds=(Threshold("<=", 10.0),)),
        ),
    ],
)
def test_a_value_has_its_expression_unit_and_thresholds(
    service: Service, items: str, having: str, expected: ValueHint
) -> None:
    found = hints(service, f"SELECT site, {items} FROM bids {WINDOW} GROUP BY site {having}")
    assert found.slide == MINUTE
    assert "site" not in found.values
    ((name, value),) = found.values.items()
    assert value == expected, name


def test_sessions_have_no_slide(service: Service) -> None:
    assert (
        hints(service, "SELECT site, count(*) AS n FROM bids [SESSION 1 minute] GROUP BY site").slide is None
    )


def test_units_that_a_user_set_take_the_place_of_those_of_names(service: Service) -> None:
    service.register(f"SELECT avg(price) AS mean, max(price) AS top_ms FROM bids {WINDOW}", "q")
    assert {name: hint.unit for name, hint in service.chart_hints("q").values.items()} == {
        "mean": "",
        "top_ms": "ms",
    }
    service.change("q", units={"mean": "EUR", "top_ms": ""})
    assert {name: hint.unit for name, hint in service.chart_hints("q").values.items()} == {
        "mean": "EUR",
        "top_ms": "",
    }
    assert service.query("q").units == {"mean": "EUR", "top_ms": ""}
