"""The planner's decisions about a query: with reasons, the same after a restart, gone with the query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids, bids_engine
from transom.plan.decisions import DecisionRecord
from transom.plan.limits import Limits

LONGER = PER_SITE.replace("2 minutes", "5 minutes")
BITS = "SELECT sum(site | 1) AS x FROM bids [RANGE 10 minutes] WHERE site | 2 > 2"
ON_DEMAND = "SELECT max(price) AS top FROM bids [RANGE 10 minutes]"
ROWS = bids((1, 10.0, "12:00:05"), (2, 24.5, "12:00:20"), (1, 12.0, "12:01:10"))
LATER = bids((1, 1.0, "12:05:00"), (2, 2.0, "12:06:30"))


def texts(decisions: list[DecisionRecord]) -> dict[str, str]:
    """Decisions by pass, as EXPLAIN writes them; `costs` of re-sharing vary with the rate and are left out."""
    return {
        one.pass_name: f"{one.about}: {one.chosen} ({one.reason.partition(' cost')[0]})" for one in decisions
    }


def test_a_query_has_the_decisions_about_what_it_shares(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    first, second = engine.register(PER_SITE, "first"), engine.register(LONGER, "second")
    alone = engine.register(PER_SITE.replace("GROUP BY", "WHERE price > 3 GROUP BY"), "alone")
    assert first.decisions() == [], "it has not joined yet"
    feed.push(ROWS)
    engine.step()
    shared = "same WHERE, joins and GROUP BY as 1 other query"
    assert texts(first.decisions())["admission"] == (
        "query first: opens selection 1 (no other query has the same WHERE, joins and GROUP BY)"
    )
    assert texts(second.decisions())["admission"] == f"query second: shares selection 1 ({shared})"
    assert texts(alone.decisions())["families"].startswith("family 2: selection 2 alone")
    assert [one.kind for one in second.decisions() if one.pass_name == "admission"] == ["shares_selection"]


def test_decisions_about_all_queries(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    assert engine.decisions() == []
    engine.register_all({"first": PER_SITE, "second": LONGER, "demand": ON_DEMAND})
    feed.push(ROWS)
    engine.step()
    kinds = [(one.pass_name, one.kind) for one in engine.decisions()]
    assert kinds == [
        ("admission", "opens_selection"),
        ("admission", "shares_selection"),
        ("families", "alone_family"),
        ("stores", "on_driver"),
    ]


def test_an_on_demand_query_has_the_decisions_about_its_stores(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    demand = engine.register(ON_DEMAND, "demand")
    feed.push(ROWS)
    engine.step()
    (decision,) = demand.decisions()
    assert (decision.pass_name, decision.chosen) == ("stores", "2 stores on the driver")
    assert decision.reason == "1 on-demand query over the same tuples and groups"


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, ["admission", "reshare", "families"]),
        ({"limits": Limits(driver_rows=1)}, ["admission", "families", "placement"]),
        ({"strategy": "unshared_paired"}, ["admission", "families"]),
    ],
    ids=["shared slices", "slices moved to the executors", "unshared slices"],
)
def test_decisions_survive_a_restart(
    make_engine: EngineFactory, tmp_path: Path, options: dict[str, Any], passes: list[str]
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    engine.register_all({"first": PER_SITE, "second": LONGER, "demand": ON_DEMAND})
    for rows in (ROWS, LATER):
        feed.push(rows)
        engine.step()
    before = {name: query.decisions() for name, query in engine.queries().items()}
    assert [one.pass_name for one in before["second"]] == passes
    explained = engine.query("second").explain(verbose=True)
    again, _ = bids_engine(make_engine, tmp_path, **options)
    assert {name: query.decisions() for name, query in again.queries().items()} == before
    assert again.query("second").explain(verbose=True) == explained
    again.step()
    assert again.query("second").decisions() == before["second"]


def test_a_new_weighing_replaces_the_restored_one(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register_all({"first": PER_SITE, "second": LONGER})
    for rows in (ROWS, LATER):
        feed.push(rows)
        engine.step()
    again, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids((1, 1.0, "12:07:00")))
    again.step()
    weighed = [one for one in again.decisions() if one.pass_name == "reshare"]
    assert len(weighed) == 1, weighed


def test_decisions_end_with_what_they_are_about(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, limits=Limits(driver_rows=1))
    engine.register_all({"first": PER_SITE, "other": PER_SITE.replace("GROUP", "WHERE price > 3 GROUP")})
    feed.push(ROWS)
    engine.step()
    assert {one.about for one in engine.decisions() if one.pass_name == "placement"} == {
        "selection 1",
        "selection 2",
    }
    engine.query("other").drop()
    feed.push(LATER)
    engine.step()
    assert {one.about for one in engine.decisions()} == {"query first", "selection 1", "family 1"}


@pytest.mark.parametrize("text", [ON_DEMAND, BITS])
def test_the_decision_about_stores_ends_with_the_last_query_that_needs_them(
    make_engine: EngineFactory, tmp_path: Path, text: str
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register_all({"first": PER_SITE, "demand": text})
    feed.push(ROWS)
    engine.step()
    assert "stores" in {one.pass_name for one in engine.decisions()}
    engine.query("demand").drop()
    feed.push(LATER)
    engine.step()
    assert "stores" not in {one.pass_name for one in engine.decisions()}
