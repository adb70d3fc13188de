"""What a user sees of summaries and queries with a preference, and what is said where one would stumble."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import transom
from tests.engine_factory import EngineFactory, on_spark
from tests.runtime.engine_helpers import at
from transom.cli.main import OK, app
from transom.errors import SettingError, SQLError, StateError

SALES = "item int, price double, ts timestamp"
SUMMARY = "CREATE SUMMARY {0}_items ON {0}(item) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
PAIRS = """
    SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item
    WITH PREFERENCE desc SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)
    WINDOW '1 minute' BUDGET 10 PROBES
"""
CHEAP = """
    SELECT item, price FROM store1 WHERE item < 5
    WITH PREFERENCE desc SUMMARY.Estimate.Count(item) BUDGET 100 PROBES
"""
COUNT = "SELECT count(*) AS n FROM store1 [RANGE 1 minute SLIDE 1 minute]"


def sales(count: int = 6) -> list[tuple[int, float, str]]:
    """Item 1 is every other sale."""
    return [(1 if n % 2 else n, n / 2, at(f"12:00:{n:02}")) for n in range(count)]


def stores_engine(make_engine: EngineFactory, checkpoint: Path) -> tuple[transom.Engine, dict[str, Any]]:
    engine = make_engine(str(checkpoint))
    return engine, {name: engine.feed(name, SALES, time="ts") for name in ("store1", "store2")}


@pytest.fixture(scope="module")
def engine(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[transom.Engine]:
    """An engine whose preferred join has put something off."""
    engine, feeds = stores_engine(make_engine, tmp_path_factory.mktemp("shown"))
    for name in feeds:
        engine.execute(SUMMARY.format(name))
    engine.register_all({"pairs": PAIRS, "cheap": CHEAP, "count": COUNT})
    for feed in feeds.values():
        feed.push(sales())
    engine.step()
    yield engine
    engine.stop()


STUMBLES: list[tuple[str, Callable[[transom.Engine], Any], type[Exception], str]] = [
    (
        "a summary that is registered",
        lambda e: e.register(SUMMARY.format("store1")),
        SQLError,
        r"^CREATE is not a query: engine.execute\(\) runs CREATE and DROP",
    ),
    (
        "one of many that is a statement",
        lambda e: e.register_all({"new": COUNT, "gone": " drop summary store1_items"}),
        SQLError,
        "gone: DROP is not a query",
    ),
    ("a summary that is looked up", lambda e: e.lookup(SUMMARY.format("store1")), SQLError, "CREATE is no"),
    ("a query that is executed", lambda e: e.execute(COUNT), SQLError, "queries are registered"),
    (
        "a query with a preference that is looked up",
        lambda e: e.lookup(CHEAP),
        SettingError,
        "register it, and read",
    ),
    ("its lookup", lambda e: e.query("cheap").lookup(), SettingError, r"pushed; read its results\(\)"),
    ("its prod", lambda e: e.query("cheap").prod(), SettingError, "there are no windows to prod"),
    ("a prod that names it", lambda e: e.prod(queries=["count", "cheap"]), SettingError, "cheap has WITH"),
    ("its accuracy", lambda e: e.query("cheap").accuracy(), SettingError, r"ask for its coverage\(\)"),
    (
        "a union of a stream and what it finds",
        lambda e: e.register(
            "SELECT count(*) FROM (SELECT item FROM Cheap UNION ALL SELECT item FROM store1) [RANGE '1 m' SLIDE '1 m']"
        ),
        SQLError,
        "UNION ALL and explode read declared streams, and Cheap is not one",
    ),
    (
        "a query with a preference over it",
        lambda e: e.register("SELECT item FROM cheap WITH PREFERENCE desc SUMMARY.Estimate.Count(item)"),
        SQLError,
        "a query WITH PREFERENCE reads streams, and cheap is a query",
    ),
    (
        "two that are registered together and read one another",
        lambda e: e.register_all({"x": CHEAP.replace("store1", "y"), "y": COUNT.replace("store1", "x")}),
        SQLError,
        "x: a query WITH PREFERENCE reads streams, and y is a query",
    ),
    (
        "a summary that is in use",
        lambda e: e.execute("DROP SUMMARY store1_items"),
        StateError,
        "store1_items is read by",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "says"), [c[1:] for c in STUMBLES], ids=[c[0] for c in STUMBLES])
def test_stumbling(
    engine: transom.Engine, wrong: Callable[[transom.Engine], Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        wrong(engine)
    assert list(engine.queries()) == ["pairs", "cheap", "count"]


def test_a_prod_of_all_queries_leaves_preferred_ones_out(engine: transom.Engine) -> None:
    assert list(engine.prod()) == ["count"]
    assert list(engine.prod("store1")) == ["count"]
    assert engine.query("pairs").has_preference and not engine.query("count").has_preference


def test_explain_shows_summaries_and_what_waits(engine: transom.Engine) -> None:
    shown = engine.explain()
    assert "stream store1: 1 query in 1 selection of 1 family and 2 queries with a preference" in shown
    assert "promising tuples: 2 summaries, for 2 queries with a preference" in shown
    assert "10 probes made, 10 tuples produced, about" in engine.query("pairs").explain()
    told = json.loads(engine.explain("json"))
    pairs, cheap = told["preference_queries"]
    assert (pairs["probes"], pairs["kind"], pairs["budget"]) == (10, "join", "10 probes")
    assert pairs["regions"] > 0 and cheap["regions"] == 0
    assert (cheap["sides"][0]["guide"], cheap["share"]) == ("`item` < 5", 1.0)
    assert [summary["tuples"] for summary in told["summaries"]] == [6, 6]
    assert engine.explain("mermaid").count(" --> p0") == 2


def test_progress_counts_tuples_probes_and_what_was_passed_over(engine: transom.Engine) -> None:
    told = engine.progress().promising
    assert (told.tuples, told.late, told.probes, told.produced) == (12, 0, 16, 16)
    assert told.queries["pairs"].share < 1 and told.queries["pairs"].regions > 0
    assert told.skipped == pytest.approx(engine.query("pairs").coverage().skipped)
    assert told.share == pytest.approx(16 / (16 + told.skipped))
    assert told.summaries["store1_items"].queries == ("pairs", "cheap")
    assert "promising tuples: 2 queries over 12 tuples in 2 summaries" in str(engine.progress())
    plain = json.loads(json.dumps(engine.progress().as_dict()["promising"]))
    assert (plain["probes"], plain["queries"]["cheap"]["share"]) == (16, 1.0)


def test_all_is_told_before_the_first_batch_and_after_a_restart(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores_engine(make_engine, tmp_path / "checkpoint")
    for name in feeds:
        engine.execute(SUMMARY.format(name))
    pairs = engine.register(PAIRS, "pairs")
    assert (
        "(joins with the next batch)" in pairs.explain() and "(made with the next batch)" in engine.explain()
    )
    assert engine.progress().promising.summaries == {} and "promising" not in str(engine.progress())
    for feed in feeds.values():
        feed.push(sales())
    engine.step()
    before, told = engine.progress().promising, pairs.explain()
    engine.stop()

    engine, _ = stores_engine(make_engine, tmp_path / "checkpoint")
    assert engine.summaries()["store1_items"].text == SUMMARY.format("store1")
    assert engine.progress().promising == before and engine.query("pairs").explain() == told
    while engine.step():
        pass
    assert engine.query("pairs").coverage().share == 1.0
    assert "wait until" not in engine.query("pairs").explain()
    engine.stop()


@on_spark("the command line runs on Spark")
def test_the_shell_joins_two_files_by_preference(make_engine: EngineFactory, tmp_path: Path) -> None:
    for name in ("store1", "store2"):
        lines = [json.dumps({"item": item, "price": price, "ts": ts}) for item, price, ts in sales()]
        (tmp_path / f"{name}.json").write_text("\n".join(lines))
    sources = [f"--from={name}={tmp_path / f'{name}.json'}" for name in ("store1", "store2")]
    summaries = [f"--summary={SUMMARY.format(name)}" for name in ("store1", "store2")]
    options = ["--time", "ts", "--schema", SALES, "--format", "json"]
    done = CliRunner().invoke(app, ["query", PAIRS, CHEAP, *sources, *summaries, *options])
    assert done.exit_code == OK, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    pairs = [row for row in rows if row["query"] == "q1"]
    assert sum(row["item"] == 1 for row in pairs) == 9 and len(pairs) == 10  # all of the frequent item
    assert list(pairs[0]) == ["query", "item", "here", "there", "batch", "share"]
    assert sorted(row["item"] for row in rows if row["query"] == "q2") == [0, 1, 1, 1, 2, 4]
    assert "q1: 10 probes made, 10 tuples produced" in done.stderr and "q2:" not in done.stderr


@on_spark("the command line runs on Spark")
def test_a_pipeline_with_summaries_is_explained_run_and_changed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    rows = [json.dumps({"item": item, "price": price, "ts": ts}) for item, price, ts in sales()]
    (tmp_path / "sales.json").write_text("\n".join(rows))
    pipeline = tmp_path / "pipeline.yaml"
    given = {
        "engine": {"checkpoint": "state"},
        "streams": {"store1": {"path": "sales.json", "schema": SALES, "time": "ts"}},
        "summaries": [SUMMARY.format("store1")],
        "queries": {"cheap": {"sql": CHEAP, "sinks": [{"format": "json", "path": "out"}]}},
    }
    pipeline.write_text(json.dumps(given))  # which is YAML, too
    explained = CliRunner().invoke(app, ["explain", str(pipeline)])
    assert "query cheap: selection of store1 (summary store1_items)" in explained.stdout
    run = ["run", str(pipeline), "--drain", "--no-progress"]
    assert CliRunner().invoke(app, run).exit_code == OK
    written = [line for file in (tmp_path / "out").rglob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["item"] for line in written) == [0, 1, 1, 1, 2, 4]
    pipeline.write_text(json.dumps(given | {"summaries": [SUMMARY.format("store1").replace("10", "20")]}))
    assert CliRunner().invoke(app, run).exit_code == OK
    engine = make_engine(str(tmp_path / "state"))
    engine.feed("store1", SALES, time="ts")
    assert "20 seconds" in engine.summaries()["store1_items"].text
    engine.stop()
