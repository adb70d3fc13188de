"""Closed time of many groups, as arrays: for each value of a column, the time before which everything is closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints
from transom.windows.intervals import LOWEST


@dataclass(frozen=True, eq=False)
class GroupClosings:
    """By value of a column, until when it is closed; LOWEST if nothing is.

    `values` is the same object from batch to batch while no group is new. Times of groups never go back.
    """

    column: str
    values: pa.Array
    until: Ints

    @cached_property
    def latest(self) -> int:
        """The latest time that is closed for any group."""
        return int(self.until.max(initial=LOWEST))

    def of_values(self, values: pa.Array) -> Ints:
        """Until when some values are closed; LOWEST for null and for unknown values."""
        known = self.values if self.values.type == values.type else self.values.cast(values.type)
        places = pc.index_in(values, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
        return np.append(self.until, LOWEST)[places]

    def of_each(self, values: Iterable[Any]) -> dict[Any, int]:
        """By value, until when it is closed; LOWEST for None and for unknown values."""
        return {value: self._by_value.get(value, LOWEST) for value in values}

    @cached_property
    def _by_value(self) -> dict[Any, int]:
        return dict(zip(self.values.to_pylist(), self.until.tolist(), strict=True))

    def since(self, before: GroupClosings) -> GroupClosings:
        """These times, or those of an earlier batch where they are later."""
        if before.values is self.values or (
            len(before.until) <= len(self.until) and before.values.equals(self.values[: len(before.until)])
        ):
            earlier = before.until
        else:
            earlier = before.of_values(self.values)
        until = self.until.copy()
        np.maximum(until[: len(earlier)], earlier, out=until[: len(earlier)])
        return GroupClosings(self.column, self.values, until)

    def beyond(self, time: int) -> Iterator[tuple[Any, int]]:
        """The values that are closed beyond a time, and until when."""
        chosen = np.flatnonzero(self.until > time)
        yield from zip(
            self.values.take(pa.array(chosen)).to_pylist(), self.until[chosen].tolist(), strict=True
        )

    def without(self, other: GroupClosings | None) -> GroupClosings:
        """The groups that others do not have."""
        if other is None or other.values is self.values:
            return self if other is None else GroupClosings(self.column, self.values[:0], self.until[:0])
        known = other.values if other.values.type == self.values.type else other.values.cast(self.values.type)
        new = pc.invert(pc.is_in(self.values, value_set=known))
        chosen = np.flatnonzero(new.to_numpy(zero_copy_only=False))
        return GroupClosings(self.column, self.values.take(pa.array(chosen)), self.until[chosen])


class ClockNames:
    """The names of clocks in the order in which they came, with what is derived from them."""

    def __init__(self, names: Sequence[str] = ()):
        self.names = tuple(names)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each name."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def grouped(self) -> Ints:
        """The places of the names that are those of groups: they begin with =."""
        return np.flatnonzero([name.startswith("=") for name in self.names])

    @cached_property
    def texts(self) -> list[str]:
        """The values of the groups, as text."""
        return [self.names[place][1:] for place in self.grouped.tolist()]

    @cached_property
    def _typed(self) -> dict[pa.DataType, pa.Array]:
        return {}

    def values(self, kind: pa.DataType) -> pa.Array:
        """The values of the groups; the same array for the same names."""
        if kind not in self._typed:
            self._typed[kind] = pa.array(self.texts, pa.string()).cast(kind)
        return self._typed[kind]
