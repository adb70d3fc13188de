"""EXPLAIN, word for word."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.plan.bids import RULES, SEQ, bound, compiled
from transom.control.rules import StreamRules
from transom.plan.explain import explain, predicate_text

PER_SITE = """
    SELECT site, avg(price) AS p, sum(price), count(*) FILTER (WHERE kind = 'a') AS n
    FROM bids [RANGE 4 minutes SLIDE 1 minute] WHERE price > 10 AND kind IN ('a', 'b', NULL)
    GROUP BY site HAVING n > 5
"""
PAIRED = """
    SELECT max(price - cp), min(price) FROM bids [RANGE 12 minutes SLIDE 5 minutes ORIGIN '1 minute'], closing
    WHERE bids.site = closing.site
"""
NUMBERED = "SELECT count(*) FROM bids [RANGE 100 SLIDE 10 WATTR seq]"


def test_the_plan_of_several_queries() -> None:
    queries = [
        compiled(PER_SITE, "per_site"),
        compiled(NUMBERED, "numbered"),
        compiled("SELECT count(*) FROM bids [ROWS 100 SLIDE 30]", "rows", naive=True),
    ]
    expected = """\
        stream bids: 3 queries, time ts
          slack 30 seconds, horizon 52 weeks 2 days
          project: 3 scalar expressions for 6 uses
            `price`
            `kind`
            `site`
          query per_site
            window range 4 minutes, slide 1 minute; slices of 1 minute on ts
            where `price` > 10.0 AND `kind` IN ('a', 'b', NULL)
            group by `site`
            keep per slice and group: rows, sum(`price`), count(`price`), count(*) where `kind` = 'a'
            having `a2` > 5
          query numbered
            window range 100, slide 10; slices of 10 on seq
            keep per slice and group: rows, count(*)
          query rows
            window range 100, slide 30; paired slices of 20 and 10 on rows
            keep per slice and group: every tuple"""
    assert explain({"bids": RULES}, queries) == dedent(expected)


def test_joins_and_paired_slices_are_shown() -> None:
    query = compiled(PAIRED, "paired")
    (join,) = query.query.joins
    lines = explain({"bids": RULES}, [query]).splitlines()
    assert f"  join closing on {join.on}" in lines
    assert f"    keep per slice and group: rows, max({query.slots[0].argument.sql}), min(`price`)" in lines
    assert (
        "    window range 12 minutes, slide 5 minutes, ends at 1 minute past each slide; "
        "paired slices of 3 minutes and 2 minutes on ts" in lines
    )


def test_a_stream_that_runs_by_numbers_has_plain_numbers() -> None:
    text = explain({"bids": StreamRules(SEQ, None), "other": StreamRules(SEQ, 5)}, [])
    assert text.splitlines() == [
        "stream bids: 0 queries, time seq",
        "  slack none, horizon none",
        "  project: 0 scalar expressions for 0 uses",
        "stream other: 0 queries, time seq",
        "  slack 5, horizon none",
        "  project: 0 scalar expressions for 0 uses",
    ]


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("site = 1 AND (kind = 'a' OR kind = 'b')", "`site` = 1 AND (`kind` = 'a' OR `kind` = 'b')"),
        ("NOT (site = 1 AND seq = 2)", "NOT (`site` = 1 AND `seq` = 2)"),
        ("kind IS NOT NULL", "NOT `kind` IS NULL"),
        ("price > seq", "`price` > `seq`"),
        ("NOT site = 1", "NOT `site` = 1"),
    ],
)
def test_predicates_read_as_they_are_written(where: str, text: str) -> None:
    query = bound(f"SELECT count(*) FROM bids [RANGE 4 minutes SLIDE 1 minute] WHERE {where}")
    assert query.where is not None
    assert predicate_text(query.where) == text
