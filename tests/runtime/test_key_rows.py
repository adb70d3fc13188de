"""Windows of the last rows of each key in an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import BIDS, answers, bids, bids_engine, bids_files
from transom.aggregates.run_tree import RunTree
from transom.errors import CostError, SQLError

LAST_THREE = "SELECT site, sum(price) AS s FROM bids [PARTITION BY site ROWS 3 SLIDE 1] GROUP BY site"


def step(engine: transom.Engine, feed: Any, *rows: tuple[Any, Any, str]) -> None:
    feed.push(bids(*rows))
    engine.step()


@ON_BOTH
def test_every_row_of_a_key_ends_a_window_of_its_last_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(LAST_THREE, "last")
    step(engine, feed, (1, 1.0, "12:00"), (2, 10.0, "12:01"), (1, 2.0, "12:02"))
    step(engine, feed, (1, 8.0, "12:04"), (1, 4.0, "12:03"), (2, 20.0, "12:05"))  # by time within a batch
    assert answers(query) == [
        (-2, 1, 1, 1.0), (-2, 1, 2, 10.0), (-1, 2, 1, 3.0), (-1, 2, 2, 30.0), (0, 3, 1, 7.0), (1, 4, 1, 14.0),
    ]  # fmt: skip
    assert (query.account.rows, query.account.counted) == (6, 6)


@ON_BOTH
def test_windows_over_files(make_engine: EngineFactory, tmp_path: Path) -> None:
    batches = [
        [(1, 1.0, "12:00"), (2, 2.0, "12:05"), (1, 4.0, "12:10")],
        [(1, 8.0, "12:20"), (None, 16.0, "12:40")],
    ]
    engine = make_engine(tmp_path / "checkpoint")
    place = str(bids_files(tmp_path / "bids", *batches))
    engine.stream("bids", place, time="ts", schema=BIDS, files_per_batch=1)
    query = engine.register(LAST_THREE.replace("SLIDE 1", "SLIDE 2"), "last")
    engine.drain()
    assert answers(query) == [(-1, 2, 1, 5.0)]


def test_rows_are_numbered_before_where_and_shared_by_all_conditions(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    high = engine.register(LAST_THREE.replace("GROUP", "WHERE price > 3 GROUP"), "high")
    engine.register(LAST_THREE.replace("ROWS 3", "ROWS 2"), "two")
    step(
        engine, feed, *((1, price, f"12:0{number}") for number, price in enumerate([5.0, 1.0, 2.0, 3.0, 7.0]))
    )
    assert answers(high, "s", "rows") == [(-2, 1, 5.0, 1), (-1, 2, 5.0, 1), (0, 3, 5.0, 1), (2, 5, 7.0, 1)]
    text = engine.explain(verbose=True)
    assert "2 queries in 1 selection of 1 family" in text
    assert (
        "rows shared by 2 queries with 2 kinds of window: the last rows of each key, kept on the driver"
        in text
    )
    assert (
        "holds 2 slices, 2 rows, on the driver" in text
    )  # of the last three, the oldest is not needed any more


def test_numbers_go_on_after_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(LAST_THREE, "last")
    step(engine, feed, (1, 1.0, "12:00"), (1, 2.0, "12:01"))
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    step(engine, feed, (1, 4.0, "12:02"), (1, 8.0, "12:03"))
    assert answers(engine.query("last"), "s")[2:] == [(0, 3, 7.0), (1, 4, 14.0)]


def test_a_query_numbers_rows_from_when_it_joins(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(LAST_THREE, "first")
    step(engine, feed, (1, 1.0, "12:00"))
    second = engine.register(LAST_THREE, "second")
    step(engine, feed, (1, 2.0, "12:01"))
    assert answers(second, "s", "complete") == [(-2, 1, 2.0, True)]


def test_windows_in_progress_are_prodded_and_the_end_ends_none(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(LAST_THREE.replace("ROWS 3 SLIDE 1", "ROWS 4 SLIDE 2"), "last")
    step(engine, feed, (1, 1.0, "12:00"), (1, 2.0, "12:01"), (1, 4.0, "12:02"), (2, 8.0, "12:02"))
    assert answers(query.prod(), "site", "s") == [
        (-2, 2, 2, 8.0),
        (0, 4, 1, 7.0),
        (0, 4, 2, 8.0),
        (2, 6, 1, 4.0),
    ]
    assert answers(query.prod(where={"site": 1}), "site", "s") == [(0, 4, 1, 7.0), (2, 6, 1, 4.0)]
    engine.flush("bids")
    engine.step(empty=True)
    finals = query.results().filter(transom_kind(query.results(), "final"))
    assert answers(finals, "site", "s") == [(-2, 2, 1, 3.0)]


def transom_kind(table: Any, kind: str) -> Any:
    return [found == kind for found in table["kind"].to_pylist()]


def test_what_is_refused_says_why(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.register(LAST_THREE, "last")
    with pytest.raises(SQLError, match="each key has its own row numbers"):
        engine.register("SELECT max(s) FROM last [RANGE 10 SLIDE 10]")
    with pytest.raises(CostError, match=r"50,000 rows kept for each key.*rows_of_key"):
        engine.register(LAST_THREE.replace("ROWS 3", "ROWS 50000"))


def test_queries_with_other_conditions_do_not_combine_each_others_states(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    combined = []
    combine = RunTree.combine

    def counted(runs: RunTree, *rest: Any) -> Any:
        combined.append(len(runs.starts))
        return combine(runs, *rest)

    engine, feed = bids_engine(make_engine, tmp_path)
    queries = [
        engine.register(LAST_THREE.replace("GROUP", f"WHERE price > {limit} GROUP"), f"q{limit}")
        for limit in range(20)
    ]
    step(engine, feed, (1, 0.5, "12:00"))
    monkeypatch.setattr(RunTree, "combine", counted)
    step(engine, feed, *((1, float(price), f"12:{price:02}") for price in range(1, 31)))
    assert [len(answers(query)) for query in queries] == [31, *range(29, 10, -1)]
    windows = 20 * 30
    assert sum(combined) <= 3 * windows, "each window combines the sum and the count of its own query"
