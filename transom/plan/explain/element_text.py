"""The elements of a plan as text: slots, aggregate calls, windows, promises, lengths and instants."""

from __future__ import annotations

import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.durations import format_duration, format_instant
from transom.elements import Calendar, CalendarLength, Clock, ClockKind, WindowSpec
from transom.plan.compiled_query import Slot
from transom.plan.predicate_text import predicate_text
from transom.sql.clauses.promise_reader import COUNT
from transom.sql.item_columns import replace_references
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Number, Promise
from transom.sql.query import Call, Lag, OverloadPreference, Query

_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2}


def slot_text(slot: Slot) -> str:
    """What is kept per slice and group, as EXPLAIN prints it."""
    argument = "*" if slot.argument is None else slot.argument.sql
    shown = f"{slot.accumulator.label}({argument})"
    if slot.where is not None:
        shown = f"{shown} FILTER (WHERE {predicate_text(slot.where)})"
    growth = slot.accumulator.traits.growth
    return shown if growth is None else f"{shown} [exact: {growth}]"


def call_text(call: Call) -> str:
    arguments = [scalar.sql for scalar in call.args] or ["*"]
    function = aggregate_function(call.function)
    distinct = "DISTINCT " if function.distinct_of else ""
    shown = f"{function.sql_name}({distinct}{', '.join([*arguments, *map(repr, call.parameters)])})"
    return shown if call.where is None else f"{shown} FILTER (WHERE {predicate_text(call.where)})"


def having_text(query: Query) -> str | None:
    """HAVING, with aggregates and group columns written out."""
    if query.having is None:
        return None
    return replace_references(
        query.having,
        key=lambda place: query.keys[place].scalar.sql,
        aggregate=lambda place: call_text(query.calls[place]),
        lag=lambda place: lag_text(query, query.lags[place]),
    )


def lag_text(query: Query, lag: Lag) -> str:
    """A value of an earlier window."""
    if lag.call is None:
        return f"(there was a result {lag.windows:,} windows earlier)"
    return f"LAG({call_text(query.calls[lag.call])}, {lag.windows}) OVER WINDOWS"


def past_text(query: Query) -> str | None:
    """What is remembered of past windows, on the driver."""
    parts = []
    if query.lags:
        deepest = max(lag.windows for lag in query.lags)
        calls = dict.fromkeys(call_text(query.calls[lag.call]) for lag in query.lags if lag.call is not None)
        values = ", ".join(calls) or "whether there was a result"
        parts.append(f"{values} of the last {deepest:,} windows of each group")
    if query.empty is not None:
        whose = "each group" if query.keys else "the query"
        parts.append(f"the last window with rows of {whose}, for {query.most_empty:,} windows")
    return f"remembers {'; '.join(parts)}" if parts else None


def corrections_text(query: Query, reported: pa.Table | None, slices: int) -> str:
    """How long late rows correct closed windows, and what is kept for that on the driver."""
    kind, within = query.clock.kind, query.retention
    length = format_duration(within) if kind is ClockKind.TIME else f"{within:,}"
    more = within // query.window.slide
    rows, size = (0, 0) if reported is None else (reported.num_rows, reported.nbytes)
    return (
        f"corrects windows for {length} after they closed: keeps the slices of {more:,} more windows for each group "
        f"(now {slices:,} slices), and {rows:,} results ({size:,} bytes)"
    )


def overload_text(overload: OverloadPreference) -> str:
    """Which rows a query prefers when there is not time for all."""
    return f"prefers {overload.order} {promise_text(overload.promise)}"


def promise_text(promise: Promise, streams: bool = False) -> str:
    """A promise as it would be written, with the names of `streams` where there are two.

    >>> more = Arithmetic("+", Column("s", "price"), Number(1.5))
    >>> promise_text(Arithmetic("*", EstimatedCount("s", "item"), more))
    'SUMMARY.Estimate.Count(item) * (price + 1.5)'
    """
    match promise:
        case Number(value):
            return f"{value:g}"
        case EstimatedCount(stream, column):
            return f"{COUNT}({stream}.{column})" if streams else f"{COUNT}({column})"
        case Column(stream, column):
            return f"{stream}.{column}" if streams else column
    left, right = (_part(part, promise, streams) for part in (promise.left, promise.right))
    return f"{left} {promise.op} {right}"


def _part(part: Promise, whole: Arithmetic, streams: bool) -> str:
    """A part of an expression, in parentheses where the expression needs them."""
    text = promise_text(part, streams)
    if not isinstance(part, Arithmetic):
        return text
    binds, around = _BINDS[part.op], _BINDS[whole.op]
    loose = binds < around or (part is whole.right and binds == around and whole.op in "-/")
    return f"({text})" if loose else text


def window_text(spec: WindowSpec, kind: ClockKind) -> str:
    """The windows of a query in words."""
    if spec.is_session:
        return f"sessions, gap {length_text(spec.range, kind)}"
    if spec.calendar is not None:
        return _calendar_text(spec, spec.calendar)
    if spec.is_cumulative:
        shown = f"range up to {length_text(spec.range, kind)}, slide {length_text(spec.slide, kind)}"
        return f"{shown}, starts {length_text(spec.phase, kind)} past each range" if spec.phase else shown
    if spec.is_keyed:
        return f"the last {spec.range:,} rows of each key, slide {spec.slide:,}"
    shown = f"range {length_text(spec.range, kind)}, slide {length_text(spec.slide, kind)}"
    return f"{shown}, ends {length_text(spec.phase, kind)} past each slide" if spec.phase else shown


def _calendar_text(spec: WindowSpec, calendar: Calendar) -> str:
    upper = "up to " if spec.is_cumulative else ""
    slide = (
        length_text(spec.slide, ClockKind.TIME) if calendar.slide is None else calendar_length(calendar.slide)
    )
    shown = f"range {upper}{calendar_length(calendar.range)}, slide {slide} in {calendar.zone}"
    return f"{shown}, origin {format_instant(calendar.origin)}" if calendar.origin else shown


def calendar_length(length: CalendarLength) -> str:
    """A length of a calendar as text.

    >>> calendar_length(CalendarLength(months=18)), calendar_length(CalendarLength(days=14))
    ('18 months', '14 days')
    """
    count, unit = (length.months, "month") if length.months else (length.days, "day")
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def length_text(value: int, kind: ClockKind) -> str:
    """A length; with short names of units if it is not a round one.

    >>> length_text(720_000_000, ClockKind.TIME), length_text(680_296_000, ClockKind.TIME)
    ('12 minutes', '11 min 20.296 s')
    """
    if kind is not ClockKind.TIME:
        return str(value)
    shown = format_duration(value)
    is_round = value % 1_000_000 == 0 and shown.count(" ") <= 3
    if is_round or value < 1_000_000:
        return shown
    minutes, rest = divmod(value, 60_000_000)
    seconds = f"{rest // 1_000_000}.{rest % 1_000_000:06d}".rstrip("0").rstrip(".")
    return f"{minutes:,} min {seconds} s" if minutes else f"{seconds} s"


def instant(value: int, clock: Clock) -> str:
    return format_instant(value) if clock.kind is ClockKind.TIME else str(value)
