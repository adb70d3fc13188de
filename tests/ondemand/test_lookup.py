"""On-demand queries batch by batch: the paper's example, cached answers, evicted tuples."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.results.pure_batches import Pure
from transom.plan.passes.stores import store_sets

# Aggregate Sharing, section 3.2.4: <timestamp, attribute A>.
STREAM = [(1, 3), (2, -10), (3, -9), (4, 5), (5, 2), (6, 7), (7, -3)]
BUCKETS = "USING timegram(BOUNDS -10, -6, -2, 4, 6, 10)"


def papers(*texts: str, **options: Any) -> Pure:
    return Pure({f"q{i}": text for i, text in enumerate(texts, 1)}, {"a": pa.int64()}, **options)


def test_the_papers_example_in_intervals_and_exactly() -> None:
    """Tuple 5 has the value 2, which is in bucket 3, [-2, 4]; the paper files it in bucket 4, [4, 6]."""
    queries = [
        "SELECT sum(a) AS x FROM s [RANGE 4]",
        "SELECT max(a) AS x FROM s [RANGE 3]",
        "SELECT avg(a) AS x FROM s [RANGE 2]",
    ]
    engine = papers(*(f"{text} {BUCKETS}" for text in queries), *queries)
    for row in STREAM:
        engine.batch([row])
    inside = {f"q{i}": engine.lookup(f"q{i}")[0] for i in range(1, 7)}
    assert [inside[name]["x"] for name in ("q4", "q5", "q6")] == [5 + 2 + 7 - 3, 7, 2.0]
    for bounded, exact_structure in (("q1", "q4"), ("q2", "q5"), ("q3", "q6")):
        found = inside[bounded]
        assert found["x_low"] <= inside[exact_structure]["x"] <= found["x_high"]
        assert found["x_low"] <= found["x"] <= found["x_high"]
    # Every bucket has seen one value that is still there, but for those of 2 (and 3), and of 7.
    assert (inside["q2"]["x_low"], inside["q2"]["x_high"]) == (7, 7)
    # A sum of 4 is between 5 + 2 + 7 - 3 and 5 + 3 + 7 - 3: tuple 1 was in bucket 3, too.
    assert inside["q1"]["x_low"] <= 11 <= inside["q1"]["x_high"] <= 12


def test_queries_that_differ_in_their_windows_share_their_stores() -> None:
    texts = [f"SELECT sum(a), avg(a), var_pop(a), count(a) FROM s [RANGE {n}]" for n in range(1, 50)]
    engine = papers(*texts, "SELECT max(a) FROM s [RANGE 7]")
    assert sorted(engine.state.stores) == [
        "s by t | staircase(max(bigint)) of `a` bigint",
        "s by t | staircase(max(bigint)) of times",
        "s by t | values of `a` bigint",
    ]
    (store_set,) = store_sets(engine.looking("s"))
    assert store_set.range == 49
    engine.batch(STREAM)
    assert engine.state.stores["s by t | values of `a` bigint"].tiers.entries == len(STREAM)


def test_stores_are_dropped_with_the_last_query_that_reads_them() -> None:
    engine = papers(
        "SELECT sum(a) FROM s [RANGE 5]",
        "SELECT avg(a) AS x FROM s [RANGE 3]",
        "SELECT max(a) FROM s [RANGE 9]",
    )
    engine.batch(STREAM)
    engine.drop("q3")
    assert "s by t | staircase(max(bigint)) of `a` bigint" not in engine.state.stores
    engine.drop("q1")
    engine.batch([(8, 1)])
    assert [row["x"] for row in engine.lookup("q2")] == [(7 - 3 + 1) / 3]
    engine.drop("q2")
    assert engine.state.stores == {}


def test_tuples_that_no_window_reaches_are_evicted() -> None:
    engine = papers("SELECT sum(a) AS x, count(*) AS n FROM s [RANGE 10]")
    for batch_id in range(100):
        engine.batch([(batch_id * 5 + i, 1) for i in range(5)])
        assert engine.lookup("q1")[0]["n"] == min(10, batch_id * 5 + 5)
    assert all(store.tiers.entries <= 20 for store in engine.state.stores.values())


def test_ordered_sharing_hits_until_the_answer_leaves_the_window() -> None:
    engine = papers(*(f"SELECT max(a) AS x FROM s [RANGE {n}] USING ordered_sharing" for n in (10, 5, 2)))
    engine.batch([(t, 10 - t) for t in range(4)])
    key = "s by t | values of `a` bigint"

    def usage() -> tuple[int, int]:
        return engine.lookup_cache.usage()[key].lookups, engine.lookup_cache.usage()[key].hits

    assert engine.lookup("q1")[0]["x"] == 10 and usage() == (1, 0)
    assert engine.lookup("q2")[0]["x"] == 10 and usage() == (2, 1), "validated with the larger window"
    assert engine.lookup("q3")[0]["x"] == 8 and usage() == (3, 2)
    engine.batch([(4, 20)])
    assert [engine.lookup(name)[0]["x"] for name in ("q1", "q2", "q3")] == [20, 20, 20] and usage() == (6, 5)
    engine.batch([(t, 1) for t in range(5, 8)])
    assert [engine.lookup(name)[0]["x"] for name in ("q1", "q2")] == [20, 20] and usage() == (8, 7)
    assert engine.lookup("q3")[0]["x"] == 1 and usage() == (9, 7), "the 20 is out of the smallest window"
    assert engine.lookup("q1", 3)[0]["x"] == 1, "never registered"


def test_lookups_of_later_moments_do_not_affect_ordered_sharing() -> None:
    engine = papers("SELECT max(a) AS x FROM s [RANGE 10] USING ordered_sharing")
    engine.batch([(1, 9), (5, 4)])
    assert engine.lookup("q1")[0]["x"] == 9
    assert engine.lookup("q1", at=13)[0]["x"] == 4, "the 9 is out of it by then"
    assert engine.lookup("q1")[0]["x"] == 9
    engine.batch([(6, 1)])
    assert engine.lookup("q1")[0]["x"] == 9


def test_ordered_sharing_over_the_results_of_another_query() -> None:
    engine = Pure(
        {
            "q": "SELECT max(a) AS m FROM s [RANGE 2 SLIDE 2]",
            "top": "SELECT max(m) AS x FROM q [RANGE 6] USING ordered_sharing",
        },
        {"a": pa.int64()},
        slack=0,
    )
    for time, value in enumerate([5, 1, 9, 1, 2, 1, 3, 1, 1, 1, 1]):
        engine.batch([(time, value)])
        engine.lookup("top")
    assert engine.lookup("top")[0]["x"] == 3


@pytest.mark.parametrize("using", ["", " USING naive", " USING ordered_sharing", " USING timegram(8)"])
def test_a_restart_changes_no_answer(using: str) -> None:
    found = []
    for restart in (False, True):
        engine = papers(f"SELECT max(a) AS x, min(a) AS y FROM s [RANGE 5]{using}", restart=restart)
        answers = []
        for row in STREAM * 3:
            engine.batch([row])
            answers += [engine.lookup("q1"), engine.lookup("q1", 2)]
        found.append(answers)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [2**63 - 1, 2**63 - 2]),
        (pa.int64(), [2**60 + 1, 2**60 + 2, -(2**63)]),
        (pa.decimal128(18, 0), [Decimal(10**18 - 1)]),
        (pa.decimal128(38, 2), [Decimal("1e35"), Decimal("-0.01")]),
        (pa.float64(), [1.7e308, 1.6e308, -1.7e308]),
    ],
)
def test_the_midpoint_lies_in_its_interval(kind: pa.DataType, values: list[Any]) -> None:
    text = "SELECT max(v) AS a, min(v) AS b, sum(v) AS c, avg(v) AS d FROM s [RANGE 9] USING timegram(1)"
    engine = Pure({"q": text}, {"v": kind})
    engine.batch(list(enumerate(values)))
    (row,) = engine.lookup("q")
    for name in "abcd":
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        if row[name] is None:  # no decimal of its type is in there
            assert pa.types.is_decimal(kind) and min(abs(low), abs(high)) > 10**32
        elif not math.isnan(high):
            assert low <= row[name] <= high, (name, low, row[name], high)


def test_a_pattern_finds_nan_null_and_any_of_several_values() -> None:
    engine = Pure({"q": "SELECT g, count(*) AS n FROM s [RANGE 9] GROUP BY g"}, {"g": pa.float64()})
    engine.batch([(1, math.nan), (2, None), (3, 1.0), (4, 2.0), (5, -0.0)])
    assert [row["n"] for row in engine.lookup("q", g=math.nan)] == [1]
    assert [row["n"] for row in engine.lookup("q", g=None)] == [1]
    assert [row["n"] for row in engine.lookup("q", g=0.0)] == [1]
    assert [row["g"] for row in engine.lookup("q")][:3] == [0.0, 1.0, 2.0], "groups come in order"
