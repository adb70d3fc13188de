"""Named parameters of a query: each `:name` in its text is replaced by a constant.

The constants become part of the text, so that queries that differ in parameters only are read once, like all queries
that differ in constants only. The SQL parser is not used, because it is slow to import.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from transom.errors import SettingError, SQLError, near_miss

# Texts, names in backticks and comments are skipped. In `value:path` the colon follows a value, and in `::` a colon.
_PARAMETER = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?<![\w)\]:`'\"]):([^\W\d]\w*)",
    re.DOTALL,
)


def with_parameters(text: str, parameters: Mapping[str, Any] | None) -> str:
    """A query's text with constants in place of its parameters; every given parameter must be in it.

    >>> with_parameters("SELECT sum(price) FROM bids [RANGE :r SLIDE :r] WHERE kind = :k", {"r": "5 min", "k": "it's"})
    "SELECT sum(price) FROM bids [RANGE '5 min' SLIDE '5 min'] WHERE kind = 'it''s'"
    """
    if not parameters:
        return text
    if not isinstance(parameters, Mapping):
        raise SettingError(
            f"parameters are a dictionary of names and values, not {type(parameters).__name__}"
        )
    used: set[str] = set()

    def constant(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return found[0]
        if name not in parameters:
            hint = near_miss(name, parameters) or f"; given are {', '.join(parameters)}"
            raise SQLError(f"the parameter :{name} has no value{hint}", text, found.start(), found.end())
        used.add(name)
        literal = sql_literal(parameters[name], name)
        # Two hyphens would open a comment.
        return f" {literal}" if literal.startswith("-") and text[: found.start()].endswith("-") else literal

    filled = _PARAMETER.sub(constant, text)
    for name in parameters:
        if name not in used:
            raise SettingError(f"the query has no parameter :{name}{near_miss(name, _names(text))}")
    return filled


def _names(text: str) -> list[str]:
    return [found[1] for found in _PARAMETER.finditer(text) if found[1]]


def sql_literal(value: Any, name: str = "") -> str:
    """A value of a program as a constant of Spark SQL.

    >>> [sql_literal(value) for value in (True, 5, 2.5, "a", None, [1, 2], Decimal("1.50"), date(2020, 1, 2))]
    ['true', '5', '2.5e0', "'a'", 'NULL', 'array(1, 2)', '1.50', "DATE '2020-01-02'"]
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            text = repr(value)
            return text if "e" in text else f"{text}e0"
        case Decimal() if value.is_finite():
            text = f"{value:f}"
            return text if "." in text else f"{text}BD"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            return f"'{escaped}'"
        case datetime():
            zoned = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"TIMESTAMP '{zoned.isoformat(sep=' ')}{'Z' if value.tzinfo else ''}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case timedelta():
            return f"INTERVAL {value // timedelta(microseconds=1)} MICROSECONDS"
        case list() | tuple():
            return f"array({', '.join(sql_literal(each, name) for each in value)})"
    raise SettingError(
        f"the parameter {name} is a number, a text, a boolean, a time, a duration, None or a list, not {value!r}"
    )
