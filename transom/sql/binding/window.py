"""The window of a query: the papers' bracket, or Spark's `window()` in GROUP BY."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from transom.durations import parse_duration, parse_instant
from transom.elements import Clock, ClockKind, WindowSpec
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.binding.calendar_window import calendar_spec, calendar_zone, has_months, upper_bound
from transom.sql.binding.scope import Scope
from transom.sql.catalog import Relation
from transom.sql.syntax.canonical import quote
from transom.sql.syntax.parsed_query import Bracket, Parsed, span
from transom.sql.syntax.token_reader import INTEGER, Piece, read_length

_FORMS = (
    "write FROM {stream} [RANGE 4 minutes SLIDE 1 minute], "
    "or GROUP BY window({time}, '4 minutes', '1 minute'), or [SESSION 30 minutes], "
    "or [RANGE 4 minutes] for an on-demand query"
)


@dataclass(frozen=True)
class Windowing:
    """The clock of a query's windows, the type of their ends, and their range, slide and origin.

    A query without SLIDE is `on_demand`: its window may end at any tick of the clock. A query `of_rows` has no window.
    """

    clock: Clock
    type: pa.DataType
    spec: WindowSpec
    on_demand: bool = False
    of_rows: bool = False


_WORDS = {"zone": "IN TIME ZONE"}  # of parts of the bracket that are called otherwise
WINDOW_CALLS = ("window", "session_window")


def is_window(node: exp.Expr) -> bool:
    """Whether a node is a call of Spark's `window()` or `session_window()`."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in WINDOW_CALLS


def windowing(
    scope: Scope,
    call: exp.Expr | None,
    bracket: Bracket | None,
    text_of: Callable[[exp.Expr], str],
    reader: str | None = None,
) -> Windowing:
    """The query's window from its bracket, or from a call of `window()`; `text_of` prints an expression over rows.

    `reader` is a clause that reads windows, for the error if there is none.
    """
    if bracket is not None and call is not None:
        scope.parsed.fail("a query has one window: either the bracket or window()", call)
    if bracket is not None:
        return _Bracket(scope, bracket).read()
    if call is not None:
        return _from_call(scope, call, text_of)
    lacking = "the query has no window" + (f", which {reader} needs" if reader is not None else "")
    if scope.pairs is not None:
        message = f"{lacking}; write [RANGE 4 minutes SLIDE 1 minute] after the condition of the join"
        scope.parsed.fail(message, scope.stream.node)
    relation = scope.stream.relation
    forms = _FORMS.format(stream=relation.name, time=relation.time or "ts")
    scope.parsed.fail(f"{lacking}; {forms}", scope.stream.node)


