"""The states of one group: timelines with one character for each window, x where HAVING holds."""

from __future__ import annotations

import json
import random

import pytest

from tests.alerts.timelines import end_of, finals, naive_transitions, run, written
from tests.case_counts import case_count
from transom.alerts.alerts_state import AlertsState, RuleState
from transom.alerts.machine import AlertChange, GroupState, WindowReport, advance
from transom.alerts.stored_form import decode_alerts, encode_alerts
from transom.elements import AlertTerms

#   name: (terms, timeline, transitions)
TIMELINES = {
    "an alert fires with the first window and is resolved with the first that does not hold": (
        AlertTerms(),
        "x.x",
        "firing@0, resolved@1, firing@2",
    ),
    "it is reported once, not for every window": (AlertTerms(), "xxxx.", "firing@0, resolved@4"),
    "for 3 windows": (AlertTerms(3), "xx.xxx.", "firing@5, resolved@6"),
    "a run that is too short reports nothing": (AlertTerms(3), "xx.xx.xx.", ""),
    "resolved after 2 windows: a single gap does not resolve it": (
        AlertTerms(resolve_after=2),
        "x.x.x..x",
        "firing@0, resolved@6, firing@7",
    ),
    "for 3, resolve after 2, as the module shows it": (
        AlertTerms(3, 2),
        "xxx..x..x",
        "firing@2, resolved@4",
    ),
    "after it was resolved, a new run is needed": (
        AlertTerms(2),
        "xx.x.xx.",
        "firing@1, resolved@2, firing@6, resolved@7",
    ),
    "a reminder for every 30 of the clock": (
        AlertTerms(repeat=30),
        "xxxxxxxx",
        "firing@0, reminder@3, reminder@6",
    ),
    "reminders come while it is firing, also for windows that do not hold": (
        AlertTerms(resolve_after=5, repeat=20),
        "x....",
        "firing@0, reminder@2, reminder@4",
    ),
    "a group that disappears is resolved by windows without a row": (
        AlertTerms(2, 3),
        "xx............",
        "firing@1, resolved@4",
    ),
}


@pytest.mark.parametrize("terms, timeline, expected", TIMELINES.values(), ids=list(TIMELINES))
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_timeline(terms: AlertTerms, timeline: str, expected: str, size: int) -> None:
    """However many windows close together, the transitions are the same."""
    reports = list(finals(timeline))
    batches = []
    for stop in range(size, len(timeline) + size, size):
        ready = [report for report in reports if stop - size <= report.window < stop]
        batches.append((ready, min(stop, len(timeline))))
    assert written(run(terms, batches)[1]) == expected


def test_a_group_that_is_inactive_takes_no_memory() -> None:
    state, _ = run(AlertTerms(2, 2), [(list(finals("xx")), 2), ([], 4)])
    assert state is None
    state, _ = run(AlertTerms(3), [(list(finals("x.")), 2)])
    assert state is None


def test_a_stream_that_falls_idle_resolves_what_fires_and_ends_runs() -> None:
    state, made = run(AlertTerms(1, 5), [(list(finals("x")), 1)], ended="idle")
    assert (state, written(made), made[-1].reason) == (None, "firing@0, resolved@0", "idle")
    state, made = run(AlertTerms(3), [(list(finals("xx")), 2)], ended="idle")
    assert (state, made) == (None, [])


def test_a_window_that_closes_before_an_earlier_one_waits_for_it() -> None:
    terms = AlertTerms(2)
    state, made = advance(terms, None, list(finals("x", 5)), 3, end_of)
    assert made == [] and state is not None and [report.window for report in state.ahead] == [5]
    state, made = advance(terms, state, list(finals("x", 4)), 6, end_of)
    assert written(made) == "firing@5" and made[0].firing.since == 4


def test_a_late_jump_of_closed_time_costs_no_step_for_each_window() -> None:
    state, _ = run(AlertTerms(resolve_after=3), [(list(finals("x")), 1)])
    state, made = advance(AlertTerms(resolve_after=3), state, [], 2**61, end_of)
    assert (state, written(made)) == (None, "resolved@3")


# --- early results: e announces a window, w takes that back -----------------------------------


def early(window: int, holds: bool = True) -> WindowReport:
    return WindowReport(window, {"n": -window}, holds, is_early=True)


