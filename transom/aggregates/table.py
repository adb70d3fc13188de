"""The table of SQL's aggregate functions: one entry says everything about a function.

The SQL front reads names, arguments and result types from it, the planner accumulators, the results `lower`,
and every other package a trait. `register_aggregate` adds an aggregate; nothing else needs to change:

    from transom.aggregates import table
    from transom.aggregates.accumulators import Extreme

    table.register_aggregate(
        table.AggregateFunction(
            name="spread",
            result_type=lambda kind, parameters: pa.float64(),
            accumulators=lambda kind, parameters: (Extreme(kind, "max"), Extreme(kind, "min")),
            lower=lambda states, type, parameters: pc.subtract(states[0][0], states[1][0]).cast(type),
        )
    )
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, States
from transom.errors import SettingError

Parameters = tuple[Any, ...]
ResultType = Callable[[pa.DataType | None, Parameters], pa.DataType | str]
Accumulators = Callable[[pa.DataType | None, Parameters], tuple[Accumulator, ...]]
Lower = Callable[[Sequence[States], pa.DataType, Parameters], pa.Array]


@dataclass(frozen=True)
class Parameter:
    """A constant that a call takes after its arguments, as the accuracy of a percentile.

    `read` takes a number, or a tuple of numbers that was written as `array(...)`, and returns the value that
    the function works with; it returns None for a constant that is not allowed. `rule` is the error message
    for those. A parameter without a default must be written.
    """

    rule: str
    read: Callable[[Any], Any]
    default: Any = None
    is_written: bool = True  # False: the SQL front sets it
    setting: str | None = None  # what it is set to then: `descending` of WITHIN GROUP, or one of the limits


class AnswerInterval(StrEnum):
    """The kinds of answers of a TimeGram, which knows values to within their buckets."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "avg"
    LEAST = "min"
    GREATEST = "max"


