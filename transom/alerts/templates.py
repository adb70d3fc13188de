"""Texts with `{name}` for values of a result, such as `{site}: {n} tardy flights`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from transom.errors import SettingError, near_miss
from transom.texts import cut_text

# Characters of the labels and annotations of an alert or an event, or of a comment.
LONGEST_ALERT_TEXT = 10_000
_PLACE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|[{}]")
_BRACES = {"{{": "{", "}}": "}"}


def filled_template(
    text: str, values: Mapping[str, Any], written: Callable[[Any], str], most: int = LONGEST_ALERT_TEXT
) -> str:
    """The text with values in their places; `{{` is a brace, and a value that is missing stays as it is written.

    A text with more than `most` characters is cut.

    >>> filled_template("{site}: {n} bids {{sic}}", {"site": "ebay", "n": 3}, str)
    'ebay: 3 bids {sic}'
    """
    parts, size, end = list[str](), 0, 0
    for place in _PLACE.finditer(text):
        name = place["name"]
        if name is None:
            value = _BRACES.get(place[0], place[0])
        else:
            value = written(values[name]) if name in values else place[0]
        parts += [text[end : place.start()], value]
        size, end = size + place.start() - end + len(value), place.end()
        if size > most:
            break
    return cut_text("".join(parts) if size > most else "".join((*parts, text[end:])), most)


def check_template(what: str, text: str, names: Collection[str]) -> None:
    """Refuse a text with a name that the results do not have, or with a lonely brace."""
    for place in _PLACE.finditer(text):
        name = place["name"]
        if name is None and place[0] not in _BRACES:
            raise SettingError(f"{what}: {place[0]} is not closed; write {place[0] * 2} for a brace")
        if name is not None and name not in names:
            hint = near_miss(name, names) or f"; they have {', '.join(sorted(names))}"
            raise SettingError(f"{what}: the results have no column {name!r}{hint}")
