"""Results upserted into a table of PostgreSQL, and a static table that is read from it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.postgres.conftest import PASSWORD, USER
from tests.results.orders import ORDERS
from transom.backends.base import ResultKey
from transom.backends.spark.upserts import UpsertSink
from transom.errors import SettingError
from transom.storage.failpoints import arm

pytestmark = pytest.mark.postgres

COUNTS = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"


@pytest.fixture
def access(database: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TRANSOM_DB_PASSWORD", PASSWORD)
    return {"url": database, "user": USER, "password": "${env:TRANSOM_DB_PASSWORD}"}


def rows_of(engine: EngineFactory, database: str, table: str) -> list[dict[str, Any]]:
    rows = engine.session.read.format("jdbc").options(**plain(database, table)).load().collect()
    return [row.asDict() for row in rows]


def plain(database: str, table: str) -> dict[str, str]:
    """Options for Spark itself."""
    driver = "org.postgresql.Driver"
    return {"url": database, "user": USER, "password": PASSWORD, "dbtable": table, "driver": driver}


def fail_after_delivery(engine: Any) -> None:
    """Run a batch that is delivered and not committed."""

    def fail(point: str) -> None:
        if point == "delivery.end":
            raise OSError("the power is gone")

    arm(fail)
    try:
        with pytest.raises(OSError, match="power"):
            engine.step()
    finally:
        arm(None)
        engine.stop()


def test_results_are_upserted_exactly_once(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any], tmp_path: Path
) -> None:
    """A batch that fails after delivery runs again; early results and a null group are rows like others."""

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(f"{COUNTS} EMIT EARLY ON DEMAND", "counts")
        query.sink("jdbc", **access, dbtable="results", upsert=True)
        return engine, feed, query

    engine, feed, query = started()
    feed.push([(1, "2024-01-01 12:00:01"), (None, "2024-01-01 12:00:02"), (1, "2024-01-01 12:01:01")])
    fail_after_delivery(engine)
    assert len(rows_of(postgres_engine, database, "results")) == 2
    engine, feed, query = started()
    with engine:
        engine.step()
        feed.push([(1, "2024-01-01 12:01:02")])
        engine.drain()
        wanted = {
            (f"{row['window_end']:%H:%M}", row["site"]): row["n"] for row in query.results().to_pylist()
        }
    rows = rows_of(postgres_engine, database, "results")
    found = {(f"{row['window_end']:%H:%M}", row["site"]): row["n"] for row in rows}
    assert found == wanted == {("12:01", 1): 1, ("12:01", None): 1, ("12:02", 1): 2}
    assert len(rows) == 3 and {row["query"] for row in rows} == {"counts"}


@pytest.mark.parametrize(("table", "schema"), [("killed", "public"), ("shop.killed", "shop")])
def test_a_process_that_ends_leaves_no_table_behind(
    table: str,
    schema: str,
    postgres_engine: EngineFactory,
    database: str,
    access: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends when the rows are in the database and not in the table. Its own table is in the schema of the table."""
    sink = UpsertSink(postgres_engine.session, access | {"dbtable": table})
    sink._run(postgres_engine.session, ["CREATE SCHEMA IF NOT EXISTS shop"])

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        engine.register(COUNTS, "counts").sink("jdbc", **access, dbtable=table, upsert=True)
        return engine, feed

    def helpers() -> list[str]:
        tables = "(SELECT * FROM pg_tables WHERE tablename LIKE 'transom%') AS t"
        return [row["schemaname"] for row in rows_of(postgres_engine, database, tables)]

    run = UpsertSink._run

    def ended(sink: UpsertSink, spark: Any, statements: list[str]) -> None:
        if not statements[0].startswith("DO"):  # which drops what other processes have left
            raise SystemError("the process has ended")
        run(sink, spark, statements)

    engine, feed = started()
    feed.push([(1, "2024-01-01 12:00:01"), (1, "2024-01-01 12:01:01")])
    with monkeypatch.context() as patch:
        patch.setattr(UpsertSink, "_run", ended)
        with pytest.raises(SystemError):
            engine.step()
    engine.stop()
    assert helpers() == [schema]
    engine, feed = started()
    with engine:
        engine.step()
    assert helpers() == [] and len(rows_of(postgres_engine, database, table)) == 1


def test_results_without_a_window_are_written_exactly_once(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any], tmp_path: Path
) -> None:
    """Two rows of one instant are two results. A batch that runs again replaces its rows."""

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        rows = engine.register("SELECT site FROM bids WHERE site > 0", "rows")
        engine.register(COUNTS, "counts")
        rows.sink("jdbc", **access, dbtable="found", upsert=True)
        engine.sink("jdbc", **access, dbtable="everything", upsert=True)
        return engine, feed

    engine, feed = started()
    feed.push([(1, "2024-01-01 12:00:01"), (1, "2024-01-01 12:00:01"), (2, "2024-01-01 12:01:01")])
    fail_after_delivery(engine)
    engine, feed = started()
    with engine:
        engine.step()
        feed.push([(1, "2024-01-01 12:01:02")])
        engine.drain()
    assert sorted(row["site"] for row in rows_of(postgres_engine, database, "found")) == [1, 1, 1, 2]
    everything = rows_of(postgres_engine, database, "everything")
    assert sorted(row["query"] for row in everything) == ["counts"] * 3 + ["rows"] * 4


