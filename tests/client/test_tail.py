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


class TestReading:
    def test_all_of_it_however_many_parts_it_comes_in(self, query: RemoteQuery) -> None:
        assert query.results()["n"].to_pylist() == [1, 2, 3, 4, 5]
        assert query.cursor == "5"

    def test_only_what_is_new(self, fake: FakeServer, query: RemoteQuery) -> None:
        query.results()
        fake.push("count", 6)
        assert query.results(since=query.cursor)["n"].to_pylist() == [6]
        assert query.results(since=query.cursor).num_rows == 0

    def test_types_are_kept_when_there_is_nothing(self, query: RemoteQuery) -> None:
        assert query.results(since="end").schema == results().schema


def dropped_after(fake: FakeServer, *batches: tuple[int, ...]) -> None:
    """While somebody waits, more results come, batch by batch, and then the query is dropped."""
    left = list(batches)

    def waiting(name: str) -> None:
        if left:
            fake.push(name, *left.pop(0))
        else:
            del fake.queries[name]

    fake.waiting = waiting


class TestFollowing:
    def test_from_now_on_until_it_is_dropped(self, fake: FakeServer, query: RemoteQuery) -> None:
        dropped_after(fake, (6,), (7, 8))
        assert counts(query.tail()) == [[6], [7, 8]]
        assert query.cursor == "8"

    def test_now_is_when_it_was_asked_for(self, fake: FakeServer, query: RemoteQuery) -> None:
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

    def test_nothing_new_is_not_told(self, fake: FakeServer, query: RemoteQuery) -> None:
        dropped_after(fake, (), (), (6,))
        assert counts(query.tail()) == [[6]]

    def test_a_query_that_is_not_there_is_an_error_at_once(
        self, fake: FakeServer, query: RemoteQuery
    ) -> None:
        del fake.queries["count"]
        with pytest.raises(NotFound):
            query.tail()


class TestAServerThatIsAway:
    def test_is_asked_again_and_gone_on_with(
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

    def test_a_proxy_s_or_a_starting_server_s_error_is_waited_out(
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

    def test_patience_starts_anew_with_every_answer(
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

    def test_a_token_that_is_wrong_now_is_not_tried_again(
        self, fake: FakeServer, query: RemoteQuery, pauses: list[float]
    ) -> None:
        tail = query.tail()
        fake.token = "new"
        with pytest.raises(Refused):
            next(tail)
        assert pauses == []
