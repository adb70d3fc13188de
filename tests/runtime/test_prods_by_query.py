"""Queries of every kind, prodded: one's bad luck is not another's, and finals stay as they are."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import SettableClock, written
from tests.runtime.prod_helpers import BY_SENSOR, early, final, told, traffic

# --- queries of every kind -------------------------------------------------------------------

KINDS = {
    "grouped": BY_SENSOR,
    "having": BY_SENSOR + " HAVING sum(volume) > 2",
    "computed": "SELECT sensor, sum(volume) * 2 + count(*) AS v FROM s [RANGE 40 SLIDE 20] GROUP BY sensor",
    "joined": "SELECT road, sum(volume) AS v FROM s [RANGE 50 SLIDE 50], roads "
    "WHERE s.sensor = roads.sensor GROUP BY road",
    "rows": "SELECT max(volume) AS v FROM s [ROWS 4 SLIDE 4]",
    "gaps": "SELECT count(*) AS v FROM s [RANGE 15 SLIDE 20]",
    "filtered": "SELECT count(*) AS v FROM s [RANGE 50 SLIDE 50] WHERE volume > 2",
}
KNOWN = {
    "grouped": [(0, 50, 1, 5), (0, 50, 2, 2)],
    "having": [(0, 50, 1, 5)],
    "computed": [(-20, 20, 1, 3), (0, 40, 1, 12), (0, 40, 2, 5), (20, 60, 1, 9), (20, 60, 2, 5)],
    "joined": [(0, 50, "east", 5), (0, 50, None, 2)],
    "rows": [(0, 4, 4)],
    "gaps": [(5, 20, 1), (25, 40, 1)],
    "filtered": [(0, 50, 1)],
}


KEYS = {"grouped": ["sensor"], "having": ["sensor"], "computed": ["sensor"], "joined": ["road"]}


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, list(KINDS)),
        ({"strategy": "naive"}, list(KINDS)),
        ({"strategy": "unshared_paired"}, list(KINDS)),
        ({"strategy": "shared_paned"}, list(KINDS)),
        ({"state": "executors"}, ["computed"]),
    ],
    ids=["shared", "naive", "unshared", "paned", "with the executors"],
)
def test_queries_of_every_kind_can_be_prodded(
    make_engine: EngineFactory, tmp_path: Path, options: Any, names: list[str]
) -> None:
    engine, feed = traffic(make_engine, tmp_path, **options)
    engine.table("roads", [{"sensor": 1, "road": "east"}, {"sensor": 2, "road": None}])
    queries = engine.register_all({name: KINDS[name] for name in names})
    feed.push([(10, 1, 0, 1), (21, 2, 0, 2)])
    engine.step()
    feed.push([(30, 1, 0, 4)])
    feed.prod()
    engine.step()
    expected = {name: KNOWN[name] for name in names}
    assert {name: early(query, *KEYS.get(name, []), "v") for name, query in queries.items()} == expected
    now = {name: early(table, *KEYS.get(name, []), "v") for name, table in engine.prod("s").items()}
    assert now == expected
    if options.get("state") == "executors":
        assert engine.progress().executor_rows > 0


@ON_BOTH
def test_finals_and_early_results_of_one_batch_both_come_from_the_executors(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, state="executors")
    query = engine.register(BY_SENSOR)
    query.sink("json", path=str(tmp_path / "out"))
    heard: list[pa.Table] = []
    query.subscribe(heard.append)
    feed.push([(10, 1, 0, 1), (60, 2, 0, 2)])
    feed.prod(where={"sensor": 1})
    feed.prod(where={"sensor": 2})
    feed.prod(at=100, where={"sensor": 2})
    feed.punctuate(until=50)
    engine.step()
    assert told(query, "sensor", "v") == [("early", 50, 100, 2, 2), ("final", 0, 50, 1, 1)]
    sent = written(tmp_path / "out", "json")
    assert sorted((row["kind"], row["v"], row["batch"]) for row in sent) == sorted(
        (row["kind"], row["v"], row["batch"]) for row in query.results().to_pylist()
    )
    assert sum(table.num_rows for table in heard) == query.results().num_rows


# --- one query's bad luck --------------------------------------------------------------------


def test_a_query_whose_function_raises_when_prodded_is_not_told_and_the_others_are(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, max_failures=1)
    engine.udf("picky", lambda x: 1 // (x - 1), "int")
    picky = engine.register("SELECT picky(sum(volume)) AS v FROM s [RANGE 50 SLIDE 50]", name="picky")
    plain = engine.register(BY_SENSOR, name="plain")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    told_now = engine.prod("s")
    assert early(told_now["plain"], "v") == [(0, 50, 1)]
    assert early(picky.prod(), "v") == [(0, 50, None)] and picky.suspended is None
    feed.push([(11, 1, 0, 1)])
    engine.drain()
    assert final(picky, "v") == [(0, 50, 1)] and final(plain, "v") == [(0, 50, 2)]


def test_prods_return_nothing_of_a_suspended_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, max_failures=1)
    engine.udf("hopeless", lambda x: x.no_such_thing, "int")
    lost = engine.register("SELECT sum(hopeless(volume)) AS v FROM s [RANGE 50 SLIDE 50]", name="lost")
    plain = engine.register(BY_SENSOR, name="plain")
    feed.push([(10, 1, 0, 1)])
    feed.prod()
    engine.step()
    assert lost.suspended is not None
    assert lost.prod().num_rows == 0 and list(engine.prod("s")) == ["plain"]
    assert len(early(plain)) == 2


# --- finals ----------------------------------------------------------------------------------


def test_final_results_are_the_same_whoever_prods(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    texts = {
        "grouped": "SELECT sensor, sum(volume) AS v, avg(speed) AS a FROM s [RANGE 30 SLIDE 10] "
        "GROUP BY sensor",
        "whole": "SELECT max(volume) AS v, count(*) AS n FROM s [RANGE 25 SLIDE 10] WHERE speed > 20",
        "of results": "SELECT max(v) AS v, count(*) AS n FROM grouped [RANGE 40 SLIDE 20]",
    }
    emits = (
        " EMIT EARLY EVERY '1 second'",
        " EMIT EARLY AT 25%, 75% OF SLIDE",
        " EMIT EARLY WITH ACCURACY 90%",
    )
    random, found = Random(seed), []
    batches = [
        [
            (
                max(0, 30 * batch_id + random.randint(-20, 20)),
                random.randint(1, 3),
                random.randint(0, 50),
                random.randint(0, 99),
            )
            for _ in range(30)
        ]
        for batch_id in range(5)
    ]
    for prods in (False, True):
        clock = SettableClock()
        engine, feed = traffic(make_engine, tmp_path / str(prods), clock=clock, slack=20)
        ends = emits if prods else ("",) * 3
        queries = engine.register_all(
            {n: text + end for (n, text), end in zip(texts.items(), ends, strict=True)}
        )
        for batch_id in batches:
            feed.push(batch_id)
            clock.advance(minutes=1)
            if prods:
                feed.prod(until=random.randint(0, 200), where={"sensor": random.randint(1, 3)})
                feed.prod(at=random.randint(0, 200))
            engine.step()
            if prods:
                engine.prod()
        engine.drain()
        found.append({name: sorted(final(query, *_items(query))) for name, query in queries.items()})
        assert bool(early(queries["of results"])) == prods, f"seed {seed}"
    assert found[0] == found[1], f"seed {seed}"


def _items(query: Any) -> list[str]:
    names = query.results().column_names
    return [n for n in names[2:] if not n.endswith(("_projected", "_low", "_high", "made", "latency"))]
