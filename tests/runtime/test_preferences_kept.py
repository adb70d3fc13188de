"""What queries WITH PREFERENCE keep: over restarts and faults, for as long as it is needed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import committed
from tests.runtime.fault_helpers import Crash, Fault
from tests.runtime.preference_helpers import JOIN, SALES, SUMMARY, joined, pairs, sale, sales, sell, stores
from transom.errors import BatchError, SettingError, SQLError, StateError
from transom.plan.limits import Limits
from transom.promising.structure_review import ChosenStructure, StructureReview
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store


def test_a_restart_at_every_batch_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    text = f"{JOIN.format('desc')} BUDGET 150 PROBES"
    found = {}
    for kind in ("whole", "restarted"):
        engine, feeds = stores(make_engine, tmp_path / kind)
        engine.register(text, "cut")
        rng = np.random.default_rng(seed)
        for batch_id in range(6):
            feeds[batch_id % 2 + 1].push(sales(rng, 10.0 * batch_id))
            engine.step()
            if kind == "restarted":
                engine.stop()
                engine, feeds = stores(make_engine, tmp_path / kind)
        engine.step()
        found[kind] = pairs(engine.query("cut")), engine.query("cut").coverage()
        assert engine.summaries()["items1"].arrived == 120
        engine.stop()
    assert found["whole"] == found["restarted"]


@pytest.mark.parametrize(
    ("state", "part"),
    [
        *itertools.product(["driver", "executors"], ["log/", "results/", "state/"]),
        ("driver", "runs/"),  # far, tuples are in files of tasks
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_batch_that_fails_is_made_once(
    part: str,
    after: bool,
    state: str,
    make_engine: EngineFactory,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 4", state=state)
    engine.register(f"{JOIN.format('desc')} BUDGET 300 PROBES", "cut")
    rng = np.random.default_rng(seed)
    rows = [sales(rng, 0.0), sales(rng, 5.0)]
    feeds[1].push(rows[0])
    engine.step()
    feeds[2].push(rows[1])
    with monkeypatch.context() as patch:
        Fault(patch, Store, "write", lambda store, name, *rest: name.startswith(part), after)
        with pytest.raises((Crash, BatchError)):
            engine.step()
    engine.stop()
    again, feeds = stores(make_engine, tmp_path, "AND BUCKETS 4", state=state)
    if part == "log/" and not after:
        feeds[2].push(rows[1])  # no batch was bound to it
    while again.step():
        pass
    assert pairs(again.query("cut")) == joined(*rows)
    again.stop()


def test_a_query_sees_what_came_since_it_joined(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    feeds[1].push([sale(1, 0)])
    engine.step()
    query = engine.register(JOIN.format("desc"), "late comer")
    feeds[1].push([sale(1, 1)])
    engine.step()
    feeds[2].push([sale(1, 2)])
    engine.step()
    assert pairs(query) == joined([sale(1, 1)], [sale(1, 2)])
    query.drop()
    feeds[2].push([sale(1, 3)])
    engine.step()
    assert pairs(query).total() == 1, "it has left"
    again = engine.register(JOIN.format("desc"), "late comer")
    engine.step()
    assert again.results().num_rows == 0
    engine.stop()


def test_a_query_that_was_paused_does_not_see_what_came_meanwhile(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """No query reads prices while it is paused, so they are not kept."""
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT a.price AS one, b.price AS other FROM store1 a JOIN store2 b ON a.item = b.item "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item)",
        "paused",
    )
    feeds[2].push([sale(1, 0, price=1.0)])
    engine.step()
    query.pause()
    feeds[2].push([sale(1, 1, price=2.0)])
    engine.step()
    query.resume()
    feeds[2].push([sale(1, 2, price=3.0)])
    engine.step()
    engine.stop()
    engine, feeds = stores(make_engine, tmp_path)
    feeds[1].push([sale(1, 3, price=4.0)])
    engine.step()
    assert [(row["one"], row["other"]) for row in engine.query("paused").results().to_pylist()] == [
        (4.0, 3.0)
    ]
    engine.stop()


def test_a_selection_that_was_paused_goes_on_with_what_it_defers(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT price FROM store1 WITH PREFERENCE desc SUMMARY.Estimate.Count(item) BUDGET 1 PROBES"
    )
    engine.step()
    query.pause()
    engine.step()
    query.resume()
    for number in range(2):
        feeds[1].push([sale(1, number, price=number + place / 10) for place in range(3)])
        engine.step()
    while engine.step():
        pass
    assert sorted(query.results()["price"].to_pylist()) == [0.0, 0.1, 0.2, 1.0, 1.1, 1.2]
    assert query.coverage().skipped == 0
    engine.stop()


def test_tuples_are_let_go_behind_the_last_granularity(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(
        "SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item)"
    )
    feeds[1].push([sale(1, 0), sale(1, 100), sale(2, 400)])
    engine.step()
    assert engine.summaries()["items1"].tuples == 3, "the other store may bring partners of any of them"
    feeds[2].push([sale(1, 1), sale(2, 399)])
    engine.step()
    assert pairs(query) == joined([sale(1, 0), sale(1, 100), sale(2, 400)], [sale(1, 1), sale(2, 399)], 210)
    assert engine.summaries()["items1"].tuples == 1
    feeds[1].push([sale(1, 5)])
    engine.step()
    assert engine.summaries()["items1"].late == 1
    engine.stop()


def test_a_budget_of_time_becomes_probes_when_a_batch_begins(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(f"{JOIN.format('desc')} BUDGET '200 ms'", "timed")
    sold = sell(engine, feeds, seed, 2)
    assert pairs(query) == joined(sold[1], sold[2]), "small batches are within it"
    intent = BatchLog(Store(tmp_path / "checkpoint")).intent(engine.progress().batch_id)
    assert intent is not None and intent.probes["timed"] >= 1024
    engine.stop()


def test_statements_are_refused_when_they_make_no_sense(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = stores(make_engine, tmp_path)
    engine.execute("CREATE SUMMARY items1 ON store1(item) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)")
    with pytest.raises(SQLError, match="there is a summary items1 already"):
        engine.execute("CREATE SUMMARY items1 ON store1(price) WITH GRANULARITY '1 s' AND COLLAPSE(4, 3)")
    with pytest.raises(SQLError, match="CREATE SUMMARY or DROP SUMMARY"):
        engine.execute("SELECT 1")
    query = engine.register(JOIN.format("desc"), "all")
    with pytest.raises(StateError, match="items1 is read by all"):
        engine.execute("DROP SUMMARY items1")
    with pytest.raises(SettingError, match="WITH PREFERENCE"):
        query.prod()
    with pytest.raises(SettingError, match="WITH PREFERENCE"):
        query.lookup()
    query.drop()
    engine.execute("DROP SUMMARY items1")
    engine.step()
    assert list(engine.summaries()) == ["items2"]
    with pytest.raises(SQLError, match="CREATE SUMMARY"):
        engine.register(JOIN.format("desc"))
    engine.stop()


def test_a_summary_of_a_stream_that_is_gone_can_be_dropped(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    feeds[1].push([sale(1, 0)])
    engine.step()
    engine.stop()
    again = make_engine(str(tmp_path / "checkpoint"))
    again.feed("store1", SALES, time="ts")
    with pytest.raises(StateError, match="the summary items2 of the checkpoint"):
        again.step()
    again.execute("DROP SUMMARY items2")
    again.step()
    assert list(again.summaries()) == ["items1"]
    again.stop()


def test_a_query_that_joins_later_may_read_columns_that_nobody_kept(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    feeds[2].push([sale(1, 0)])
    engine.step()
    query = engine.register(
        "SELECT a.item, b.price AS p FROM store1 a, store2 b WHERE a.item = b.item "
        "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item)"
    )
    feeds[1].push([sale(1, 1)])
    engine.step()
    assert query.results().num_rows == 0, "it sees what came since it joined"
    feeds[2].push([sale(1, 2, price=7.0)])
    engine.step()
    assert query.results()["p"].to_pylist() == [7.0]
    engine.stop()


def test_a_restart_finds_the_summaries_that_a_query_was_bound_to(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    engine.register(f"{JOIN.format('desc')} BUDGET 50 PROBES", "cut")
    rng = np.random.default_rng(seed)
    rows = {number: sales(rng, 0.0) for number in feeds}
    for number, feed in feeds.items():
        feed.push(rows[number])
        engine.step()
    for number in feeds:
        engine.execute(f"CREATE SUMMARY a{number} ON store{number}(item) {SUMMARY}")
    engine.step()
    engine.stop()
    again, feeds = stores(make_engine, tmp_path)
    while again.step():
        pass
    assert pairs(again.query("cut")) == joined(rows[1], rows[2])
    assert again.summaries()["items1"].queries == ("cut",)
    again.stop()


def test_streams_out_of_step_and_gaps_of_months(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(JOIN.format("desc"), "all")
    month = 30 * 86_400.0
    batches = [
        (1, [sale(1, 1000)]),
        (1, [sale(1, 500), sale(1, 1001)]),
        (2, [sale(1, 0)]),
        (1, [sale(1, 501)]),
        (2, [sale(1, 502)]),
        (1, [sale(1, 3 * month)]),
        (2, [sale(1, 3 * month + 1)]),
    ]
    for number, rows in batches:
        feeds[number].push(rows)
        engine.step()
    sold = {n: [row for number, rows in batches if number == n for row in rows] for n in (1, 2)}
    assert pairs(query) == joined(sold[1], sold[2])
    assert max(one.bytes for one in engine.summaries().values()) < 10_000_000
    assert engine.step() == 0, "nothing waits, and nothing is to be done"
    engine.stop()


@ON_BOTH
def test_tuples_move_to_files_when_they_are_many_and_the_files_are_merged(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    check_files_of_tuples(make_engine, tmp_path, seed, "auto")


def test_files_of_tuples_are_merged(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    check_files_of_tuples(make_engine, tmp_path, seed, "executors")


def check_files_of_tuples(make_engine: EngineFactory, tmp_path: Path, seed: int, state: str) -> None:
    limits = Limits(tuple_files=2, driver_tuples=50)
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 8", state=state, limits=limits)
    query = engine.register(JOIN.format("desc"), "all")
    sold = sell(engine, feeds, seed)
    assert pairs(query) == joined(sold[1], sold[2])
    kept = committed(tmp_path)[0].promising.summaries["items1"]
    assert 0 < len(kept.files) <= 2 and kept.kept == 240
    moved = [record for record in query.decisions() if record.about == "summary items1"]
    reasons = ["more than 50" in record.reason for record in moved]
    assert reasons == ([True] if state == "auto" else [])
    engine.stop()


def test_structures_may_change_with_every_batch(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    turns = itertools.cycle(["none", "cells", "time", "adjusting", "none"])
    engine, feeds = stores(make_engine, tmp_path, "AND BUCKETS 8")
    review = StructureReview(
        Limits(first_review=1, longest_review=1),
        lambda *given: ChosenStructure(next(turns), "in turn"),
        is_judged=False,
    )
    engine._loop.promising.review = review
    every = engine.register(JOIN.format("desc"), "every")
    cut = engine.register(f"{JOIN.format('asc')} BUDGET 100 PROBES", "cut")
    chosen = set()
    every.subscribe(lambda table: chosen.update(one.structure for one in engine.summaries().values()))
    sold = sell(engine, feeds, seed)
    exact = joined(sold[1], sold[2])
    assert pairs(every) == exact and not pairs(cut) - exact
    assert chosen == {"none", "time", "cells", "adjusting"}
    decided = [(record.pass_name, record.about, record.reason) for record in engine.decisions()]
    assert decided == [("summaries", f"summary items{n}", "in turn") for n in (1, 2)]
    assert "summary items1: structure" in str(engine.explain(verbose=True))
    engine.stop()
