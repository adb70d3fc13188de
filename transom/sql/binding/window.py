"""The window of a query: the papers' bracket, or Spark's `window()` in GROUP BY."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from transom.durations import parse_duration, parse_instant
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.binding.scope import Scope
from transom.sql.syntax.parsed_query import Bracket, Parsed, span
from transom.sql.syntax.token_reader import INTEGER, Piece, read_length

_FORMS = (
    "write FROM {stream} [RANGE 4 minutes SLIDE 1 minute], "
    "or GROUP BY window({time}, '4 minutes', '1 minute'), or [RANGE 4 minutes] for a query that is looked up"
)


@dataclass(frozen=True)
class Windowing:
    """The clock of a query's windows, the type of their ends, and their range, slide and origin.

    A query without SLIDE is `on_demand`: its window may end at any tick of the clock.
    """

    clock: Clock
    type: pa.DataType
    spec: WindowSpec
    on_demand: bool = False


def is_window(node: exp.Expr) -> bool:
    """Whether a node is a call of Spark's `window()`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "window"


def windowing(scope: Scope, call: exp.Expr | None, bracket: Bracket | None) -> Windowing:
    """The query's window from its bracket, or from a call of `window()`."""
    if bracket is not None and call is not None:
        scope.parsed.fail("a query has one window: either the bracket or window()", call)
    if bracket is not None:
        return _Bracket(scope, bracket).read()
    if call is not None:
        return _from_call(scope, call)
    relation = scope.stream.relation
    forms = _FORMS.format(stream=relation.name, time=relation.time or "ts")
    scope.parsed.fail(f"the query has no window; {forms}", scope.stream.node)


def check_place(scope: Scope, bracket: Bracket) -> None:
    """Refuse a bracket that stands after a table instead of the stream."""
    place = bracket.start if bracket.table_function is None else bracket.end  # its stream is inside
    before = [source for source in scope.sources if span(scope.parsed.text, source.node)[0] < place]
    owner = max(before, key=lambda source: span(scope.parsed.text, source.node)[0])
    text = scope.parsed.text
    if owner.table and re.search(r"(?i)\bwindow\s*$", text[: bracket.start]) is None:
        message = f"a window belongs to a stream, and {owner.alias} is a static table"
        raise SQLError(message, text, bracket.start, bracket.end)


def column_clock(scope: Scope, column: str) -> tuple[ClockKind, pa.DataType] | None:
    """The kind of clock that a column of the stream is, or None if it can't be one."""
    kind = scope.stream.relation.columns[column]
    if pa.types.is_timestamp(kind):
        return ClockKind.TIME, pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_date(kind):
        return ClockKind.TIME, pa.timestamp("us", "UTC")
    return (ClockKind.INTEGER, pa.int64()) if pa.types.is_integer(kind) else None


