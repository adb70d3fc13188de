"""Aggregates of a program, as four plain Python functions: `identity`, `lift`, `combine` and `lower`.

They work on one value and one state at a time. The laws that sharing rests on are checked with sample values when an
aggregate is registered.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar

import pyarrow as pa

from transom.aggregates.accumulators import AccumulatorTraits, Codes, States
from transom.aggregates.table import (
    AggregateFunction,
    Parameters,
    aggregate_functions,
    register_aggregate,
    unregister_aggregate,
)
from transom.columns.type_ids import type_id
from transom.errors import SettingError

MOST_SAMPLES = 8  # of which each three are combined


@dataclass(frozen=True)
class PythonAlgebra:
    """An accumulator whose states are values of one type, made by Python functions."""

    traits: ClassVar = AccumulatorTraits()

    name: str
    state: pa.DataType
    returns: pa.DataType = field(compare=False)
    empty: Any = field(compare=False)  # the identity
    of_value: Callable[[Any], Any] = field(compare=False)
    of_states: Callable[[Any, Any], Any] = field(compare=False)
    result: Callable[[Any], Any] = field(compare=False)

    @property
    def label(self) -> str:
        return self.name

    @property
    def id(self) -> str:
        return f"python {self.name}({type_id(self.state)})"

    def types(self) -> list[pa.DataType]:
        return [self.state]

    def identity(self) -> list[object]:
        return [None]

    def lift(self, values: pa.Array, codes: Codes, groups: int) -> States:
        pairs = zip(codes.tolist(), values.to_pylist(), strict=True)
        return self._merged(
            ((code, self.of_value(value)) for code, value in pairs if value is not None), groups
        )

    def combine(self, states: States, codes: Codes, groups: int) -> States:
        pairs = zip(codes.tolist(), states[0].to_pylist(), strict=True)
        return self._merged(((code, state) for code, state in pairs if state is not None), groups)

    def _merged(self, states: Iterator[tuple[int, Any]], groups: int) -> States:
        merged: dict[int, Any] = {}
        for code, state in states:
            merged[code] = self.of_states(merged[code], state) if code in merged else state
        return [pa.array([merged.get(code) for code in range(groups)], self.state)]

    def lower(self, states: Sequence[States], type: pa.DataType, parameters: Parameters) -> pa.Array:
        """The results; a group without values has that of the identity."""
        found = states[0][0].to_pylist()
        return pa.array([self.result(self.start() if state is None else state) for state in found], type)

    def start(self) -> Any:
        """The identity, for functions that change what they are given."""
        return copy.deepcopy(self.empty)

    def stored(self, state: Any) -> Any:
        """A state as it comes back from where states are kept."""
        return pa.array([state], self.state)[0].as_py()


@dataclass(frozen=True)
class PythonAggregate(AggregateFunction):
    """An entry of the table that tasks receive by value, because no module registers it."""

    algebra: PythonAlgebra | None = None

    def __reduce__(self) -> Any:
        return _received, (self.algebra,)


def _received(algebra: PythonAlgebra) -> AggregateFunction:
    """The function of a task: that of this process if there is one."""
    known = next((each for each in aggregate_functions() if each.name == algebra.name), None)
    return register_aggregate(_entry(algebra)) if known is None else known


def _entry(algebra: PythonAlgebra) -> PythonAggregate:
    return PythonAggregate(
        name=algebra.name,
        result_type=lambda kind, parameters: algebra.returns,
        accumulators=lambda kind, parameters: (algebra,),
        lower=algebra.lower,
        empty=algebra.result(algebra.start()),
        algebra=algebra,
    )


def register_python_aggregate(algebra: PythonAlgebra, samples: Sequence[Any]) -> None:
    """Add an aggregate that obeys the laws on sample values; one of the same name that was added so is replaced."""
    check_laws(algebra, samples)
    earlier = next((each for each in aggregate_functions() if each.name == algebra.name), None)
    if isinstance(earlier, PythonAggregate):
        unregister_aggregate(algebra.name)
    register_aggregate(_entry(algebra))


# --- the laws --------------------------------------------------------------------------------------


def check_laws(algebra: PythonAlgebra, samples: Sequence[Any]) -> None:
    """Raise an error that shows the values for which a law does not hold."""
    if not isinstance(samples, Sequence) or len(samples) < 3:
        raise SettingError(f"{algebra.name} needs at least three sample values, to check its laws with them")
    laws = _Laws(algebra)
    for value in samples:
        state = laws.lifted(value)
        laws.expect(
            "lift and the type of its state", laws.lower(state), laws.lower(algebra.stored(state)), value
        )
        for sides in ((algebra.start(), state), (state, algebra.start())):
            laws.expect("the identity", laws.lower(state), laws.lower(laws.combined(*sides)), value)
    values = list(samples)[:MOST_SAMPLES]
    for a, b in product(values, repeat=2):
        states = [laws.lifted(a), laws.lifted(b)]
        there, back = laws.combined(*states), laws.combined(*reversed(states))
        laws.expect("commutativity of combine", laws.lower(there), laws.lower(back), a, b)
    for a, b, c in product(values, repeat=3):
        left = laws.combined(laws.combined(laws.lifted(a), laws.lifted(b)), laws.lifted(c))
        right = laws.combined(laws.lifted(a), laws.combined(laws.lifted(b), laws.lifted(c)))
        laws.expect("associativity of combine", laws.lower(left), laws.lower(right), a, b, c)


class _Laws:
    """Calls the functions of an algebra, and says which of them fails."""

    def __init__(self, algebra: PythonAlgebra):
        self.algebra = algebra

    def lifted(self, value: Any) -> Any:
        return self._called("lift", self.algebra.of_value, copy.deepcopy(value))

    def combined(self, left: Any, right: Any) -> Any:
        states = [self._called("the type of the state", self.algebra.stored, each) for each in (left, right)]
        return self._called("combine", self.algebra.of_states, *states)

    def lower(self, state: Any) -> Any:
        stored = self._called("the type of the state", self.algebra.stored, state)
        result = self._called("lower", self.algebra.result, stored)
        kind = self.algebra.returns
        return self._called(
            "the type of the result", lambda value: pa.array([value], kind)[0].as_py(), result
        )

    def expect(self, law: str, left: Any, right: Any, *values: Any) -> None:
        if not _alike(left, right):
            shown = ", ".join(map(repr, values))
            raise SettingError(
                f"the aggregate {self.algebra.name} breaks a law, {law}: for {shown} one way gives {left!r}, the "
                f"other {right!r}"
            )

    def _called(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            shown = ", ".join(map(repr, args))
            message = f"the aggregate {self.algebra.name} fails in {what} for {shown}: {error!r}"
            raise SettingError(message) from error


def _alike(left: Any, right: Any) -> bool:
    """Equal, floats up to rounding; NaN is NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return (left != left and right != right) or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_alike, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[key], right[key]) for key in left)
    return bool(left == right)
