"""Alerts over HTTP: what fires, definitions, events, silences, metrics, and which role may do what."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import SettableClock, bids
from tests.server.server_helpers import Backend, backend, served_with
from transom.client.connection import connect
from transom.errors import SettingError, StateError
from transom.server.roles import AccessToken, Role

BUSY = (
    "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING count(*) > 1"
)
TERMS = {"query": "busy", "annotations": {"summary": "{site} has {n}"}, "labels": {"severity": "page"}}
FIRING = bids(*[(7, 1.0, f"12:00:{second}") for second in (10, 20)], (8, 1.0, "12:01:00"))
TOKENS = tuple(AccessToken(role.value, f"a-token-with-role-{role.value}", role) for role in Role)


@pytest.fixture
def service(make_engine: EngineFactory, tmp_path: Path) -> Iterator[Backend]:
    with backend(make_engine, tmp_path, clock=SettableClock()) as service:
        service.engine.register(BUSY, "busy")
        yield service


def test_an_alert_is_created_fires_and_is_dropped(service: Backend) -> None:
    client = service.client
    created = client.put("/api/alerts/rules/many", json=TERMS).json()
    assert (created["name"], created["for_windows"], created["in_query"], created["sinks"]) == (
        "many",
        1,
        False,
        None,
    )
    service.push(FIRING)
    answer = client.get("/api/alerts").json()
    (firing,) = answer["alerts"]
    assert answer["total"] == 1
    assert (firing["state"], firing["group"], firing["values"]) == ("firing", {"site": 7}, {"n": 2})
    assert (firing["annotations"], firing["labels"]) == ({"summary": "7 has 2"}, {"severity": "page"})
    page = client.get("/api/alerts/events").json()
    assert [event["state"] for event in page["events"]] == ["firing"]
    assert client.get("/api/alerts/events", params={"after": page["cursor"]}).json()["events"] == []
    assert client.delete("/api/alerts/rules/many").status_code == 204
    service.engine.step()
    (resolved,) = client.get("/api/alerts/events", params={"after": page["cursor"]}).json()["events"]
    assert (resolved["state"], resolved["id"]) == ("resolved", page["events"][0]["id"])
    newest = client.get("/api/alerts/events", params={"newest": True, "limit": 1}).json()
    assert newest["events"] == [resolved]
    assert client.get("/api/alerts/rules").json() == {"rules": []}


WRONG_REQUESTS: dict[str, tuple[str, str, Any, int, str]] = {
    "an unknown query": (
        "PUT",
        "rules/a",
        {"query": "bussy"},
        409,
        "no query named bussy; did you mean busy",
    ),
    "an unknown column": ("PUT", "rules/a", {**TERMS, "annotations": {"x": "{m}"}}, 400, "no column 'm'"),
    "a URL in place of a sink": (
        "PUT",
        "rules/a",
        {**TERMS, "sinks": ["http://127.0.0.1"]},
        400,
        "no sink of alerts",
    ),
    "an unknown field": ("PUT", "rules/a", {**TERMS, "webhook": "http://127.0.0.1"}, 422, "webhook"),
    "an unknown alert": ("DELETE", "rules/a", None, 404, "no alert named a"),
    "no cursor": ("GET", "events?after=x", None, 400, "not a cursor"),
    "no cursor of a tail": ("GET", "tail?after=x", None, 400, "not a cursor"),
}


@pytest.mark.parametrize(
    "method, path, body, status, reason", WRONG_REQUESTS.values(), ids=list(WRONG_REQUESTS)
)
def test_wrong_requests(
    service: Backend, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    answer = service.client.request(method, f"/api/alerts/{path}", json=body)
    assert answer.status_code == status and reason in answer.json()["error"]["message"]


def test_silences(service: Backend) -> None:
    client = service.client
    client.put("/api/alerts/rules/many", json=TERMS)
    body = {"matchers": ["alert=many", "site=~[67]"], "duration": "2 hours", "comment": "known"}
    silence = client.post("/api/silences", json=body).json()
    assert (silence["author"], silence["matchers"]) == ("local", ["alert=many", "site=~[67]"])
    assert silence["until"] - silence["created"] == 2 * 3_600_000_000
    service.push(FIRING)
    assert [alert["silenced"] for alert in client.get("/api/alerts").json()["alerts"]] == [True]
    assert client.get("/api/silences").json() == {"silences": [silence]}
    assert client.delete(f"/api/silences/{silence['id']}").status_code == 204
    assert client.delete(f"/api/silences/{silence['id']}").status_code == 404
    assert client.get("/api/silences").json() == {"silences": []}
    wrong = client.post("/api/silences", json={"matchers": ["site=~("], "duration": "1 hour"})
    assert wrong.status_code == 400 and "regular expression" in wrong.json()["error"]["message"]


def test_a_tail_continues_where_it_ended(service: Backend) -> None:
    service.client.put("/api/alerts/rules/many", json=TERMS)
    service.engine.step()
    got: list[list[str]] = []

    def read(headers: dict[str, str], count: int) -> None:
        lines: list[str] = []
        with service.client.stream("GET", "/api/alerts/tail", headers=headers) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                if sum(each.startswith("data:") for each in lines) == count + 1:
                    break
        got.append(lines)

    reader = threading.Thread(target=read, args=({}, 1))
    reader.start()
    while service.served.service.subscribers == 0:
        time.sleep(0.01)
    service.push(FIRING)
    reader.join(20)
    events = [json.loads(line[6:]) for line in got[0] if line.startswith('data: {"')]
    assert [event["state"] for event in events] == ["firing"]
    last = [line[4:] for line in got[0] if line.startswith("id: ")][-1]
    service.push(bids((8, 1.0, "12:05:00")))
    read({"Last-Event-ID": last}, 1)
    events = [json.loads(line[6:]) for line in got[1] if line.startswith('data: {"')]
    assert [event["state"] for event in events] == ["resolved"]


def test_metrics(service: Backend, tmp_path: Path) -> None:
    service.engine.alerting.webhook("pager", "http://127.0.0.1:9/closed")
    service.client.put("/api/alerts/rules/many", json=TERMS)
    service.push(FIRING)
    text = service.client.get("/metrics").text
    for line in (
        'transom_alerts{state="firing"} 1.0',
        'transom_alerts{state="pending"} 0.0',
        'transom_alert_groups{alert="many",state="firing"} 1.0',
        "transom_alert_silences 0.0",
        'transom_alert_sink_queued{sink="pager"} 1.0',
        'transom_alert_sink_events_total{outcome="delivered",sink="pager"} 0.0',
    ):
        assert line in text
    (sink,) = service.client.get("/api/alerts/sinks").json()["sinks"]
    assert (sink["name"], sink["kind"], sink["queued"]) == ("pager", "webhook", 1)
    assert "127.0.0.1:9" not in json.dumps(sink)


def test_metrics_of_files(service: Backend, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    service.engine.alerting.file_sink("log", str(directory))
    service.client.put("/api/alerts/rules/many", json=TERMS)
    service.push(FIRING)
    text = service.client.get("/metrics").text
    for line in (
        'transom_alert_sink_events_total{outcome="delivered",sink="log"} 1.0',
        'transom_alert_sink_failures_total{sink="log"} 0.0',
    ):
        assert line in text
    assert 'transom_alert_sink_queued{sink="log"}' not in text and 'outcome="lost",sink="log"' not in text
    last = re.search(r'transom_alert_sink_last_delivered_timestamp_seconds\{sink="log"\} (\S+)', text)
    clock = service.engine._loop.clock()
    assert last is not None and float(last[1]) == clock / 1e6
    (sink,) = service.client.get("/api/alerts/sinks").json()["sinks"]
    assert (sink["kind"], sink["delivered"], sink["last_delivered"]) == ("file", 1, clock)


ROLES = {
    "read": {"PUT /api/alerts/rules/a": 403, "POST /api/silences": 403, "GET /api/alerts": 200},
    "register": {"PUT /api/alerts/rules/a": 200, "POST /api/silences": 201, "GET /api/alerts": 200},
}


@pytest.mark.parametrize("role, allowed", ROLES.items())
def test_roles(make_engine: EngineFactory, tmp_path: Path, role: str, allowed: dict[str, int]) -> None:
    with backend(make_engine, tmp_path, served_with(tokens=TOKENS)) as service:
        service.engine.register(BUSY, "busy")
        headers = {"Authorization": f"Bearer a-token-with-role-{role}"}
        bodies = {"PUT": TERMS, "POST": {"matchers": ["alert=a"], "duration": "1 hour"}, "GET": None}
        for request, status in allowed.items():
            method, path = request.split()
            with httpx.Client(base_url=service.served.url, headers=headers, trust_env=False) as client:
                answer = client.request(method, path, json=bodies[method])
            assert answer.status_code == status
            if (method, status) == ("POST", 201):
                assert answer.json()["author"] == "register"  # the name of the token


def test_the_client_has_the_methods_of_a_local_engine(service: Backend) -> None:
    with connect(service.served.url) as server:
        server.alert("many", "busy", labels={"severity": "page"})
        silence = server.alerting.silence("site=9", "1 hour")
        service.push(FIRING)
        (firing,) = server.alerts()
        assert (firing.alert, firing.group) == ("many", {"site": 7})
        events, cursor = server.alerting.events()
        assert [event.state for event in events] == ["firing"] and server.alerting.newest(5) == events
        assert server.alerting.events(cursor) == ([], cursor)
        assert list(server.alerting.rules()) == ["many"] and server.alerting.silences() == [silence]
        server.alerting.unsilence(silence.id)
        server.alerting.drop("many")
        assert server.alerting.silences() == [] and server.alerting.sinks() == []
        with pytest.raises(StateError, match="no alert named many"):
            server.alerting.drop("many")
        with pytest.raises(SettingError, match="no column"):
            server.alert("other", "busy", annotations={"summary": "{x}"})
