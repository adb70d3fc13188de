"""An order of values that has NaN above every number and equal to itself, as in Spark."""

from __future__ import annotations

import math
from typing import Any


class _Top:
    """Stands for NaN in comparisons: Python calls its methods when those of a number return NotImplemented."""

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "NaN"


TOP = _Top()


def orderable(value: Any) -> Any:
    """The value, or `TOP` in place of NaN.

    >>> max([orderable(1.0), orderable(math.nan), orderable(math.inf)])
    NaN
    """
    return TOP if value != value else value


def from_orderable(value: Any) -> Any:
    """The value that `orderable` was called with."""
    return math.nan if value is TOP else value
