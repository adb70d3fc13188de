"""The promise of a tuple: an arithmetic expression over estimated counts, columns and numbers.

`SUMMARY.Estimate.Count(a.item) * b.price` is `Times(Count("a", "item"), Column("b", "price"))`, with the
streams' own names in place of aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Count:
    """How often the tuple's value of a summarized column is estimated to occur in a stream."""

    stream: str
    column: str


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
    """Two parts with one of `+ - * /` between them; a division by zero is 0."""

    op: str
    left: Promise
    right: Promise


Promise = Count | Column | Number | Arithmetic


def leaves(promise: Promise) -> Iterator[Count | Column]:
    """The counts and columns that a promise is made of."""
    if isinstance(promise, Arithmetic):
        yield from leaves(promise.left)
        yield from leaves(promise.right)
    elif not isinstance(promise, Number):
        yield promise


def counts(promise: Promise, stream: str, column: str) -> bool:
    """Whether a promise counts the values of a column.

    >>> counts(Arithmetic("*", Count("s", "item"), Number(2.0)), "s", "item")
    True
    """
    return Count(stream, column) in leaves(promise)


def promised(promise: Promise, known: Callable[[Count | Column], Floats]) -> Floats:
    """The promises of some tuples, given the values of the counts and columns.

    >>> twice = Arithmetic("*", Number(2.0), Count("store1", "item"))
    >>> promised(twice, lambda leaf: np.array([1.0, 3.0])).tolist()
    [2.0, 6.0]
    """
    match promise:
        case Number(value):
            return np.float64(value)  # type: ignore[return-value]  # spreads over whatever it meets
        case Arithmetic(op, left, right):
            one, other = promised(left, known), promised(right, known)
            if op == "/":
                with np.errstate(divide="ignore", invalid="ignore"):
                    return np.where(other == 0, 0.0, one / other)
            return {"+": np.add, "-": np.subtract, "*": np.multiply}[op](one, other)
    return known(promise)
