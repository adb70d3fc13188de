"""What is known of each group: the usual size of its finals, and how it differs from the others."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transom.columns.hashing import mixed
from transom.estimates.sightings import Flags, Floats, Ints

MOST_GROUPS = 2048
MOST_LOOKED = 128  # groups that are remembered at a mark, if they are only looked at
SLOW = 1 / 64  # of an average over windows: the weight of the newest, once there are as many
FAST = 1 / 8
TRUST = 4.0  # as many windows say nothing particular of a group; its own history has to outweigh them


def step(known: Floats, fresh: Floats, least: float) -> Floats:
    """The weight of `fresh` new windows beside `known` ones: a plain average first, a fading one later."""
    with np.errstate(invalid="ignore", divide="ignore"):
        plain = np.where(fresh > 0, fresh / (known + fresh), 0.0)
    return np.where(fresh > 0, np.maximum(plain, 1 - (1 - least) ** fresh), 0.0)


def toward(old: Floats, new: Floats, weight: Floats) -> Floats:
    """An average moved towards new values; where the weight is 0, the old one (the new may be NaN)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(weight > 0, old + weight * (new - old), old)


def chosen_few(group: Ints) -> Flags:
    """A sample of the groups, always the same ones, so that many groups cost no more than some."""
    if len(group) <= MOST_GROUPS:
        return np.ones(len(group), np.bool_)
    words = mixed(group.view(np.uint64))
    distinct = np.unique(words)
    if len(distinct) <= MOST_GROUPS:
        return np.ones(len(group), np.bool_)
    return words <= distinct[MOST_GROUPS - 1]


def to_remember(group: Ints, window: Ints, mark: Ints, told: Flags) -> Flags:
    """What is remembered of a sight: what was told, and at each mark some of the groups, by turns."""
    if len(group) <= MOST_LOOKED:
        return np.ones(len(group), np.bool_)
    few = chosen_few(group)
    share = -(-min(len(np.unique(group)), MOST_GROUPS) // MOST_LOOKED)
    turn = mixed(group.view(np.uint64)) + (window + mark).view(np.uint64)
    return few & (told | (turn % np.uint64(share) == 0))


@dataclass(frozen=True)
class Groups:
    """A row for each group, sorted by key; arrays of groups x numeric items."""

    key: Ints
    last: Ints  # the newest window that closed
    count: Floats  # finals so far
    level: Floats  # average size of the finals
    recent: Floats  # the same, of the last few
    grown: Floats  # average of (final - early) / level over all marks
    added: Floats  # what the additive expert would have said of it
    scaled: Floats  # what the ratio would have said of it
    spread: Floats  # average of |final - projected| / level
    usual: Floats  # what all groups' average says of it
    paired: Floats  # finals that had been seen early

    @classmethod
    def empty(cls, items: int) -> Groups:
        none = np.empty((0, items))
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), *([none] * 9))

    def places(self, group: Ints) -> Ints:
        """The row of each group, -1 for groups unknown."""
        if not len(self.key):
            return np.full(len(group), -1)
        at = np.searchsorted(self.key, group).clip(max=len(self.key) - 1)
        return np.where(self.key[at] == group, at, -1)

    @cached_property
    def own_added(self) -> Floats:
        """How much more a group gets than the additive expert says, shrunk towards nothing more."""
        return _shrunk(self.grown, self.added, self.paired, 0.0, 8.0)

    @cached_property
    def own_ratio(self) -> Floats:
        """How much more a group gets than the ratio says."""
        return _shrunk(self.grown, self.scaled, self.paired, 0.0, 8.0)

    @cached_property
    def wide(self) -> Floats:
        """How much wider a group's errors are than everybody's."""
        return _shrunk(self.spread, self.usual, self.paired, 0.1, 10.0)

    def with_finals(self, group: Ints, window: Ints, finals: Floats) -> Groups:
        """With more finals; groups that are new begin with them."""
        known = self._room_for(group)
        at = known.places(group)
        last = known.last.copy()
        np.maximum.at(last, at, window)
        fresh, sums = _sums(at, len(known.key), ~np.isnan(finals), np.abs(finals))
        with np.errstate(invalid="ignore"):
            mean = sums / fresh
        return replace(
            known,
            last=last,
            count=known.count + fresh,
            level=toward(known.level, mean, step(known.count, fresh, SLOW)),
            recent=toward(known.recent, mean, step(known.count, fresh, FAST)),
        )

    def with_pairs(self, at: Ints, windows: int, told: tuple[Floats, ...]) -> Groups:
        """With pairs of so many windows; `told` are their grown, added, scaled, spread and usual."""
        valid = ~np.isnan(sum(told))
        names = ("grown", "added", "scaled", "spread", "usual")
        pairs, _ = _sums(at, len(self.key), valid, told[0])
        fresh = np.where(pairs > 0, float(windows), 0.0)
        weight = step(self.paired, fresh, SLOW)
        moved: dict[str, Any] = {}
        for name, values in zip(names, told, strict=True):
            _, sums = _sums(at, len(self.key), valid, values)
            with np.errstate(invalid="ignore"):
                moved[name] = toward(getattr(self, name), sums / pairs, weight)
        return replace(self, paired=self.paired + fresh, **moved)

    def bounded(self) -> Groups:
        """Without the groups that closed nothing for longest, if there are too many."""
        if len(self.key) <= MOST_GROUPS:
            return self
        order = np.lexsort((mixed(self.key.view(np.uint64)), -self.last))
        return self._taken(np.sort(order[:MOST_GROUPS]))

    def _room_for(self, group: Ints) -> Groups:
        keys = np.union1d(self.key, group)
        if len(keys) == len(self.key):
            return self
        at = np.searchsorted(keys, self.key)
        wide: dict[str, NDArray] = {"key": keys}
        for name, old in self._arrays().items():
            if name != "key":
                wide[name] = np.zeros((len(keys), *old.shape[1:]), old.dtype)
                wide[name][at] = old
        fresh = np.ones(len(keys), np.bool_)
        fresh[at] = False
        wide["last"][fresh] = np.iinfo(np.int64).min
        return Groups(**wide)

    def _taken(self, at: Ints) -> Groups:
        return Groups(**{name: array[at] for name, array in self._arrays().items()})

    def _arrays(self) -> dict[str, NDArray]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _sums(at: Ints, size: int, valid: Flags, values: Floats) -> tuple[Any, Any]:
    """By group, how many values are valid, and their sum."""
    items = values.shape[1]
    cells = (at[:, None] * items + np.arange(items)).ravel()
    counts = np.bincount(cells, valid.ravel().astype(np.float64), size * items)
    sums = np.bincount(cells, np.where(valid, values, 0.0).ravel(), size * items)
    return counts.reshape(size, items), sums.reshape(size, items)


def _shrunk(found: Floats, expected: Floats, count: Floats, least: float, most: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(np.abs(expected) > 1e-9, found / expected, 1.0)
    return (count * factor.clip(least, most) + TRUST) / (count + TRUST)