def rows_without_window(scope: Scope) -> Windowing | None:
    """The clock of a query without a window: the event time of its stream. None if the stream has no such clock."""
    relation = scope.stream.relation
    clock = None if relation.time is None else column_clock(scope, relation.time)
    if relation.time is None or clock is None:
        return None
    return Windowing(Clock(relation.name, relation.time, clock[0]), clock[1], WindowSpec(1, 1), of_rows=True)


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
        if bracket.session is not None:
            return self._session(bracket.session)
        if bracket.partition:
            return self._of_keys()
        size = bracket.rows or bracket.range
        if size is None:
            raise self._error("the window needs RANGE (or ROWS, or SESSION)", None)
        if bracket.rows and bracket.range:
            raise self._error("a window has RANGE or ROWS, not both", bracket.rows)
        clock, kind = self._rows() if bracket.rows else self._attribute()
        if self.scope.pairs is not None:
            self._check_pairs(clock)
        if bracket.zone is not None:
            zone = calendar_zone(self.text, bracket.zone, clock.kind, self._has_zone(clock))
            return Windowing(clock, kind, calendar_spec(self.text, bracket, size, zone))
        length_piece, is_cumulative = upper_bound(size)
        is_cumulative |= bracket.table_function == "CUMULATE"
        length = self._length(length_piece, clock.kind, "ROWS" if bracket.rows else "RANGE")
        if bracket.slide is not None:
            slide = self._length(bracket.slide, clock.kind, "SLIDE")
            if (bracket.table_function is not None or is_cumulative) and length % slide:
                raise self._error(self._not_a_multiple(), size)
            spec = WindowSpec.cumulative if is_cumulative else WindowSpec.ending
            return Windowing(clock, kind, spec(length, slide, self._origin(clock)))
        if is_cumulative:
            raise self._error(
                "UP TO needs SLIDE: by how much each window is longer than the one before it", size
            )
        if bracket.origin is not None:
            message = "ORIGIN needs SLIDE: windows of an on-demand query end at the newest row"
            raise self._error(message, bracket.origin)
        return Windowing(clock, kind, WindowSpec(length, 1), on_demand=True)

    def _check_pairs(self, clock: Clock) -> None:
        """Refuse windows that a join of two streams does not have."""
        bracket, time = self.bracket, self.scope.stream.relation.time
        if bracket.rows is not None:
            message = "pairs of a join have no row numbers; use RANGE instead of ROWS"
            raise self._error(message, bracket.rows)
        if clock.attribute != time:
            raise self._error(
                f"windows over a join are along {time}, the later time of the two rows", bracket.wattr
            )
        if bracket.slide is None:
            raise self._error(
                "a query over a join of streams needs SLIDE: it can't be on demand", bracket.range
            )

    def _not_a_multiple(self) -> str:
        function = self.bracket.table_function
        if function is None:
            return "the range of cumulative windows must be a multiple of SLIDE"
        slide = "step" if function == "CUMULATE" else "slide"
        return f"the size of {function} must be a multiple of its {slide}, as in Flink"

    def _length(self, piece: Piece, kind: ClockKind, word: str) -> int:
        if kind is ClockKind.TIME and has_months(piece.text):
            message = f"{word}: a month has no fixed length; add IN TIME ZONE, as in "
            raise self._error(
                message + "[RANGE 1 month SLIDE 1 month IN TIME ZONE 'UTC'], or use days", piece
            )
        return read_length(self.text, piece, kind, word)

    def _has_zone(self, clock: Clock) -> bool:
        """Whether the column's values are instants: of a timestamp with a time zone."""
        kind = self.scope.stream.relation.columns.get(clock.attribute)
        return kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None

    def _error(self, message: str, piece: Piece | None) -> SQLError:
        place = piece or self.bracket
        return SQLError(message, self.text, place.start, place.end)

    def _session(self, gap: Piece) -> Windowing:
        if self.scope.pairs is not None:
            raise self._error(
                "session windows over a join of streams are not supported; use RANGE and SLIDE", gap
            )
        for name in ("range", "rows", "slide", "origin", "zone"):
            piece: Piece | None = getattr(self.bracket, name)
            if piece is not None:
                word = _WORDS.get(name, name.upper())
                message = f"SESSION takes no {word}: a session lasts until one gap after its last row"
                raise self._error(message, piece)
        clock, kind = self._attribute()
        return Windowing(clock, kind, WindowSpec.session(read_length(self.text, gap, clock.kind, "SESSION")))

    def _of_keys(self) -> Windowing:
        bracket = self.bracket
        for name in ("range", "origin", "zone"):
            piece: Piece | None = getattr(bracket, name)
            if piece is not None:
                word = _WORDS.get(name, name.upper())
                raise self._error(f"PARTITION BY takes ROWS and SLIDE, and no {word}", piece)
        if bracket.rows is None or bracket.slide is None:
            raise self._error("PARTITION BY needs ROWS and SLIDE: [PARTITION BY card ROWS 5 SLIDE 1]", None)
        if self.scope.pairs is not None or len(self.scope.sources) > 1:
            raise self._error("windows with PARTITION BY are over one stream, without joins", None)
        clock, kind = self._rows()
        rows, slide = (
            read_length(self.text, piece, clock.kind, word)
            for piece, word in ((bracket.rows, "ROWS"), (bracket.slide, "SLIDE"))
        )
        if slide > rows:
            raise self._error("with PARTITION BY, SLIDE is at most ROWS", bracket.slide)
        return Windowing(clock, kind, WindowSpec.of_keys(rows, slide))

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
        if not column and relation.time is not None and self._is_time(name, relation):
            column = [relation.time]
        if not column:
            written = name if piece and piece.quoted else name.replace(" ", "").replace("`", "")
            hint = near_miss(written, relation.columns)
            first = written.partition(".")[0].casefold()
            if "." in written and first in self.scope.stream.folded and relation.is_declared:
                hint = (
                    f", and WATTR takes a column; declare the stream with time={written!r} to use this field"
                )
            raise self._error(f"unknown column {written}{hint}", piece)
        clock = column_clock(self.scope, column[0])
        if clock is None:
            kind = relation.columns[column[0]]
            raise self._error(f"{column[0]} is no clock: it is {kind}, not a time or an integer", piece)
        return Clock(relation.name, column[0], clock[0]), clock[1]

    @staticmethod
    def _is_time(name: str, relation: Relation) -> bool:
        """Whether a name with dots is the field that the stream's time is declared as."""
        fields = ".".join(map(quote, name.split(".")))
        return relation.time_sql is not None and relation.time_sql.casefold() == fields.casefold()

    def _origin(self, clock: Clock) -> int:
        piece = self.bracket.origin
        if piece is None:
            return 0
        text = re.sub(r"(?i)^(timestamp|date)\s*'(.*)'$", r"\2", piece.text)
        if clock.kind != ClockKind.TIME:
            if INTEGER.fullmatch(text.replace(" ", "")) is None:
                raise self._error(f"ORIGIN is a plain number here, not {piece.text!r}", piece)
            return int(text.replace(" ", ""))
        zone = self.scope.catalog.zone if self._has_zone(clock) else "UTC"
        try:
            return parse_instant(text, zone)
        except SettingError:
            pass
        try:
            return parse_duration(text)
        except SettingError:
            pass
        raise self._error(f"ORIGIN is a time or a duration, not {piece.text!r}", piece)


