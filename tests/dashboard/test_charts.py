"""The ECharts options of the charts."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.dashboard.fake_service import COLUMNS, MINUTE, accuracy, result, results
from transom.dashboard.chart_points import ChartSelection, chart_data
from transom.dashboard.charts import accuracy_chart, expected_accuracy, results_chart
from transom.dashboard.display_zone import in_zone
from transom.dashboard.sparklines import sparkline
from transom.server.chart_hints import ChartHints, Threshold, ValueHint


def chart(*rows):
    data, _ = chart_data(results(*rows), COLUMNS, ChartSelection())
    return {series["name"]: series for series in results_chart(data)["series"]}


def test_final_values_are_a_solid_line_and_open_windows_a_dashed_line_of_rings_with_intervals():
    series = chart(
        result(10, "a", 5.0),
        result(20, "a", 4.0, "early", total_projected=8.0, total_low=6.0, total_high=9.0),
    )
    assert [point["value"] for point in series["a"]["data"]] == [[10 * MINUTE / 1000, 5.0]]
    assert series["a, open"]["lineStyle"]["type"] == "dashed"
    assert series["a, open"]["itemStyle"]["color"] == "var(--surface)"
    assert [point["value"][1] for point in series["a, open"]["data"]] == [5.0, 8.0]
    assert series["a, interval"]["data"] == [[20 * MINUTE / 1000, 6.0, 9.0, 6.0, 9.0]]
    assert series["a, early to final"]["data"] == []


def test_a_wide_interval_does_not_flatten_the_values():
    wide = result(20, "a", 8.0, "early", total_low=-1e9, total_high=9.0)
    series = chart(result(10, "a", 4.0), wide)
    assert series["a, interval"]["data"] == [[20 * MINUTE / 1000, -1e9, 9.0, 2.0, 9.0]]
    assert series["a, interval"]["encode"]["y"] == [3, 4]


def test_an_early_value_is_joined_to_its_final_value_and_loses_its_interval():
    series = chart(result(20, "a", 4.0, "early", total_low=3.0, total_high=6.0), result(20, "a", 5.0))
    assert series["a, early to final"]["data"] == [[20 * MINUTE / 1000, 4.0, 5.0]]
    assert series["a, interval"]["data"] == [] == series["a, open"]["data"]


def test_a_group_always_has_five_series_so_that_the_chart_updates_in_place():
    assert len(chart(result(10, "a", 5.0))) == len(chart(result(10, "a", 5.0, "early"))) == 5


def options(*rows, hint=None, slide=10 * MINUTE, **more):
    data, _ = chart_data(
        results(*rows), COLUMNS, ChartSelection(), ChartHints(slide, {"total": hint or ValueHint()})
    )
    return results_chart(replace(data, **more))


def test_a_line_has_a_gap_where_windows_are_missing():
    rows = [result(end, "a", 1.0) for end in (10, 20, 50, 60)]
    drawn = options(*rows)["series"][0]
    assert [point["value"][1] for point in drawn["data"]] == [1.0, 1.0, None, 1.0, 1.0]
    assert drawn["connectNulls"] is False
    irregular = options(*rows, slide=None)["series"][0]
    assert [point["value"][1] for point in irregular["data"]] == [1.0] * 4


def test_an_open_window_after_a_gap_is_not_joined_to_the_last_final_value():
    series = options(result(10, "a", 5.0), result(40, "a", 4.0, "early"))["series"][1]
    assert [point["value"][1] for point in series["data"]] == [4.0]


def test_the_axis_of_a_count_begins_at_zero_and_has_its_expression_and_unit():
    rows = [result(10, "a", 90.0), result(20, "a", 95.0)]
    count = options(*rows, hint=ValueHint("count(*)", "rows", is_count=True))["yAxis"]
    assert (count["min"], count["scale"], count["name"]) == (0, False, "total = count(*), in rows")
    other = options(*rows, hint=ValueHint("avg(price)"))["yAxis"]
    assert (other["min"], other["scale"], other["name"]) == (None, True, "total = avg(price)")


def test_a_threshold_of_having_is_a_line_that_the_axis_reaches():
    rows = [result(10, "a", 90.0), result(20, "a", 95.0)]
    (line,) = options(*rows, hint=ValueHint(thresholds=(Threshold(">", 80.0), Threshold("<", 1e9))))[
        "series"
    ][5:]
    assert line["markLine"]["data"] == [{"yAxis": 80.0}] and line["data"][0][1] == 80.0
    assert line["markLine"]["label"]["formatter"] == "HAVING total > 80"


def test_relative_lines_have_their_greatest_value_at_a_hundred():
    rows = [result(10, "a", 2.0), result(20, "a", 4.0), result(10, "b", -50.0), result(20, "b", 25.0)]
    series = {each["name"]: each for each in options(*rows, is_relative=True)["series"]}
    assert [point["value"][1] for point in series["a"]["data"]] == [50.0, 100.0]
    assert [point["value"][1] for point in series["b"]["data"]] == [-100.0, 50.0]


def test_times_are_shifted_to_the_user_s_zone():
    with in_zone("Asia/Kolkata"):
        shown = options(result(10, "a", 1.0))
    assert shown["series"][0]["data"][0]["value"][0] == (10 + 330) * MINUTE / 1000
    assert shown["series"][0]["data"][0]["head"] == "1970-01-01 05:30:00 to 05:40:00"
    assert shown["xAxis"]["axisLabel"][":formatter"] == 'transom.timeLabel("Asia/Kolkata", 19800000)'


def test_group_names_are_escaped_in_tooltips():
    series = chart(result(10, "<b>x", 1.0), result(10, "y", 2.0))
    assert "<b>x" not in series["<b>x"]["data"][0]["tip"]
    assert "&lt;b&gt;x" in series["<b>x"]["data"][0]["tip"]


def test_options_are_valid_json():
    data, _ = chart_data(results(result(10, "a", 5.0)), COLUMNS, ChartSelection())
    json.dumps(results_chart(data), allow_nan=False)
    json.dumps(accuracy_chart(accuracy().items[0].curve, 0.25), allow_nan=False)


def test_accuracy_is_plotted_by_the_point_of_the_slide_as_sql_has_it():
    chart = accuracy_chart(accuracy().items[0].curve, 0.25)
    projected = chart["series"][0]
    assert projected["markLine"]["data"] == [{"xAxis": 75.0}]
    shown = [point["value"][0] for point in projected["data"]]
    assert shown == sorted(round(100 * point.point, 1) for point in accuracy().items[0].curve)


def test_the_expected_accuracy_is_interpolated_and_never_extrapolated():
    curve = accuracy().items[0].curve
    assert expected_accuracy(curve, 0.25).projected == 0.9
    assert 0.8 < expected_accuracy(curve, 0.4).projected < 0.9
    assert expected_accuracy(curve, 0.1).projected == 0.9
    assert expected_accuracy(curve, 0.95) is None
    assert expected_accuracy((), 0.5) is None


def test_a_sparkline_skips_values_that_are_not_finite():
    assert sparkline([1.0, float("nan"), 2.0, float("inf")]).count(",") == 2
