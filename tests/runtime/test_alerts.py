"""Alerts in an engine: what fires, in which order, and that a replay or a restart changes nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.alerts.timelines import naive_transitions
from tests.case_counts import case_seeds
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import MINUTE, SettableClock, at, bids, bids_engine
from tests.runtime.fault_helpers import Crash, Fault
from transom.alerts.evaluation import MOST_ALERT_GROUPS
from transom.alerts.events import AlertEvent
from transom.durations import parse_instant
from transom.elements import AlertTerms
from transom.errors import SettingError, SQLError, StateError
from transom.runtime import alert_batches
from transom.runtime.write_ahead_log import BatchLog

BUSY = (
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING count(*) > 1"
)


def minute(event_time: Any) -> str:
    return str(event_time)[11:16]


def written(events: list[AlertEvent]) -> list[str]:
    """Events as texts: the change, the group, and the end of the window that caused it."""
    return [f"{each.state} {each.group['site']} {minute(each.window_end)}" for each in events]


def all_events(engine: transom.Engine) -> list[AlertEvent]:
    return engine.alerting.events()[0]


def push(feed: Any, engine: transom.Engine, *rows: tuple[Any, Any, str]) -> None:
    feed.push(bids(*rows))
    engine.step()


def two(site: int, *minutes: str) -> list[tuple[int, float, str]]:
    """Two bids in each of some minutes."""
    return [(site, 1.0, f"{each}:{second}") for each in minutes for second in ("10", "20")]


@ON_BOTH
def test_an_alert_in_the_text_of_a_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    text = f"{BUSY} ALERT FOR 2 WINDOWS RESOLVE AFTER 2 WINDOWS SEVERITY 'page' SUMMARY '{{site}} has {{n}}'"
    engine.register(text, "busy")
    push(feed, engine, *two(7, "12:00", "12:01"), (8, 1.0, "12:01:30"))
    (pending,) = engine.alerts()
    assert (pending.state, pending.id, pending.group, minute(pending.since)) == (
        "pending",
        None,
        {"site": 7},
        "12:01",
    )
    push(feed, engine, (7, 1.0, "12:02:00"))
    (firing,) = engine.alerts()
    assert (firing.state, minute(firing.since), minute(firing.started)) == ("firing", "12:01", "12:02")
    assert (firing.labels, firing.annotations) == ({"severity": "page"}, {"summary": "7 has 2"})
    push(feed, engine, (8, 1.0, "12:05:00"))
    assert engine.alerts() == []
    assert written(all_events(engine)) == ["firing 7 12:02", "resolved 7 12:04"]
    fired, resolved = all_events(engine)
    assert fired.id == resolved.id and fired.event_id != resolved.event_id


def test_an_alert_joins_and_leaves_a_running_engine(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(BUSY, "busy")
    push(feed, engine, *two(7, "12:00"), (7, 1.0, "12:01:00"))
    alert = engine.alert("many", "busy", labels={"team": "bids"})
    assert list(engine.alerting.summaries()) == ["many"]
    push(feed, engine, (7, 1.0, "12:01:10"), (7, 1.0, "12:02:00"))
    assert written(alert.events()) == ["firing 7 12:02"]  # windows before it joined do not count
    alert.drop()
    engine.step()
    assert written(alert.events()) == ["firing 7 12:02", "resolved 7 12:02"]
    assert alert.events()[-1].reason == "the alert was dropped"
    assert (engine.alerts(), engine.alerting.summaries()) == ([], {})


def test_an_alert_follows_its_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    """It keeps its groups when the query is renamed or gets another bound, and goes with the query."""
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(f"{BUSY} ALERT", "busy")
    engine.alert("many", "busy")
    push(feed, engine, *two(7, "12:00"), (7, 1.0, "12:01:00"))
    query.rename("crowded")
    engine.step()
    assert sorted((each.alert, each.query) for each in engine.alerts()) == [
        ("crowded", "crowded"),
        ("many", "crowded"),
    ]
    engine.query("crowded").edit(f"{BUSY.replace('> 1', '> 0')} ALERT")
    push(feed, engine, (7, 1.0, "12:02:00"))
    assert len(engine.alerts()) == 2  # still the same: one bid is enough now
    engine.query("crowded").drop()
    engine.step()
    assert engine.alerts() == [] and engine.alerting.summaries() == {}
    assert [each.reason for each in all_events(engine)[-2:]] == ["the query was dropped"] * 2


def test_an_edit_that_changes_the_windows_begins_anew(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(f"{BUSY} ALERT", "busy")
    push(feed, engine, *two(7, "12:00"), (7, 1.0, "12:01:00"))
    query.edit(f"{BUSY.replace('RANGE 1', 'RANGE 2')} ALERT")
    push(feed, engine, (7, 1.0, "12:02:00"))
    assert [(each.state, each.reason) for each in all_events(engine)][:2] == [
        ("firing", None),
        ("resolved", "the query is another one now"),
    ]


REFUSED = {
    "no HAVING": ("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]", "needs HAVING"),
    "sessions": (
        "SELECT count(*) AS n FROM bids [SESSION 1 minute] HAVING count(*) > 1",
        "differ between groups",
    ),
    "no window": ("SELECT site FROM bids WHERE price > 1", "RANGE and SLIDE"),
    "no slide": ("SELECT count(*) AS n FROM bids [RANGE 1 minute] HAVING count(*) > 1", "RANGE and SLIDE"),
    "cumulative windows in a time zone": (
        "SELECT count(*) AS n FROM bids [RANGE UP TO 1 day SLIDE 1 hour IN TIME ZONE 'UTC'] HAVING count(*) > 1",
        "cumulative",
    ),
}


@pytest.mark.parametrize("text, reason", REFUSED.values(), ids=list(REFUSED))
def test_queries_that_can_have_no_alert(
    make_engine: EngineFactory, tmp_path: Path, text: str, reason: str
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.register(text, "q")
    with pytest.raises(SettingError, match=reason):
        engine.alert("a", "q")
    with pytest.raises(SQLError):
        engine.register(f"{text} ALERT", "r")


WRONG_TERMS: dict[str, tuple[dict[str, Any], str]] = {
    "a window too few": ({"for_windows": 0}, "for_windows is a number"),
    "no whole number": ({"resolve_after": 1.5}, "resolve_after is a number"),
    "an unknown column": ({"annotations": {"text": "{sit}"}}, r"did you mean site\?$"),
    "a brace that is not closed": ({"annotations": {"text": "{site"}}, "not closed"),
    "an unknown sink": ({"sinks": ["pager"]}, "no sink of alerts named pager"),
    "a label that is no text": ({"labels": {"level": 3}}, "labels are names with texts"),
    "a repetition in no time": ({"repeat_every": "0 s"}, "positive"),
    "a repetition without a unit": ({"repeat_every": 3600}, "did you mean '3600 seconds'"),
}


@pytest.mark.parametrize("terms, reason", WRONG_TERMS.values(), ids=list(WRONG_TERMS))
def test_wrong_terms(make_engine: EngineFactory, tmp_path: Path, terms: dict[str, Any], reason: str) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.register(BUSY, "busy")
    with pytest.raises(SettingError, match=reason):
        engine.alert("a", "busy", **terms)


def test_names_of_alerts(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} ALERT", "busy")
    with pytest.raises(StateError, match="has an alert in its text"):
        engine.alert("busy", "busy")
    with pytest.raises(StateError, match="part of the text"):
        engine.step()
        engine.alerting.drop("busy")
    with pytest.raises(StateError, match="no alert named bussy; did you mean busy"):
        engine.alerting.drop("bussy")


# --- which windows are closed ------------------------------------------------------------------------


def test_a_group_that_disappears_is_resolved_by_the_rows_of_others(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} ALERT RESOLVE AFTER 3 WINDOWS", "busy")
    push(feed, engine, *two(7, "12:00"), (8, 1.0, "12:30:00"))
    assert written(all_events(engine)) == ["firing 7 12:01", "resolved 7 12:04"]


def test_an_idle_stream_resolves_its_alerts(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, idle="5 minutes")
    engine.register(f"{BUSY} ALERT RESOLVE AFTER 3 WINDOWS", "busy")
    push(feed, engine, *two(7, "12:00"))
    clock.advance(4)
    engine.step()
    assert all_events(engine) == []
    clock.advance(2)
    engine.step()
    assert written(all_events(engine)) == ["firing 7 12:01", "resolved 7 12:01"]
    assert all_events(engine)[-1].reason == "the stream is idle"
    push(feed, engine, *two(7, "12:01"), (7, 1.0, "12:02:00"))
    assert written(all_events(engine))[2:] == ["firing 7 12:02"]


def test_a_batch_that_falls_idle_runs_again_as_it_was_begun(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, idle="5 minutes")
    engine.register(f"{BUSY} ALERT", "busy")
    push(feed, engine, *two(7, "12:00"))
    clock.advance(6)
    with monkeypatch.context() as patch:
        Fault(patch, BatchLog, "commit", lambda *_: True, after=False)
        with pytest.raises(Crash):
            engine.step()
    engine.stop()
    engine, feed = bids_engine(
        make_engine, tmp_path, clock=SettableClock("2013-01-01 12:00:30"), idle="1 day"
    )
    engine.step()
    assert written(all_events(engine)) == ["firing 7 12:01", "resolved 7 12:01"]
    assert all_events(engine)[-1].made == "2013-01-01T12:06:00Z"


def test_a_stream_that_ends_leaves_its_alerts_firing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} ALERT", "busy")
    feed.push(bids(*two(7, "12:00")))
    engine.drain()
    assert [each.state for each in engine.alerts()] == ["firing"]


def test_a_punctuation_closes_the_windows_of_one_group(make_engine: EngineFactory, tmp_path: Path) -> None:
    """The alert of that group does not wait for the others."""
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    engine.register(f"{BUSY} ALERT FOR 2 WINDOWS", "busy")
    feed.push(bids(*two(7, "12:00", "12:01"), *two(8, "12:00", "12:01")))
    feed.punctuate(until=at("12:02"), where={"site": 7})
    engine.step()
    assert written(all_events(engine)) == ["firing 7 12:02"]
    feed.punctuate(until=at("12:05"), where={"site": 7})
    engine.step()
    assert written(all_events(engine)) == ["firing 7 12:02", "resolved 7 12:03"]
    feed.punctuate(until=at("12:03"))
    engine.step()
    assert written(all_events(engine))[2:] == ["firing 8 12:02", "resolved 8 12:03"]


def test_a_window_that_closes_in_the_middle_waits(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    engine.register(f"{BUSY} ALERT FOR 2 WINDOWS", "busy")
    feed.push(bids(*two(7, "12:00", "12:01")))
    feed.punctuate(since=at("12:01"), until=at("12:02"))
    engine.step()
    assert all_events(engine) == []
    feed.punctuate(until=at("12:01"))
    engine.step()
    assert written(all_events(engine)) == ["firing 7 12:02"]


def test_an_alert_on_a_query_over_a_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site", "counts"
    )
    outer = "SELECT site, max(n) AS top FROM counts [RANGE 2 minutes SLIDE 2 minutes] GROUP BY site HAVING max(n) > 1"
    engine.register(f"{outer} ALERT", "outer")
    push(feed, engine, *two(7, "12:00"), (8, 1.0, "12:05:00"))
    assert written(all_events(engine)) == ["firing 7 12:02", "resolved 7 12:04"]


def test_too_many_groups_are_counted(make_engine: EngineFactory, tmp_path: Path, monkeypatch: Any) -> None:
    real = alert_batches.evaluate_alerts

    def few(*args: Any) -> Any:
        return real(*args, most_groups=2)

    monkeypatch.setattr(alert_batches, "evaluate_alerts", few)
    assert MOST_ALERT_GROUPS > 2
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} ALERT", "busy")
    rows = [row for site in range(5) for row in two(site, "12:00")]
    push(feed, engine, *rows, (9, 1.0, "12:01:00"))
    assert len(engine.alerts()) == 2
    assert engine.alerting.summaries()["busy"].untracked == 3


# --- compared with all finals, over restarts and failures -------------------------------------


@pytest.mark.parametrize("seed", case_seeds(0, 24))
def test_all_events_follow_from_all_finals(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    """Random rows, windows and batches, a restart or a failure between them; nothing but finals counts."""
    rng = random.Random(seed)
    size, slide = rng.choice([(1, 1), (3, 1), (2, 1), (5, 2), (1, 2)])
    terms = AlertTerms(rng.randint(1, 3), rng.randint(1, 3), rng.choice([None, 3 * MINUTE]))
    repeat = "" if terms.repeat is None else "REPEAT EVERY '3 minutes'"
    text = (
        f"SELECT site, count(*) AS n FROM bids [RANGE {size} minutes SLIDE {slide} minutes] GROUP BY site "
        f"HAVING count(*) > {rng.randint(1, 2)} ALERT FOR {terms.windows} WINDOWS "
        f"RESOLVE AFTER {terms.resolve_after} WINDOWS {repeat}"
    )
    engine, feed = bids_engine(make_engine, tmp_path, slack="2 minutes")
    query = engine.register(text, "busy")
    for batch in range(12):
        rows = [
            (rng.randrange(3), 1.0, f"12:{batch * 3 + rng.randrange(5):02d}:{rng.randrange(60):02d}")
            for _ in range(rng.randint(0, 8))
        ]
        if rng.random() < 0.25:
            engine.stop()
            engine, feed = bids_engine(make_engine, tmp_path, slack="2 minutes")
            query = engine.register(text, "busy")
        feed.push(bids(*rows))
        if rng.random() < 0.25:  # the state can't be written: the batch runs again
            with pytest.MonkeyPatch.context() as patch:
                Fault(patch, BatchLog, "commit", lambda *_: True, after=False)
                with pytest.raises(Crash):
                    engine.step()
            engine.stop()
            engine, feed = bids_engine(make_engine, tmp_path, slack="2 minutes")
            query = engine.register(text, "busy")
        engine.step()
    feed.punctuate(until=at("13:30"))
    engine.step()
    origin = parse_instant(at("11:00"))
    finals = query.results().to_pylist()
    windows = 150 // slide
    for site in range(3):
        ends = {int(row["window_end"].timestamp() * 1e6) for row in finals if row["site"] == site}
        holding = {(end - origin) // (slide * MINUTE) - 1 for end in ends}
        scaled = AlertTerms(
            terms.windows, terms.resolve_after, None if terms.repeat is None else naive_repeat(slide)
        )
        expected = naive_transitions(scaled, holding, windows)
        made = [
            (each.state, (parse_instant(each.window_end) - origin) // (slide * MINUTE) - 1)
            for each in all_events(engine)
            if each.group["site"] == site
        ]
        assert made == expected, text


def naive_repeat(slide: int) -> int:
    """Three minutes on the clock of the naive answer, whose windows are 10 apart."""
    return -(-3 // slide) * 10


def test_events_and_files_are_there_exactly_once(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine_with_sink() -> tuple[transom.Engine, Any]:
        engine, feed = bids_engine(make_engine, tmp_path)
        engine.alerting.file_sink("log", str(tmp_path / "out"))
        return engine, feed

    engine, feed = engine_with_sink()
    engine.register(f"{BUSY} ALERT", "busy")
    feed.push(bids(*two(7, "12:00"), (7, 1.0, "12:02:00")))
    with monkeypatch.context() as patch:
        Fault(patch, BatchLog, "commit", lambda *_: True, after=False)
        with pytest.raises(Crash):
            engine.step()
    assert all_events(engine) == []  # not committed yet
    engine.stop()
    engine, feed = engine_with_sink()
    engine.step()
    lines = [json.loads(line) for file in sorted((tmp_path / "out").iterdir()) for line in file.open()]
    assert [(line["state"], line["group"]) for line in lines] == [
        ("firing", {"site": 7}),
        ("resolved", {"site": 7}),
    ]
    assert [line["event_id"] for line in lines] == [each.event_id for each in all_events(engine)]
    assert [(sink.name, sink.delivered) for sink in engine.alerting.sinks()] == [("log", 2)]


def test_a_file_sink_that_can_not_be_written(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(
        SettingError, match=r"the sink of alerts log can't write to .*file/out: Not a directory"
    ):
        engine.alerting.file_sink("log", str(tmp_path / "file" / "out"))
    for path in ("", " ", "out\0"):
        with pytest.raises(SettingError, match="the sink of alerts log needs the path of a directory"):
            engine.alerting.file_sink("log", path)
    engine.alerting.file_sink("log", str(tmp_path / "out"))
    (tmp_path / "out").rmdir()
    (tmp_path / "out").touch()
    query = engine.register(BUSY, "busy")
    with pytest.raises(SettingError, match="a query by its name, not on 3"):
        engine.alert("a", 3)  # type: ignore[arg-type]
    engine.alert("a", query)
    feed.push(bids(*two(7, "12:00"), (7, 1.0, "12:02:00")))
    with pytest.raises(StateError, match=r"the sink of alerts log can't write to .*out: .*nothing is lost"):
        engine.step()
    (failing,) = engine.alerting.sinks()
    assert (failing.delivered, failing.failures, failing.last_delivered) == (0, 1, None)
    assert failing.last_failure is not None and "can't write to" in failing.last_failure
    (tmp_path / "out").unlink()
    engine.step()
    assert len(list((tmp_path / "out").iterdir())) == 1
    (sink,) = engine.alerting.sinks()
    assert (sink.delivered, sink.failures, sink.last_failure) == (2, 1, None)
    assert sink.last_delivered is not None


def test_a_directory_of_another_run_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "0000000001.jsonl").write_text("{}\n")
    engine, _ = bids_engine(make_engine, tmp_path)
    with pytest.raises(SettingError, match="another run"):
        engine.alerting.file_sink("log", str(tmp_path / "out"))


def test_history_is_read_by_cursor(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(f"{BUSY} ALERT", "busy")
    rows = [row for site in range(4) for row in two(site, "12:00")]
    push(feed, engine, *rows, (9, 1.0, "12:05:00"))
    seen, cursor = [], None
    while True:
        events, cursor = engine.alerting.events(cursor, limit=3)
        if not events:
            break
        seen += events
    assert seen == all_events(engine) and len(seen) == 8
    assert engine.alerting.newest(2) == seen[:-3:-1]
    for after in ("x", -1, 0.5):
        with pytest.raises(SettingError, match="not a cursor"):
            engine.alerting.events(after)


# --- silences ----------------------------------------------------------------------------------------


def test_a_silenced_alert_reports_silenced_events_and_fires_when_the_silence_ends(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    engine.register(f"{BUSY} ALERT", "busy")
    silence = engine.alerting.silence(
        ["alert=busy", "site=~[78]"], "10 minutes", author="ann", comment="known"
    )
    push(feed, engine, *two(7, "12:00"), *two(9, "12:00"), (7, 1.0, "12:01:00"))
    assert {each.group["site"]: each.silenced for each in all_events(engine)} == {7: True, 9: False}
    assert {each.group["site"]: each.silenced for each in engine.alerts()} == {7: True, 9: False}
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    assert engine.alerting.silences() == [silence]
    engine.alerting.unsilence(silence.id)
    engine.step()
    last = all_events(engine)[-1]
    assert (last.state, last.group, last.silenced, last.reason) == (
        "firing",
        {"site": 7},
        False,
        "the silence ended",
    )
    assert engine.alerting.silences() == []


def test_a_silence_ends_by_itself(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock)
    engine.register(f"{BUSY} ALERT RESOLVE AFTER 9 WINDOWS", "busy")
    engine.alerting.silence("site=7", "10 minutes")
    push(feed, engine, *two(7, "12:00"), (7, 1.0, "12:01:00"))
    clock.advance(11)
    push(feed, engine, (7, 1.0, "12:01:00"))
    assert [(each.state, each.silenced) for each in all_events(engine)] == [
        ("firing", True),
        ("firing", False),
    ]
    assert engine.alerting.silences() == []


WRONG_SILENCES: dict[str, tuple[dict[str, Any], str]] = {
    "no matcher": ({"matchers": [], "duration": "1 hour"}, "matchers"),
    "no end": ({"matchers": "alert=a"}, "needs a duration"),
    "two ends": (
        {"matchers": "alert=a", "duration": "1 hour", "until": "2013-01-01 13:00"},
        "needs a duration",
    ),
    "an end in the past": ({"matchers": "alert=a", "until": "2013-01-01 11:00"}, "in the future"),
    "an end without a unit": ({"matchers": "alert=a", "duration": 2}, "did you mean '2 seconds'"),
    "two equals signs": ({"matchers": "alert==a", "duration": "1 hour"}, r"did you mean alert=a\?"),
    "an inverted order of signs": (
        {"matchers": "site!=~x", "duration": "1 hour"},
        r"did you mean site!~x\?",
    ),
    "signs that are apart": ({"matchers": "site= ~x", "duration": "1 hour"}, r"did you mean site=~x\?"),
    "a number as the matchers": ({"matchers": 5, "duration": "1 hour"}, "not a matcher: 5"),
    "a number among matchers": ({"matchers": ["alert=a", 5], "duration": "1 hour"}, "not a matcher: 5"),
    "no matcher's form": ({"matchers": "alert", "duration": "1 hour"}, "not a matcher"),
    "no regular expression": ({"matchers": "alert=~(", "duration": "1 hour"}, "no regular expression"),
}


@pytest.mark.parametrize("given, reason", WRONG_SILENCES.values(), ids=list(WRONG_SILENCES))
def test_wrong_silences(
    make_engine: EngineFactory, tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path, clock=SettableClock())
    with pytest.raises(SettingError, match=reason):
        engine.alerting.silence(**given)
