"""The settings table: what each kind takes, and what an error says."""

from __future__ import annotations

from typing import Any

import pytest

from transom.cli.settings_table import (
    CHECKS,
    ENGINE,
    KIND_TEXTS,
    SETTING_SECTIONS,
    STREAM,
    Setting,
    check_setting,
    read_settings,
)
from transom.errors import SettingError

ACCEPTED = [
    ("a duration stays text", "duration", "30 seconds", "30 seconds"),
    ("a span may be a plain number", "span", 100, 100),
    ("a slack may be none in words", "slack", "none", None),
    ("a slack may be null", "slack", None, None),
    (
        "a slack may differ by attribute",
        "slack",
        {"ts": "1 minute", "seq": 5, "x": "none"},
        {"ts": "1 minute", "seq": 5, "x": None},
    ),
    ("a retention may count batches", "retention", 50, 50),
    ("a retention may be a duration", "retention", "7 days", "7 days"),
    (
        "options become text, booleans as Spark spells them",
        "options",
        {"header": True, "max": 3},
        {"header": "true", "max": "3"},
    ),
]

REFUSED = [
    ("a duration without a unit", "duration", "30", "did you mean '30 seconds'"),
    ("a number where a duration belongs", "duration", 30, "did you mean '30 seconds'"),
    ("a negative duration", "duration", "-5 minutes", "negative"),
    ("a month", "span", "1 month", "no fixed length"),
    ("an unknown unit", "span", "3 minuets", "did you mean minute"),
    ("a number for text", "text", 3, "expected text"),
    ("empty text", "text", " ", "expected text"),
    ("text for a flag", "flag", "yes", "expected true or false"),
    ("no batches at all", "count", 0, "at least 1"),
    ("true as a count", "count", True, "at least 1"),
    ("a list of options", "options", ["header"], "expected a mapping"),
    ("one sink without its list", "sinks", {"format": "json"}, "expected a list of sinks"),
]


@pytest.mark.parametrize(
    ("kind", "given", "expected"), [c[1:] for c in ACCEPTED], ids=[c[0] for c in ACCEPTED]
)
def test_accepted(kind: str, given: Any, expected: Any) -> None:
    assert check_setting(Setting("x", kind, ""), given, "here") == expected


@pytest.mark.parametrize(("kind", "given", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(kind: str, given: Any, says: str) -> None:
    with pytest.raises(SettingError, match=f"^here: .*{says}"):
        check_setting(Setting("x", kind, ""), given, "here")


def test_every_kind_in_use_is_checked_and_explained() -> None:
    used = {setting.kind for section in SETTING_SECTIONS.values() for setting in section}
    assert used == set(CHECKS) == set(KIND_TEXTS)


def test_no_section_has_a_setting_twice() -> None:
    for section, settings in SETTING_SECTIONS.items():
        names = [setting.name for setting in settings]
        assert len(names) == len(set(names)), section


def test_a_missing_setting_is_named_with_its_help() -> None:
    with pytest.raises(SettingError, match=r"streams\.bids: time is missing: the column that holds"):
        read_settings(STREAM, {"path": "bids.json"}, "streams.bids")


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(
        SettingError, match=r"engine.chekpoint: there is no such setting; did you mean checkpoint\?"
    ):
        read_settings(ENGINE, {"chekpoint": "x"}, "engine")
