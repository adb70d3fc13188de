"""Views of an engine: shared, stored in the checkpoint, listed, and refused where they clash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import at, bids, bids_engine
from transom.errors import SQLError, StateError

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
HIGH = "SELECT ts, site, price * 2 AS twice FROM bids WHERE price > 10"
ROWS = bids((1, 5.0, "12:00:10"), (1, 20.0, "12:00:20"), (2, 30.0, "12:00:30"), (2, 1.0, "12:01:10"))


def sums(query: object) -> list[tuple[int, float]]:
    table = query.results()  # type: ignore[attr-defined]
    return sorted(zip(table["site"].to_pylist(), table["total"].to_pylist(), strict=True))


@ON_BOTH
def test_queries_over_a_view_share_with_those_that_write_it_out(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    engine.execute("CREATE VIEW sites_of_high AS SELECT site, twice FROM high WHERE site > 1;")
    over = engine.register(f"SELECT site, sum(twice) AS total FROM high {WINDOW} GROUP BY site", "over")
    by_hand = engine.register(
        f"SELECT site, sum(price * 2) AS total FROM bids {WINDOW} WHERE price > 10 GROUP BY site", "by_hand"
    )
    second = engine.register(f"SELECT site, sum(twice) AS total FROM sites_of_high {WINDOW} GROUP BY site")
    feed.push(ROWS)
    engine.step()
    assert sums(over) == sums(by_hand) == [(1, 40.0), (2, 60.0)]
    assert sums(second) == [(2, 60.0)]
    plan = engine.explain()
    assert "slices shared by 2 queries" in plan
    assert "view high: SELECT ts, site, price * 2 AS twice FROM bids WHERE price > 10; inlined into" in plan
    assert "reads the view high" in over.explain()
    assert "reads the view" not in by_hand.explain()
    view = engine.views()["sites_of_high"]
    assert (view.stream, list(view.columns), view.readers) == ("bids", ["site", "twice"], ("q1",))


def test_views_are_in_the_checkpoint(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    text = f"SELECT site, sum(twice) AS total FROM high {WINDOW} GROUP BY site"
    engine.register(text, "over")
    feed.push(ROWS[:2])
    engine.step()
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    assert engine.views()["high"].text == HIGH
    engine.view("high", HIGH + ";")  # a program that starts again
    assert engine.register(text, "over").text == text
    feed.push(ROWS[2:])
    engine.step()
    assert sums(engine.query("over")) == [(1, 40.0), (2, 60.0)]
    engine.stop()
    with pytest.raises(StateError, match="there is a view named high already"):
        make_engine(str(tmp_path / "checkpoint")).feed("high", "ts timestamp", time="ts")


def test_a_view_and_its_reader_can_leave_together(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    engine.view("higher", "SELECT * FROM high WHERE twice > 50")
    query = engine.register(f"SELECT count(*) AS n FROM higher {WINDOW}", "over")
    feed.push(ROWS)
    with pytest.raises(StateError, match="the view high is read by over, higher and can't be dropped"):
        engine.execute("DROP VIEW high")
    engine.step()
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.query("over").drop()
    engine.execute("DROP VIEW higher")
    engine.execute("drop view HIGH")
    engine.execute("DROP VIEW IF EXISTS high")
    engine.view("high", "SELECT site FROM bids")  # another one with the same name
    engine.step(empty=True)
    assert list(engine.views()) == ["high"]
    assert query.name not in engine.queries()


CLASHES = {
    "CREATE VIEW bids AS SELECT * FROM high": "there is a stream named bids already",
    "CREATE VIEW Over AS SELECT * FROM high": "there is a query named over already",
    "CREATE VIEW HIGH AS SELECT * FROM bids": "there is a view high already, with another text",
    "CREATE OR REPLACE VIEW high AS SELECT * FROM bids": "is read by over and can't be replaced",
    "CREATE VIEW x AS SELECT * FROM x": "the view x can't read itself",
    "CREATE OR REPLACE VIEW unread AS SELECT * FROM unread": "the view unread can't read itself",
    "DROP VIEW hig": "there is no view named hig; did you mean high",
    "CREATE VIEW x AS SELECT count(*) AS n FROM bids": r"count\(\) is not supported in a view",
}


@pytest.mark.parametrize("statement", CLASHES)
def test_statements_that_are_refused(make_engine: EngineFactory, tmp_path: Path, statement: str) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    engine.view("unread", "SELECT site FROM bids")
    engine.register(f"SELECT count(*) AS n FROM high {WINDOW}", "over")
    with pytest.raises((StateError, SQLError), match=CLASHES[statement]):
        engine.execute(statement)


def test_names_of_views_are_not_those_of_queries(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    with pytest.raises(StateError, match="there is a view named high already"):
        engine.register(f"SELECT count(*) AS n FROM bids {WINDOW}", "High")
    with pytest.raises(SQLError, match="high is a view; a query WITH PREFERENCE reads streams only"):
        engine.register("SELECT site FROM high WITH PREFERENCE desc twice")
    with pytest.raises(SQLError, match="a summary is of a stream, and high is a view"):
        engine.execute("CREATE SUMMARY s ON high(site) WITH GRANULARITY '1 minute'")


def test_a_view_that_nothing_reads_can_be_replaced(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.view("high", HIGH)
    engine.execute("CREATE OR REPLACE VIEW high AS SELECT site FROM bids WHERE price > 25")
    query = engine.register(f"SELECT count(*) AS n FROM high {WINDOW}")
    feed.push([*ROWS, (1, 1.0, at("12:05"))])
    engine.step()
    assert query.results()["n"].to_pylist() == [1]
