"""Values as text, the same on the command line and in the API."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from transom.durations import format_duration


def json_text(value: Any) -> str:
    """A value as JSON; decimals keep every digit, NaN and infinities are strings.

    >>> json_text(Decimal("12.50")), json_text(float("nan")), json_text([1, None])
    ('12.50', '"NaN"', '[1, null]')
    """
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case float() if math.isfinite(value):
            return json.dumps(value)
        case Decimal():
            return format(value, "f")
        case list():
            return "[" + ", ".join(map(json_text, value)) + "]"
        case dict():
            pairs = (f"{json.dumps(str(key))}: {json_text(each)}" for key, each in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            return json.dumps(plain_text(value), ensure_ascii=False)


def plain_text(value: Any) -> str:
    """A value without quotes: ISO times in UTC, numbers as in Python, NaN and Infinity as in Spark.

    >>> plain_text(datetime(2013, 1, 1, 12, 5, tzinfo=UTC)), plain_text(float("-inf")), plain_text(True)
    ('2013-01-01T12:05:00Z', '-Infinity', 'true')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return format_duration(value // timedelta(microseconds=1))
        case bytes():
            return value.hex()
        case list() | dict():
            return json_text(value)
        case _:
            return str(value)
