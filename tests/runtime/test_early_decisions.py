"""HAVING ... WITH CONFIDENCE: alerts of open windows, and what finals say about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.prod_helpers import told, traffic
from transom.errors import SQLError
from transom.results import prodder

SUM = "SELECT sensor, sum(volume) AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor HAVING v > 100"
COUNT = "SELECT sensor, count(*) AS n FROM s [RANGE 50 SLIDE 50] GROUP BY sensor HAVING n >= 2"
CONFIDENT = "WITH CONFIDENCE 90%"


def decided(query: Any, *columns: str) -> list[tuple[Any, ...]]:
    """The results of a query with their decisions, in order."""
    return told(query, "decision", *columns)


def windows(seed: int, count: int, looks: int = 5) -> Iterator[list[tuple[int, int, int, int]]]:
    """Batches of rows of three sensors, some of which bring negative values: five to a window."""
    rng = np.random.default_rng(seed)
    for window in range(count):
        busy = rng.lognormal(0, 0.4, 3)
        for look in range(looks):
            rows = []
            for sensor in range(3):
                for _ in range(rng.poisson(4 * busy[sensor])):
                    time = window * 50 + look * 10 + int(rng.integers(10))
                    rows.append((time, sensor, 0, int(rng.normal(6, 4))))
            yield sorted(rows)


@ON_BOTH
def test_a_count_that_has_passed_its_limit_is_announced_at_once(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(f"{COUNT} {CONFIDENT}")
    feed.push([(1, 1, 0, 5), (2, 2, 0, 5)])
    engine.step()
    assert decided(query) == []
    feed.push([(3, 1, 0, 5)])
    engine.step()
    assert decided(query, "sensor", "n", "batch") == [("early", 0, 50, "early", 1, 2, 2)]
    feed.push([(4, 1, 0, 5)])
    engine.step()
    assert len(query.results()) == 1, "an announcement is made once"
    feed.push([(49, 2, 0, 5)])
    feed.punctuate(50)
    engine.step()
    assert decided(query, "sensor", "n") == [
        ("early", 0, 50, "early", 1, 2),
        ("final", 0, 50, "confirmed", 1, 3),
        ("final", 0, 50, "missed", 2, 2),
    ]
    report = query.accuracy().decisions
    assert report is not None
    assert (report.total.confirmed, report.total.withdrawn, report.total.missed) == (1, 0, 1)
    assert (report.total.certain, report.total.false_alarm_rate, report.total.miss_rate) == (1, 0.0, 0.5)
    assert report.total.lead_slides == pytest.approx(47 / 50)


@pytest.mark.parametrize(
    ("having", "rows", "is_announced"),
    [
        ("max(volume) > 5", [(1, 1, 0, 6)], True),
        ("max(volume) < 5", [(1, 1, 0, 4)], False),
        ("min(volume) < 5", [(1, 1, 0, 4)], True),
        ("min(volume) > 5", [(1, 1, 0, 6)], False),
        ("sum(volume) > 5", [(1, 1, 0, 6)], False),
        ("sum(abs(volume)) > 5", [(1, 1, 0, -6)], True),
        ("sum(volume) FILTER (WHERE volume >= 0) > 5", [(1, 1, 0, 6)], True),
        ("avg(volume) > 5", [(1, 1, 0, 6)], False),
        ("count(*) = 1", [(1, 1, 0, 6)], False),
        ("NOT count(*) < 1", [(1, 1, 0, 6)], True),
        ("count(*) >= 1 AND sum(volume) > 5", [(1, 1, 0, 6)], False),
        ("count(*) >= 1 OR sum(volume) > 5", [(1, 1, 0, 6)], True),
        ("sensor = 1 AND count(*) > 0", [(1, 1, 0, 6)], True),
        ("sensor = 2 AND count(*) > 0", [(1, 1, 0, 6)], False),
        ("count(DISTINCT volume) >= 1", [(1, 1, 0, 6)], True),
    ],
)
def test_what_is_certain_needs_no_learning(
    having: str, rows: list[tuple[int, ...]], is_announced: bool, make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    text = f"SELECT sensor FROM s [RANGE 50 SLIDE 50] GROUP BY sensor HAVING {having} {CONFIDENT}"
    query = engine.register(text)
    feed.push(rows)
    engine.step()
    assert [row[3] for row in decided(query)] == ["early"] * is_announced


def run(engine: transom.Engine, feed: Any, batches: Iterator[list[tuple[int, ...]]], first: int = 0) -> None:
    """Push batches, five to a window of 50, and close each window two batches after its end."""
    for number, rows in enumerate(batches, first):
        feed.push(rows)
        if number >= 7 and number % 5 == 1:
            feed.punctuate((number - 1) // 5 * 50)
        engine.step()


def test_finals_are_those_of_the_query_without_the_clause(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    plain, query = engine.register(SUM, "plain"), engine.register(f"{SUM} {CONFIDENT}", "decided")
    run(engine, feed, windows(7, 36))
    rows = query.results().to_pylist()
    finals = {(row["window_end"], row["sensor"], row["v"]) for row in rows if row["kind"] == "final"}
    assert finals == {(row["window_end"], row["sensor"], row["v"]) for row in plain.results().to_pylist()}
    by_key: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        by_key.setdefault((row["window_end"], row["sensor"]), []).append(row["decision"])
    assert {tuple(words) for words in by_key.values()} <= {
        ("early",), ("early", "confirmed"), ("early", "withdrawn"), ("missed",)
    }  # fmt: skip
    assert sum(words == ["early", "confirmed"] for words in by_key.values()) > 10
    early = [row for row in rows if row["decision"] == "early"]
    assert all(row["kind"] == "early" and row["v_projected"] > 100 for row in early)
    report = query.accuracy().decisions
    assert report is not None and report.total.confirmed > 10
    withdrawn = [row for row in rows if row["decision"] == "withdrawn"]
    assert len(withdrawn) == report.total.withdrawn > 0
    assert all(row["kind"] == "early" and not row["v"] > 100 for row in withdrawn)


def test_a_restart_changes_no_decision(make_engine: EngineFactory, tmp_path: Path) -> None:
    batches = list(windows(3, 20))
    whole, feed = traffic(make_engine, tmp_path / "whole", clock=lambda: 0)
    expected = whole.register(f"{SUM} {CONFIDENT}", "q")
    run(whole, feed, iter(batches))
    for first in range(0, len(batches), 50):
        engine, feed = traffic(make_engine, tmp_path / "parts", clock=lambda: 0)
        query = engine.query("q") if first else engine.register(f"{SUM} {CONFIDENT}", "q")
        run(engine, feed, iter(batches[first : first + 50]), first)
        report, columns = query.accuracy(), decided(query, "sensor", "v", "v_low", "batch")
        engine.stop()
    assert columns == decided(expected, "sensor", "v", "v_low", "batch")
    assert repr(report) == repr(expected.accuracy())


@pytest.mark.parametrize(
    "clause", [f"HAVING sum(volume) > 100 {CONFIDENT}", ""], ids=["decisions", "estimates"]
)
def test_state_on_the_executors_changes_no_estimate_and_no_decision(
    clause: str, make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prodder, "COARSE_GRID", prodder.GRID)  # as often as on the driver
    text = f"SELECT sensor, sum(volume) * 2 AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor {clause}"
    shown, results = ["sensor", "v", "v_projected", "v_low", "v_high"], {}
    for state in ("driver", "executors"):
        engine, feed = traffic(make_engine, tmp_path / state, clock=lambda: 0, state=state)
        query = engine.register(f"{text} EMIT EARLY AT 40%, 80%, 100% OF SLIDE")
        run(engine, feed, windows(5, 20))
        results[state] = told(query, *shown)
        assert any(row[0] == "early" and row[6] is not None for row in results[state])
    assert results["driver"] == results["executors"]


def test_a_query_over_the_results_reads_finals_of_which_having_is_true(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.register(f"{SUM} {CONFIDENT}", "alerts")
    engine.register(SUM, "plain")
    counted = [
        engine.register(f"SELECT count(*) AS n, sum(v) AS v FROM {name} [RANGE 500 SLIDE 500]", f"of_{name}")
        for name in ("alerts", "plain")
    ]
    run(engine, feed, windows(7, 24))
    assert told(counted[0], "n", "v") == told(counted[1], "n", "v") != []


def test_a_prod_shows_the_values_of_windows_that_satisfy_having_now(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(f"{SUM} {CONFIDENT}")
    feed.push([(1, 1, 0, 150), (2, 2, 0, 50)])
    engine.step()
    assert told(query.prod(), "decision", "sensor", "v") == [("early", 0, 50, None, 1, 150)]


def test_what_an_alert_needs_is_said(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = traffic(make_engine, tmp_path)
    for text, message in {
        f"SELECT count(*) AS n FROM s [RANGE 50 SLIDE 50] {CONFIDENT}": "has no HAVING",
        f"{COUNT} {CONFIDENT} {CONFIDENT}": "given twice",
        f"{COUNT} WITH CONFIDENCE 40%": "at least 50%",
        f"{COUNT} ORDER BY n LIMIT 1 {CONFIDENT}": "can't be combined with LIMIT",
        f"{COUNT} EMIT EARLY ON DEMAND {CONFIDENT}": "comes after HAVING",
        f"SELECT count(*) AS n FROM s [SESSION 5] HAVING n > 1 {CONFIDENT}": "windows that all groups share",
        f"SELECT max(volume) AS m FROM s [RANGE 50 SLIDE 50] HAVING m IS NULL {CONFIDENT}": "can't be decided",
        f"SELECT count(*) AS n FROM s [RANGE 50] HAVING n > 1 {CONFIDENT}": "needs SLIDE",
    }.items():
        with pytest.raises(SQLError, match=message):
            engine.register(text)


def test_the_columns_of_a_query_with_confidence(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = traffic(make_engine, tmp_path)
    schema = engine.register(f"{SUM} {CONFIDENT}").results().schema
    assert schema.names[:6] == ["window_start", "window_end", "sensor", "v", "v_projected", "v_low"]
    assert schema.field("decision").type == pa.string()
    assert "decision" not in engine.register(SUM).results().schema.names
