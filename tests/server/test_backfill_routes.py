"""Queries that ask for the past over HTTP, with the client, in the shell and in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, bids
from tests.server.server_helpers import Backend, backend, error
from transom.cli.build_engine import declare_pipeline
from transom.cli.main import app
from transom.cli.pipeline import read_pipeline
from transom.plan.limits import Limits

COUNTED = "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]"


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Path) -> Iterator[Backend]:
    with backend(make_engine, tmp_path, retain="1 day", limits=Limits(backfill_share=0.0)) as made:
        made.push(bids((1, 1.0, "12:00:10"), (2, 1.0, "12:01:20")))
        yield made


def finals(back: Backend, name: str) -> list[int]:
    return [row["n"] for row in back.client.get(f"/api/queries/{name}/results").json()["rows"]]


def test_a_query_asks_for_the_past_and_reports_its_progress(back: Backend) -> None:
    body = {"name": "past", "sql": COUNTED, "since": "1 day ago"}
    assert back.client.post("/api/queries", json=body).status_code == 201
    back.feed.push(bids((1, 1.0, "12:01:30")))
    back.engine.step(1)
    back.engine._loop.backfill(0.0)
    assert 0 <= back.client.get("/api/queries/past").json()["backfill"] <= 1
    back.engine.step()
    assert back.client.get("/api/queries/past").json()["backfill"] is None
    assert finals(back, "past") == [1]


def test_a_query_that_cannot_ask_for_the_past_is_refused(back: Backend) -> None:
    body = {"sql": "SELECT max(price) AS m FROM bids [ROWS 5 SLIDE 1]", "since": "1 day ago"}
    answer = back.client.post("/api/queries", json=body)
    assert error(answer) == (400, "setting")
    assert "windows are of rows" in answer.text


def test_the_client_and_the_shell_ask_for_the_past(back: Backend) -> None:
    with transom.connect(back.served.url) as server:
        server.register(COUNTED, "by_client", since="2013-01-01 12:00")
        server.register_all({"by_all": COUNTED}, since="2013-01-01 12:01")
    words = ["register", "by_shell", COUNTED, "--since", "1 day ago", "--server", back.served.url]
    assert CliRunner().invoke(app, words).exit_code == 0
    back.engine.step()
    back.push(bids((1, 1.0, "12:02:30")))
    assert [finals(back, name) for name in ("by_client", "by_all", "by_shell")] == [[1, 1], [1], [1, 1]]


def test_a_query_of_a_pipeline_file_asks_for_the_past_when_it_is_new(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    stream = {"push": True, "schema": BIDS, "time": "ts", "retain": "1 day"}
    old = {"sql": COUNTED}
    files = [{"old": old}, {"old": {**old, "since": "1 day ago"}, "new": {**old, "since": "1 day ago"}}]
    for queries in files:
        engine = make_engine(tmp_path / "checkpoint")
        declare_pipeline(engine, read_pipeline({"streams": {"bids": stream}, "queries": queries}, tmp_path))
        engine.push("bids", bids((1, 1.0, "12:00:10"), (2, 1.0, "12:01:20")))
        engine.step()
        engine.stop()
    results = {name: engine.query(name).results()["n"].to_pylist() for name in ("old", "new")}
    assert results == {"old": [1], "new": [1]}
    assert engine.query("old").since == 1


def test_past_windows_are_looked_up_over_http_with_the_client_and_in_the_shell(back: Backend) -> None:
    back.client.post("/api/queries", json={"name": "minutes", "sql": COUNTED})
    back.push(bids((1, 1.0, "12:01:50"), (1, 1.0, "12:03:10")))
    asked = {"at": "2013-01-01 12:02"}
    answer = back.client.post("/api/queries/minutes/lookup", json=asked)
    assert [row["n"] for row in answer.json()["rows"]] == [2]
    text = "SELECT count(*) AS n FROM bids [RANGE 30 seconds]"
    answer = back.client.post("/api/lookup", json={"sql": f"{text} AS OF '2013-01-01 12:01:30'"})
    assert [row["n"] for row in answer.json()["rows"]] == [1]
    with transom.connect(back.served.url) as server:
        assert server.lookup(text, at="80 seconds ago")["n"].to_pylist() == [1]
        assert server.query("minutes").lookup(at="2013-01-01 12:01")["n"].to_pylist() == [1]
    words = ["lookup", text, "--as-of", "2013-01-01 12:02", "--format", "csv", "--server", back.served.url]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and shown.stdout.splitlines()[-1].endswith(",1,true")
    for far in ("999999999 days ago", "-999999999 days ago"):
        for path, asked in (("/api/lookup", {"sql": text}), ("/api/queries/minutes/lookup", {})):
            answer = back.client.post(path, json={**asked, "at": far})
            assert answer.status_code == 400, far
            assert "is not in the years 1 to 9999" in answer.json()["error"]["message"]
    answer = back.client.post("/api/queries/minutes/lookup", json={"at": "2013-01-01 12:04"})
    assert error(answer) == (400, "setting")
