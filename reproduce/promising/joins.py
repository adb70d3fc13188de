"""Window joins guided by summaries compared with symmetric hash join, at the same budgets (figures 11 to 14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reproduce.prodding.data import SECOND, Numbers
from reproduce.promising.baselines import Budget, Pairs, Stream, SymmetricHashJoin
from reproduce.promising.batch_join import (
    Simulation,
    alternate_batches,
    product_of_counts,
    share_of,
    stream_of,
)
from reproduce.promising.data import Stores
from reproduce.promising.metrics import freshness, hist_mse, outlier_share, outliers
from transom.elements import Preference, Summary

BUDGETS = (1, 2, 5, 10, 20, 50, 100)  # percent of the exact answer's cost, batch by batch
BUCKETS = 16
BATCH = SECOND
SETTINGS = (16, 64, 256)  # buckets
GRANULARITY = 10 * SECOND
MINUTE = 60 * SECOND
WHOLE = 5  # granularities, which cover 57 minutes: no tuple of a whole stream is evicted
PREFERENCES = {
    "sliding": Preference("desc", window=MINUTE),
    "whole": Preference("desc", fade=0.8),
    "faithful": Preference("weighted", window=MINUTE),
    "rare": Preference("asc", window=MINUTE),
}


@dataclass(frozen=True)
class Join:
    """A join of two stores, and its exact answer."""

    stores: Stores
    preference: Preference
    batch_length: int = BATCH
    buckets: int = BUCKETS

    @cached_property
    def streams(self) -> tuple[Stream, Stream]:
        stores = self.stores
        batches = alternate_batches((stores.first.times, stores.second.times), self.batch_length)
        one, two = (
            stream_of(stream.times, stream.items, batch_id, self.buckets)
            for stream, batch_id in zip((stores.first, stores.second), batches, strict=True)
        )
        return one, two

    @cached_property
    def simple(self) -> SymmetricHashJoin:
        return SymmetricHashJoin(self.streams, self.preference.window)

    @cached_property
    def exact(self) -> Pairs:
        return self.simple.run()

    def promising(self, structure: str = "adjusting") -> Simulation:
        """The join guided by summaries of that structure."""
        depth = WHOLE if self.preference.window is None else 3
        one, two = (
            Summary(name, name, "item", GRANULARITY, depth=depth, structure=structure, buckets=self.buckets)
            for name in ("store1", "store2")
        )
        promise = product_of_counts((one, two))
        return Simulation(self.streams, (one, two), self.preference, promise)

    def budget(self, percent: float) -> Budget:
        """A share of each batch's cost."""
        return share_of(self.simple.needs, percent / 100)

    def metrics(self, pairs: Pairs) -> dict[str, Any]:
        """The metrics of an answer."""
        first, second, numbered = self.stores.first, self.stores.second, self.stores.items
        exact, obtained = first.items[self.exact.left], first.items[pairs.left]
        rare = outliers(exact, numbered)
        return {
            "probes": pairs.cost,
            "output": len(pairs),
            "output_percent": 100 * len(pairs) / max(len(exact), 1),
            "hist_mse": hist_mse(exact, obtained, numbered),
            "outlier_percent": 100 * outlier_share(exact, obtained, numbered),
            "outliers_found_percent": 100 * float(rare[obtained].sum()) / rare[exact].sum()
            if rare.any()
            else float("nan"),
            "mean_age_s": freshness(first.times[pairs.left], second.times[pairs.right]),
            "differs": int(len(pairs) != len(exact) or not np.array_equal(_codes(pairs), _codes(self.exact))),
        }


def _codes(pairs: Pairs) -> Numbers:
    """The pairs as sorted integers."""
    return np.sort(pairs.left * (1 << 32) + pairs.right)


def curve(stores: Stores, name: str, budgets: Sequence[int], batch_length: int) -> Iterator[dict[str, Any]]:
    """A figure's rows for two stores: both systems with every budget, and without one."""
    join = Join(stores, PREFERENCES[name], batch_length)
    for percent in budgets:
        yield from compare_systems(join, percent)
    yield _labels(join, "promising", None) | join.metrics(join.promising().run())


def compare_systems(join: Join, percent: int) -> Iterator[dict[str, Any]]:
    """Both systems at the same budget."""
    for system, run in (("simple", join.simple.run), ("promising", join.promising().run)):
        yield _labels(join, system, percent) | join.metrics(run(join.budget(percent)))


def _labels(join: Join, system: str, percent: int | None) -> dict[str, Any]:
    stores = join.stores
    return {"data": stores.name, "seed": stores.seed, "system": system, "budget_percent": percent}


def settings(stores: Stores, percent: int, short: bool) -> Iterator[dict[str, Any]]:
    """All combinations of the settings that the paper leaves open: number of buckets and length of batches."""
    for name, preference in PREFERENCES.items():
        for buckets in SETTINGS[:1] if short else SETTINGS:
            for length in (10 * BATCH,) if short else (BATCH, 10 * BATCH):
                setting = {"figure": name, "buckets": buckets, "batch_s": length // SECOND}
                for row in compare_systems(Join(stores, preference, length, buckets), percent):
                    yield setting | row
