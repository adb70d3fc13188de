"""EXPLAIN of summaries and of queries with a preference, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest

from tests.plan.explain.test_formats import keys_of
from transom.elements import Clock, ClockKind, Preference, Summary
from transom.plan.explain import Explained, Explanation, gather, mermaid, plan_text, query_text
from transom.plan.explain.element_text import promise_text
from transom.promising.regions import DTYPES, Regions
from transom.promising.representation import Representation
from transom.sql.preference_query import Figure, Output, PreferenceQuery, Side
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise
from transom.sql.query import Comparison, Scalar
from transom.state.promising import Coverage, PreferenceState, PromisingState, SummaryState
from transom.state.state import State
from transom.windows.stream_rules import StreamRules

REFERENCE = Path(__file__).parents[3] / "docs/reference/explain.md"
SECOND = 1_000_000
ONE = Summary("one", "store1", "item", 10 * SECOND)
TWO = Summary("two", "store2", "item", 10 * SECOND, structure="time", kind="histogram")
HERE, THERE = EstimatedCount("store1", "item"), EstimatedCount("store2", "item")
CHEAP = Comparison(Scalar("`item`", pa.int32(), "item"), "<", 5)
JOIN = PreferenceQuery(
    (Side("store1", "one", CHEAP, CHEAP), Side("store2", "two")),
    Preference("desc", 0.8, 60 * SECOND, probes=2000),
    Arithmetic("*", HERE, THERE),
    (Output("item", "`0.item`", pa.int32()),),
    rest="`0.price` > `1.price`",
)
MEAN = PreferenceQuery(
    (Side("store1", "one"),),
    Preference("weighted", time=200_000),
    HERE,
    figures=(Figure("n", "count", None, pa.int64()),),
)


def waiting_regions() -> Regions:
    """Two regions of a hundred probes each, of which ten are made."""
    columns = {name: np.ones(2, kind) for name, kind in DTYPES.items()}
    return Regions(**columns | {"cell": np.array([100, 100]), "done": np.array([10, 0])})  # type: ignore[arg-type]


def explained(state: PromisingState | None = None, **changes: object) -> Explanation:
    rules = {name: StreamRules(Clock(name, "ts", ClockKind.TIME), 0, None) for name in ("store1", "store2")}
    known = Explained(
        rules,
        replace(State(), promising=state or PromisingState()),
        {},
        summaries={"one": ONE, "two": TWO},
        preference_queries={"pairs": JOIN, "mean": MEAN},
    )
    return gather(replace(known, **changes))  # type: ignore[arg-type]


def running() -> PromisingState:
    """Summaries that are there, and one of the queries with something put off."""
    new = {
        name: SummaryState(Representation.new(replace(shape, structure=structure)), arrived=5, late=2)
        for name, shape, structure in (("one", ONE, "adjusting"), ("two", TWO, "time"))
    }
    pairs = PreferenceState((waiting_regions(), Regions.none()), done=Coverage(10, 8), lost=1.1)
    return PromisingState(new, {"pairs": pairs, "mean": PreferenceState((Regions.none(),))})


PROMISES: list[tuple[str, Promise]] = [
    ("SUMMARY.Estimate.Count(store1.item) * store1.price", Arithmetic("*", HERE, Column("store1", "price"))),
    ("2 - (1 - 0.5)", Arithmetic("-", Number(2), Arithmetic("-", Number(1), Number(0.5)))),
    ("2 - 1 - 0.5", Arithmetic("-", Arithmetic("-", Number(2), Number(1)), Number(0.5))),
    ("4 / (2 * 2)", Arithmetic("/", Number(4), Arithmetic("*", Number(2), Number(2)))),
    ("(1 + 2) * 3", Arithmetic("*", Arithmetic("+", Number(1), Number(2)), Number(3))),
    ("1 + 2 * 3", Arithmetic("+", Number(1), Arithmetic("*", Number(2), Number(3)))),
]


@pytest.mark.parametrize(("written", "promise"), PROMISES, ids=[written for written, _ in PROMISES])
def test_a_promise_is_spelled_with_the_parentheses_that_it_needs(written: str, promise: Promise) -> None:
    assert promise_text(promise, streams=True) == written


def test_before_the_first_batch_everything_waits() -> None:
    shown = plan_text(explained())
    assert "stream store1: 2 queries with a preference, time ts" in shown
    assert "promising tuples: 2 summaries, for 2 queries with a preference" in shown
    assert "summary one of item of store1: auto (made with the next batch)" in shown
    assert (
        "query pairs: join of store1 (summary one) and store2 (summary two) (joins with the next batch)"
        in shown
    )
    assert shown.count("holds nothing yet") == 2 and "probes made" not in shown


def test_a_query_reports_how_it_spent_its_budget() -> None:
    expected = """\
        query pairs: join of store1 (summary one) and store2 (summary two)
          store1: where item < 5; the summary evaluates item < 5
          pairs for which 0.price > 1.price
          preference desc SUMMARY.Estimate.Count(store1.item) * SUMMARY.Estimate.Count(store2.item), \
fading by 0.8 with each granularity
          window 1 minute; budget 2,000 probes a batch
          10 probes made, 8 tuples produced, about 3 skipped: 72.7%
          2 regions with 190 probes wait until there is time"""
    shown = query_text(explained(running()), "pairs", verbose=True).replace("`", "")
    assert shown.startswith(dedent(expected))
    assert "summary one of item of store1: adjusting, the engine's choice" in shown
    assert "summary two of item of store2: time\n" in shown and "counted by exact histograms" in shown
    assert "5 tuples ever, 2 of them too late" in shown


def test_aggregates_under_a_time_tell_so() -> None:
    shown = query_text(explained(running()), "mean")
    assert "query mean: aggregates of store1 (summary one)" in shown
    assert "all that is kept; budget 200 milliseconds a batch" in shown and "summary two" not in shown


def test_a_query_in_the_place_of_one_that_leaves_has_done_nothing_yet() -> None:
    plan = explained(running(), again={"pairs"}).find_preference_query("pairs")
    assert plan is not None and (plan.pending, plan.probes, plan.regions) == (True, 0, 0)


def test_json_has_all_of_it_and_every_key_is_in_the_reference() -> None:
    told = json.loads(explained(running()).json())
    assert [summary["name"] for summary in told["summaries"]] == ["one", "two"]
    assert told["summaries"][0]["readers"] == ["pairs", "mean"]
    assert [one["covers"] for one in told["summaries"][1]["granularities"]] == [
        "10 seconds",
        "40 seconds",
        "2 minutes 40 seconds",
    ]
    assert (told["preference_queries"][0]["regions"], told["preference_queries"][0]["probes_left"]) == (
        2,
        190,
    )
    reference = REFERENCE.read_text()
    assert {key for key in keys_of(told) if f"`{key}`" not in reference} == set()


def test_one_query_of_a_plan_has_its_own_summaries_alone() -> None:
    alone = explained(running()).only("mean")
    assert [summary.name for summary in alone.summaries] == ["one"]
    assert [stream.name for stream in alone.streams] == ["store1"]
    assert explained(running()).only("absent").summaries == ()


def test_a_drawing_leads_from_streams_over_summaries_to_queries() -> None:
    drawn = mermaid(explained(running()))
    assert "s0 --> m0[(" in drawn and "s1 --> m1[(" in drawn
    assert "m0 --> p0" in drawn and "m1 --> p0" in drawn and "m0 --> p1" in drawn
    assert "m1 --> p1" not in drawn
