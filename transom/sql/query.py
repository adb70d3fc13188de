"""A bound query: the output of the SQL front, and the input of the planner.

Scalar expressions stay Spark SQL text in one canonical spelling, so that equal expressions of
different queries are equal strings and are computed once. In that text a stream's column is
`` `price` ``, a joined table's column is `` `closing#1a2b3c4d.cp` `` and its match flag
`` `closing#1a2b3c4d` `` (see `Join.id`). Types are Arrow types.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Collection, Iterable, Iterator

import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.types import is_number
from transom.elements import (
    AlertTerms,
    BackfillStart,
    Clock,
    ClockKind,
    Emit,
    EmptyWindows,
    Using,
    WindowSpec,
)
from transom.sql.derived_stream import DerivedStream
from transom.sql.item_columns import is_key_reference, item_columns
from transom.sql.promise import Promise

if TYPE_CHECKING:
    from transom.sql.early_decision import EarlyDecision


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
class ColumnBound:
    """A condition of a range join: a column of the table is at most, or at least, an expression over the row."""

    column: str
    is_least: bool  # whether the column is at least the expression
    sql: str


@dataclass(frozen=True)
class Join:
    """A static table joined to the stream: LEFT always, an INNER JOIN adds its flag to `where`.

    `on` is the whole condition in canonical text, in which the table's own columns are
    `` `<id>.column` ``; `keys` are the table's columns that the condition equates with something
    of the stream's (or of an earlier table's) row. `bounds` are conditions by which rows of the table can be
    found in an index; they may be wider than the condition.

    A join that `is_membership` (SEMI and ANTI JOIN, IN and EXISTS) repeats no row, and adds no column but its flag.
    `apart` is the condition of such a join that no comparison links to the table: a part over the row, and a part
    over the table.
    """

    id: str  # table name # first 8 hex digits of a hash of table and condition
    table: str
    on: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]  # the table's columns that the query reads, beside the keys
    bounds: tuple[ColumnBound, ...] = ()
    is_membership: bool = False
    apart: tuple[str, str] | None = None


def merged_table_joins(joins: Iterable[Join]) -> Iterator[Join]:
    """Joins of several queries with static tables, each once, with all columns that any of them reads."""
    merged: dict[str, Join] = {}
    for join in joins:
        earlier = merged.get(join.id, join)
        if join.id not in merged or not set(join.columns) <= set(earlier.columns):
            columns = tuple(dict.fromkeys((*earlier.columns, *join.columns)))
            merged[join.id] = replace(earlier, columns=columns)
    yield from merged.values()


JOIN_TIME = "join_time"  # the column of a pair with the later time of its two rows


@dataclass(frozen=True)
class JoinSide:
    """One of the two streams of a join.

    `keys` are texts over the stream's own rows. In a pair, its columns are named `` `<prefix>.column` ``. `filters`
    are conditions over its own rows: a row that satisfies none of them is in no result. None: any row may be.
    `condition` is the part of ON that reads only this stream, if the join is not an inner join: a row that does not
    satisfy it has no partner.
    """

    stream: str
    prefix: str
    time: str  # the column of its time
    keys: tuple[Scalar, ...]
    columns: tuple[tuple[str, pa.DataType], ...]  # that the query reads
    filters: frozenset[str] | None = None
    condition: str | None = None


PAIR_COUNT = "pairs"  # the column of combined pairs with their number


@dataclass(frozen=True)
class CombinedKey:
    """A column of combined pairs with a key of the join that queries group by."""

    number: int  # of the key in the join
    name: str
    type: pa.DataType


class CombinedPart(StrEnum):
    """What is known of the values of combined pairs."""

    COUNT = "count"  # of values that are not null
    SUM = "sum"  # as SUM adds up: integers in 64 bits
    TOTAL = "total"  # as AVG adds up: in doubles
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class CombinedValue:
    """A column of combined pairs: a part of the values of an expression over the rows of one side."""

    place: int  # of the side
    sql: str  # over the side's own rows
    input: pa.DataType
    part: CombinedPart

    @property
    def name(self) -> str:
        return f"{self.part} of {self.place} {self.sql}"

    @property
    def type(self) -> pa.DataType:
        if self.part is CombinedPart.COUNT:
            return pa.int64()
        if self.part in (CombinedPart.MIN, CombinedPart.MAX):
            return self.input
        is_integer = pa.types.is_integer(self.input) and self.part is CombinedPart.SUM
        return pa.int64() if is_integer else pa.float64()


class JoinForm(StrEnum):
    """What the rows of a join of two streams are."""

    INNER = "inner"  # pairs
    OUTER = "outer"  # pairs, and rows of the preserved sides without a partner
    SEMI = "semi"  # rows of the preserved side with a partner, each once
    ANTI = "anti"  # rows of the preserved side without a partner


@dataclass(frozen=True)
class StreamJoin:
    """Two streams joined by keys and within a time bound. The pairs are the rows of the stream `id`.

    Two rows are a pair if their keys are equal and the second time is from `low` to `high` later than the first.
    Equal joins of several queries have the same id, whichever columns the queries read.

    `condition` is the rest of ON, over the columns of a pair, if the join is not an inner join: two rows that do not
    satisfy it are no pair. The rest of ON of an inner join is part of WHERE.

    With `values`, the rows of the stream are combined pairs: those of one row with all its earlier partners. Their
    columns are the keys, the number of pairs, and these values.
    """

    id: str
    first: JoinSide
    second: JoinSide
    low: int
    high: int
    kind: ClockKind
    time_type: pa.DataType  # of a pair's time
    form: JoinForm = JoinForm.INNER
    preserved: tuple[bool, bool] = (False, False)  # sides whose rows are results by themselves
    condition: str | None = None
    values: tuple[CombinedValue, ...] | None = None
    combined_keys: tuple[CombinedKey, ...] = ()

    @property
    def is_combined(self) -> bool:
        """Whether the rows of the stream are combined pairs."""
        return self.values is not None

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Both streams."""
        return self.first, self.second

    @property
    def pair_columns(self) -> dict[str, pa.DataType]:
        """The columns of a pair that the query reads, and its time."""
        if self.values is not None:
            keys = {key.name: key.type for key in self.combined_keys}
            combined = {PAIR_COUNT: pa.int64(), **{value.name: value.type for value in self.values}}
            return keys | combined | {JOIN_TIME: self.time_type}
        columns = {f"{side.prefix}.{name}": kind for side in self.sides for name, kind in side.columns}
        return columns | {JOIN_TIME: self.time_type}

    @property
    def clock(self) -> Clock:
        """The clock of the stream of pairs."""
        return Clock(self.id, JOIN_TIME, self.kind)

    @property
    def condition_texts(self) -> list[str]:
        """The conditions of ON that decide which rows have a partner, beside keys and bound."""
        texts = (self.first.condition, self.second.condition, self.condition)
        return [text for text in texts if text is not None]

    def reach(self, place: int) -> tuple[int, int]:
        """How much later than a row of a side its pairs are, at least and at most."""
        least, most = (self.low, self.high) if place == 0 else (-self.high, -self.low)
        return max(least, 0), max(most, 0)

    def partner_times(self, place: int, times: Ints) -> tuple[Ints, Ints]:
        """The first and the last time that the partners of rows of a side can have."""
        if place == 0:
            return times + self.low, times + self.high
        return times - self.high, times - self.low

    @property
    def wait(self) -> int:
        """How long windows wait for rows of which it is not known yet whether they have a partner."""
        return max((self.reach(place)[1] for place in (0, 1) if self.preserved[place]), default=0)


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

    @property
    def key_place(self) -> int:
        """The place among the keys of the group column that the item is."""
        return int(self.sql.strip("`")[1:])


