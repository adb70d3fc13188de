"""Values, clocks, intervals and control elements as JSON.

The names in the stored form are spelled out here. They are independent of the names of Python classes and
attributes, so that a rename in the code leaves every checkpoint readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from transom.alerts.stored_form import decode_rule, decode_silence, encode_rule, encode_silence
from transom.elements import (
    Adopt,
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
    Pause,
    Prod,
    Punctuation,
    Register,
    Rename,
    Resume,
    Summarize,
    Summary,
    Tune,
)
from transom.errors import StateError
from transom.windows.intervals import IntervalSet

_CLOCK_KINDS = {ClockKind.TIME: "time", ClockKind.INTEGER: "integer", ClockKind.ROWS: "rows"}
_CLOCK_KINDS_BY_NAME = {name: kind for kind, name in _CLOCK_KINDS.items()}


def encode_value(value: Any) -> Any:
    """A value of a pattern; types that JSON lacks are tagged.

    >>> encode_value(Decimal("1.50")), encode_value("1.50")
    ({'decimal': '1.50'}, '1.50')
    """
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case date():
            return {"date": value.isoformat()}
        case bytes():
            return {"bytes": value.hex()}
    return value


def decode_value(stored: Any) -> Any:
    """The value that `encode_value` stored."""
    match stored:
        case {"decimal": text}:
            return Decimal(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
    return stored


def encode_pattern(pattern: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The columns of a pattern with the value that each must have."""
    return [{"column": column, "value": encode_value(value)} for column, value in pattern]


