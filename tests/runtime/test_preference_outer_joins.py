"""Outer joins WITH PREFERENCE in a running engine; the oracle's answers are in `tests/differential`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import committed
from tests.runtime.fault_helpers import Crash, Fault
from tests.runtime.preference_helpers import NOON, SALES, Sale, sale, sales
from transom.errors import BatchError
from transom.plan.limits import Limits
from transom.promising import execution
from transom.storage.file_store import Store

WINDOW = 5
SHORT = "WITH GRANULARITY '10 seconds' AND COLLAPSE(2, 1)"
LEFT = (
    "SELECT a.item AS x, a.price AS one, b.price AS other, a.ts AS here"
    " FROM store1 a LEFT JOIN store2 b ON a.item = b.item {}"
    " WITH PREFERENCE {} SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item) WINDOW '5 seconds' {}"
)


def two_stores(
    make_engine: EngineFactory, place: Path, kind: str = "int", **settings: Any
) -> tuple[transom.Engine, dict[int, Any]]:
    """An engine with two stores whose summaries keep ten seconds."""
    engine = make_engine(str(place / "checkpoint"), **settings)
    schema = SALES.replace("item int", f"item {kind}")
    feeds = {number: engine.feed(f"store{number}", schema, time="ts") for number in (1, 2)}
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SHORT}")
    return engine, feeds


def numbered(sold: list[Sale], first: int) -> list[Sale]:
    """Sales with a price of their own."""
    return [(item, float(first + place), time) for place, (item, _, time) in enumerate(sold)]


def left_joined(first: list[Sale], second: list[Sale]) -> Counter[Any]:
    """All rows of the left join, once both streams have ended."""
    rows: Counter[Any] = Counter()
    for item, one, here in first:
        partners = [
            other
            for same, other, there in second
            if item is not None and item == same and abs((here - there).total_seconds()) <= WINDOW
        ]
        rows.update((one, other) for other in partners or [None])
    return rows


def rows_of(query: Any) -> Counter[Any]:
    return Counter((row["one"], row["other"]) for row in query.results().to_pylist())


def end(engine: transom.Engine) -> None:
    for number in (1, 2):
        engine.flush(f"store{number}")
    while engine.step():
        pass


def test_a_tuple_without_a_partner_is_returned_once_when_its_window_has_passed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    query = engine.register(LEFT.format("", "desc", ""), "left")
    feeds[1].push([sale(1, 0, 1.0), sale(2, 0, 2.0), sale(None, 0, 3.0)])
    engine.step()
    assert rows_of(query) == Counter([(3.0, None)]), "NULL has no partner"
    feeds[2].push([sale(1, 4, 4.0), sale(2, 6, 6.0)])
    engine.step()
    assert rows_of(query) == Counter([(3.0, None), (1.0, 4.0)])
    for second in (15.0, 15.1):  # tuples of store 2 are late before 5 seconds and a bit
        for number, feed in feeds.items():
            feed.push([sale(7 + number, second, second)])
            engine.step()
        assert rows_of(query)[2.0, None] == (second > 15)
    assert query.coverage().produced == 1, "what is returned without a partner is no pair"
    assert "left join of store1" in str(engine.explain())
    engine.stop()


def test_a_stream_that_is_joined_as_well_and_lags_behind_delays_tuples_without_a_partner(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """While the third store lags behind, no tuple of the second is late. A batch of the third store ends the wait."""
    engine, feeds = two_stores(make_engine, tmp_path)
    third = engine.feed("store3", SALES, time="ts")
    engine.execute(f"CREATE SUMMARY items3 ON store3(item) {SHORT}")
    query = engine.register(LEFT.format("", "desc", ""), "left")
    engine.register(
        "SELECT b.item FROM store2 b JOIN store3 c ON b.item = c.item"
        " WITH PREFERENCE desc SUMMARY.Estimate.Count(b.item) WINDOW '1 second'"
    )
    feeds[1].push([sale(1, 0, 1.0), sale(8, 30, 2.0)])
    engine.step()
    feeds[2].push([sale(9, 30, 3.0)])
    engine.step()
    assert not rows_of(query), "store 3 has brought nothing"
    waiting = engine._loop.state.promising.queries["left"].unmatched.waiting[0]
    third.push([sale(7, 15, 4.0)])
    engine.step()
    assert not rows_of(query), "a partner at 5 seconds would not be late"
    after = engine._loop.state.promising.queries["left"].unmatched.waiting[0]
    assert after is waiting, "the same object: the checkpoint packs it once"
    third.push([sale(7, 15.1, 5.0)])
    engine.step()
    assert rows_of(query) == Counter([(1.0, None)])
    assert query.results().to_pylist()[0]["complete"]
    feeds[2].push([sale(1, 4, 6.0)])
    engine.step()
    assert rows_of(query) == Counter([(1.0, None)]), "this tuple is late"
    engine.stop()


def test_a_tuple_whose_partner_may_have_come_in_a_pause_is_not_returned_alone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    query = engine.register(LEFT.format("", "desc", ""), "left")
    feeds[1].push([sale(1, 0, 1.0)])
    engine.step()
    query.pause()
    feeds[2].push([sale(2, 3, 2.0)])
    engine.step()
    query.resume()
    feeds[1].push([sale(2, 8, 3.0), sale(3, 9, 4.0)])
    engine.step()
    end(engine)
    assert rows_of(query) == Counter([(4.0, None)]), "store 2 had come to 3 seconds"
    engine.stop()


def test_a_window_query_over_an_outer_join_gets_every_row_in_time(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    rng, sold = np.random.default_rng(seed), {1: list[Sale](), 2: list[Sale]()}
    engine, feeds = two_stores(make_engine, tmp_path)
    text = "SELECT count(*) AS n, count(other) AS pairs, max(one) AS most FROM `left` [RANGE '10 s' SLIDE '10 s']"
    queries = engine.register_all({"left": LEFT.format("", "desc", ""), "reader": text})
    for batch in range(16):
        number = int(rng.integers(1, 3)) if batch < 14 else batch - 13
        rows = numbered(sales(rng, 6.0 * batch, rows=12, seconds=6.0), 1000 * batch)
        rows.sort(key=lambda row: row[2])
        sold[number] += rows
        feeds[number].push(rows)
        engine.step()
        if batch == 7:
            engine.stop()
            engine, feeds = two_stores(make_engine, tmp_path)
            queries = {name: engine.query(name) for name in queries}
    reported = queries["reader"].results().num_rows
    assert reported > 0
    end(engine)
    assert rows_of(queries["left"]) == left_joined(sold[1], sold[2]), seed
    windows: Counter[Any] = Counter()
    paired: Counter[Any] = Counter()
    times = {price: time for rows in sold.values() for _, price, time in rows}
    for (one, other), count in left_joined(sold[1], sold[2]).items():
        time = times[one] if other is None else max(times[one], times[other])
        window = int((time - NOON).total_seconds() // 10 + 1) * 10
        windows[window] += count
        paired[window] += 0 if other is None else count
    rows_found = queries["reader"].results().to_pylist()
    ends = [int((row["window_end"] - NOON).total_seconds()) for row in rows_found]
    assert dict(zip(ends, [row["n"] for row in rows_found], strict=True)) == dict(windows), seed
    assert dict(zip(ends, [row["pairs"] for row in rows_found], strict=True)) == dict(paired), seed
    assert queries["reader"].late().num_rows == 0 and all(row["complete"] for row in rows_found)
    engine.stop()


@pytest.mark.parametrize("budget", ["", "BUDGET 5 PROBES"])
@pytest.mark.parametrize("part", ["log/", "results/", "state/", "runs/"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_batch_that_fails_returns_its_tuples_without_a_partner_once(
    part: str,
    after: bool,
    budget: str,
    make_engine: EngineFactory,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    engine.register(LEFT.format("", "desc", budget), "left")
    rng, sold = np.random.default_rng(seed), {1: list[Sale](), 2: list[Sale]()}
    for batch in range(8):
        number = batch % 2 + 1
        rows = numbered(sales(rng, 5.0 * batch, rows=20, seconds=5.0), 1000 * batch)
        sold[number] += rows
        feeds[number].push(rows)
        if batch != 6:
            engine.step()
            continue
        with monkeypatch.context() as patch:
            Fault(patch, Store, "write", lambda store, name, *rest: name.startswith(part), after)
            with pytest.raises((Crash, BatchError)):
                engine.step()
        engine.stop()
        engine, feeds = two_stores(make_engine, tmp_path)
        if part == "log/" and not after:
            feeds[number].push(rows)  # no batch was bound to it
        while engine.step():
            pass
    end(engine)
    found, expected = rows_of(engine.query("left")), left_joined(sold[1], sold[2])
    if budget:
        assert not found - expected, seed
        found, expected = (
            Counter({row: n for row, n in one.items() if row[1] is None}) for one in (found, expected)
        )
    assert found == expected, seed
    engine.stop()


@pytest.mark.parametrize("budget", ["", "BUDGET 3 PROBES"])
def test_different_values_with_the_same_hash_are_no_partners(
    budget: str, make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "key_sql", lambda column, kind: f"xxhash64(length(`{column}`))")
    engine, feeds = two_stores(make_engine, tmp_path, "string")
    query = engine.register(LEFT.format("", "desc", budget), "left")
    batches = [
        (1, [sale("ab", 0, 1.0), sale("cd", 0, 2.0), sale("xyz", 0, 3.0)]),
        (2, [sale("ef", 1, 4.0), sale("cd", 1, 5.0)]),
        (1, [sale("ef", 2, 6.0), sale("gh", 2, 7.0)]),
    ]
    for number, rows in batches:
        feeds[number].push(rows)
        engine.step()
    end(engine)
    assert rows_of(query) == Counter([(1.0, None), (3.0, None), (7.0, None), (2.0, 5.0), (6.0, 4.0)])
    engine.stop()


@ON_BOTH
def test_tuples_of_an_outer_join_stay_on_the_driver(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    """Also if those of a query from before have moved to the executors."""
    rng, sold = np.random.default_rng(seed), {1: list[Sale](), 2: list[Sale]()}
    limits = Limits(driver_tuples=30)
    engine, feeds = two_stores(make_engine, tmp_path, limits=limits)
    inner = engine.register(LEFT.format("", "desc", "").replace("LEFT JOIN", "JOIN"), "inner")
    left, since = None, {1: 0, 2: 0}
    for batch in range(10):
        number = batch % 2 + 1
        if batch == 4:
            assert committed(tmp_path)[0].promising.summaries["items1"].files
            left = engine.register(LEFT.format("", "desc", ""), "left")
            since = {store: len(rows) for store, rows in sold.items()}
        rows = numbered(
            sales(rng, 4.0 * batch + (40 if batch >= 4 else 0), rows=40, seconds=4.0), 1000 * batch
        )
        sold[number] += rows
        feeds[number].push(rows)
        engine.step()
    end(engine)
    kept = committed(tmp_path)[0].promising.summaries["items1"]
    assert sum(run.rows for run in kept.runs) > 30
    assert left is not None
    assert rows_of(left) == left_joined(sold[1][since[1] :], sold[2][since[2] :]), seed
    pairs = left_joined(sold[1], sold[2])
    assert rows_of(inner) == Counter({row: n for row, n in pairs.items() if row[1] is not None}), seed
    engine.stop()


def test_static_tables_are_joined_to_the_tuples_of_an_outer_join(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    engine.table("goods", [{"item": n, "kind": "ab"[n % 2]} for n in range(1, 4)])
    one, other = "JOIN goods g ON a.item = g.item", "LEFT JOIN goods h ON b.item = h.item"
    text = LEFT.format(f"{one} {other} WHERE g.kind = 'b'", "desc", "").replace(
        "a.ts AS here", "g.kind AS mine, h.kind AS theirs"
    )
    query = engine.register(text, "left")
    feeds[1].push([sale(1, 0, 1.0), sale(2, 0, 2.0), sale(3, 0, 3.0), sale(7, 0, 7.0)])
    engine.step()
    feeds[2].push([sale(1, 1, 4.0), sale(7, 1, 5.0)])
    engine.step()
    end(engine)
    found = sorted(
        (row["one"], row["other"], row["mine"], row["theirs"]) for row in query.results().to_pylist()
    )
    assert found == [(1.0, 4.0, "b", "b"), (3.0, None, "b", None)]
    engine.stop()


# --- ends ---


def preferred(engine: transom.Engine, name: str = "left") -> transom.QueryHandle:
    return engine.register(LEFT.format("", "desc", ""), name)


def test_a_stream_with_sidelined_rows_has_not_ended_for_an_outer_join(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feeds = {
        number: engine.feed(f"store{number}", SALES, time="ts", budget=1, overload="sideline")
        for number in (1, 2)
    }
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SHORT}")
    query = preferred(engine)
    first, second = (
        [sale(item, 1, item) for item in (1, 2, 3)],
        [sale(item, 1, 10 + item) for item in (1, 2, 3)],
    )
    for number, sold in ((1, first), (2, second)):
        feeds[number].push(sold)
        engine.step(1)
    assert len(query.results()) < 3
    end(engine)
    assert rows_of(query) == left_joined(first, second)


@pytest.mark.parametrize("name", ["store1", "store2", "left"])
def test_an_outer_join_may_have_the_name_of_a_stream(
    make_engine: EngineFactory, tmp_path: Path, name: str
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    query = preferred(engine, name)
    first, second = [sale(1, 0, 1)], [sale(2, 0, 2)]
    for number, sold in ((1, first), (2, second)):
        feeds[number].push(sold)
        engine.step()
    engine.flush("store1")
    engine.step()
    assert not rows_of(query)
    feeds[2].push([sale(1, 1, 3)])
    engine.step()
    end(engine)
    assert rows_of(query) == left_joined(first, [*second, sale(1, 1, 3)])


def test_an_outer_join_that_is_renamed_in_the_batch_of_its_end_ends(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = two_stores(make_engine, tmp_path)
    query = preferred(engine)
    for number in (1, 2):
        feeds[number].push([sale(number, 0, number)])
        engine.step()
    query.rename("renamed")
    end(engine)
    assert rows_of(engine.query("renamed")) == {(1.0, None): 1}


def test_a_stream_that_has_not_begun_is_waited_for(make_engine: EngineFactory) -> None:
    now = [1_767_268_800_000_000]
    engine = make_engine(clock=lambda: now[0])
    feeds = {
        number: engine.feed(f"store{number}", SALES, time="ts", idle=idle)
        for number, idle in ((1, "5 seconds"), (2, None))
    }
    for number in feeds:
        engine.execute(f"CREATE SUMMARY items{number} ON store{number}(item) {SHORT}")
    query = preferred(engine)
    feeds[1].push([sale(1, 0, 1)])
    engine.step()
    now[0] += 6_000_000
    engine.step()
    assert not rows_of(query)
    feeds[2].push([sale(1, 1, 3)])
    engine.step()
    assert rows_of(query) == {(1.0, 3.0): 1}
