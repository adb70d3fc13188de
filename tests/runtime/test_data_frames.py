"""Results as data frames of pandas and Polars and as relations of DuckDB: same rows, same types, clear errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import EngineFactory
from transom.runtime.handles import QueryHandle

SCHEMA = "card string, amount double, cents decimal(10, 2), big bigint, ts timestamp"
ROWS = [
    ("ann", 6.5, Decimal("1.10"), 2**60 + 1, "2024-01-01 12:00:05"),
    (None, None, None, None, "2024-01-01 12:00:10"),
    ("bob", 2.0, Decimal("2.20"), 1, "2024-01-01 12:01:30"),
]


@pytest.fixture
def query(make_engine: EngineFactory) -> Iterator[QueryHandle]:
    engine = make_engine()
    feed = engine.feed("tx", SCHEMA, time="ts")
    query = engine.register(
        "SELECT card, count(*) AS n, sum(amount) AS amount, sum(cents) AS cents, max(big) AS big, "
        "collect_list(card) AS cards FROM tx [RANGE 1 minute SLIDE 1 minute] GROUP BY card",
        "per_card",
    )
    feed.push(ROWS)
    engine.drain()
    assert query.results().num_rows == 3
    yield query  # the engine lives as long


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (row["window_end"], str(row["card"])))


def test_polars_has_the_same_rows(query: QueryHandle) -> None:
    frame = query.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.columns == query.results().column_names
    assert in_order(frame.to_dicts()) == in_order(query.results().to_pylist())


def test_pandas_has_the_same_rows(query: QueryHandle) -> None:
    frame = query.to_pandas(types_mapper=pandas.ArrowDtype)
    assert list(frame.columns) == query.results().column_names
    assert pa.Table.from_pandas(frame, preserve_index=False).to_pylist() == query.results().to_pylist()


def test_pandas_has_its_own_types_by_default(query: QueryHandle) -> None:
    frame = query.to_pandas()
    assert frame["n"].tolist() == query.results().column("n").to_pylist()
    assert str(frame["window_end"].dtype) == "datetime64[us, UTC]"


def test_duckdb_has_the_same_rows_and_reads_them_by_name(query: QueryHandle) -> None:
    found = query.to_duckdb()
    assert found.columns == query.results().column_names
    assert duckdb.sql("SELECT sum(n), max(big) FROM found").fetchall() == [(3, 2**60 + 1)]
    (row,) = duckdb.sql("SELECT cents, cards, epoch_us(window_end) FROM found WHERE card = 'bob'").fetchall()
    end = datetime(2024, 1, 1, 12, 2, tzinfo=UTC)
    assert row == (Decimal("2.20"), ["bob"], int(end.timestamp() * 1e6))


def test_duckdb_uses_the_connection_that_is_given(query: QueryHandle) -> None:
    with duckdb.connect() as connection:
        query.to_duckdb(connection).create("kept")
        assert connection.sql("SELECT count(*) FROM kept").fetchall() == [(3,)]


def test_a_query_of_a_server_has_them_too(query: QueryHandle, make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", SCHEMA, time="ts")
    engine.register("SELECT card, amount FROM tx WHERE amount > 5", "high")
    with transom.serving(engine, dashboard=False, start=False) as served:
        feed.push(ROWS)
        engine.step()
        with transom.connect(served.url) as server:
            remote = server.query("high")
            assert remote.to_polars()["card"].to_list() == ["ann"]
            assert remote.to_pandas()["card"].tolist() == ["ann"]
            assert remote.to_duckdb().fetchall()[0][1:3] == ("ann", 6.5)


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_an_error_names_the_package_that_is_missing(
    package: str, query: QueryHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package == "pandas":  # Arrow imports pandas once in a process

        def missing(*args: object, **options: object) -> None:
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

        monkeypatch.setattr(type(query), "results", lambda self: type("Table", (), {"to_pandas": missing})())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        transom.MissingPackage, match=rf"to_{package}\(\) needs the package {package}: pip install"
    ):
        getattr(query, f"to_{package}")()