@dataclass(frozen=True)
class ExactForm:
    """The exact function that an approximate function is if its first parameter has this value.

    `rule` is the error message for other values.
    """

    parameter: object
    function: str
    rule: str


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate function of SQL, with its types, its algebra and its traits.

    `result_type` and `accumulators` take the type of the first argument, None if there is none. What
    `result_type` returns as text is the reason why the function does not take that type, and follows the
    function's name in the error message. `lower` reads the results off the states of the accumulators.
    """

    name: str
    result_type: ResultType
    accumulators: Accumulators
    lower: Lower
    aliases: tuple[str, ...] = ()
    star_of: str | None = None  # it is this function called with `*`, and can't be written by its own name
    distinct_of: str | None = None  # it is this function called with DISTINCT, and has no name of its own
    ignores_repeats: bool = False  # DISTINCT changes nothing
    packs: tuple[str, ...] = ()  # its arguments are the fields of one struct, by these names
    by_time: bool = False  # the struct has the row's time as another field, `t`, before them
    within_group: tuple[str, ...] = ()  # names with which WITHIN GROUP (ORDER BY x) gives the argument
    takes_more: bool = False  # rows count only if further arguments are not null, as in count(a, b)
    parameters: tuple[Parameter, ...] = ()
    empty: object = None  # the value over no rows
    with_preference: bool = False  # queries WITH PREFERENCE may use it
    is_additive: bool = False  # the values over disjoint rows add up to the value over all of them
    grows: bool = False  # more rows make it larger in proportion, so that early values can be scaled
    is_extreme: bool = False  # OrderedSharing answers it
    interval: AnswerInterval | None = None  # the interval with which a TimeGram answers it; None: it can't
    exact_form: ExactForm | None = None  # how a query WITH PREFERENCE computes it, if it is an approximation

    @property
    def sql_name(self) -> str:
        """The name that a query calls it by."""
        return self.star_of or self.distinct_of or self.name

    @property
    def sql_names(self) -> tuple[str, ...]:
        """All names that a query may call it by; `count(*)` and `count(DISTINCT x)` are looked up as `count`."""
        has_name = self.star_of is None and self.distinct_of is None
        return (self.name, *self.aliases) if has_name else ()

    @property
    def needed_arguments(self) -> int:
        """How many arguments and parameters a call has at least."""
        return max(1, len(self.packs)) + sum(parameter.default is None for parameter in self.parameters)

    @property
    def most_arguments(self) -> int | None:
        """How many arguments and parameters a call has at most; None: any number."""
        written = sum(parameter.is_written for parameter in self.parameters)
        return None if self.takes_more else max(1, len(self.packs)) + written

    def over(self, values: pa.Array, type: pa.DataType, parameters: Parameters = ()) -> object:
        """Its value over all of some values."""
        codes = np.zeros(len(values), np.int64)
        accumulators = self.accumulators(values.type, parameters)
        states = [accumulator.lift(values, codes, 1) for accumulator in accumulators]
        return self.lower(states, type, parameters).cast(type, safe=False)[0].as_py()

    def __reduce__(self) -> tuple[Callable[[str, str], AggregateFunction], tuple[str, str]]:
        """Executors receive the name, and import the module that registers the function."""
        return _restored, (self.name, self.lower.__module__)


@dataclass(frozen=True)
class Spelling:
    """A name for a call of another function, as `count_if(c)` is `count(*) FILTER (WHERE c)`.

    `arguments` are the places of the arguments that the function gets, `condition` is the place of the one that
    rows must fulfil.
    """

    name: str
    function: str
    count: int  # of its arguments
    arguments: tuple[int, ...] = ()
    condition: int | None = None


_spellings: dict[str, Spelling] = {}
_table: dict[str, AggregateFunction] = {}
_by_sql_name: dict[str, AggregateFunction] = {}


def register_aggregate(function: AggregateFunction) -> AggregateFunction:
    """Add an aggregate function that queries may call from now on.

    On a cluster, call it when a module is imported that executors have, too: they import the module of the
    function's `lower`.
    """
    for name in (function.name, *function.sql_names):
        if not name.isidentifier() or name != name.lower():
            raise SettingError(f"{name!r} can't name an aggregate: use lowercase letters, digits and _")
        if name in _table or name in _by_sql_name or name in _spellings:
            raise SettingError(f"there is an aggregate {name} already")
    if function.takes_more and function.parameters:
        raise SettingError(f"{function.name} takes any number of arguments, so that it can't have parameters")
    _table[function.name] = function
    _by_sql_name.update(dict.fromkeys(function.sql_names, function))
    return function


def register_spelling(spelling: Spelling) -> None:
    """Add a name for a call of another function."""
    _spellings[spelling.name] = spelling


def spelling_of(sql_name: str) -> Spelling | None:
    """The call that a name, lowercase, stands for; None: that is no such name."""
    return _spellings.get(sql_name)


def unregister_aggregate(name: str) -> None:
    """Remove an aggregate function; queries that use it must be dropped before."""
    for sql_name in aggregate_function(name).sql_names:
        del _by_sql_name[sql_name]
    del _table[name]


def aggregate_function(name: str) -> AggregateFunction:
    """The function of a call in a bound query."""
    if name not in _table:
        raise SettingError(f"there is no aggregate {name}")
    return _table[name]


def aggregate_functions() -> Iterator[AggregateFunction]:
    """All functions, in the order in which they were registered."""
    return iter(tuple(_table.values()))


def called_function(sql_name: str) -> AggregateFunction | None:
    """The function that some query calls by a name, lowercase; None: that is no aggregate."""
    return _by_sql_name.get(sql_name)


def is_aggregate_name(sql_name: str) -> bool:
    """Whether a window query can call an aggregate by a name, lowercase."""
    return sql_name in _spellings or sql_name in _by_sql_name


def window_function_names() -> list[str]:
    """All names by which a window query can call an aggregate."""
    return [*_by_sql_name, *_spellings]


def star_form(function: AggregateFunction) -> AggregateFunction | None:
    """What a function is when it is called with `*`; None: it can't be."""
    return next((other for other in _table.values() if other.star_of == function.name), None)


def distinct_function(function: AggregateFunction) -> AggregateFunction | None:
    """What a function is when it is called with DISTINCT; None: it can't be."""
    if function.ignores_repeats:
        return function
    return next((other for other in _table.values() if other.distinct_of == function.name), None)


def listed(functions: Sequence[AggregateFunction]) -> str:
    """The names of functions in a sentence.

    >>> listed([aggregate_function(name) for name in ("count_rows", "count", "min", "max")])
    'count, min and max'
    """
    names = list(dict.fromkeys(function.sql_name for function in functions))
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _restored(name: str, module: str) -> AggregateFunction:
    if name not in _table:
        importlib.import_module(module)
    return aggregate_function(name)
