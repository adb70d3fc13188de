"""Queries that are edited, renamed, paused and described over HTTP, with the client and in the shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids
from tests.server.server_helpers import Backend, backend, error
from transom.cli.main import app
from transom.client.connection import Server
from transom.errors import SettingError, StateError

COUNTED = "SELECT site, count(*) AS n FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site"
OFTEN = f"{COUNTED} HAVING count(*) > :least"


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Any) -> Iterator[Backend]:
    with backend(make_engine, tmp_path) as made:
        made.client.post("/api/queries", json={"name": "rule", "sql": COUNTED}).raise_for_status()
        made.push(bids((1, 1.0, "12:00:10"), (2, 1.0, "12:00:20")))
        yield made


@pytest.fixture
def server(back: Backend) -> Iterator[Server]:
    with transom.connect(back.served.url) as connected:
        yield connected


def shell(back: Backend, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--server", back.served.url])


def test_a_query_is_edited(back: Backend) -> None:
    answer = back.client.put("/api/queries/rule", json={"sql": OFTEN, "parameters": {"least": 1}})
    assert answer.status_code == 200
    edited = answer.json()
    assert {name: edited[name] for name in ("kept", "changed", "results_continue", "message")} == {
        "kept": True,
        "changed": [],
        "results_continue": True,
        "message": "open windows are kept",
    }
    assert edited["query"]["sql"] == OFTEN.replace(":least", "1")
    back.push(bids((1, 1.0, "12:00:30"), (1, 1.0, "12:09:00")))
    status = back.client.get("/api/queries/rule").json()
    assert (status["edited"], status["since"], status["pending"]) == (2, 1, False)
    rows = back.client.get("/api/queries/rule/results").json()["rows"]
    assert [(row["site"], row["n"]) for row in rows] == [(1, 2), (1, 2)]


def test_a_text_that_is_wrong_is_refused_with_its_place(back: Backend) -> None:
    answer = back.client.put("/api/queries/rule", json={"sql": COUNTED.replace("site,", "sit,")})
    assert answer.status_code == 400
    assert back.client.get("/api/queries/rule").json()["sql"] == COUNTED
    assert back.client.put("/api/queries/nobody", json={"sql": COUNTED}).status_code == 404


def test_a_query_is_renamed_described_and_paused_at_once(back: Backend) -> None:
    change = {"name": "often", "description": "bids of a site", "tags": ["bids"], "paused": True}
    answer = back.client.patch("/api/queries/rule", json=change)
    assert answer.status_code == 200
    status = answer.json()
    assert {name: status[name] for name in change} == change
    back.push(bids((1, 1.0, "12:09:00")))
    status = back.client.get("/api/queries/often").json()
    assert {name: status[name] for name in change} == change
    assert status["suspended"] is None
    assert back.client.get("/api/queries/rule").status_code == 404
    assert back.client.get("/api/queries/often/results").json()["rows"] == []
    assert back.client.patch("/api/queries/often", json={"paused": False, "tags": []}).json()["tags"] == []
    back.engine.step()
    assert not back.client.get("/api/queries/often").json()["paused"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "a/b", "tags": ["x"]}, 400),
        ({"name": "bids", "tags": ["x"]}, 409),
        ({"tags": ["a,b"]}, 400),
        ({"tags": [""]}, 422),
        ({"colour": "red"}, 422),
    ],
)
def test_a_change_that_is_wrong_changes_nothing(back: Backend, change: dict[str, Any], status: int) -> None:
    answer = back.client.patch("/api/queries/rule", json={"description": "new", **change})
    assert answer.status_code == status, error(answer)
    kept = back.client.get("/api/queries/rule").json()
    assert (kept["description"], kept["tags"]) == ("", [])


def test_queries_are_found_by_tags_and_descriptions(back: Backend) -> None:
    back.client.post("/api/queries", json={"name": "other", "sql": COUNTED})
    back.client.patch("/api/queries/rule", json={"description": "Fraudulent sites", "tags": ["cards"]})

    def found(**wanted: str) -> list[str]:
        return [one["name"] for one in back.client.get("/api/queries", params=wanted).json()["queries"]]

    assert found(search="fraud") == found(search="card") == found(tag="cards") == ["rule"]
    assert found(tag="card") == []
    assert found() == ["rule", "other"]


def test_a_reader_with_a_cursor_reads_on_after_an_edit_and_a_rename(back: Backend, server: Server) -> None:
    query = server.query("rule")
    back.push(bids((1, 1.0, "12:01:30")))
    first = query.results()
    query.edit(f"{COUNTED} HAVING count(*) > 0")
    assert query.results(query.cursor).num_rows == 0
    back.push(bids((1, 1.0, "12:02:30")))
    query.rename("renamed")
    back.push(bids((1, 1.0, "12:09:00")))
    rest = query.results(query.cursor)
    assert (
        first.num_rows + rest.num_rows
        == query.results().num_rows
        == back.engine.query("renamed").results().num_rows
    )


def test_the_client_changes_queries(back: Backend, server: Server) -> None:
    query = server.query("rule")
    edited = query.edit(COUNTED.replace("GROUP", "WHERE price > :low GROUP"), parameters={"low": 5})
    assert (edited.kept, edited.changed) == (False, ("WHERE",))
    query.describe("dear bids", ["bids"], {"n": "bids"})
    with pytest.raises(SettingError, match="no value named m"):
        query.describe("changed", units={"m": "bids"})
    query.pause()
    query.rename("dear")
    assert (query.name, query.paused, query.description, query.tags) == ("dear", True, "dear bids", ("bids",))
    assert query.units == {"n": "bids"}
    back.engine.step()
    assert query.status().paused
    query.resume()
    back.engine.step()
    assert not query.status().paused
    with pytest.raises(StateError):
        query.resume()


def test_a_dry_run_of_the_client_and_of_the_shell_changes_nothing(back: Backend, server: Server) -> None:
    text = COUNTED.replace("GROUP", "WHERE price > 5 GROUP")
    edited = server.query("rule").edit(text, dry_run=True)
    assert (edited.kept, edited.changed) == (False, ("WHERE",))
    assert "because WHERE changed" in shell(back, "edit", "rule", text, "--dry-run").stderr
    back.engine.step()
    assert back.engine.query("rule").text == COUNTED


def test_the_shell_changes_queries(back: Backend, tmp_path: Path) -> None:
    done = shell(back, "edit", "rule", OFTEN, "--parameter", "least=1")
    assert (done.exit_code, done.stderr) == (0, "rule: open windows are kept\n")
    (tmp_path / "new.sql").write_text(f"{COUNTED};")
    assert shell(back, "edit", "rule", "--sql-file", str(tmp_path / "new.sql")).exit_code == 0
    assert shell(back, "edit", "rule").exit_code != 0
    assert shell(back, "describe", "rule", "bids of a site", "--tag", "bids", "--tag", "sites").exit_code == 0
    assert shell(back, "describe", "rule").stdout == "bids of a site\ntags: bids, sites\n"
    assert shell(back, "describe", "rule", "--no-tags").exit_code == 0
    assert shell(back, "describe", "rule").stdout == "bids of a site\ntags: none\n"
    assert shell(back, "describe", "rule", "--unit", "n=bids").exit_code == 0
    assert shell(back, "describe", "rule").stdout == "bids of a site\ntags: none\nunits: n=bids\n"
    assert "such as total=EUR" in shell(back, "describe", "rule", "--unit", "bids").stderr
    assert shell(back, "describe", "rule", "--no-units").exit_code == 0
    assert shell(back, "describe", "rule").stdout == "bids of a site\ntags: none\n"
    assert shell(back, "pause", "rule").exit_code == 0
    assert "paused" in shell(back, "ps").stdout
    assert shell(back, "rename", "rule", "often").exit_code == 0
    assert shell(back, "resume", "often").exit_code == 0
    back.engine.step()
    assert back.engine.query("often").text == COUNTED
    assert not back.engine.query("often").paused
