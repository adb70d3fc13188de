"""Aggregates as Python functions: registered with samples, shared, kept in checkpoints, and isolated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import at, bids_engine
from transom.aggregates.table import called_function, unregister_aggregate
from transom.errors import SettingError

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SCHEMA = "item string, price double, ts timestamp"
GEOMETRIC: dict[str, Any] = {
    "identity": {"n": 0, "logs": 0.0},
    "lift": lambda x: {"n": 1, "logs": math.log(x)},
    "combine": lambda a, b: {"n": a["n"] + b["n"], "logs": a["logs"] + b["logs"]},
    "lower": lambda s: math.exp(s["logs"] / s["n"]) if s["n"] else None,
    "state": "struct<n: bigint, logs: double>",
    "returns": "double",
    "samples": [1.0, 2.5, 40.0],
}


@pytest.fixture(autouse=True)
def without_aggregates() -> Iterator[None]:
    yield
    if called_function("geometric") is not None:
        unregister_aggregate("geometric")


def register(engine: transom.Engine, **changes: Any) -> None:
    engine.aggregate("geometric", **{**GEOMETRIC, **changes})


@ON_BOTH
@pytest.mark.parametrize("state", ["driver", "executors"])
def test_queries_call_it_like_the_built_in_ones(
    make_engine: EngineFactory, tmp_path: Path, state: str
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA, state=state)
    register(engine)
    query = engine.register(f"SELECT item, geometric(price) AS g FROM bids {WINDOW} GROUP BY item")
    some = engine.register(f"SELECT geometric(price) FILTER (WHERE item = 'c') AS g FROM bids {WINDOW}")
    feed.push([("a", 2.0, at("12:00:10")), ("b", None, at("12:00:20"))])
    engine.step()
    assert [row["g"] for row in query.prod().to_pylist() if row["item"] == "a"] == [pytest.approx(2.0)]
    feed.push([("a", 8.0, at("12:00:30"))])
    engine.drain()
    finals = [row for row in query.results().to_pylist() if row["kind"] == "final"]
    assert {row["item"]: row["g"] for row in finals} == {"a": pytest.approx(4.0), "b": None}
    assert some.results()["g"].to_pylist() == [None]


def test_a_failing_aggregate_suspends_its_query_alone(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    register(engine)
    engine.register(f"SELECT geometric(price) AS g FROM bids {WINDOW}", name="failing")
    total = engine.register(f"SELECT sum(price) AS x FROM bids {WINDOW}", name="total")
    feed.push([("a", -2.0, at("12:00:10"))])
    engine.drain()
    assert total.results()["x"].to_pylist() == [-2.0]
    assert "failing" in engine.progress().suspended


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"samples": [1.0]}, "needs at least three sample values", id="too few samples"),
        pytest.param({"combine": lambda a, b: a}, "breaks a law, the identity: for 1.0|2.5", id="the first of two"),
        pytest.param(
            {"identity": 0.0, "lift": lambda x: x, "combine": lambda a, b: a - b, "lower": abs, "state": "double"},
            "breaks a law, associativity of combine",
            id="a difference is not associative",
        ),
        pytest.param(
            {"identity": "", "lift": str, "combine": lambda a, b: a + b, "lower": lambda s: s,
             "state": "string", "returns": "string"},
            "breaks a law, commutativity of combine: for 1.0, 2.5 one way gives '1.02.5', the other '2.51.0'",
            id="text is not commutative",
        ),
        pytest.param({"lift": lambda x: x / 0}, "fails in lift for 1.0: ZeroDivisionError", id="lift fails"),
        pytest.param({"state": "double"}, "fails in the type of the state", id="another type of state"),
    ],
)  # fmt: skip
def test_an_aggregate_that_breaks_a_law_is_refused(
    make_engine: EngineFactory, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    with pytest.raises(SettingError, match=message):
        register(engine, **changes)
    assert called_function("geometric") is None


def test_a_name_of_a_built_in_aggregate_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    with pytest.raises(SettingError, match="there is an aggregate sum already"):
        engine.aggregate("sum", **GEOMETRIC)


def test_a_program_that_starts_again_goes_on_with_its_states(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    text = f"SELECT geometric(price) AS g FROM bids {WINDOW}"
    engine, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    register(engine)
    engine.register(text, name="g")
    feed.push([("a", 2.0, at("12:00:10"))])
    engine.step()
    engine.stop()
    again, feed = bids_engine(make_engine, tmp_path, schema=SCHEMA)
    register(again)
    query = again.register(text, name="g")
    feed.push([("a", 8.0, at("12:00:30"))])
    again.drain()
    assert query.results()["g"].to_pylist() == [pytest.approx(4.0)]
