"""Cost and benefit of summaries by structure, and the choice of `auto` (figures 9 and 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from time import process_time
from typing import Any

import numpy as np

from reproduce.prodding.data import SECOND, Numbers
from reproduce.promising.data import START, Stores, Stream, all_stores, generated
from reproduce.promising.joins import GRANULARITY, Join
from reproduce.report import Options
from transom.columns.arrays import Keys
from transom.elements import Preference, Summary
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.structure_choice import Costs, best_structure, trial
from transom.promising.zones import bucket_of

STRUCTURES = {"T1": "none", "T2": "time", "T3": "cells", "T4": "adjusting"}
PROBE = 0.005  # microseconds per probe, the unit of a structure's costs
BATCHES = (10_000, 100_000)  # tuples
REPEATED = 3  # processor time is noisy: the fastest of these runs counts
BATCH = 10 * SECOND
LENGTH = 180  # seconds of a pair of stores
MINUTE = 60
INTERARRIVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # microseconds; the paper's machine: up to 50 ms
WINDOWS = (10, 30, 50, 70, 90, 110, 120)  # seconds
AFFORDED = 1.0  # microseconds between tuples, for all windows


def insertion(short: bool) -> Iterator[dict[str, Any]]:
    """Processor time to summarize a tuple in each structure, on one core (figure 9a)."""
    size = 100_000 if short else 1_000_000
    stream = generated(60, seed=0, interarrival=60 / size).first
    for name, structure in STRUCTURES.items():
        for batch_size in BATCHES[:1] if short else BATCHES:
            shape = Summary("items", "store", "item", GRANULARITY, structure=structure)
            spent = min(_insertion_seconds(shape, stream, batch_size) for _ in range(REPEATED))
            yield {"structure": name, "batch": batch_size, "insert_us": 1e6 * spent / len(stream)}


def _insertion_seconds(shape: Summary, stream: Stream, batch_size: int) -> float:
    """The seconds that it takes to insert a stream, batch by batch."""
    keys, kept = stream.items.astype(np.uint64), Representation.new(shape)
    began = process_time()
    for at in range(0, len(stream), batch_size):
        times, some = stream.times[at : at + batch_size], keys[at : at + batch_size]
        kept = kept.inserted(summarize_steps(shape, times, some, bucket_of(shape, some)), int(times[-1]))
    return process_time() - began


@dataclass(frozen=True)
class Trade:
    """A join with limited time per tuple; maintaining the structure takes some of this time first (equation 1)."""

    join: Join
    interarrival: float  # microseconds

    @property
    def tau(self) -> float:
        """The time until the next tuple arrives, in probes."""
        return self.interarrival / PROBE

    @cached_property
    def sizes(self) -> dict[int, int]:
        """The tuples of each batch."""
        return {
            int(batch_id): int(count)
            for stream in self.join.streams
            for batch_id, count in zip(*np.unique(stream.batch_id, return_counts=True), strict=True)
        }

    @cached_property
    def regions(self) -> float:
        """How many regions the join plans per tuple: a batch's distinct values in every zone of the window."""
        stream, window = self.join.streams[0], self.join.preference.window or 0
        distinct = len(np.unique(np.stack([stream.batch_id.astype(np.uint64), stream.key]), axis=1).T)
        zones = 4 + max(window - GRANULARITY, 0) / GRANULARITY  # the zones of G1, and of G2 without an end
        return distinct / len(stream) * zones

    def output(self, structure: str) -> float:
        """The percentage of the exact answer that the join finds in the available time."""
        left = max(self.tau - Costs().of_tuple(structure, self.regions), 0.0)
        found = self.join.promising(structure).run(lambda batch_id: int(left * self.sizes[batch_id]))
        return 100 * len(found) / len(self.join.exact)

    def chosen_structure(self) -> str:
        """The structure that the engine chooses after a trial on one batch and the window before it."""
        one, two = self.join.streams
        window = self.join.preference.window or 0
        now = START + 120 * SECOND
        other = (two.time >= now - window) & (two.time < now)
        here = (one.time >= now) & (one.time < now + BATCH)
        keys, counts = np.unique(one.key[here], return_counts=True)
        shape = Summary("", "", "item", GRANULARITY, buckets=self.join.buckets)
        share = float(np.clip(self.tau / max(int(other.sum()), 1), 0.001, 1))
        hits = trial(shape, (two.time[other], two.key[other]), (keys, counts), share=share)
        # All partners of an arriving tuple, counted for this batch: at its beginning a stream has fewer partners.
        most = float(np.isin(two.key[other], keys) @ counts[_places(keys, two.key[other])]) / counts.sum()
        return best_structure(self.tau, hits, regions=self.regions, most=most)

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for every structure, and one for the chosen structure."""
        outputs = {name: self.output(structure) for name, structure in STRUCTURES.items()}
        choice = next(name for name, structure in STRUCTURES.items() if structure == self.chosen_structure())
        window = self.join.preference.window or 0
        stores = self.join.stores
        case = {"data": stores.name, "seed": stores.seed}
        case |= {"interarrival_us": self.interarrival, "window_s": window // SECOND}
        for name, percent in (outputs | {"auto": outputs[choice]}).items():
            took = choice if name == "auto" else name
            yield case | {"system": name, "structure": took, "output_percent": percent}


def _places(keys: Keys, wanted: Keys) -> Numbers:
    """The positions of keys in a sorted array; any position if a key is not in it."""
    return np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)


def _join(stores: Stores, seconds: int = MINUTE) -> Join:
    return Join(stores, Preference("desc", window=seconds * SECOND), BATCH)


def structures(options: Options) -> Iterator[dict[str, Any]]:
    """Time to insert, time to find an output tuple, and output per input tuple (figure 9)."""
    insertion_us = {
        row["structure"]: row["insert_us"] for row in insertion(options.short)
    }  # of the largest batches
    every = list(all_stores(replace(options, seeds=1), LENGTH))
    if not options.short:
        every.append(generated(LENGTH, seed=0, shift=45))
    for stores in every:
        join = _join(stores)
        tuples = len(stores.first) + len(stores.second)
        for name, structure in STRUCTURES.items():
            found = join.promising(structure).run(join.budget(10))
            per_output = found.cost / max(len(found), 1)
            yield {
                "data": stores.name,
                "structure": name,
                "insert_us": insertion_us[name],
                "probes_per_output": per_output,
                "hit_us": per_output * PROBE,
                "output_per_input": len(found) / tuples,
            }


def by_interarrival(options: Options) -> Iterator[dict[str, Any]]:
    """Output by the time between tuples (figure 10a)."""
    join = _join(generated(LENGTH, seed=0))
    for interarrival in INTERARRIVALS[2::3] if options.short else INTERARRIVALS:
        yield from Trade(join, interarrival).rows()


def by_window(options: Options) -> Iterator[dict[str, Any]]:
    """Output by the size of the window, at the same time between tuples (figure 10b)."""
    stores = generated(LENGTH, seed=0)
    for seconds in WINDOWS[::5] if options.short else WINDOWS:
        yield from Trade(_join(stores, seconds), AFFORDED).rows()
