"""The form that the editor gives to queries: the same query, in lines that people can read."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.sql.generated_texts import TextMaker
from tests.sql.trades_catalog import bound
from transom.errors import SQLError
from transom.sql.editor.formatter import LONGEST_LINE, format_sql
from transom.sql.editor.scanned_text import scan

ROOT = Path(__file__).parent.parent.parent
QUERY = re.compile(r"(?:SELECT|WITH) [^`]*? FROM [^`]*?\[[^`]*")
DOCUMENTS = ("docs/reference/sql.md", "docs/reference/spark-and-flink.md", "docs/semantics.md", "README.md")


def queries_of_the_documents() -> list[str]:
    texts = []
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        texts += [found for found in re.findall(r"`([^`\n]*)`", text) if QUERY.fullmatch(found)]
        texts += [
            block for block in re.findall(r"```(?:sql)?\n(.*?)```", text, re.DOTALL) if QUERY.match(block)
        ]
    return texts


def same(text: str) -> list[str]:
    return [piece.text.upper() for piece in scan(text)]


def test_a_query_of_one_line_gets_a_line_for_each_clause():
    text = (
        "select a,b ,count( * )filter( where x>1 ) n from bids b[range 10 minutes, slide 1 minute wattr ts]"
        "join shops s on b.shop=s.id left join c using(id) where a=1 group by a,b having n>5 "
        "order by n desc nulls last limit 5 with ties emit early at 50%,75% of slide confidence 90% -- done"
    )
    assert format_sql(text).splitlines() == [
        "SELECT a, b, count(*) FILTER (WHERE x > 1) n",
        "FROM bids b [RANGE 10 minutes, SLIDE 1 minute WATTR ts]",
        "JOIN shops s ON b.shop = s.id",
        "LEFT JOIN c USING (id)",
        "WHERE a = 1",
        "GROUP BY a, b",
        "HAVING n > 5",
        "ORDER BY n DESC NULLS LAST",
        "LIMIT 5 WITH TIES",
        "EMIT EARLY AT 50%, 75% OF SLIDE CONFIDENCE 90% -- done",
    ]


def test_long_lists_and_conditions_are_broken_and_between_is_not():
    text = (
        "SELECT site, avg(price) AS a_long_name_of_a_column, sum(price * volume) AS another_long_name, count(*) AS n "
        "FROM bids [RANGE 1 minute SLIDE 1 minute] WHERE price BETWEEN 10 AND 20 AND kind IN ('a', 'b') AND "
        "left(name, 3) = 'abc' OR upper(city) LIKE 'OSLO%' GROUP BY site"
    )
    assert format_sql(text).splitlines() == [
        "SELECT",
        "  site,",
        "  avg(price) AS a_long_name_of_a_column,",
        "  sum(price * volume) AS another_long_name,",
        "  count(*) AS n",
        "FROM bids [RANGE 1 minute SLIDE 1 minute]",
        "WHERE price BETWEEN 10 AND 20",
        "  AND kind IN ('a', 'b')",
        "  AND left(name, 3) = 'abc'",
        "  OR upper(city) LIKE 'OSLO%'",
        "GROUP BY site",
    ]


def test_subqueries_are_indented():
    text = (
        "with clean as (select site, price*2 as p from bids where price > 0) select site, sum(p) from clean "
        "[range 1 minute slide 1 minute] where site > 1 and not exists(select 1 from blocked k where k.s=site) "
        "group by site"
    )
    assert format_sql(text).splitlines() == [
        "WITH clean AS (",
        "  SELECT site, price * 2 AS p",
        "  FROM bids",
        "  WHERE price > 0",
        ")",
        "SELECT site, sum(p)",
        "FROM clean [RANGE 1 minute SLIDE 1 minute]",
        "WHERE site > 1",
        "  AND NOT EXISTS (",
        "    SELECT 1",
        "    FROM blocked k",
        "    WHERE k.s = site",
        "  )",
        "GROUP BY site",
    ]


def test_comments_stay_where_they_are():
    text = (
        "-- head\nselect a, -- first\n  b /* second */\n-- the stream\nfrom x [range 1 hour] -- tail\n"
        "using timegram(16)"
    )
    assert format_sql(text).splitlines() == [
        "-- head",
        "SELECT",
        "  a, -- first",
        "  b /* second */",
        "-- the stream",
        "FROM x [RANGE 1 hour] -- tail",
        "USING timegram(16)",
    ]


@pytest.mark.parametrize(
    ("written", "formatted"),
    [
        ("SELECT -x, 3 - -2, - -x, 10%3, 5 %3", "SELECT -x, 3 - -2, - -x, 10 % 3, 5 % 3"),
        ("SELECT raw:user.name, raw:items [0]::double", "SELECT raw:user.name, raw:items[0]::double"),
        ("SELECT x WHERE x > :limit", "SELECT x\nWHERE x > :limit"),
        ("SELECT cast(x AS array<struct<a: int>>)", "SELECT cast(x AS array<struct<a: int>>)"),
        ("SELECT r'\\d', X'1F', 'a''b', \"c\"", "SELECT r'\\d', X'1F', 'a''b', \"c\""),
        ("SELECT `from`, b.`group` , b.order", "SELECT `from`, b.`group`, b.order"),
        ("SELECT a AS end, left(a,1) , x -> x+1", "SELECT a AS end, left(a, 1), x -> x + 1"),
        ("SELECT sum(x) over windows", "SELECT sum(x) OVER WINDOWS"),
        (
            "SELECT percentile_cont(0.5) within group(order by x)",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
        ),
        ("SELECT 1 GROUP BY a with rollup", "SELECT 1\nGROUP BY a WITH ROLLUP"),
        ("SELECT range, slide FROM s[range=5,slide=1]", "SELECT range, slide\nFROM s [RANGE = 5, SLIDE = 1]"),
        ("SELECT 1 emit early on demand", "SELECT 1\nEMIT EARLY ON DEMAND"),
        ("  \n ", ""),
    ],
)
def test_names_numbers_and_symbols_are_written_as_people_do(written: str, formatted: str):
    assert format_sql(written) == formatted


def test_the_queries_of_the_documents_stay_the_same_and_fit_the_lines():
    texts = queries_of_the_documents()
    assert len(texts) > 45
    for text in texts:
        formatted = format_sql(text)
        assert same(formatted) == same(text)
        assert format_sql(formatted) == formatted
        assert format_sql(" ".join(formatted.split())) == formatted or "--" in text
        assert max(map(len, formatted.splitlines())) <= max(LONGEST_LINE, max(map(len, text.splitlines())))


def test_generated_queries_bind_to_the_same_query():
    maker = TextMaker(random.Random(5))
    checked = 0
    for _ in range(500):
        text = maker.filled(maker.text())
        try:
            before = bound(text)
        except SQLError:
            continue
        formatted = format_sql(text)
        after = bound(formatted)
        assert (after.items, after.window, after.keys) == (before.items, before.window, before.keys)
        assert after.where == before.where and after.having == before.having
        assert format_sql(formatted) == formatted
        checked += 1
    assert checked > 80


def test_result_columns_keep_their_names():
    items = "sum( price*volume ),count( * ), case when site>1 then 1 end, -site"
    text = f"select {items} from Trades [range 1 min slide 1 min]group by site"
    assert [item.name for item in bound(format_sql(text)).items] == [item.name for item in bound(text).items]


@pytest.mark.parametrize(("text", "place"), [("SELECT 'a", 7), ("SELECT `a", 7), ("SELECT /* a", 7)])
def test_an_open_quote_or_comment_is_an_error_at_its_place(text: str, place: int):
    with pytest.raises(SQLError, match="is not closed") as caught:
        format_sql(text)
    assert caught.value.start == place


def test_texts_that_are_no_queries_are_not_lost():
    for text in ("", "abc", ")(", "SELECT ((", "]]] [", "- -", "SELECT a FROM", "'x' \"y\" `z` ; ;"):
        assert same(format_sql(text)) == same(text)