@dataclass(frozen=True)
class OrderKey:
    """An expression of ORDER BY: text over the same columns as the items, its type, and the direction."""

    sql: str
    type: pa.DataType
    is_descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class Top:
    """ORDER BY ... LIMIT: the first rows of each window. Rows that are equal in this order are ordered by group.

    With ties, rows that are equal in the order to the last of them are also among them.
    """

    limit: int
    order: tuple[OrderKey, ...]
    with_ties: bool = False


@dataclass(frozen=True)
class Lag:
    """A value of an earlier window of the same group: of a call, or, if `call` is None, whether there is a result.

    `windows` is how many windows earlier it is.
    """

    call: int | None
    windows: int


@dataclass(frozen=True)
class OverloadPreference:
    """ON OVERLOAD PREFER: which rows to process first when a batch is beyond the budget."""

    order: str
    promise: Promise


@dataclass(frozen=True)
class Query:
    """A standing window-aggregate query, bound to a stream; the engine emits its results.

    The subclass `OnDemandQuery` is a query without SLIDE, and `RowQuery` one without a window.
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
    lags: tuple[Lag, ...] = ()  # LAG: values of earlier windows that the items read
    emit: Emit | None = None  # EMIT EARLY: when early results are emitted
    empty: EmptyWindows | None = None  # EMIT EMPTY: windows without rows have results
    corrections: int | None = None  # EMIT CORRECTIONS WITHIN: how long late rows correct closed windows
    early_decision: EarlyDecision | None = None  # WITH CONFIDENCE: HAVING is decided while windows are open
    overload: OverloadPreference | None = None  # ON OVERLOAD PREFER
    alert: AlertTerms | None = None  # ALERT
    backfill: BackfillStart | None = None  # BACKFILL: retained rows are replayed when it is registered
    as_of: str | int | None = None  # AS OF: where the window ends that a lookup asks for
    stream_join: StreamJoin | None = None  # the join of two streams whose pairs it reads
    derived: DerivedStream | None = None  # the stream, if it is derived from other streams
    pairs_query: Query | None = None  # the same query over pairs, if it reads combined pairs

    @property
    def over_pairs(self) -> Query:
        """The query as it is written: over pairs, if it reads combined pairs."""
        return self if self.pairs_query is None else self.pairs_query

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads: one, or the two that it joins."""
        if self.stream_join is None:
            return (self.stream,)
        return tuple(dict.fromkeys(side.stream for side in self.stream_join.sides))

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
    def is_row_query(self) -> bool:
        """Whether the query has no window: each row that satisfies it is a result."""
        return False

    @property
    def has_bounds(self) -> bool:
        """Whether the query answers with intervals instead of values."""
        return False

    def row_query(self) -> RowQuery:
        """The same query without its window: its keys are the columns of its results."""
        return RowQuery(**{each.name: getattr(self, each.name) for each in fields(Query)})

    def on_demand(self, using: Using) -> OnDemandQuery:
        """The same query as an on-demand query with this structure; its windows end at every tick."""
        values = {each.name: getattr(self, each.name) for each in fields(Query)}
        return OnDemandQuery(**values, using=using)

    @property
    def is_projected(self) -> bool:
        """Whether early results have estimates of final values: not for windows with SESSION or PARTITION BY.

        The length of an open session is not known, so the estimates of its values are null.
        """
        return self.emit is not None and self.window.is_shared_by_groups

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
        return item_columns(keys, aggregates, self.clock_type, self.lag_types)

    @property
    def lag_types(self) -> list[pa.DataType]:
        """The types of the values of earlier windows."""
        return [pa.bool_() if lag.call is None else self.calls[lag.call].type for lag in self.lags]

    @property
    def reads_earlier_windows(self) -> bool:
        """Whether the results of a window depend on the windows before it: such windows close in order."""
        return bool(self.lags) or self.empty is not None

    @property
    def retention(self) -> int:
        """How long, on its clock, the slices of closed windows are retained for corrections; mostly not at all."""
        return 0 if self.corrections is None else self.corrections

    @property
    def most_empty(self) -> int:
        """How many windows without rows are reported in a row, for each group."""
        return 0 if self.empty is None else self.empty.most(self.window.slide)

    def scalars(self) -> Iterator[Scalar]:
        """Every scalar that must be computed for a row, repeats included."""
        yield from scalars_of(self.where)
        for key in self.keys:
            yield key.scalar
        for call in self.calls:
            yield from call.args
            yield from scalars_of(call.where)

    @cached_property
    def scalar_texts(self) -> tuple[str, ...]:
        """The SQL of these scalars, each once."""
        return tuple(dict.fromkeys(scalar.sql for scalar in self.scalars()))


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


@dataclass(frozen=True)
class RowQuery(Query):
    """A query without a window: each row that satisfies WHERE is a result, at once and exactly once.

    Its keys are the different expressions of its SELECT list, its items refer to them, and its clock is the event time
    of its stream. It has no aggregates. Its window means nothing.
    """

    @property
    def is_standing(self) -> bool:
        return False

    @property
    def is_row_query(self) -> bool:
        return True

    @property
    def selected(self) -> tuple[tuple[str, bool], ...]:
        return tuple((item.name, False) for item in self.items)
