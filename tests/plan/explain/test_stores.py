"""EXPLAIN of on-demand queries: what is kept, what answers which aggregate, and who shares it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from tests.plan.bids import RULES, compiled
from tests.plan.explain.test_formats import NODE, keys_of
from tests.results.pure_batches import Pure
from transom.elements import ClockKind, Using
from transom.plan.explain import Explained, Explanation, gather, mermaid, plan_text, query_text
from transom.plan.explain.records import StorePlan
from transom.plan.explain.stores import structure_text
from transom.plan.strategy import Place, Strategy
from transom.state.state import State
from transom.storage.shard_refs import ShardRef

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "explain.md"
COLUMNS = {"v": pa.float64(), "k": pa.string()}
SHARED = {
    "top": "SELECT max(v) FROM s [RANGE 10] WHERE k = 'a'",
    "mean": "SELECT avg(v) AS m, count(*) AS n FROM s [RANGE 100] WHERE k = 'a' HAVING n > 1",
    "spread": "SELECT stddev(v) FROM s [RANGE 50] WHERE k = 'a'",
}
SEVERAL = {
    "exact": "SELECT k, max(v) AS m FROM s [RANGE 50] GROUP BY k",
    "buckets": "SELECT k, max(v) AS m, count(*) AS n FROM s [RANGE 50] GROUP BY k USING timegram(64)",
    "within": "SELECT k, max(v) AS m FROM s [RANGE 60] GROUP BY k WITHIN 5%",
    "sharing": "SELECT k, max(v) AS m FROM s [RANGE 40] GROUP BY k USING ordered_sharing",
    "naive": "SELECT k, min(v) AS m FROM s [RANGE 30] GROUP BY k USING naive",
}


def explained(pure: Pure, again: Collection[str] = ()) -> Explanation:
    return gather(Explained({"s": pure.rules}, pure.state, pure.living, pure.planner, again))


def running(texts: Mapping[str, str]) -> Pure:
    """An engine after a batch of twenty tuples, half of them of group a."""
    pure = Pure(texts, COLUMNS)
    pure.batch([(i, float(i % 7), "ab"[i % 2]) for i in range(20)])
    return pure


def stores(plan: Explanation, stream: int = 0, store_set: int = 0) -> dict[str, StorePlan]:
    return {store.keeps: store for store in plan.streams[stream].store_sets[store_set].stores}


def test_queries_over_the_same_tuples_share_stores_whatever_their_windows() -> None:
    expected = """\
        stream s: 3 queries on demand, time t
          slack none, horizon none
          project: 2 scalar expressions for 6 uses
            k (3)
            v (3)
          on demand: 3 queries, 4 stores in 1 store set
            store set 1: where k = 'a'; the last 100 of t
              query top: the last 10 of t, exact: max(v) by staircase of store 2
              query mean: the last 100 of t, exact: avg(v) by tree of blocks, prefix sums of store 3; \
