"""Response times of lookups: the workloads of the paper on shared aggregates, and the systems that answer them.

*Aggregate Sharing in Stream Databases* (Wang and Freschl, 2005), sections 5 and 6.5.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from statistics import median
from time import process_time
from typing import Any

from reproduce.algorithms.naive_windows import NaiveWindows
from reproduce.algorithms.staircase import Staircase
from reproduce.algorithms.suffix_tree import SuffixTree
from reproduce.algorithms.timegram import TimeGram
from transom.ondemand.structures.ordered_sharing import OrderedSharing

LARGEST = 1000  # rows: unless it is said otherwise, the queries' windows are spread evenly up to this one
LOW, HIGH, BUCKETS = -20.0, 20.0, 16  # of the timegram; most values lie between the two
Asked = Sequence[tuple[str, int]]  # the function and the window of each query
MIXED = ("max", "min", "count", "sum", "avg")
DATA: Mapping[str, Callable[[random.Random], float]] = {
    "uniform": lambda rng: rng.uniform(LOW, HIGH),
    "gaussian": lambda rng: rng.gauss(0.0, 10.0),  # 95 % of them between -20 and 20
}


@dataclass(frozen=True)
class Workload:
    """A number of tuples and of queries; every query is looked up after each `ratio` tuples (0: never)."""

    data: str
    queries: int
    ratio: int
    tuples: int
    functions: tuple[str, ...] = ("max",)
    largest: int = LARGEST

    @property
    def asked(self) -> Asked:
        """The function and the window of each query."""
        sizes = [-(-self.largest * (at + 1) // self.queries) for at in range(self.queries)]
        return [(self.functions[at % len(self.functions)], size) for at, size in enumerate(sizes)]

    @property
    def lookups(self) -> int:
        return len(range(self.ratio - 1, self.tuples, self.ratio)) * self.queries if self.ratio else 0


@dataclass(frozen=True)
class System:
    """How tuples that are not measured are stored, how one arrives, and how all queries are answered."""

    store: Callable[[int, float], Any]
    insert: Callable[[int, float], Any]
    answers: Callable[[int], Iterator[Any]]


def naive(asked: Asked) -> System:
    """Every arrival computes all answers; a lookup reads them."""
    folds: Mapping[str, Callable[[Any], Any]] = {
        "max": max,
        "min": min,
        "count": len,
        "sum": sum,
        "avg": lambda values: sum(values) / len(values),
    }
    windows = NaiveWindows([(size, folds[function]) for function, size in asked])
    return System(windows.store, windows.insert, lambda now: map(windows.lookup, range(len(asked))))


def timegram(asked: Asked) -> System:
    """Buckets of equal width; every answer an interval."""
    gram = TimeGram.evenly(LOW, HIGH, BUCKETS)
    lookups = [(getattr(gram, function), size) for function, size in asked]
    insert = _keeping(asked, gram)
    return System(insert, insert, _looking(lookups))


def ordered_sharing(asked: Asked) -> System:
    """One ordered structure of answers, of MAX or of MIN."""
    ((function, *others),) = [list(dict.fromkeys(function for function, _ in asked))]
    if others or function not in ("max", "min"):
        raise ValueError("OrderedSharing is for MAX, or for MIN")
    sizes = [size for _, size in asked]
    shared = OrderedSharing(sizes, greatest=function == "max")
    return System(shared.insert, shared.insert, lambda now: map(shared.lookup, sizes))


def exact(asked: Asked) -> System:
    """Staircases, and a tree for sums and counts, as far as queries need them."""
    asked_for = {function for function, _ in asked}
    stairs = {name: Staircase(name == "max") for name in ("max", "min") if name in asked_for}
    tree = SuffixTree(add)
    finders: dict[str, Callable[[int], Any]] = {
        **{name: own.lookup for name, own in stairs.items()},
        "count": tree.count,
        "sum": tree.lookup,
        "avg": lambda since: tree.lookup(since) / tree.count(since),
    }
    lookups = [(finders[function], size) for function, size in asked]
    insert = _keeping(asked, *stairs.values(), *([tree] if asked_for - stairs.keys() else []))
    return System(insert, insert, _looking(lookups))


def _keeping(asked: Asked, *structures: Any) -> Callable[[int, float], None]:
    """How a tuple arrives in structures that keep the largest window."""
    beyond = max(size for _, size in asked) - 1

    def insert_into_one(time: int, value: float) -> None:
        one.insert(time, value)
        one.expire(time - beyond)

    def insert(time: int, value: float) -> None:
        for structure in structures:
            structure.insert(time, value)
            structure.expire(time - beyond)

    one = structures[0]
    return insert_into_one if len(structures) == 1 else insert


def _looking(lookups: Sequence[tuple[Callable[[int], Any], int]]) -> Callable[[int], Iterator[Any]]:
    """Lookups of windows in structures that are read by time."""
    return lambda now: (lookup(now + 1 - size) for lookup, size in lookups)


SYSTEMS: Mapping[str, Callable[[Asked], System]] = {
    "naive": naive,
    "timegram": timegram,
    "ordered_sharing": ordered_sharing,
    "exact": exact,
}


def stream(workload: Workload, seed: int) -> list[float]:
    """Values of the tuples, those that fill the windows first."""
    rng, draw = random.Random(seed), DATA[workload.data]
    return [draw(rng) for _ in range(workload.largest + workload.tuples)]


def seconds(name: str, workload: Workload, seed: int) -> float:
    """Processor time for the tuples of a workload with their lookups; windows are full when it starts."""
    values = stream(workload, seed)
    system, full = SYSTEMS[name](workload.asked), workload.largest
    for time, value in enumerate(values[:full]):
        system.store(time, value)
    insert, answers, ratio = system.insert, system.answers, workload.ratio
    due = ratio
    gc.disable()
    started = process_time()
    try:
        for time, value in enumerate(values[full:], full):
            insert(time, value)
            due -= 1
            if not due:
                deque(answers(time), maxlen=0)  # each is read, none is kept
                due = ratio
        return process_time() - started
    finally:
        gc.enable()


def measured(workloads: Mapping[str, Workload], seeds: Iterable[int]) -> list[dict[str, Any]]:
    """Rows of a table, a system's workload each: the median over some streams.

    Systems are measured in turns, so that what else the machine does meets them alike.
    """
    times: dict[str, list[float]] = {name: [] for name in workloads}
    for seed in seeds:
        for name, workload in workloads.items():
            times[name].append(seconds(name, workload, seed))
    return [_row(name, workload, times[name]) for name, workload in workloads.items()]


def _row(name: str, workload: Workload, times: Sequence[float]) -> dict[str, Any]:
    return {
        "data": workload.data,
        "functions": " ".join(workload.functions),
        "largest_window": workload.largest,
        "queries": workload.queries,
        "ratio": workload.ratio,
        "tuples": workload.tuples,
        "system": name,
        "runs": len(times),
        "seconds": round(median(times), 6),
        "fastest": round(min(times), 6),
        "slowest": round(max(times), 6),
        "microseconds_per_tuple": round(1e6 * median(times) / workload.tuples, 3),
    }
