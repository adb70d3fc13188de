"""Runs: what structures keep, as columns. A structure is a few of them, and structures merge run by run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Tuples of a page on their way into a structure, in any order.

    `codes` are the groups of the tuples (all 0 without GROUP BY) and `keys` the groups' columns, one row a
    group; `values` is the attribute, None where only times matter.
    """

    times: Numbers
    codes: Numbers
    keys: tuple[pa.Array, ...] = ()
    values: pa.Array | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """Entries by group and time; never changed.

    Group g has entries `bounds[g]` to `bounds[g + 1]`, their `times` ascending. `columns` has a value for
    each entry and `heads` one for each group. A recipe says what they are.
    """

    keys: tuple[pa.Array, ...]
    bounds: Numbers
    times: Numbers
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    heads: Mapping[str, pa.Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a lookup finds: `count` groups that have tuples in the window, and the answers of each by name."""

    keys: tuple[pa.Array, ...]
    count: int
    columns: Mapping[str, pa.Array]


class Recipe(ABC):
    """How tuples become runs, runs become one, and a lookup is answered; it holds no tuples itself."""

    @abstractmethod
    def run(self, batch: Batch) -> Run:
        """A summary of some tuples, made where they are."""

    @abstractmethod
    def merged(self, runs: Sequence[Run], floor: int) -> Run:
        """One run of several, without what is older than `floor`."""

    @abstractmethod
    def lookup(self, runs: Sequence[Run], since: int) -> Found:
        """The answers for the tuples with a time from `since` on."""