EARLY_RUNS = {
    "an announcement fires early, and the final result confirms it": (
        AlertTerms(),
        [([early(3)], 3), (list(finals("x", 3)), 4)],
        "firing@3, confirmed@3",
    ),
    "a window that closes without a result withdraws it": (
        AlertTerms(),
        [([early(3)], 3), ([], 4)],
        "firing@3, withdrawn@3",
    ),
    "a final row that says that HAVING does not hold withdraws it": (
        AlertTerms(),
        [([early(3)], 3), ([WindowReport(3, holds=False)], 4)],
        "firing@3, withdrawn@3",
    ),
    "an early row can take back the announcement": (
        AlertTerms(),
        [([early(3)], 3), ([early(3, False)], 3)],
        "firing@3, withdrawn@3",
    ),
    "repeated announcements report nothing more": (
        AlertTerms(),
        [([early(3)], 3), ([early(3)], 3), ([early(3)], 3)],
        "firing@3",
    ),
    "for 2 windows, one announcement is pending": (AlertTerms(2), [([early(3)], 3)], ""),
    "for 2 windows, a final and an announced window fire early": (
        AlertTerms(2),
        [([*finals("x", 2)], 3), ([early(3)], 3), ([*finals("x", 3)], 4)],
        "firing@3, confirmed@3",
    ),
    "for 2 windows, two announced windows fire early, and each must come true": (
        AlertTerms(2),
        [([early(3), early(4)], 3), ([*finals("x", 3)], 4), ([], 5)],
        "firing@4, withdrawn@4",
    ),
    "of overlapping windows, one can be withdrawn while another announcement holds": (
        AlertTerms(),
        [([early(3), early(4)], 3), ([], 4), ([*finals("x", 4)], 5)],
        "firing@3, confirmed@4",
    ),
    "announcements do not keep alive what final results have made fire": (
        AlertTerms(),
        [([*finals("x", 2), early(4)], 3), ([], 4)],
        "firing@2, resolved@3, firing@4",
    ),
    "an early alert whose stream ends is withdrawn": (
        AlertTerms(),
        [([early(3)], 3), ([], 4), ([early(5)], 5)],
        "firing@3, withdrawn@3, firing@5",
    ),
}


@pytest.mark.parametrize("terms, batches, expected", EARLY_RUNS.values(), ids=list(EARLY_RUNS))
def test_early_results(terms: AlertTerms, batches: list, expected: str) -> None:
    _, made = run(terms, batches)
    assert written(made) == expected
    ends = [each for each in made if each.change in (AlertChange.CONFIRMED, AlertChange.WITHDRAWN)]
    assert [each.firing.is_early for each in ends] == [each.change is AlertChange.WITHDRAWN for each in ends]


def test_an_early_announcement_is_pending_and_marked() -> None:
    state, _ = run(AlertTerms(2), [([early(3)], 3)])
    assert state is not None and state.firing is None and state.since == 3
    assert [report.window for report in state.announced] == [3]


# --- random timelines ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", range(case_count(300)))
def test_random_timelines_agree_with_the_naive_answer(case: int) -> None:
    """Windows close in random batches, also out of order; restarts keep the state as JSON."""
    rng = random.Random(case)
    terms = AlertTerms(rng.randint(1, 4), rng.randint(1, 4), rng.choice([None, 10, 20, 50]))
    windows = rng.randint(1, 40)
    holding = {window for window in range(windows) if rng.random() < rng.choice([0.3, 0.6, 0.9])}
    state: GroupState | None = None
    made: list[tuple[str, int]] = []
    closed, reported = 0, set[int]()
    while closed < windows:
        closed = min(windows, closed + rng.randint(0, 6))
        # Windows beyond may close early: a range punctuation closes a stretch in the middle.
        ready = {w for w in holding if w < closed or rng.random() < 0.1} - reported
        reported |= ready
        reports = [WindowReport(window) for window in ready]
        rng.shuffle(reports)
        again = advance(terms, state, reports, closed, end_of)
        state, transitions = advance(terms, state, reports, closed, end_of)
        assert again == (state, transitions)  # a batch is a pure function
        made += [(str(each.change), each.window) for each in transitions]
        state = stored_and_restored(state)
    assert made == naive_transitions(terms, holding, windows)


def stored_and_restored(state: GroupState | None) -> GroupState | None:
    if state is None:
        return None
    alerts = AlertsState(states={"a": RuleState("q", "q@1", {"{}": state})})
    restored = decode_alerts(json.loads(json.dumps(encode_alerts(alerts))))
    assert restored == alerts
    return restored.states["a"].groups["{}"]


@pytest.mark.parametrize("case", range(case_count(300)))
def test_announcements_never_change_what_final_results_report(case: int) -> None:
    """Without the early events, an alert with announcements fires and is resolved as one without them."""
    rng = random.Random(case)
    terms = AlertTerms(rng.randint(1, 3), rng.randint(1, 3))
    windows = 30
    holding = {window for window in range(windows) if rng.random() < 0.6}
    state: GroupState | None = None
    firing: list[tuple[str, int]] = []
    is_open = False
    closed = 0
    while closed < windows:
        stop = min(windows, closed + rng.randint(0, 3))
        reports = [WindowReport(window) for window in holding if closed <= window < stop]
        for window in range(stop, min(windows, stop + 3)):
            if rng.random() < 0.4:
                reports.append(early(window, rng.random() < 0.8))
        closed = stop
        state, transitions = advance(terms, state, reports, closed, end_of)
        for each in transitions:
            # Early and final events alternate: an alert that fires is confirmed or withdrawn, then resolved.
            opens = each.change is AlertChange.FIRING
            assert opens != is_open or each.change in (AlertChange.CONFIRMED, AlertChange.REMINDER)
            is_open = each.change not in (AlertChange.RESOLVED, AlertChange.WITHDRAWN)
            if each.change is AlertChange.CONFIRMED or (opens and not each.firing.is_early):
                firing.append(("firing", each.window))
            elif each.change is AlertChange.RESOLVED:
                firing.append(("resolved", each.window))
    assert firing == naive_transitions(terms, holding, windows)
