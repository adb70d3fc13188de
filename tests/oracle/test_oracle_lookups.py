"""Lookups, answered naively: any suffix of the stream, right after any batch."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from tests.oracle.query_helpers import CLOCK, ROWS, batch, call, column, equals, query, run
from tests.oracle.test_oracle_from_sql import CATALOG, SITE_ROWS, shown
from tests.oracle.test_oracle_from_sql import ROWS as BIDS
from transom.elements import Clock, ClockKind, Drop, Register, Using, WindowSpec
from transom.oracle import OracleBatch, OracleLookup, OracleOutcome, OracleStreamRules, answer, join_tables
from transom.sql import bind_one
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.query import IsNull, Not, Query

NOW = [OracleLookup()]


def looked_up(length: int, *calls: Any, clock: Clock = CLOCK, **more: Any) -> Query:
    return query(WindowSpec(length, 1), *calls, clock=clock, **more).on_demand(Using())


def reported(outcome: OracleOutcome, *columns: str) -> list[tuple[Any, ...]]:
    """For each lookup its batch, its length, and the columns of its rows, by default x0."""
    columns = columns or ("x0",)
    return [
        (each.batch_id, each.length, *(tuple(row[name] for name in columns) for row in each.rows))
        for each in outcome.lookups
    ]


#   A of the paper's tuples T1 to T7, here as volumes; its T5, the value 2, belongs into [-2, 4], bucket 3.
PAPER = [3, -10, -9, 5, 2, 7, -3]


@pytest.mark.parametrize(
    ("function", "answers"),
    [("max", [-3, 7, 7, 7]), ("min", [-3, -3, -3, -3]), ("sum", [-3, 4, 6, 11]), ("count", [1, 2, 3, 4])],
)
def test_the_example_of_timegram(function: str, answers: list[int]) -> None:
    """Its windows have up to 4 rows; Query 2, max over 3, lies in [6, 10]: it is 7."""
    rows = [(number, 1, 50, value) for number, value in enumerate(PAPER, 1)]
    lookups = [OracleLookup("q", length) for length in (1, 2, 3, 4)]
    outcome = run(looked_up(4, call(function), clock=ROWS), batch(*rows, lookups=lookups))
    assert reported(outcome) == [(0, length, (value,)) for length, value in enumerate(answers, 1)]
    assert [each.window for each in outcome.lookups] == [(6, 7), (5, 7), (4, 7), (3, 7)]


#   ts      0    5    10   15   20   25
#   batch 0  1         2
#   batch 1            3         4
#   batch 2       5         6
def test_a_window_ends_at_the_newest_row_whatever_order_rows_come_in() -> None:
    batches = [
        batch((10, 1, 50, 2), (0, 1, 50, 1), lookups=[OracleLookup(), OracleLookup("q", 10)]),
        batch((20, 1, 50, 4), (10, 1, 50, 3), lookups=[OracleLookup(), OracleLookup("q", 10)]),
        batch((15, 1, 50, 6), (5, 1, 50, 5), lookups=[OracleLookup(), OracleLookup("q", 10)]),
    ]
    outcome = run(looked_up(20), *batches)
    assert [(*each.window, each.length) for each in outcome.lookups if each.window] == [
        *[(-9, 11, 20), (1, 11, 10)],
        *[(1, 21, 20), (11, 21, 10)],
        *[(1, 21, 20), (11, 21, 10)],
    ]
    assert [row["x0"] for each in outcome.lookups for row in each.rows] == [3, 2, 9, 4, 20, 10]
    assert outcome.results == {"q": []}


def test_an_answer_says_its_window_its_groups_how_many_rows_and_whether_it_saw_all() -> None:
    rows = [(1, 7, 50, 10), (2, 8, 50, 20), (3, 7, 50, 30)]
    (found,) = run(looked_up(3, by=["sensor"]), batch(*rows, lookups=NOW)).lookups
    common = {"window_start": 1, "window_end": 4, "late": 0, "complete": True, "batch": 0}
    assert found.rows == [
        {**common, "sensor": 7, "x0": 40, "rows": 2},
        {**common, "sensor": 8, "x0": 20, "rows": 1},
    ]
    assert (found.batch_id, found.query, found.length, found.complete) == (0, "q", 3, True)


def test_no_matching_row_no_answer() -> None:
    outcome = run(
        looked_up(5, where=equals("sensor", 1)),
        batch(lookups=NOW),
        batch((1, 1, 50, 10), lookups=NOW),
        batch((9, 2, 50, 10), lookups=NOW),
    )
    assert reported(outcome) == [(0, 5), (1, 5, (10,)), (2, 5)]
    assert [each.window for each in outcome.lookups] == [None, (-3, 2), (5, 10)]


def test_rows_are_counted_in_the_stream_not_among_those_that_match() -> None:
    outcome = run(
        looked_up(3, clock=ROWS, where=equals("sensor", 1)),
        batch((1, 1, 50, 10), (2, 2, 50, 20), lookups=NOW),
        batch((4, 2, 50, 40), (3, 1, 50, 30), lookups=NOW),
    )
    assert reported(outcome, "x0", "rows") == [(0, 3, (10, 1)), (1, 3, (30, 1))]
    assert [each.window for each in outcome.lookups] == [(-1, 2), (1, 4)]


def test_a_lookup_of_all_asks_those_that_reach_so_far() -> None:
    queries = {"short": looked_up(5), "long": looked_up(50), "pushed": query(WindowSpec(5, 5))}
    outcome = run(queries, batch((1, 1, 50, 10), lookups=[OracleLookup(), OracleLookup(length=20)]))
    assert [(each.query, each.length) for each in outcome.lookups] == [
        ("short", 5),
        ("long", 50),
        ("long", 20),
    ]


@pytest.mark.parametrize(
    ("lookup", "said"),
    [
        (OracleLookup("short", 6), "a lookup of short is for 1 to 5, not 6"),
        (OracleLookup("short", 0), "a lookup of short is for 1 to 5, not 0"),
        (OracleLookup("pushed"), "pushed has SLIDE: its results are pushed"),
    ],
)
def test_a_lookup_that_cant_be_answered_is_refused(lookup: OracleLookup, said: str) -> None:
    queries = {"short": looked_up(5), "pushed": query(WindowSpec(5, 5))}
    with pytest.raises(ValueError, match=said):
        run(queries, batch((1, 1, 50, 10), lookups=[lookup]))


# --- queries that join -----------------------------------------------------------------------


def test_a_query_that_joined_late_says_what_it_saw_and_what_it_would_have_seen() -> None:
    outcome = run(
        looked_up(10),
        batch((1, 1, 50, 1), (2, 1, 50, 2)),
        batch((5, 1, 50, 4), before=[Register("q", "")], lookups=[OracleLookup(), OracleLookup("q", 3)]),
        batch((12, 1, 50, 8), lookups=NOW),
        batch(before=[Drop("q")], lookups=NOW),
    )
    seen = [([row["x0"] for row in each.rows], [row["x0"] for row in each.whole]) for each in outcome.lookups]
    assert seen == [([4], [7]), ([4], [4]), ([12], [12])]
    assert [each.complete for each in outcome.lookups] == [False, True, True]
    first = outcome.lookups[0]
    assert [row["complete"] for row in (*first.rows, *first.whole)] == [False, True]


def test_a_window_is_incomplete_also_for_want_of_rows_that_would_not_match() -> None:
    """Who was not there can't know that they would not."""
    outcome = run(
        looked_up(10, where=equals("sensor", 1)),
        batch((1, 2, 50, 1)),
        batch((5, 1, 50, 4), before=[Register("q", "")], lookups=NOW),
    )
    (found,) = outcome.lookups
    assert not found.complete
    assert [row["x0"] for row in found.rows] == [row["x0"] for row in found.whole] == [4]


