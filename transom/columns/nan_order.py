"""An order of values in which NaN has a place: above every number, and equal to itself, as Spark has it."""

from __future__ import annotations

import math
from typing import Any


class _Top:
    """Stands for NaN where values are compared: Python asks it when a number does not know the answer."""

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
    """The value itself, or what stands for NaN.

    >>> max([orderable(1.0), orderable(math.nan), orderable(math.inf)])
    NaN
    """
    return TOP if value != value else value


def from_orderable(value: Any) -> Any:
    """The value that was ranked."""
    return math.nan if value is TOP else value