def decode_pattern(stored: Iterable[dict[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The pattern that `encode_pattern` stored."""
    return tuple((part["column"], decode_value(part["value"])) for part in stored)


def encode_clock(clock: Clock) -> dict[str, str]:
    """A windowing attribute of a stream."""
    return {"stream": clock.stream, "attribute": clock.attribute, "kind": _CLOCK_KINDS[clock.kind]}


def decode_clock(stored: dict[str, str]) -> Clock:
    """The clock that `encode_clock` stored."""
    return Clock(stored["stream"], stored["attribute"], _CLOCK_KINDS_BY_NAME[stored["kind"]])


def encode_intervals(intervals: IntervalSet | None) -> list[Sequence[int]] | None:
    """Half-open intervals as [start, stop] pairs; null where they are unknown."""
    return None if intervals is None else list(intervals.pairs)


def decode_intervals(stored: Iterable[Sequence[int]] | None) -> IntervalSet | None:
    """The intervals that `encode_intervals` stored."""
    return None if stored is None else IntervalSet(tuple((start, stop) for start, stop in stored))


def decode_known_intervals(stored: Iterable[Sequence[int]]) -> IntervalSet:
    """The intervals that `encode_intervals` stored, where they are never unknown."""
    return IntervalSet(tuple((start, stop) for start, stop in stored))


def encode_summary(summary: Summary) -> dict[str, Any]:
    """What CREATE SUMMARY asks for."""
    return {
        "name": summary.name,
        "stream": summary.stream,
        "column": summary.column,
        "granularity": summary.granularity,
        "rate": summary.rate,
        "depth": summary.depth,
        "structure": summary.structure,
        "kind": summary.kind,
        "rows": summary.rows,
        "width": summary.width,
        "buckets": summary.buckets,
        "between": summary.between,
    }


def decode_summary(stored: dict[str, Any]) -> Summary:
    """The summary that `encode_summary` stored."""
    between = stored["between"]
    return Summary(
        name=stored["name"],
        stream=stored["stream"],
        column=stored["column"],
        granularity=stored["granularity"],
        rate=stored["rate"],
        depth=stored["depth"],
        structure=stored["structure"],
        kind=stored["kind"],
        rows=stored["rows"],
        width=stored["width"],
        buckets=stored["buckets"],
        between=None if between is None else (between[0], between[1]),
    )


def encode_control(element: Control) -> dict[str, Any]:
    """A control element; `control` says which."""
    match element:
        case Edit(name, text, partial):
            return {"control": "edit", "name": name, "text": text, "partial": partial}
        case Rename(name, to):
            return {"control": "rename", "name": name, "to": to}
        case Pause(name):
            return {"control": "pause", "name": name}
        case Describe(name, description, tags, units):
            stored = {"control": "describe", "name": name, "description": description, "tags": list(tags)}
            return {**stored, "units": dict(units)} if units else stored
        case Register(name, text, partial, since):
            replayed = {} if since is None else {"since": since}
            return {"control": "register", "name": name, "text": text, "partial": partial, **replayed}
        case Adopt(name, joined, problem):
            return {"control": "adopt", "name": name, "joined": joined, "problem": problem}
        case Drop(name):
            return {"control": "drop", "name": name}
        case Resume(name):
            return {"control": "resume", "name": name}
        case Summarize(name, text):
            return {"control": "create summary", "name": name, "text": text}
        case Forget(name):
            return {"control": "drop summary", "name": name}
        case CreateView(name, text):
            return {"control": "create view", "name": name, "text": text}
        case DropView(name):
            return {"control": "drop view", "name": name}
        case Tune(name, point):
            return {"control": "tune", "name": name, "point": point}
        case CreateAlert(rule):
            return {"control": "create alert", "rule": encode_rule(rule)}
        case DropAlert(name):
            return {"control": "drop alert", "name": name}
        case CreateSilence(silence):
            return {"control": "create silence", "silence": encode_silence(silence)}
        case EndSilence(id):
            return {"control": "end silence", "id": id}
        case Punctuation(clock, until, since, where):
            return {
                "control": "punctuation",
                "clock": encode_clock(clock),
                "until": until,
                "since": since,
                "where": encode_pattern(where),
            }
        case Prod(clock, until, exactly, where, queries):
            return {
                "control": "prod",
                "clock": encode_clock(clock),
                "until": until,
                "exactly": exactly,
                "where": encode_pattern(where),
                "queries": queries,
            }


def decode_control(stored: dict[str, Any]) -> Control:
    """The control element that `encode_control` stored."""
    match stored["control"]:
        case "register":
            return Register(stored["name"], stored["text"], stored["partial"], stored.get("since"))
        case "adopt":
            return Adopt(stored["name"], stored["joined"], stored["problem"])
        case "edit":
            return Edit(stored["name"], stored["text"], stored["partial"])
        case "rename":
            return Rename(stored["name"], stored["to"])
        case "pause":
            return Pause(stored["name"])
        case "describe":
            units = tuple(stored.get("units", {}).items())
            return Describe(stored["name"], stored["description"], tuple(stored["tags"]), units)
        case "drop":
            return Drop(stored["name"])
        case "resume":
            return Resume(stored["name"])
        case "create summary":
            return Summarize(stored["name"], stored["text"])
        case "drop summary":
            return Forget(stored["name"])
        case "create view":
            return CreateView(stored["name"], stored["text"])
        case "drop view":
            return DropView(stored["name"])
        case "tune":
            return Tune(stored["name"], stored["point"])
        case "create alert":
            return CreateAlert(decode_rule(stored["rule"]))
        case "drop alert":
            return DropAlert(stored["name"])
        case "create silence":
            return CreateSilence(decode_silence(stored["silence"]))
        case "end silence":
            return EndSilence(stored["id"])
        case "punctuation":
            where = decode_pattern(stored["where"])
            return Punctuation(decode_clock(stored["clock"]), stored["until"], stored["since"], where)
        case "prod":
            where = decode_pattern(stored["where"])
            queries = None if stored["queries"] is None else tuple(stored["queries"])
            clock = decode_clock(stored["clock"])
            return Prod(clock, stored["until"], stored["exactly"], where, queries)
    raise StateError(f"unknown control element {stored['control']!r}")
