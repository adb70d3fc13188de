"""The oracle's input and output, and which rows of a batch it accepts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any, Literal, Mapping, Sequence

import pyarrow as pa

from transom.durations import DAY
from transom.elements import Clock, ClockKind, Drop, Prod, Punctuation, Register
from transom.sql.interpreter.types import TIMESTAMP
from transom.sql.interpreter.values import microseconds, order_nulls

OracleRow = dict[str, Any]
USUAL_HORIZON = 366 * DAY


@dataclass(frozen=True)
class OracleStreamRules:
    """How a stream was declared. Columns whose types are not given take them from their values."""

    time: str
    kind: ClockKind = ClockKind.TIME
    slack: int | Mapping[str, int | None] | None = 0
    horizon: int | Literal["usual"] | None = "usual"  # 366 days for times, none for integers
    live: bool = False
    max_ahead: int | None = None
    columns: Mapping[str, pa.DataType] = field(default_factory=dict)

    def furthest(self) -> int | None:
        """The horizon: how far ahead of the stream a row may be."""
        if self.horizon != "usual":
            return self.horizon
        return USUAL_HORIZON if self.kind is ClockKind.TIME else None

    def slack_of(self, clock: Clock) -> int | None:
        """How far a clock's watermark stays behind its largest value; None: it has no watermark."""
        if clock.kind is ClockKind.ROWS:
            return 0
        if isinstance(self.slack, Mapping) and clock.attribute in self.slack:
            return self.slack[clock.attribute]
        own = clock.attribute == self.time
        if isinstance(self.slack, Mapping):
            return 0 if clock.kind is ClockKind.INTEGER and not own else self.slack.get(self.time)
        return 0 if clock.kind is ClockKind.INTEGER and not own and self.slack is not None else self.slack


@dataclass(frozen=True)
class OracleLookup:
    """A lookup of an on-demand query (of every one, if none is named), for its own window or for a shorter one
    of `length` on its clock."""

    query: str | None = None
    length: int | None = None


@dataclass(frozen=True)
class LookupAnswer:
    """The answer of a lookup right after a batch.

    `rows` are dicts like those of results, from the rows that came since the query joined; `whole` are those of
    a query that was there from the start. If the window is `complete` they are the same. Without any row there
    is no window.
    """

    batch_id: int
    query: str
    length: int
    window: tuple[int, int] | None
    rows: Sequence[OracleRow]
    whole: Sequence[OracleRow]
    complete: bool


@dataclass(frozen=True)
class OracleBatch:
    """A batch of one stream. A row that is not a dict stands for one that could not be parsed.

    `before` takes effect before the rows, `after` when they are in. A control batch has no rows. The end
    of the stream closes every window up to the last that holds a row, query by query.
    """

    stream: str
    rows: Sequence[OracleRow | str] = ()
    before: Sequence[Register | Drop] = ()
    after: Sequence[Punctuation] = ()
    end_of_stream: bool = False
    clock: int | None = None
    prods: Sequence[Prod] = ()  # answered when everything else has taken effect
    lookups: Sequence[OracleLookup] = ()  # the same


@dataclass
class OracleOutcome:
    """The answers, and what became of every row. Batches are counted from 0.

    A row is late if a query missed it: a window of the query that it belongs to was closed. A result is a dict
    of window_start, window_end, the group columns, the items, rows, late, complete and batch; a system column
    whose name an item took is called transom_<name>.
    """

    results: dict[str, list[OracleRow]] = field(default_factory=dict)  # by query
    late: dict[str, list[tuple[OracleRow, int, tuple[str, ...]]]] = field(
        default_factory=dict
    )  # row, batch, queries
    rejected: dict[str, list[tuple[OracleRow | str, str, int]]] = field(
        default_factory=dict
    )  # row, reason, batch
    counts: dict[str, Counter[str]] = field(default_factory=dict)  # in, counted, unwanted, late, rejected
    missed: dict[str, Counter[tuple[int, int]]] = field(default_factory=dict)  # by query: rows by window
    accounts: dict[str, Counter[str]] = field(default_factory=dict)  # by query: the same as counts
    early: dict[str, list[OracleRow]] = field(default_factory=dict)  # by query: the answers to prods
    lookups: list[LookupAnswer] = field(default_factory=list)  # in the order of the batches and their lookups


