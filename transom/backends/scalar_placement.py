"""Which scalar expressions this process evaluates over rows on the driver, and which Spark does.

This process evaluates an expression if the interpreter can compile it and gives it the type that Spark gives it.
Spark evaluates the others: it knows every function, and its jobs can be cancelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from transom.backends.scalar_worker import needs_worker
from transom.columns.types import Columns
from transom.errors import SQLError
from transom.sql.interpreter.expressions import parsed
from transom.sql.interpreter.scalars import Compiled, InterpretedScalars

TypesOf = Callable[[Columns, Sequence[str]], Sequence[pa.DataType | SQLError]]

MOST_ROWS_ONE_BY_ONE = 5_000  # beyond, Spark evaluates what has no vector form: it is quicker by then
MOST_CACHED = 100_000  # expressions; a day of queries that come and go must not fill the memory
# Numbers such as instants in microseconds, of one type for each number of digits. Many differ in each batch.
_LONG_NUMBER = re.compile(r"\b\d{12,18}\b")
_MICROS = re.compile(r"\bunix_micros\(`[^`]+`\)")  # does not depend on the zone
_TIME_WORDS = re.compile(
    r"(?i)time|date|day|hour|minute|second|week|month|quarter|year|zone|interval|now|extract|trunc"
)

# Functions of texts for which Arrow needs time in proportion to their length.
_LINEAR = re.compile(r"(?i)\bconcat(?:_ws)?\(")
_TYPED_NODES = (
    exp.Cast, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Boolean, exp.Like,
)  # fmt: skip

ANY_TIME = "it may take any time, and only Spark's jobs can be cancelled"


@dataclass(frozen=True)
class ScalarPlace:
    """Why Spark evaluates an expression, or None if compiled code does; whether it has a vector form there.

    Functions of the program (`calls_python`) are called in a process of their own.
    """

    reason: str | None = None
    is_vectorized: bool = False
    calls_python: bool = False


@dataclass
class ScalarPlacement:
    """Decides for each expression who evaluates it; `types` asks Spark for types."""

    interpreter: InterpretedScalars
    types: TypesOf
    in_utc: bool  # whether the session's zone is UTC, which the interpreter assumes
    _placed: dict[tuple[tuple[tuple[str, pa.DataType], ...], bool], dict[str, ScalarPlace]] = field(
        default_factory=dict
    )

    def evaluated_by_spark(self, table: pa.Table, texts: Iterable[str]) -> set[str]:
        """The expressions that Spark evaluates over the rows of a table."""
        columns = dict(zip(table.column_names, table.schema.types, strict=True))
        is_long = table.num_rows > MOST_ROWS_ONE_BY_ONE
        return {
            text
            for text, place in self.places(columns, texts).items()
            if place.reason is not None or (is_long and not place.is_vectorized and not place.calls_python)
        }

    def places(self, columns: Columns, texts: Iterable[str]) -> dict[str, ScalarPlace]:
        """Who evaluates each expression over such columns."""
        key = tuple(columns.items()), self.in_utc
        if sum(map(len, self._placed.values())) > MOST_CACHED:
            self._placed.clear()
        placed = self._placed.setdefault(key, {})
        distinct = dict.fromkeys(texts)
        new = [text for text in distinct if text not in placed]
        if new:
            placed |= self._decided(columns, new)
        return {text: placed[text] for text in distinct}

    def forget(self) -> None:
        """Decide again: another function of the program was registered."""
        self._placed.clear()

    def _decided(self, columns: Columns, texts: Sequence[str]) -> dict[str, ScalarPlace]:
        placed: dict[str, ScalarPlace] = {}
        candidates: dict[str, Compiled] = {}
        for text in texts:
            compiled = self.interpreter.compiled(columns, text)
            if compiled is None:
                placed[text] = ScalarPlace("only Spark can evaluate it")
            elif compiled.column is not None:
                placed[text] = ScalarPlace(is_vectorized=True)
            elif not compiled.is_exact:
                placed[text] = ScalarPlace("Java computes other last digits than this process")
            elif needs_worker(_LINEAR.sub(" ", text) if compiled.is_vectorized else text):
                placed[text] = ScalarPlace(ANY_TIME)
            elif not self.in_utc and self._depends_on_zone(columns, text):
                placed[text] = ScalarPlace("it reads or makes times, and the session's time zone is not UTC")
            elif _says_its_type(text):
                placed[text] = ScalarPlace(is_vectorized=compiled.is_vectorized)
            else:
                candidates[text] = compiled
        asked = {text: _LONG_NUMBER.sub(lambda number: "1" * len(number[0]), text) for text in candidates}
        types = dict(
            zip(asked.values(), self.types(columns, [*asked.values()]) if asked else (), strict=True)
        )
        for text, compiled in candidates.items():
            kind, compiled_kind = types[asked[text]], compiled.typed.type
            if isinstance(kind, SQLError) or kind != compiled_kind:
                placed[text] = ScalarPlace(f"its type is {kind} on Spark, and {compiled_kind} compiled")
            else:
                placed[text] = ScalarPlace(is_vectorized=compiled.is_vectorized)
        return {
            text: replace(place, calls_python=place.reason is None and self.interpreter.calls_python(text))
            for text, place in placed.items()
        }

    def _depends_on_zone(self, columns: Columns, text: str) -> bool:
        """Whether the session's zone may matter: an expression over times, beside their microseconds."""
        rest = _MICROS.sub("0L", text)
        compiled = self.interpreter.compiled(columns, rest)
        if compiled is None or _TIME_WORDS.search(rest):
            return True
        return any(map(_has_times, (compiled.typed.type, *(columns[name] for name in compiled.used))))


def _says_its_type(text: str) -> bool:
    """Whether an expression that can be typed has one type only: a condition, a cast, microseconds of a column.

    >>> _says_its_type("(`a` > 3 OR `b`)"), _says_its_type("CAST(`a` AS INT)"), _says_its_type("`a` * 2")
    (True, True, False)
    """
    return (
        isinstance(parsed(text).unnest(), _TYPED_NODES)
        or _MICROS.fullmatch(text.strip("()") + ")") is not None
    )


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind))


def column_names(text: str, columns: Collection[str]) -> set[str]:
    """The columns among some that an expression may read, in any case of their names.

    >>> sorted(column_names("upper(`Name`) || x.y", ["name", "x", "y", "z"]))
    ['name', 'x']
    """
    try:
        tree = parsed(text)
    except SQLError:
        return set(columns)
    if tree.find(exp.Star) is not None:
        return set(columns)
    first = {node.parts[0].name.casefold() for node in tree.find_all(exp.Column)}
    return {name for name in columns if name.casefold() in first}
