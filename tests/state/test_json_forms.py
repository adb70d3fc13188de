"""Values, clocks and control elements as JSON: literal stored forms, and the way back."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from transom.elements import (
    Adopt,
    AlertRule,
    AlertTerms,
    Clock,
    ClockKind,
    Control,
    CreateAlert,
    CreateSilence,
    CreateView,
    Describe,
    Drop,
    DropAlert,
    DropView,
    Edit,
    EndSilence,
    Forget,
    Matcher,
    Pause,
    Prod,
    Punctuation,
    Register,
    Rename,
    Resume,
    Silence,
    Summarize,
    Summary,
    Tune,
)
from transom.errors import StateError
from transom.state import json_forms
from transom.windows.intervals import LOWEST, IntervalSet

TIME = Clock("bids", "ts")
STORED_TIME = {"stream": "bids", "attribute": "ts", "kind": "time"}


def through_json(stored: Any) -> Any:
    return json.loads(json.dumps(stored))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Decimal("1.50"), {"decimal": "1.50"}),
        (date(1969, 12, 31), {"date": "1969-12-31"}),
        (b"\x00\xff", {"bytes": "00ff"}),
        ("é", "é"),
        (-(2**63), -(2**63)),
        (True, True),
        (None, None),
        (math.inf, math.inf),
    ],
    ids=repr,
)
def test_a_value_is_stored_with_its_type(value: Any, stored: Any) -> None:
    assert json_forms.encode_value(value) == stored
    decoded = json_forms.decode_value(through_json(stored))
    assert decoded == value and type(decoded) is type(value)


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(json_forms.decode_value(through_json(json_forms.encode_value(math.nan))))


@pytest.mark.parametrize(
    ("clock", "stored"),
    [
        (TIME, STORED_TIME),
        (Clock("s", "seq", ClockKind.INTEGER), {"stream": "s", "attribute": "seq", "kind": "integer"}),
        (Clock("s", "", ClockKind.ROWS), {"stream": "s", "attribute": "", "kind": "rows"}),
    ],
    ids=["time", "integer", "rows"],
)
def test_a_clock_is_stored_by_field_names(clock: Clock, stored: dict[str, str]) -> None:
    assert json_forms.encode_clock(clock) == stored
    assert json_forms.decode_clock(through_json(stored)) == clock


def test_every_kind_of_clock_has_a_stored_name() -> None:
    for kind in ClockKind:
        clock = Clock("s", "a", kind)
        assert json_forms.decode_clock(json_forms.encode_clock(clock)) == clock


@pytest.mark.parametrize(
    ("intervals", "stored"),
    [
        (None, None),
        (IntervalSet(), []),
        (IntervalSet.of((LOWEST, -1), (0, 3)), [[LOWEST, -1], [0, 3]]),
    ],
    ids=["unknown", "none", "some"],
)
def test_intervals_are_stored_as_pairs(intervals: IntervalSet | None, stored: Any) -> None:
    assert through_json(json_forms.encode_intervals(intervals)) == stored
    assert json_forms.decode_intervals(stored) == intervals


ELEMENTS: dict[str, tuple[Control, dict[str, Any]]] = {
    "register": (
        Register("q", "SELECT 1", partial=True),
        {"control": "register", "name": "q", "text": "SELECT 1", "partial": True},
    ),
    "edit": (
        Edit("q", "SELECT 2", partial=True),
        {"control": "edit", "name": "q", "text": "SELECT 2", "partial": True},
    ),
    "register with since": (
        Register("q", "SELECT 1", since=60),
        {"control": "register", "name": "q", "text": "SELECT 1", "partial": False, "since": 60},
    ),
    "adopt": (
        Adopt("q", 7, "no file"),
        {"control": "adopt", "name": "q", "joined": 7, "problem": "no file"},
    ),
    "rename": (Rename("q", "r"), {"control": "rename", "name": "q", "to": "r"}),
    "pause": (Pause("q"), {"control": "pause", "name": "q"}),
    "describe": (
        Describe("q", "what sold", ("a", "b")),
        {"control": "describe", "name": "q", "description": "what sold", "tags": ["a", "b"]},
    ),
    "describe with units": (
        Describe("q", "", (), (("total", "EUR"),)),
        {"control": "describe", "name": "q", "description": "", "tags": [], "units": {"total": "EUR"}},
    ),
    "drop": (Drop("q"), {"control": "drop", "name": "q"}),
    "create summary": (
        Summarize("s", "CREATE SUMMARY s"),
        {"control": "create summary", "name": "s", "text": "CREATE SUMMARY s"},
    ),
    "create view": (
        CreateView("v", "SELECT * FROM s"),
        {"control": "create view", "name": "v", "text": "SELECT * FROM s"},
    ),
    "drop view": (DropView("v"), {"control": "drop view", "name": "v"}),
    "drop summary": (Forget("s"), {"control": "drop summary", "name": "s"}),
    "resume": (Resume("q"), {"control": "resume", "name": "q"}),
    "create alert": (
        CreateAlert(AlertRule("a", "q", AlertTerms(3, 2, 60, (("severity", "page"),), (), ("pager",)))),
        {
            "control": "create alert",
            "rule": {
                "name": "a",
                "query": "q",
                "for_windows": 3,
                "resolve_after": 2,
                "repeat": 60,
                "labels": {"severity": "page"},
                "annotations": {},
                "sinks": ["pager"],
            },
        },
    ),
    "drop alert": (DropAlert("a"), {"control": "drop alert", "name": "a"}),
    "create silence": (
        CreateSilence(Silence("s", (Matcher("site", "=", "7"),), 9, 1, "ann", "known")),
        {
            "control": "create silence",
            "silence": {
                "id": "s",
                "matchers": [{"name": "site", "op": "=", "value": "7"}],
                "until": 9,
                "created": 1,
                "author": "ann",
                "comment": "known",
            },
        },
    ),
    "end silence": (EndSilence("s"), {"control": "end silence", "id": "s"}),
    "tune": (Tune("q", 0.75), {"control": "tune", "name": "q", "point": 0.75}),
    "tune back": (Tune("q", None), {"control": "tune", "name": "q", "point": None}),
    "punctuation": (
        Punctuation(TIME, 9, 3, (("price", Decimal("1.5")),)),
        {
            "control": "punctuation",
            "clock": STORED_TIME,
            "until": 9,
            "since": 3,
            "where": [{"column": "price", "value": {"decimal": "1.5"}}],
        },
    ),
    "prod of all windows": (
        Prod(TIME),
        {
            "control": "prod",
            "clock": STORED_TIME,
            "until": None,
            "exactly": False,
            "where": [],
            "queries": None,
        },
    ),
    "prod of one window of some queries": (
        Prod(TIME, 9, True, (("site", 3),), ("a", "b")),
        {
            "control": "prod",
            "clock": STORED_TIME,
            "until": 9,
            "exactly": True,
            "where": [{"column": "site", "value": 3}],
            "queries": ["a", "b"],
        },
    ),
}


@pytest.mark.parametrize(("element", "stored"), ELEMENTS.values(), ids=ELEMENTS)
def test_a_control_element_is_stored_by_field_names(element: Control, stored: dict[str, Any]) -> None:
    assert through_json(json_forms.encode_control(element)) == stored
    assert json_forms.decode_control(stored) == element


def test_every_control_element_is_in_the_table() -> None:
    assert {type(element) for element, _ in ELEMENTS.values()} == set(Control.__args__)


def test_an_unknown_control_element_is_refused() -> None:
    with pytest.raises(StateError, match="unknown control element 'levitate'"):
        json_forms.decode_control({"control": "levitate"})


@pytest.mark.parametrize("between", [None, (0.0, 9.5)])
def test_a_summary_comes_back(between: tuple[float, float] | None) -> None:
    summary = Summary("n", "s", "c", 16, 2, 5, "cells", "histogram", 7, 32, 8, between)
    stored = through_json(json_forms.encode_summary(summary))
    assert list(stored) == [
        "name", "stream", "column", "granularity", "rate", "depth", "structure", "kind", "rows", "width",
        "buckets", "between",
    ]  # fmt: skip
    assert json_forms.decode_summary(stored) == summary
