"""On-demand queries: every form of USING and WITHIN, and the errors of wrong ones."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.test_templates import counted
from tests.sql.trades_catalog import CATALOG, UTC, Rules, bound
from transom.elements import Clock, ClockKind, Using, WindowSpec
from transom.errors import SQLError
from transom.sql import Query, bind, bind_all

SECOND = 1_000_000
MINUTE = 60 * SECOND
QUERY = "SELECT site, max(price) AS m FROM Trades [RANGE 5 min] WHERE price > 1 GROUP BY site"


def timegram(buckets: int | None = None, **more: Any) -> Using:
    return Using("timegram", buckets, **more)


CLAUSES: dict[str, Using] = {
    "": Using(),
    "USING exact": Using("exact"),
    "using NAIVE": Using("naive"),
    "USING ordered_sharing;": Using("ordered_sharing"),
    "USING timegram": timegram(64),
    "USING timegram()": timegram(64),
    "USING TimeGram(128)": timegram(128),
    "USING timegram(1)": timegram(1),
    "USING timegram(65536)": timegram(65_536),
    "USING timegram(1e3)": timegram(1000),
    "USING timegram(64 BETWEEN -10 AND 10)": timegram(64, between=(-10.0, 10.0)),
    "USING timegram(64 between 0.5 and 1e300)": timegram(64, between=(0.5, 1e300)),
    "USING timegram(BETWEEN -1 AND +1)": timegram(64, between=(-1.0, 1.0)),
    "USING timegram(BOUNDS -10, -6, -2, 4, 6, 10)": timegram(bounds=(-10.0, -6.0, -2.0, 4.0, 6.0, 10.0)),
    "USING timegram(BOUNDS 0, 0.5)": timegram(bounds=(0.0, 0.5)),
    "USING timegram(64, SLICE '1 second')": timegram(64, slice=SECOND),
    "USING timegram(SLICE 1 minute 30 s, 64)": timegram(64, slice=90 * SECOND),
    "USING timegram(SLICE INTERVAL '250' MILLISECONDS)": timegram(64, slice=SECOND // 4),
    "USING timegram(SLICE 1 /* short */ second)": timegram(64, slice=SECOND),
    "USING timegram(8 BETWEEN 0 AND 1, SLICE '1 s')": timegram(8, between=(0.0, 1.0), slice=SECOND),
    "USING timegram(BOUNDS 1, 2, 3, SLICE '1 s')": timegram(bounds=(1.0, 2.0, 3.0), slice=SECOND),
    "WITHIN 5%": timegram(within=0.05),
    "within 0.5 percent": timegram(within=0.005),
    "WITHIN 5 % USING timegram": timegram(within=0.05),
    "WITHIN 5% USING timegram(SLICE '1 second')": timegram(within=0.05, slice=SECOND),
    "USING timegram(SLICE '1 second') WITHIN 5%": timegram(within=0.05, slice=SECOND),
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_each_form_of_using_and_within_is_bound(clause: str) -> None:
    query = bound(f"{QUERY} {clause}")
    assert query.using == CLAUSES[clause]
    pushed = bound(QUERY.replace("5 min]", "5 min SLIDE 1 min]"))
    assert query == replace(pushed, window=query.window, text=query.text).on_demand(query.using)


TS = Clock("Trades", "ts")


@pytest.mark.parametrize(
    ("source", "clock", "kind", "length"),
    [
        ("Trades [RANGE 10 minutes]", TS, UTC, 10 * MINUTE),
        ("Trades T [RANGE=10 minutes, WATTR=T.ts]", TS, UTC, 10 * MINUTE),
        ("Trades WINDOW [RANGE '10 min'] T", TS, UTC, 10 * MINUTE),
        ("Trades [RANGE 2 days WATTR day]", Clock("Trades", "day"), UTC, 2880 * MINUTE),
        ("Trades [RANGE 1 s WATTR local]", Clock("Trades", "local"), pa.timestamp("us"), SECOND),
        ("Trades [RANGE 60 WATTR site]", Clock("Trades", "site", ClockKind.INTEGER), pa.int64(), 60),
        ("S [RANGE 60]", Clock("S", "timestamp", ClockKind.INTEGER), pa.int64(), 60),
        ("Trades [ROWS 6]", Clock("Trades", "", ClockKind.ROWS), pa.int64(), 6),
    ],
)
def test_a_window_without_slide_is_on_demand(
    source: str, clock: Clock, kind: pa.DataType, length: int
) -> None:
    query = bound(f"SELECT count(*) FROM {source}")
    assert query.using == Using()
    assert (query.clock, query.clock_type, query.window) == (clock, kind, WindowSpec(length, 1))


def test_queries_with_slide_or_window_are_standing() -> None:
    assert bound("SELECT count(*) FROM Trades [ROWS 6 SLIDE 1]").is_standing
    assert bound("SELECT count(*) FROM Trades GROUP BY window(ts, '1 second')").is_standing


@pytest.mark.parametrize(
    ("source", "slice"),
    [("Trades [ROWS 600]", "100"), ("S [RANGE 600]", "100"), ("S [RANGE 600]", "'100'"), ("Trades [RANGE 5 min WATTR day]", "100 us")],
)  # fmt: skip
def test_a_slice_is_measured_along_the_querys_clock(source: str, slice: str) -> None:
    query = bound(f"SELECT count(*) FROM {source} USING timegram(8, SLICE {slice})")
    assert query.using == timegram(8, slice=100)


ENDS_WITH_USING = {
    "after the window": "SELECT max(price) FROM Trades [ROWS 6] USING exact",
    "after an alias": "SELECT max(price) FROM Trades [ROWS 6] T USING exact",
    "after the alias using": "SELECT max(price) FROM Trades AS using [ROWS 6] USING exact",
    "after the alias within": "SELECT max(price) FROM Trades AS within [ROWS 6] USING exact",
    "after the alias within behind the window": "SELECT max(price) FROM Trades [ROWS 6] within USING exact",
    "after WHERE": "SELECT max(price) FROM Trades [ROWS 6] WHERE live USING exact",
    "after USING of a join": "SELECT max(cp) FROM Trades [ROWS 6] JOIN Close USING (symbol) USING exact",
    "with a comment in it": "SELECT max(cp) FROM Trades [ROWS 6] JOIN Close USING (symbol) WHERE price > 5 USING -- the default\n exact",
    "after ON of a join": "SELECT max(cp) FROM Trades T [ROWS 6] LEFT JOIN Close C ON T.symbol = C.symbol USING exact",
    "after a join by WHERE": "SELECT max(cp) FROM Trades T [ROWS 6], Close C WHERE T.symbol = C.symbol USING exact",
    "after HAVING of a join": "SELECT max(cp) AS m FROM Trades [ROWS 6] JOIN Close USING (symbol) HAVING m IS NOT NULL USING exact",
    "after HAVING with two conditions": "SELECT max(price) + min(price) AS m FROM Trades [ROWS 6] HAVING count(*) > 5 AND m < 3 USING exact",
    "after GROUP BY": "SELECT day, max(price) FILTER (WHERE live) FROM Trades [ROWS 6] GROUP BY day USING exact",
    "with the window selected": "SELECT window_start, window.end, max(price) FROM Trades [ROWS 6] USING exact",
    "with sketches and moments": "SELECT approx_percentile(price, 0.5), approx_count_distinct(site), stddev(price) FROM Trades [ROWS 6] USING exact",
    "with keys only": "SELECT site FROM Trades [ROWS 6] GROUP BY site USING exact",
}  # fmt: skip


@pytest.mark.parametrize("text", ENDS_WITH_USING.values(), ids=ENDS_WITH_USING)
def test_the_clause_may_end_any_query(text: str) -> None:
    assert bound(text).using == Using()


USING_AS_NAME = {
    "alias of the stream": "SELECT max(price) FROM Trades within [ROWS 9 SLIDE 3]",
    "alias behind the window": "SELECT max(price) FROM Trades [ROWS 9 SLIDE 3] within",
    "alias of stream and item": "SELECT max(within.price) within FROM Trades [ROWS 9 SLIDE 3] within WHERE within.live",
    "alias of an item, in HAVING": "SELECT max(price) AS within FROM Trades [ROWS 9 SLIDE 3] HAVING within > 5",
    "alias of an item, twice in HAVING": "SELECT max(price) AS within FROM Trades [ROWS 9 SLIDE 3] HAVING within - 5 > 3 AND 5 < within",
    "alias of a key": "SELECT site AS within, count(*) FROM Trades [ROWS 9 SLIDE 3] GROUP BY within",
    "alias of the stream, before a join": "SELECT max(cp) FROM Trades [ROWS 9 SLIDE 3] within JOIN Close USING (symbol)",
    "alias of a table": "SELECT max(cp) FROM Trades [ROWS 9 SLIDE 3] JOIN Close within USING (symbol)",
    "alias of the stream, before EMIT EARLY": "SELECT max(price) FROM Trades [ROWS 9 SLIDE 3] within EMIT EARLY ON DEMAND",
    "using as an alias": "SELECT max(price) AS using FROM Trades AS using [ROWS 9 SLIDE 3]",
    "USING of a join without parentheses": "SELECT max(cp) FROM Trades [ROWS 9 SLIDE 3] JOIN Close USING symbol",
    "names of structures as aliases": "SELECT max(price) AS exact, min(price) AS timegram FROM Trades naive [ROWS 9 SLIDE 3] HAVING exact > timegram",
}  # fmt: skip


@pytest.mark.parametrize("text", USING_AS_NAME.values(), ids=USING_AS_NAME)
def test_using_and_within_may_be_names(text: str) -> None:
    assert bound(text).is_standing
    on_demand = bound(text.replace("9 SLIDE 3", "9").replace("EMIT EARLY ON DEMAND", ""))
    assert on_demand.using == Using()


ITEM = "SELECT site, max(price) AS m FROM Trades [RANGE 5 min] GROUP BY site"


@pytest.mark.parametrize(
    ("clause", "said", "place"),
    [
        ("USING", "USING needs exact, naive, ordered_sharing or timegram", "USING"),
        ("USING exakt", "found exakt; did you mean exact?", "exakt"),
        ("USING timegrm(64)", "found timegrm; did you mean timegram?", "timegrm"),
        ("USING 'exact'", "USING needs exact, naive, ordered_sharing or timegram, found 'exact'", "'exact'"),
        ("USING `exact`", "found `exact`", "`exact`"),
        ("USING (exact)", "USING needs exact, naive, ordered_sharing or timegram, found (", "("),
        ("USING 64", "found 64", "64"),
        ("USING exact(5)", "exact takes nothing in parentheses", "("),
        ("USING exact, naive", "expected the end of the query, USING or WITHIN, found ,", ","),
        ("USING exact WITHN 5%", "found WITHN; did you mean WITHIN?", "WITHN"),
        ("USING exact USING naive", "USING is given twice", "USING"),
        ("USING exact HAVING m > 5", "USING and WITHIN come at the very end of a query", "HAVING"),
        ("USING exact [ROWS 5]", "USING and WITHIN come at the very end of a query", "["),
        ("USING exact EMIT EARLY ON DEMAND", "EMIT EARLY is for queries with SLIDE, and USING and WITHIN for those without", "EMIT"),
        ("EMIT EARLY ON DEMAND USING exact", "EMIT EARLY is for queries with SLIDE, and USING for those without", "USING"),
        ("EMIT EARLY EVERY 1 s WITHIN 5%", "EMIT EARLY is for queries with SLIDE, and WITHIN for those without", "WITHIN"),
        ("EMIT EARLY EVERY 1 s", "EMIT EARLY needs SLIDE: a query without it is looked up", "EMIT"),
        ("USING timegram(0)", "a timegram has 1 to 65,536 buckets", "0"),
        ("USING timegram(-5)", "a timegram has 1 to 65,536 buckets", "-5"),
        ("USING timegram(65537)", "a timegram has 1 to 65,536 buckets", "65537"),
        ("USING timegram(6.5)", "a timegram has a whole number of buckets", "6.5"),
        ("USING timegram(1e999)", "above the largest double", "1e999"),
        ("USING timegram(64", "the parenthesis of timegram is not closed", "("),
        ("USING timegram(64,", "the parenthesis of timegram is not closed", "("),
        ("USING timegram(", "the parenthesis of timegram is not closed", "("),
        ("USING timegram(64,)", "timegram takes a number of buckets like 64, BETWEEN low AND high, BOUNDS low, ..., high or SLICE '1 second'", ","),
        ("USING timegram(64))", "expected the end of the query", ")"),
        ("USING timegram('64')", "found '64'", "'64'"),
        ("USING timegram(many)", "found many", "many"),
        ("USING timegram(BOUND 1, 2)", "found BOUND; did you mean BOUNDS?", "BOUND"),
        ("USING timegram(64 BETWEN 1 AND 2)", "expected a comma or the closing parenthesis, found BETWEN; did you mean BETWEEN?", "BETWEN"),
        ("USING timegram(64, 128)", "the buckets of the timegram are given twice", "128"),
        ("USING timegram(64, BOUNDS 1, 2)", "the buckets of the timegram are given twice", "BOUNDS"),
        ("USING timegram(64 BETWEEN 10 AND -10)", "BETWEEN takes the smaller value first, and two that differ", "10 AND -10"),
        ("USING timegram(64 BETWEEN 10 AND 10.0)", "BETWEEN takes the smaller value first, and two that differ", "10 AND 10.0"),
        ("USING timegram(64 BETWEEN 1)", "expected AND after 1, found )", ")"),
        ("USING timegram(64 BETWEEN low AND high)", "BETWEEN needs a number, found low", "low"),
        ("USING timegram(64 BETWEEN", "BETWEEN needs a number", "BETWEEN"),
        ("USING timegram(BOUNDS)", "BOUNDS needs a number, found )", ")"),
        ("USING timegram(BOUNDS 1)", "BOUNDS needs at least two values", "1"),
        ("USING timegram(BOUNDS 1, 3, 2)", "BOUNDS ascend, and this one is not above the one before", "2"),
        ("USING timegram(BOUNDS -1, -1)", "BOUNDS ascend, and this one is not above the one before", "-1"),
        ("USING timegram(BOUNDS -1, 1, x)", "found x", "x"),
        ("USING timegram(64, SLICE)", "SLICE needs a length like '1 second'", "SLICE"),
        ("USING timegram(64, SLICE '5')", "'5' has no unit; did you mean '5 seconds'?", "'5'"),
        ("USING timegram(64, SLICE 5 secnds)", "unknown unit secnds; did you mean seconds?", "5 secnds"),
        ("USING timegram(64, SLICE '0 s')", "SLICE must be positive", "'0 s'"),
        ("USING timegram(SLICE '1 s', SLICE '2 s')", "SLICE is given twice", "SLICE"),
        ("USING timegram(64, SLIC '1 s')", "found SLIC; did you mean SLICE?", "SLIC"),
        ("WITHIN", "WITHIN needs a percentage like 5%", "WITHIN"),
        ("WITHIN 0%", "WITHIN is above 0% and below 100%", "0%"),
        ("WITHIN 100 %", "WITHIN is above 0% and below 100%", "100 %"),
        ("WITHIN -5%", "WITHIN is above 0% and below 100%", "-5%"),
        ("WITHIN 0.05", "WITHIN needs a percentage; write 5%", "0.05"),
        ("WITHIN 5", "WITHIN needs a percentage; write 5%", "5"),
        ("WITHIN five percent", "WITHIN needs a percentage like 5%, found five", "five"),
        ("WITHIN '5%'", "WITHIN needs a percentage like 5%, found '5%'", "'5%'"),
        ("WITHIN 5% WITHIN 5%", "WITHIN is given twice", "WITHIN"),
        ("WITHIN 5% USING exact", "exact gives the exact answer; WITHIN is for a timegram", "exact"),
        ("USING ordered_sharing WITHIN 5%", "ordered_sharing gives the exact answer", "ordered_sharing"),
        ("WITHIN 5% USING timegram(64)", "the buckets follow from WITHIN; a timegram beside it takes SLICE only", "64"),
        ("USING timegram(SLICE 1 s, BOUNDS 1, 2) WITHIN 5%", "the buckets follow from WITHIN", "BOUNDS 1, 2"),
    ],
)  # fmt: skip
def test_a_wrong_clause_is_pointed_at(clause: str, said: str, place: str) -> None:
    text = f"{ITEM} {clause}"
    with pytest.raises(SQLError) as refused:
        bound(text)
    error = refused.value
    assert said in error.message
    assert text[error.start : error.end] == place
    assert error.start is not None
    assert error.start > len(ITEM)


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("SELECT max(price) FROM Trades [ROWS 6 SLIDE 2] USING exact", "the query has SLIDE: its results are pushed, and USING is for lookups", "USING exact"),
        ("SELECT max(price) FROM Trades [ROWS 6 SLIDE 2] WITHIN 5% USING timegram", "the query has SLIDE: its results are pushed, and WITHIN is for lookups", "WITHIN 5% USING timegram"),
        ("SELECT max(price) FROM Trades GROUP BY window(ts, '5 min') USING naive", "the query has a window() with a slide, or sessions: its results are pushed", "USING naive"),
        ("SELECT max(price) FROM Trades [RANGE 5 min ORIGIN 1 min]", "ORIGIN needs SLIDE", "1 min"),
        ("SELECT max(price) FROM Trades [RANGE 0 min]", "RANGE must be positive", "0 min"),
        ("SELECT max(price) FROM Trades [ROWS 5 min]", "ROWS over rows is a plain number", "5 min"),
        ("SELECT max(price) FROM Trades [ROWS 600] USING timegram(SLICE '1 s')", "SLICE over rows is a plain number, not '1 s'", "'1 s'"),
        ("SELECT max(speed) FROM S [RANGE 600] USING timegram(SLICE 0)", "SLICE must be positive", "0"),
        ("SELECT max(price), sum(price) FROM Trades [ROWS 6] USING ordered_sharing", "ordered_sharing answers min and max, not sum", "sum(price)"),
        ("SELECT mean(price) FILTER (WHERE live) FROM Trades [ROWS 6] USING ordered_sharing", "ordered_sharing answers min and max, not mean", "mean(price)"),
        ("SELECT max(price) AS m FROM Trades [ROWS 6] HAVING count(*) > 5 USING ordered_sharing", "not count", "count(*)"),
        ("SELECT site FROM Trades [ROWS 6] GROUP BY site USING ordered_sharing", "and this query has no aggregate", "site"),
        ("SELECT site FROM Trades [ROWS 6] GROUP BY site WITHIN 5%", "timegram answers count, sum, avg, min and max, and this query has no aggregate", "site"),
        ("SELECT stddev(price) FROM Trades [ROWS 6] USING timegram(64)", "timegram answers count, sum, avg, min and max, not stddev", "stddev(price)"),
        ("SELECT approx_percentile(price, 0.5) FROM Trades [ROWS 6] WITHIN 5%", "not approx_percentile", "approx_percentile(price, 0.5)"),
        ("SELECT approx_count_distinct(price) FROM Trades [ROWS 6] WITHIN 5%", "not approx_count_distinct", "approx_count_distinct(price)"),
        ("SELECT max(price), sum(price) FROM Trades [ROWS 6] WITHIN 5% USING timegram(SLICE 2)", "with SLICE, the width of this interval has no limit, and WITHIN sets one", "sum(price)"),
        ("SELECT max(price), avg(price) FROM Trades [ROWS 6] USING timegram(SLICE 2) WITHIN 5%", "with SLICE, the width of this interval has no limit, and WITHIN sets one", "avg(price)"),
        ("SELECT max(price), count(*) FROM Trades [ROWS 6] WITHIN 5% USING timegram(SLICE 2)", "with SLICE, the width of this interval has no limit, and WITHIN sets one", "count(*)"),
        ("SELECT max(symbol) FROM Trades [ROWS 6] USING timegram(64)", "a timegram needs a numeric column, and this is string", "symbol"),
        ("SELECT min(ts) FROM Trades [ROWS 6] WITHIN 5%", "a timegram needs a numeric column, and this is timestamp[us, tz=UTC]", "ts"),
        ("SELECT max(live) FROM Trades [ROWS 6] WITHIN 5%", "a timegram needs a numeric column, and this is bool", "live"),
        ("SELECT max(price) - min(price) AS m FROM Trades [ROWS 6] USING timegram(64)", "a timegram answers with intervals: select aggregates and group columns as they are", "max(price) - min(price)"),
        ("SELECT max(price), window_end FROM Trades [ROWS 6] USING timegram(64)", "select aggregates and group columns as they are", "window_end"),
        ("SELECT max(price), site + 1 FROM Trades [ROWS 6] GROUP BY site WITHIN 5%", "select aggregates and group columns as they are", "site + 1"),
        ("SELECT max(price) AS m FROM Trades [ROWS 6] HAVING m > 5 USING timegram(64)", "a timegram answers with intervals: HAVING can't compare one", "m > 5"),
        ("SELECT max(price) AS m FROM Trades [ROWS 6] ORDER BY m LIMIT 1 USING timegram(64)", "a timegram answers with intervals: ORDER BY can't compare them", "m"),
        ("SELECT max(price) AS m, min(price) AS m_LOW FROM Trades [ROWS 6] USING timegram(64)", "the bounds of m are called m_low and m_high; give it another alias", "max(price)"),
        ("SELECT max(cp) AS x FROM Trades [ROWS 6] JOIN Close USING (symbol) GROUP BY concat(symbol, 'x') USING timegram(BOUNDS 3, 1)", "BOUNDS ascend", "1"),
    ],
)  # fmt: skip
def test_queries_that_a_structure_can_t_answer_are_errors_with_a_place(
    text: str, said: str, place: str
) -> None:
    with pytest.raises(SQLError) as refused:
        bound(text)
    error = refused.value
    assert said in error.message
    assert text[error.start : error.end] == place


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(price), min(volume), sum(cost), avg(rate), count(*), count(symbol), count(symbol, live) FROM Trades [ROWS 6]",
        "SELECT sum(price) FILTER (WHERE symbol LIKE 'a%') AS s, site, live FROM Trades [ROWS 6] GROUP BY site, live, day",
        "SELECT min(price * volume) AS low FROM Trades T [RANGE 5 min], Close C WHERE T.symbol = C.symbol",
    ],
)  # fmt: skip
def test_a_timegram_answers_aggregates_of_numbers(text: str) -> None:
    assert bound(f"{text} USING timegram(8)").using == timegram(8)


def test_ordered_sharing_is_exact_so_its_answers_can_be_computed_with() -> None:
    text = "SELECT max(price) - min(price) AS m, max(symbol) FROM Trades [ROWS 6] HAVING m > 5 USING ordered_sharing"
    assert bound(text).using == Using("ordered_sharing")


def test_queries_that_differ_in_the_clause_only_keep_their_own() -> None:
    texts = {clause: f"{QUERY} {clause}" for clause in CLAUSES}
    for clause, query in bind(texts, CATALOG, Rules()).items():
        assert isinstance(query, Query)
        assert query.using == CLAUSES[clause]


def test_queries_that_differ_in_the_clause_share_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        f"{rows} {buckets}": f"SELECT max(price) AS m FROM Trades [ROWS {rows}] USING timegram({buckets}, SLICE {rows})"
        for rows in (5, 6, 7)
        for buckets in range(1, 30)
    }
    read = counted(monkeypatch)
    outcome = bind(texts, CATALOG, Rules())
    assert len(read) == 1
    for name, query in outcome.items():
        rows, buckets = map(int, name.split())
        assert isinstance(query, Query)
        assert (query.using, query.window) == (timegram(buckets, slice=rows), WindowSpec(rows, 1))


def test_an_error_in_a_later_query_s_clause_points_into_that_query() -> None:
    right = "SELECT max(price) FROM Trades [RANGE 1000 s] WHERE volume > 5 USING timegram(64, SLICE '1 s')"
    wrong = "SELECT max(price) FROM Trades [RANGE 5 s] WHERE volume > 50000 USING timegram(0, SLICE '1 s')"
    slice = "SELECT max(price) FROM Trades [RANGE 5 s] WHERE volume > 1 USING timegram(9, SLICE '1')"
    outcome = bind({"right": right, "wrong": wrong, "slice": slice}, CATALOG, Rules())
    for name, text, place in (("wrong", wrong, "0"), ("slice", slice, "'1'")):
        error = outcome[name]
        assert isinstance(error, SQLError)
        assert (error.text, text[error.start : error.end]) == (text, place)


def test_lookups_have_no_results_for_other_queries_to_read() -> None:
    texts = {
        "peak": "SELECT site, max(price) AS m FROM Trades [RANGE 5 min] GROUP BY site",
        "over": "SELECT min(m) FROM peak [RANGE 1 hour SLIDE 1 hour]",
        "further": "SELECT min(m) FROM Peak [ROWS 5]",
    }
    bound_all = bind_all(texts, CATALOG, Rules(), {})
    assert isinstance(bound_all["peak"], Query)
    for name, place in (("over", "peak"), ("further", "Peak")):
        error = bound_all[name]
        assert isinstance(error, SQLError)
        assert error.message == "peak has no SLIDE: it is looked up, and has no results to read"
        assert texts[name][error.start : error.end] == place
    known = {"peak": bound_all["peak"]}
    again = bind_all({"over": texts["over"]}, CATALOG, Rules(), known)["over"]  # type: ignore[arg-type]
    assert isinstance(again, SQLError)


def test_results_of_another_query_can_be_looked_up() -> None:
    texts = {
        "peaks": "SELECT site, max(price) AS m FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY site",
        "least": "SELECT site, min(m) AS m FROM peaks [RANGE 1 hour] GROUP BY site USING timegram(64)",
    }
    query = bind_all(texts, CATALOG, Rules(), {})["least"]
    assert isinstance(query, Query)
    assert (query.stream, query.clock.attribute, query.using) == ("peaks", "window_time", timegram(64))


@given(st.sampled_from(sorted(CLAUSES)), st.randoms(use_true_random=False))
def test_a_mangled_clause_gives_a_query_or_an_error_that_points_into_it(clause: str, random: Any) -> None:
    words = f"{QUERY} {clause}".replace("%", " %").replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(-8, 0)
        words[at:at] = random.choice([["("], ["USING"], ["WITHIN"], ["%"], ["'"], [random.choice(words)]])
        del words[random.randrange(-8, 0)]
    text = " ".join(words)
    outcome = bind({"q": text}, CATALOG, Rules())["q"]
    if isinstance(outcome, SQLError) and outcome.start is not None:
        assert outcome.end is not None
        assert 0 <= outcome.start < outcome.end <= len(text)
