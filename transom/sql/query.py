"""A bound query: the output of the SQL front, and the input of the planner.

Scalar expressions stay Spark SQL text in one canonical spelling, so that equal expressions of
different queries are equal strings and are computed once. In that text a stream's column is
`` `price` ``, a joined table's column is `` `closing#1a2b3c4d.cp` `` and its match flag
`` `closing#1a2b3c4d` `` (see `Join.id`). Types are Arrow types.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Collection, Iterator

import pyarrow as pa

from transom.columns.types import is_number
from transom.elements import Clock, Emit, Using, WindowSpec
from transom.sql.item_columns import is_key_reference, item_columns
from transom.sql.promise import Promise


@dataclass(frozen=True)
class Scalar:
    """A scalar expression over a row: canonical Spark SQL text and its type.

    `column` is the stream's column when the expression is nothing but that column.
    """

    sql: str
    type: pa.DataType
    column: str | None = None

    def __hash__(self) -> int:
        return hash(self.sql)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a system column in a result: it gets a prefix if an item has its name.

    >>> free_name("rows", ["n"]), free_name("rows", ["rows"])
    ('rows', 'transom_rows')
    """
    return f"transom_{name}" if name in taken else name


# --- predicates: three-valued, over scalars and constants ------------------------------------


@dataclass(frozen=True)
class Comparison:
    """`scalar op value` with op one of `= != < <= > >= <=>` and a value of the scalar's own kind.

    int, Decimal or float for numbers (compared by value, as Spark does after coercion), str, bool,
    datetime.date for dates, int microseconds for timestamps. NaN is equal to NaN and above all else.
    """

    scalar: Scalar
    op: str
    value: Any


@dataclass(frozen=True)
class Member:
    """`scalar IN (values)`; `null` is whether the list has a NULL."""

    scalar: Scalar
    values: tuple[Any, ...]
    null: bool = False


@dataclass(frozen=True)
class IsNull:
    """`scalar IS NULL`."""

    scalar: Scalar


@dataclass(frozen=True)
class Truth:
    """A boolean scalar that Spark evaluates: LIKE, a UDF, a comparison of two columns."""

    scalar: Scalar


@dataclass(frozen=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Not:
    part: Predicate


Predicate = Comparison | Member | IsNull | Truth | And | Or | Not


def scalars_of(predicate: Predicate | None) -> Iterator[Scalar]:
    """Every scalar that a predicate reads."""
    match predicate:
        case None:
            return
        case And(parts) | Or(parts):
            for part in parts:
                yield from scalars_of(part)
        case Not(part):
            yield from scalars_of(part)
        case _:
            yield predicate.scalar


# --- the query -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Join:
    """A static table joined to the stream: LEFT always, an INNER JOIN adds its flag to `where`.

    `on` is the whole condition in canonical text, in which the table's own columns are
    `` `<id>.column` ``; `keys` are the table's columns that the condition equates with something
    of the stream's (or of an earlier table's) row.
    """

    id: str  # table name # first 8 hex digits of a hash of table and condition
    table: str
    on: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # the table's columns that the query reads, beside the keys


@dataclass(frozen=True)
class Key:
    """A GROUP BY expression and the name its column has in the result."""

    name: str
    scalar: Scalar


@dataclass(frozen=True)
class Call:
    """One aggregate of the query: function in lower case, arguments, FILTER, constant parameters."""

    function: str  # count_rows, count, sum, avg, min, max, var_pop, var_samp, stddev_pop, stddev_samp,
    #                approx_count_distinct, approx_percentile
    args: tuple[Scalar, ...]
    type: pa.DataType
    where: Predicate | None = None
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Item:
    """A column of the result: Spark SQL text over the columns of `transom.sql.item_columns`."""

    name: str
    sql: str
    type: pa.DataType

    @cached_property
    def is_key(self) -> bool:
        """Whether the item is a group column and nothing more."""
        return is_key_reference(self.sql)


@dataclass(frozen=True)
class OrderKey:
    """An expression of ORDER BY: text over the same columns as the items, its type, and the direction."""

    sql: str
    type: pa.DataType
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """ORDER BY ... LIMIT: the first rows of each window. Rows that are equal in this order are ordered by group."""

    limit: int
    order: tuple[OrderKey, ...]


@dataclass(frozen=True)
class OverloadPreference:
    """ON OVERLOAD PREFER: which rows to process first when a batch is beyond the budget."""

    order: str
    promise: Promise


@dataclass(frozen=True)
class Query:
    """A standing window-aggregate query, bound to a stream; the engine emits its results.

    The subclass `OnDemandQuery` is a query without SLIDE.
    """

    text: str
    stream: str
    clock: Clock
    clock_type: pa.DataType  # of window_start and window_end
    window: WindowSpec
    joins: tuple[Join, ...] = ()
    where: Predicate | None = None
    keys: tuple[Key, ...] = ()
    calls: tuple[Call, ...] = ()
    items: tuple[Item, ...] = ()  # group columns that are not selected come first, then the SELECT list
    having: str | None = None  # boolean text over the same columns as the items
    kept: Predicate | None = None  # HAVING again, as a predicate whose scalars are texts over those columns
    functions: frozenset[str] = field(default_factory=frozenset)  # user-defined functions that it calls
    top: Top | None = None  # ORDER BY ... LIMIT: the rows of each window that are results
    emit: Emit | None = None  # EMIT EARLY: when early results are emitted
    overload: OverloadPreference | None = None  # ON OVERLOAD PREFER

    @property
    def streams(self) -> tuple[str, ...]:
        """The stream that it reads."""
        return (self.stream,)

    @property
    def selected(self) -> tuple[tuple[str, bool], ...]:
        """The names of its items, and whether each is a group column."""
        return tuple((item.name, item.is_key) for item in self.items)

    @property
    def is_on_demand(self) -> bool:
        """Whether the query has no SLIDE: it emits no results, and lookups answer it."""
        return False

    @property
    def is_standing(self) -> bool:
        """Whether the query has SLIDE: it emits the results of its windows."""
        return not self.is_on_demand

    @property
    def has_bounds(self) -> bool:
        """Whether the query answers with intervals instead of values."""
        return False

    def on_demand(self, using: Using) -> OnDemandQuery:
        """The same query as an on-demand query with this structure; its windows end at every tick."""
        values = {each.name: getattr(self, each.name) for each in fields(Query)}
        return OnDemandQuery(**values, using=using)

    @cached_property
    def estimated(self) -> tuple[Item, ...]:
        """The items whose final values are estimated while windows are open: numbers that are no GROUP BY columns."""
        if self.emit is None:
            return ()
        return tuple(item for item in self.items if is_number(item.type) and not item.is_key)

    @property
    def item_columns(self) -> dict[str, pa.DataType]:
        """The columns that the items and HAVING read, with their types: keys, aggregates, ends of the window."""
        keys, aggregates = (key.scalar.type for key in self.keys), (call.type for call in self.calls)
        return item_columns(keys, aggregates, self.clock_type)

    def scalars(self) -> Iterator[Scalar]:
        """Every scalar that must be computed for a row, repeats included."""
        yield from scalars_of(self.where)
        for key in self.keys:
            yield key.scalar
        for call in self.calls:
            yield from call.args
            yield from scalars_of(call.where)


@dataclass(frozen=True)
class OnDemandQuery(Query):
    """A query without SLIDE; lookups answer it from the structure that USING and WITHIN name."""

    using: Using = field(default_factory=Using)

    @property
    def is_on_demand(self) -> bool:
        return True

    @property
    def has_bounds(self) -> bool:
        return self.using.structure == "timegram"