# --- what became of every row ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "queries", "counts"),
    [
        ("before any row came nothing is late", {"q": looked_up(1)}, {"counted": 3, "late": 1}),
        ("a row at the edge of the window is in time", {"q": looked_up(8)}, {"counted": 4}),
        ("one before it is late", {"q": looked_up(7)}, {"counted": 3, "late": 1}),
        ("it is late though a longer query takes it", {"a": looked_up(7), "b": looked_up(8)}, {"counted": 3, "late": 1}),
        ("rows are never late", {"q": looked_up(1, clock=ROWS)}, {"counted": 4}),
        ("unmatched, unwanted", {"q": looked_up(9, where=equals("sensor", 2))}, {"unwanted": 4}),
        (
            "no time, not asked for",
            {"q": looked_up(9, where=Not(IsNull(column("volume"))), clock=Clock("traffic", "volume", ClockKind.INTEGER))},
            {"counted": 2, "unwanted": 2},
        ),
        ("it is late though an open window of a pushed query takes it", {"q": looked_up(1), "p": query(WindowSpec(50, 50))}, {"counted": 3, "late": 1}),
    ],
)  # fmt: skip
def test_every_row_is_accounted_for(name: str, queries: dict[str, Query], counts: dict[str, int]) -> None:
    """A batch is judged by what was there before it: 3 is in time beside 10, and late after it or not."""
    outcome = run(queries, batch((10, 1, 50, 100), (3, 1, 50)), batch((3, 1, 50, 99), (30, 1, 50)))
    assert outcome.counts["traffic"] == {"in": 4, **counts, "rejected": 0}
    assert len(outcome.late["traffic"]) == counts.get("late", 0)


