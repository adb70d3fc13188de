"""What charts are told to draw."""

from __future__ import annotations

import json

from tests.dashboard.fake import COLUMNS, MINUTE, accuracy, result, results
from transom.dashboard.chart_points import Choice, draw
from transom.dashboard.charts import accuracy_chart, expected, results_chart
from transom.dashboard.sparklines import sparkline


def chart(*rows):
    drawn, _ = draw(results(*rows), COLUMNS, Choice())
    return {one["name"]: one for one in results_chart(drawn)["series"]}


def test_finals_are_a_solid_line_and_open_windows_a_dashed_one_of_rings_with_intervals():
    series = chart(
        result(10, "a", 5.0),
        result(20, "a", 4.0, "early", total_projected=8.0, total_low=6.0, total_high=9.0),
    )
    assert [point["value"] for point in series["a"]["data"]] == [[10 * MINUTE / 1000, 5.0]]
    assert series["a, open"]["lineStyle"]["type"] == "dashed"
    assert series["a, open"]["itemStyle"]["color"] == "var(--surface)"
    assert [point["value"][1] for point in series["a, open"]["data"]] == [5.0, 8.0]
    assert series["a, interval"]["data"] == [[20 * MINUTE / 1000, 6.0, 9.0, 6.0, 9.0]]
    assert series["a, became"]["data"] == []


def test_a_wide_interval_does_not_make_the_values_a_flat_line():
    wide = result(20, "a", 8.0, "early", total_low=-1e9, total_high=9.0)
    series = chart(result(10, "a", 4.0), wide)
    assert series["a, interval"]["data"] == [[20 * MINUTE / 1000, -1e9, 9.0, 2.0, 9.0]]
    assert series["a, interval"]["encode"]["y"] == [3, 4]


def test_an_early_value_that_became_final_is_led_to_it_and_has_no_interval():
    series = chart(result(20, "a", 4.0, "early", total_low=3.0, total_high=6.0), result(20, "a", 5.0))
    assert series["a, became"]["data"] == [[20 * MINUTE / 1000, 4.0, 5.0]]
    assert series["a, interval"]["data"] == [] == series["a, open"]["data"]


def test_a_chart_has_as_many_series_whatever_its_groups_hold_so_that_it_changes_in_place():
    assert len(chart(result(10, "a", 5.0))) == len(chart(result(10, "a", 5.0, "early"))) == 5


def test_names_of_groups_are_text_and_never_markup():
    series = chart(result(10, "<b>x", 1.0), result(10, "y", 2.0))
    assert "<b>x" not in series["<b>x"]["data"][0]["tip"]
    assert "&lt;b&gt;x" in series["<b>x"]["data"][0]["tip"]


def test_options_are_json():
    drawn, _ = draw(results(result(10, "a", 5.0)), COLUMNS, Choice())
    json.dumps(results_chart(drawn), allow_nan=False)
    json.dumps(accuracy_chart(accuracy().items[0].curve, 0.25, 0.9), allow_nan=False)


def test_what_to_expect_is_read_off_the_curve_and_not_guessed_beyond_it():
    curve = accuracy().items[0].curve
    assert expected(curve, 0.25).projected == 0.9
    assert 0.8 < expected(curve, 0.4).projected < 0.9
    assert expected(curve, 0.1).projected == 0.9
    assert expected(curve, 0.95) is None
    assert expected((), 0.5) is None


def test_a_sparkline_skips_what_is_no_number():
    assert sparkline([1.0, float("nan"), 2.0, float("inf")]).count(",") == 2
