"""Templates of queries that differ in constants only: one query is parsed, the others fill in their constants.

A text is cut at its constants. Texts that differ only in constants have the same syntax tree with different
literals, unless the parser interprets a literal. A literal that changes how the tree is read (GROUP BY 1, a
join's condition, a column named after it) belongs to the template; every other literal is a hole. The clauses
at the end (ON OVERLOAD, EMIT EARLY, USING, WITHIN) are read separately.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Iterator, NamedTuple

from sqlglot import exp

from transom.sql.binding.joins import BoundJoins
from transom.sql.binding.select import SelectBinder
from transom.sql.binding.window import is_window
from transom.sql.syntax.canonical import OPERATOR_TEXTS
from transom.sql.syntax.lag_calls import is_lag
from transom.sql.syntax.parsed_query import Bracket, Parsed
from transom.sql.syntax.spark_forms import COPIED
from transom.sql.syntax.token_reader import Piece

# Names in backticks are cut out as well, so that a number in a name is not taken for a constant.
_CONSTANT = re.compile(r"('[^'\\]*'|`[^`]*`|(?<![\w.])\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))")
_UNCUT = re.compile(r'["\\]|--|/\*')  # where these are, a quote may not be what it seems
# What may stand around a hole; the parser looks into literals of types, intervals and indexes.
_AROUND = (*OPERATOR_TEXTS, exp.Paren, exp.Neg, exp.In, exp.Between, exp.Anonymous)


class Cut(NamedTuple):
    """A text without its constants, the constants, and their kinds (number, text, name)."""

    rest: tuple[str, ...]
    kinds: str
    constants: tuple[str, ...]

    @property
    def key(self) -> tuple[tuple[str, ...], str]:
        """The key of a template: equal for texts that may share one."""
        return self.rest, self.kinds


def cut(text: str) -> Cut:
    """Cut a text at its constants; a text that can't be cut with certainty stays whole.

    >>> cut("SELECT a FROM `1` WHERE b > 5 AND c = 'x'")
    Cut(rest=('SELECT a FROM ', ' WHERE b > ', ' AND c = ', ''), kinds="`0'", constants=('`1`', '5', "'x'"))
    """
    if _UNCUT.search(text):
        return Cut((text,), "", ())
    pieces = _CONSTANT.split(text)
    constants = tuple(pieces[1::2])
    kinds = "".join([constant[0] if constant[0] in "'`" else "0" for constant in constants])
    return Cut(tuple(pieces[::2]), kinds, constants)


class _Length(NamedTuple):
    """A piece of the window's bracket with holes in it."""

    name: str
    piece: Piece
    rest: list[str]
    first: int  # the number of its first hole

    def filled(self, constants: tuple[str, ...]) -> Piece:
        if self.piece.quoted:
            return replace(self.piece, text=constants[self.first][1:-1])
        made = self.rest[0]
        for at, rest in enumerate(self.rest[1:], self.first):
            made += constants[at] + rest
        return replace(self.piece, text=made)


class _End(NamedTuple):
    """Where the end clauses begin in a cut text: before constant `first`, at `behind` in the piece."""

    first: int
    behind: int

    @classmethod
    def of(cls, whole: Cut, parsed: Parsed) -> _End:
        """The end of a query; without the clause no constant is in it."""
        start = parsed.end_start
        if start is None:
            return cls(len(whole.constants), len(whole.rest[-1]))
        place = first = 0
        while place + len(whole.rest[first]) <= start:
            place += len(whole.rest[first]) + len(whole.constants[first])
            first += 1
        return cls(first, start - place)

    def filled(self, whole: Cut) -> str:
        made = whole.rest[self.first][self.behind :]
        for constant, rest in zip(whole.constants[self.first :], whole.rest[self.first + 1 :], strict=True):
            made += constant + rest
        return made


