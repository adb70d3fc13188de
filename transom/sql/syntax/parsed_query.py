"""A parsed query: Spark's part as a syntax tree, and Transom's own clauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from transom.errors import SQLError
from transom.sql.derived_stream import DerivedStream
from transom.sql.syntax.token_reader import Piece

WRITTEN = "written"  # the source text of a constant that comes from the text of a view
NAMED = "named"  # marks an expression that was put in place of a column with the column's name
# Marks a name that is both a column's and an item's: it is a column's (OF_COLUMN) or an item's (OF_ITEM).
NAME_OF = "name_of"
OF_COLUMN, OF_ITEM = "column", "item"
# Marks an expression in HAVING that was put in place of a column, with the alias of an item: the name is the item's,
# unless the expression is inside an aggregate or in a key.
OR_ITEM = "or_item"


class EndClause(Protocol):
    """A clause at the end of a query, as it was read, from `start` to `end` of the text."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


@dataclass(frozen=True)
class EndClauseReader:
    """Finds and reads a clause at the end of a query.

    `openings` are the words that it can begin with, such as `EMIT EARLY`, and `keywords` its other words: an editor
    shows them. `opens` says whether the clause begins at a token, or the word is a name there. `read` returns the
    clause and the place of the first token after it.
    """

    openings: tuple[str, ...]
    keywords: tuple[str, ...]
    opens: Callable[[Sequence[Token], int], bool]
    read: Callable[[str, Sequence[Token], int], tuple[EndClause, int]]

    @property
    def first_words(self) -> tuple[str, ...]:
        """The first word of each opening."""
        return tuple(opening.split()[0] for opening in self.openings)


@dataclass(frozen=True)
class Bracket:
    """`[RANGE r SLIDE s WATTR a ORIGIN o IN TIME ZONE z]` as it was written; without SLIDE the query is on demand."""

    start: int
    end: int
    range: Piece | None = None
    rows: Piece | None = None
    slide: Piece | None = None
    wattr: Piece | None = None
    origin: Piece | None = None
    zone: Piece | None = None
    session: Piece | None = None  # `[SESSION gap]`
    # TUMBLE, HOP, CUMULATE or SESSION, if it was written as Flink's table function.
    table_function: str | None = None
    partition: tuple[str, ...] = ()  # the columns of PARTITION BY


@dataclass(frozen=True)
class Parsed:
    """A query's text, its syntax tree, and the bracket and the end clauses that were cut out of it."""

    text: str
    select: exp.Select
    bracket: Bracket | None
    clauses: tuple[EndClause, ...] = ()
    derived: DerivedStream | None = None  # the stream, if it is derived from other streams
    with_ties: bool = False  # LIMIT k WITH TIES
    # The aliases of inlined subqueries in lower case: they are before every column of the streams inside.
    inlined: frozenset[str] = frozenset()

    @property
    def end_start(self) -> int | None:
        """Where the clauses at the end begin."""
        return self.clauses[0].start if self.clauses else None

    def fail(self, message: str, node: exp.Expr | None = None) -> NoReturn:
        """Raise an error that points at a node."""
        raise SQLError(message, self.text, *(span(self.text, node) if node is not None else ()))

    def fail_at(self, message: str, clause: EndClause) -> NoReturn:
        """Raise an error that points at a clause."""
        raise SQLError(message, self.text, clause.start, clause.end)


def span(text: str, node: exp.Expr) -> tuple[int, int]:
    """The part of the text from which a node was parsed, as far as its parts have positions."""
    places = [part._meta for part in node.walk() if part._meta and "start" in part._meta]
    if not places:
        return span(text, node.parent) if node.parent is not None else (0, len(text))
    start, end = min(place["start"] for place in places), max(place["end"] for place in places) + 1
    while (inner := text[start:end]).count("(") > inner.count(")") and ")" in text[end:]:
        end = text.index(")", end) + 1
    return start, end
