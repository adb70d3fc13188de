"""Timelines of one group, written as one character for each window, and what the state machine makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transom.alerts.machine import GroupState, Transition, WindowReport, advance
from transom.elements import AlertTerms

SLIDE = 10


def end_of(window: int) -> int:
    return (window + 1) * SLIDE


def finals(timeline: str, first: int = 0) -> Iterator[WindowReport]:
    """A final report for each x."""
    for window, mark in enumerate(timeline, first):
        if mark == "x":
            yield WindowReport(window, {"n": window})


def run(
    terms: AlertTerms, batches: Sequence[tuple[Sequence[WindowReport], int]], ended: str | None = None
) -> tuple[GroupState | None, list[Transition]]:
    """The state and all transitions after batches of reports, each with the id below which windows are closed."""
    state: GroupState | None = None
    transitions: list[Transition] = []
    for number, (reports, closed_below) in enumerate(batches):
        why = ended if number == len(batches) - 1 else None
        state, made = advance(terms, state, reports, closed_below, end_of, why)
        transitions += made
    return state, transitions


def written(transitions: Sequence[Transition]) -> str:
    """Transitions as text: the change, and the window that caused it."""
    return ", ".join(f"{each.change}@{each.window}" for each in transitions)


def naive_transitions(terms: AlertTerms, holding: set[int], windows: int) -> list[tuple[str, int]]:
    """What should have happened in windows 0 to `windows` - 1, recomputed from all finals for each window.

    An alert fires at a window if it did not fire before and HAVING held for the last windows; it is resolved if it did
    not hold for the last windows. Nothing is remembered but whether it fires and since when.
    """
    made: list[tuple[str, int]] = []
    begun: int | None = None  # the window at which it began to fire
    floor = 0  # the first window that counts for a new run
    reported = 0
    for window in range(windows):
        if begun is None:
            run = range(window - terms.windows + 1, window + 1)
            if all(each >= floor and each in holding for each in run):
                made.append(("firing", window))
                begun, reported = window, end_of(window)
        else:
            quiet = range(window - terms.resolve_after + 1, window + 1)
            if all(each > begun and each not in holding for each in quiet):
                made.append(("resolved", window))
                begun, floor = None, window + 1
            elif terms.repeat is not None and end_of(window) - reported >= terms.repeat:
                made.append(("reminder", window))
                reported = end_of(window)
    return made
