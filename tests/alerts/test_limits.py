"""What alerts cost is bounded: nobody's alert or silence takes the time of a batch from others."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids, bids_engine
from transom import SettingError, StateError, TransomError
from transom.alerts import evaluation, silences
from transom.alerts.silences import parse_matcher, silent_alerts
from transom.alerts.templates import filled_template
from transom.elements import Silence
from transom.runtime import alert_batches, alert_handles, alert_windows

BUSY = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING n > 0"


def silence(*matchers: str, until: int = 10) -> Silence:
    return Silence("id", tuple(map(parse_matcher, matchers)), until, 0, "", "")


def is_silent(one: Silence, texts: dict[str, str]) -> bool:
    """The definition, text by text."""

    def holds(name: str, op: str, value: str) -> bool:
        text = texts.get(name, "")
        matches = re.fullmatch(value, text) is not None if "~" in op else text == value
        return matches == op.startswith("=")

    return all(holds(each.name, each.op, each.value) for each in one.matchers)


def test_alerts_are_silenced_as_one_by_one(seed: int) -> None:
    draw = Random(seed)
    alerts = [
        {name: draw.choice(["", "a", "ab", "b"]) for name in draw.sample(["x", "y", "alert"], 2)}
        for _ in range(200)
    ]
    for _ in range(50):
        drawn = [
            silence(
                *(
                    f"{draw.choice('xyz')}{draw.choice(['=', '!=', '=~', '!~'])}{draw.choice(['a', 'ab', '', 'a.*|b'])}"
                    for _ in range(draw.randint(1, 3))
                ),
                until=draw.choice([5, 10]),
            )
            for _ in range(draw.randint(0, 3))
        ]
        expected = [any(one.until > 7 and is_silent(one, texts) for one in drawn) for texts in alerts]
        assert np.array_equal(silent_alerts(drawn, alerts, 7), expected)


def test_a_regular_expression_is_compiled_once_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = silences._matches
    monkeypatch.setattr(silences, "_matches", lambda p, texts: compiled.append(p) or real(p, texts))
    drawn = [silence("x=~1.*"), silence("x!~2.*", "y=1")]
    compiled.clear()
    silent_alerts(drawn, [{"x": str(number)} for number in range(5_000)], 0)
    assert compiled == ["1.*", "2.*"]


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        (r"site=~(?:\pL{50}){5}", "takes too long to compile"),
        (r"site=~(?i)" + r"\pL" * 300, "takes too long to compile"),
        (r"site=~[\PL\d]{4,}[a-z]{3}", "takes too long to compile"),
        (r"site=~\pL\Q\E{50}", "takes too long to compile"),
        (r"site=~(?:.{50}){50}", "no regular expression"),
        ("site=~(", "no regular expression"),
    ],
)
def test_expensive_regular_expressions_are_refused(matcher: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse_matcher(matcher)


@pytest.mark.parametrize(
    "pattern",
    [".{900}", r"\p{Lu}\p{Ll}{2}-\d{12}", r"\pL{10}", "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"],
)
def test_a_regular_expression_is_accepted_however_slow_the_machine_is(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(1_000_000))
    monkeypatch.setattr("time.thread_time", lambda: float(next(hours)))
    assert parse_matcher(f"site=~{pattern}").value == pattern


def test_texts_of_events_are_cut() -> None:
    written: list[Any] = []
    text = filled_template("{m}" * 3_000, {"m": "x" * 1_000}, lambda value: written.append(value) or value)
    assert len(text) == 10_000 and text.endswith("…") and len(written) == 11


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("ALERT RESOLVE AFTER 10000 WINDOWS REPEAT EVERY '1 minute'", "more than 100 times"),
        ("ALERT REPEAT EVERY '1 microsecond'", "more than 100 times"),
        (f"ALERT SUMMARY '{'x' * 10_001}'", "10,000 characters together"),
        ("ALERT RESOLVE AFTER 100 WINDOWS REPEAT EVERY '1 minute'", None),
        (f"ALERT SUMMARY '{'x' * 10_000}'", None),
    ],
)
def test_terms_that_make_many_or_large_events_are_refused(
    make_engine: EngineFactory, tmp_path: Path, clause: str, message: str | None
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    if message is None:
        engine.register(f"{BUSY} {clause}")
    else:
        with pytest.raises(TransomError, match=message):
            engine.register(f"{BUSY} {clause}")


def test_alerts_and_patterns_have_a_largest_number(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_handles, "MOST_ALERTS", 2)
    monkeypatch.setattr(alert_handles, "MOST_PATTERNS", 3)
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.register(BUSY, "busy")
    for name in ("a", "b", "b"):
        engine.alert(name, query="busy")
    with pytest.raises(StateError, match="2 alerts already"):
        engine.alert("c", query="busy")
    engine.alerting.silence(["site=~1.*", "site!~2.*", "site=3"], "1 hour")
    with pytest.raises(StateError, match="3 regular expressions"):
        engine.alerting.silence(["site=~1.*", "site=~1.*"], "1 hour")


def test_many_alerts_on_a_query_read_its_results_once_and_share_the_groups(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    reports_of, evaluate = alert_windows.reports_of, evaluation.evaluate_alerts
    monkeypatch.setattr(
        alert_windows, "reports_of", lambda query, table: read.append("") or reports_of(query, table)
    )
    monkeypatch.setattr(
        alert_batches, "evaluate_alerts", lambda *given: evaluate(*given, most_groups=50, all_groups=100)
    )
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(BUSY, "busy")
    engine.register(f"{BUSY} AND site < 3", "few")
    for name in ("a", "b", "c"):
        engine.alert(name, query="busy")
    engine.alert("of few", query="few")
    feed.push(bids(*((site, 1.0, "12:00:00") for site in range(90)), (1, 1.0, "12:01:00")))
    engine.step()
    tracked = {name: (each.firing, each.untracked) for name, each in engine.alerting.summaries().items()}
    assert len(read) == 2, "once for each query"
    assert tracked == {**dict.fromkeys("abc", (32, 58)), "of few": (3, 0)}
    engine.alerting.silence("site=~1.*", "1 hour")
    compiled: list[str] = []
    real = silences._matches
    monkeypatch.setattr(silences, "_matches", lambda p, texts: compiled.append(p) or real(p, texts))
    feed.push(bids((1, 1.0, "12:02:00")))
    engine.step()
    assert len(compiled) == 1, "once for all alerts"
