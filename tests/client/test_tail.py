"""Results are read to the end, and followed beyond it, whatever happens to the server meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

from tests.client.fakes import FakeServer, results
from transom.api.errors import NotFound
from transom.client import remote_query as module
from transom.client.connection_errors import Refused, Unreachable
from transom.client.remote_query import RemoteQuery


@pytest.fixture
def fake() -> FakeServer:
    found = FakeServer(chunk=2)
    found.add("count", made=results(1, 2, 3, 4, 5))
    return found


@pytest.fixture
def query(fake: FakeServer) -> RemoteQuery:
    return fake.connect().query("count")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept for, on a clock that jumps there."""
    slept: list[float] = []
    monkeypatch.setattr(module, "sleep", slept.append)
    monkeypatch.setattr(module, "monotonic", lambda: sum(slept))
    return slept


def counts(tables: Iterator[pa.Table]) -> list[list[int]]:
    return [table["n"].to_pylist() for table in tables]


class TestResults:
    def test_results_are_read_in_as_many_parts_as_the_server_sends(self, query: RemoteQuery) -> None:
        assert query.results()["n"].to_pylist() == [1, 2, 3, 4, 5]
        assert query.cursor == "5"

    def test_results_after_a_cursor_are_only_the_new_ones(self, fake: FakeServer, query: RemoteQuery) -> None:
        query.results()
        fake.push("count", 6)
        assert query.results(since=query.cursor)["n"].to_pylist() == [6]
        assert query.results(since=query.cursor).num_rows == 0

    def test_an_empty_result_has_its_types(self, query: RemoteQuery) -> None:
        assert query.results(since="end").schema == results().schema


def dropped_after(fake: FakeServer, *batches: tuple[int, ...]) -> None:
    """While a client waits, more results arrive, batch by batch, and then the query is dropped."""
    left = list(batches)

    def waiting(name: str) -> None:
        if left:
            fake.push(name, *left.pop(0))
        else:
            del fake.queries[name]

    fake.waiting = waiting


class TestTail:
    def test_a_tail_starts_now_and_ends_when_the_query_is_dropped(
        self, fake: FakeServer, query: RemoteQuery
    ) -> None:
        dropped_after(fake, (6,), (7, 8))
        assert counts(query.tail()) == [[6], [7, 8]]
        assert query.cursor == "8"

    def test_now_is_the_time_of_the_call(self, fake: FakeServer, query: RemoteQuery) -> None:
        tail = query.tail()
        fake.push("count", 6)
        dropped_after(fake)
        assert counts(tail) == [[6]]

    def test_from_the_first_result(self, fake: FakeServer, query: RemoteQuery) -> None:
        dropped_after(fake, (6,))
        assert counts(query.tail(from_start=True)) == [[1, 2], [3, 4], [5], [6]]

    def test_from_a_cursor(self, fake: FakeServer, query: RemoteQuery) -> None:
        dropped_after(fake)
        assert counts(query.tail(cursor="3")) == [[4, 5]]

    def test_an_empty_answer_is_not_yielded(self, fake: FakeServer, query: RemoteQuery) -> None:
        dropped_after(fake, (), (), (6,))
        assert counts(query.tail()) == [[6]]

    def test_an_unknown_query_is_an_error_at_once(self, fake: FakeServer, query: RemoteQuery) -> None:
        del fake.queries["count"]
        with pytest.raises(NotFound):
            query.tail()


class TestUnreachableServer:
    def test_the_client_reconnects_and_continues(
        self, fake: FakeServer, query: RemoteQuery, pauses: list[float]
    ) -> None:
        dropped_after(fake, (6,), (7,))
        away = [httpx.ConnectError("refused"), httpx.ReadError("reset"), httpx.ReadTimeout("slow")]
        tail = query.tail()

        def before(request: httpx.Request) -> httpx.Response | None:
            if away:
                raise away.pop()
            return None

        fake.before = before
        assert counts(tail) == [[6], [7]]
        assert len(pauses) == 3
        assert pauses[0] < pauses[2], "each pause is about twice the one before"

    def test_errors_of_a_proxy_or_a_starting_server_are_retried(
        self, fake: FakeServer, query: RemoteQuery, pauses: list[float]
    ) -> None:
        dropped_after(fake, (6,))
        tail = query.tail()
        answers = [httpx.Response(502, text="bad gateway"), httpx.Response(503, text="starting")]
        fake.before = lambda request: answers.pop() if answers else None
        assert counts(tail) == [[6]]
        assert len(pauses) == 2

    def test_patience_ends(self, fake: FakeServer, query: RemoteQuery, pauses: list[float]) -> None:
        tail = query.tail(patience=60)

        def before(request: httpx.Request) -> None:
            raise httpx.ConnectError("refused")

        fake.before = before
        with pytest.raises(Unreachable):
            next(tail)
        assert 45 < sum(pauses) <= 60

    def test_every_answer_restarts_the_patience(
        self, fake: FakeServer, query: RemoteQuery, pauses: list[float]
    ) -> None:
        dropped_after(fake, (6,), (7,), (8,))
        tail = query.tail(patience=1)
        turn = iter(range(100))

        def before(request: httpx.Request) -> None:
            if next(turn) % 3 < 2:
                raise httpx.ConnectError("refused")

        fake.before = before
        assert counts(tail) == [[6], [7], [8]]

    def test_a_wrong_token_is_not_retried(
        self, fake: FakeServer, query: RemoteQuery, pauses: list[float]
    ) -> None:
        tail = query.tail()
        fake.token = "new"
        with pytest.raises(Refused):
            next(tail)
        assert pauses == []
