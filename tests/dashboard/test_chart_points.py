"""Results become marks: of each window the newest early value, and then the final one."""

from __future__ import annotations

from tests.dashboard.fake import COLUMNS, MINUTE, result, results
from transom.dashboard.chart_points import Choice, draw, layout_of

EARLY = {"total_projected": 8.0, "total_low": 6.0, "total_high": 9.0}


def test_an_early_value_is_open_until_the_final_one_comes_and_is_kept_beside_it():
    early = result(20, "a", 4.0, "early", **EARLY)
    before, _ = draw(results(early), COLUMNS, Choice())
    assert (before.early, before.final) == (1, 0)
    (mark,) = before.groups["a"]
    assert (mark.early.value, mark.early.best, mark.early.low, mark.early.high) == (4.0, 8.0, 6.0, 9.0)
    after, _ = draw(results(early, result(20, "a", 7.5)), COLUMNS, Choice())
    assert (after.early, after.final) == (0, 1)
    (mark,) = after.groups["a"]
    assert (mark.early.best, mark.final.value) == (8.0, 7.5)


def test_of_several_early_values_the_newest_counts_in_whatever_order_they_come():
    rows = [result(20, "a", value, "early", made=made) for value, made in ((3.0, 30), (9.0, 90), (5.0, 50))]
    drawn, _ = draw(results(*rows), COLUMNS, Choice())
    assert drawn.groups["a"][0].early.value == 9.0


def test_the_groups_with_the_greatest_newest_values_are_drawn_unless_others_are_chosen():
    rows = [result(20, f"s{n}", float(n)) for n in range(10)]
    drawn, groups = draw(results(*rows), COLUMNS, Choice())
    assert list(drawn.groups) == ["s4", "s5", "s6", "s7", "s8", "s9"]
    assert groups == [(f"s{n}",) for n in range(10)]
    chosen, _ = draw(results(*rows), COLUMNS, Choice(groups=(("s1",), ("s2",))))
    assert list(chosen.groups) == ["s1", "s2"]


def test_only_the_newest_windows_are_drawn():
    drawn, _ = draw(results(*[result(n, "a", 1.0) for n in range(10, 100, 10)]), COLUMNS, Choice(windows=3))
    assert [mark.end for mark in drawn.groups["a"]] == [70 * MINUTE, 80 * MINUTE, 90 * MINUTE]


def test_a_null_is_a_mark_without_a_value_and_no_group_of_its_own():
    drawn, _ = draw(results(result(20, "a", None), result(30, "a", 2.0)), COLUMNS, Choice())
    assert [mark.final.value for mark in drawn.groups["a"]] == [None, 2.0]


def test_the_columns_are_known_by_their_roles():
    layout = layout_of(COLUMNS)
    assert (layout.keys, layout.values, layout.numeric) == ((2,), (3, 4), (3,))
    assert layout.estimates[3] == {"projected": 5, "low": 6, "high": 7}
    assert layout.system["latency"] == 13


def test_no_results_are_an_empty_drawing():
    drawn, groups = draw(results(), COLUMNS, Choice())
    assert (drawn.early, drawn.final, groups) == (0, 0, [])
