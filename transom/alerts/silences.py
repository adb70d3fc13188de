"""Silences: which alerts are silent, by matchers on the alert's name, its groups and its labels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.elements import Matcher, Silence
from transom.errors import SettingError

ALERT_NAME = "alert"  # the name by which a matcher means the alert's name
_OPERATORS = ("=~", "!~", "!=", "=")
_MATCHER = re.compile(r"\s*(?P<name>[^=!~]+?)\s*(?P<op>=~|!~|!=|=)\s*(?P<value>.*?)\s*", re.DOTALL)
REGEX_OPERATORS = ("=~", "!~")
MOST_SILENCES = 1_000  # at a time
MOST_PATTERNS = 1_000  # regular expressions of all silences: a batch may compile each of them
MOST_MATCHERS = 20  # of a silence
LONGEST_MATCHER = 1_000  # characters of a matcher's text
# A class of Unicode such as \pL compiles to hundreds of instructions, for 0.25 ms. The library's own limit lets all
# else take up to 1.3 ms; most expressions take 0.02 ms.
MOST_UNICODE_CLASSES = 10  # of a regular expression, with repetitions
_UNICODE_CLASS = re.compile(r"\\[pP]")
# What it repeats may be, or contain, a class of Unicode: it does not follow a character or \d.
_REPETITION = re.compile(r"(?:(?<=[)\]}?*+])|(?<=\\E)|(?<=\\[pP]\w))\{(\d+)(?:,(\d*))?\}")


def parse_matcher(text: str) -> Matcher:
    """A matcher as it is written on the command line.

    >>> parse_matcher("site=ebay"), parse_matcher('alert =~ "late.*"')
    (Matcher(name='site', op='=', value='ebay'), Matcher(name='alert', op='=~', value='late.*'))
    """
    found = _MATCHER.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise SettingError(
            f"not a matcher: {text!r}; write alert=NAME, column=VALUE, column!=VALUE, column=~REGEX or column!~REGEX"
        )
    value = found["value"]
    if found["op"] in ("=", "!=") and value.startswith("="):
        raise SettingError(
            f"not a matcher: {text!r}; did you mean {found['name']}{found['op']}{value.lstrip('= ')}? "
            "A value that begins with = is in double quotes"
        )
    if found["op"] in ("=", "!=") and value.startswith("~"):
        raise SettingError(
            f"not a matcher: {text!r}; did you mean {found['name']}{found['op'][:-1] or '='}~{value.lstrip('~ ')}? "
            "A value that begins with ~ is in double quotes"
        )
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return checked_matcher(Matcher(found["name"], found["op"], value))


def checked_matcher(matcher: Matcher) -> Matcher:
    """The matcher; raise if it can't be evaluated."""
    if matcher.op not in _OPERATORS:
        raise SettingError(f"a matcher compares with one of {', '.join(_OPERATORS)}, not {matcher.op!r}")
    if not matcher.name:
        raise SettingError("a matcher needs a name: alert, a group column or a label")
    if len(matcher.value) > LONGEST_MATCHER:
        raise SettingError(f"a matcher's text has at most {LONGEST_MATCHER:,} characters")
    if matcher.op in REGEX_OPERATORS:
        if _unicode_classes(matcher.value) > MOST_UNICODE_CLASSES:
            raise SettingError(
                f"{matcher.value!r} takes too long to compile: with repetitions, it may have {MOST_UNICODE_CLASSES} "
                "classes such as \\pL"
            )
        try:
            _matches(matcher.value, [""])
        except pa.ArrowInvalid as error:
            raise SettingError(f"{matcher.value!r} is no regular expression: {error}") from None
    return matcher


def _unicode_classes(pattern: str) -> int:
    """At most how many classes of Unicode a regular expression is compiled to.

    Repetitions of groups and classes count as if they were nested around all classes.

    >>> _unicode_classes(r"\\p{Lu}{2}\\d{8}"), _unicode_classes(r"(?:\\pL{2,5}){3}"), _unicode_classes("[a-z]{900}")
    (2, 15, 0)
    """
    classes = len(_UNICODE_CLASS.findall(pattern))
    repetitions = (max(1, *map(int, filter(None, bounds))) for bounds in _REPETITION.findall(pattern))
    return classes * prod(repetitions) if classes else 0


def silent_alerts(silences: Sequence[Silence], alerts: Sequence[Mapping[str, str]], clock: int) -> np.ndarray:
    """Which alerts, given by their texts by name, are silent at a time of the engine's clock.

    A name that an alert does not have is an empty text.
    """
    silent, matching = np.zeros(len(alerts), bool), _Matching(alerts)
    for silence in silences:
        if clock < silence.until:
            matched = ~silent
            for matcher in silence.matchers:
                if not matched.any():
                    break
                matched &= matching.holds(matcher)
            silent |= matched
    return silent


class _Matching:
    """Evaluates matchers for many alerts at once: a regular expression is compiled once for all of their texts."""

    def __init__(self, alerts: Sequence[Mapping[str, str]]):
        self.alerts = alerts
        self._places: dict[str, dict[str, list[int]]] = {}  # by name and text: the alerts that have it

    def holds(self, matcher: Matcher) -> np.ndarray:
        places = self._places.get(matcher.name)
        if places is None:
            places = self._places[matcher.name] = defaultdict(list)
            for place, texts in enumerate(self.alerts):
                places[texts.get(matcher.name, "")].append(place)
        equal = [matcher.value] if matcher.value in places else []
        matching = _matches(matcher.value, list(places)) if matcher.op in REGEX_OPERATORS else equal
        matched = np.zeros(len(self.alerts), bool)
        for text in matching:
            matched[places[text]] = True
        return matched if matcher.op in ("=", "=~") else ~matched


def _matches(pattern: str, texts: Sequence[str]) -> list[str]:
    """The texts that a regular expression matches as a whole. Arrow's expressions (RE2) take linear time."""
    column = pa.array(texts, pa.string())
    found = pc.match_substring_regex(column, f"^(?:{pattern})$")
    return column.filter(found).to_pylist()