count(*) by prefix sums of store 4; having count(*) > 1
              query spread: the last 50 of t, exact: stddev_samp(v) by tree of blocks of store 3
              store 1: the newest row, which says whether a window has any
                holds 1 entry, _ bytes in 1 run, on the driver; 10 tuples ever; complete
              store 2: max staircase of v, for max(v) of top
                holds 3 entries, _ bytes in 1 run, on the driver; 10 tuples ever; complete
              store 3: values of v, for avg(v) of mean, stddev_samp(v) of spread
                holds 10 entries, _ bytes in 1 run, on the driver; 10 tuples ever; complete
              store 4: values of rows, for count(*) of mean
                holds 10 entries, _ bytes in 1 run, on the driver; 10 tuples ever; complete
        strategy shared_paired, fragments families, state auto"""
    assert re.sub(r"\d+ bytes", "_ bytes", plan_text(explained(running(SHARED)))) == dedent(expected)


def test_before_the_first_batch_the_stores_are_told_and_hold_nothing() -> None:
    lines = plan_text(explained(Pure(SHARED, COLUMNS), SHARED.keys())).splitlines()
    assert lines[1] == "  all of them join with the next batch"
    assert sum(line.strip() == "holds nothing yet" for line in lines) == 4
    assert "(joins with the next batch)" not in "\n".join(lines)


def test_one_that_joins_those_that_run_says_that_it_waits() -> None:
    pure = running({"top": SHARED["top"]})
    waiting = {"low": compiled("SELECT min(price) FROM bids [RANGE 1 minute]", "low")}
    known = Explained({"s": pure.rules, "bids": RULES}, pure.state, pure.living | waiting, again=waiting)
    lines = [line.strip() for line in plan_text(gather(known)).splitlines()]
    assert "query top: the last 10 of t, exact: max(v) by staircase of store 2" in lines
    assert query_text(gather(known), "low").startswith(
        "query low over bids, on demand (joins with the next batch)"
    )


def test_every_structure_says_what_answers() -> None:
    answers = {
        query.name: (query.structure, [(one.aggregate, one.by) for one in query.answers])
        for query in explained(running(SEVERAL)).streams[0].store_sets[0].queries
    }
    assert answers == {
        "exact": ("exact", [("max(`v`)", "staircase")]),
        "buckets": ("timegram(64)", [("max(`v`)", "buckets"), ("count(*)", "buckets")]),
        "within": ("timegram within 5%", [("max(`v`)", "buckets")]),
        "sharing": ("ordered_sharing", [("max(`v`)", "OrderedSharing")]),
        "naive": ("naive", [("min(`v`)", "scan")]),
    }
    kinds = {keeps: store.kind for keeps, store in stores(explained(running(SEVERAL))).items()}
    assert kinds == {
        "the newest row of each group": "groups",
        "max staircase of `v`": "staircase",
        "timegram(64) of `v`": "timegram",
        "timegram(64) of rows": "timegram",
        "timegram within 5% of `v`": "timegram",
        "values of `v`": "values",
    }
    values = stores(explained(running(SEVERAL)))["values of `v`"]
    assert [(read.aggregate, read.queries) for read in values.readers] == [
        ("max(`v`)", ("sharing",)),
        ("min(`v`)", ("naive",)),
    ]


def test_the_strategy_naive_scans_for_exact_queries_too() -> None:
    query = compiled("SELECT max(price) AS m FROM bids [RANGE 1 minute]", "q", naive=True)
    (plan,) = gather(Explained({"bids": RULES}, State(), {"q": query})).streams[0].store_sets[0].queries
    assert (plan.structure, plan.answers[0].by) == ("naive", "scan")


STRUCTURES = [
    ("the default", Using(), "exact"),
    ("buckets that follow the values", Using("timegram", 64), "timegram(64)"),
    ("buckets over a range", Using("timegram", 8, (-10.0, 2.5)), "timegram(8 BETWEEN -10 AND 2.5)"),
    ("the user's bounds", Using("timegram", bounds=(-10.0, 0.1)), "timegram(BOUNDS -10, 0.1)"),
    ("slices of time", Using("timegram", 64, slice=1_000_000), "timegram(64, SLICE '1 second')"),
    ("as exact as asked for", Using("timegram", within=0.05), "timegram within 5%"),
    (
        "as exact, with slices",
        Using("timegram", within=0.125, slice=60_000_000),
        "timegram(SLICE '1 minute') within 12.5%",
    ),
]


@pytest.mark.parametrize(("using", "shown"), [c[1:] for c in STRUCTURES], ids=[c[0] for c in STRUCTURES])
def test_structures_are_spelled_as_in_a_query(using: Using, shown: str) -> None:
    assert structure_text(using, ClockKind.TIME) == shown


def test_a_query_reports_which_queries_share_its_stores() -> None:
    expected = """\
        query spread over s, on demand
          looked up for the last 50 of t, or for less
          where k = 'a'
          structure exact
            stddev_samp(v) by tree of blocks of store 3
          store set 1, shared with top, mean; it keeps the last 100 of t
            store 1: the newest row, which says whether a window has any
              holds 1 entry, _ bytes in 1 run, on the driver; 10 tuples ever; complete
            store 3: values of v, for avg(v) of mean, stddev_samp(v) of spread
              holds 10 entries, _ bytes in 1 run, on the driver; 10 tuples ever; complete"""
    shown = query_text(explained(running(SHARED)), "spread")
    assert re.sub(r"\d+ bytes", "_ bytes", shown) == dedent(expected)


def test_a_store_that_was_opened_late_says_since_when_it_is_complete() -> None:
    pure = running({"top": SHARED["top"]})
    pure.register({"low": "SELECT min(v) FROM s [RANGE 100] WHERE k = 'a'"})
    pure.batch([(i, 1.0, "a") for i in range(20, 32)])
    plan = explained(pure)
    late = stores(plan)["min staircase of `v`"]
    assert (late.complete_since, late.complete_since_text, late.pending) == (20, "20", False)
    assert "complete since 20" in query_text(plan, "low")
    assert stores(plan)["max staircase of `v`"].complete_since_text != "20"
    pure.batch([(300, 1.0, "a")])  # what it has missed is long gone
    assert query_text(explained(pure), "low").count("complete since") == 0


def test_stores_on_executors_are_described_by_their_files() -> None:
    strategy = Strategy(place=Place.EXECUTORS)
    pure = Pure({"top": "SELECT k, max(v) AS m FROM s [RANGE 10] GROUP BY k"}, COLUMNS, strategy=strategy)
    files = ShardRef("runs/1", ((0, 7, 100), (3, 5, 80)), {0: ((0, 20),)})
    known = {key: replace(store, refs=(files,), tuples=40) for key, store in pure.state.stores.items()}
    pure.state = replace(pure.state, stores=known)
    shown = stores(explained(pure))["max staircase of `v`"]
    assert (shown.place, shown.entries, shown.bytes, shown.runs, shown.groups) == (
        "executors",
        12,
        180,
        2,
        None,
    )
    held = "holds 12 entries, 180 bytes in 2 files, in files on the executors; 40 tuples ever; complete"
    assert held in query_text(explained(pure), "top")


def test_the_results_of_a_query_can_be_looked_up_too() -> None:
    pure = Pure({"sums": "SELECT k, sum(v) AS x FROM s [RANGE 10 SLIDE 10] GROUP BY k"}, COLUMNS)
    pure.register({"top": "SELECT max(x) FROM sums [RANGE 50]"})
    plan = explained(pure, ["top"])
    lines = plan_text(plan).splitlines()
    assert "        its results are read by top" in lines
    at = lines.index("results of sums: 1 query on demand, time window_time")
    assert lines[at + 2] == "  its rows are the finals of sums"
    assert all(store.pending for store in stores(plan, 1).values())
    assert re.search(r"s0f1c\d+q --> s1", mermaid(plan))


def test_every_key_is_in_the_reference() -> None:
    reference = REFERENCE.read_text()
    missing = {
        key for key in keys_of(json.loads(explained(running(SEVERAL)).json())) if f"`{key}`" not in reference
    }
    assert missing == set()


def test_one_query_of_a_plan_has_the_stores_that_it_reads() -> None:
    (stream,) = explained(running(SHARED)).only("top").streams
    assert stream.families == ()
    assert [store.keeps for store in stream.store_sets[0].stores] == [
        "the newest row",
        "max staircase of `v`",
    ]


def test_a_drawing_leads_from_the_stream_over_stores_to_queries() -> None:
    lines = mermaid(explained(running(SHARED))).splitlines()
    assert lines[1] == '  s0(["s<br/>3 queries on demand"])'
    for line in lines[2:]:
        assert re.fullmatch(rf"  \w+ --> {NODE}", line), line
    assert '  s0g1t3 --> s0g1t3q(["mean, spread"])' in lines
    assert not any("the newest row" in line for line in lines)
    assert any("the newest row" in line for line in mermaid(explained(running(SHARED)), True).splitlines())


def test_many_store_sets_and_queries_stay_readable() -> None:
    texts = {
        f"q{number}": f"SELECT max(v) FROM s [RANGE {number % 9 + 1}] WHERE v > {number % 12}"
        for number in range(120)
    }
    plan = explained(Pure(texts, COLUMNS), texts)
    assert len(plan_text(plan).splitlines()) < 100
    assert "... and 6 more store sets" in plan_text(plan)
    assert len(plan_text(plan, verbose=True).splitlines()) > 120
    assert len(mermaid(plan).splitlines()) < 30
