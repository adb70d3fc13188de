"""The HTML and texts of the views: results, lookups, sharing, accuracy."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.fake_service import COLUMNS, MINUTE, FakeService, accuracy, query, result, results
from transom.dashboard.accuracy_view import AccuracyMonitor, expectation_html, scores_html
from transom.dashboard.actions import Actions
from transom.dashboard.alerts_view import (
    AlertsData,
    active_html,
    events_html,
    figures_html,
    silences_html,
    sinks_html,
)
from transom.dashboard.lookup_panel import LookupRange, lookup_range
from transom.dashboard.query_view import decisions_html, late_text, refresh_refusal
from transom.dashboard.result_table import SHOWN_RESULTS, refresh_note, result_table
from transom.dashboard.sharing_view import sharing_queries, stream_html, total_work
from transom.elements import Emit
from transom.estimates import Accuracy, ItemAccuracy, Score
from transom.plan.explain.early_text import emit_text
from transom.server.roles import LOCAL_CLIENT


def test_a_query_says_how_many_rows_it_missed():
    assert late_text(query("q", late=0)) == "Every row was in time"
    assert late_text(query("q", late=40)).startswith("40 rows came too late (4.00")
    assert late_text(query("q", rows=0, late=0)) == "none yet"


def test_results_are_sorted_newest_first_and_show_their_kind():
    table = result_table(results(result(10, "a", 1.0), result(20, "<a>", 2.0, "early")), COLUMNS, "none")
    first, second = (table.index(f'data-kind="{kind}"') for kind in ("early", "final"))
    assert first < second and "&lt;a&gt;" in table and "<a>" not in table


def test_a_long_table_is_cut_and_an_empty_table_explains_itself():
    table = result_table(results(*[result(n, "a", 1.0) for n in range(100)]), COLUMNS, "none")
    assert table.count('data-testid="result-row"') == SHOWN_RESULTS
    assert "wait &amp; see" in result_table(results(), COLUMNS, "wait & see")


def test_the_rows_of_a_lookup_keep_their_order():
    columns = [column for column in COLUMNS if column.name != "kind"]
    answer = results(result(10, "a", 1.0), result(10, "b", 2.0)).drop_columns(["kind"])
    table = result_table(answer, columns, "none")
    assert table.index(">a<") < table.index(">b<")


def test_a_brief_table_omits_batch_time_and_latency():
    early = results(result(10, "a", 34.9714, "early", total_low=29.4354, total_high=46.1587))
    table = result_table(early, COLUMNS, "none", brief=True)
    assert "Rows" in table and not any(name in table for name in ("Made", "Batch", "Latency"))
    assert ">35<" in table and "29.4 to 46.2" in table


def test_a_refresh_note_has_the_time_the_batch_and_the_number_of_windows():
    early = results(
        result(20, "a", 1.0, "early", made=43_385 * 1_000_000, batch=812),
        result(30, "a", 1.0, "early", made=43_385 * 1_000_000, batch=812),
    )
    assert refresh_note(early, COLUMNS) == "as of 12:03:05, batch 812, 2 open windows"
    assert refresh_note(results(), COLUMNS) == "No open windows with rows."


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({}, ""),
        ({"suspended": "no table"}, "Suspended: no table"),
        ({"pending": True}, "Joins with the next batch."),
        ({"kind": "preference"}, "A query with a preference emits results by itself."),
    ],
)
def test_a_disabled_refresh_button_gives_the_reason(changes, refusal):
    assert refresh_refusal(query("q", **changes)) == refusal


def test_decisions_are_shown_with_their_reasons():
    shown = decisions_html(FakeService(query("q")).query_detail("q").decisions)
    assert "<td>admission</td><td>query q</td><td>opens selection 1</td>" in shown
    assert "<td>it is &lt;new&gt;</td>" in shown
    assert "has not decided anything" in decisions_html(())


def test_a_lookup_covers_windows_up_to_the_query_s_own():
    hour = LookupRange(60 * MINUTE, "time")
    assert hour.arguments(hour.length_at(100)) == {}
    assert hour.arguments(hour.length_at(50)) == {"range": "30 minutes"}
    assert LookupRange(10, "rows").arguments(LookupRange(10, "rows").length_at(1)) == {"rows": 1}
    assert LookupRange(1000, "number").arguments(LookupRange(1000, "number").length_at(50)) == {"range": 500}


@pytest.mark.parametrize(
    ("window", "unit"),
    [("the last 10 minutes of ts", "time"), ("the last 3 rows", "rows"), ("the last 1,000 of n", "number")],
)
def test_the_unit_of_a_lookup_comes_from_the_plan(window, unit):
    plan = {"streams": [{"store_sets": [{"queries": [{"name": "q", "window": window, "range": 3}]}]}]}
    assert lookup_range(json.dumps(plan), "q") == LookupRange(3, unit)
    assert lookup_range(json.dumps(plan), "other") is None


def selection(*names: str) -> dict:
    window = {"text": "range 1 minute", "range": 1, "slide": 1, "phase": 0}
    return {
        "id": 1,
        "where": "`price` > 1",
        "residual": None,
        "windows": 1,
        "slicing": {"edges": 6, "per": "hour", "lengths": ["1 minute"], "next_edges": [0, 60, 90]},
        "holds": {"place": "driver", "slices": 2, "rows": 3},
        "queries": [{"name": name, "window": window} for name in names],
    }


def planned(*selections: dict) -> dict:
    family = {
        "id": 1,
        "kind": "range",
        "scalar": "`price`",
        "constants": 2,
        "fragments": 4,
        "conjuncts": 1,
        "agrees": [],
        "group_by": [],
        "queries": sum(len(selection["queries"]) for selection in selections),
        "selections": list(selections),
    }
    work = {"partials": 10, "finals": 5, "unshared_partials": 40, "unshared_finals": 5}
    shape = {"name": "bids", "queries": family["queries"], "on_demand": 0, "project": [], "store_sets": []}
    return shape | {"families": [family], "work": work}


def test_the_queries_of_a_selection_share_with_each_other():
    plan = json.dumps({"streams": [planned(selection("a", "b"), selection("c"))]})
    assert (sharing_queries(plan, "a"), sharing_queries(plan, "c"), sharing_queries(plan, "d")) == (
        ["b"],
        [],
        None,
    )


def test_the_sharing_view_shows_what_is_shared_and_finds_a_query():
    html, hits = stream_html(planned(selection("a", "b"), selection("c")), [])
    assert hits == 0 and "range of price" in html and "4 fragments" in html and "2 selections" in html
    html, hits = stream_html(planned(selection("a", "b"), selection("c")), ["c"])
    assert hits == 1 and ">c</a>" in html and ">a</a>" not in html
    assert stream_html(planned(selection("a")), ["nothing"]) == ("", 0)


def test_work_is_summed_over_streams():
    assert total_work([planned(), planned()])["unshared_partials"] == 80


def test_the_monitor_shows_past_and_expected_accuracy():
    scores = scores_html(accuracy())
    assert "95.0 %" in scores and "target 90 %" in scores
    item = accuracy().items[0]
    assert "Expected accuracy of total: <b>90.0 %</b> projected, 80.0 % as received" in expectation_html(
        item, 0.25
    )
    assert "No result has been observed that early" in expectation_html(item, 0.95)
    assert "once windows have closed" in expectation_html(None, 0.25)


def test_unlike_columns_are_not_averaged_and_values_near_zero_have_no_worst_accuracy():
    near_zero = Score(6, 0.1, 0.2, 0.0, 0.0, 5, 0.8)
    good = Score(6, 0.9, 0.96, 0.8, 0.9, 5, 1.0)
    both = Score(12, 0.5, 0.58, 0.0, 0.0, 10, 0.9)
    items = tuple(
        ItemAccuracy(name, score, score, ()) for name, score in (("change", near_zero), ("n", good))
    )
    found = Accuracy(both, both, items, 0.9, None, None)
    html = scores_html(found)
    assert "change" in html and "20.0 %" in html and "96.0 %" in html and "58.0 %" not in html
    assert " 0.0 %" not in html and ">0.0 %" not in html and "off by its own size or more" in html
    assert str(found) == (
        "12 became final, change: 10.0% accurate, projected 20.0%, 80.0% within bounds; "
        "n: 90.0% accurate, projected 96.0% (worst 90.0%), 100.0% within bounds"
    )
    text = emit_text(Emit(at=(0.5,)), found)
    assert "change 10.0% raw, 20.0% projected, 80.0%" in text and "58.0%" not in text


def test_a_new_setting_is_shown_before_the_engine_applies_it():
    monitor = AccuracyMonitor(Actions(FakeService(), LOCAL_CLIENT), "q")
    before = query("q", emits_early=True, aggressiveness=0.5)
    monitor.follow(before)
    assert monitor.current(before) == (0.5, False)
    monitor.pending = (0.25,)
    monitor.follow(before)
    assert monitor.current(before) == (0.25, True)
    tuned = query("q", emits_early=True, aggressiveness=0.25, tuned=True)
    monitor.follow(tuned)
    assert monitor.pending is None and monitor.current(tuned) == (0.25, True)
    monitor.pending = (None,)
    monitor.follow(tuned)
    assert monitor.current(tuned) == (0.5, False)
    monitor.follow(before)
    assert monitor.pending is None


def test_alerts_are_shown_with_what_rows_say_escaped():
    alerts = FakeService().alerts
    data = AlertsData(
        alerts.active(), alerts.newest(5).events, alerts.silences(), alerts.rules(), alerts.sinks()
    )
    shown = active_html(data.active, True)
    assert "early firing" in shown and "&lt;b&gt; has 3" in shown and "<b> has 3" not in shown
    assert shown.count('data-testid="silence"') == 1 and "and 1 more" in shown  # one of the two is silenced
    assert "null" in shown and "severity: page" in shown
    assert "withdrawn" in events_html(data.events) and "&lt;dropped&gt;" in events_html(data.events)
    assert "site=&lt;b&gt;" in silences_html(data.silences)
    assert "HTTP status &lt;503&gt;" in sinks_html(data.sinks)
    assert "Groups beyond the limit" in figures_html(data)


def test_no_alerts():
    nothing = FakeService().alerts.active()
    nothing = type(nothing)((), 0)
    assert "Nothing fires" in active_html(nothing, True) and "No alerts yet" in active_html(nothing, False)
    assert (
        "No events" in events_html(()) and "No silences" in silences_html(()) and "No sinks" in sinks_html(())
    )
