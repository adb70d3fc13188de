"""What a chart needs to know of a query beside its results: slide, counts, units, and the limits in HAVING."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from transom.aggregates.table import aggregate_function
from transom.plan.explain.element_text import call_text
from transom.sql.item_columns import aggregate_reference
from transom.sql.query import And, Call, Comparison, Item, Not, Or, Predicate, Query

_UNITS = {
    "%": "percent percentage pct",
    "µs": "us micros microseconds",
    "ms": "ms millis milliseconds",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "days": "day days",
    "bytes": "byte bytes",
    "KB": "kb",
    "MB": "mb",
    "GB": "gb",
    "km": "km",
    "m": "meter meters metre metres",
    "miles": "mile miles mi",
    "°C": "celsius",
    "USD": "usd dollars",
    "EUR": "eur euros",
    "GBP": "gbp",
}
_UNIT_OF_WORD = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_WORDS = re.compile(r"[a-z]+")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}
_COUNTS = ("count", "regr_count")
# Aggregates whose values are in the unit of their argument.
_SAME_UNIT = (
    *("sum", "avg", "min", "max", "first", "last", "any_value", "mode", "median"),
    *("percentile", "approx_percentile", "percentile_cont", "percentile_disc"),
    *("stddev", "stddev_samp", "stddev_pop"),
)


@dataclass(frozen=True)
class Threshold:
    """A comparison of a value with a constant in HAVING."""

    op: str
    value: float


@dataclass(frozen=True)
class ValueHint:
    """How to draw a value: its expression, its unit, whether its axis begins at zero, and its thresholds."""

    expression: str = ""  # of the aggregate
    unit: str = ""
    is_count: bool = False
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class ChartHints:
    """What a chart needs to know of a query; `slide` is None if windows do not end at regular times."""

    slide: int | None = None
    values: Mapping[str, ValueHint] = field(default_factory=dict)  # by column

    def with_units(self, units: Mapping[str, str]) -> ChartHints:
        """The hints with the units that a user set, in place of those that names suggest."""
        if not units:
            return self
        values = {name: replace(hint, unit=units.get(name, hint.unit)) for name, hint in self.values.items()}
        return replace(self, values=values)


def chart_hints(query: Query) -> ChartHints:
    """The hints for the chart of a query."""
    window = query.window
    slide = None if window.is_session or window.is_keyed else window.slide
    calls = {aggregate_reference(place): call for place, call in enumerate(query.calls)}
    hints = {
        item.name: _value_hint(item, calls.get(item.sql), query) for item in query.items if not item.is_key
    }
    return ChartHints(slide, hints)


def _value_hint(item: Item, call: Call | None, query: Query) -> ValueHint:
    limits = tuple(dict.fromkeys(_thresholds(query.kept, item.sql)))
    if call is None:
        return ValueHint("", unit_of_name(item.name), thresholds=limits)
    function = aggregate_function(call.function)
    is_count = any(function.sql_name.startswith(name) for name in (*_COUNTS, "approx_count"))
    unit = unit_of_name(item.name)
    if not unit and call.function == "count_rows":
        unit = "rows"
    if not unit and function.sql_name in _SAME_UNIT and call.args:
        unit = unit_of_name(call.args[0].column or "")
    return ValueHint(call_text(call).replace("`", ""), unit, is_count, limits)


def unit_of_name(name: str) -> str:
    """The unit at the end of a column's name, if there is one.

    >>> [unit_of_name(name) for name in ("delay_minutes", "p99_ms", "seconds", "items", "share_pct", "h")]
    ['min', 'ms', 's', '', '%', '']
    """
    words = _WORDS.findall(name.casefold())
    if not words or (len(words) == 1 and len(words[0]) < 3):
        return ""
    return _UNIT_OF_WORD.get(words[-1], "")


def _thresholds(predicate: Predicate | None, sql: str) -> Iterator[Threshold]:
    """The comparisons of an expression with numbers, in AND, OR and NOT."""
    match predicate:
        case Not(part):
            for limit in _thresholds(part, sql):
                yield replace(limit, op=_OPPOSITE[limit.op])
        case And(parts) | Or(parts):
            for part in parts:
                yield from _thresholds(part, sql)
        case Comparison(scalar, op, value) if scalar.sql == sql and op in _OPPOSITE:
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
                yield Threshold(op, float(value))
