"""Queries WITH PREFERENCE bound to streams and summaries: selections, aggregates and joins."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.stores_catalog import CATALOG, COUNT, MINUTE, SECOND, SUMMARIES, preference_query
from tests.sql.trades_catalog import UTC, Rules
from transom.elements import Preference, Summary
from transom.errors import SQLError
from transom.sql import PreferenceQuery, bind_preference_queries, bind_preference_query
from transom.sql.preference_query import Figure, Output, PreferenceKey, Side
from transom.sql.promise import Arithmetic, Column, EstimatedCount
from transom.sql.query import And, Comparison, IsNull, Member, Not, Or, Scalar, Truth

ITEM = Scalar("`item`", pa.int64(), "item")
PRICE = Scalar("`price`", pa.float64(), "price")
WANT = f"WITH PREFERENCE desc {COUNT}(item)"
BOTH = f"WITH PREFERENCE desc {COUNT}(a.item) * {COUNT}(b.item)"


def test_a_selection_has_one_side_with_a_guide() -> None:
    text = f"SELECT item, price AS p FROM store1 WHERE item BETWEEN 100 AND 200 AND price > 3 {WANT} BUDGET '200 ms'"
    low, high = Comparison(ITEM, ">=", 100), Comparison(ITEM, "<=", 200)
    where = And((low, high, Comparison(PRICE, ">", 3.0)))
    side = Side("store1", "items", where, And((low, high)), ("item", "price"))
    outputs = Output("item", "`0.item`", pa.int64()), Output("p", "`0.price`", pa.float64())
    wanted = Preference("desc", time=200_000)
    assert preference_query(text) == PreferenceQuery(
        (side,), wanted, EstimatedCount("store1", "item"), outputs
    )


def test_a_join_has_two_sides_and_the_equality_is_their_summaries() -> None:
    text = f"SELECT a.item, a.ts AS here, b.ts AS there FROM store1 a, store2 b WHERE a.item = b.item {BOTH} FADE FACTOR 0.8 WINDOW '1 minute' BUDGET 50000 PROBES"
    sides = Side("store1", "items", columns=("item", "ts")), Side("Store2", "items2", columns=("item", "ts"))
    outputs = (
        Output("item", "`0.item`", pa.int64()),
        Output("here", "`0.ts`", UTC),
        Output("there", "`1.ts`", UTC),
    )
    promise = Arithmetic("*", EstimatedCount("store1", "item"), EstimatedCount("Store2", "item"))
    assert preference_query(text) == PreferenceQuery(
        sides, Preference("desc", 0.8, MINUTE, probes=50_000), promise, outputs
    )


def test_aggregates_are_figures_over_one_side() -> None:
    items = "avg(price) AS p, count(*) AS n, count(price), sum(till) AS s, min(ts), max(name) AS m, median(price) AS d"
    bound = preference_query(f"SELECT {items} FROM store1 WHERE item < 900 {WANT}")
    till, name, ts = (
        Scalar("`till`", pa.int32(), "till"),
        Scalar("`name`", pa.string(), "name"),
        Scalar("`ts`", UTC, "ts"),
    )
    assert bound.outputs == ()
    assert bound.figures == (
        Figure("p", "avg", PRICE, pa.float64()),
        Figure("n", "count_rows", None, pa.int64()),
        Figure("count(price)", "count", PRICE, pa.int64()),
        Figure("s", "sum", till, pa.int64()),
        Figure("min(ts)", "min", ts, UTC),
        Figure("m", "max", name, pa.string()),
        Figure("d", "median", PRICE, pa.float64()),
    )
    assert bound.sides[0].columns == ("item", "price", "name", "till", "ts")
    assert bound.sides[0].guide == bound.sides[0].where == Comparison(ITEM, "<", 900)


@pytest.mark.parametrize("call", ["median(price + 1)", "percentile_approx(price + 1, 0.5)", "approx_percentile(price + 1, 0.5, 100)"])  # fmt: skip
def test_the_median_is_written_in_several_ways(call: str) -> None:
    figure = Figure(call, "median", Scalar("`price` + 1", pa.float64()), pa.float64())
    assert preference_query(f"SELECT {call} FROM store1 {WANT}").figures == (figure,)


def test_mean_is_avg_and_a_constant_is_counted_like_a_row() -> None:
    figures = preference_query(f"SELECT mean(price) AS m, count(1) AS n FROM store1 {WANT}").figures
    assert [(figure.function, figure.argument) for figure in figures] == [
        ("avg", PRICE),
        ("count_rows", None),
    ]


def test_aggregates_over_a_join_read_one_side_or_pairs() -> None:
    bound = preference_query(
        "SELECT count(*) AS n, a.item, sum(b.price) AS s, max(a.till * b.till) AS m, a.name = b.name AS same "
        f"FROM store1 a, store2 b WHERE a.item = b.item GROUP BY a.item, same {BOTH}"
    )
    price = Scalar("`price`", pa.float64(), "price")
    product = bound.figures[2].argument
    assert bound.figures[:2] == (
        Figure("n", "count_rows", None, pa.int64()),
        Figure("s", "sum", price, pa.float64(), 1),
    )
    assert product is not None and (product.sql, bound.figures[2].side) == ("`0.till` * `1.till`", None)
    assert bound.keys == (
        PreferenceKey(ITEM, 0),
        PreferenceKey(Scalar("`0.name` = `1.name`", pa.bool_()), None),
    )
    assert [(output.name, output.key) for output in bound.outputs] == [("item", 0), ("same", 1)]
    assert bound.names == ("n", "item", "s", "m", "same")
    assert bound.selected == (("n", False), ("item", True), ("s", False), ("m", False), ("same", True))
    assert [side.columns for side in bound.sides] == [
        ("item", "name", "till"),
        ("item", "price", "name", "till"),
    ]
    assert not bound.is_combined


COMBINED = {
    "SELECT count(*) AS n {}": True,
    "SELECT b.till, sum(a.price) AS s, max(b.price) AS m {} GROUP BY b.till": True,
    "SELECT a.till + 1 AS t, b.name, avg(b.price) AS p {} AND a.price > 3 GROUP BY ALL": True,
    "SELECT count(*) AS n {} AND a.price > b.price": False,
    "SELECT sum(a.price * b.price) AS s {}": False,
    "SELECT a.till = b.till AS t, count(*) AS n {} GROUP BY t": False,
    "SELECT a.item {}": False,
}


@pytest.mark.parametrize("text", COMBINED)
def test_aggregates_over_a_join_need_pairs_only_if_something_reads_both_sides(text: str) -> None:
    assert preference_query(f"{text.format(JOIN)} {BOTH}").is_combined == COMBINED[text]


SAMPLED = {
    f"weighted {COUNT}(a.item) * {COUNT}(b.item)": True,
    f"weighted {COUNT}(b.item) * {COUNT}(a.item)": True,
    f"weighted {COUNT}(a.item)": False,
    f"weighted {COUNT}(a.item) * {COUNT}(a.item)": False,
    f"weighted {COUNT}(a.item) * {COUNT}(b.item) FADE FACTOR 0.5": False,
    f"desc {COUNT}(a.item) * {COUNT}(b.item)": False,
}


@pytest.mark.parametrize("preference", SAMPLED)
@pytest.mark.parametrize("other", ["store2", "store1"])
def test_aggregates_over_pairs_are_estimates_if_all_pairs_promise_the_same(
    preference: str, other: str
) -> None:
    over = f"FROM store1 a, {other} b WHERE a.item = b.item AND a.price < b.price"
    assert (
        preference_query(f"SELECT count(*) AS n {over} WITH PREFERENCE {preference}").samples
        == SAMPLED[preference]
    )


def test_a_stream_that_is_joined_with_itself_is_counted_on_each_side() -> None:
    bound = preference_query(f"SELECT a.item FROM store1 a, store1 b WHERE a.item = b.item {BOTH}")
    assert bound.promise == Arithmetic(
        "*", EstimatedCount("store1", "item", 0), EstimatedCount("store1", "item", 1)
    )
    assert bound.is_self_join and [bound.counted_as(side) for side in (0, 1)] == [
        ("store1", 0),
        ("store1", 1),
    ]
    assert [bound.meets_own_batch(side) for side in (0, 1)] == [True, False]


GUIDES = {
    "item = 5": Comparison(ITEM, "=", 5),
    "item IN (1, 2) AND name = 'x'": Member(ITEM, (1, 2)),
    "NOT item = 5": Not(Comparison(ITEM, "=", 5)),
    "item IS NULL AND till > 1": IsNull(ITEM),
    "item = 1 OR item = 2": Or((Comparison(ITEM, "=", 1), Comparison(ITEM, "=", 2))),
    "item = 1 OR price = 2": None,
    "item > till": None,
    "item % 2 = 0": Comparison(Scalar("`item` % 2", pa.float64()), "=", 0.0),
    "(item > 1 AND item < 9) AND price > 2": And((Comparison(ITEM, ">", 1), Comparison(ITEM, "<", 9))),
    "price > 2": None,
    "1 = 1": None,
}


@pytest.mark.parametrize("where", GUIDES)
def test_the_guide_has_the_conditions_on_the_summarized_column_alone(where: str) -> None:
    side = preference_query(f"SELECT price FROM store1 WHERE {where} {WANT}").sides[0]
    assert side.guide == GUIDES[where]
    assert side.where is not None


RESTS = {
    "a.price > b.price": "`0.price` > `1.price`",
    "a.price > b.price AND a.till = b.till": "`0.price` > `1.price` AND `0.till` = `1.till`",
    "(a.till = 1 OR b.till = 2)": "`0.till` = 1 OR `1.till` = 2",
    "(a.till = 1 OR b.till = 2) AND a.name != b.name": "(`0.till` = 1 OR `1.till` = 2) AND `0.name` != `1.name`",
    "a.spot.floor < b.spot.floor": "`0.spot`.`floor` < `1.spot`.`floor`",
    "a.price > 3 AND b.price < 5": None,
}


@pytest.mark.parametrize("condition", RESTS)
def test_conditions_on_both_sides_are_evaluated_on_pairs(condition: str) -> None:
    text = f"SELECT a.item FROM store1 a, store2 b WHERE a.item = b.item AND {condition} {BOTH}"
    assert preference_query(text).rest == RESTS[condition]


def test_conditions_on_one_side_belong_to_that_side() -> None:
    text = f"SELECT a.item FROM store1 a, store2 b WHERE a.item = b.item AND a.item > 3 AND b.name LIKE 'x%' AND 1 = 1 {BOTH}"
    first, second = preference_query(text).sides
    assert first.where == And((Comparison(ITEM, ">", 3), Truth(Scalar("1 = 1", pa.bool_()))))
    assert first.guide == Comparison(ITEM, ">", 3)
    assert second.where == Truth(Scalar("`name` LIKE 'x%'", pa.bool_()))
    assert second.guide is None
    assert second.columns == ("item", "name")


JOINS = [
    "store1 a, store2 b WHERE a.item = b.item",
    "store1 a, store2 b WHERE b.item = (a.item)",
    "store1 a JOIN store2 b ON a.item = b.item",
    "store1 AS a INNER JOIN Store2 AS b ON b.ITEM = a.Item",
    "store1 a JOIN store2 b WHERE a.item = b.item",
    "store1 a JOIN store2 b USING (item)",
]


@pytest.mark.parametrize("source", JOINS)
def test_every_way_to_write_a_join_is_the_same(source: str) -> None:
    bound = preference_query(f"SELECT a.item, a.price AS x, b.price AS y FROM {source} {BOTH}")
    assert bound == preference_query(f"SELECT a.item, a.price AS x, b.price AS y FROM {JOINS[0]} {BOTH}")
    assert [side.columns for side in bound.sides] == [("item", "price"), ("item", "price")]


def test_using_merges_the_column() -> None:
    bound = preference_query(
        f"SELECT item, Code FROM store1 JOIN store2 USING (item) WITH PREFERENCE {COUNT}(item)"
    )
    assert [output.sql for output in bound.outputs] == ["`0.item`", "`1.Code`"]
    assert bound.promise == EstimatedCount("store1", "item")
    assert bound.sides[1].columns == ("Code",)


def test_the_promise_chooses_the_joining_equality_and_the_other_is_evaluated_on_pairs() -> None:
    source = "FROM store1 a, store2 b WHERE a.item = b.item AND a.name = b.name"
    bound = preference_query(f"SELECT a.ts FROM {source[5:]} WITH PREFERENCE asc {COUNT}(b.name)")
    assert [side.summary for side in bound.sides] == ["names", "names2"]
    assert bound.rest == "`0.item` = `1.item`"


def test_an_equality_without_summaries_is_evaluated_on_pairs() -> None:
    text = f"SELECT a.ts FROM store1 a, store2 b WHERE a.price = b.price AND a.item = b.item {BOTH}"
    assert preference_query(text).rest == "`0.price` = `1.price`"


def test_a_joins_promise_may_be_of_its_values() -> None:
    text = "SELECT a.ts FROM store1 a, store2 b WHERE a.item = b.item WITH PREFERENCE weighted"
    assert preference_query(f"{text} b.item * 2").promise == Arithmetic("*", Column("Store2", "item"), preference_query(f"{text} 2").promise)  # fmt: skip


def test_a_promise_without_counts_uses_the_stream_s_only_summary() -> None:
    bound = preference_query("SELECT item FROM store3 WITH PREFERENCE desc price * till")
    assert bound.sides == (Side("store3", "prices", columns=("item", "price", "till")),)


def test_the_first_summary_that_covers_the_window_guides_the_query() -> None:
    summaries = SUMMARIES | {"longer": Summary("longer", "store1", "item", 60 * SECOND, buckets=64)}
    text = f"SELECT item FROM store1 {WANT} WINDOW"
    for window, name in (("1 minute", "items"), ("10 minutes", "longer")):
        assert bind_preference_query(f"{text} {window}", CATALOG, Rules(), summaries).sides[0].summary == name
    joined = f"SELECT a.ts FROM store1 a, store2 b WHERE a.item = b.item {BOTH} WINDOW"
    alike = summaries | {"longer2": Summary("longer2", "Store2", "item", 60 * SECOND, buckets=64)}
    for window, names in (("1 minute", ["items", "items2"]), ("10 minutes", ["longer", "longer2"])):
        bound = bind_preference_query(f"{joined} {window}", CATALOG, Rules(), alike)
        assert [side.summary for side in bound.sides] == names


def test_outputs_are_expressions_over_both_sides_and_list_their_functions() -> None:
    text = f"SELECT concat(a.name, b.name) AS x, a.price - b.price AS d, score(a.item), current_date AS t, a.spot.floor FROM store1 a, store2 b WHERE a.item = b.item AND score(b.price) > 2 {BOTH}"
    bound = preference_query(text)
    assert [(output.name, output.sql) for output in bound.outputs] == [
        ("x", "concat(`0.name`, `1.name`)"),
        ("d", "`0.price` - `1.price`"),
        ("`Score`(item)", "`Score`(`0.item`)"),
        ("t", "current_date()"),
        ("floor", "`0.spot`.`floor`"),
    ]
    assert bound.outputs[0].type == pa.string()
    assert bound.functions == {"Score"}
    assert bound.sides[0].columns == ("item", "price", "name", "spot")


def test_types_of_many_queries_are_resolved_together() -> None:
    rules = Rules()
    texts = {f"q{i}": f"SELECT price + {i} AS p FROM store1 WHERE item * {i} > 5 {WANT}" for i in range(100)}
    texts["wrong"] = f"SELECT prise FROM store1 {WANT}"
    bound = bind_preference_queries(texts, CATALOG, rules, SUMMARIES)
    assert list(bound) == list(texts)
    assert bound["q7"] == preference_query(texts["q7"])
    assert isinstance(bound["wrong"], SQLError)
    assert len(rules.calls) <= 4


def test_a_query_that_is_nested_too_deeply_is_refused() -> None:
    promise = "(" * 20_000 + f"{COUNT}(item)" + ")" * 20_000
    with pytest.raises(SQLError, match="a promise has at most 100 operands"):
        preference_query(f"SELECT item FROM store1 WITH PREFERENCE desc {promise}")
    condition = "(" * 20_000 + "item > 1" + ")" * 20_000
    with pytest.raises(SQLError, match="the query is nested too deeply"):
        preference_query(f"SELECT item FROM store1 WHERE {condition} WITH PREFERENCE desc {COUNT}(item)")


JOIN = "FROM store1 a, store2 b WHERE a.item = b.item"
MAKE = "WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        (f"SELECT FROM store1 {WANT}", "SELECT needs something to select", "SELECT"),
        (f"SELECT * FROM store1 {WANT}", "SELECT * is not supported; name the columns", "*"),
        (f"SELECT a.* FROM store1 a {WANT}", "SELECT * is not supported; name the columns", "a.*"),
        (f"SELECT prise FROM store1 {WANT}", "unknown column prise; did you mean price?", "prise"),
        (f"SELECT item FROM store1 WHERE itm > 5 {WANT}", "unknown column itm; did you mean item?", "itm"),
        (f"SELECT item FROM stor1 {WANT}", "unknown stream, table or query stor1; did you mean store1?", "stor1"),
        (f"SELECT item, till AS ITEM FROM store1 {WANT}", "two columns of the result are called ITEM; give one another alias", "till AS ITEM"),
        (f"SELECT a.ts, b.ts {JOIN} {BOTH}", "two columns of the result are called ts; give one another alias", "b.ts"),
        (f"SELECT item {JOIN} {BOTH}", "item is ambiguous: a.item or b.item", "item"),
        (f"SELECT item FROM store1 GROUP BY item {WANT}", "GROUP BY needs an aggregate in SELECT", "item"),
        (f"SELECT till, count(*) FROM store1 GROUP BY item {WANT}", "till is neither in GROUP BY nor in an aggregate", "till"),
        (f"SELECT item, count(*) FROM store1 GROUP BY 3 {WANT}", "GROUP BY position 3 is not in the SELECT list", "3"),
        (f"SELECT item, count(*) FROM store1 GROUP BY {'9' * 5000} {WANT}", "is not in the SELECT list", "9" * 5000),
        (f"SELECT count(*) AS n FROM store1 GROUP BY n {WANT}", "GROUP BY can't have an aggregate", "count(*)"),
        (f"SELECT item, count(*) FROM store1 GROUP BY ROLLUP(item) {WANT}", "ROLLUP, CUBE and GROUPING SETS are not supported; register a query for each set of keys", "item"),
        (f"SELECT item FROM store1 HAVING item > 5 {WANT}", "HAVING needs an aggregate in SELECT; put the condition in WHERE", "item > 5"),
        (f"SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING price > 5 {WANT}", "price is neither in GROUP BY nor in an aggregate", "price"),
        (f"SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING prise > 5 {WANT}", "unknown column prise; did you mean price?", "prise"),
        (f"SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING n + 1 {WANT}", "expected a condition, and this is double", "n + 1"),
        (f"SELECT count(*) AS n FROM store1 HAVING sum(name) > 1 {WANT}", "sum needs a number, and this is string", "name"),
        (f"SELECT count(*) AS n FROM store1 HAVING stddev(price) > 1 {WANT}", "the aggregates of a query WITH PREFERENCE are", "stddev(price)"),
        (f"SELECT item FROM store1 [RANGE 5 minutes SLIDE 1 minute] {WANT}", "a query WITH PREFERENCE has no bracket; write WINDOW '5 minutes' at its end", "[RANGE 5 minutes SLIDE 1 minute]"),
        (f"SELECT item FROM store1 [ROWS 5] {WANT}", "a query WITH PREFERENCE has no bracket; write WINDOW '1 minute' at its end", "[ROWS 5]"),
        (f"SELECT item FROM store1 ON OVERLOAD PREFER item {WANT}", "ON OVERLOAD PREFER is for window queries, and WITH PREFERENCE for others", "WITH"),
        (f"SELECT item FROM store1, goods {WANT}", "no equality links goods to the stream", "goods"),
        (f"SELECT g.item FROM goods g, store1 s WHERE s.item = g.item {WANT}", "reads a stream first, then the static tables that are joined to it; goods is a table", "goods g"),
        (f"SELECT item FROM per_item {WANT}", "a query WITH PREFERENCE reads streams, and per_item is a query", "per_item"),
        (f"SELECT a.item FROM store1 a, store2 b, store3 c WHERE a.item = b.item {BOTH}", "a query WITH PREFERENCE reads one stream or joins two", "store3 c"),
        (f"SELECT a.item FROM store1 a LEFT JOIN store2 b ON a.item = b.item {BOTH}", "a LEFT JOIN WITH PREFERENCE needs a WINDOW: a tuple without a partner is returned when its window has passed", "store2 b"),
        (f"SELECT a.item FROM store1 a FULL JOIN store2 b USING (item) {BOTH} WINDOW '1 minute'", "a FULL JOIN WITH PREFERENCE has no USING; write ON with the columns of both streams", "store2 b"),
        (f"SELECT count(*) AS n FROM store1 a RIGHT JOIN store2 b ON a.item = b.item {BOTH} WINDOW '1 minute'", "a RIGHT JOIN WITH PREFERENCE has no aggregates; a window query over its results can have them", "count(*)"),
        (f"SELECT a.item FROM store1 a LEFT JOIN store2 b ON a.item = b.item AND a.price < b.price {BOTH} WINDOW '1 minute' BUDGET 5 PROBES", "says which tuples have a partner, so it needs all pairs; leave out BUDGET, or put the condition in WHERE", "a.price < b.price"),
        (f"SELECT a.item FROM store1 a LEFT JOIN store2 b ON a.price > 3 WHERE a.item = b.item {BOTH} WINDOW '1 minute'", "no equality links b to a", "store2 b"),
        (f"SELECT a.item FROM store1 a LEFT SEMI JOIN store2 b ON a.item = b.item {BOTH}", "SEMI JOIN is not supported WITH PREFERENCE", "store2 b"),
        (f"SELECT a.item FROM store1 a, store2 b {BOTH}", "no equality links b to a; a join WITH PREFERENCE has one between columns", "store2 b"),
        (f"SELECT a.item FROM store1 a, store2 b WHERE a.item = b.item + 1 {BOTH}", "no equality links b to a", "store2 b"),
        (f"SELECT a.item FROM store1 a, store2 b WHERE a.item = b.code {BOTH}", "the columns of the equality are of one type, and a.item is int64 and b.Code is int32", "a.item = b.code"),
        (f"SELECT a.item FROM store1 a, store2 b WHERE a.till = b.till WITH PREFERENCE {COUNT}(a.till)", "the summaries of a join have the same buckets, and tills has BUCKETS 256 and tills2 has BUCKETS 64 BETWEEN 0 AND 100", "a.till = b.till"),
        (f"SELECT a.item FROM store1 a, store3 b WHERE a.item = b.item {BOTH}", f"item of store3 has no summary; make one with CREATE SUMMARY store3_item ON store3(item) {MAKE}", "a.item = b.item"),
        (f"SELECT a.item FROM store1 a, `my-store` b WHERE a.item = b.`an item` WITH PREFERENCE {COUNT}(a.item)", f"CREATE SUMMARY my_store_an_item ON `my-store`(`an item`) {MAKE}", "a.item = b.`an item`"),
        (f"SELECT a.item {JOIN} AND a.name = b.name WITH PREFERENCE desc 1", "two equalities join summarized columns; choose one with SUMMARY.Estimate.Count in the promise", "a.name = b.name"),
        (f"SELECT a.item {JOIN} AND a.name = b.name WITH PREFERENCE {COUNT}(a.name) * {COUNT}(b.item)", "two equalities join summarized columns", "a.name = b.name"),
        (f"SELECT a.item {JOIN} WITH PREFERENCE {COUNT}(a.name)", "the promise of a join can use only the joined columns, a.item and b.item", "a.name"),
        (f"SELECT a.item {JOIN} WITH PREFERENCE {COUNT}(a.price)", "price of store1 has no summary", "a.price"),
        (f"SELECT a.item {JOIN} WITH PREFERENCE {COUNT}(a.item) * b.price", "the promise of a join can use only the joined columns, a.item and b.item", "b.price"),
        (f"SELECT a.item {JOIN} WITH PREFERENCE {COUNT}(item)", "item is ambiguous: a.item or b.item", "item"),
        (f"SELECT a.item {JOIN} WITH PREFERENCE {COUNT}(c.item)", "unknown name c in c.item", "c.item"),
        (f"SELECT a.item {JOIN} {BOTH} WINDOW 5 minutes", "WINDOW is 5 minutes, and the summary items keeps 3 minutes 30 seconds; a longer GRANULARITY or a deeper COLLAPSE keeps more", "5 minutes"),
        (f"SELECT item FROM store1 WITH PREFERENCE {COUNT}(price)", f"price of store1 has no summary; make one with CREATE SUMMARY store1_price ON store1(price) {MAKE}", "price"),
        (f"SELECT item FROM store1 WITH PREFERENCE {COUNT}(itm)", "unknown column itm; did you mean item?", "itm"),
        (f"SELECT item FROM store1 WITH PREFERENCE {COUNT}(item) * {COUNT}(till)", "a selection is led by one column, and item is counted already", "till"),
        ("SELECT item FROM store1 WITH PREFERENCE desc price", "store1 has summaries of item, name, till: choose one with SUMMARY.Estimate.Count(column) in the promise", "store1"),
        ("SELECT `an item` FROM `my-store` WITH PREFERENCE desc `an item`", "an item of my-store has no summary", "`my-store`"),
        (f"SELECT item FROM store1 WITH PREFERENCE {COUNT}(item) * name", "a promise is a number, and name is string", "name"),
        (f"SELECT item FROM store1 WITH PREFERENCE {COUNT}(item) * spot.floor", "a promise can't use a field of a struct", "spot.floor"),
        (f"SELECT item, sum(price) FROM store1 {WANT}", "item is not in an aggregate; GROUP BY item makes groups of it", "item"),
        (f"SELECT sum(price) / count(*) FROM store1 {WANT}", "an expression over an aggregate is not supported WITH PREFERENCE", "sum(price) / count(*)"),
        (f"SELECT item FROM store1 WHERE sum(price) > 5 {WANT}", "an aggregate is not allowed in WHERE", "sum(price)"),
        (f"SELECT sum(max(price)) FROM store1 {WANT}", "an aggregate is not allowed in another aggregate", "max(price)"),
        (f"SELECT a.item FROM store1 a LEFT ANTI JOIN store2 b ON a.item = b.item {BOTH}", "ANTI JOIN is not supported WITH PREFERENCE", "store2 b"),
        (f"SELECT sum(price) FILTER (WHERE till = 1) AS s FROM store1 {WANT}", "FILTER is not supported WITH PREFERENCE; put the condition in WHERE", "sum(price) FILTER (WHERE till = 1)"),
        (f"SELECT stddev(price) FROM store1 {WANT}", "the aggregates of a query WITH PREFERENCE are count, sum, avg, min, max and median, not stddev", "stddev(price)"),
        (f"SELECT percentile_approx(price, 0.9) FROM store1 {WANT}", "the only percentile that is supported WITH PREFERENCE is the median, 0.5", "percentile_approx(price, 0.9)"),
        (f"SELECT median(name) FROM store1 {WANT}", "median needs a number, and this is string", "name"),
        (f"SELECT median(*) FROM store1 {WANT}", "median(*) is not supported; only count takes *", "median(*)"),
        (f"SELECT sum(name) FROM store1 {WANT}", "sum needs a number, and this is string", "name"),
        (f"SELECT count(item, price) FROM store1 {WANT}", "count takes 1 argument WITH PREFERENCE, found 2", "count(item, price)"),
        (f"SELECT item FROM store1 WHERE price + 1 {WANT}", "expected a condition, and this is double", "price + 1"),
        (f"SELECT item FROM store1 ORDER BY item {WANT}", "ORDER BY is not supported", "item"),
        (f"SELECT to_number(item) FROM store1 {WANT}", "to_number takes two arguments", "to_number(item)"),
    ],
)  # fmt: skip
def test_unsupported_queries_are_errors_with_a_place(text: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        preference_query(text)
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place


LARGE = Comparison(PRICE, ">", 3.0)


@pytest.mark.parametrize(
    ("join", "preserved", "where", "keeps", "on", "after"),
    [
        ("LEFT JOIN store2 b ON a.item = b.item WHERE a.price > 3", (True, False), (LARGE, None), (LARGE, None), None, None),
        ("LEFT JOIN store2 b ON a.item = b.item AND a.price > 3", (True, False), (LARGE, None), (None, None), None, None),
        ("LEFT JOIN store2 b ON a.item = b.item AND b.price > 3", (True, False), (None, LARGE), (None, None), None, None),
        ("LEFT OUTER JOIN store2 b ON a.item = b.item WHERE b.price > 3", (True, False), (None, None), (None, None), None, "`1.price` > 3"),
        ("RIGHT JOIN store2 b ON a.item = b.item WHERE a.price > 3 AND b.price > 3", (False, True), (None, LARGE), (None, LARGE), None, "`0.price` > 3"),
        ("FULL JOIN store2 b ON a.item = b.item WHERE a.price > 3", (True, True), (None, None), (None, None), None, "`0.price` > 3"),
        ("FULL JOIN store2 b ON a.item = b.item AND a.price < b.price WHERE a.till = b.till", (True, True), (None, None), (None, None), "`0.price` < `1.price`", "`0.till` = `1.till`"),
        ("LEFT JOIN store2 b USING (item)", (True, False), (None, None), (None, None), None, None),
    ],
)  # fmt: skip
def test_conditions_of_an_outer_join_are_those_of_on_or_those_on_its_rows(
    join: str, preserved: object, where: object, keeps: object, on: str | None, after: str | None
) -> None:
    bound = preference_query(f"SELECT a.till FROM store1 a {join} {BOTH} WINDOW '1 minute'")
    assert bound.outer is not None
    assert (bound.outer.preserved, bound.outer.keeps) == (preserved, keeps)
    assert tuple(side.where for side in bound.sides) == where
    assert (bound.outer.on, bound.outer.after) == (on, after)
    texts = [text for text in (on, after) if text is not None]
    assert bound.rest == (
        texts[0] if len(texts) == 1 else " AND ".join(f"({text})" for text in texts) or None
    )


def test_an_inner_join_of_a_table_is_for_the_preserved_stream() -> None:
    text = "SELECT a.item FROM store1 a {} JOIN store2 b ON a.item = b.item JOIN goods g ON {}.item = g.item {} WINDOW '1 minute'"
    assert preference_query(text.format("LEFT", "a", BOTH)).outer is not None
    for form, alias in (("LEFT", "b"), ("FULL", "a"), ("RIGHT", "a")):
        with pytest.raises(SQLError, match=f"can have g only by a LEFT JOIN: {alias} may have no partner"):
            preference_query(text.format(form, alias, BOTH))


WORDS = f"SELECT a.item , median(price) FROM store1 a JOIN store2 b ON a.item = b.item WHERE a.price > 3 {BOTH} FADE FACTOR 0.8 WINDOW '1 minute' BUDGET 50 PROBES".split()


@given(st.data())
def test_any_sequence_of_words_gives_a_query_or_an_error(data: st.DataObject) -> None:
    words = list(WORDS)
    for _ in range(3):
        at, other = (data.draw(st.integers(0, len(words) - 1)) for _ in range(2))
        words[at : at + data.draw(st.integers(0, 2))] = [words[other]]
    try:
        assert preference_query(" ".join(words)).sides
    except SQLError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "having", "hidden"),
    [
        ("SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING n > 5", "`a0` > 5", 0),
        ("SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING count(*) > 5 AND COUNT(*) < 9", "`a0` > 5 AND `a0` < 9", 0),
        ("SELECT item, count(*) AS n FROM store1 GROUP BY item HAVING sum(price) > n", "`a1` > `a0`", 1),
        ("SELECT till AS item, count(*) FROM store1 GROUP BY till, store1.item HAVING item > 5", "`k1` > 5", 0),
        ("SELECT till AS price, count(*) FROM store1 GROUP BY till HAVING price > 5", "`k0` > 5", 0),
        ("SELECT item % 3 AS third, max(price) AS m FROM store1 GROUP BY third HAVING item % 3 = 1 OR m < 2", "`k0` = 1 OR `a0` < 2", 0),
        ("SELECT count(*) AS n FROM store1 HAVING avg(price) > 1 AND avg(price) < max(price)", "`a1` > 1 AND `a1` < `a2`", 2),
    ],
)  # fmt: skip
def test_having_is_over_keys_and_aggregates(text: str, having: str, hidden: int) -> None:
    bound = preference_query(f"{text} WITH PREFERENCE desc {COUNT}(store1.item)")
    assert bound.having == having
    assert [figure.hidden for figure in bound.figures] == [False] * len(bound.reported) + [True] * hidden
    assert not any(name == "" for name, _ in bound.selected)


def test_having_reads_an_item_whose_name_both_streams_have() -> None:
    text = f"SELECT a.item, max(a.ts) AS ts, count(*) FROM store1 a, store2 b WHERE a.item = b.item GROUP BY a.item HAVING ts > '2026-01-01' {BOTH}"
    assert preference_query(text).having == "`a0` > '2026-01-01'"


def test_static_tables_are_joined_to_one_side() -> None:
    text = f"SELECT a.item, g.kind FROM store1 a JOIN store2 b ON a.item = b.item JOIN goods g ON b.item = g.item WHERE g.kind <> 'x' {BOTH}"
    one, other = preference_query(text).sides
    [join] = other.joins
    assert (one.joins, join.table, join.keys, join.columns) == ((), "goods", ("item",), ("kind",))
    assert other.columns == ("item", f"{join.id}.kind") and one.columns == ("item",)
    assert other.guide is None and isinstance(other.where, And) and len(other.where.parts) == 2
