"""Every route over real HTTP: what it answers, and what it refuses."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids
from tests.server.server_helpers import (
    EARLY,
    ON_DEMAND,
    SUMMARY,
    Backend,
    arrow,
    backend,
    error,
    fill,
)
from transom.server import engine_monitor

STATUS_FIELDS = {"state", "batch", "batch_seconds", "spent", "queries", "streams", "subscribers", "rows"}


@pytest.fixture(scope="module")
def back(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """One server for tests that leave things as they are."""
    with backend(make_engine, tmp_path_factory.mktemp("routes"), slack="0 seconds") as made:
        fill(made)
        yield made


@pytest.fixture
def fresh(make_engine: EngineFactory, tmp_path: Any) -> Iterator[Backend]:
    """A server that only this test uses."""
    with backend(make_engine, tmp_path) as made:
        yield made


ROOT = Path(__file__).parents[2]


class TestTheService:
    def test_status(self, back: Backend) -> None:
        response = back.client.get("/api/status").json()
        assert response.keys() >= STATUS_FIELDS
        assert (response["queries"], response["streams"], response["rows"]) == (5, 1, 8)

    def test_it_is_alive_and_not_ready_before_it_is_started(self, back: Backend) -> None:
        assert back.client.get("/healthz").json() == {"state": "starting", "failure": None}
        assert back.client.get("/readyz").status_code == 503

    def test_streams_account_for_every_row(self, back: Backend) -> None:
        (stream,) = back.client.get("/api/streams").json()["streams"]
        assert stream["rows"] == sum(
            stream[fate] for fate in ("counted", "unwanted", "late", "rejected", "sidelined", "shed")
        )
        assert back.client.get("/api/streams/bids").json()["name"] == "bids"
        assert error(back.client.get("/api/streams/asks")) == (404, "not_found")

    @pytest.mark.parametrize("output", ["late", "rejected"])
    def test_late_and_rejected_rows(self, back: Backend, output: str) -> None:
        response = back.client.get(f"/api/streams/bids/{output}").json()
        assert len(response["rows"]) == 1
        assert {"reason", "batch"} <= response["rows"][0].keys()
        table = arrow(back.client.get(f"/api/streams/bids/{output}?format=arrow"))
        assert table.num_rows == 1
        assert error(back.client.get(f"/api/streams/asks/{output}")) == (404, "not_found")

    @pytest.mark.parametrize("form", ["text", "json", "mermaid"])
    def test_plans(self, back: Backend, form: str) -> None:
        for url in ("/api/explain", "/api/queries/per_site/explain"):
            response = back.client.get(url, params={"format": form})
            assert response.status_code == 200
            assert response.text == back.engine.explain(form) or "queries" in url
            if form == "json":
                response.json()

    def test_openapi_and_its_reference(self, back: Backend) -> None:
        paths = back.client.get("/openapi.json").json()["paths"]
        html = back.client.get("/docs").text
        assert all(path in html for path in paths)
        assert "http://" not in html and "https://" not in html  # nothing from elsewhere

    def test_metrics(self, back: Backend) -> None:
        back.client.get("/api/status")
        text = back.client.get("/metrics").text
        for line in (
            'transom_rows_total{fate="late",stream="bids"} 1.0',
            'transom_state{state="starting"} 1.0',
            "transom_queries 5.0",
            'transom_plan_decisions{decision="opens_selection",pass="admission"}',
            'transom_plan_decisions{decision="on_driver",pass="stores"} 1.0',
            'transom_batch_seconds_bucket{le="+Inf"}',
            'transom_results_total{query="per_site"}',
            'transom_early_accuracy_raw_ratio{query="early"}',
            'transom_http_requests_total{method="GET",route="/api/status",status="200"}',
            "transom_lookups_total 0.0",
            'transom_stores{stream="bids"} 2.0',
            "transom_summaries 1.0",
            'transom_probes_total{query="preferred"}',
            'transom_produced_share_ratio{query="preferred"}',
        ):
            assert line in text, line

    def test_metrics_of_lookups_count_lookups_reads_and_hits(
        self, fresh: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine_monitor, "PROGRESS_SECONDS", -1)
        fill(fresh)
        for _ in range(3):
            fresh.engine.query("on_demand").lookup()
        text = fresh.client.get("/metrics").text
        for line in (
            "transom_lookups_total 3.0",
            "transom_lookup_reads_total 3.0",
            "transom_lookup_hits_total 3.0",
        ):
            assert line in text, line
        fresh.engine.query("on_demand").drop()
        fresh.engine.step()
        text = fresh.client.get("/metrics").text
        assert "transom_lookups_total 3.0" in text and 'transom_stores{stream="bids"}' not in text

    def test_the_reference_lists_every_metric_with_its_labels(self, back: Backend) -> None:
        back.client.get("/api/status")
        text = back.client.get("/metrics").text
        page = (ROOT / "docs/reference/api.md").read_text()
        listed = dict(re.findall(r"^\| `(transom_\w+)` \| ([^|]*) \|", page, re.MULTILINE))
        assert listed.keys() == set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
        for name, labels in re.findall(r"^(transom_\w+?)(?:_bucket)?\{(.*)\} ", text, re.MULTILINE):
            found = set(re.findall(r'(\w+)="', labels)) - {"le"}
            assert found == set(re.findall(r"`(\w+)`", listed[name])), name

    def test_metrics_of_decisions_name_no_query(self, back: Backend) -> None:
        lines = back.client.get("/metrics").text.splitlines()
        decisions = [line for line in lines if line.startswith("transom_plan_decisions{")]
        assert decisions and not any("per_site" in line or "selection 1" in line for line in decisions)


class TestQueries:
    def test_queries_are_listed_searched_and_paged(self, back: Backend) -> None:
        response = back.client.get("/api/queries", params={"limit": 2, "offset": 1}).json()
        assert ([each["name"] for each in response["queries"]], response["total"]) == (
            ["early", "on_demand"],
            5,
        )
        found = back.client.get("/api/queries", params={"search": "EMIT early"}).json()
        assert [each["name"] for each in found["queries"]] == ["early"]

    def test_details_of_a_query(self, back: Backend) -> None:
        response = back.client.get("/api/queries/per_site").json()
        assert (response["kind"], response["streams"], response["sql"]) == ("standing", ["bids"], PER_SITE)
        admission = response["decisions"][0]
        assert (admission["pass_name"], admission["about"]) == ("admission", "query per_site")
        assert admission["reason"] == "no other query has the same WHERE, joins and GROUP BY"
        assert [column["role"] for column in response["columns"]][:4] == ["window", "window", "key", "value"]

    def test_a_name_may_hold_anything_that_is_percent_encoded(self, back: Backend) -> None:
        assert back.client.get("/api/queries/with%20space%2Fslash").json()["name"] == "with space/slash"
        assert back.client.get("/api/queries/with%20space%2Fslash/results").status_code == 200

    @ON_BOTH
    def test_register_and_drop(self, fresh: Backend) -> None:
        made = fresh.client.post("/api/queries", json={"sql": PER_SITE, "name": "mine"})
        assert (made.status_code, made.json()["name"], made.json()["pending"]) == (201, "mine", True)
        fresh.push(bids((1, 1.0, "12:00")))
        assert not fresh.client.get("/api/queries/mine").json()["pending"]
        assert fresh.client.post("/api/queries", json={"sql": PER_SITE}).json()["name"] == "q1"
        assert fresh.client.delete("/api/queries/mine").status_code == 204
        assert error(fresh.client.delete("/api/queries/mine")) == (404, "not_found")
        assert error(fresh.client.get("/api/queries/mine")) == (404, "not_found")

    def test_a_query_is_registered_with_parameters(self, fresh: Backend) -> None:
        body = {"sql": f"{PER_SITE} HAVING site IN (:a, :b)", "parameters": {"a": 1, "b": None}}
        made = fresh.client.post("/api/queries", json=body)
        assert (made.status_code, made.json()["sql"]) == (201, f"{PER_SITE} HAVING site IN (1, NULL)")
        for url in ("/api/queries", "/api/check", "/api/previews"):
            assert error(fresh.client.post(url, json=body | {"parameters": {"a": 1}})) == (400, "sql"), url

    def test_an_error_has_the_place_in_the_query(self, back: Backend) -> None:
        sql = "SELECT sum(prise) AS s\nFROM bids [RANGE 1 minute SLIDE 1 minute]"
        for url in ("/api/queries", "/api/check", "/api/previews"):
            response = back.client.post(url, json={"sql": sql})
            assert error(response) == (400, "sql"), url
            place = response.json()["error"]
            assert (place["line"], place["column"], sql[place["start"] : place["end"]]) == (1, 12, "prise")
            assert "did you mean price" in place["message"]

    def test_a_query_is_checked_without_being_registered(self, back: Backend) -> None:
        response = back.client.post("/api/check", json={"sql": PER_SITE}).json()
        assert response["kind"] == "standing" and response["plan"]
        assert back.client.get("/api/queries").json()["total"] == 5

    def test_accuracy_coverage_and_tuning(self, back: Backend) -> None:
        response = back.client.get("/api/queries/early/accuracy").json()
        assert {"total", "recent", "items", "confidence"} <= response.keys()
        assert back.client.get("/api/queries/preferred/coverage").json()["complete"] in (True, False)
        assert error(back.client.get("/api/queries/per_site/accuracy")) == (409, "state")
        assert error(back.client.get("/api/queries/per_site/coverage")) == (400, "setting")
        url = "/api/queries/early/aggressiveness"
        assert back.client.put(url, json={"value": 0.25}).status_code == 204
        assert error(back.client.put(url, json={"value": 1})) == (422, "request")
        assert error(back.client.put(url, json={})) == (422, "request")
        assert back.client.put(url, json={"value": None}).status_code == 204

    def test_previews(self, fresh: Backend) -> None:
        name = fresh.client.post("/api/previews", json={"sql": PER_SITE}).json()["name"]
        fresh.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:05")))
        assert fresh.client.get(f"/api/queries/{name}/results").json()["rows"]
        assert fresh.client.get("/api/queries").json()["total"] == 0
        assert fresh.client.delete(f"/api/previews/{name}").status_code == 204
        assert error(fresh.client.delete(f"/api/previews/{name}")) == (404, "not_found")

    @ON_BOTH
    def test_views(self, fresh: Backend) -> None:
        view = "CREATE VIEW high AS SELECT site, price * 2 AS p FROM bids WHERE price > 1"
        assert fresh.client.post("/api/views", json={"sql": view}).json() == {"name": "high"}
        (listed,) = fresh.client.get("/api/views").json()["views"]
        assert (listed["stream"], listed["columns"]) == ("bids", {"site": "int", "p": "double"})
        assert error(fresh.client.delete("/api/views/other")) == (404, "not_found")
        assert error(fresh.client.post("/api/views", json={"sql": "DROP VIEW high"})) == (400, "setting")
        assert error(
            fresh.client.post("/api/views", json={"sql": "CREATE VIEW low AS SELECT prise FROM bids"})
        ) == (400, "sql")
        assert fresh.client.delete("/api/views/high").status_code == 204
        assert fresh.client.get("/api/views").json() == {"views": []}

    def test_summaries(self, fresh: Backend) -> None:
        assert fresh.client.post("/api/summaries", json={"sql": SUMMARY}).json() == {"name": "bids_sites"}
        fresh.push(bids((1, 1.0, "12:00")))
        (response,) = fresh.client.get("/api/summaries").json()["summaries"]
        assert (response["name"], response["stream"], response["text"]) == ("bids_sites", "bids", SUMMARY)
        assert fresh.client.delete("/api/summaries/bids_sites").status_code == 204
        assert error(fresh.client.delete("/api/summaries/other")) == (404, "not_found")
        assert error(fresh.client.post("/api/summaries", json={"sql": PER_SITE})) == (400, "setting")


class TestResults:
    def test_json_csv_and_arrow_have_the_same_rows(self, back: Backend) -> None:
        url = "/api/queries/per_site/results"
        expected = back.engine.query("per_site").results()
        table = arrow(back.client.get(url, params={"format": "arrow"}))
        assert table.equals(expected) and table.num_rows
        response = back.client.get(url).json()
        assert [column["name"] for column in response["columns"]] == table.column_names
        rows = list(csv.DictReader(io.StringIO(back.client.get(url, params={"format": "csv"}).text)))
        assert [row["n"] for row in rows] == [str(row["n"]) for row in response["rows"]]
        assert [row["window_end"] for row in rows] == [row["window_end"] for row in response["rows"]]
        assert response["rows"][0]["window_end"].endswith("Z")

    def test_the_accept_header_chooses_the_format(self, back: Backend) -> None:
        url = "/api/queries/per_site/results"
        for accept, media in (
            ("text/csv", "text/csv"),
            ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
            ("*/*", "application/json"),
        ):
            response = back.client.get(url, headers={"Accept": accept})
            assert response.headers["content-type"].startswith(media)
            assert response.headers["x-transom-cursor"] and response.headers["x-transom-more"] == "false"

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_cursors_page_through_all_results(self, back: Backend, limit: int) -> None:
        whole = back.client.get("/api/queries/per_site/results").json()
        found, cursor, more = list[Any](), None, True
        while more:
            asked = {"limit": limit} | ({"cursor": cursor} if cursor else {})
            response = back.client.get("/api/queries/per_site/results", params=asked).json()
            assert len(response["rows"]) <= limit
            found += response["rows"]
            cursor, more = response["cursor"], response["more"]
        assert found == whole["rows"]
        assert (
            back.client.get("/api/queries/per_site/results", params={"cursor": cursor}).json()["rows"] == []
        )

    def test_an_invalid_cursor_is_refused(self, back: Backend) -> None:
        response = back.client.get("/api/queries/per_site/results", params={"cursor": "../../etc"})
        assert error(response) == (400, "setting")

    def test_an_on_demand_query_has_no_results(self, back: Backend) -> None:
        assert error(back.client.get("/api/queries/on_demand/results")) == (400, "setting")
        assert error(back.client.get("/api/queries/on_demand/tail")) == (400, "setting")

    @ON_BOTH
    def test_a_request_waits_for_new_results(self, fresh: Backend) -> None:
        fresh.engine.register(PER_SITE, "per_site")
        fresh.push(bids((1, 1.0, "12:00")))
        url = "/api/queries/per_site/results"
        nothing = fresh.client.get(url, params={"wait": 0.05}).json()
        assert nothing["rows"] == []
        with httpx.Client(base_url=fresh.served.url, timeout=30) as other:
            found: list[Any] = []
            asked = {"wait": 20, "cursor": nothing["cursor"]}
            waiting = threading.Thread(target=lambda: found.append(other.get(url, params=asked).json()))
            waiting.start()
            fresh.push(bids((1, 1.0, "12:05")))
            waiting.join(20)
        assert found and found[0]["rows"][0]["n"] == 1

    def test_prods(self, back: Backend) -> None:
        response = back.client.post("/api/queries/per_site/prod", json={}).json()
        assert response["rows"] and {row["kind"] for row in response["rows"]} == {"early"}
        one = back.client.post("/api/queries/per_site/prod", json={"where": {"site": 3}}).json()
        assert {row["site"] for row in one["rows"]} == {3}
        assert arrow(back.client.post("/api/queries/per_site/prod?format=arrow", json={})).num_rows
        many = back.client.post("/api/prod", json={"queries": ["per_site", "early"]}).json()["results"]
        assert many.keys() == {"per_site", "early"} and many["per_site"]["columns"]
        assert back.client.post("/api/prod", json={"stream": "bids"}).json()["results"].keys() >= many.keys()
        wrong = {"until": "soon"}
        assert error(back.client.post("/api/queries/per_site/prod", json=wrong)) == (400, "setting")
        assert error(back.client.post("/api/prod", json={"queries": ["none"]})) == (404, "not_found")

    def test_lookups(self, back: Backend) -> None:
        expected = back.engine.query("on_demand").lookup()
        url = "/api/queries/on_demand/lookup"
        table = arrow(back.client.post(f"{url}?format=arrow", json={}))
        assert table.schema == expected.schema
        assert str(table.drop(["made"]).to_pylist()) == str(expected.drop(["made"]).to_pylist())
        short = back.client.post(url, json={"range": "1 minute", "where": {"site": 3}}).json()
        assert [row["site"] for row in short["rows"]] == [3]
        text = back.client.post("/api/lookup", json={"sql": ON_DEMAND}).json()
        assert len(text["rows"]) == expected.num_rows
        assert error(back.client.post("/api/queries/per_site/lookup", json={})) == (400, "setting")


MALFORMED = [
    ("a body that is no JSON", "POST", "/api/queries", b"{", 422),
    ("a field that is missing", "POST", "/api/queries", b"{}", 422),
    ("a field that is not known", "POST", "/api/queries", b'{"sql": "x", "sink": "y"}', 422),
    ("options of a reader", "POST", "/api/queries", b'{"sql": "x", "options": {"path": "/etc"}}', 422),
    ("a number for SQL", "POST", "/api/check", b'{"sql": 3}', 422),
    ("half of a surrogate pair", "POST", "/api/check", b'{"sql": "\\ud800"}', 422),
    ("an empty name", "POST", "/api/queries", b'{"sql": "x", "name": ""}', 422),
    ("a name that leads up", "POST", "/api/queries", b'{"sql": "x", "name": "../x"}', 400),
    ("a nested pattern", "POST", "/api/queries/per_site/prod", b'{"where": {"site": [1]}}', 422),
    ("a column that is none", "POST", "/api/queries/per_site/prod", b'{"where": {"no": 1}}', 400),
    ("a pattern of another type", "POST", "/api/queries/per_site/prod", b'{"where": {"site": "x"}}', 400),
    ("a number too large", "POST", "/api/queries/per_site/prod", b'{"where": {"site": 4e9}}', 400),
    ("until and at", "POST", "/api/queries/per_site/prod", b'{"until": 1, "at": 2}', 400),
    ("NaN", "PUT", "/api/queries/early/aggressiveness", b'{"value": NaN}', 422),
    ("a limit of none", "GET", "/api/queries/per_site/results?limit=0", b"", 422),
    ("a wait too long", "GET", "/api/queries/per_site/results?wait=31", b"", 422),
    ("an unknown format", "GET", "/api/queries/per_site/results?format=xml", b"", 422),
    ("an unknown route", "GET", "/api/nothing", b"", 404),
    ("an unknown method", "PATCH", "/api/status", b"", 405),
]


@pytest.mark.parametrize(
    ("method", "url", "body", "status"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED]
)
def test_a_malformed_request_is_refused(
    back: Backend, method: str, url: str, body: bytes, status: int
) -> None:
    response = back.client.request(method, url, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}


@ON_BOTH
def test_decimals_nulls_and_quotes_in_every_format(make_engine: EngineFactory, tmp_path: Any) -> None:
    schema = "site int, price decimal(20,6), word string, ts timestamp"
    sql = "SELECT sum(price) AS rows, max(word) AS word FROM bids [RANGE 1 minute SLIDE 1 minute]"
    with backend(make_engine, tmp_path, schema=schema) as fresh:
        fresh.engine.register(sql, "q")
        fresh.push(
            [
                (1, Decimal("12345678901234.567890"), 'say "%s" – ok', "2013-01-01 12:00"),
                (1, None, None, "2013-01-01 12:05"),
            ]
        )
        text = fresh.client.get("/api/queries/q/results").text
        assert '"rows": 12345678901234.567890' in text  # all digits, as a number
        response = json.loads(text)
        assert response["rows"][0]["word"] == 'say "%s" – ok'
        names = [column["name"] for column in response["columns"]]
        assert names == list(response["rows"][0]) and len(set(names)) == len(names)
        table = arrow(fresh.client.get("/api/queries/q/results?format=arrow"))
        assert pa.types.is_decimal(table.column("rows").type)
        assert table.column_names == names
        assert fresh.client.get("/api/queries/q/results?format=csv").text.split("\n")[0] == ",".join(names)


def test_a_query_shows_its_text(back: Backend) -> None:
    assert back.client.get("/api/queries/early").json()["sql"] == EARLY


def test_http_errors_have_the_form_of_the_api(back: Backend) -> None:
    wrong = back.client.post("/api/status")
    assert error(wrong) == (405, "request")
    assert wrong.headers["allow"] == "GET"
    assert error(back.client.get("/api/nothing")) == (404, "not_found")
    text = back.client.post("/api/check", content=b'{"sql": "x"}', headers={"Content-Type": "text/plain"})
    assert "application/json" in text.json()["error"]["message"]
    broken = back.client.post("/api/check", content=b"{", headers={"Content-Type": "application/json"})
    assert "not JSON" in broken.json()["error"]["message"]


def test_a_request_that_lacks_file_descriptors_can_be_sent_again(
    back: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(back.served.service, "lookup_text", fail)
    response = back.client.post("/api/lookup", json={"sql": "x"})
    assert (error(response), response.headers["retry-after"]) == ((503, "state"), "1")