def test_a_query_with_a_column_query(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any]
) -> None:
    with postgres_engine() as engine:
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        text = "SELECT site AS query, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
        engine.register(text, "counts").sink("jdbc", **access, dbtable="by_query", upsert=True)
        feed.push([(1, "2024-01-01 12:00:01"), (2, "2024-01-01 12:00:02")])
        engine.drain()
    rows = rows_of(postgres_engine, database, "by_query")
    assert sorted((row["transom_query"], row["query"], row["n"]) for row in rows) == [
        ("counts", 1, 1),
        ("counts", 2, 1),
    ]


def test_a_table_is_refreshed_while_the_engine_runs(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any]
) -> None:
    def write(city: str) -> None:
        rows = postgres_engine.session.createDataFrame([(1, city)], "site int, city string")
        rows.write.format("jdbc").options(**plain(database, "sites")).mode("overwrite").save()

    write("Oslo")
    with postgres_engine() as engine:
        engine.table("sites", format="jdbc", options=access | {"dbtable": "sites"}, refresh="200 ms")
        feed = engine.feed("bids", "site int, ts timestamp", time="ts")
        query = engine.register(
            "SELECT city, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute], sites "
            "WHERE bids.site = sites.site GROUP BY city"
        )
        engine.start()
        write("Rome")
        cities: set[str] = set()
        for minute in range(59):
            feed.push([(1, f"2024-01-01 12:{minute:02}:01")])
            engine.await_termination(0.5)
            cities = {row["city"] for row in query.results().to_pylist()}
            if "Rome" in cities:
                break
        assert "Rome" in cities


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "wrong"}, "can't connect to the database: .*password authentication failed"),
        ({"url": "jdbc:derby:x"}, "upsert is for PostgreSQL"),
        ({"dbtabel": "x"}, "no option dbtabel; did you mean dbtable"),
    ],
)
def test_wrong_sinks_are_refused(
    postgres_engine: EngineFactory, access: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    with postgres_engine() as engine, pytest.raises(SettingError, match=says) as raised:
        engine.sink("jdbc", **(access | {"dbtable": "t"} | change), upsert=True)
    assert PASSWORD not in str(raised.value)


def test_corrections_replace_rows_and_retractions_delete_them(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any], tmp_path: Path
) -> None:
    """The batch with the corrections fails after delivery, and runs again."""
    text = (
        f"{COUNTS.replace('count(*)', 'sum(price)')} HAVING sum(price) < 10 EMIT CORRECTIONS WITHIN '1 hour'"
    )

    def started() -> Any:
        engine = postgres_engine(tmp_path / "checkpoint")
        feed = engine.feed("bids", "site int, price double, ts timestamp", time="ts")
        query = engine.register(text, "sums")
        query.sink("jdbc", **access, dbtable="corrected", upsert=True)
        engine.sink("jdbc", **access, dbtable="all_corrected", upsert=True)
        return engine, feed, query

    engine, feed, query = started()
    feed.push([(1, 1.0, "2024-01-01 12:00:01"), (None, 2.0, "2024-01-01 12:00:02")])
    feed.push([(1, 1.0, "2024-01-01 12:05:01")])
    engine.step()
    assert {row["n"] for row in rows_of(postgres_engine, database, "corrected")} == {1.0, 2.0}
    feed.push([(1, 3.0, "2024-01-01 12:00:03"), (None, 9.0, "2024-01-01 12:00:04")])
    fail_after_delivery(engine)
    engine, feed, query = started()
    with engine:
        engine.step()
        newest = {row["site"]: row["n"] for row in query.latest().to_pylist()}
    assert newest == {1: 4.0}
    for table in ("corrected", "all_corrected"):
        assert len(rows_of(postgres_engine, database, table)) == 1
    (row,) = rows_of(postgres_engine, database, "corrected")
    assert (row["site"], row["n"], row["kind"], row["revision"]) == (1, 4.0, "correction", 1)


def test_the_last_result_of_a_key_in_a_batch_counts(
    postgres_engine: EngineFactory, database: str, access: dict[str, Any]
) -> None:
    """A site for each order of results; all have a result from an earlier batch."""
    sink = postgres_engine.backend.sink("jdbc", {**access, "dbtable": "ordered", "upsert": True})
    before = [(site, "final") for site in range(len(ORDERS))]
    parts = [(site, kind) for site, (kinds, _, _) in enumerate(ORDERS) for kind in kinds]
    for batch_id, rows in enumerate((before, parts)):
        columns = {"site": [site for site, _ in rows], "kind": [kind for _, kind in rows]}
        table = pa.table(columns | {"batch": [batch_id] * len(rows)})
        sink.write(postgres_engine.backend.frame(table), batch_id, ResultKey(("site",), "q"))
    newest = {site: kind for site, (_, _, kind) in enumerate(ORDERS) if kind is not None}
    found = rows_of(postgres_engine, database, "ordered")
    assert {row["site"]: row["kind"] for row in found} == newest
    assert set(found[0]) == {"query", "site", "kind", "batch"}
