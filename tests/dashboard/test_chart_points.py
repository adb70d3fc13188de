"""Chart data: for each window the newest early value and the final value."""

from __future__ import annotations

from tests.dashboard.fake_service import COLUMNS, MINUTE, result, results
from transom.dashboard.chart_points import ChartSelection, chart_data, combined_chart, result_columns
from transom.server.chart_hints import ChartHints

EARLY = {"total_projected": 8.0, "total_low": 6.0, "total_high": 9.0}


def test_a_window_is_open_until_its_final_value_and_keeps_its_early_value():
    early = result(20, "a", 4.0, "early", **EARLY)
    before, _ = chart_data(results(early), COLUMNS, ChartSelection())
    assert (before.early, before.final) == (1, 0)
    (point,) = before.groups["a"]
    assert (point.early.value, point.early.best, point.early.low, point.early.high) == (4.0, 8.0, 6.0, 9.0)
    after, _ = chart_data(results(early, result(20, "a", 7.5)), COLUMNS, ChartSelection())
    assert (after.early, after.final) == (0, 1)
    (point,) = after.groups["a"]
    assert (point.early.best, point.final.value) == (8.0, 7.5)


def test_the_newest_early_value_wins_in_any_order_of_arrival():
    rows = [result(20, "a", value, "early", made=made) for value, made in ((3.0, 30), (9.0, 90), (5.0, 50))]
    data, _ = chart_data(results(*rows), COLUMNS, ChartSelection())
    assert data.groups["a"][0].early.value == 9.0


def test_the_groups_with_the_greatest_newest_values_are_drawn_unless_the_user_selects_others():
    rows = [result(20, f"s{n}", float(n)) for n in range(10)]
    data, groups = chart_data(results(*rows), COLUMNS, ChartSelection())
    assert list(data.groups) == ["s4", "s5", "s6", "s7", "s8", "s9"]
    assert groups == [(f"s{n}",) for n in range(10)]
    chosen, _ = chart_data(results(*rows), COLUMNS, ChartSelection(groups=(("s1",), ("s2",))))
    assert list(chosen.groups) == ["s1", "s2"]


def test_only_the_newest_windows_are_drawn():
    rows = [result(n, "a", 1.0) for n in range(10, 100, 10)]
    data, _ = chart_data(results(*rows), COLUMNS, ChartSelection(windows=3))
    assert [point.end for point in data.groups["a"]] == [70 * MINUTE, 80 * MINUTE, 90 * MINUTE]


def test_a_time_range_selects_windows_by_their_ends():
    table = results(*[result(n, "a", 1.0) for n in range(10, 100, 10)])

    def ends(**selection):
        data, _ = chart_data(table, COLUMNS, ChartSelection(**selection))
        return [point.end // MINUTE for points in data.groups.values() for point in points]

    assert ends(windows=None, span=20 * MINUTE) == [70, 80, 90]
    assert ends(windows=None, since=30 * MINUTE, until=50 * MINUTE) == [30, 40, 50]
    assert ends(windows=None, since=500 * MINUTE) == []
    assert ends(windows=None) == list(range(10, 100, 10))


def test_charts_of_several_queries_are_combined():
    one, _ = chart_data(results(result(10, "a", 1.0), result(10, "b", 2.0)), COLUMNS, ChartSelection())
    ungrouped = [column for column in COLUMNS if column.role != "key"]
    other, _ = chart_data(
        results(result(20, "a", 5.0)).drop_columns(["site"]), ungrouped, ChartSelection(), ChartHints(7)
    )
    both = combined_chart({"first": one, "second": other})
    assert list(both.groups) == ["first: a", "first: b", "second"]
    assert both.slides == {"first: a": None, "first: b": None, "second": 7}


def test_a_null_is_a_point_without_a_value():
    data, _ = chart_data(results(result(20, "a", None), result(30, "a", 2.0)), COLUMNS, ChartSelection())
    assert [point.final.value for point in data.groups["a"]] == [None, 2.0]


def test_columns_are_sorted_by_role():
    roles = result_columns(COLUMNS)
    assert (roles.keys, roles.values, roles.numeric) == ((2,), (3, 4), (3,))
    assert roles.estimates[3] == {"projected": 5, "low": 6, "high": 7}
    assert roles.system["latency"] == 14


def test_no_results_are_an_empty_chart():
    data, groups = chart_data(results(), COLUMNS, ChartSelection())
    assert (data.early, data.final, groups) == (0, 0, [])
