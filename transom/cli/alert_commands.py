"""The commands about alerts of a running server, after their options are parsed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from time import sleep
from typing import Any

import pyarrow as pa

from transom.api.alert_records import AlertEventInfo
from transom.api.value_text import value_to_text
from transom.cli.result_text import Format, write_results
from transom.client.connection import Server
from transom.durations import format_duration, format_instant

FOLLOW_SECONDS = 1.0  # between two looks at the server


def print_alerts(server: Server, alert: str | None, as_json: bool) -> None:
    """Print what fires and what is pending."""
    found = server.alerting.active(alert)
    rows = [
        {
            "alert": each.alert,
            "state": f"{'early ' if each.early else ''}{each.state}{' (silenced)' if each.silenced else ''}",
            "group": pairs_text(each.group),
            "since": "" if each.since is None else value_to_text(each.since),
            "values": pairs_text(each.values),
            "summary": each.annotations.get("summary", ""),
        }
        for each in found
    ]
    _print(found, rows, as_json, "no alert is firing or pending")


def event_row(event: AlertEventInfo) -> dict[str, Any]:
    """An event as a row of a table."""
    return {
        "window end": value_to_text(event.window_end),
        "alert": event.alert,
        "event": f"{'early ' if event.early and event.state == 'firing' else ''}{event.state}"
        f"{' (silenced)' if event.silenced else ''}",
        "group": pairs_text(event.group),
        "values": pairs_text(event.values),
        "reason": event.reason or "",
    }


def print_events(server: Server, alert: str | None, limit: int, as_json: bool) -> None:
    """Print the newest events, the newest last."""
    events = server.alerting.newest(limit, alert)[::-1]
    _print(events, [event_row(event) for event in events], as_json, "there are no events")


def follow_events(server: Server, alert: str | None, as_json: bool) -> None:
    """Print events as they come, until Ctrl-C."""
    cursor = server.alerting.end()
    with suppress(KeyboardInterrupt):
        while True:
            events, cursor = server.alerting.events(cursor, 1_000, alert)
            for event in events:
                row = event_row(event)
                line = json.dumps(asdict(event)) if as_json else "  ".join(filter(None, row.values()))
                print(line, flush=True)
            if not events:
                sleep(FOLLOW_SECONDS)


def print_rules(server: Server, as_json: bool) -> None:
    """Print the definitions of alerts."""
    rules = list(server.alerting.rules().values())
    rows = [
        {
            "alert": rule.name,
            "query": rule.query,
            "for": rule.for_windows,
            "resolve after": rule.resolve_after,
            "labels": pairs_text(rule.labels),
            "sinks": "all" if rule.sinks is None else ", ".join(rule.sinks),
            "pending": rule.pending,
            "firing": rule.firing,
        }
        for rule in rules
    ]
    _print(rules, rows, as_json, "there are no alerts")


def print_silences(server: Server, as_json: bool) -> None:
    """Print the silences that have not ended."""
    silences = server.alerting.silences()
    rows = [
        {
            "id": each.id,
            "matchers": ", ".join(each.matchers),
            "until": format_instant(each.until),
            "for": format_duration(each.until - each.created),
            "author": each.author,
            "comment": each.comment,
        }
        for each in silences
    ]
    _print(silences, rows, as_json, "there are no silences")


def print_sinks(server: Server, as_json: bool) -> None:
    """Print the sinks of alerts, and what they delivered."""
    sinks = server.alerting.sinks()
    rows = [{name: "" if value is None else value for name, value in asdict(each).items()} for each in sinks]
    _print(sinks, rows, as_json, "there are no sinks of alerts")


def pairs_text(values: Mapping[str, Any]) -> str:
    """Values by name as text.

    >>> pairs_text({"site": 7, "n": 12})
    'site=7 n=12'
    """
    return " ".join(
        f"{name}={'' if value is None else value_to_text(value)}" for name, value in values.items()
    )


def _print(records: Sequence[Any], rows: Iterable[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if not records:
        print(nothing, file=sys.stderr)
    elif as_json:
        for record in records:
            print(json.dumps(asdict(record), ensure_ascii=False))
    else:
        write_results({"": pa.Table.from_pylist(list(rows))}, Format.TABLE, sys.stdout)
