"""Profiles of groups: the usual size of each group's finals, and how it differs from other groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.columns.arrays import Floats, Ints, Mask
from transom.columns.hashes import mix_bits
from transom.estimates.fading_average import FAST, SLOW, moved_toward, newest_weight
from transom.estimates.limits import DEFAULT_LIMITS, EstimateLimits

TRUST = 4.0  # a group's history must outweigh this many windows before it differs from all groups' average


def sampled_groups(group: Ints, limit: int) -> Mask:
    """A mask of at most `limit` distinct groups, always the same ones."""
    if len(group) <= limit:
        return np.ones(len(group), np.bool_)
    words = mix_bits(group.view(np.uint64))
    distinct = np.unique(words)
    if len(distinct) <= limit:
        return np.ones(len(group), np.bool_)
    return words <= distinct[limit - 1]


def rows_to_keep(
    group: Ints, window: Ints, mark: Ints, emitted: Mask, limits: EstimateLimits = DEFAULT_LIMITS
) -> Mask:
    """A mask of the early values to keep: the emitted ones, and at each mark some of the groups in turn."""
    if len(group) <= limits.observed_groups:
        return np.ones(len(group), np.bool_)
    sample = sampled_groups(group, limits.groups)
    share = -(-min(len(np.unique(group)), limits.groups) // limits.observed_groups)
    turn = mix_bits(group.view(np.uint64)) + (window + mark).view(np.uint64)
    return sample & (emitted | (turn % np.uint64(share) == 0))


@dataclass(frozen=True)
class GroupProfiles:
    """One row per group, sorted by query and key; arrays of groups x numeric items."""

    query: Ints  # the number of the query, if there are several
    key: Ints
    last: Ints  # the newest window that closed
    count: Floats  # finals so far
    level: Floats  # average size of the finals
    recent: Floats  # the same, of the last few
    grown: Floats  # average of (final - early) / level over all marks
    added: Floats  # average of the same as the additive expert projects it
    scaled: Floats  # average of the same as the ratio projects it
    spread: Floats  # average of |final - projected| / level
    usual: Floats  # the average spread of all groups
    paired: Floats  # finals with early values

    @classmethod
    def empty(cls, items: int) -> GroupProfiles:
        none = np.empty((0, items))
        whole = np.empty(0, np.int64)
        return cls(whole, whole, whole, *([none] * 9))

    @classmethod
    def stacked(cls, parts: Sequence[GroupProfiles]) -> GroupProfiles:
        """The profiles of several queries, each of which is a part."""
        sizes = [len(part.key) for part in parts]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        return cls(**(arrays | {"query": np.repeat(np.arange(len(parts)), sizes)}))

    def split(self, queries: int) -> Iterator[GroupProfiles]:
        """The profiles of each of several queries."""
        bounds = np.searchsorted(self.query, np.arange(queries + 1)).tolist()
        arrays = [getattr(self, name) for name in _COLUMNS[1:]]
        for start, stop in pairwise(bounds):
            yield GroupProfiles(np.zeros(stop - start, np.int64), *(array[start:stop] for array in arrays))

    def places(self, query: Ints, group: Ints) -> Ints:
        """The row of each group, -1 for unknown groups."""
        if not len(self.key):
            return np.full(len(group), -1)
        keys, codes = self._codes
        rank = np.searchsorted(keys, group).clip(max=len(keys) - 1)
        wanted = query * len(keys) + rank
        at = np.searchsorted(codes, wanted).clip(max=len(codes) - 1)
        return np.where((codes[at] == wanted) & (keys[rank] == group), at, -1)

    @cached_property
    def _codes(self) -> tuple[Ints, Ints]:
        """The distinct keys, and the number of each row's query and key, in ascending order."""
        keys = np.unique(self.key)
        return keys, self.query * len(keys) + np.searchsorted(keys, self.key)

    def mean_levels(self, queries: int) -> Floats:
        """By query and item, the average level of the groups; 0 for a query without groups."""
        means = np.zeros((queries, self.level.shape[1]))
        if len(self.query):
            starts = np.flatnonzero(np.r_[True, self.query[1:] != self.query[:-1]])
            sizes = np.diff(np.r_[starts, len(self.query)])
            means[self.query[starts]] = np.add.reduceat(self.level, starts, axis=0) / sizes[:, None]
        return means

    def finals(self, queries: int) -> Ints:
        """By query, how many finals its best known group has had."""
        most = np.zeros(queries, np.int64)
        if self.count.size:
            np.maximum.at(most, self.query, self.count.max(axis=1).astype(np.int64))
        return most

    @cached_property
    def own_added(self) -> Floats:
        """How much more a group grows than the additive expert projects, shrunk towards 1."""
        return _shrunk(self.grown, self.added, self.paired, 0.0, 8.0)

    @cached_property
    def own_ratio(self) -> Floats:
        """How much more a group grows than the ratio projects, shrunk towards 1."""
        return _shrunk(self.grown, self.scaled, self.paired, 0.0, 8.0)

    @cached_property
    def wide(self) -> Floats:
        """How much larger a group's errors are than those of all groups."""
        return _shrunk(self.spread, self.usual, self.paired, 0.1, 10.0)

    def with_finals(self, query: Ints, group: Ints, window: Ints, finals: Floats) -> GroupProfiles:
        """The profiles with more finals; new groups get a row."""
        profiles = self._with_groups(query, group)
        at = profiles.places(query, group)
        last = profiles.last.copy()
        np.maximum.at(last, at, window)
        fresh, sums = _sums(at, len(profiles.key), ~np.isnan(finals), np.abs(finals))
        with np.errstate(invalid="ignore"):
            mean = sums / fresh
        return replace(
            profiles,
            last=last,
            count=profiles.count + fresh,
            level=moved_toward(profiles.level, mean, newest_weight(profiles.count, fresh, SLOW)),
            recent=moved_toward(profiles.recent, mean, newest_weight(profiles.count, fresh, FAST)),
        )

    def with_pairs(self, at: Ints, windows: Ints, values: tuple[Floats, ...]) -> GroupProfiles:
        """The profiles with pairs of some windows; `values` are their grown, added, scaled, spread and usual.

        `windows` is how many windows the pairs of each query are of.
        """
        valid = ~np.isnan(sum(values))
        names = ("grown", "added", "scaled", "spread", "usual")
        pairs, _ = _sums(at, len(self.key), valid, values[0])
        fresh = np.where(pairs > 0, windows[self.query].astype(np.float64)[:, None], 0.0)
        weight = newest_weight(self.paired, fresh, SLOW)
        moved: dict[str, Any] = {}
        for name, column in zip(names, values, strict=True):
            _, sums = _sums(at, len(self.key), valid, column)
            with np.errstate(invalid="ignore"):
                moved[name] = moved_toward(getattr(self, name), sums / pairs, weight)
        return replace(self, paired=self.paired + fresh, **moved)

    def bounded(self, limit: int) -> GroupProfiles:
        """The profiles without the groups whose last finals are oldest, where a query has more than `limit`."""
        if len(self.key) <= limit:
            return self
        kept = np.ones(len(self.key), np.bool_)
        for query in np.flatnonzero(np.bincount(self.query) > limit).tolist():
            start, stop = np.searchsorted(self.query, [query, query + 1]).tolist()
            order = np.lexsort((mix_bits(self.key[start:stop].view(np.uint64)), -self.last[start:stop]))
            kept[start + order[limit:]] = False
        return self if kept.all() else self._take(kept)

    def _with_groups(self, query: Ints, group: Ints) -> GroupProfiles:
        is_new = self.places(query, group) < 0
        if not is_new.any():
            return self
        codes, numbers = np.unique(np.r_[self.key, group[is_new]], return_inverse=True)
        numbers += np.r_[self.query, query[is_new]] * len(codes)
        wanted = np.unique(numbers)
        at = np.searchsorted(wanted, numbers[: len(self.key)])
        wide: dict[str, NDArray] = {"query": wanted // len(codes), "key": codes[wanted % len(codes)]}
        for name in _COLUMNS[2:]:
            old = getattr(self, name)
            wide[name] = np.zeros((len(wanted), *old.shape[1:]), old.dtype)
            wide[name][at] = old
        fresh = np.ones(len(wanted), np.bool_)
        fresh[at] = False
        wide["last"][fresh] = np.iinfo(np.int64).min
        return GroupProfiles(**wide)

    def _take(self, at: NDArray) -> GroupProfiles:
        return GroupProfiles(**{name: getattr(self, name)[at] for name in _COLUMNS})


_COLUMNS = tuple(field.name for field in fields(GroupProfiles))


def _sums(at: Ints, size: int, valid: Mask, values: Floats) -> tuple[Any, Any]:
    """By group, the number of valid values and their sum."""
    items = values.shape[1]
    cells = (at[:, None] * items + np.arange(items)).ravel()
    counts = np.bincount(cells, valid.ravel().astype(np.float64), size * items)
    sums = np.bincount(cells, np.where(valid, values, 0.0).ravel(), size * items)
    return counts.reshape(size, items), sums.reshape(size, items)


def _shrunk(actual: Floats, expected: Floats, count: Floats, least: float, most: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(np.abs(expected) > 1e-9, actual / expected, 1.0)
    return (count * factor.clip(least, most) + TRUST) / (count + TRUST)
