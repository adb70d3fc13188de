"""Small helpers to build queries and runs by hand: an integer clock keeps the numbers readable."""

from __future__ import annotations

from typing import Any, Sequence

import pyarrow as pa

from transom.elements import Clock, ClockKind, Punctuation, WindowSpec
from transom.oracle import OracleBatch, OracleOutcome, OracleStreamRules, answer
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.query import Call, Comparison, Item, Key, Member, Query, Scalar

LONG, DOUBLE = pa.int64(), pa.float64()
COLUMNS = {"ts": LONG, "sensor": LONG, "speed": LONG, "volume": LONG}
CLOCK = Clock("traffic", "ts", ClockKind.INTEGER)
ROWS = Clock("traffic", "", ClockKind.ROWS)


def column(name: str, type: pa.DataType = LONG) -> Scalar:
    return Scalar(f"`{name}`", type, name)


def call(function: str, name: str | None = "volume", **more: Any) -> Call:
    args = () if name is None else (column(name),)
    type = DOUBLE if function.startswith(("avg", "var", "stddev")) else LONG
    return Call(function, args, more.pop("type", type), **more)


def query(
    window: WindowSpec, *calls: Call, by: Sequence[str] = (), clock: Clock = CLOCK, **more: Any
) -> Query:
    """A query over `traffic` that selects its aggregates as x0, x1, ..."""
    calls = calls or (call("sum"),)
    return Query(
        text="",
        stream="traffic",
        clock=clock,
        clock_type=LONG,
        window=window,
        keys=tuple(Key(name, column(name)) for name in by),
        calls=calls,
        items=tuple(Item(f"x{i}", f"`a{i}`", each.type) for i, each in enumerate(calls)),
        **more,
    )


def equals(name: str, value: Any) -> Comparison:
    return Comparison(column(name), "=", value)


def one_of(name: str, *values: Any) -> Member:
    return Member(column(name), values)


def rows(*tuples: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Tuples of the thesis: timestamp, sensor, speed, volume; the last ones may be left out."""
    return [dict(zip(COLUMNS, values, strict=False)) for values in tuples]


def batch(*tuples: tuple[Any, ...], **more: Any) -> OracleBatch:
    return OracleBatch("traffic", rows(*tuples), **more)


def until(time: int, since: int | None = None, clock: Clock = CLOCK, **where: Any) -> list[Punctuation]:
    """The punctuation [ts <= time, where]."""
    return [Punctuation(clock, time, since, tuple(where.items()))]


def run(queries: dict[str, Query] | Query, *batches: OracleBatch, **rules: Any) -> OracleOutcome:
    """Runs the batches; without a slack there are punctuations only."""
    named = {"q": queries} if isinstance(queries, Query) else queries
    rules = {"time": "ts", "kind": ClockKind.INTEGER, "slack": None, "columns": COLUMNS} | rules
    return answer(named, batches, {"traffic": OracleStreamRules(**rules)}, InterpretedScalars())


def reported(outcome: OracleOutcome, name: str = "q", *columns: str) -> list[tuple[Any, ...]]:
    """The results as tuples, by default (window_start, window_end, x0)."""
    columns = columns or ("window_start", "window_end", "x0")
    return [tuple(result[column] for column in columns) for result in outcome.results[name]]
