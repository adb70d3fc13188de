"""CREATE SUMMARY and DROP SUMMARY in all the ways to write them, and what is said when they are wrong."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sql.stores_catalog import CATALOG, ITEMS, SECOND, SUMMARIES
from transom.elements import Forget, Summary
from transom.errors import SQLError
from transom.sql import bind_drop, bind_summary, is_statement, parse_summary, read_statement

CREATE = "CREATE SUMMARY items ON store1(item) WITH GRANULARITY '10 seconds'"


def items(**more: Any) -> Summary:
    return Summary("items", "store1", "item", 10 * SECOND, **more)


STATEMENTS: dict[str, Summary] = {
    CREATE: items(),
    f"{CREATE} AND COLLAPSE(4, 3);": items(rate=4, depth=3),
    f"{CREATE} AND COLLAPSE(2, 16)": items(rate=2, depth=16),
    f"{CREATE.lower()} and collapse(64, 1)": items(rate=64, depth=1),
    f"{CREATE} AND STRUCTURE none": items(structure="none"),
    f"{CREATE} AND STRUCTURE TIME": items(structure="time"),
    f"{CREATE} AND STRUCTURE cells": items(structure="cells"),
    f"{CREATE} AND STRUCTURE Adjusting": items(structure="adjusting"),
    f"{CREATE} AND STRUCTURE auto": items(structure="auto"),
    f"{CREATE} AND STRUCTURE T1": items(structure="none"),
    f"{CREATE} AND STRUCTURE t2": items(structure="time"),
    f"{CREATE} AND STRUCTURE T3": items(structure="cells"),
    f"{CREATE} AND STRUCTURE T4": items(structure="adjusting"),
    f"{CREATE} AND BUCKETS 1": items(buckets=1),
    f"{CREATE} AND BUCKETS 65536": items(buckets=65_536),
    f"{CREATE} AND BUCKETS 64 BETWEEN -5 AND 1e3 AND HISTOGRAM": items(buckets=64, between=(-5.0, 1000.0), kind="histogram"),
    f"{CREATE} AND COUNTSKETCH": items(),
    f"{CREATE} AND COUNTSKETCH(1, 2)": items(rows=1, width=2),
    f"{CREATE} AND COUNTSKETCH(15, 4096)": items(rows=15, width=4096),
    f"{CREATE} AND HISTOGRAM": items(kind="histogram"),
    "CREATE SUMMARY items ON store1(item) WITH COLLAPSE(3, 2) AND HISTOGRAM AND GRANULARITY 10 s AND BUCKETS 9": items(rate=3, depth=2, kind="histogram", buckets=9),
    "-- of items\nCREATE /* a */ SUMMARY `items` ON `store1` (`item`)\nWITH GRANULARITY INTERVAL '10' SECONDS": items(),
}  # fmt: skip


@pytest.mark.parametrize("text", STATEMENTS)
def test_each_option_of_a_summary_is_bound(text: str) -> None:
    assert is_statement(text)
    assert parse_summary(text) == read_statement(text) == bind_summary(text, CATALOG) == STATEMENTS[text]


def test_names_are_spelled_as_in_the_catalog() -> None:
    text = "CREATE SUMMARY Codes ON STORE2(code) WITH GRANULARITY 1 s"
    assert parse_summary(text) == Summary("Codes", "STORE2", "code", SECOND)
    assert bind_summary(text, CATALOG) == Summary("Codes", "Store2", "Code", SECOND)
    odd = "CREATE SUMMARY `odd one` ON `my-store`(`an item`) WITH GRANULARITY 1 s"
    assert bind_summary(odd, CATALOG) == Summary("odd one", "my-store", "an item", SECOND)


@pytest.mark.parametrize("column", ["item", "price", "name", "till", "ts"])
def test_numbers_text_and_times_can_be_summarized(column: str) -> None:
    bound = bind_summary(f"CREATE SUMMARY s ON store1({column}) WITH GRANULARITY 1 s", CATALOG)
    assert bound.column == column


def test_a_summary_reaches_back_as_far_as_its_granularities_together() -> None:
    assert bind_summary(f"{CREATE} AND COLLAPSE(4, 3)", CATALOG).reach == (10 + 40 + 160) * SECOND


def test_a_name_can_t_be_reused_except_for_the_same_statement() -> None:
    catalog = replace(CATALOG, summaries=SUMMARIES)
    assert bind_summary(CREATE, catalog) == ITEMS
    with pytest.raises(SQLError, match="there is a summary items already; DROP SUMMARY items comes first"):
        bind_summary(f"{CREATE.replace(' items', ' Items')} AND HISTOGRAM", catalog)


def test_dropping_names_a_summary() -> None:
    assert read_statement("DROP SUMMARY items") == Forget("items")
    assert read_statement("drop summary if exists `my items`;") == Forget("my items")
    assert read_statement("DROP SUMMARY if") == Forget("if")
    assert bind_drop("DROP SUMMARY ITEMS", SUMMARIES) == Forget("items")
    assert bind_drop("DROP SUMMARY IF EXISTS items", SUMMARIES) == Forget("items")
    assert bind_drop("DROP SUMMARY IF EXISTS nothing", SUMMARIES) is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("CREATE SUMMARY x", True),
        ("  /* a */ -- b\n drop\nsummary x", True),
        ("CREATE SUMARY x", True),
        ("SELECT count(*) FROM created", False),
        ("creates", False),
        ("-- CREATE SUMMARY\nSELECT 1", False),
        ("", False),
    ],
)
def test_a_statement_is_recognized_by_its_first_word(text: str, is_one: bool) -> None:
    assert is_statement(text) is is_one
    if not is_one:
        assert read_statement(text) is None


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("CREATE SUMARY items", "expected SUMMARY after CREATE, found SUMARY; did you mean SUMMARY?", "SUMARY"),
        ("CREATE", "expected SUMMARY after CREATE", "CREATE"),
        ("CREATE SUMMARY", "expected the name of a summary after SUMMARY", "SUMMARY"),
        ("CREATE SUMMARY 5 ON", "expected the name of a summary, found 5", "5"),
        ("CREATE SUMMARY 'items' ON", "expected the name of a summary, found 'items'", "'items'"),
        ("CREATE SUMMARY items OF store1(item)", "expected ON after ITEMS, found OF", "OF"),
        ("CREATE SUMMARY items ON store1 WITH", "write store1(column), found WITH", "WITH"),
        ("CREATE SUMMARY items ON store1()", "expected a column, found )", ")"),
        ("CREATE SUMMARY items ON store1(item, price)", "a summary is of one column; create one for each", ","),
        ("CREATE SUMMARY items ON store1(item", "write store1(item)", "item"),
        ("CREATE SUMMARY items ON store1(item)", "expected WITH after ); write WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)", ")"),
        ("CREATE SUMMARY items ON store1(item) GRANULARITY 1 s", "expected WITH after ), found GRANULARITY; write WITH", "GRANULARITY"),
        ("CREATE SUMMARY items ON store1(item) WITH", "expected GRANULARITY, COLLAPSE, STRUCTURE, BUCKETS, COUNTSKETCH or HISTOGRAM after WITH", "WITH"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULRITY 1 s", "found GRANULRITY; did you mean GRANULARITY?", "GRANULRITY"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY", "GRANULARITY needs a duration like '10 seconds'", "GRANULARITY"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY AND COLLAPSE(4, 3)", "GRANULARITY needs a duration like '10 seconds'", "GRANULARITY"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY '10'", "'10' has no unit; did you mean '10 seconds'?", "'10'"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY 10 secnds", "unknown unit secnds; did you mean seconds?", "10 secnds"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY '0 s'", "GRANULARITY must be positive", "'0 s'"),
        ("CREATE SUMMARY items ON store1(item) WITH GRANULARITY -5 s", "GRANULARITY must be positive", "-5 s"),
        ("CREATE SUMMARY items ON store1(item) WITH COLLAPSE(4, 3)", "a summary needs GRANULARITY", ")"),
        (f"{CREATE} COLLAPSE(4, 3)", "expected AND or the end of the statement, found COLLAPSE; AND stands between options", "COLLAPSE"),
        (f"{CREATE} AND", "expected GRANULARITY, COLLAPSE", "AND"),
        (f"{CREATE} AND HISTOGRAM, BUCKETS 5", "expected AND or the end of the statement, found ,", ","),
        (f"{CREATE} AND GRANULARITY 5 s", "GRANULARITY is given twice", "GRANULARITY"),
        (f"{CREATE} AND COLLAPSE", "write COLLAPSE(rate, depth), like COLLAPSE(4, 3)", "COLLAPSE"),
        (f"{CREATE} AND COLLAPSE(4)", "write COLLAPSE(rate, depth), like COLLAPSE(4, 3), found )", ")"),
        (f"{CREATE} AND COLLAPSE(4, 3", "write COLLAPSE(rate, depth)", "3"),
        (f"{CREATE} AND COLLAPSE(four, 3)", "COLLAPSE needs a number, found four", "four"),
        (f"{CREATE} AND COLLAPSE(1, 3)", "the rate of COLLAPSE is a whole number, 2 to 64", "1"),
        (f"{CREATE} AND COLLAPSE(65, 3)", "the rate of COLLAPSE is a whole number, 2 to 64", "65"),
        (f"{CREATE} AND COLLAPSE(2.5, 3)", "the rate of COLLAPSE is a whole number, 2 to 64", "2.5"),
        (f"{CREATE} AND COLLAPSE(4, 0)", "the depth of COLLAPSE is a whole number, 1 to 16", "0"),
        (f"{CREATE} AND COLLAPSE(4, 17)", "the depth of COLLAPSE is a whole number, 1 to 16", "17"),
        (f"{CREATE} AND COLLAPSE(64, 16)", "COLLAPSE covers more time than a timestamp can hold; use a smaller depth", "COLLAPSE(64, 16)"),
        (f"{CREATE} AND STRUCTURE", "STRUCTURE needs none, time, cells, adjusting or auto", "STRUCTURE"),
        (f"{CREATE} AND STRUCTURE adjustin", "found adjustin; did you mean adjusting?", "adjustin"),
        (f"{CREATE} AND STRUCTURE T5", "STRUCTURE needs none, time, cells, adjusting or auto, found T5", "T5"),
        (f"{CREATE} AND STRUCTURE 'none'", "found 'none'", "'none'"),
        (f"{CREATE} AND BUCKETS", "BUCKETS needs a number", "BUCKETS"),
        (f"{CREATE} AND BUCKETS 0", "the number of BUCKETS is a whole number, 1 to 65,536", "0"),
        (f"{CREATE} AND BUCKETS 65537", "the number of BUCKETS is a whole number, 1 to 65,536", "65537"),
        (f"{CREATE} AND BUCKETS -4", "the number of BUCKETS is a whole number, 1 to 65,536", "-4"),
        (f"{CREATE} AND BUCKETS 4 BETWEEN 5 AND 5", "BETWEEN takes the smaller value first, and two that differ", "5 AND 5"),
        (f"{CREATE} AND BUCKETS 4 BETWEEN 5", "expected AND after 5", "5"),
        (f"{CREATE} AND HISTOGRAM BETWEEN 0 AND 1", "BETWEEN follows the number of buckets: BUCKETS 256 BETWEEN 0 AND 1000", "BETWEEN"),
        (f"{CREATE} AND COUNTSKETCH(4, 16)", "a count-sketch has an odd number of rows: an estimate is their median", "4"),
        (f"{CREATE} AND COUNTSKETCH(17, 16)", "the number of rows is a whole number, 1 to 15", "17"),
        (f"{CREATE} AND COUNTSKETCH(5, 1)", "the width of a row is a whole number, 2 to 4,096", "1"),
        (f"{CREATE} AND COUNTSKETCH(5, 4097)", "the width of a row is a whole number, 2 to 4,096", "4097"),
        (f"{CREATE} AND COUNTSKETCH(5)", "write COUNTSKETCH(rows, width), like COUNTSKETCH(5, 16), found )", ")"),
        (f"{CREATE} AND COUNTSKETCH AND HISTOGRAM", "a summary is a COUNTSKETCH or a HISTOGRAM, not both", "HISTOGRAM"),
        (CREATE.replace("store1", "stor1"), "unknown stream stor1; did you mean store1?", "stor1"),
        (CREATE.replace("store1", "goods"), "a summary is of a stream, and goods is a static table", "goods"),
        (CREATE.replace("store1", "PER_item"), "a summary is of a stream, and per_item is a query", "PER_item"),
        (CREATE.replace("store1", "clockless"), "a summary goes by the stream's time, and clockless has no time column", "clockless"),
        (CREATE.replace("store1", "ticks"), "a summary goes by the stream's time, and n of ticks is int64", "ticks"),
        (CREATE.replace("(item", "(itm"), "unknown column itm; did you mean item?", "itm"),
        (CREATE.replace("(item", "(extra"), "a column of type map<string, int32> can't be summarized", "extra"),
        (CREATE.replace("(item", "(spot"), "can't be summarized; numbers, text, times and booleans can", "spot"),
        (f"{CREATE.replace('(item', '(name')} AND BUCKETS 9 BETWEEN 0 AND 5", "BETWEEN is for numbers, and name is string", "BETWEEN 0 AND 5"),
        ("DROP SUMMARY items", "expected CREATE SUMMARY", "DROP SUMMARY items"),
    ],
)  # fmt: skip
def test_a_wrong_statement_is_pointed_at(text: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        bind_summary(text, CATALOG)
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("DROP SUMMARY", "expected the name of a summary after SUMMARY", "SUMMARY"),
        ("DROP SUMMARY itms", "unknown summary itms; did you mean items?", "itms"),
        ("DROP SUMMARY items prices", "expected the end of the statement, found prices", "prices"),
        ("DROP items", "expected SUMMARY after DROP, found items", "items"),
        ("SELECT 1", "expected CREATE SUMMARY or DROP SUMMARY", "SELECT"),
        (CREATE, "expected DROP SUMMARY", "CREATE SUMMARY items"),
    ],
)
def test_a_wrong_drop_is_pointed_at(text: str, said: str, place: str) -> None:
    with pytest.raises(SQLError) as refused:
        bind_drop(text, SUMMARIES)
    error = refused.value
    assert said in error.message
    assert error.text[error.start : error.end] == place
