"""Cumulative and calendar windows on engines: early results, late rows, EXPLAIN, lookups and limits."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.prod_helpers import early
from transom.errors import CostError

SCHEMA = "ts timestamp, site int, v bigint"
BERLIN = "IN TIME ZONE 'Europe/Berlin'"


def ends(query: Any, kind: str) -> list[tuple[str, int]]:
    rows = [row for row in query.results().to_pylist() if row["kind"] == kind]
    return [(f"{row['window_end'].astimezone(UTC):%m-%d %H:%M}", row["v"]) for row in rows]


def test_early_results_come_at_a_part_of_the_last_slide_whatever_its_length(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", SCHEMA, time="ts")
    days = engine.register(
        f"SELECT sum(v) AS v FROM s [RANGE 1 day SLIDE 1 day {BERLIN}] EMIT EARLY AT 50% OF SLIDE"
    )
    grows = engine.register(
        f"SELECT sum(v) AS v FROM s [RANGE UP TO 1 day SLIDE 1 hour {BERLIN}] EMIT EARLY AT 50% OF SLIDE"
    )
    # The day has 23 hours, from 23:00 to 22:00 in UTC: half of it is over at 10:30.
    for time in ("2024-03-31 10:29:59Z", "2024-03-31 10:30:01Z"):
        feed.push([(time, 1, 1)])
        engine.step()
    assert ends(days, "early") == [("03-31 22:00", 2)]
    assert ends(grows, "early") == [("03-31 11:00", 2)]
    engine.flush("s")
    engine.step(empty=True)
    assert ends(days, "final") == [("03-31 22:00", 2)]
    assert ends(grows, "final")[-1] == ("03-31 22:00", 2)


def test_estimates_of_growing_windows_are_learned(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", SCHEMA, time="ts")
    query = engine.register(
        "SELECT sum(v) AS v FROM s [RANGE UP TO 1 hour SLIDE 1 minute] EMIT EARLY AT 50% OF SLIDE"
    )
    for second in range(0, 1_200, 20):
        feed.push([(datetime.fromtimestamp(second, UTC), 1, 1)])
        engine.step()
    rows = [row for row in query.results().to_pylist() if row["kind"] == "early"]
    assert (
        rows[-1]["v_projected"] is not None
        and rows[-1]["v_low"] <= rows[-1]["v_projected"] <= rows[-1]["v_high"]
    )
    assert len(early(query, "v")) == len(rows) > 15


def test_the_first_rows_of_a_month_and_a_late_row(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", SCHEMA, time="ts")
    months = f"[RANGE 1 month SLIDE 1 month {BERLIN}]"
    query = engine.register(
        f"SELECT site, sum(v) AS v FROM s {months} GROUP BY site HAVING sum(v) > 1 ORDER BY v DESC LIMIT 1"
    )
    feed.push([("2024-01-31 22:59Z", 1, 5), ("2024-01-31 23:00Z", 1, 7), ("2024-02-10 00:00Z", 2, 9)])
    feed.push([("2024-02-29 23:00Z", 3, 1)])
    engine.step()
    feed.push([("2024-02-01 12:00Z", 3, 100)])
    engine.step()
    rows = query.results().to_pylist()
    assert [(row["site"], row["v"], row["window_start"].month) for row in rows] == [(1, 5, 12), (2, 9, 1)]
    (late,) = query.late().to_pylist()
    assert (late["window_start"].day, late["window_end"].day, late["late"]) == (31, 29, 1)


def test_explain_says_what_the_windows_are(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    engine.feed("s", SCHEMA, time="ts")
    engine.register(f"SELECT count(*) FROM s [RANGE 1 month SLIDE 1 day {BERLIN}]")
    engine.register("SELECT count(*) FROM s [RANGE UP TO 1 day SLIDE 1 minute]")
    text = str(engine.explain())
    assert "range 1 month, slide 1 day in Europe/Berlin" in text
    assert "range up to 1 day, slide 1 minute" in text


@pytest.mark.parametrize(
    ("bracket", "message"),
    [
        ("[RANGE UP TO 1 day SLIDE 1 microsecond]", "windows for each row"),
        (f"[RANGE UP TO 100 years SLIDE 1 second {BERLIN}]", "windows for each row"),
        (f"[RANGE 9000 years SLIDE 1 year {BERLIN}]", "in a window"),
    ],
)
def test_absurd_windows_are_refused(
    make_engine: EngineFactory, tmp_path: Path, bracket: str, message: str
) -> None:
    engine = make_engine(tmp_path)
    engine.feed("s", SCHEMA, time="ts")
    with pytest.raises(CostError, match=message):
        engine.register(f"SELECT count(*) FROM s {bracket}")
