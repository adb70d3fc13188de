"""The option `select`: an SQL view over the rows of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SettingError, SQLError

LINES = """{"site": 1, "price": 2.5, "when": "2024-01-01 12:00:01"}
{"site": 2, "price": -1.0, "when": "2024-01-01 12:00:02"}
not json
{"site": 1, "price": 4.0, "when": "2024-01-01 12:00:03"}
"""
SCHEMA = "site int, price double, when timestamp"
SELECT = "SELECT site, price * 2 AS doubled, `when` AS ts FROM bids WHERE price > 0;"
SQL = "SELECT site, sum(doubled) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"


@ON_BOTH
def test_files_are_selected_and_corrupt_rows_are_rejected(make_engine: EngineFactory, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(LINES)
    with make_engine() as engine:
        engine.stream("bids", str(tmp_path), format="json", schema=SCHEMA, select=SELECT, time="ts")
        assert list(engine.streams()["bids"].columns) == ["site", "doubled", "ts"]
        query = engine.register(SQL)
        engine.drain()
        assert [(row["site"], row["total"]) for row in query.results().to_pylist()] == [(1, 13.0)]
        assert [row["_corrupt_record"] for row in engine.rejected("bids").to_pylist()] == ["not json"]
        assert engine.progress().streams["bids"].rows == 3  # the filtered row is no row of the stream


@ON_BOTH
def test_rows_and_tables_are_selected(make_engine: EngineFactory) -> None:
    bids = pa.table(
        {"s": [1, 2, 1], "p": [1.0, 2.0, 4.0], "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}
    )
    sites = pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Bern"]})
    with make_engine() as engine:
        engine.table(
            "sites",
            make_engine.rows(sites),
            select="SELECT id AS site, upper(city) AS city FROM sites WHERE id < 3",
        )
        engine.stream("bids", make_engine.rows(bids), select="SELECT *, p + 1 AS more FROM bids", time="t")
        query = engine.register(
            "SELECT city, sum(more) AS total FROM bids [RANGE 1 minute SLIDE 1 minute], sites "
            "WHERE bids.s = sites.site GROUP BY city"
        )
        engine.drain()
        assert {row["city"]: row["total"] for row in query.results().to_pylist()} == {
            "OSLO": 7.0,
            "ROME": 3.0,
        }


REFUSED = [
    ("SELECT site FROM others", "select reads bids: end it with FROM bids"),
    ("SELECT site", "select reads bids"),
    ("SELECT nothing FROM bids", "nothing"),
    ("SELECT count(*) AS n FROM bids", "count"),
    ("SELECT site FROM bids GROUP BY site", "GROUP belongs to the queries"),
    ("SELECT DISTINCT site FROM bids", "DISTINCT"),
    ("SELECT site FROM bids LIMIT 3", "LIMIT"),
    ("SELECT site FROM bids ORDER BY site", "ORDER"),
    ("SELECT site FROM bids WHERE price", "expected a condition"),
    ("SELECT explode(array(site)) AS s FROM bids", "explode"),
    ("SELECT site FROM bids UNION ALL SELECT site FROM bids", "."),
    ("SELEC site FROM bids", "."),
]


@pytest.mark.parametrize(("select", "says"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_no_projection_is_refused(make_engine: EngineFactory, select: str, says: str) -> None:
    rows: Any = pa.table({"site": [1], "price": [1.0], "ts": pa.array([1], pa.timestamp("us", "UTC"))})
    with make_engine() as engine, pytest.raises((SettingError, SQLError), match=says):
        engine.stream("bids", rows, select=select, time="ts")
