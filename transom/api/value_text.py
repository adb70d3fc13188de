"""Values as text, the same on the command line and in the API."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from transom.durations import format_duration


def value_to_json(value: Any) -> str:
    """A value as JSON; decimals keep every digit, NaN and infinities are strings.

    >>> value_to_json(Decimal("12.50")), value_to_json(float("nan")), value_to_json([1, None])
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
            return "[" + ", ".join(map(value_to_json, value)) + "]"
        case dict():
            pairs = (f"{json.dumps(str(key))}: {value_to_json(each)}" for key, each in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            return json.dumps(value_to_text(value), ensure_ascii=False)


def value_to_text(value: Any) -> str:
    """A value without quotes: ISO times in UTC, numbers as in Python, NaN and Infinity as in Spark.

    >>> value_to_text(datetime(2013, 1, 1, 12, 5, tzinfo=UTC)), value_to_text(float("-inf")), value_to_text(True)
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
            return value_to_json(value)
        case _:
            return str(value)
