"""Rows that are pushed over HTTP, with the client and in the shell: formats, backpressure, what an answer means."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import transom
from tests.engine_factory import EngineFactory
from tests.server.server_helpers import Backend, backend, error, served_with
from transom.cli.build_engine import declare_pipeline
from transom.cli.main import app
from transom.cli.pipeline import read_pipeline
from transom.errors import SettingError
from transom.server.roles import AccessToken, Role

ROWS_PATH = "/api/streams/bids/rows"
HIGH = "SELECT site, price FROM bids WHERE price > 5"


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Any) -> Iterator[Backend]:
    with backend(make_engine, tmp_path, start=True) as made:
        made.client.post("/api/queries", json={"name": "high", "sql": HIGH}).raise_for_status()
        yield made


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def row(site: int, price: float | None, time: str) -> dict[str, Any]:
    return {"site": site, "price": price, "ts": f"2013-01-01 {time}"}


def found(back: Backend) -> list[tuple[int, float]]:
    rows = back.client.get("/api/queries/high/results").json()["rows"]
    return [(each["site"], each["price"]) for each in rows]


TABLE = pa.table(
    {
        "site": pa.array([1, 2], pa.int32()),
        "price": [6.0, 7.0],
        "ts": pa.array([1_357_000_000_000_000, 1_357_000_001_000_000], pa.timestamp("us", "UTC")),
    }
)


def arrow_body(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-ndjson", lines(row(1, 6.0, "12:00:00"), row(2, 7.0, "12:00:01"))),
        (
            "application/x-www-form-urlencoded",
            lines(row(1, 6.0, "12:00:00"), row(2, 7.0, "12:00:01")) + b"\n\n",
        ),
        ("application/json", json.dumps([row(1, 6.0, "12:00:00"), row(2, 7.0, "12:00:01")]).encode()),
        ("application/vnd.apache.arrow.stream", arrow_body(TABLE)),
    ],
    ids=["JSON lines", "JSON lines as curl sends them", "a JSON list", "Arrow"],
)
def test_rows_are_committed_when_the_answer_is_200(back: Backend, kind: str, body: bytes) -> None:
    answer = back.client.post(ROWS_PATH, content=body, headers={"Content-Type": kind})
    assert answer.status_code == 200
    pushed = answer.json()
    assert (pushed["rows"], pushed["committed"], pushed["waiting"]) == (2, True, 0)
    assert back.engine.progress().batch_id >= pushed["batch"]
    assert found(back) == [(1, 6.0), (2, 7.0)]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("application/x-ndjson", b'{"site": 1}\nnope', "line 2 is not JSON"),
        ("application/x-ndjson", b'{"site": 1}\n\n[1]', "line 3 is not a JSON object"),
        ("application/json", b"[1]", "row 1 is not a JSON object"),
        ("application/x-ndjson", b'{"sight": 1}', "unknown column sight"),
        ("application/x-ndjson", b'{"site": "one"}', "do not fit its schema: column site: "),
        ("application/x-ndjson", b'{"site": 1.5}', "column site: 1.5 is not a whole number"),
        ("application/x-ndjson", b'{"ts": 1%s}' % (b"0" * 30), "column ts: a number is beyond 64 bits"),
        ("application/json", b"[" * 100_000, "the body is nested too deeply"),
        ("application/x-ndjson", b'{"ts": "yesterday"}', "is not a time"),
        ("application/x-ndjson", b"\xff", "not UTF-8"),
        ("application/vnd.apache.arrow.stream", b"rows", "not a stream of Arrow"),
        ("application/vnd.apache.arrow.stream", arrow_body(TABLE.select(["site"])), "have no column price"),
        (
            "application/vnd.apache.arrow.stream",
            arrow_body(TABLE.append_column("price", TABLE["price"])),
            "have two columns price",
        ),
        ("text/csv", b"site\n1", "not as text/csv"),
    ],
)
def test_a_wrong_body_is_refused_as_a_whole(back: Backend, kind: str, body: bytes, message: str) -> None:
    answer = back.client.post(ROWS_PATH, content=body, headers={"Content-Type": kind})
    assert error(answer) == (400, "setting")
    assert message in answer.json()["error"]["message"]
    assert back.engine.feeds()["bids"].waiting == 0


def test_a_stream_that_does_not_exist_is_not_found(back: Backend) -> None:
    assert error(back.client.post("/api/streams/tx/rows", content=b"{}")) == (404, "not_found")


def test_a_stream_of_files_is_not_pushed(make_engine: EngineFactory, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(TABLE, tmp_path / "files" / "a.parquet")
    engine = make_engine()
    engine.stream("s", str(tmp_path / "files"), time="ts")
    with pytest.raises(SettingError, match="reads its rows from a source"):
        engine.push("s", [])
    with pytest.raises(SettingError, match="no feed named t"):
        engine.push("t", [])


def test_a_full_feed_answers_429_and_takes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, served_with(pushed_rows=3), start=True) as back:
        release, entered = threading.Event(), threading.Event()

        def hold(report: Any) -> None:
            entered.set()
            release.wait(30)

        back.engine._loop.listeners.append(hold)  # a batch that is not committed for a while
        body = lines(*(row(1, 6.0, f"12:00:0{i}") for i in range(3)))
        assert back.client.post(ROWS_PATH, content=body, params={"wait": 0}).status_code == 202
        assert entered.wait(30)
        refused = back.client.post(ROWS_PATH, content=lines(row(2, 7.0, "12:00:09")))
        assert error(refused) == (429, "limit")
        assert int(refused.headers["Retry-After"]) >= 1
        assert back.engine.feeds()["bids"].waiting == 3
        release.set()
        with transom.connect(back.served.url) as server:  # the client waits, and sends again
            assert server.push("bids", [row(2, 7.0, "12:00:09")]).committed
        assert back.engine.progress().streams["bids"].rows == 4


def test_a_push_larger_than_the_limit_is_taken_if_nothing_waits(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    with backend(make_engine, tmp_path, served_with(pushed_rows=3), start=True) as back:
        body = lines(*(row(1, 6.0, f"12:00:0{i}") for i in range(9)))
        assert back.client.post(ROWS_PATH, content=body).json()["rows"] == 9


def test_pushes_have_their_own_limit_of_bytes(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, served_with(body=500, push_body=2_000), start=True) as back:
        rows = [row(1, 6.0, f"12:00:{i:02}") for i in range(15)]
        assert len(lines(*rows)) > 500
        assert back.client.post(ROWS_PATH, content=lines(*rows)).status_code == 200
        assert error(back.client.post(ROWS_PATH, content=lines(*rows, *rows, *rows))) == (413, "limit")
        assert error(back.client.post("/api/check", content=lines(*rows))) == (413, "limit")


def test_an_engine_that_has_stopped_takes_no_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path, start=True) as back:
        back.served.service.stop()
        answer = back.client.post(ROWS_PATH, content=lines(row(1, 6.0, "12:00:00")))
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "1"
        assert back.engine.feeds()["bids"].waiting == 0


def test_a_reader_may_not_push(make_engine: EngineFactory, tmp_path: Path) -> None:
    tokens = (
        AccessToken("r", "a token for those who read", Role.READ),
        AccessToken("w", "another, for writers", Role.REGISTER),
    )
    with backend(make_engine, tmp_path, served_with(tokens=tokens), start=True) as back:
        for token, status in ((tokens[0], 403), (tokens[1], 200)):
            headers = {"Authorization": f"Bearer {token.secret}"}
            assert back.client.post(ROWS_PATH, content=b"", headers=headers).status_code == status


def test_the_client_pushes_tables_and_mappings(back: Backend) -> None:
    with transom.connect(back.served.url) as server:
        assert server.push("bids", TABLE).rows == 2
        assert server.push("bids", [row(3, 8.0, "12:00:05"), row(3, 1.0, "12:00:06")]).committed
        assert server.push("bids", []).rows == 0
        with pytest.raises(SettingError, match="mappings"):
            server.push("bids", [(1, 2.0, "2013-01-01")])  # type: ignore[list-item]
    assert found(back) == [(1, 6.0), (2, 7.0), (3, 8.0)]


def test_large_tables_are_sent_in_several_requests(back: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.client.encoded_rows.BODY_BYTES", 4_000)
    table = pa.concat_tables([TABLE] * 1_000).combine_chunks()
    with transom.connect(back.served.url) as server:
        assert server.push("bids", table).rows == 2_000
    assert len(found(back)) == 2_000


def test_the_shell_pushes_files(back: Backend, tmp_path: Path) -> None:
    file, parquet = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    file.write_bytes(lines(row(1, 9.0, "12:00:00"), row(1, 1.0, "12:00:01")))
    pq.write_table(TABLE, parquet)
    done = CliRunner().invoke(app, ["push", "bids", str(file), str(parquet), "--server", back.served.url])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [f"2 rows of {file} committed", f"2 rows of {parquet} committed"]
    done = CliRunner().invoke(
        app, ["push", "bids", "--server", back.served.url], input=lines(row(4, 9.5, "12:00:02")).decode()
    )
    assert done.stdout == "1 row of - committed\n"
    wrong = CliRunner().invoke(app, ["push", "bids", "--server", back.served.url], input="{}\nx")
    assert wrong.exit_code != 0
    assert found(back) == [(1, 9.0), (1, 6.0), (2, 7.0), (4, 9.5)]


PUSHED = {
    "streams": {"tx": {"push": True, "schema": "card string, amount double, ts timestamp", "time": "ts"}},
    "queries": {"big": "SELECT card, amount FROM tx WHERE amount > 5000"},
}


def test_a_pipeline_declares_a_stream_that_is_pushed(make_engine: EngineFactory, tmp_path: Path) -> None:
    pipeline = read_pipeline(PUSHED, tmp_path, served=True)
    engine = make_engine()
    declare_pipeline(engine, pipeline)
    engine.push("tx", [{"card": "a", "amount": 6000.0, "ts": "2024-01-01 00:00:00"}])
    engine.step()
    assert engine.query("big").results()["card"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ({"push": True, "time": "ts"}, "streams.tx: schema is missing"),
        (
            {"push": True, "time": "ts", "schema": "ts timestamp", "path": "x"},
            "streams.tx.path: a stream with push",
        ),
        ({"push": False, "time": "ts", "schema": "ts timestamp"}, "streams.tx: path is missing"),
        ({"push": "yes", "time": "ts", "schema": "ts timestamp"}, "streams.tx.push: expected true or false"),
        (
            {"push": True, "time": "ts", "schema": "ts timestamp", "decode": "json"},
            "streams.tx.decode: a stream with push",
        ),
    ],
)
def test_a_pipeline_with_a_wrong_pushed_stream_is_refused(
    stream: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        read_pipeline({**PUSHED, "streams": {"tx": stream}}, tmp_path, served=True)


def test_text_of_dates_and_decimals_is_read(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("s", "day date, fee decimal(8, 2), ts timestamp", time="ts")
    query = engine.register("SELECT day, fee FROM s")
    feed.push([{"day": "2024-01-02", "fee": "1.25", "ts": "2024-01-02"}, {"fee": 0.1, "ts": "2024-01-03"}])
    engine.step()
    shown = [(str(one["day"]), str(one["fee"])) for one in query.results().to_pylist()]
    assert shown == [("2024-01-02", "1.25"), ("None", "0.10")]
    for wrong in ({"day": "tomorrow"}, {"fee": "much"}):
        with pytest.raises(SettingError):
            feed.push([wrong])


def test_rows_wait_for_an_engine_that_starts(make_engine: EngineFactory, tmp_path: Path) -> None:
    with backend(make_engine, tmp_path) as back:
        answer = back.client.post(ROWS_PATH, content=lines(row(1, 6.0, "12:00:00")), params={"wait": 0})
        assert answer.status_code == 202
        assert answer.json()["waiting"] == 1
        back.engine.step()
        assert back.engine.feeds()["bids"].waiting == 0


def test_a_query_without_a_window_is_previewed(back: Backend) -> None:
    created = back.client.post("/api/previews", json={"sql": HIGH})
    assert created.status_code == 201
    name = created.json()["name"]
    back.client.post(ROWS_PATH, content=lines(row(1, 6.0, "12:00:00"))).raise_for_status()
    rows = back.client.get(f"/api/queries/{name}/results").json()["rows"]
    assert [each["price"] for each in rows] == [6.0]
