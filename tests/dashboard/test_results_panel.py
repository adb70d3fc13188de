"""Tables of results: search, kind, sort and paging."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.dashboard.fake_service import COLUMNS, result, results
from transom.dashboard.chart_points import result_columns
from transom.dashboard.results_panel import page_of
from transom.dashboard.table_page import PAGE_ROWS, RowFilter

ROLES = result_columns(COLUMNS)
TABLE = results(
    result(10, "Oslo", 3.0),
    result(10, "Rome", None),
    result(20, "oslo south", 1.0, "early"),
    result(20, "Bonn", 2.0),
)


def sites(wanted: RowFilter, table: pa.Table = TABLE) -> list[str]:
    return page_of(table, ROLES, wanted).rows["site"].to_pylist()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(RowFilter(), ["oslo south", "Bonn", "Oslo", "Rome"], id="the newest windows first"),
        pytest.param(RowFilter("OSLO"), ["oslo south", "Oslo"], id="a word in a group, ignoring case"),
        pytest.param(RowFilter("oslo so"), ["oslo south"], id="all words"),
        pytest.param(RowFilter(kind="final"), ["Bonn", "Oslo", "Rome"], id="finals only"),
        pytest.param(RowFilter(kind="early"), ["oslo south"], id="early only"),
        pytest.param(RowFilter(sort="3"), ["oslo south", "Bonn", "Oslo", "Rome"], id="ascending, null last"),
        pytest.param(
            RowFilter(sort="-3"), ["Oslo", "Bonn", "oslo south", "Rome"], id="descending, null last"
        ),
        pytest.param(RowFilter(sort="99"), ["oslo south", "Bonn", "Oslo", "Rome"], id="no such column"),
        pytest.param(RowFilter("x"), [], id="no match"),
    ],
)
def test_rows_are_searched_filtered_and_sorted(wanted, expected):
    assert sites(wanted) == expected


def test_a_page_beyond_the_end_is_the_last_page():
    table = results(*[result(n, "a", float(n)) for n in range(2 * PAGE_ROWS + 1)])
    page = page_of(table, ROLES, RowFilter(page=9))
    assert (page.page, page.pages, page.matching, page.rows.num_rows) == (3, 3, 2 * PAGE_ROWS + 1, 1)


def test_a_lookup_keeps_its_order_until_it_is_sorted():
    columns = [column for column in COLUMNS if column.name != "kind"]
    answer = TABLE.drop_columns(["kind"])
    roles = result_columns(columns)
    assert page_of(answer, roles, RowFilter()).rows["site"].to_pylist() == TABLE["site"].to_pylist()
    assert page_of(answer, roles, RowFilter(sort="2")).rows["site"].to_pylist()[0] == "Bonn"


def test_numbers_and_times_in_groups_are_searched_as_they_are_shown():
    table = pa.table({"at": pa.array([0, 3_600_000_000], pa.timestamp("us", tz="UTC")), "n": [1.5, 2.5]})
    roles = result_columns([])
    roles = type(roles)((), (0, 1), (), {}, {}, ("at", "n"), ())
    assert page_of(table, roles, RowFilter("01:00:00")).rows["n"].to_pylist() == [2.5]
    assert page_of(table, roles, RowFilter("1.5")).rows["n"].to_pylist() == [1.5]