class _Bracket:
    """Reads the parts of a bracket; an error points at its part."""

    def __init__(self, scope: Scope, bracket: Bracket):
        self.scope, self.bracket, self.text = scope, bracket, scope.parsed.text

    def read(self) -> Windowing:
        bracket = self.bracket
        size = bracket.rows or bracket.range
        if size is None:
            raise self._error("the window needs RANGE (or ROWS)", None)
        if bracket.rows and bracket.range:
            raise self._error("a window has RANGE or ROWS, not both", bracket.rows)
        clock, kind = self._rows() if bracket.rows else self._attribute()
        length = read_length(self.text, size, clock.kind, "ROWS" if bracket.rows else "RANGE")
        if bracket.slide is not None:
            slide = read_length(self.text, bracket.slide, clock.kind, "SLIDE")
            if bracket.table_function is not None and length % slide:
                message = f"the size of {bracket.table_function} must be a multiple of its slide, as in Flink"
                raise self._error(message, size)
            return Windowing(clock, kind, WindowSpec.ending(length, slide, self._origin(clock.kind)))
        if bracket.origin is not None:
            message = "ORIGIN needs SLIDE: windows of a query that is looked up end at the newest row"
            raise self._error(message, bracket.origin)
        return Windowing(clock, kind, WindowSpec(length, 1), on_demand=True)

    def _error(self, message: str, piece: Piece | None) -> SQLError:
        place = piece or self.bracket
        return SQLError(message, self.text, place.start, place.end)

    def _rows(self) -> tuple[Clock, pa.DataType]:
        if self.bracket.wattr:
            raise self._error("ROWS counts rows and takes no WATTR", self.bracket.wattr)
        return Clock(self.scope.stream.relation.name, "", ClockKind.ROWS), pa.int64()

    def _attribute(self) -> tuple[Clock, pa.DataType]:
        piece, relation = self.bracket.wattr, self.scope.stream.relation
        if piece is None and relation.time is None:
            raise self._error(f"{relation.name} has no time column; name one with WATTR", None)
        name = piece.text if piece else str(relation.time)
        if piece and not piece.quoted:
            qualifier, _, rest = name.replace(" ", "").replace("`", "").rpartition(".")
            if qualifier.casefold() in ("", self.scope.stream.alias.casefold()):
                name = rest
        column = self.scope.stream.folded.get(name.casefold())
        if not column:
            raise self._error(f"unknown column {name}{near_miss(name, relation.columns)}", piece)
        clock = column_clock(self.scope, column[0])
        if clock is None:
            kind = relation.columns[column[0]]
            raise self._error(f"{column[0]} is no clock: it is {kind}, not a time or an integer", piece)
        return Clock(relation.name, column[0], clock[0]), clock[1]

    def _origin(self, kind: ClockKind) -> int:
        piece = self.bracket.origin
        if piece is None:
            return 0
        text = re.sub(r"(?i)^(timestamp|date)\s*'(.*)'$", r"\2", piece.text)
        if kind != ClockKind.TIME:
            if INTEGER.fullmatch(text.replace(" ", "")) is None:
                raise self._error(f"ORIGIN is a plain number here, not {piece.text!r}", piece)
            return int(text.replace(" ", ""))
        for read in (parse_instant, parse_duration):
            try:
                return read(text)
            except SettingError:
                continue
        raise self._error(f"ORIGIN is a time or a duration, not {piece.text!r}", piece)


def _from_call(scope: Scope, call: exp.Expr) -> Windowing:
    parsed, args = scope.parsed, call.expressions
    if not 1 < len(args) <= 4:
        parsed.fail("window() takes a time column, a length, and perhaps a slide and an offset", call)
    column = scope.column(args[0]) if isinstance(args[0], exp.Column) else None
    if column is None or not column.plain:
        parsed.fail("window() takes a time column of the stream", args[0])
    clock = column_clock(scope, column.name)
    if clock is None or clock[0] != ClockKind.TIME:
        kind = scope.stream.relation.columns[column.name]
        parsed.fail(f"window() takes a time column, and {column.name} is {kind}", args[0])
    length = _call_duration(parsed, args[1])
    slide = _call_duration(parsed, args[2]) if len(args) > 2 else length
    offset = _call_duration(parsed, args[3], positive=False) if len(args) > 3 else 0
    spec = WindowSpec.starting(length, slide, offset)
    return Windowing(Clock(scope.stream.relation.name, column.name, clock[0]), clock[1], spec)


def _call_duration(parsed: Parsed, node: exp.Expr, positive: bool = True) -> int:
    if isinstance(node, exp.Interval):
        text = node.sql("spark")
    elif isinstance(node, exp.Literal) and node.is_string:
        text = node.name
    else:
        parsed.fail("expected a duration like '5 minutes'", node)
    try:
        duration = parse_duration(text)
    except SettingError as error:
        parsed.fail(str(error), node)
    if positive and duration <= 0:
        parsed.fail("a window's length and slide must be positive", node)
    return duration
