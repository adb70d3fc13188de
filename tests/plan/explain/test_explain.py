"""EXPLAIN, word for word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest

from tests.plan.bids import RULES, SEQ, TIME, admitted, compiled
from transom.plan.compiled_query import CompiledQuery
from transom.plan.explain import Explained, Explanation, gather, plan_text, query_text
from transom.plan.explain.element_text import slot_text
from transom.plan.planner import Planner
from transom.plan.strategy import FragmentSharing, Strategy
from transom.state.state import ClockState, State, StreamState, Work
from transom.storage.shard_refs import ShardRef
from transom.windows.intervals import IntervalSet
from transom.windows.stream_rules import StreamRules

NOON = 1_357_041_600_000_000
MINUTE = 60_000_000


def windows(range: str, slide: str) -> str:
    return f"[RANGE {range} SLIDE {slide}]"


def over_price(name: str, constant: int, window: str = windows("4 minutes", "1 minute")) -> CompiledQuery:
    where = f"price > {constant} AND kind = 'a'"
    return compiled(f"SELECT site, avg(price) AS p FROM bids {window} WHERE {where} GROUP BY site", name)


def plan(*queries: CompiledQuery, state: State | None = None, **more: Any) -> Explanation:
    known = {query.name: query for query in queries}
    return gather(Explained({"bids": RULES}, State() if state is None else state, known, **more))


def running(*queries: CompiledQuery, work: Work | None = None) -> State:
    """A state of queries that joined, with the stream at noon."""
    streams = {"bids": StreamState({TIME: ClockState(high=NOON)}, work=work or Work())}
    return replace(admitted(*queries), batch_id=7, streams=streams)


def sheet_of(state: State, home: int, slices: Mapping[int, int]) -> State:
    """The state with so many groups in each of some slices of a selection."""
    rows = [(start, site) for start, sites in slices.items() for site in range(sites)]
    table = pa.table(
        {
            "selection": pa.array([home] * len(rows), pa.int64()),
            "slice": pa.array([start for start, _ in rows], pa.int64()),
            "stop": pa.array([start + MINUTE for start, _ in rows], pa.int64()),
        }
    )
    return replace(state, sheets={state.selections[home].sheet: table})


def test_a_range_family_whose_selections_share_slices_with_several_queries() -> None:
    queries = [
        over_price("low", 10),
        over_price("high", 20),
        over_price("long", 10, windows("12 minutes", "5 minutes")),
        compiled(
            f"SELECT site, sum(price) AS s FROM bids {windows('4 minutes', '1 minute')} "
            "WHERE price > 10 AND kind = 'a' GROUP BY site HAVING s > 5",
            "total",
        ),
    ]
    state = running(*queries, work=Work(1_000, 300, 9_000, 100))
    expected = """\
        stream bids: 4 queries in 2 selections of 1 family, time ts
          slack 30 seconds, horizon 52 weeks 2 days
          project: 3 scalar expressions for 16 uses
            price (8)
            kind (4)
            site (4)
          done: 1,000 partial (unshared: 9,000) and 300 final (unshared: 100) aggregations; \
unshared 7.0 times as many
          family 1: range of price, 2 selections, 4 queries
            2 constants cut it into 4 fragments: one binary search per tuple serves all selections
            all require kind = 'a'
            group by site
            selection 1: where price > 10.0
              query low: range 4 minutes, slide 1 minute
              query long: range 12 minutes, slide 5 minutes
              query total: range 4 minutes, slide 1 minute; having sum(price) > 5
              slices shared by 3 queries with 2 kinds of window: 60 per hour, of 1 minute; \
next edges 2013-01-01 12:01:00, 2013-01-01 12:02:00, 2013-01-01 12:03:00
              keep per slice and group: rows
                sum(price) for avg(price), sum(price) of all of them
                count(price) for avg(price) of low, long
              holds 2 slices, 5 rows, on the driver
            selection 2: where price > 20.0
              query high: range 4 minutes, slide 1 minute
              slices: 60 per hour, of 1 minute; \
