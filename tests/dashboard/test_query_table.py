"""The list of queries: search, filter, sort and paging."""

from __future__ import annotations

import pytest

from tests.dashboard.fake_service import FakeService, query
from transom.dashboard.query_list import QueryListView
from transom.dashboard.query_table import (
    PAGE_SIZE,
    ListFilter,
    filter_queries,
    paginate,
    query_state,
    query_table,
    query_table_row,
)
from transom.server.trends import Trend

QUERIES = [
    query("mean delay", results=5),
    query("Flights", results=9, kind="on demand"),
    query("worst", results=7, suspended="a table is gone", sql="SELECT max(delay) AS worst FROM flights"),
]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param(ListFilter(), ["mean delay", "Flights", "worst"], id="in order of registration"),
        pytest.param(ListFilter("DELAY"), ["mean delay", "worst"], id="a word in the name or the SQL"),
        pytest.param(ListFilter("max delay"), ["worst"], id="all words"),
        pytest.param(ListFilter(kind="on demand"), ["Flights"], id="by kind"),
        pytest.param(ListFilter(kind="suspended"), ["worst"], id="suspended"),
        pytest.param(
            ListFilter(sort="name"), ["Flights", "mean delay", "worst"], id="by name, ignoring case"
        ),
        pytest.param(
            ListFilter(sort="-results"), ["Flights", "worst", "mean delay"], id="most results first"
        ),
        pytest.param(
            ListFilter(sort="nonsense"), ["mean delay", "Flights", "worst"], id="an unknown sort key"
        ),
    ],
)
def test_queries_are_filtered_and_sorted(wanted, names):
    assert [query.name for query in filter_queries(QUERIES, wanted)] == names


def test_a_page_beyond_the_end_is_the_last_page():
    many = [query(f"q{n}") for n in range(2 * PAGE_SIZE + 1)]
    shown, page, pages = paginate(many, 99)
    assert ([query.name for query in shown], page, pages) == ([f"q{2 * PAGE_SIZE}"], 3, 3)


def test_only_the_queries_on_the_page_have_their_trend_read():
    service = FakeService(*[query(f"q{n}") for n in range(1000)])
    data = QueryListView(service, "", "", "", 2).fetch()
    assert service.trend_calls == [f"q{n}" for n in range(PAGE_SIZE, 2 * PAGE_SIZE)]
    assert (data.total, data.matching, data.page, data.pages) == (1000, 1000, 2, 40)


def test_a_row_gives_the_reason_of_a_suspension_and_escapes_the_name():
    state, _, tooltip = query_state(QUERIES[2])
    assert (state, tooltip) == ("suspended", "a table is gone")
    row = query_table_row(query("<script>"), None, 0)
    assert "<script>" not in row and "&lt;script&gt;" in row and "/query/%3Cscript%3E" in row


def test_a_row_shows_how_far_retained_rows_were_replayed():
    assert query_state(query("past", backfill=0.25))[0] == "replay 25%"
    assert query_state(query("past", backfill=0.25, paused=True))[0] == "paused"


def test_a_row_names_the_group_that_its_value_and_trend_are_of():
    row = query_table_row(query("q"), Trend("n", (1, 2), (4.0, 0.5), ("<UA>", None), 16), 0)
    assert ">n</span> 0.5" in row and "&lt;UA&gt; · –" in row and "highest of 16 groups" in row
    assert 'aria-label="n of &lt;UA&gt; · –, last 2 windows"' in row
    session = query_table_row(query("q"), Trend("n", (1,), (4.0,), ("UA",), 3, False), 0)
    assert "newest of 3 groups" in session
    plain = query_table_row(query("q"), Trend("n", (1,), (4.0,)), 0)
    assert ">n</span> 4" in plain and "group" not in plain and "last 1 window" in plain


def test_the_sorted_column_has_its_direction_and_a_click_reverses_it():
    table = query_table([], "name")
    assert 'aria-sort="ascending"' in table and 'data-arg="-name"' in table
    assert 'data-arg="name"' in query_table([], "-name")
