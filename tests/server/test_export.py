"""Results as files over HTTP, with the client and in the shell: four formats, finals or early, the query's name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import bids
from tests.server.server_helpers import Backend, backend, error
from transom.cli.main import app
from transom.errors import SettingError

NAME = "per site/1"
QUERY = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
PATH = "/api/queries/per%20site%2F1/export"


@pytest.fixture
def back(make_engine: EngineFactory, tmp_path: Any) -> Iterator[Backend]:
    with backend(make_engine, tmp_path) as made:
        made.engine.register(QUERY, NAME)
        made.engine.register("SELECT site, price FROM bids WHERE price > 5", "rows")
        made.engine.register("SELECT max(price) AS top FROM bids [RANGE 1 hour]", "looked up")
        made.push(bids((1, 6.0, "12:00:10"), (2, 7.0, "12:00:20")))
        made.push(bids((1, 8.0, "12:05:00")))
        made.engine.query(NAME).prod()
        yield made


def rows_of(content: bytes, form: str) -> list[dict[str, Any]]:
    if form == "csv":
        return list(csv.DictReader(io.StringIO(content.decode())))
    if form == "json":
        rows: list[dict[str, Any]] = json.loads(content)
        return rows
    if form == "parquet":
        return pq.read_table(pa.BufferReader(content)).to_pylist()
    return pa.ipc.open_file(content).read_all().to_pylist()


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow"])
@pytest.mark.parametrize(("kind", "count"), [("final", 2), ("early", 1), ("all", 3)])
def test_results_as_a_file_with_the_querys_name(back: Backend, form: str, kind: str, count: int) -> None:
    answer = back.client.get(PATH, params={"format": form, "kind": kind})
    assert answer.status_code == 200
    rows = rows_of(answer.content, form)
    assert len(rows) == count
    assert {row["kind"] for row in rows} == ({kind} if kind != "all" else {"final", "early"})
    suffix = "" if kind == "final" else f"-{kind}"
    assert f'filename="per_site_1{suffix}.{form}"' in answer.headers["Content-Disposition"]


def test_csv_and_finals_are_the_default(back: Backend) -> None:
    answer = back.client.get(PATH)
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert len(rows_of(answer.content, "csv")) == 2


def test_a_query_without_a_window_is_exported(back: Backend) -> None:
    answer = back.client.get("/api/queries/rows/export", params={"format": "parquet"})
    assert [row["price"] for row in rows_of(answer.content, "parquet")] == [6.0, 7.0, 8.0]


def test_what_can_not_be_exported(back: Backend) -> None:
    assert error(back.client.get("/api/queries/nothing/export")) == (404, "not_found")
    assert error(back.client.get("/api/queries/looked%20up/export")) == (400, "setting")
    assert back.client.get(PATH, params={"format": "xml"}).status_code == 422


def test_the_client_writes_files(back: Backend, tmp_path: Path) -> None:
    with transom.connect(back.served.url) as server:
        query = server.query(NAME)
        assert query.export(tmp_path) == tmp_path / "per_site_1.csv"
        assert query.export(tmp_path, format="arrow", kind="all") == tmp_path / "per_site_1-all.arrow"
        written = query.export(tmp_path / "mine.parquet")
        assert pq.read_table(written).num_rows == 2
        for wrong in ({"format": "xml"}, {"kind": "none"}):
            with pytest.raises(SettingError, match="unknown"):
                query.export(tmp_path, **wrong)  # type: ignore[arg-type]


def test_the_shell_writes_files(back: Backend, tmp_path: Path) -> None:
    words = ["export", NAME, "--out", str(tmp_path), "--server", back.served.url]
    done = CliRunner().invoke(app, [*words, "--format", "json", "--kind", "early"])
    assert done.exit_code == 0, done.output
    assert len(json.loads((tmp_path / "per_site_1-early.json").read_text())) == 1
    wrong = CliRunner().invoke(
        app, ["export", NAME, "--out", str(tmp_path / "no" / "x.csv"), "--server", back.served.url]
    )
    assert wrong.exit_code != 0
