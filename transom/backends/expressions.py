"""Scalar expressions as texts: quoted names, the batch's clock, and times in microseconds."""

from __future__ import annotations

import re

import pyarrow as pa

from transom.errors import SettingError

# Strings and quoted names first, so that nothing inside them is taken for a call.
_CLOCK_CALL = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`"""
    r"""|\b(?P<keyword>current_timestamp|current_date|localtimestamp)\b(?:\s*\(\s*\))?"""
    r"""|\b(?P<call>now|curdate|unix_timestamp)\s*\(\s*\)""",
    re.IGNORECASE | re.DOTALL,
)


def at_clock(sql: str, now: int | None) -> str:
    """The expression with the batch's clock in place of the calls that ask for the current time.

    >>> at_clock("`ts` < current_timestamp() AND `note` = 'now()'", 5)
    "`ts` < timestamp_micros(5) AND `note` = 'now()'"
    """
    if now is None:
        return sql
    instant = f"timestamp_micros({now})"
    meanings = {
        "current_timestamp": instant,
        "now": instant,
        "current_date": f"CAST({instant} AS DATE)",
        "curdate": f"CAST({instant} AS DATE)",
        "localtimestamp": f"CAST({instant} AS TIMESTAMP_NTZ)",
        "unix_timestamp": f"unix_seconds({instant})",
    }

    def meaning(match: re.Match[str]) -> str:
        name = match["keyword"] or match["call"]
        return meanings[name.lower()] if name else match[0]

    return _CLOCK_CALL.sub(meaning, sql)


def micros(sql: str, type: pa.DataType) -> str:
    """The expression as the integer its clock counts in: microseconds since 1970 for times.

    A timestamp without zone and a date are read as UTC, whatever the session's zone.
    """
    if pa.types.is_timestamp(type) and type.tz is not None:
        return f"unix_micros({sql})"
    if pa.types.is_timestamp(type):
        since = f"({sql}) - TIMESTAMP_NTZ '1970-01-01 00:00:00'"
        return f"CAST(CAST({since} AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"
    if pa.types.is_date(type):
        return f"CAST(unix_date({sql}) AS BIGINT) * 86400000000"
    if pa.types.is_integer(type):
        return f"CAST({sql} AS BIGINT)"
    raise SettingError(f"a clock is a time or an integer, and {sql} is of type {type}")


def quoted(name: str) -> str:
    """A column's name in backticks, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """A text as a literal.

    >>> text_literal("it's")
    "'it\\\\'s'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
