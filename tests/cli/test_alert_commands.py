"""`transom alerts`, `silence` and `unsilence` against a server, and alerts of pipeline files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import SettableClock, bids
from tests.server.server_helpers import Backend, backend
from transom.cli.build_engine import declare_pipeline
from transom.cli.main import app
from transom.cli.pipeline import read_pipeline
from transom.errors import SettingError

BUSY = (
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING count(*) > 1"
)
FIRING = bids(*[(7, 1.0, f"12:00:{second}") for second in (10, 20)], (8, 1.0, "12:01:00"))


@pytest.fixture
def service(make_engine: EngineFactory, tmp_path: Path) -> Iterator[Backend]:
    with backend(make_engine, tmp_path, clock=SettableClock()) as service:
        service.engine.register(f"{BUSY} ALERT SUMMARY '{{site}} has {{n}}'", "busy")
        yield service


def call(service: Backend, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--server", service.served.url])


def test_alerts_are_listed_silenced_and_followed_by_their_events(service: Backend) -> None:
    none = call(service, "alerts")
    assert (none.stdout, none.stderr) == ("", "no alert is firing or pending\n")
    service.push(FIRING)
    shown = call(service, "alerts").stdout
    assert all(part in shown for part in ("busy", "firing", "site=7", "n=2", "7 has 2"))
    silenced = call(service, "silence", "alert=busy", "site=7", "--for", "2 hours", "--comment", "known")
    id = silenced.stdout.strip()
    assert "known" in call(service, "alerts", "--silences").stdout
    service.engine.step()
    assert "firing (silenced)" in call(service, "alerts").stdout
    assert call(service, "unsilence", id).exit_code == 0
    assert call(service, "alerts", "--silences").stderr == "there are no silences\n"
    service.push(bids((8, 1.0, "12:05:00")))
    (fired, resolved) = call(service, "alerts", "--events", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in (fired, resolved)] == ["firing", "resolved"]
    assert "resolved" in call(service, "alerts", "--events", "--alert", "busy").stdout
    assert "busy" in call(service, "alerts", "--rules").stdout
    assert call(service, "alerts", "--sinks").stderr == "there are no sinks of alerts\n"
    assert call(service, "unsilence", id).exit_code != 0


# --- pipeline files -------------------------------------------------------------------------------


def pipeline(tmp_path: Path, **more: Any) -> Any:
    (tmp_path / "in.json").write_text(json.dumps({"site": 7, "ts": "2013-01-01T12:00:10Z"}))
    return {
        "streams": {"bids": {"path": "in.json", "time": "ts", "schema": "site int, ts timestamp"}},
        "queries": {"busy": BUSY.replace("> 1", "> 0")},
        **more,
    }


def test_a_pipeline_declares_alerts_and_sinks(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", "a secret")
    given = pipeline(
        tmp_path,
        alerts={
            "crowd": {
                "query": "busy",
                "resolve_after": 2,
                "repeat_every": "1 hour",
                "labels": {"severity": "page"},
                "annotations": {"summary": "{site}: {n}"},
                "sinks": ["log"],
            }
        },
        alert_sinks={
            "log": {"file": "out"},
            "pager": {"webhook": "http://127.0.0.1:9/x", "secret": "${env:HOOK_SECRET}", "timeout": "1 s"},
        },
    )
    engine = make_engine(str(tmp_path / "checkpoint"))
    declare_pipeline(engine, read_pipeline(given, tmp_path))
    engine.drain()
    (firing,) = engine.alerts()
    assert (firing.alert, firing.annotations) == ("crowd", {"summary": "7: 1"})
    (file,) = (tmp_path / "out").iterdir()
    assert json.loads(file.read_text())["alert"] == "crowd"
    assert {sink.name for sink in engine.alerting.sinks()} == {"log", "pager"}
    engine.stop()
    again = make_engine(str(tmp_path / "checkpoint"))
    declare_pipeline(again, read_pipeline(pipeline(tmp_path), tmp_path))
    again.step()
    assert again.alerts() == [] and again.alerting.summaries() == {}
    again.stop()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no query": ({"alerts": {"a": {}}}, r"alerts.a: query is missing"),
    "an unknown setting": ({"alerts": {"a": {"query": "busy", "for": 3}}}, r"alerts.a.for: there is no such"),
    "no text": ({"alerts": {"a": {"query": "busy", "labels": {"x": 3}}}}, r"alerts.a.labels: expected text"),
    "both kinds of sink": (
        {"alert_sinks": {"s": {"file": "x", "webhook": "http://x"}}},
        r"alert_sinks.s: give file",
    ),
    "neither kind": ({"alert_sinks": {"s": {"timeout": "1 s"}}}, r"alert_sinks.s: give file"),
    "a file with a secret": (
        {"alert_sinks": {"s": {"file": "x", "secret": "y"}}},
        r"secret is no setting of a file",
    ),
    "a topic with a secret": (
        {"alert_sinks": {"s": {"topic": "x", "secret": "y"}}},
        r"secret is no setting of a topic",
    ),
    "an unknown sink": ({"alerts": {"a": {"query": "busy", "sinks": ["s"]}}}, r"alert a: there is no sink"),
    "no URL": ({"alert_sinks": {"s": {"webhook": "x"}}}, r"alert_sinks.s: a webhook needs a URL"),
}


@pytest.mark.parametrize("more, reason", WRONG.values(), ids=list(WRONG))
def test_wrong_settings(
    make_engine: EngineFactory, tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    engine: transom.Engine = make_engine(str(tmp_path / "checkpoint"))
    with pytest.raises(SettingError, match=reason):
        declare_pipeline(engine, read_pipeline(pipeline(tmp_path, **more), tmp_path))
