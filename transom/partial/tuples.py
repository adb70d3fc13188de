"""Tuples of a page on their way into a family's slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.algorithms.grouping import Groups
from transom.algorithms.slicing import Slices
from transom.plan.families import Family

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Ranges:
    """Which fragments each member asks for: half-open runs of codes, in the order of the members."""

    owners: Numbers
    starts: Numbers
    stops: Numbers

    def of(self, chosen: Mask) -> Ranges:
        return Ranges(self.owners[chosen], self.starts[chosen], self.stops[chosen])


@dataclass(frozen=True)
class Fragmented:
    """Tuples with their fragments: `codes` below `count`; those below `ordered` follow a scalar's values."""

    codes: Numbers | None  # None: there is only one
    count: int
    ordered: int
    ranges: Ranges

    def among(self, chosen: Mask, tuples: int) -> Mask:
        """Which tuples have a fragment in one of the chosen ranges."""
        borders = np.zeros(self.count + 1, np.int64)
        np.add.at(borders, self.ranges.starts[chosen], 1)
        np.add.at(borders, self.ranges.stops[chosen], -1)
        asked = np.cumsum(borders)[:-1] > 0
        return asked[self.codes] if self.codes is not None else np.full(tuples, asked[0])

    def counts(self, tuples: int) -> Numbers:
        """How many tuples each range holds."""
        if self.codes is None:
            return np.full(len(self.ranges.owners), tuples)
        upto = np.r_[0, np.cumsum(np.bincount(self.codes, minlength=self.count))]
        return upto[self.ranges.stops] - upto[self.ranges.starts]


@dataclass(frozen=True)
class Tuples:
    """The tuples of a page that may belong to a family.

    `values[i]` is what the family's i-th slot accumulates, and `shown[i]` which tuples it is shown.
    """

    times: Numbers
    in_order: bool
    fragments: Fragmented
    groups: Groups | None  # None: there is only one
    keys: Sequence[pa.Array]  # one row a group
    values: Sequence[pa.Array]
    shown: Sequence[Mask | None]

    def __len__(self) -> int:
        return len(self.times)

    @property
    def group_count(self) -> int:
        return 1 if self.groups is None else self.groups.count


def matching(tuples: Tuples, member: int) -> Mask:
    """Which tuples a member asks for."""
    return tuples.fragments.among(tuples.fragments.ranges.owners == member, len(tuples))


def heads(
    family: Family, tuples: Tuples, cut: Slices, owners: Numbers, own: Numbers, groups: Numbers
) -> list[pa.Array]:
    """The first columns of a sheet's rows, selection, slice, stop and keys: from numbers of members, of their
    slices and of groups."""
    keys = pa.array(groups)
    return [
        pa.array(family.ids[owners]),
        pa.array(cut.starts[own]),
        pa.array(cut.stops[own]),
        *(key.take(keys) for key in tuples.keys),
    ]
