"""What views write: results, lookups, sharing, the state of things."""

from __future__ import annotations

import json

import pytest

from tests.dashboard.fake import COLUMNS, MINUTE, FakeService, accuracy, query, result, results
from transom.dashboard.accuracy_view import AccuracyMonitor, _expectation, _scores
from transom.dashboard.lookup_panel import Reach, reach_of
from transom.dashboard.query_view import why_not
from transom.dashboard.result_table import SHOWN, refresh_note, result_table
from transom.dashboard.sharing_view import _stream, sharers, total_work


def test_results_are_shown_newest_first_with_their_kind():
    table = result_table(results(result(10, "a", 1.0), result(20, "<a>", 2.0, "early")), COLUMNS, "none")
    first, second = (table.index(f'data-kind="{kind}"') for kind in ("early", "final"))
    assert first < second and "&lt;a&gt;" in table and "<a>" not in table


def test_a_long_table_is_cut_and_an_empty_one_says_why():
    table = result_table(results(*[result(n, "a", 1.0) for n in range(100)]), COLUMNS, "none")
    assert table.count('data-testid="result-row"') == SHOWN
    assert "wait &amp; see" in result_table(results(), COLUMNS, "wait & see")


def test_the_answer_to_a_lookup_is_in_its_own_order():
    columns = [column for column in COLUMNS if column.name != "kind"]
    found = results(result(10, "a", 1.0), result(10, "b", 2.0)).drop_columns(["kind"])
    table = result_table(found, columns, "none")
    assert table.index(">a<") < table.index(">b<")


def test_a_preview_leaves_out_when_rows_were_made():
    told = results(result(10, "a", 34.9714, "early", total_low=29.4354, total_high=46.1587))
    table = result_table(told, COLUMNS, "none", brief=True)
    assert "Rows" in table and not any(name in table for name in ("Made", "Page", "Latency"))
    assert ">35<" in table and "29.4 to 46.2" in table


def test_a_refresh_says_when_after_which_page_and_of_how_many_windows():
    told = results(
        result(20, "a", 1.0, "early", made=43_385 * 1_000_000, page=812),
        result(30, "a", 1.0, "early", made=43_385 * 1_000_000, page=812),
    )
    assert refresh_note(told, COLUMNS) == "as of 12:03:05, page 812, 2 open windows"
    assert refresh_note(results(), COLUMNS) == "No open window holds rows."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"suspended": "no table"}, "Suspended: no table"),
        ({"waits": True}, "It joins with the next page."),
        ({"kind": "preferred"}, "A query with a preference tells what it finds by itself."),
    ],
)
def test_refresh_says_why_it_can_not_be_pressed(more, words):
    assert why_not(query("q", **more)) == words


def test_a_lookup_reaches_up_to_the_query_s_own_window():
    hour = Reach(60 * MINUTE, "time")
    assert hour.arguments(hour.part(100)) == {}
    assert hour.arguments(hour.part(50)) == {"range": "30 minutes"}
    assert Reach(10, "rows").arguments(Reach(10, "rows").part(1)) == {"rows": 1}
    assert Reach(1000, "number").arguments(Reach(1000, "number").part(50)) == {"range": 500}


@pytest.mark.parametrize(
    ("window", "unit"),
    [("the last 10 minutes of ts", "time"), ("the last 3 rows", "rows"), ("the last 1,000 of n", "number")],
)
def test_the_unit_of_a_lookup_is_told_by_the_plan(window, unit):
    plan = {"streams": [{"store_sets": [{"queries": [{"name": "q", "window": window, "range": 3}]}]}]}
    assert reach_of(json.dumps(plan), "q") == Reach(3, unit)
    assert reach_of(json.dumps(plan), "other") is None


def selection(*names: str) -> dict:
    window = {"text": "range 1 minute", "range": 1, "slide": 1, "phase": 0}
    return {
        "id": 1,
        "where": "`price` > 1",
        "own": None,
        "windows": 1,
        "slicing": {"edges": 6, "per": "hour", "lengths": ["1 minute"], "next_edges": [0, 60, 90]},
        "holds": {"place": "near", "slices": 2, "rows": 3},
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
        "queries": sum(len(one["queries"]) for one in selections),
        "selections": list(selections),
    }
    work = {"partials": 10, "finals": 5, "unshared_partials": 40, "unshared_finals": 5}
    shape = {"name": "bids", "queries": family["queries"], "on_demand": 0, "project": [], "store_sets": []}
    return shape | {"families": [family], "work": work}


def test_queries_of_a_selection_share_with_each_other():
    plan = json.dumps({"streams": [planned(selection("a", "b"), selection("c"))]})
    assert (sharers(plan, "a"), sharers(plan, "c"), sharers(plan, "d")) == (["b"], [], None)


def test_the_sharing_view_names_what_is_shared_and_finds_a_query():
    html, hits = _stream(planned(selection("a", "b"), selection("c")), [])
    assert hits == 0 and "range of price" in html and "4 fragments" in html and "2 selections" in html
    html, hits = _stream(planned(selection("a", "b"), selection("c")), ["c"])
    assert hits == 1 and ">c</a>" in html and ">a</a>" not in html
    assert _stream(planned(selection("a")), ["nothing"]) == ("", 0)


def test_what_was_saved_is_added_up_over_streams():
    assert total_work([planned(), planned()])["unshared_partials"] == 80


def test_the_monitor_says_how_good_estimates_were_and_what_to_expect():
    scores = _scores(accuracy())
    assert "95.0 %" in scores and "asked for 90 %" in scores
    item = accuracy().items[0]
    assert "<b>90.0 %</b> as projected and 80.0 % as arrived, for total" in _expectation(item, 0.25)
    assert "Nothing was seen that early" in _expectation(item, 0.95)
    assert "learned" in _expectation(None, 0.25)


def test_a_tuning_is_shown_before_the_engine_does_it():
    monitor = AccuracyMonitor(FakeService(), "q")
    before = query("q", emits_early=True, aggressiveness=0.5)
    monitor.follow(before)
    assert monitor.now(before) == (0.5, False)
    monitor.told = (0.25,)
    monitor.follow(before)
    assert monitor.now(before) == (0.25, True)
    tuned = query("q", emits_early=True, aggressiveness=0.25, tuned=True)
    monitor.follow(tuned)
    assert monitor.told is None and monitor.now(tuned) == (0.25, True)
    monitor.told = (None,)
    monitor.follow(tuned)
    assert monitor.now(tuned) == (0.5, False)
    monitor.follow(before)
    assert monitor.told is None