class Template:
    """A parsed query into which the constants of similar queries are filled."""

    def __init__(self, whole: Cut, parsed: Parsed, selection: SelectBinder, joined: BoundJoins):
        self.constants, self.parsed, self.selection = whole.constants, parsed, selection
        self._starts = _starts(whole)
        self._lengths = list(self._cut_bracket(parsed.bracket)) if parsed.bracket else []
        self._holes = dict(self._find_holes(joined))
        self._stale = {id(node) for literal in self._holes.values() for node in _upwards(literal)}
        inside = {first + i for _, _, rest, first in self._lengths for i in range(len(rest) - 1)}
        self._end = _End.of(whole, parsed)
        holes = inside | self._holes.keys() | set(range(self._end.first, len(whole.constants)))
        self._fixed = [at for at in range(len(whole.constants)) if at not in holes]
        self._held: tuple[str, ...] | None = self.constants

    def fits(self, constants: tuple[str, ...]) -> bool:
        """Whether another query with the same pieces differs in holes only."""
        return all(constants[at] == self.constants[at] for at in self._fixed)

    def fill(self, constants: tuple[str, ...]) -> None:
        """Fill the constants of a query into the tree, the window and the texts.

        An error points into the template's text, so the caller binds the query again without the template.
        """
        if constants is self._held:
            return
        self._held = None  # until all of them are in
        for at, literal in self._holes.items():
            literal.args["this"] = constants[at][1:-1] if literal.is_string else constants[at]
        self.selection.forget(self._stale)
        bracket = self.parsed.bracket
        if bracket is not None and self._lengths:
            pieces: dict[str, Any] = {one.name: one.filled(constants) for one in self._lengths}
            bracket = replace(bracket, **pieces)
        self.selection.read_window(bracket)
        if not self.selection.are_distinct():
            self.parsed.fail("two aggregates are now one")
        self._held = constants

    def end_text(self, whole: Cut) -> str:
        """The clause at the end of a query that fits."""
        return self._end.filled(whole)

    def _cut_bracket(self, bracket: Bracket) -> Iterator[_Length]:
        for name in ("range", "rows", "session", "slide", "origin"):
            piece: Piece | None = getattr(bracket, name)
            if piece is None:
                continue
            rest = _CONSTANT.split(self.parsed.text[piece.start : piece.end])[::2]
            first = sum(start < piece.start for start in self._starts)
            if len(rest) > 1 and (not piece.quoted or rest == ["", ""]):
                yield _Length(name, piece, rest, first)

    def _find_holes(self, joined: BoundJoins) -> Iterator[tuple[int, exp.Literal]]:
        """The literals that are holes: those of WHERE, HAVING, aggregates and `window()`."""
        selection, select = self.selection, self.parsed.select
        roots = list(joined.where)
        named_after = [item for item in select.expressions if not isinstance(item, exp.Alias)]
        fixed = {id(literal) for item in named_after for literal in item.find_all(exp.Literal)}
        if not selection.repeats:
            roots += [node for draft in selection.drafts for node in (*draft.args, draft.where) if node]
        if selection.having is not None:
            roots.append(selection.having)
        if sum(map(is_window, select.find_all(exp.Anonymous))) == 1 and selection.window_call is not None:
            roots += selection.window_call.expressions
        for root in roots:
            for node in root.walk(prune=lambda node: selection.is_aggregate(node) or is_lag(node)):
                if isinstance(node, exp.Literal) and id(node) not in fixed and COPIED not in node.meta:
                    at = self._starts.get(node.meta.get("start", -1))
                    if at is not None and isinstance(node.parent, _AROUND) and self._is(node, at):
                        yield at, node

    def _is(self, node: exp.Literal, at: int) -> bool:
        """Whether a literal is exactly one constant of the text."""
        constant = self.constants[at]
        return node.name == (constant[1:-1] if node.is_string else constant)


def _starts(whole: Cut) -> dict[int, int]:
    """The constants by their start positions."""
    starts, place = {}, 0
    for at, (rest, constant) in enumerate(zip(whole.rest, whole.constants, strict=False)):
        starts[place + len(rest)] = at
        place += len(rest) + len(constant)
    return starts


def _upwards(node: exp.Expr | None) -> Iterator[exp.Expr]:
    while node is not None:
        yield node
        node = node.parent
