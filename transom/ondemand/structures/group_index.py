"""Groups by the values of their columns: a lookup of few groups reads only these.

The first such lookup of a large run sorts the hashes of its groups. Later ones take a binary search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, Mask
from transom.columns.hashes import Hashes, row_hashes
from transom.ondemand.structures.runs import GroupPattern, Run

SCANNED_GROUPS = 2_048  # up to here, comparing all groups is as fast as an index
MAX_COMBINATIONS = 10_000  # of wanted values; beyond this number, all groups are compared


@dataclass(frozen=True)
class GroupIndex:
    """The groups of a run in the order of the hashes of some of their columns."""

    hashes: Hashes
    order: Ints

    @classmethod
    def of(cls, keys: Sequence[pa.Array], groups: int) -> GroupIndex:
        hashes = row_hashes(keys, groups)
        order = np.argsort(hashes)
        return cls(hashes[order], order.astype(np.int32) if groups < 1 << 31 else order)

    def candidates(self, wanted: Hashes) -> Ints:
        """The groups that have one of these hashes, in the order of the run."""
        starts, stops = (self.hashes.searchsorted(wanted, side) for side in ("left", "right"))
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        found = [self.order[start:stop] for start, stop in pairs if start < stop]
        return np.sort(np.concatenate(found)).astype(np.int64) if found else np.zeros(0, np.int64)


def matching_groups(run: Run, pattern: GroupPattern) -> tuple[Ints, list[pa.Array]]:
    """The groups of a run that match a pattern, in the order of the run, and their keys."""
    found = None
    if run.groups > SCANNED_GROUPS and can_be_hashed(run.keys, pattern):
        wanted = _wanted_hashes(tuple((run.keys[place].type, values) for place, values in pattern))
        found = _index(run, tuple(place for place, _ in pattern)).candidates(wanted)
        if not len(found):
            return found, [key.slice(0, 0) for key in run.keys]
    keys = list(run.keys) if found is None else [key.take(pa.array(found)) for key in run.keys]
    is_match = match_pattern(keys, run.groups if found is None else len(found), pattern)
    if found is not None and is_match.all():
        return found, keys
    chosen = np.flatnonzero(is_match)  # different values may have the same hash
    keys = [key.take(pa.array(chosen)) for key in keys]
    return chosen if found is None else found[chosen], keys


def can_be_hashed(keys: Sequence[pa.Array | pa.Field], pattern: GroupPattern) -> bool:
    """Whether the combinations of a pattern's values are few, and no column is nested."""
    return prod(len(values) for _, values in pattern) <= MAX_COMBINATIONS and not any(
        pa.types.is_nested(keys[place].type) for place, _ in pattern
    )


def _index(run: Run, columns: tuple[int, ...]) -> GroupIndex:
    index: GroupIndex | None = run.derived.get((GroupIndex, columns))
    if index is None:
        index = GroupIndex.of([run.keys[place] for place in columns], run.groups)
        run.derived[GroupIndex, columns] = index
    return index


@lru_cache(maxsize=256)  # a lookup compares the same values with every run of several stores
def _wanted_hashes(wanted: tuple[tuple[pa.DataType, tuple[Any, ...]], ...]) -> Hashes:
    """The hashes of all combinations of the wanted values of some columns."""
    return combination_hashes([type for type, _ in wanted], [values for _, values in wanted])


def combination_hashes(types: Sequence[pa.DataType], values: Sequence[Sequence[Any]]) -> Hashes:
    """The hashes of all combinations of some columns' values."""
    rows = list(product(*values))
    columns = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    return np.unique(row_hashes(columns, len(rows)))


def match_pattern(keys: Sequence[pa.Array], groups: int, pattern: GroupPattern) -> Mask:
    """Which groups match a pattern.

    >>> match_pattern([pa.array([1, 2, None])], 3, ((0, (2, None)),)).tolist()
    [False, True, True]
    """
    found = np.ones(groups, bool)
    for place, values in pattern:
        has_value = np.zeros(groups, bool)
        for value in values:
            has_value |= _equal(keys[place], value).fill_null(False).to_numpy(zero_copy_only=False)
        found &= has_value
    return found


def _equal(key: pa.Array, value: Any) -> pa.Array:
    if value is None:
        return pc.is_null(key)
    if value != value:
        return pc.is_nan(key)
    return pc.equal(key, pa.scalar(value, key.type))
