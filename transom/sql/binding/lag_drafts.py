"""Calls of LAG: which values of earlier windows a query reads, and the text over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sqlglot import exp

from transom.durations import format_duration, parse_duration
from transom.elements import ClockKind
from transom.errors import SettingError
from transom.sql.binding.window import Windowing
from transom.sql.item_columns import is_lag_reference, lag_reference
from transom.sql.query import Lag
from transom.sql.syntax.canonical import Printer, bare
from transom.sql.syntax.lag_calls import BY_LENGTH, LAG_FORMS, is_lag
from transom.sql.syntax.parsed_query import Parsed

_MOST = 10**15  # windows; admission refuses far fewer
_NO_WINDOW = "LAG takes aggregates and group columns, not the start or the end of the window"


class _Distance(NamedTuple):
    """How much earlier a window is: `times` windows, or `times` multiplied by a length."""

    times: int
    length: str | None


class LagDrafts:
    """The values of earlier windows that the items of a query read; equal values are one column."""

    def __init__(self, parsed: Parsed):
        self.parsed = parsed
        self._places: dict[tuple[int | None, _Distance], int] = {}
        self._nodes: dict[_Distance, exp.Expr] = {}
        self._distance: _Distance | None = None  # inside of a call

    @property
    def is_inside(self) -> bool:
        """Whether the argument of LAG is being read."""
        return self._distance is not None

    def refuse(self, node: exp.Expr, place: str) -> None:
        """Refuse LAG where rows are read."""
        if is_lag(node):
            self.parsed.fail(f"LAG is not allowed in {place}; it belongs in SELECT, HAVING or ORDER BY", node)

    def check_over(self, node: exp.Expr, functions: Collection[str]) -> None:
        """Refuse LAG without OVER, unless the program registered a function of that name."""
        if isinstance(node, exp.Anonymous) and node.name.lower() == "lag" and "lag" not in functions:
            self.parsed.fail(f"LAG needs OVER: write {LAG_FORMS}", node)

    def refuse_window(self, node: exp.Expr) -> None:
        """Refuse the window's ends inside of LAG."""
        if self.is_inside:
            self.parsed.fail(_NO_WINDOW, node)

    def reference(self, call: int | None) -> str:
        """The column with an aggregate of the earlier window; for None, whether that window has a result."""
        assert self._distance is not None
        return lag_reference(self._places.setdefault((call, self._distance), len(self._places)))

    def text(self, node: exp.Expr, results: Printer) -> str:
        """The text of a call over columns of this window and of earlier ones."""
        if self.is_inside:
            self.parsed.fail("LAG is not allowed in LAG; give the number of windows: LAG(x, 2)", node)
        argument, distance, default = self._parts(node)
        self._nodes.setdefault(distance, node)
        with self._inside(distance):
            value = results.root(argument)
            if default is None and is_lag_reference(value):
                return value
            is_there = self.reference(None)
        other = "NULL" if default is None else results.root(default)
        # While the earlier window is open, it is not known whether it has a result: then the value is null.
        return f"CASE WHEN {is_there} THEN {value} WHEN NOT {is_there} THEN {other} END"

    def name(self, node: exp.Expr, names: Printer) -> str:
        """The name of a column without an alias."""
        args = [names.root(arg) for arg in node.expressions[node.this == BY_LENGTH :]]
        over = f"(INTERVAL {node.expressions[0].name})" if node.this == BY_LENGTH else "WINDOWS"
        return f"lag({', '.join(args)}) OVER {over}"

    def bound(self, windowing: Windowing) -> tuple[Lag, ...]:
        """The values of earlier windows, given the windows of the query."""
        return tuple(Lag(call, self._windows(distance, windowing)) for call, distance in self._places)

    def _parts(self, node: exp.Expr) -> tuple[exp.Expr, _Distance, exp.Expr | None]:
        args = list(node.expressions)
        length = args.pop(0).name if node.this == BY_LENGTH else None
        if not 1 <= len(args) <= 3:
            self.parsed.fail(f"LAG takes 1 to 3 arguments, found {len(args)}", node)
        count = 1
        if len(args) > 1:
            number = bare(args[1])
            is_whole = isinstance(number, exp.Literal) and not number.is_string and number.name.isdigit()
            count = int(number.name[:16]) if is_whole else 0
            if not 0 < count <= _MOST:
                self.parsed.fail("the second argument of LAG is a positive whole number of windows", args[1])
        return args[0], _Distance(count, length), args[2] if len(args) > 2 else None

    @contextmanager
    def _inside(self, distance: _Distance) -> Iterator[None]:
        self._distance = distance
        try:
            yield
        finally:
            self._distance = None

    def _windows(self, distance: _Distance, windowing: Windowing) -> int:
        if distance.length is None:
            return distance.times
        node, slide = self._nodes[distance], windowing.spec.slide
        if windowing.clock.kind is not ClockKind.TIME:
            message = "INTERVAL needs windows over time; give a number of windows: LAG(x, 2) OVER WINDOWS"
            self.parsed.fail(message, node)
        if windowing.spec.calendar is not None:
            message = "calendar windows differ in length; give a number of windows: LAG(x, 7) OVER WINDOWS"
            self.parsed.fail(message, node)
        try:
            length = parse_duration(distance.length) * distance.times
        except SettingError as error:
            self.parsed.fail(f"INTERVAL: {error}", node)
        if length <= 0 or length % slide:
            message = (
                f"no window ends {distance.length} earlier: windows end every {format_duration(slide)}, and INTERVAL "
                "must be a multiple of that"
            )
            self.parsed.fail(message, node)
        return length // slide
