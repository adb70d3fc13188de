"""Closed time: ranges for all rows and by pattern, and the views of queries."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

Range = tuple[int, int | None, tuple[tuple[str, Any], ...]]
SITE_3 = (("site", 3),)


@pytest.mark.parametrize(
    ("ranges", "watermark"),
    [
        pytest.param([], None, id="nothing is closed at first"),
        pytest.param([(10, None, ())], 10, id="a watermark closes all before it"),
        pytest.param([(10, None, ()), (7, None, ())], 10, id="and never moves back"),
        pytest.param([(20, 10, ())], None, id="a range in the middle is no watermark"),
        pytest.param([(20, 10, ()), (10, None, ())], 20, id="until the watermark reaches it"),
        pytest.param([(10, None, SITE_3)], None, id="a pattern is no watermark"),
    ],
)
def test_the_watermark_is_how_far_all_is_closed_from_the_beginning(
    ranges: list[Range], watermark: int | None
) -> None:
    assert Closed().close_all(ranges).watermark() == watermark


#   general            [-----------------)12
#   site = 3                   [8-------------------)20
#                      what is left says something new from 12 on, and is kept from 8 on,
#                      so that a window over 12 can be closed


def test_a_pattern_is_forgotten_when_the_watermark_has_passed_it() -> None:
    closed = Closed().close(20, 8, SITE_3).close(12)
    assert closed.patterned == ((frozenset(SITE_3), IntervalSet.of((8, 20))),)
    assert closed.close(20).patterned == ()
    assert closed.close(20).general == IntervalSet.of((LOWEST, 20))


def test_a_pattern_inside_what_is_closed_is_not_even_kept() -> None:
    assert Closed().close(20).close(15, None, SITE_3).patterned == ()


def test_ranges_of_one_pattern_add_up_whatever_the_order_of_its_columns() -> None:
    one, other = (("site", 3), ("kind", "a")), (("kind", "a"), ("site", 3))
    closed = Closed().close(5, 0, one).close(9, 5, other)
    assert closed.patterned == ((frozenset(one), IntervalSet.of((0, 9))),)


@pytest.mark.parametrize(
    ("keys", "pinned", "group", "expected"),
    [
        pytest.param({"site": 0}, {}, {0: 3}, 9, id="the group of the pattern is closed"),
        pytest.param({"site": 0}, {}, {0: 4}, None, id="another group is not"),
        pytest.param({"site": 0}, {}, {0: None}, None, id="nor is the group of nulls"),
        pytest.param({"kind": 0, "site": 1}, {}, {1: 3}, 9, id="the column may stand anywhere in GROUP BY"),
        pytest.param({}, {"site": (3,)}, {}, 9, id="a query pinned to the site is closed"),
        pytest.param({}, {"site": (3, 4)}, {}, None, id="a query that also reads site 4 is not"),
        pytest.param({}, {"site": ()}, {}, None, id="a query whose WHERE no site passes stays open"),
        pytest.param({}, {}, {}, None, id="a count over all sites stays open"),
        pytest.param({"kind": 0}, {}, {}, None, id="so does a count by another column"),
    ],
)
def test_a_pattern_applies_to_groups_and_queries_of_that_value(
    keys: dict[str, int], pinned: dict[str, tuple[Any, ...]], group: dict[int, Any], expected: int | None
) -> None:
    view = Closed().close(9, None, SITE_3).view(keys, pinned)
    assert view.of(group) == (IntervalSet() if expected is None else IntervalSet.of((LOWEST, expected)))


def test_a_list_of_sites_is_closed_as_far_as_every_one_of_them_is() -> None:
    closed = Closed().close(9, None, SITE_3).close(7, None, (("site", 4),)).close(99, None, (("site", 5),))
    assert closed.view({}, {"site": (3, 4)}).of({}) == IntervalSet.of((LOWEST, 7))


def test_a_view_that_no_pattern_concerns_is_the_same_for_all_groups() -> None:
    view = Closed().close(5).close(9, None, SITE_3).view({"kind": 0}, {})
    assert view.uniform and view.columns == [] and view.of({}) == IntervalSet.of((LOWEST, 5))


def test_thousands_of_punctuated_groups_are_looked_up_not_searched() -> None:
    closed = Closed().close_all((100 + site % 7, 0, (("site", site),)) for site in range(20_000))
    view = closed.view({"site": 0}, {})
    closed_ranges = [view.of({0: site}).pairs for site in range(20_000)]
    assert closed_ranges == [((0, 100 + site % 7),) for site in range(20_000)]


# --- against the definition ------------------------------------------------------------------

PATTERNS = st.dictionaries(st.sampled_from("ab"), st.integers(1, 2), max_size=2).map(
    lambda d: tuple(d.items())
)
RANGES = st.lists(st.tuples(st.integers(1, 12), st.none() | st.integers(0, 12), PATTERNS), max_size=6)
AREA = range(-1, 14)


def members(intervals: IntervalSet) -> set[int]:
    return {time for time in AREA for start, stop in intervals if start <= time < stop}


def closed_for(ranges: list[Range], row: dict[str, int]) -> set[int]:
    """The times that are closed for a row, range by range."""
    return {
        time
        for until, since, where in ranges
        for time in AREA
        if (since is None or since <= time) and time < until and all(row[c] == v for c, v in where)
    }


@given(RANGES, st.booleans())
def test_a_time_is_closed_for_a_group_when_it_is_for_all_rows_it_can_have(
    ranges: list[Range], one_by_one: bool
) -> None:
    closed = Closed().close_all(ranges)
    if one_by_one:
        closed = Closed()
        for until, since, where in ranges:
            closed = closed.close(until, since, where)
    rows = [dict(zip("ab", values, strict=True)) for values in product((1, 2, 3), repeat=2)]
    for keys, pinned in product([{}, {"a": 0}, {"b": 0}, {"b": 0, "a": 1}], [{}, {"a": (1,)}, {"a": (1, 2)}]):
        view = closed.view(keys, pinned)
        for row in rows:
            able = [
                r
                for r in rows
                if all(r[c] == row[c] for c in keys) and all(r[c] in pinned[c] for c in pinned)
            ]
            if row not in able:
                continue
            group = {place: row[column] for column, place in keys.items() if place in view.columns}
            assert members(view.of(group)) == set.intersection(*(closed_for(ranges, r) for r in able))
