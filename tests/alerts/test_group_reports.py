"""Reports as arrays: the groups that may matter, and that no others are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids, bids_engine
from transom.alerts import evaluation
from transom.alerts.alerts_state import AlertsState
from transom.alerts.evaluation import AlertMoment, RuleInput, WindowTimes, evaluate_alerts, group_key
from transom.alerts.group_reports import GroupReports
from transom.alerts.machine import WindowReport
from transom.elements import AlertRule, AlertTerms
from transom.runtime import alert_windows
from transom.runtime.alert_windows import group_texts, plain_json_value

TIMES = WindowTimes(lambda wid: wid * 10, lambda wid: wid * 10 + 10, int)
PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING n > 0"
COLUMNS = {
    "integers": pa.array([1, -5, None, 2**62]),
    "bytes without a sign": pa.array([1, 255, None, 0], pa.uint8()),
    "truth": pa.array([True, False, None, True]),
    "plain texts": pa.array(["a", "", None, "é – 中"]),
    "texts with characters that JSON escapes": pa.array(['a"b', "c\\d", "e\nf\x01", None]),
    "large texts": pa.array(["a", "b\t", None, "a"], pa.large_string()),
    "doubles": pa.array([0.0, -0.0, float("nan"), 1e300]),
    "floats": pa.array([0.5, -0.0, None, float("inf")], pa.float32()),
    "decimals": pa.array([Decimal("1.50"), None, Decimal("-2.00"), Decimal("1.50")]),
    "days": pa.array([date(2013, 1, 1), None, date(1969, 1, 1), date(2013, 1, 1)]),
    "moments": pa.array([0, 1, None, 0]).cast(pa.timestamp("us", tz="UTC")),
    "bytes": pa.array([b"a", b"\xff", None, b""]),
    "lists": pa.array([[1, 2], [], None, [None]]),
    "nothing": pa.nulls(4),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_groups_as_arrays_are_those_of_one_row(column: pa.Array) -> None:
    other = pa.array(["x", "y", None, "z"])
    rows = zip(column.to_pylist(), other.to_pylist(), strict=True)
    expected = [group_key({'a "b"': plain_json_value(one), "b": two}) for one, two in rows]
    assert group_texts({'a "b"': column, "b": other}, 4).to_pylist() == expected


def test_the_one_group_of_a_query_without_groups() -> None:
    assert group_texts({}, 2).to_pylist() == [group_key({}), group_key({})]


def reports_by_group(rows: Sequence[tuple[str, int, bool, bool]]) -> GroupReports:
    groups, wids, holds, early = zip(*rows, strict=True) if rows else ((), (), (), ())
    reports = [WindowReport(*each) for each in zip(wids, [{}] * len(rows), holds, early, strict=True)]
    keys = pa.array([group_key({"g": group}) for group in groups], pa.large_string())
    return GroupReports(
        keys, np.array(wids, np.int64), np.array(early, bool), lambda chosen: [reports[i] for i in chosen]
    )


@pytest.mark.parametrize("seed", range(30))
def test_groups_that_are_left_out_would_change_nothing(seed: int) -> None:
    dice = Random(seed)
    terms = AlertTerms(dice.randint(1, 4), dice.randint(1, 2), None, (), (), None)
    one = every = AlertsState()
    closed = 0
    for batch in range(6):
        begin, closed = closed, closed + dice.randint(0, 5)
        rows = [(str(dice.randint(0, 9)), dice.randint(begin, closed + 1), True, False) for _ in range(20)]
        rows = list(dict.fromkeys(row for row in rows if dice.random() < 0.7))
        rows += [
            (str(dice.randint(0, 9)), closed + dice.randint(0, 2), dice.random() < 0.7, True)
            for _ in range(dice.choice([0, 0, 3]))
        ]
        ended = dice.choice([None, None, None, "the stream is idle"])
        given = RuleInput(
            AlertRule("a", "q", terms),
            "1",
            TIMES,
            reports_by_group(rows),
            lambda group, below=closed: below,  # type: ignore[misc]
            closed,
            ended,
        )
        moment = AlertMoment(batch, batch, str(batch))
        one, events = evaluate_alerts(one, [given], moment, str)
        every, expected = evaluate_alerts(every, [replace(given, closed_for_all=None)], moment, str)
        assert (one, events) == (every, expected), f"seed {seed}, batch {batch}"


def test_only_reports_of_groups_that_are_tracked_are_made(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_ALERT_GROUPS", 10)
    monkeypatch.setattr(evaluation.evaluate_alerts, "__defaults__", (10, 50_000))
    made: list[int] = []

    def counted(*args: Any, **named: Any) -> WindowReport:
        made.append(1)
        return WindowReport(*args, **named)

    monkeypatch.setattr(alert_windows, "WindowReport", counted)
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{PER_SITE} ALERT", "all")
    engine.register(f"{PER_SITE} ALERT FOR 2 WINDOWS", "run")
    sites = range(5_000)
    for minute in (0, 1):
        feed.push(bids(*((site, 1.0, f"12:0{minute}:10") for site in sites)))
        engine.step()
    feed.push(bids((1, 1.0, "12:02:10")))
    engine.step()
    assert len(made) <= 2 * 2 * 1_010
    firing = {name: summary.firing for name, summary in engine.alerting.summaries().items()}
    assert firing == {"all": 10, "run": 10}
    untracked = {name: summary.untracked for name, summary in engine.alerting.summaries().items()}
    assert untracked == {"all": 2 * 4_990, "run": 2 * 4_990}


def test_groups_that_fire_and_are_resolved_in_one_batch_are_limited(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation.evaluate_alerts, "__defaults__", (10, 50_000))
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{PER_SITE} ALERT", "all")
    feed.push(bids(*((site, 1.0, "12:00:10") for site in range(100))))
    engine.step()
    feed.push(bids((200, 1.0, "12:09:10")))
    engine.step()
    states = [event.state for event in engine.alerting.newest(1_000)]
    assert (states.count("firing"), states.count("resolved")) == (10, 10)
    assert engine.alerting.summaries()["all"].untracked == 90