def _from_call(scope: Scope, call: exp.Expr, text_of: Callable[[exp.Expr], str]) -> Windowing:
    parsed, args, name = scope.parsed, call.expressions, call.name.lower()
    is_session = name == "session_window"
    if is_session and scope.pairs is not None:
        parsed.fail("session windows over a join of streams are not supported; use window()", call)
    if is_session and len(args) != 2:
        parsed.fail("session_window() takes a time column and a gap", call)
    if not 1 < len(args) <= 4:
        parsed.fail("window() takes a time column, a length, and perhaps a slide and an offset", call)
    time = _time_column(scope, args[0], name, text_of)
    clock = column_clock(scope, time)
    if clock is None or clock[0] != ClockKind.TIME:
        relation = scope.stream.relation
        kind = relation.columns[time]
        message = f"{name}() takes a time column, and {time} is {kind}"
        if relation.time_sql is not None and f"`{time}`" in relation.time_sql:
            message += f"; write {name}({relation.time}, ...) for the event time that the stream makes of it"
        elif pa.types.is_integer(kind) or pa.types.is_string(kind):
            unit = ", time_unit='ms'" if pa.types.is_integer(kind) else ""
            message += f"; declare the stream with time='{time}'{unit} to use it"
        parsed.fail(message, args[0])
    length = _call_duration(parsed, args[1])
    if is_session:
        spec = WindowSpec.session(length)
        return Windowing(Clock(scope.stream.relation.name, time, clock[0]), clock[1], spec)
    slide = _call_duration(parsed, args[2]) if len(args) > 2 else length
    offset = _call_duration(parsed, args[3], positive=False) if len(args) > 3 else 0
    spec = WindowSpec.starting(length, slide, offset)
    return Windowing(Clock(scope.stream.relation.name, time, clock[0]), clock[1], spec)


def _time_column(scope: Scope, node: exp.Expr, function: str, text_of: Callable[[exp.Expr], str]) -> str:
    """The column that the first argument of `window()` is, or whose values it computes."""
    column = scope.column(node) if isinstance(node, exp.Column) else None
    if column is not None and scope.pairs is not None and column.source is not scope.pairs:
        time = scope.pairs.relation.time
        message = f"windows over a join are along {time}, the later time of the two rows"
        scope.parsed.fail(f"{message}: write {function}({time}, ...)", node)
    if column is not None and column.plain:
        return column.name
    relation = scope.stream.relation
    text = text_of(node)
    if relation.time is not None and relation.time_sql == text:
        return relation.time
    message = f"{function}() takes the event time of {relation.name}, or another time column of it"
    written = text.replace("`", "")
    scope.parsed.fail(f"{message}; declare the stream with time={written!r} to use this expression", node)


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
        parsed.fail("a window's length, slide and gap must be positive", node)
    return duration
