"""What the API offers people who write queries, and its routes about streams, batches and the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE
from tests.server.server_helpers import Backend, backend, error, fill, served_with
from transom.server.roles import AccessToken, Role


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with backend(make_engine, tmp_path_factory.mktemp("editor"), slack="0 seconds") as made:
        fill(made)
        made.engine.table("sites", [{"site": 1, "city": "Oslo"}])
        yield made


def completed(back: Backend, marked: str) -> list[str]:
    """The labels of the candidates at the cursor, which is |."""
    body = {"sql": marked.replace("|", ""), "cursor": marked.index("|")}
    answer = back.client.post("/api/complete", json=body)
    assert answer.status_code == 200, answer.text
    return [candidate["label"] for candidate in answer.json()["candidates"]]


def status_of(back: Backend, name: str) -> dict[str, Any]:
    status: dict[str, Any] = back.client.get("/api/queries/" + quote(name, safe="")).json()
    return status


def test_completion_knows_streams_tables_queries_columns_and_functions(back: Backend) -> None:
    assert completed(back, "SELECT pirce| FROM bids") == ["price"]
    assert completed(back, "SELECT 1 FROM b|")[0] == "bids"
    assert completed(back, "SELECT 1 FROM bids [RANGE 1 minute SLIDE 1 minute] JOIN |")[0] == "sites"
    assert completed(back, "SELECT s.| FROM bids b JOIN sites s") == ["site", "city"]
    names = completed(back, "SELECT 1 FROM |")
    assert set(back.engine.queries()) & set(names), "the results of a query can be read"
    assert "avg" in completed(back, "SELECT av|")
    assert completed(back, "SELECT count(*) FROM bids [RANGE 1 minute SL|") == ["SLIDE"]


def test_the_cursor_is_at_the_end_unless_it_is_given(back: Backend) -> None:
    answer = back.client.post("/api/complete", json={"sql": "SELECT pri"}).json()
    assert (answer["start"], answer["end"]) == (7, 10)
    assert answer["candidates"][0]["insert"] == "price"
    assert back.client.post("/api/complete", json={"sql": "SEL", "cursor": 99}).json()["end"] == 3
    assert error(back.client.post("/api/complete", json={"sql": "SEL", "cursor": -1})) == (422, "request")


def test_offsets_count_characters(back: Backend) -> None:
    assert completed(back, "SELECT '😀é', pri| FROM bids")[0] == "price"


def test_format(back: Backend) -> None:
    sql = "select site,sum(price) s from bids[range 1 minute slide 1 minute]group by site"
    formatted = back.client.post("/api/format", json={"sql": sql}).json()["sql"]
    assert formatted.splitlines() == [
        "SELECT site, sum(price) s",
        "FROM bids [RANGE 1 minute SLIDE 1 minute]",
        "GROUP BY site",
    ]
    refused = back.client.post("/api/format", json={"sql": "SELECT 'a"}).json()["error"]
    assert (refused["kind"], refused["message"], refused["start"]) == ("sql", "the quote is not closed", 7)


def test_a_text_beyond_the_limit_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, served_with(sql=20)) as back:
        for route in ("complete", "format"):
            answer = back.client.post(f"/api/{route}", json={"sql": "SELECT " + "x" * 20})
            assert answer.status_code == 400 and "limit is 20" in answer.text


def test_a_stream_says_where_it_comes_from_and_what_queries_missed(back: Backend) -> None:
    detail = back.client.get("/api/streams/bids").json()
    assert (detail["source"], detail["rows_waiting"], detail["files_read"]) == ("feed", 0, None)
    late = {each["query"]: each["late"] for each in detail["late_by_query"]}
    for name, missed in late.items():
        assert missed == status_of(back, name)["late"]
    assert list(late.values()) == sorted(late.values(), reverse=True)


def test_the_columns_of_a_stream_have_statistics(back: Backend) -> None:
    found = back.client.get("/api/streams/bids/columns").json()
    assert found["sampled"] == 8
    columns = {each["name"]: each for each in found["columns"]}
    assert columns["ts"]["is_time"] and not columns["site"]["is_time"]
    assert (columns["site"]["distinct"], columns["site"]["least"], columns["site"]["nulls"]) == (4, "1", 0)
    assert columns["price"]["nulls"] == 1
    assert error(back.client.get("/api/streams/nothing/columns")) == (404, "not_found")


def test_a_sample_has_the_newest_rows(back: Backend) -> None:
    rows = back.client.get("/api/streams/bids/sample", params={"limit": 2}).json()["rows"]
    assert [(row["site"], row["price"]) for row in rows] == [(1, 9.0), (9, 9.0)]
    assert error(back.client.get("/api/streams/nothing/sample")) == (404, "not_found")


def test_tables(back: Backend) -> None:
    (table,) = back.client.get("/api/tables").json()["tables"]
    assert (table["name"], set(table["columns"])) == ("sites", {"site", "city"})


def test_batches_say_what_took_the_time(back: Backend) -> None:
    batches = back.client.get("/api/batches").json()["batches"]
    assert [each["batch"] for each in batches] == sorted(each["batch"] for each in batches)
    assert sum(each["rows"] for each in batches) == 8
    assert {"planning", "ingest", "emit", "commit"} <= set(batches[-1]["spent"])
    assert sum(batches[-1]["spent"].values()) <= batches[-1]["seconds"] * 1.05
    results = sum(status_of(back, name)["results"] for name in back.engine.queries())
    assert sum(each["results"] for each in batches) >= results
    assert len(back.client.get("/api/batches", params={"limit": 1}).json()["batches"]) == 1


def test_the_checkpoint(back: Backend) -> None:
    found = back.client.get("/api/checkpoint").json()
    assert Path(found["path"]).is_dir()
    assert found["batch"] == back.client.get("/api/status").json()["batch"]
    assert found["bytes"] == sum(part["bytes"] for part in found["parts"]) > 0
    assert "state" in {part["name"] for part in found["parts"]}


def test_the_root_of_the_api_links_to_its_description(back: Backend) -> None:
    links = back.client.get("/api").json()
    assert back.client.get(links["reference"]).status_code == 200
    assert back.client.get(links["openapi"]).json()["info"]["version"] == links["version"]
    browser = back.client.get("/api/", headers={"Accept": "text/html"}, follow_redirects=True)
    assert browser.url.path == "/docs" and "GET /api/streams" in browser.text


def test_a_client_that_may_only_read_can_complete_and_format(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    tokens = (AccessToken("reader", "secret-of-the-reader", Role.READ),)
    with backend(make_engine, tmp_path, served_with(tokens=tokens)) as back:
        headers = {"Authorization": "Bearer secret-of-the-reader"}

        def post(route: str, **options: Any) -> int:
            return back.client.post(f"/api/{route}", json={"sql": PER_SITE}, **options).status_code

        assert post("complete", headers=headers) == post("format", headers=headers) == 200
        assert post("complete") == post("format") == 401
