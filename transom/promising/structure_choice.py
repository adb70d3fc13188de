"""Which structure gives the most output: none, time, cells, or adjusting zones (T1 to T4 of the paper).

Equation 1 of the paper: a tuple gives an output of N = (tau - t_ins) / t_hit tuples, which is the rest of its
time `tau` after its insertion, divided by the time to find one output tuple. All times are in probes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from transom.columns.arrays import Floats, Ints, Keys
from transom.elements import Summary
from transom.promising.representation import Representation, Zones
from transom.promising.step_summaries import empty_cells, summarize_steps
from transom.promising.zones import bucket_of

SUMMARY_STRUCTURES = ("none", "time", "cells", "adjusting")  # T1 to T4, in ascending order of insertion cost
BETTER = 1.05  # another structure must be better by this factor to replace the present one


@dataclass(frozen=True)
class Costs:
    """The cost, in probes, of inserting a tuple into each structure, and of estimating a value in a zone.

    Measured by `python -m benchmarks.summaries`, in batches of 10,000; a probe takes about 10 ns.
    """

    inserting: Mapping[str, float] = field(
        default_factory=lambda: {"none": 2.0, "time": 4.5, "cells": 7.0, "adjusting": 8.5}
    )
    planning: Mapping[str, float] = field(
        default_factory=lambda: {"none": 1.0, "time": 2.5, "cells": 3.5, "adjusting": 4.0}
    )

    @classmethod
    def measured(cls, probe: float, inserting: Mapping[str, float], planning: Mapping[str, float]) -> Costs:
        """The costs in probes, from seconds.

        >>> Costs.measured(5e-9, {"none": 1e-8}, {"none": 2e-8}).of_tuple("none", regions=1)
        6.0
        """
        return cls(
            {structure: seconds / probe for structure, seconds in inserting.items()},
            {structure: seconds / probe for structure, seconds in planning.items()},
        )

    def of_tuple(self, structure: str, regions: float) -> float:
        """t_ins: the insertion of a tuple, and its share of planning `regions` regions per tuple."""
        return self.inserting[structure] + regions * self.planning[structure]


def expected_output(
    structure: str,
    tau: float,
    per_output: float,
    costs: Costs | None = None,
    regions: float = 0.0,
    most: float = math.inf,
) -> float:
    """N of equation 1: the output of an arriving tuple that has `tau` probes; 0 if insertion takes all of them.

    `per_output` is t_hit. `most` is the whole output of an arriving tuple, which no budget exceeds.

    >>> expected_output("adjusting", tau=108.5, per_output=4)
    25.0
    >>> expected_output("adjusting", tau=8, per_output=4)
    0.0
    """
    left = tau - (costs or Costs()).of_tuple(structure, regions)
    return min(max(left, 0.0) / per_output, most)


def best_structure(
    tau: float,
    per_output: Mapping[str, float],
    present: str | None = None,
    costs: Costs | None = None,
    regions: float = 0.0,
    most: float = math.inf,
) -> str:
    """The structure with the largest expected output: the present one unless another is over 5 % better.

    Of equal structures it is the cheapest; so it is `none` if there is only time for insertion.

    >>> found = {"none": 16.0, "cells": 4.0}
    >>> best_structure(1000, found), best_structure(8, found)
    ('cells', 'none')
    """
    outputs = {
        structure: expected_output(structure, tau, per_output[structure], costs, regions, most)
        for structure in SUMMARY_STRUCTURES
        if structure in per_output
    }
    best = max(outputs, key=lambda structure: outputs[structure])  # the first of equals
    if present in outputs and 0 < outputs[best] <= BETTER * outputs[present]:
        return present
    return best


def corrected(per_output: Mapping[str, float], present: str, seen: float) -> dict[str, float]:
    """The results of trials, scaled to the measured probes per output tuple of the present structure.

    A trial ignores a query's other conditions, and windows that cut zones; both increase the cost of all
    structures by about the same factor.

    >>> corrected({"none": 16.0, "cells": 4.0}, "cells", seen=6.0)
    {'none': 24.0, 'cells': 6.0}
    """
    factor = seen / per_output[present]
    return {structure: probes * factor for structure, probes in per_output.items()}


def trial(
    shape: Summary,
    tuples: tuple[Ints, Keys],
    arriving: tuple[Keys, Ints],
    values: tuple[Floats, Floats] | None = None,
    share: float = 0.1,
) -> dict[str, float]:
    """The probes per output tuple of each structure, tried on a sample: t_hit of equation 1.

    `tuples` are times and keys of the other stream within the window, `arriving` distinct keys with the
    number of tuples of each; `values` are those of both, if buckets lie between two numbers. Every
    structure probes where the product of both estimated counts is largest, until a `share` of the cost of
    comparing all is used. With a hundred tuples, a trial has an error of about a quarter; the mean of several
    trials is accurate.

    >>> keys = np.arange(1000, dtype=np.uint64) % np.uint64(50)
    >>> shape = Summary("items", "store", "item", 160)
    >>> found = trial(shape, (np.arange(1000), keys), (keys[:50], np.ones(50, np.int64)))
    >>> round(found["none"]), found["cells"] < 10
    (50, True)
    """
    there, here = values or (None, None)
    budget = share * len(tuples[0]) * int(arriving[1].sum())
    return {
        structure: _tried(replace(shape, structure=structure), tuples, arriving, there, here, budget)
        for structure in SUMMARY_STRUCTURES
    }


def _tried(
    shape: Summary,
    tuples: tuple[Ints, Keys],
    arriving: tuple[Keys, Ints],
    there: Floats | None,
    here: Floats | None,
    budget: float,
) -> float:
    """The probes per output tuple of one structure: its regions in order of promise, the last one in part."""
    (times, others), (keys, counts) = tuples, arriving
    if not len(times) or not len(keys):
        return 1.0
    bucket, high = bucket_of(shape, keys, here), int(times.max())
    buckets = bucket_of(shape, others, there)
    representation = Representation.new(shape).inserted(summarize_steps(shape, times, others, buckets), high)
    zones = representation.zones()
    # Regions with the same promise count together, since their order is arbitrary.
    own = empty_cells(shape).summarize(bucket, keys, counts).estimate(bucket, keys)
    promise = np.maximum(own, counts)[:, None] * representation.estimate(keys, bucket)
    promises, place = np.unique(-promise, return_inverse=True)
    cost = _by(place, counts[:, None] * zones.counts.T[bucket], len(promises))
    truth = _by(place, counts[:, None] * _counted(zones, times, others, keys), len(promises))
    before = np.cumsum(cost) - cost
    taken = np.clip((budget - before) / np.maximum(cost, 1), 0, 1)
    found, probes = float((taken * truth).sum()), float((taken * cost).sum())
    return max(probes / found, 1.0) if found else math.inf


def _by(place: Ints, numbers: Ints, places: int) -> Floats:
    return np.bincount(place.reshape(-1), numbers.reshape(-1), minlength=places).astype(np.float64)


def _counted(zones: Zones, times: Ints, others: Keys, keys: Keys) -> Ints:
    """The true count of each distinct key in each zone."""
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys[order], others), len(keys) - 1)
    same = (keys[order][place] == others) & (times >= zones.since[-1])
    zone = len(zones.since) - np.searchsorted(zones.since[::-1], times[same], "right")
    flat = order[place[same]] * len(zones.since) + zone
    return np.bincount(flat, minlength=len(keys) * len(zones.since)).reshape(len(keys), -1)
