"""A server is asked as an engine here would be, and answers, typed, with the engine's own errors."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import httpx
import pytest

import transom
from tests.client.fakes import COUNT, STATUS, FakeServer, failed
from transom.api import records
from transom.api.errors import LimitError, NotFound
from transom.client import http
from transom.client.connection_errors import Refused, ServerError, Unreachable
from transom.errors import SettingError, SQLError, StateError, TransomError


@pytest.fixture
def fake() -> FakeServer:
    found = FakeServer()
    found.add("count")
    return found


def test_a_client_needs_no_spark() -> None:
    code = (
        "import sys, transom\n"
        "server = transom.connect('http://127.0.0.1:9', timeout=1)\n"
        "try: server.status()\n"
        "except transom.TransomError: pass\n"
        "heavy = {'pyspark', 'py4j', 'sqlglot', 'pandas', 'fastapi', 'starlette', 'transom.server'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_records_have_the_fields_of_the_engine_s_own_types() -> None:
    from transom.estimates import monitor

    pairs = [
        (records.AccuracyInfo, monitor.Accuracy),
        (records.ItemInfo, monitor.ItemAccuracy),
        (records.ScoreInfo, monitor.Score),
        (records.MarkInfo, monitor.MarkAccuracy),
    ]
    for record, engine_type in pairs:
        names, engine_names = ([field.name for field in fields(kind)] for kind in (record, engine_type))
        assert names == engine_names, record.__name__


class TestAddresses:
    @pytest.mark.parametrize("url", ["127.0.0.1:8710", "file:///etc/passwd", "http://", "http://[::1"])
    def test_an_invalid_address_is_refused(self, url: str) -> None:
        with pytest.raises(SettingError, match="address"):
            transom.connect(url)

    def test_an_unreachable_server_is_reported_with_what_to_do(self) -> None:
        with (
            transom.connect("http://127.0.0.1:9") as server,
            pytest.raises(Unreachable, match="is `transom serve` running there"),
        ):
            server.status()

    def test_an_unreachable_server_is_a_connection_error_too(self) -> None:
        assert issubclass(Unreachable, ConnectionError) and issubclass(Unreachable, TransomError)

    def test_a_server_that_is_not_transom_is_reported(self) -> None:
        fake = FakeServer(before=lambda request: httpx.Response(200, text="<html>It works!</html>"))
        with pytest.raises(ServerError, match="does not answer like a Transom server"):
            fake.connect().status()

    def test_a_proxy_without_a_server_behind_it_is_reported(self) -> None:
        fake = FakeServer(before=lambda request: httpx.Response(502, text="<h1>Bad Gateway</h1>"))
        with pytest.raises(ServerError, match="HTTP 502"):
            fake.connect().status()


class TestTokens:
    def test_the_client_sends_its_token(self) -> None:
        assert FakeServer(token="secret").connect("secret").status().batch == 7

    def test_the_token_may_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRANSOM_TOKEN", "secret")
        assert FakeServer(token="secret").connect().status().batch == 7

    def test_a_wrong_token_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TRANSOM_TOKEN", raising=False)
        with pytest.raises(Refused, match="does not accept this token"):
            FakeServer(token="secret").connect("guess").status()


class TestRates:
    """A server that limits the rate of requests says when it takes the next one."""

    @staticmethod
    def busy_server(times: int, pause: str, kind: str = "limit") -> FakeServer:
        left = iter([True] * times)

        def before(request: httpx.Request) -> httpx.Response | None:
            if next(left, None) is None:
                return None
            response = failed(429, kind, "more than 200 requests a second")
            response.headers["Retry-After"] = pause
            return response

        return FakeServer(before=before)

    def test_the_client_waits_and_sends_the_request_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []
        monkeypatch.setattr(http, "sleep", pauses.append)
        assert self.busy_server(2, "3").connect().status().batch == 7
        assert pauses == [3, 3]

    @pytest.mark.parametrize(
        ("pause", "kind", "error"),
        [("3600", "limit", LimitError), ("1", "unauthorized", Refused)],
        ids=["longer than its timeout", "a server that had too many wrong tokens"],
    )
    def test_the_client_does_not_wait(
        self, pause: str, kind: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "sleep", lambda seconds: pytest.fail("it waited"))
        with pytest.raises(error, match="200 requests"):
            self.busy_server(1, pause, kind).connect().status()


ERRORS = [
    ("a wrong query", 400, "sql", SQLError),
    ("a wrong option", 400, "setting", SettingError),
    ("a wrong request", 422, "request", SettingError),
    ("not now", 409, "state", StateError),
    ("no such thing", 404, "not_found", NotFound),
    ("no such thing, as the engine says it", 404, "not_found", StateError),
    ("a limit", 429, "limit", LimitError),
    ("a wrong host, or a lesser role", 403, "forbidden", Refused),
    ("a failure there", 500, "internal", ServerError),
    ("an engine that is starting", 503, "state", ServerError),
    ("a kind of a newer server", 418, "teapot", ServerError),
]


@pytest.mark.parametrize(
    ("status", "kind", "error"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS]
)
def test_errors_have_the_engine_s_classes(status: int, kind: str, error: type[Exception]) -> None:
    fake = FakeServer(before=lambda request: failed(status, kind, "because"))
    with pytest.raises(error, match="because"):
        fake.connect().status()


class TestRequests:
    def test_the_status(self, fake: FakeServer) -> None:
        status = fake.connect().status()
        assert (status.state, status.rate, status.spent) == ("running", 40.0, {"planning": 0.125})
        assert {field.name for field in fields(status)} == STATUS.keys()

    def test_streams_with_their_late_and_rejected_rows(self, fake: FakeServer) -> None:
        server = fake.connect()
        assert server.streams()["bids"].rates == (40.0, 40.8)
        assert server.late("bids", limit=1).to_pylist() == [{"site": 1, "reason": "late"}]
        assert server.rejected("bids").num_rows == 1
        assert fake.asked[-2][2] == {"limit": "1", "format": "arrow"}

    def test_a_long_list_of_queries_is_read_in_parts(self, fake: FakeServer) -> None:
        for number in range(4):
            fake.add(f"q{number}")
        server = fake.connect()
        assert list(server.queries()) == ["count", "q0", "q1", "q2", "q3"]
        assert list(server.queries("q")) == ["q0", "q1", "q2", "q3"]

    def test_a_query_may_have_any_name(self, fake: FakeServer) -> None:
        fake.add("top/5 %?")
        query = fake.connect().query("top/5 %?")
        assert (query.name, query.text, query.on_demand) == ("top/5 %?", COUNT, False)
        assert query.results().num_rows == 0

    def test_registering_and_dropping(self, fake: FakeServer) -> None:
        server = fake.connect()
        query = server.register(COUNT, "mine", partial=True)
        assert fake.asked[-1] == ("POST", "/api/queries", {"sql": COUNT, "name": "mine", "partial": True})
        assert query.info.window == "1 minute every 1 minute"
        assert query.info.backfill is None, "a server that does not know it has none"
        query.drop()
        with pytest.raises(NotFound):
            query.status()

    def test_parameters_become_constants(self, fake: FakeServer) -> None:
        fake.connect().register(f"{COUNT} WHERE kind = :kind", parameters={"kind": "it's"})
        assert fake.asked[-1][2]["sql"] == f"{COUNT} WHERE kind = 'it''s'"

    def test_a_wrong_query_points_at_the_place(self, fake: FakeServer) -> None:
        with pytest.raises(SQLError) as caught:
            fake.connect().register("SELECT sum(prise) FROM bids")
        assert str(caught.value).splitlines()[1:] == [
            "  SELECT sum(prise) FROM bids",
            "             ^^^^^",
        ]

    def test_queries_in_their_order_are_all_registered_or_none(self, fake: FakeServer) -> None:
        server = fake.connect()
        with pytest.raises(SQLError, match=r"^wrong: unknown column prise"):
            server.register_each([("count", COUNT), ("new", COUNT), ("wrong", "SELECT sum(prise)")])
        assert list(fake.queries) == ["count"]  # it was there before
        done = server.register_each([("a", COUNT), ("b", COUNT)])
        assert [query.name for query in done] == ["a", "b"]

    def test_prods_of_many_queries_are_typed(self, fake: FakeServer) -> None:
        tables = fake.connect().prod("bids", at=datetime(2013, 1, 1, 12), where={"site": 1}, queries="count")
        row = tables["count"].to_pylist()[0]
        assert row["window_end"] == datetime(2013, 1, 1, 12, 1, tzinfo=UTC)
        assert (row["n"], row["kind"], row["site"]) == (3, "early", None)
        assert math.isnan(row["latency"])
        asked = {"stream": "bids", "at": "2013-01-01T12:00:00", "where": {"site": 1}, "queries": ["count"]}
        assert fake.asked[-1] == ("POST", "/api/prod", asked)

    def test_lookups_checks_and_plans(self, fake: FakeServer) -> None:
        server = fake.connect()
        assert server.lookup("SELECT count(*) AS n FROM bids [RANGE 1 minute]")["n"].to_pylist() == [5]
        assert server.check(COUNT).plan == "one selection"
        assert server.explain("mermaid", verbose=True) == "a plan as mermaid"

    def test_statements_about_views_have_routes_of_their_own(self, fake: FakeServer) -> None:
        server = fake.connect()
        for run in (
            lambda: server.view("v", "SELECT * FROM bids"),
            lambda: server.execute("-- as before\ncreate or replace view w as select 1 from v"),
            lambda: server.execute("DROP VIEW `v`;"),
        ):
            with pytest.raises(NotFound):  # the fake server has no views
                run()
        assert [(method, path) for method, path, _ in fake.asked] == [
            ("POST", "/api/views"),
            ("POST", "/api/views"),
            ("DELETE", "/api/views/v"),
        ]
        server.execute("DROP VIEW IF EXISTS v")

    def test_summaries(self, fake: FakeServer) -> None:
        server = fake.connect()
        server.execute("CREATE SUMMARY items ON bids(site)")
        assert server.summaries()["items"].chosen
        server.execute("drop summary if exists `other`")
        with pytest.raises(NotFound):
            server.execute("DROP SUMMARY other")
        server.execute("DROP SUMMARY items;")
        assert server.summaries() == {}

    def test_wait_ready_waits_for_the_engine(self, fake: FakeServer) -> None:
        fake.ready = False

        def after_three(request: httpx.Request) -> None:
            fake.ready = len(fake.asked) == 3

        fake.before = after_three
        fake.connect().wait_ready(timeout=10)
        assert len(fake.asked) == 3

    def test_wait_ready_times_out(self, fake: FakeServer) -> None:
        fake.ready = False
        with pytest.raises(StateError, match=r"not ready after 0\.2 seconds: the engine is starting"):
            fake.connect().wait_ready(timeout=0.2)


class TestQuery:
    def test_answers_now(self, fake: FakeServer) -> None:
        query = fake.connect().query("count")
        assert query.prod(until="2013-01-01 12:05")["kind"].to_pylist() == ["early"]
        assert query.lookup(timedelta(minutes=5), at=7)["n"].to_pylist() == [5]
        assert fake.asked[-1][2] == {"range": "5 minutes", "at": 7}

    def test_a_query_has_status_plan_accuracy_and_coverage(self, fake: FakeServer) -> None:
        query = fake.connect().query("count")
        assert query.explain("json") == "count as json"
        assert query.coverage().skipped == 1.5
        with pytest.raises(StateError, match="EMIT EARLY"):
            query.accuracy()

    def test_tuning_with_none_restores_the_query_s_setting(self, fake: FakeServer) -> None:
        fake.connect().query("count").tune(None)
        assert fake.asked[-1] == ("PUT", "/api/queries/count/aggressiveness", {"value": None})
