"""WITH CONFIDENCE as it is bound: the confidence, and HAVING in a form from which margins follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from transom.columns.types import is_number
from transom.sql.query import And, Comparison, Or, Predicate, Scalar, scalars_of

_VARIABLE = re.compile(r"`[al]\d+`")


@dataclass(frozen=True)
class EarlyDecision:
    """How HAVING is decided early.

    `condition` is equivalent to HAVING. It combines its leaves by AND and OR alone: a comparison of an estimated
    number with a constant has a margin, and every other leaf reads nothing but group columns and the window's ends.
    """

    confidence: float
    condition: Predicate

    @cached_property
    def leaves(self) -> tuple[Predicate, ...]:
        """The leaves of the condition, from left to right."""
        return tuple(_leaves(self.condition))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """The expressions that the condition reads, each once."""
        return tuple({scalar.sql: scalar for scalar in scalars_of(self.condition)}.values())


def is_estimated(leaf: Predicate) -> bool:
    """Whether a leaf compares a number that is known only when the window is closed."""
    return isinstance(leaf, Comparison) and is_number(leaf.scalar.type) and not is_fixed(leaf)


def is_fixed(predicate: Predicate) -> bool:
    """Whether a predicate reads no aggregate, so that its truth never changes."""
    return not any(_VARIABLE.search(scalar.sql) for scalar in scalars_of(predicate))


def _leaves(condition: Predicate) -> Iterator[Predicate]:
    if isinstance(condition, And | Or):
        for part in condition.parts:
            yield from _leaves(part)
    else:
        yield condition
