"""A bound query WITH PREFERENCE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from transom.elements import Preference
from transom.sql.promise import Arithmetic, EstimatedCount, Promise, promise_name
from transom.sql.query import Join, Predicate, Scalar


@dataclass(frozen=True)
class Side:
    """A stream of a preference query: its summary, the conditions on its tuples alone, and the kept columns.

    `guide` is the part of `where` that reads only the summarized column, so that the summary can evaluate it.
    Both read the stream's columns, `` `item` ``. `columns` are the columns that conditions, outputs, figures and
    the promise read. Static tables are joined to its tuples when they arrive: `joins`. Their columns are among
    `columns`, with the names that rows have after the join, such as `goods#1c0ffee5.kind`.
    """

    stream: str
    summary: str
    where: Predicate | None = None
    guide: Predicate | None = None
    columns: tuple[str, ...] = ()
    joins: tuple[Join, ...] = ()


@dataclass(frozen=True)
class Output:
    """A column of the result: Spark SQL over the sides' columns, named `` `0.item` ``, `` `1.ts` ``.

    With GROUP BY, it is the key of this number.
    """

    name: str
    sql: str
    type: pa.DataType
    key: int | None = None


@dataclass(frozen=True)
class Figure:
    """An aggregate over the selected tuples or pairs: a function of the table that is allowed WITH PREFERENCE.

    The scalar reads the columns of the side's stream, like `Side.where`, or without a side those of a pair, like
    an `Output`. Without a scalar, the figure counts tuples. A `hidden` figure is in HAVING, but not in SELECT.
    """

    name: str
    function: str
    argument: Scalar | None
    type: pa.DataType
    side: int | None = 0
    hidden: bool = False


@dataclass(frozen=True)
class PreferenceKey:
    """An expression of GROUP BY, over the tuples of one side, or without a side over pairs."""

    scalar: Scalar
    side: int | None = 0


@dataclass(frozen=True)
class OuterJoin:
    """What a join also returns tuples without a partner by.

    `preserved` says of which sides, and `keeps` are the conditions of WHERE that such a tuple meets: they are in
    `Side.where` too. `on` is the condition of ON that reads both sides, and `after` what WHERE says of the rows of the
    join, with nulls for the side without a partner; both are over the columns that `Output.sql` is over, and are in
    `PreferenceQuery.rest` too. `types` are those of each side's columns.
    """

    preserved: tuple[bool, bool]
    keeps: tuple[Predicate | None, Predicate | None] = (None, None)
    on: str | None = None
    after: str | None = None
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]] = ((), ())

    @property
    def form(self) -> str:
        """The join as SQL calls it, such as `left join`."""
        left, right = self.preserved
        return f"{'full' if left and right else 'left' if left else 'right'} join"


@dataclass(frozen=True)
class PreferenceQuery:
    """One side: a selection. Two sides: a window join on their summaries' columns; `rest` is the condition on a pair
    beside that, over the columns that `outputs` are over.

    Aggregates (`figures`) over either have groups by `keys`, and `outputs` are then the keys that are selected.
    `names` is the SELECT list in its order, if it has both. `having` is the condition on a group, over its keys and
    aggregates as `group_column` and `aggregate_column` name them; hidden aggregates are the last ones. An `outer` join
    also returns tuples without a partner.
    """

    sides: tuple[Side, ...]
    preference: Preference
    promise: Promise
    outputs: tuple[Output, ...] = ()
    figures: tuple[Figure, ...] = ()
    rest: str | None = None
    functions: frozenset[str] = frozenset()  # user-defined functions it calls
    keys: tuple[PreferenceKey, ...] = ()
    names: tuple[str, ...] = ()
    having: str | None = None
    outer: OuterJoin | None = None

    @property
    def bound(self) -> PreferenceQuery:
        """The query itself: it runs as it is bound."""
        return self

    @cached_property
    def reported(self) -> tuple[Figure, ...]:
        """The aggregates of SELECT."""
        return tuple(figure for figure in self.figures if not figure.hidden)

    @cached_property
    def is_combined(self) -> bool:
        """Whether its aggregates over a join need no pairs: each condition, key and argument reads one side."""
        sides = [*(figure.side for figure in self.figures), *(key.side for key in self.keys)]
        return len(self.sides) == 2 and bool(self.figures) and self.rest is None and None not in sides

    @cached_property
    def samples(self) -> bool:
        """Whether its aggregates are over an even sample of the tuples or pairs, and are estimates for all of them."""
        return bool(self.figures) and not self.is_combined and (self.is_even or self._is_even_join)

    @cached_property
    def is_even(self) -> bool:
        """Whether it is a selection, and a budget draws an even sample of the tuples that it selects."""
        return len(self.sides) == 1 and self._is_fair and isinstance(self.promise, EstimatedCount)

    @property
    def _is_even_join(self) -> bool:
        """Whether it is a join in which every pair promises the same: the promise is the number of a value's pairs."""
        match self.promise:
            case Arithmetic("*", EstimatedCount() as one, EstimatedCount() as other):
                return len(self.sides) == 2 and self._is_fair and one != other
        return False

    @property
    def _is_fair(self) -> bool:
        return self.preference.order == "weighted" and self.preference.fade == 1

    @property
    def expires(self) -> bool:
        """Whether it is a selection whose tuples leave the answer when they leave the window."""
        return len(self.sides) == 1 and not self.figures and self.preference.window is not None

    @cached_property
    def ranking(self) -> str | None:
        """The name of the order in which a budget takes the values of a batch, if it takes one after the other.

        Selections with the same promise and window have the same order. With `asc` there is none, because the values
        of earlier batches come in between.
        """
        if len(self.sides) == 2 or self.preference.order != "desc":
            return None
        return self.promise_in_window

    @cached_property
    def promise_in_window(self) -> str:
        """A name of its promise and its window: selections with the same have the same promises."""
        return f"{promise_name(self.promise)} in {self.preference.window}"

    @property
    def is_self_join(self) -> bool:
        """Whether a stream is joined with itself: a batch has tuples of both sides."""
        return len(self.sides) == 2 and self.sides[0].stream == self.sides[1].stream

    def meets_own_batch(self, side: int) -> bool:
        """Whether arriving tuples of a side meet those of their own batch: in a self join, from the first side only."""
        return self.is_self_join and side == 0

    def decided_before(self, side: int, late: int | None) -> int | None:
        """The time before which no tuple of a side finds a partner any more, if those of the other side are `late`
        before a time. None: any may."""
        window = self.preference.window
        return None if late is None or window is None else late - window

    def counted_as(self, side: int) -> tuple[str, int]:
        """What the promise calls the stream of a side: its name, and which of the streams of that name it is."""
        return self.sides[side].stream, side if self.is_self_join else 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of its sides, each once."""
        return tuple(dict.fromkeys(side.stream for side in self.sides))

    @property
    def selected(self) -> tuple[tuple[str, bool], ...]:
        """The names of its outputs and aggregates, each with whether it is a group column."""
        are_keys = {output.name: output.key is not None for output in self.outputs}
        are_keys |= {figure.name: False for figure in self.reported}
        return tuple((name, are_keys[name]) for name in self.names or are_keys)
