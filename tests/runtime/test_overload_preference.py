"""Batches beyond their budget whose queries say ON OVERLOAD PREFER: the most promising rows are kept."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import (
    SettableClock,
    accounted,
    answers,
    begun,
    bids,
    bids_engine,
    committed,
)
from tests.runtime.fault_helpers import Fault
from tests.runtime.test_overload import aside, batch
from transom.overload import sideline as overload
from transom.overload.preferred_rows import promise_sql
from transom.overload.sideline import Sideline
from transom.runtime.write_ahead_log import BatchLog
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise, promised

SUMMARY = "CREATE SUMMARY sites ON bids(site) WITH GRANULARITY '10 minutes'"
PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
COUNTED = "ON OVERLOAD PREFER {} SUMMARY.Estimate.Count(site)"

# In one second: 12 rows of site 1, 6 of site 2, and 6 sites with one row each, in turn.
MIXED = [1, 2, 1, 10, 1, 2, 1, 11] * 3
MIXED = [site + i // 8 * 2 if site >= 10 else site for i, site in enumerate(MIXED)]
BURST = [(site, float(i), f"12:01:10.{i:02d}") for i, site in enumerate(MIXED)]
BATCH = [(7, 1.0, "12:00"), *BURST, (7, 1.0, "12:02")]
RARE = {10, 11, 12, 13, 14, 15}


def overloaded_engine(make_engine: EngineFactory, place: Path, budget: int = 14, **options: Any) -> Any:
    rules = {"overload": "shed", "budget": budget} | options
    engine, feed = bids_engine(make_engine, place, clock=SettableClock(), **rules)
    engine.execute(SUMMARY)
    return engine, feed


def counts(query: Any, minute: str = "12:01") -> dict[int, int]:
    """How many rows of each site a minute counted."""
    return {site: n for start, _, site, n in answers(query) if start == minute}


def kept(
    make_engine: EngineFactory, place: Path, *clauses: str, rows: Any = BATCH, **options: Any
) -> dict[int, int]:
    """What is counted of a batch that sheds rows, with one query for each of some clauses."""
    engine, feed = overloaded_engine(make_engine, place, **options)
    queries = [engine.register(f"{PER_SITE} {clause}") for clause in clauses]
    feed.push(bids(*rows))
    assert batch(engine)
    engine.drain()
    found = [counts(query) for query in queries]
    assert all(one == found[0] for one in found)
    return found[0]


def test_the_data_are_what_they_are_said_to_be() -> None:
    found = Counter(MIXED)
    assert found == {1: 12, 2: 6} | dict.fromkeys(RARE, 1)


@ON_BOTH
def test_frequent_values_are_kept_whole_and_rare_ones_go(make_engine: EngineFactory, tmp_path: Path) -> None:
    assert kept(make_engine, tmp_path, COUNTED.format("desc")) == {1: 12}


def test_or_the_other_way(make_engine: EngineFactory, tmp_path: Path) -> None:
    assert kept(make_engine, tmp_path, COUNTED.format("asc")) == {2: 6} | dict.fromkeys(RARE, 1)


def test_without_the_clause_the_earliest_are_kept(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overload, "preferred", None)  # nobody asks
    assert kept(make_engine, tmp_path, "") == Counter(MIXED[:12])


def test_queries_without_the_clause_have_no_say(make_engine: EngineFactory, tmp_path: Path) -> None:
    assert kept(make_engine, tmp_path, "", COUNTED.format("desc"), "") == {1: 12}


def test_columns_promise_what_they_are(make_engine: EngineFactory, tmp_path: Path) -> None:
    assert kept(make_engine, tmp_path, "ON OVERLOAD PREFER desc price") == Counter(MIXED[-12:])


def test_what_the_summary_knows_is_added_to_what_the_batch_has(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = overloaded_engine(make_engine, tmp_path)
    query = engine.register(f"{PER_SITE} {COUNTED.format('desc')}")
    feed.push(bids(*((15, 1.0, f"12:00:{i:02d}") for i in range(14))))
    assert batch(engine)
    feed.push(bids(*BATCH[1:]))
    assert batch(engine)
    engine.drain()
    assert counts(query) == {15: 1, 1: 12}  # 15 of 15 by now; one place more, as 12:00 has no row


def test_clauses_are_weighed_by_the_average_of_their_ranks(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    price, count = "ON OVERLOAD PREFER desc price", COUNTED.format("desc")
    opposed = kept(make_engine, tmp_path / "opposed", price, "ON OVERLOAD PREFER asc price")
    assert opposed == Counter(MIXED[:12])  # no row is better than another: by time
    both = kept(make_engine, tmp_path / "both", price, count)
    assert both == expected_of_both(1)
    more = kept(make_engine, tmp_path / "more", price, count, count)
    assert more == expected_of_both(2)


def expected_of_both(weight: int) -> dict[int, int]:
    """The 12 rows of the best average of two ranks, of which the one by count has a weight."""
    occurs = Counter(MIXED)
    by_price = {i: len(MIXED) - 1 - i for i in range(len(MIXED))}
    by_count = {i: sum(occurs[o] > occurs[site] for o in MIXED) for i, site in enumerate(MIXED)}
    best = sorted(range(len(MIXED)), key=lambda i: (by_price[i] + weight * by_count[i], i))
    return dict(Counter(MIXED[i] for i in best[:12]))


def test_a_weighted_choice_keeps_rows_in_the_ratio_of_their_promise(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """Half of 4,000 rows promise nine times as much as the others; few are kept."""
    rows = [(i % 2, 9.0 if i % 2 else 1.0, f"12:01:10.{i:06d}") for i in range(4000)]
    found = kept(make_engine, tmp_path, "ON OVERLOAD PREFER weighted price", rows=rows, budget=400)
    assert sum(found.values()) == 400
    assert 0.85 < found[1] / 400 < 0.93  # 0.9 but for what is taken out; a deviation is 0.015


def test_rows_that_promise_nothing_to_a_weighted_choice_go_first(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    prices = [None, 0.0, -3.0, float("nan")] * 3 + [1.0, 2.0]
    rows = [(i, price, "12:01:10") for i, price in enumerate(prices)]
    clause = "ON OVERLOAD PREFER weighted price"
    assert kept(make_engine, tmp_path, clause, rows=rows, budget=2) == {12: 1, 13: 1}


@pytest.mark.parametrize(
    "option", ["STRUCTURE time", "BUCKETS 4 BETWEEN 0 AND 20", "HISTOGRAM"], ids=["time", "between", "exact"]
)
def test_every_kind_of_summary_chooses_the_rows_to_keep(
    make_engine: EngineFactory, tmp_path: Path, option: str
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, overload="shed", budget=14)
    engine.execute(f"{SUMMARY} AND {option}")
    query = engine.register(f"{PER_SITE} {COUNTED.format('desc')}")
    feed.push(bids(*((15, 1.0, f"12:00:{i:02d}") for i in range(13)), (None, None, "12:00")))
    assert batch(engine)
    feed.push(bids(*BATCH[1:], (None, None, "12:01:10.5")))
    assert batch(engine)
    engine.drain()
    assert counts(query) == {15: 1, 1: 12}


def test_sidelined_rows_are_processed_later_and_all_results_are_emitted(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = overloaded_engine(make_engine, tmp_path, overload="sideline")
    query = engine.register(f"{PER_SITE} {COUNTED.format('desc')}")
    feed.push(bids(*BATCH))
    assert batch(engine) and aside(engine) == 12
    known = committed(tmp_path)[0].stream("bids").sidelined
    times = [span for chunk in known for span in chunk.ranges.values()]
    assert times == sorted(times)  # what is aside is held, and released, by time
    assert engine.summaries()["sites"].arrived == 14
    engine.drain()
    assert counts(query) == Counter(MIXED) and accounted(engine)["counted"] == len(BATCH)
    assert set(query.results()["complete"].to_pylist()) == {True}
    assert engine.summaries()["sites"].arrived == len(BATCH)


def test_windows_that_lost_rows_say_so(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = overloaded_engine(make_engine, tmp_path)
    query = engine.register(f"{PER_SITE} {COUNTED.format('desc')}")
    feed.push(bids(*BATCH))
    engine.drain()
    found = {(row["window_start"].minute, row["complete"]) for row in query.results().to_pylist()}
    assert found == {(0, True), (1, False), (2, True)}


# --- failures --------------------------------------------------------------------------------

STEPS: dict[str, tuple[Any, str, bool]] = {
    "after rows were written aside": (Sideline, "_write", True),
    "before the commit": (BatchLog, "commit", False),
}
CLAUSES = {order: f"{PER_SITE} {COUNTED.format(order)} * price" for order in ("desc", "weighted")}


def chosen(engine: transom.Engine, place: Path) -> Any:
    """What two batches counted and put aside."""
    state = committed(place)[0].stream("bids")
    chunks = [replace(chunk, name=re.sub(r"-\w+/", "/", chunk.name)) for chunk in state.sidelined]
    return [answers(engine.query(name).prod()) for name in CLAUSES], chunks


@pytest.fixture(scope="module")
def undisturbed(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("undisturbed")
    engine, feed = overloaded_engine(make_engine, place, overload="sideline")
    engine.register_all(CLAUSES)
    for number in (1, 2):
        feed.push(burst(number))
        batch(engine)
    return chosen(engine, place)


def burst(number: int) -> list[tuple[Any, ...]]:
    """A batch whose rows are given in any order."""
    rows = [(site, price, f"12:0{number}:{i:02d}") for i, (site, price, _) in enumerate(BURST)]
    return bids(*Random(number).sample(rows, len(rows)))


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_is_run_again_chooses_the_same_rows(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    engine, feed = overloaded_engine(make_engine, tmp_path, overload="sideline")
    engine.register_all(CLAUSES)
    feed.push(burst(1))
    batch(engine)
    owner, name, after = STEPS[step]
    fault = Fault(monkeypatch, owner, name, lambda *args, **options: True, after)
    feed.push(burst(2))
    with pytest.raises(Exception, match="Crash|failed|" + name):
        batch(engine)
    assert fault.fired
    engine.stop()
    again, _ = overloaded_engine(make_engine, tmp_path, overload="sideline")
    if begun(tmp_path) is not None:
        batch(again)
    assert chosen(again, tmp_path) == undisturbed


# --- beside the rows -------------------------------------------------------------------------


def test_queries_that_differ_in_the_clause_alone_share_their_slices(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, _ = overloaded_engine(make_engine, tmp_path)
    engine.register(PER_SITE, name="plain")
    engine.register(f"{PER_SITE} {COUNTED.format('desc')} * (price + 1.5)", name="led")
    plan = engine.explain()
    assert "2 queries in 1 selection of 1 family" in plan
    assert "on overload: prefers desc SUMMARY.Estimate.Count(site) * (price + 1.5)" in plan
    assert plan.count("on overload: prefers") == 1
    assert "on overload: prefers desc" in engine.query("led").explain()


def test_a_summary_that_a_clause_counts_by_is_not_dropped_under_it(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = overloaded_engine(make_engine, tmp_path)
    query = engine.register(f"{PER_SITE} {COUNTED.format('desc')}", name="led")
    with pytest.raises(transom.StateError, match="read by led"):
        engine.execute("DROP SUMMARY sites")
    feed.push(bids(*BATCH))
    batch(engine)
    with pytest.raises(transom.StateError, match="read by led"):
        engine.execute("DROP SUMMARY sites")
    engine.execute("CREATE SUMMARY others ON bids(site) WITH GRANULARITY '1 minute'")
    engine.execute("DROP SUMMARY sites")  # there is another
    with pytest.raises(transom.StateError, match="read by led"):
        engine.execute("DROP SUMMARY others")
    query.drop()
    engine.execute("DROP SUMMARY others")


@ON_BOTH
def test_backends_evaluate_promises_as_numpy_does(make_engine: EngineFactory, seed: int) -> None:
    dice = Random(seed)
    numbers = {"a": [0.0, 1.0, -2.5, 7.0, None, float("nan"), 3.0], "b": [1.0, 0.0, 0.0, 2.0, 5.0, 1.0, None]}
    table = pa.table({name: pa.array(own, pa.float64()) for name, own in numbers.items()})
    plain = {name: np.nan_to_num(np.array([v or 0.0 for v in own])) for name, own in numbers.items()}
    drawn = [drawn_promise(dice, 3) for _ in range(40)]
    texts = [promise_sql(one, lambda leaf: f"coalesce(nanvl(`{leaf.column}`, 0D), 0D)") for one in drawn]
    scalars = {f"p{i}": text for i, text in enumerate(texts)}
    found = make_engine.backend.frame(table).project(scalars).to_table()
    for i, one in enumerate(drawn):
        expected = np.broadcast_to(promised(one, lambda leaf: plain[leaf.column]), 7)
        assert np.array_equal(found[f"p{i}"].to_numpy(), expected), (seed, one)


def drawn_promise(dice: Random, depth: int) -> Promise:
    if not depth or dice.random() < 0.2:
        return dice.choice([EstimatedCount("s", "a"), Column("s", "b"), Number(dice.choice([0.0, 2.0, 0.1]))])
    return Arithmetic(dice.choice("+-*/"), drawn_promise(dice, depth - 1), drawn_promise(dice, depth - 1))
