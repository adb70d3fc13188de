"""What alerts read of result rows, also of early rows with a decision."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids, bids_engine
from transom.alerts.machine import WindowReport
from transom.elements import Kind
from transom.results.result_rows import result_schema
from transom.runtime.alert_windows import reports_of
from transom.sql.query import Query

BUSY = (
    "SELECT count(*) AS n, site FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING count(*) > 1"
)


@pytest.fixture
def query(make_engine: EngineFactory, tmp_path: Path) -> Query:
    engine, _ = bids_engine(make_engine, tmp_path)
    bound = engine.check(BUSY)
    assert isinstance(bound, Query)
    return bound


def row(query: Query, minute: int, kind: Kind, decision: str | None = None, site: Any = 7) -> dict[str, Any]:
    end = datetime(1970, 1, 1, 0, minute, tzinfo=UTC)
    values = {name: None for name in result_schema(query).names}
    return values | {"window_end": end, "site": site, "n": 3, "kind": kind.value, "decision": decision}


def table(query: Query, *rows: dict[str, Any]) -> pa.Table:
    """Results with a column that says what an early row decides."""
    schema = result_schema(query).append(pa.field("decision", pa.string()))
    return pa.Table.from_pylist(list(rows), schema)


def test_final_rows_hold_and_early_rows_count_if_they_decide(query: Query) -> None:
    rows = table(
        query,
        row(query, 1, Kind.FINAL),
        row(query, 2, Kind.EARLY),
        row(query, 3, Kind.EARLY, "early"),
        row(query, 3, Kind.EARLY, "withdrawn"),
        row(query, 4, Kind.FINAL, "withdrawn"),
        row(query, 5, Kind.FINAL, "confirmed", site=None),
        row(query, 5, Kind.RETRACTION),
        row(query, 5, Kind.CORRECTION),
    )
    assert reports_of(query, rows) == {
        '{"site": 7}': [
            WindowReport(0, {"n": 3}),
            WindowReport(2, {"n": 3}, is_early=True),
            WindowReport(2, {"n": 3}, holds=False, is_early=True),
            WindowReport(3, {"n": 3}, holds=False),
        ],
        '{"site": null}': [WindowReport(4, {"n": 3})],
    }


def test_results_without_that_column(query: Query) -> None:
    rows = table(query, row(query, 1, Kind.FINAL), row(query, 2, Kind.EARLY)).drop_columns(["decision"])
    assert reports_of(query, rows) == {'{"site": 7}': [WindowReport(0, {"n": 3})]}


def test_a_decision_with_confidence_makes_an_alert_fire_before_the_window_closes(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} WITH CONFIDENCE 90% ALERT", "busy")
    feed.push(bids(*[(7, 1.0, f"12:00:{second}") for second in (10, 20, 40)]))
    engine.step()
    assert engine.query("busy").results()["decision"].to_pylist() == ["early"]
    (alert,) = engine.alerts()
    assert (alert.state, alert.group) == ("firing", {"site": 7})
    feed.push(bids((8, 1.0, "12:02:00")))
    engine.step()
    assert engine.query("busy").results()["decision"].to_pylist() == ["early", "confirmed"]
    events = [event.state for event in engine.alerting.events()[0]]
    assert events[:2] == ["firing", "confirmed"]


def test_ordinary_early_results_raise_no_alert(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} EMIT EARLY AT 50% OF SLIDE ALERT", "busy")
    feed.push(bids(*[(7, 1.0, f"12:00:{second}") for second in (10, 20, 40)]))
    engine.step()
    assert engine.query("busy").results()["kind"].to_pylist() == ["early"]
    assert engine.alerts() == []


TYPES = {
    "decimals": ("CAST(price AS DECIMAL(6,2))", "1.50"),
    "doubles": ("price", 1.5),
    "dates": ("CAST(ts AS DATE)", "2013-01-01"),
    "times": ("date_trunc('HOUR', ts)", "2013-01-01T12:00:00Z"),
    "booleans": ("price > 1", True),
    "NaN": ("CAST('NaN' AS DOUBLE)", "NaN"),
}


@pytest.mark.parametrize("expression, value", TYPES.values(), ids=list(TYPES))
def test_groups_of_every_type_survive_a_restart(
    make_engine: EngineFactory, tmp_path: Path, expression: str, value: Any
) -> None:
    text = (
        f"SELECT {expression} AS k, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] "
        f"GROUP BY {expression} HAVING count(*) > 1 ALERT"
    )
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(text, "busy")
    feed.push(bids(*[(7, 1.5, f"12:00:{second}") for second in (10, 20)], (7, 1.5, "12:01:00")))
    engine.step()
    (firing,) = engine.alerts()
    assert firing.group == {"k": value}
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids((7, 1.5, "12:01:10"), (7, 1.5, "12:02:00")))
    engine.step()
    assert [each.group for each in engine.alerts()] == [{"k": value}]  # one alert, not two
    assert len(engine.alerting.events()[0]) == 1


def test_windows_of_rows_and_of_numbers_have_numbers_for_times(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register("SELECT count(*) AS n FROM bids [ROWS 2 SLIDE 2] HAVING max(price) > 1 ALERT", "busy")
    feed.push(bids(*[(7, 2.0, f"12:00:{second}") for second in (10, 20, 30, 40)]))
    engine.step()
    (fired,) = engine.alerting.events()[0]
    assert (fired.window_start, fired.window_end, fired.group) == (0, 2, {})
