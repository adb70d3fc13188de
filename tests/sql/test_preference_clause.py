"""WITH PREFERENCE in all the ways to write it, and what is said when it is wrong."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.stores_catalog import CATALOG, COUNT, MINUTE, preference_query
from tests.sql.trades_catalog import Rules
from transom.elements import Preference
from transom.errors import SQLError
from transom.sql import bind_one, has_preference
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise

QUERY = "SELECT item, price FROM store1 WHERE price > 1"
ITEM, PRICE = EstimatedCount("store1", "item"), Column("store1", "price")


def product(op: str, left: Promise, right: Promise) -> Arithmetic:
    return Arithmetic(op, left, right)


CLAUSES: dict[str, Preference] = {
    f"WITH PREFERENCE {COUNT}(item)": Preference("desc"),
    f"with preference DESC {COUNT.upper()}(ITEM);": Preference("desc"),
    f"WITH PREFERENCE asc {COUNT}(item)": Preference("asc"),
    f"WITH PREFERENCE Weighted {COUNT.lower()}(store1.item)": Preference("weighted"),
    "WITH /* why */ PREFERENCE desc SUMMARY . Estimate . Count ( `item` )": Preference("desc"),
    f"WITH PREFERENCE desc {COUNT}(item) FADE FACTOR 0.8": Preference("desc", fade=0.8),
    f"WITH PREFERENCE desc {COUNT}(item) fade factor 1": Preference("desc"),
    f"WITH PREFERENCE desc {COUNT}(item) WINDOW '1 minute'": Preference("desc", window=MINUTE),
    f"WITH PREFERENCE desc {COUNT}(item) WINDOW 1 minute 30 s": Preference("desc", window=MINUTE * 3 // 2),
    f"WITH PREFERENCE desc {COUNT}(item) WINDOW INTERVAL '1' MINUTE": Preference("desc", window=MINUTE),
    f"WITH PREFERENCE desc {COUNT}(item) WINDOW '210 seconds'": Preference("desc", window=210_000_000),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET 50000 PROBES": Preference("desc", probes=50_000),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET 1 probe": Preference("desc", probes=1),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET 1e6 PROBES": Preference("desc", probes=1_000_000),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET '200 ms'": Preference("desc", time=200_000),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET 200 ms": Preference("desc", time=200_000),
    f"WITH PREFERENCE desc {COUNT}(item) BUDGET 200ms": Preference("desc", time=200_000),
    f"WITH PREFERENCE asc {COUNT}(item) BUDGET 5 PROBES WINDOW 1 minute FADE FACTOR 0.5": Preference("asc", 0.5, MINUTE, probes=5),
    f"WITH PREFERENCE asc {COUNT}(item) WINDOW 1 minute BUDGET 5 ms FADE FACTOR 0.5": Preference("asc", 0.5, MINUTE, time=5000),
}  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES)
def test_each_form_of_the_clause_is_read(clause: str) -> None:
    text = f"{QUERY} {clause}"
    assert has_preference(text)
    bound = preference_query(text)
    assert bound.preference == CLAUSES[clause]
    assert bound.promise == ITEM


PROMISES: dict[str, Promise] = {
    f"{COUNT}(item) * price": product("*", ITEM, PRICE),
    f"price + {COUNT}(item) * 2": product("+", PRICE, product("*", ITEM, Number(2.0))),
    f"(price + {COUNT}(item)) * 2": product("*", product("+", PRICE, ITEM), Number(2.0)),
    f"{COUNT}(item) - price - 1": product("-", product("-", ITEM, PRICE), Number(1.0)),
    f"{COUNT}(item) / price * 0.5": product("*", product("/", ITEM, PRICE), Number(0.5)),
    f"1 / ({COUNT}(item))": product("/", Number(1.0), ITEM),
    f"-1.5 * {COUNT}(store1.ITEM)": product("*", Number(-1.5), ITEM),
    f"-{COUNT}(item)": product("-", Number(0.0), ITEM),
    f"+{COUNT}(item) - -2": product("-", ITEM, Number(-2.0)),
    f"((({COUNT}(item))))": ITEM,
    f"{COUNT}(item) * item": product("*", ITEM, Column("store1", "item")),
    f"{COUNT}(item) * {COUNT}(item)": product("*", ITEM, ITEM),
    f"{COUNT}(item) * `till`": product("*", ITEM, Column("store1", "till")),
}


@pytest.mark.parametrize("written", PROMISES)
def test_a_promise_is_arithmetic_over_counts_columns_and_numbers(written: str) -> None:
    assert preference_query(f"{QUERY} WITH PREFERENCE {written} WINDOW 1 minute").promise == PROMISES[written]


WRITTEN = st.recursive(
    st.sampled_from([(ITEM, f"{COUNT}(item)"), (PRICE, "price"), (Number(3.0), "3")]),
    lambda parts: st.tuples(st.sampled_from("+-*/"), parts, parts).map(
        lambda made: (Arithmetic(made[0], made[1][0], made[2][0]), f"({made[1][1]} {made[0]} {made[2][1]})")
    ),
)


@given(WRITTEN.filter(lambda made: "Count" in made[1]))
def test_any_promise_keeps_its_operator_precedence(made: tuple[Promise, str]) -> None:
    promise, written = made
    assert preference_query(f"{QUERY} WITH PREFERENCE asc {written}").promise == promise


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (f"SELECT item FROM store1 with\npreference {COUNT}(item)", True),
        ("SELECT item FROM store1 WITH -- a\n PREFERENCE", True),
        ("SELECT item FROM store1", False),
        ("SELECT preference FROM store1", False),
        ("SELECT 'with preference' AS a FROM store1", False),
        ("SELECT item FROM store1 -- WITH PREFERENCE", False),
        ("SELECT item AS `with preference` FROM store1", False),
        ("WITH preference AS (SELECT 1) SELECT a FROM preference", False),
        ("SELECT preference FROM store1 WHERE name = 'open", False),
        ("", False),
    ],
)
def test_a_preference_is_found_without_parsing(text: str, is_one: bool) -> None:
    assert has_preference(text) is is_one


def test_a_window_query_has_no_preference() -> None:
    with pytest.raises(SQLError, match="a query WITH PREFERENCE is no window query"):
        bind_one("SELECT count(*) FROM store1 [RANGE 5 s] WITH PREFERENCE asc item", CATALOG, Rules())
    with pytest.raises(SQLError, match="expected WITH PREFERENCE at the end of the query"):
        preference_query("SELECT item FROM store1")


START = f"WITH PREFERENCE desc {COUNT}(item)"


@pytest.mark.parametrize(
    ("clause", "said", "place"),
    [
        (f"WITH PREFERNCE desc {COUNT}(item)", "WITH is not supported here; did you mean PREFERENCE?", "WITH"),
        ("WITH x AS (SELECT 1)", "WITH is not supported here", "WITH"),
        ("WITH PREFERENCE", "expected an expression after PREFERENCE, like SUMMARY.Estimate.Count(item)", "PREFERENCE"),
        ("WITH PREFERENCE desc", "expected an expression after desc", "desc"),
        ("WITH PREFERENCE desc WINDOW '1 minute'", "expected an expression after desc", "desc"),
        ("WITH PREFERENCE desc FADE FACTOR 0.5", "expected an expression after desc", "desc"),
        ("WITH PREFERENCE desc BUDGET 5 PROBES", "expected an expression after desc", "desc"),
        (f"WITH PREFERENCE dsc {COUNT}(item)", "expected desc, asc or weighted, found dsc; did you mean desc?", "dsc"),
        (f"WITH PREFERENCE weigted {COUNT}(item)", "found weigted; did you mean weighted?", "weigted"),
        ("WITH PREFERENCE desc * price", "expected a number, a column or SUMMARY.Estimate.Count(column), found *", "*"),
        ("WITH PREFERENCE desc 'price'", "found 'price'", "'price'"),
        (f"{START} *", "expected an expression after *", "*"),
        (f"{START} * WINDOW 1 s", "expected an expression after *", "*"),
        (f"{START} % 2", "expected + - * /, FADE FACTOR, WINDOW, BUDGET or the end of the query, found %", "%"),
        (f"{START}.{COUNT}(item)", "a product is written with *", "."),
        (f"{START} price", "found price", "price"),
        (f"WITH PREFERENCE desc ({COUNT}(item)", "this parenthesis is not closed", "("),
        (f"WITH PREFERENCE desc ({COUNT}(item) price)", "expected + - * / or the closing parenthesis, found price", "price"),
        (f"{START})", "found )", ")"),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Cont(item)", "not SUMMARY.Estimate.Cont; did you mean SUMMARY.Estimate.Count?", "SUMMARY.Estimate.Cont"),
        ("WITH PREFERENCE desc Count(item)", "not Count; did you mean SUMMARY.Estimate.Count?", "Count"),
        ("WITH PREFERENCE desc abs(item)", "a promise can call only SUMMARY.Estimate.Count, not abs", "abs"),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(*)", "SUMMARY.Estimate.Count takes a summarized column, found *", "*"),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count()", "SUMMARY.Estimate.Count takes a summarized column, found )", ")"),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(", "SUMMARY.Estimate.Count takes a summarized column, found (", "("),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(item", "this parenthesis is not closed", "("),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(item, price)", "SUMMARY.Estimate.Count takes one summarized column, found ,", ","),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(item + 1)", "SUMMARY.Estimate.Count takes one summarized column, found +", "+"),
        ("WITH PREFERENCE desc SUMMARY.Estimate.Count(store1.)", "expected a name after the dot, found )", ")"),
        ("WITH PREFERENCE desc a.b.c.d.e", "this is not a column of a stream", "a.b.c.d.e"),
        ("WITH PREFERENCE desc 1e999", "above the largest double", "1e999"),
        (f"WITH PREFERENCE desc {'1 + ' * 100}price", "a promise has at most 100 operands", "price"),
        (f"WITH PREFERENCE desc {'(' * 100}price{')' * 100}", "a promise has at most 100 operands", "price"),
        (f"WITH PREFERENCE desc {'- ' * 100}price", "a promise has at most 100 operands", "price"),
        (f"{START} FADE 0.8", "expected FACTOR after FADE, found 0.8", "0.8"),
        (f"{START} FADE FACTOR", "FADE FACTOR needs a number like 0.8", "FACTOR"),
        (f"{START} FADE FACTOR WINDOW 1 s", "FADE FACTOR needs a number like 0.8, found WINDOW", "WINDOW"),
        (f"{START} FADE FACTOR 0", "FADE FACTOR is above 0 and at most 1", "0"),
        (f"{START} FADE FACTOR 1.5", "FADE FACTOR is above 0 and at most 1", "1.5"),
        (f"{START} FADE FACTOR -0.5", "FADE FACTOR is above 0 and at most 1", "-0.5"),
        (f"{START} FADE FACTOR 0.8 FADE FACTOR 0.8", "FADE is given twice", "FADE"),
        (f"{START} WINDOW", "WINDOW needs a duration like '1 minute'", "WINDOW"),
        (f"{START} WINDOW BUDGET 5 PROBES", "WINDOW needs a duration like '1 minute'", "WINDOW"),
        (f"{START} WINDOW [RANGE 5 s]", "WINDOW takes a duration like '1 minute' here, and no bracket", "["),
        (f"{START} WINDOW '5'", "'5' has no unit; did you mean '5 seconds'?", "'5'"),
        (f"{START} WINDOW 5 secnds", "unknown unit secnds; did you mean seconds?", "5 secnds"),
        (f"{START} WINDOW 0 s", "WINDOW must be positive", "0 s"),
        (f"{START} WINDOW 1 s WINDOW 2 s", "WINDOW is given twice", "WINDOW"),
        (f"{START} WINDOW 1 hour", "WINDOW is 1 hour, and the summary items keeps 3 minutes 30 seconds; a longer GRANULARITY or a deeper COLLAPSE keeps more", "1 hour"),
        (f"{START} BUDGET", "BUDGET needs a duration like '200 ms', or 50000 PROBES", "BUDGET"),
        (f"{START} BUDGET 500", "a BUDGET has a unit: write 500 PROBES, or '500 ms'", "500"),
        (f"{START} BUDGET 500 WINDOW 1 s", "a BUDGET has a unit: write 500 PROBES, or '500 ms'", "500"),
        (f"{START} BUDGET 0 PROBES", "a BUDGET is a whole number of probes, at least 1", "0"),
        (f"{START} BUDGET 1.5 PROBES", "a BUDGET is a whole number of probes, at least 1", "1.5"),
        (f"{START} BUDGET -5 PROBES", "a BUDGET is a whole number of probes, at least 1", "-5"),
        (f"{START} BUDGET 5 PROBS", "a BUDGET is in probes or a duration, and this is PROBS; did you mean PROBES?", "PROBS"),
        (f"{START} BUDGET '0 ms'", "BUDGET must be positive", "'0 ms'"),
        (f"{START} BUDGET 5 PROBES BUDGET 5 ms", "BUDGET is given twice", "BUDGET"),
        (f"{START} BUDGT 5 PROBES", "found BUDGT; did you mean BUDGET?", "BUDGT"),
        (f"{START} WITH PREFERENCE asc item", "WITH PREFERENCE is given twice", "WITH"),
        (f"{START} WHERE item > 5", "WITH PREFERENCE comes at the very end of a query, and this is after it", "WHERE"),
        (f"{START} BUDGET 5 PROBES GROUP BY item", "WITH PREFERENCE comes at the very end of a query", "GROUP BY"),
        (f"{START} EMIT EARLY ON DEMAND", "EMIT is for window queries; a query WITH PREFERENCE takes WINDOW", "EMIT"),
        (f"{START} WINDOW 1 s USING exact", "USING is for window queries; a query WITH PREFERENCE takes WINDOW", "USING"),
        (f"EMIT EARLY ON DEMAND {START}", "a query WITH PREFERENCE has no early results", "WITH PREFERENCE"),
    ],
)  # fmt: skip
def test_a_wrong_clause_is_pointed_at(clause: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        preference_query(f"{QUERY} {clause}")
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place
