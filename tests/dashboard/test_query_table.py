"""The list of queries: searched, sorted, paged."""

from __future__ import annotations

import pytest

from tests.dashboard.fake import FakeService, query
from transom.dashboard.query_list import Queries
from transom.dashboard.query_table import PAGE, Wanted, page_of, query_row, query_table, selected, state_of

KNOWN = [
    query("mean delay", results=5),
    query("Flights", results=9, kind="on demand"),
    query("worst", results=7, suspended="a table is gone", sql="SELECT max(delay) AS worst FROM flights"),
]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param(Wanted(), ["mean delay", "Flights", "worst"], id="as registered"),
        pytest.param(Wanted("DELAY"), ["mean delay", "worst"], id="a word of the name or of the SQL"),
        pytest.param(Wanted("max delay"), ["worst"], id="all words"),
        pytest.param(Wanted(kind="on demand"), ["Flights"], id="of a kind"),
        pytest.param(Wanted(kind="suspended"), ["worst"], id="suspended"),
        pytest.param(Wanted(sort="name"), ["Flights", "mean delay", "worst"], id="by name, in any case"),
        pytest.param(Wanted(sort="-results"), ["Flights", "worst", "mean delay"], id="most results first"),
        pytest.param(Wanted(sort="nonsense"), ["mean delay", "Flights", "worst"], id="an order unknown"),
    ],
)
def test_the_queries_that_are_wanted(wanted, names):
    assert [one.name for one in selected(KNOWN, wanted)] == names


def test_a_page_beyond_the_end_is_the_last_one():
    many = [query(f"q{n}") for n in range(2 * PAGE + 1)]
    shown, page, pages = page_of(many, 99)
    assert ([one.name for one in shown], page, pages) == ([f"q{2 * PAGE}"], 3, 3)


def test_only_queries_that_are_seen_are_asked_for_their_trend():
    service = FakeService(*[query(f"q{n}") for n in range(1000)])
    found = Queries(service, "", "", "", 2).fetch()
    assert service.asked == [f"q{n}" for n in range(PAGE, 2 * PAGE)]
    assert (found.total, found.matching, found.page, found.pages) == (1000, 1000, 2, 40)


def test_a_row_says_why_a_query_is_suspended_and_escapes_its_name():
    word, _, why = state_of(KNOWN[2])
    assert (word, why) == ("suspended", "a table is gone")
    row = query_row(query("<script>"), None, 0)
    assert "<script>" not in row and "&lt;script&gt;" in row and "/query/%3Cscript%3E" in row


def test_the_column_that_is_sorted_by_says_so_and_turns():
    table = query_table([], "name")
    assert 'aria-sort="ascending"' in table and 'data-arg="-name"' in table
    assert 'data-arg="name"' in query_table([], "-name")
