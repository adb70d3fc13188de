"""A bound query WITH PREFERENCE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from transom.elements import Preference
from transom.sql.promise import EstimatedCount, Promise, promise_name
from transom.sql.query import Predicate, Scalar


@dataclass(frozen=True)
class Side:
    """A stream of a preference query: its summary, the conditions on its tuples alone, and the kept columns.

    `guide` is the part of `where` that reads only the summarized column, so that the summary can evaluate it.
    Both read the stream's columns, `` `item` ``. `columns` are the columns that conditions, outputs, figures and
    the promise read.
    """

    stream: str
    summary: str
    where: Predicate | None = None
    guide: Predicate | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """A column of the result: Spark SQL over the sides' columns, named `` `0.item` ``, `` `1.ts` ``."""

    name: str
    sql: str
    type: pa.DataType


@dataclass(frozen=True)
class Figure:
    """An aggregate over the selected tuples: a function of the table that is allowed WITH PREFERENCE.

    The scalar reads the stream's columns, like `Side.where`; without a scalar, the figure counts tuples.
    """

    name: str
    function: str
    argument: Scalar | None
    type: pa.DataType


@dataclass(frozen=True)
class PreferenceQuery:
    """One side: a selection, or aggregates (`figures`) over one. Two sides: a window join on their summaries'
    columns; `rest` is the condition on a pair beside that, over the columns that `outputs` are over."""

    sides: tuple[Side, ...]
    preference: Preference
    promise: Promise
    outputs: tuple[Output, ...] = ()
    figures: tuple[Figure, ...] = ()
    rest: str | None = None
    functions: frozenset[str] = frozenset()  # user-defined functions it calls

    @property
    def bound(self) -> PreferenceQuery:
        """The query itself: it runs as it is bound."""
        return self

    @cached_property
    def samples(self) -> bool:
        """Whether its aggregates are over an even sample of the selected tuples, and are estimates for all of them."""
        return bool(self.figures) and self.is_even

    @cached_property
    def is_even(self) -> bool:
        """Whether a budget draws an even sample of the tuples that it selects."""
        is_plain = isinstance(self.promise, EstimatedCount) and self.preference.fade == 1
        return len(self.sides) == 1 and self.preference.order == "weighted" and is_plain

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
        return f"{promise_name(self.promise)} in {self.preference.window}"

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of its sides."""
        return tuple(side.stream for side in self.sides)

    @property
    def selected(self) -> tuple[tuple[str, bool], ...]:
        """The names of its outputs and aggregates; none is a group column."""
        names = [*(output.name for output in self.outputs), *(figure.name for figure in self.figures)]
        return tuple((name, False) for name in names)
