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

LARGEST = 1000  # rows; by default, the queries' windows are spread evenly up to this size
LOW, HIGH, BUCKETS = -20.0, 20.0, 16  # of the TimeGram; most values lie in this range
WindowFunctions = Sequence[tuple[str, int]]  # the function and the window size of each query
MIXED = ("max", "min", "count", "sum", "avg")
DATA: Mapping[str, Callable[[random.Random], float]] = {
    "uniform": lambda rng: rng.uniform(LOW, HIGH),
    "gaussian": lambda rng: rng.gauss(0.0, 10.0),  # 95 % of the values lie between -20 and 20
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
    def window_functions(self) -> WindowFunctions:
        """The function and the window size of each query."""
        sizes = [-(-self.largest * (at + 1) // self.queries) for at in range(self.queries)]
        return [(self.functions[at % len(self.functions)], size) for at, size in enumerate(sizes)]

    @property
    def lookups(self) -> int:
        return len(range(self.ratio - 1, self.tuples, self.ratio)) * self.queries if self.ratio else 0


@dataclass(frozen=True)
class System:
    """A measured system.

    `store` adds a tuple before the measurement, `insert` during it; `answers` looks up all queries.
    """

    store: Callable[[int, float], Any]
    insert: Callable[[int, float], Any]
    answers: Callable[[int], Iterator[Any]]


def naive(functions: WindowFunctions) -> System:
    """Every arrival computes all answers; a lookup reads them."""
    folds: Mapping[str, Callable[[Any], Any]] = {
        "max": max,
        "min": min,
        "count": len,
        "sum": sum,
        "avg": lambda values: sum(values) / len(values),
    }
    windows = NaiveWindows([(size, folds[function]) for function, size in functions])
    return System(windows.store, windows.insert, lambda now: map(windows.lookup, range(len(functions))))


def timegram(functions: WindowFunctions) -> System:
    """TimeGram with buckets of equal width; every answer is an interval."""
    gram = TimeGram.evenly(LOW, HIGH, BUCKETS)
    lookups = [(getattr(gram, function), size) for function, size in functions]
    insert = _insert_and_expire(functions, gram)
    return System(insert, insert, _lookup_all(lookups))


def ordered_sharing(functions: WindowFunctions) -> System:
    """OrderedSharing: one ordered structure of answers, for MAX or for MIN."""
    function, *others = dict.fromkeys(function for function, _ in functions)
    if others or function not in ("max", "min"):
        raise ValueError("OrderedSharing is for MAX, or for MIN")
    sizes = [size for _, size in functions]
    shared = OrderedSharing(sizes, greatest=function == "max")
    return System(shared.insert, shared.insert, lambda now: map(shared.lookup, sizes))


def exact(functions: WindowFunctions) -> System:
    """Staircases for MAX and MIN, and a tree for sums and counts, if a query needs them."""
    names = {function for function, _ in functions}
    stairs = {name: Staircase(name == "max") for name in ("max", "min") if name in names}
    tree = SuffixTree(add)
    finders: dict[str, Callable[[int], Any]] = {
        **{name: staircase.lookup for name, staircase in stairs.items()},
        "count": tree.count,
        "sum": tree.lookup,
        "avg": lambda since: tree.lookup(since) / tree.count(since),
    }
    lookups = [(finders[function], size) for function, size in functions]
    insert = _insert_and_expire(functions, *stairs.values(), *([tree] if names - stairs.keys() else []))
    return System(insert, insert, _lookup_all(lookups))


def _insert_and_expire(functions: WindowFunctions, *structures: Any) -> Callable[[int, float], None]:
    """A function that inserts a tuple and expires tuples that have left the largest window."""
    oldest = max(size for _, size in functions) - 1

    def insert_into_one(time: int, value: float) -> None:
        only.insert(time, value)
        only.expire(time - oldest)

    def insert(time: int, value: float) -> None:
        for structure in structures:
            structure.insert(time, value)
            structure.expire(time - oldest)

    only = structures[0]
    return insert_into_one if len(structures) == 1 else insert


def _lookup_all(lookups: Sequence[tuple[Callable[[int], Any], int]]) -> Callable[[int], Iterator[Any]]:
    """A function that looks up every window, by the time of its first tuple."""
    return lambda now: (lookup(now + 1 - size) for lookup, size in lookups)


SYSTEMS: Mapping[str, Callable[[WindowFunctions], System]] = {
    "naive": naive,
    "timegram": timegram,
    "ordered_sharing": ordered_sharing,
    "exact": exact,
}


def stream(workload: Workload, seed: int) -> list[float]:
    """The values of the tuples: first those that fill the windows, then those that are measured."""
    rng, draw = random.Random(seed), DATA[workload.data]
    return [draw(rng) for _ in range(workload.largest + workload.tuples)]


def seconds(name: str, workload: Workload, seed: int) -> float:
    """The processor time of a workload, insertions and lookups; the windows are full when it starts."""
    values = stream(workload, seed)
    system, full = SYSTEMS[name](workload.window_functions), workload.largest
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
                deque(answers(time), maxlen=0)  # reads every answer and keeps none
                due = ratio
        return process_time() - started
    finally:
        gc.enable()


def measure_systems(workloads: Mapping[str, Workload], seeds: Iterable[int]) -> list[dict[str, Any]]:
    """A table row for each system: the median time over several streams.

    The systems take turns, so that other load on the machine affects them equally.
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