# --- through SQL -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT max(seq) AS m FROM bids [RANGE 1 minute]", [{"m": 5}]),
        ("SELECT sum(fee) AS s, avg(fee) AS a FROM bids [ROWS 3]", [{"s": Decimal("3.00"), "a": Decimal("1.500000")}]),
        ("SELECT max(price) AS m FROM bids [RANGE 3 minutes]", [{"m": "NaN"}]),
        ("SELECT max(price) AS m FROM bids [RANGE 3 minutes] WITHIN 5%", [{"m": "NaN"}]),
        ("SELECT max(price) AS m FROM bids [RANGE 3 WATTR seq] WHERE seq < 4 USING naive", [{"m": 30.0}]),
        ("SELECT kind, count(*) AS n FROM bids [RANGE 1 day] GROUP BY kind HAVING n > 1", [{"kind": "a", "n": 2}, {"kind": "b", "n": 2}]),
        ("SELECT count(*) FILTER (WHERE kind = 'a') AS n, count(*) / 2 AS h FROM bids [RANGE 1 day]", [{"n": 2, "h": 2.5}]),
        ("SELECT city, count(*) AS n FROM bids [RANGE 1 day], sites WHERE site = id GROUP BY city", [{"city": "Portland", "n": 2}, {"city": None, "n": 1}]),
        ("SELECT window_end - window_start AS w, approx_percentile(seq, 0.5) AS p FROM bids [ROWS 5]", [{"w": 5, "p": 3}]),
    ],
)  # fmt: skip
def test_a_lookup_of_a_query_in_sql(text: str, expected: list[dict[str, Any]]) -> None:
    scalars = InterpretedScalars()
    bound = bind_one(text, CATALOG, scalars)
    columns = dict(CATALOG.streams["bids"].columns)
    rules = {"bids": OracleStreamRules("ts", columns=columns)}
    batches = [OracleBatch("bids", BIDS, lookups=NOW)]
    outcome = answer({"q": bound}, batches, rules, scalars, join_tables({"sites": SITE_ROWS}, scalars))
    (found,) = outcome.lookups
    names = [item.name for item in bound.items]
    assert sorted(shown({name: row[name] for name in names}) for row in found.rows) == sorted(
        map(shown, expected)
    )


def test_times_are_in_microseconds() -> None:
    start = datetime(2013, 1, 1, tzinfo=UTC)
    rows = [{"ts": start + timedelta(seconds=at), "volume": at} for at in (0, 1, 2)]
    clock = Clock("traffic", "ts")
    asking = looked_up(2_000_000, call("min"), clock=clock)
    rules = {"traffic": OracleStreamRules("ts")}
    outcome = answer({"q": asking}, [OracleBatch("traffic", rows, lookups=NOW)], rules, InterpretedScalars())
    assert reported(outcome) == [(0, 2_000_000, (1,))]  # the row of second 0 is exactly two seconds old


# --- a lookup is the periodic query's window that ends there ----------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_lookup_agrees_with_the_pushed_window_that_ends_at_the_newest_row(seed: int) -> None:
    random = Random(seed)
    length, clock = random.randint(1, 30), random.choice([CLOCK, ROWS])
    calls = [call(name) for name in ("sum", "count", "min", "max", "avg")]
    by = random.choice([[], ["sensor"]])
    queries = {
        "q": looked_up(length, *calls, clock=clock, by=by),
        "pushed": query(WindowSpec(length, 1), *calls, clock=clock, by=by),
    }
    rows = [
        (random.randint(0, 60), random.randint(1, 3), 50, random.choice([None, *range(9)])) for _ in range(30)
    ]
    batches = [batch(*rows[at : at + 6], lookups=NOW) for at in range(0, 30, 6)]
    outcome = run(queries, *batches, batch(end_of_stream=True))
    *_, last = outcome.lookups
    assert last.window is not None
    ending = [row for row in outcome.results["pushed"] if row["window_end"] == last.window[1]]
    kept = [*by, "x0", "x1", "x2", "x3", "x4", "rows"]
    assert last.rows == last.whole
    assert sorted(repr([row[name] for name in kept]) for row in last.rows) == sorted(
        repr([row[name] for name in kept]) for row in ending
    ), f"seed {seed}"
