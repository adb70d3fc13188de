"""The client against a real server: the same answers as the engine's own, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from queue import Queue

import httpx
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from transom.api.errors import NotFound
from transom.client.connection import Server
from transom.client.connection_errors import Refused
from transom.errors import SettingError, SQLError, StateError
from transom.runtime.handles import Feed
from transom.server.roles import AccessToken, Role
from transom.server.settings import ServerSettings
from transom.web_service import Served, serving

SCHEMA = "site int, city string, price decimal(10,2), ts timestamp"
COUNT = (
    "SELECT site, count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
)
SECRET = "a token that is long enough"
READER = "a token for those who read"
DEADLINE = 30  # seconds


class Running:
    """An engine that is stepped by hand, served over HTTP, and the client of it."""

    def __init__(
        self,
        make_engine: EngineFactory,
        checkpoint: Path,
        port: int = 0,
        token: str | None = None,
        tokens: tuple[AccessToken, ...] = (),
    ):
        self._stack = ExitStack()
        self.engine = make_engine(checkpoint)
        self.feed: Feed = self.engine.feed("bids", SCHEMA, time="ts", slack="10 seconds")
        settings = ServerSettings(port=port, token=token, tokens=tokens, dashboard=False)
        self.served: Served = self._stack.enter_context(serving(self.engine, settings, start=False))
        self.port = httpx.URL(self.served.url).port or 0
        self.client: Server = self._stack.enter_context(transom.connect(self.served.url, token))

    def push(self, minute: int, *prices: str) -> None:
        """Bids of a minute, which close those before, as a batch."""
        self.feed.push([(1, "PDX", Decimal(price), f"2013-01-01 12:{minute:02}:30") for price in prices])
        self.engine.step()

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture
def running(make_engine: EngineFactory, tmp_path: Path) -> Iterator[Running]:
    found = Running(make_engine, tmp_path)
    yield found
    found.stop()


def test_a_client_helps_to_write_queries(running: Running) -> None:
    running.push(0, "1.25", "2.50")
    answer = running.client.complete("SELECT pirce FROM bids", 12)
    assert [(each.label, each.kind) for each in answer.candidates] == [("price", "column")]
    assert (answer.start, answer.end) == (7, 12)
    assert running.client.complete("SELECT pri").end == 10
    assert running.client.format("select 1 n from bids") == "SELECT 1 n\nFROM bids"
    with pytest.raises(SQLError, match="the quote is not closed") as raised:
        running.client.format("SELECT 'a")
    assert raised.value.start == 7
    examples = running.client.examples()
    assert len({example.title for example in examples}) == len(examples) > 1
    for example in examples:
        assert running.client.check(example.sql).streams == ("bids",)


def test_results_equal_the_engine_s(running: Running) -> None:
    query = running.client.register(COUNT, "per site & hour, 100 %")
    running.push(0, "1.25", "2.50")
    running.push(1, "3.00")
    running.push(2, "4.00")
    mine = running.engine.query("per site & hour, 100 %").results()
    assert query.results().equals(mine)
    assert query.results()["total"].to_pylist()[0] == mine["total"].to_pylist()[0]
    assert query.results(since=query.cursor).num_rows == 0
    status = query.status()
    assert status.results == 2
    first = status.decisions[0]
    assert (first.pass_name, first.chosen) == ("admission", "opens selection 1")


def test_prods_are_typed_one_by_one_and_together(running: Running) -> None:
    query = running.client.register(f"{COUNT} EMIT EARLY ON DEMAND", "early")
    running.push(0, "1.25", "2.50")
    one, all_of_them = query.prod(), running.client.prod(where={"site": 1})
    assert one["kind"].to_pylist() == ["early"]
    assert list(all_of_them) == ["early"]
    assert all_of_them["early"].schema.types == one.schema.types
    assert (
        all_of_them["early"].drop_columns(["made", "latency"]).equals(one.drop_columns(["made", "latency"]))
    )
    with pytest.raises(SettingError):
        query.prod(where={"nowhere": 1})


def test_many_queries_are_registered_at_once_or_none(running: Running) -> None:
    client = running.client
    with pytest.raises(SQLError, match=r"^wrong: unknown column prise"):
        client.register_all({"a": COUNT, "wrong": COUNT.replace("price", "prise")})
    assert client.queries() == {}
    assert list(client.register_all({"a": COUNT, "b": COUNT})) == ["a", "b"]
    assert list(client.queries()) == ["a", "b"]
    assert client.register_all({}) == {}


def test_lookups(running: Running) -> None:
    top = running.client.register(
        "SELECT city, max(price) AS top FROM bids [RANGE 1 hour] GROUP BY city", "top"
    )
    running.push(0, "1.25", "2.50")
    assert str(top.lookup(range="5 minutes")["top"].to_pylist()[0]) == "2.50"
    assert top.lookup(where={"city": "SEA"}).num_rows == 0
    assert top.lookup(where={"city": ["SEA", "PDX"]}).num_rows == 1
    text = "SELECT city, max(price) AS m FROM bids [RANGE 1 minute] GROUP BY city"
    assert running.client.lookup(text).column_names[2:4] == ["city", "m"]
    with pytest.raises(SettingError, match="look it up"):
        top.results()


def test_errors_equal_the_engine_s(running: Running) -> None:
    wrong = "SELECT sum(prise) FROM bids [RANGE 1 minute SLIDE 1 minute]"
    with pytest.raises(SQLError) as mine:
        running.engine.register(wrong)
    for asked in (running.client.register, running.client.check, running.client.lookup):
        with pytest.raises(SQLError) as remote_error:
            asked(wrong)
        assert str(remote_error.value) == str(mine.value)
    with pytest.raises(NotFound, match="there is no query named cuont"):
        running.client.query("cuont")
    running.client.register(COUNT, "count")
    with pytest.raises(StateError, match="registered already, with another text"):
        running.client.register(COUNT.replace("1 minute", "2 minutes"), "count")
    with pytest.raises(StateError, match="EMIT EARLY"):
        running.client.query("count").accuracy()


def test_streams_late_rows_summaries_and_plans(running: Running) -> None:
    server = running.client
    server.execute("CREATE SUMMARY sites ON bids(site) WITH GRANULARITY '10 seconds'")
    query = server.register(COUNT, "count")
    running.push(0, "1.25")
    running.push(5, "1.25")
    running.push(0, "9.75")
    assert server.streams()["bids"].late == 1
    assert [str(price) for price in server.late("bids")["price"].to_pylist()] == ["9.75"]
    assert server.rejected("bids").num_rows == 0
    assert server.summaries()["sites"].column == "site"
    assert "count" in query.explain() and server.explain("mermaid").startswith("flowchart")
    assert server.check(COUNT).kind == "standing"
    assert server.status().queries == 1


def test_tuning_and_accuracy(running: Running) -> None:
    query = running.client.register(f"{COUNT} EMIT EARLY AT 50% OF SLIDE", "early")
    running.push(0, "1.00")
    query.tune(0.25)
    running.push(0, "1.00")
    assert (query.status().tuned, query.info.aggressiveness) == (True, 0.25)
    query.tune(None)
    running.push(0, "1.00")
    assert (query.status().tuned, query.info.aggressiveness) == (False, 0.5)
    assert query.accuracy().total.pairs == 0


class Follower:
    """Reads a tail in a thread of its own."""

    def __init__(self, tail: Iterator[pa.Table]):
        self.came: Queue[pa.Table | None] = Queue()
        self._thread = threading.Thread(target=self._read, args=(tail,), daemon=True)
        self._thread.start()

    def _read(self, tail: Iterator[pa.Table]) -> None:
        for table in tail:
            self.came.put(table)
        self.came.put(None)

    def next(self) -> list[int] | None:
        table = self.came.get(timeout=DEADLINE)
        return None if table is None else table["n"].to_pylist()


def test_a_tail_continues_after_a_restart_and_ends_with_the_query(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    first = Running(make_engine, tmp_path)
    client = transom.connect(first.served.url)
    query = client.register(COUNT, "count")
    first.push(0, "1.00")
    tail = Follower(query.tail(from_start=True))
    first.push(2, "1.00", "2.00")
    assert tail.next() == [1]
    first.stop()
    again = Running(make_engine, tmp_path, first.port)
    again.push(4, "1.00", "2.00", "3.00")
    assert tail.next() == [2]
    query.drop()
    again.engine.step()
    assert tail.next() is None
    again.stop()
    client.close()


def test_a_role_is_kept_to(make_engine: EngineFactory, tmp_path: Path) -> None:
    guarded = Running(
        make_engine, tmp_path, token=SECRET, tokens=(AccessToken("grafana", READER, Role.READ),)
    )
    guarded.client.register(COUNT, "counts")
    guarded.push(0, "1.00")
    with transom.connect(guarded.served.url, READER) as reader:
        assert list(reader.queries()) == ["counts"]
        for refused in (lambda: reader.register(COUNT), reader.query("counts").drop, reader.prod):
            with pytest.raises(
                Refused, match="the token grafana has the role read; this needs the role register"
            ):
                refused()
    guarded.stop()


def test_a_token_is_required(make_engine: EngineFactory, tmp_path: Path) -> None:
    guarded = Running(make_engine, tmp_path, token=SECRET)
    assert guarded.client.status().streams == 1
    with transom.connect(guarded.served.url, "a wrong token") as other:
        with pytest.raises(Refused, match="does not accept this token"):
            other.status()
        with pytest.raises(StateError, match="not ready"):
            other.wait_ready(0)  # which needs no token, and the engine was not started
    guarded.stop()