next edges 2013-01-01 12:01:00, 2013-01-01 12:02:00, 2013-01-01 12:03:00
              keep per slice and group: rows, sum(price), count(price)
              holds nothing yet
        strategy shared_paired, fragments families, state auto"""
    state = sheet_of(state, 1, {NOON - MINUTE: 3, NOON: 2})
    assert plan_text(plan(*queries, state=state)) == dedent(expected)


def test_queries_that_have_nothing_in_common_but_conjuncts_share_signatures() -> None:
    queries = [
        compiled(f"SELECT count(*) FROM bids {windows('1 minute', '1 minute')} WHERE {where}", name)
        for name, where in (("a", "kind LIKE 'a%' AND site = 3"), ("b", "kind LIKE 'b%' AND seq > 3"))
    ]
    lines = plan_text(plan(*queries)).splitlines()
    assert "  family 1: signature of 4 conjuncts, 2 selections, 2 queries" in lines
    assert (
        "    the fragments are the signatures that occur: one signature per tuple serves all selections"
        in lines
    )
    assert "    selection 1: where kind LIKE 'a%' AND site = 3" in lines
    unshared = plan(*queries, planner=Planner(Strategy(fragments=FragmentSharing.UNSHARED)))
    assert [family.kind for family in unshared.streams[0].families] == ["alone", "alone"]
    assert [family.fragments for family in unshared.streams[0].families] == [1, 1]


def test_families_that_differ_in_groups_say_what_they_are_rolled_up_from() -> None:
    minute = windows("1 minute", "1 minute")
    texts = {
        "sites": f"SELECT site, count(*) FROM bids {minute} WHERE price > 1 GROUP BY site",
        "more sites": f"SELECT site, count(*) FROM bids {minute} WHERE price > 2 GROUP BY site",
        "all": f"SELECT count(*) FROM bids {minute} WHERE price > 3",
        "kinds": f"SELECT kind, count(*) FROM bids {minute} GROUP BY kind",
        "others": f"SELECT kind, count(*) FROM bids {minute} WHERE site = 1 GROUP BY kind",
    }
    queries = [compiled(query, name) for name, query in texts.items()]
    lines = [line.strip() for line in plan_text(plan(*queries)).splitlines()]
    told = [line for line in lines if line.startswith(("family", "rolled up"))]
    pays = "wherever these are clearly fewer than tuples"
    assert told == [
        "family 1: range of price, 2 selections, 2 queries",
        f"rolled up from groups by site, kind together with families 2, 3, {pays}",
        "family 2: range of price, 1 selection, 1 query",
        f"rolled up from groups by site, kind together with families 1, 3, {pays}",
        "family 3: alone, 1 query",
        f"rolled up from groups by site, kind together with families 1, 2, {pays}",
        "family 4: alone, 1 query",
    ]
    assert f"  rolled up from groups by site, kind together with families 1, 3, {pays}" in query_text(
        plan(*queries), "all"
    )
    unshared = plan(*queries, planner=Planner(Strategy(rolls=False)))
    assert [family.rolled_up for family in unshared.streams[0].families] == [None] * 4


def test_queries_that_wait_are_shown_as_if_they_had_joined() -> None:
    first = over_price("first", 10)
    state = running(first)
    shown = plan_text(plan(first, over_price("second", 10), state=state))
    assert "query second: range 4 minutes, slide 1 minute (joins with the next batch)" in shown
    assert "query first: range 4 minutes, slide 1 minute\n" in shown
    assert "slices shared by 2 queries:" in shown
    alone = plan_text(plan(first)).splitlines()
    assert alone[1] == "  all of them join with the next batch" and "(joins" not in "".join(alone)


def test_a_name_that_is_used_again_shows_the_query_that_comes() -> None:
    old, new = over_price("q", 10), over_price("q", 99)
    found = plan(new, state=running(old), again={"q"}).find("q")
    assert found is not None
    _, _, selection, query = found
    assert selection.where == "`price` > 99.0 AND `kind` = 'a'" and query.pending


def test_queries_that_leave_are_gone() -> None:
    stays, leaves = over_price("stays", 10), over_price("leaves", 20)
    shown = plan_text(plan(stays, state=running(stays, leaves)))
    assert "leaves" not in shown and "family 1: alone, 1 query" in shown


def test_suspended_queries_say_why() -> None:
    known = Explained({"bids": RULES}, State(), {}, suspended={"bad": ("bids", "its function failed")})
    assert "  suspended: bad: its function failed" in plan_text(gather(known)).splitlines()
    assert query_text(gather(known), "bad") == "query bad takes no part in batches: its function failed"


def test_joins_and_paired_slices_are_shown_as_people_write_them() -> None:
    query = compiled(
        "SELECT max(price - cp), min(price) FROM bids [RANGE 12 minutes SLIDE 5 minutes ORIGIN '1 minute'] "
        "JOIN closing ON bids.site = closing.site",
        "paired",
    )
    lines = [line.strip() for line in plan_text(plan(query)).splitlines()]
    assert "join closing on closing.site = site" in lines
    assert "selection 1: where closing matched" in lines
    assert "query paired: range 12 minutes, slide 5 minutes, ends 1 minute past each slide" in lines
    assert "slices: 24 per hour, of 3 minutes, 2 minutes, 3 minutes ..." in lines
    assert "keep per slice and group: rows, min(price), max(price - closing.cp)" in lines


def test_windows_along_numbers_are_told_in_numbers() -> None:
    numbered = compiled("SELECT count(*) FROM bids [RANGE 100 SLIDE 30 WATTR seq]", "numbered")
    lines = [line.strip() for line in plan_text(plan(numbered)).splitlines()]
    assert "query numbered: range 100, slide 30" in lines
    assert "slices: 2 per 30, of 10, 20, 10 ..." in lines


def test_a_naive_query_keeps_every_tuple() -> None:
    naive = compiled("SELECT count(*) FROM bids [ROWS 100 SLIDE 30]", "rows", naive=True)
    shown = plan_text(plan(naive))
    assert "keep every tuple" in shown and shown.endswith("strategy naive, fragments families, state auto")


def test_a_stream_that_no_query_reads() -> None:
    known = Explained({"bids": StreamRules(SEQ, None), "other": StreamRules(SEQ, 5)}, State(), {})
    assert plan_text(gather(known)).splitlines() == [
        "stream bids: 0 queries, time seq",
        "  slack none, horizon none",
        "  project: 0 scalar expressions for 0 uses",
        "  done: no aggregations yet",
        "stream other: 0 queries, time seq",
        "  slack 5, horizon none",
        "  project: 0 scalar expressions for 0 uses",
        "  done: no aggregations yet",
        "strategy shared_paired, fragments families, state auto",
    ]


def test_far_selections_hold_slices_in_shards() -> None:
    query = over_price("q", 10)
    state = running(query)
    shard = ShardRef("p7/x", ((0, 900, 4_000), (3, 100, 600)), {1: ((NOON, NOON + MINUTE), (0, MINUTE))})
    state = replace(
        state, selections={1: replace(state.selections[1], on_executors=True)}, shards=(shard,), partitions=4
    )
    lines = [line.strip() for line in plan_text(plan(query, state=state)).splitlines()]
    assert "holds 2 slices, in shards on the executors" in lines
    assert "state on the executors: 1,000 cells in 2 files of shards, 4,600 bytes" in lines


# --- many queries ---


@pytest.fixture(scope="module")
def many() -> Explanation:
    """Ten families by site, each of 20 selections by price, each of eight windows."""
    queries = [
        compiled(
            f"SELECT avg(price) FROM bids {windows(f'{length} minutes', '1 minute')} "
            f"WHERE price > {constant} AND site = {site}",
            f"s{site}p{constant}w{length}",
        )
        for site in range(10)
        for constant in range(20)
        for length in range(1, 9)
    ]
    return plan(*queries)


def test_many_queries_are_summed_up(many: Explanation) -> None:
    lines = plan_text(many).splitlines()
    assert lines[0] == "stream bids: 1,600 queries in 200 selections of 10 families, time ts"
    assert len(lines) < 120
    assert "  ... and 4 more families" in lines
    assert "    ... and 17 more selections; 160 queries in all" in lines
    assert any(line.strip().startswith("... and 4 more queries: s0p0w5, s0p0w6") for line in lines)


def test_verbose_leaves_nothing_out(many: Explanation) -> None:
    shown, _, decided = plan_text(many, verbose=True).partition("decisions of the planner")
    assert "more" not in shown
    assert decided.count("query s") == 1_600 and decided.count("family ") == 10
    assert (
        shown.count("query s") == 1_600 and shown.count("selection ") == 200 and shown.count("family ") == 10
    )


# --- one query ---


def test_a_grid_family_names_its_scalars_and_boxes() -> None:
    queries = [
        compiled(
            f"SELECT sum(price) AS p FROM bids [RANGE 4 minutes SLIDE 1 minute] "
            f"WHERE price > {i} AND seq < {9 - i} AND kind = 'a'",
            f"q{i}",
        )
        for i in range(3)
    ]
    lines = plan_text(plan(*queries), verbose=True).splitlines()
    assert "  family 1: grid of price and seq, 3 selections, 3 queries" in lines
    assert (
        "    6 constants and 3 boxes: one binary search per tuple and scalar serves all selections" in lines
    )
    assert "    all require kind = 'a'" in lines
    (decision,) = [line for line in lines if "family 1: boxes of price and seq for 3 selections" in line]
    assert "they differ in what they ask of these 2 scalars: 3 boxes" in decision


def test_one_query_shows_with_whom_it_shares_what() -> None:
    queries = [
        over_price("mine", 10),
        over_price("mate", 10, windows("8 minutes", "2 minutes")),
        over_price("cousin", 20),
        compiled(
            f"SELECT site, count(*) FROM bids {windows('1 minute', '1 minute')} "
            "WHERE price > 10 AND kind = 'a' GROUP BY site",
            "counter",
        ),
    ]
    expected = """\
        query mine over bids (joins with the next batch)
          window range 4 minutes, slide 1 minute on ts
          where price > 10.0 AND kind = 'a'
          group by site
          selection 1, shared with mate, counter
            slices: 60 per hour, of 1 minute
            keeps sum(price) for avg(price), and for mate
            keeps count(price) for avg(price), and for mate
            holds nothing yet
          family 1: range of price, 2 selections, 4 queries
            2 constants cut it into 4 fragments: one binary search per tuple serves all selections
            all require kind = 'a'
            group by site"""
    found = plan(*queries)
    assert query_text(found, "mine") == dedent(expected)
    assert "not shared" in query_text(found, "cousin")
    assert query_text(found, "nobody") == "query nobody takes no part in batches"


def test_a_query_that_missed_rows_says_so_and_one_that_moved_shows_both_homes() -> None:
    query, other = over_price("q", 10), over_price("other", 20)
    state = running(query, other)
    moved = replace(state.queries["q"], homes=(1, 2), unseen=IntervalSet.of((0, NOON)))
    shown = query_text(plan(query, other, state=replace(state, queries={**state.queries, "q": moved})), "q")
    assert "  does not answer for windows with rows from before it joined" in shown
    assert "    still reads selection 2, which it left" in shown


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("count(*)", ["count(*)"]),
        ("count(price)", ["count(`price`)"]),
        ("avg(price)", ["sum(`price`)", "count(`price`)"]),
        ("min(price) FILTER (WHERE seq > 1)", ["min(`price`) FILTER (WHERE `seq` > 1)"]),
        ("max(price)", ["max(`price`)"]),
        ("var_pop(price)", ["moments(`price`)"]),
        ("approx_count_distinct(price)", ["distinct(`price`)"]),
        ("approx_percentile(price, 0.5)", ["quantiles(`price`)"]),
    ],
)
def test_what_is_kept_is_called_by_its_label(call: str, kept: list[str]) -> None:
    query = compiled(f"SELECT {call} AS x FROM bids [RANGE 10 SLIDE 10 WATTR seq]", "q")
    assert [slot_text(slot) for slot in query.slots] == kept