def with_microseconds(row: OracleRow | str) -> OracleRow | str:
    """A row with its datetimes as microseconds."""
    if isinstance(row, str):
        return row
    return {name: microseconds(value) for name, value in row.items()}


def column_types(rules: OracleStreamRules, batches: Sequence[OracleBatch]) -> dict[str, pa.DataType]:
    """The stream's columns: the declared ones, then the others that rows have."""
    rows = [row for batch in batches for row in batch.rows if not isinstance(row, str)]
    names = dict.fromkeys([*rules.columns, *(name for row in rows for name in row)])
    return {name: rules.columns.get(name) or inferred_type(name, rules, rows) for name in names}


def inferred_type(name: str, rules: OracleStreamRules, rows: Sequence[OracleRow]) -> pa.DataType:
    """The type of a column, from its values."""
    if name == rules.time and rules.kind is ClockKind.TIME:
        return TIMESTAMP
    values = [row.get(name) for row in rows]
    return TIMESTAMP if any(microseconds(value) is not value for value in values) else pa.array(values).type


def accept_rows(
    batch: OracleBatch, rules: OracleStreamRules, high: int | None
) -> tuple[list[OracleRow], list[tuple[OracleRow | str, str]]]:
    """The rows of a batch that are accepted, and the others with the reason."""
    accepted: list[OracleRow] = []
    rejected: list[tuple[OracleRow | str, str]] = []
    rows = [with_microseconds(row) for row in batch.rows]
    times = [time for row in rows if not isinstance(row, str) and (time := row.get(rules.time)) is not None]
    limit = highest_accepted(times, high, rules.furthest())
    for row in rows:
        reason = rejection_reason(row, batch, rules, limit)
        if reason is not None:
            rejected.append((row, reason))
        elif isinstance(row, dict):
            accepted.append(row)
    return accepted, rejected


def rejection_reason(
    row: OracleRow | str, batch: OracleBatch, rules: OracleStreamRules, limit: int | None
) -> str | None:
    """Why a row is rejected; None for a row that is accepted."""
    if isinstance(row, str):
        return "unparsable"
    time, horizon = row.get(rules.time), rules.furthest()
    if time is None:
        return "time is null"
    if limit is not None and time > limit:
        return "ahead of the stream"
    if rules.live and batch.clock is not None and horizon is not None and time > batch.clock + horizon:
        return "ahead of the clock"
    if rules.max_ahead is not None and batch.clock is not None and time > batch.clock + rules.max_ahead:
        return "ahead of the clock"
    return None


def highest_accepted(times: Sequence[int], high: int | None, horizon: int | None) -> int | None:
    """The time above which a batch's rows are too far ahead; None if no row can be.

    Walks up from the stream's largest time, or from the batch's median when most of the batch lies
    beyond the horizon (the stream jumped), until a step is longer than the horizon.

    >>> highest_accepted([1, 2, 90], high=None, horizon=10), highest_accepted([1, 89, 90], 5, 10)
    (2, 90)
    """
    if horizon is None or not times:
        return None
    ordered = sorted(times)
    top = ordered[(len(ordered) - 1) // 2]
    if high is not None and not 2 * sum(time > high + horizon for time in times) > len(times):
        top = high
    for time in ordered:
        if time > top + horizon:
            break
        top = max(top, time)
    return top


def in_order(rows: Sequence[OracleRow], time: str, columns: Sequence[str]) -> list[OracleRow]:
    """The rows by time, then by their other columns with null first: the order that ROWS windows count."""

    def compare(left: OracleRow, right: OracleRow) -> int:
        for name in [time, *(column for column in columns if column != time)]:
            if found := compare_values(left.get(name), right.get(name)):
                return found
        return 0

    return sorted(rows, key=cmp_to_key(compare))


def compare_values(left: Any, right: Any) -> int:
    """Compare two values of a column, by their text if they have no order."""
    try:
        return order_nulls(left, right)
    except TypeError:
        return order_nulls(repr(left), repr(right))
