"""The promise of a tuple: an arithmetic expression over estimated counts, columns and numbers.

`SUMMARY.Estimate.Count(item) * price` is `Arithmetic("*", EstimatedCount("s", "item"), Column("s", "price"))`.
A stream is named by its name, not by its alias in the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from transom.columns.arrays import Floats


@dataclass(frozen=True)
class EstimatedCount:
    """The estimated number of a stream's tuples that have the tuple's value of a summarized column.

    If the stream is joined with itself, `occurrence` is 0 for the first in FROM, and 1 for the second.
    """

    stream: str
    column: str
    occurrence: int = 0


@dataclass(frozen=True)
class Column:
    """The tuple's value of a numeric column."""

    stream: str
    column: str


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Arithmetic:
    """Two operands and one of `+ - * /`; a division by zero is 0."""

    op: str
    left: Promise
    right: Promise


Promise = EstimatedCount | Column | Number | Arithmetic


def leaves(promise: Promise) -> Iterator[EstimatedCount | Column]:
    """The counts and columns in a promise."""
    if isinstance(promise, Arithmetic):
        yield from leaves(promise.left)
        yield from leaves(promise.right)
    elif not isinstance(promise, Number):
        yield promise


def promise_name(promise: Promise) -> str:
    """A name of a promise, the same for equal promises only.

    >>> promise_name(Arithmetic("*", EstimatedCount("s", "item"), Column("s", "price")))
    '(Count(s.item) * s.price)'
    """
    match promise:
        case Number(value):
            return repr(value)
        case Arithmetic(op, left, right):
            return f"({promise_name(left)} {op} {promise_name(right)})"
        case EstimatedCount(stream, column):
            return f"Count({stream}.{column})"
    return f"{promise.stream}.{promise.column}"


def counts(promise: Promise, stream: str, column: str) -> bool:
    """Whether a promise counts the values of a column.

    >>> counts(Arithmetic("*", EstimatedCount("s", "item"), Number(2.0)), "s", "item")
    True
    """
    return EstimatedCount(stream, column) in leaves(promise)


def promised(promise: Promise, values_of: Callable[[EstimatedCount | Column], Floats]) -> Floats:
    """The promise of each tuple; `values_of` returns the values of a count or a column.

    >>> twice = Arithmetic("*", Number(2.0), EstimatedCount("store1", "item"))
    >>> promised(twice, lambda leaf: np.array([1.0, 3.0])).tolist()
    [2.0, 6.0]
    """
    match promise:
        case Number(value):
            return np.float64(value)  # type: ignore[return-value]  # NumPy broadcasts it
        case Arithmetic(op, left, right):
            first, second = promised(left, values_of), promised(right, values_of)
            if op == "/":
                with np.errstate(divide="ignore", invalid="ignore"):
                    return np.where(second == 0, 0.0, first / second)
            return {"+": np.add, "-": np.subtract, "*": np.multiply}[op](first, second)
    return values_of(promise)
