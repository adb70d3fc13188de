"""What preference queries cost: a join without and with a budget against a plain key join, and many selections.

python -m benchmarks.promising [--tuples 60000] [--batch 2000 10000] [--rounds 3] [--only joins time selections]

All figures are processor time. The plain join is NumPy: it sorts the other stream's tuples of the window by key,
looks up the arriving ones, and produces the same columns. The selections are compared with NumPy masks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import transom
from transom.columns.arrays import Floats
from transom.columns.hashes import row_hashes
from transom.elements import Preference, Summary
from transom.promising.batch_tuples import BatchArrival, batch_tuples, tuple_columns
from transom.promising.execution import DriverTuples
from transom.promising.pace import Pace
from transom.promising.probe_planner import ProbePlanner
from transom.promising.probes import make_probes
from transom.promising.state_updates import evicted, with_arrival, with_registered
from transom.sql.preference_query import PreferenceQuery, Side
from transom.sql.promise import Arithmetic, EstimatedCount
from transom.state.promising import PromisingState

SECOND = 1_000_000
SPAN = 600 * SECOND
ITEMS = 1_000


@dataclass(frozen=True)
class Workload:
    """A join: how many Zipf items there are, and how long its window is."""

    items: int
    window: int


WORKLOADS = {
    "few partners": Workload(ITEMS, 30 * SECOND),
    "many partners": Workload(20, 120 * SECOND),
}

Batch = tuple[int, NDArray, NDArray, NDArray]  # stream, items, times, row numbers


def batches(tuples: int, size: int, items_count: int = ITEMS, seed: int = 17) -> Iterator[Batch]:
    """Batches of two streams in turn: Zipf items over ten minutes."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, items_count + 1)
    items = [rng.choice(items_count, tuples, p=weights / weights.sum()) for _ in range(2)]
    times = [np.sort(rng.integers(0, SPAN, tuples)) for _ in range(2)]
    for at in range(0, tuples, size):
        for stream in (0, 1):
            part = slice(at, at + size)
            yield stream, items[stream][part], times[stream][part], np.arange(at, at + len(items[0][part]))


# --- the plain join ------------------------------------------------------------------------------


def plain_join(stream: Sequence[Batch], window: int) -> tuple[int, float]:
    """The pairs of a symmetric join, as columns, and the seconds that it took."""
    began, pairs = time.process_time(), 0
    kept = [[np.zeros(0, np.int64)] * 3 for _ in range(2)]
    for store, items, times, rows in stream:
        others, other_times, other_rows = kept[1 - store]
        near = slice(*np.searchsorted(other_times, [times[0] - window, times[-1] + window + 1]))
        order = np.argsort(others[near], kind="stable") + near.start
        ordered = others[order]
        start, stop = np.searchsorted(ordered, items), np.searchsorted(ordered, items, side="right")
        counts = stop - start
        mine = np.repeat(np.arange(len(items)), counts)
        theirs = order[np.arange(len(mine)) + np.repeat(start - (np.cumsum(counts) - counts), counts)]
        inside = np.abs(times[mine] - other_times[theirs]) <= window
        mine, theirs = mine[inside], theirs[inside]
        pairs += len(items[mine])
        _ = times[mine], rows[mine], others[theirs], other_times[theirs], other_rows[theirs]
        kept[store] = [np.concatenate(both) for both in zip(kept[store], (items, times, rows), strict=True)]
    return pairs, time.process_time() - began


# --- preference queries --------------------------------------------------------------------------


@dataclass
class Core:
    """Summaries and queries, batch by batch, as the engine runs them on the driver."""

    shapes: Mapping[str, Summary]
    queries: Mapping[str, PreferenceQuery]
    state: PromisingState = field(init=False)
    upto: str = "probe"  # "keep": only keep the tuples; "count": also count partners; "probe": everything
    batch_id: int = 0
    produced: int = 0
    probes: int = 0  # of the last batch, and the seconds that they took
    probing: float = 0.0

    def __post_init__(self) -> None:
        queries = {name: (query, 0) for name, query in self.queries.items()}
        shapes = {name: (shape, 0) for name, shape in self.shapes.items()}
        self.state = with_registered(PromisingState(), shapes, queries)

    def push(self, summary: str, table: pa.Table, budget: int | None) -> None:
        """A batch of rows of a summary's stream."""
        self.batch_id += 1
        self.probes, self.probing = 0, 0.0
        own = self.state.summaries[summary]
        shape, want = own.representation.shape, tuple_columns(self.shapes[summary], self.queries)
        tuples = batch_tuples(table, shape, want, self.batch_id).since(own.late_before)
        arrival = BatchArrival.of_run(shape, tuples, want, table.num_rows - len(tuples))
        self._run({summary: arrival}, budget)

    def _run(self, arrivals: Mapping[str, BatchArrival], budget: int | None) -> None:
        summaries = {
            name: with_arrival(own, arrivals[name]) if name in arrivals else own
            for name, own in self.state.summaries.items()
        }
        state = PromisingState(summaries, self.state.queries)
        read = DriverTuples(state)
        planner, queries = ProbePlanner(state, arrivals, self.batch_id, read), dict(state.queries)
        for name, query in self.queries.items():
            if self.upto != "probe":
                if self.upto == "count":
                    _count_partners(planner, name, query)
                continue
            probes, rows, cost = planner.plan(name, query, budget), 0, 0
            began = time.process_time()
            for side, probe in enumerate(probes):
                if probe.whole is not None or probe.taken.any():
                    done = make_probes(probe, read, None if budget is None else budget - cost)
                    rows, cost = rows + done.table.num_rows, cost + done.charge
                    probes[side] = replace(probe, taken=done.made)
            self.probes, self.probing = self.probes + cost, self.probing + time.process_time() - began
            queries[name] = planner.state_after(name, query, probes, cost, rows)
            self.produced += rows
        self.state = PromisingState(evicted(summaries, self.queries), queries)


def _count_partners(planner: ProbePlanner, name: str, query: PreferenceQuery) -> None:
    """Count the partners of a batch's tuples, as every plan does whose `share` is exact."""
    assert planner.by_key is not None
    for side in range(len(query.sides)):
        found = planner.by_key.matches(name, planner.reading(name, query, side))
        _ = 0 if found is None else found.total


def rows_of(items: NDArray, times: NDArray, rows: NDArray) -> pa.Table:
    """Rows as the backend provides them: key, time, and the kept columns."""
    column = pa.array(items)
    keys = row_hashes([column], len(column)).view(np.int64)
    return pa.table({"key": keys, "time": times, "x0": column, "x1": rows})


def join_core(order: str, window: int) -> Core:
    shapes = {f"items{n}": Summary(f"items{n}", f"store{n}", "item", window) for n in (0, 1)}
    sides = tuple(Side(f"store{n}", f"items{n}", columns=("item", "row")) for n in (0, 1))
    counts = [EstimatedCount(side.stream, "item") for side in sides]
    query = PreferenceQuery(sides, Preference(order, window=window), Arithmetic("*", counts[0], counts[1]))
    return Core(shapes, {"join": query})


def promising_join(
    stream: Sequence[tuple[int, pa.Table]],
    order: str,
    budget: int | None,
    window: int,
    upto: str = "probe",
) -> tuple[int, float]:
    """The pairs that a join with a budget per batch produces, and the seconds that it took."""
    core, began = replace(join_core(order, window), upto=upto), time.process_time()
    for store, table in stream:
        core.push(f"items{store}", table, budget)
    return core.produced, time.process_time() - began


def masks(ranges: Sequence[tuple[int, int]], items: NDArray, prices: NDArray) -> float:
    """Milliseconds that plain NumPy takes to select and read the rows of each range."""
    began = time.process_time()
    for low, high in ranges:
        some = np.flatnonzero((items >= low) & (items < high))
        _ = items[some], prices[some]
    return (time.process_time() - began) * 1e3


def selections(
    count: int, size: int, width: int, order: str, share: float | None, rounds: int = 12
) -> tuple[float, float, float]:
    """Milliseconds per batch of so many selections of ranges in an engine, those of the part for queries with a
    preference, and those of plain masks."""
    rng = np.random.default_rng(17)
    ranges = [(int(low), int(low) + width) for low in rng.integers(0, ITEMS - width, count)]
    budget = "" if share is None else f"BUDGET {max(int(size * width / ITEMS * share), 1)} PROBES"
    engine = transom.Engine(backend="local")
    feed = engine.feed("store", "item bigint, price double, ts timestamp", time="ts")
    engine.execute("CREATE SUMMARY items ON store(item) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)")
    for low, high in ranges:
        engine.register(
            f"SELECT item, price FROM store WHERE item >= {low} AND item < {high} "
            f"WITH PREFERENCE {order} SUMMARY.Estimate.Count(item) {budget}"
        )
    promising = engine._loop.promising
    process, own, whole, plain = promising.process, list[float](), list[float](), list[float]()

    def timed(*given: Any) -> Any:
        began = time.process_time()
        made = process(*given)
        own.append((time.process_time() - began) * 1e3)
        return made

    promising.process = timed  # type: ignore[method-assign]
    for number in range(rounds):
        items, prices = rng.integers(0, ITEMS, size), rng.random(size)
        times = np.sort(rng.integers(0, SECOND, size)) + (number + 1_700_000_000) * SECOND
        stamps = pa.array(times, pa.timestamp("us", tz="UTC"))
        feed.push(pa.table({"item": items, "price": prices, "ts": stamps}))
        began = time.process_time()
        engine.step()
        whole.append((time.process_time() - began) * 1e3)
        plain.append(masks(ranges, items, prices))
    engine.stop()
    return tuple(float(np.median(spent[2:])) for spent in (whole, own, plain))  # type: ignore[return-value]


def compare_selections(count: int) -> None:
    """Print what selections cost without and with budgets."""
    print(f"{count} selections; milliseconds a batch, and the ratio to no budget")
    print(f"    {'':<34}{'engine':>10}{'selections':>12}{'masks':>8}")
    for size, width in ((2_000, 70), (2_000, 500), (20_000, 70), (20_000, 500)):
        exact = None
        budgets: list[tuple[str, float | None]] = [("desc", None), ("desc", 0.1), ("weighted", 0.1)]
        if size * width <= 2_000 * 70:  # with asc, every value is deferred for itself
            budgets.append(("asc", 0.1))
        for order, share in budgets:
            whole, own, plain = selections(count, size, width, order, share)
            exact = (whole, own) if exact is None else exact
            name = "no budget" if share is None else f"{order}, {share:.0%}"
            label = f"batches of {size:,}, {width / ITEMS:.0%}: {name}"
            print(
                f"    {label:<40}{whole:>8.1f}{own:>8.1f}{plain:>8.1f}{whole / exact[0]:>8.2f}{own / exact[1]:>8.2f}"
            )


# --- budgets of time ---------------------------------------------------------------------------------


def timed_join(
    stream: Sequence[tuple[int, pa.Table]], window: int, micros: int | None, probes: int | None = None
) -> tuple[int, Floats]:
    """The pairs of a join with a budget of time or of probes, and the seconds of each batch."""
    core, pace, spent = join_core("desc", window), Pace(), []
    for store, table in stream:
        budget = probes if micros is None else pace.probes(micros)
        began = time.process_time()
        core.push(f"items{store}", table, budget)
        spent.append(time.process_time() - began)
        pace.note(core.probes, core.probing, spent[-1] - core.probing)
    return core.produced, np.array(spent)


def time_budget(workload: Workload, size: int = 2_000, count: int = 200) -> None:
    """Print whether a budget of time holds at three times capacity, and how good the best fixed setting is."""
    arrays = list(batches(size * count // 2, size, workload.items))
    tables = [(store, rows_of(items, times, rows)) for store, items, times, rows in arrays]
    every, exact = timed_join(tables, workload.window, None)
    settled = slice(
        count // 5, None
    )  # the first batches have few partners, and less to do than the budget allows
    micros = int(exact[settled].mean() / 3 * 1e6)
    produced, spent = timed_join(tables, workload.window, micros)
    fixed = {
        probes: timed_join(tables, workload.window, None, probes)
        for probes in (np.linspace(0.1, 0.5, 5) * every / count).astype(int).tolist()
    }
    within = [found for found, took in fixed.values() if took[settled].mean() <= 1.02 * micros / 1e6]
    off = np.abs(spent[settled] / (micros / 1e6) - 1)
    print(
        f"BUDGET '{micros / 1e3:.0f} ms' at three times capacity, {count} batches of {size:,}: a batch takes"
        f" {spent[settled].mean() * 1e3:.0f} ms on average; {np.mean(off <= 0.2):.0%} are within 20 %;"
        f" {produced / max(within):.2f} of the output of the best fixed setting"
    )


# --- the tables ----------------------------------------------------------------------------------


def least(run: Callable[[], tuple[int, float]], rounds: int) -> tuple[int, float]:
    """The run that took the least time."""
    return min((run() for _ in range(rounds)), key=lambda made: made[1])


def compare(title: str, workload: Workload, tuples: int, size: int, rounds: int) -> None:
    """Print what a join costs by the plain plan, without a budget, and with budgets."""
    arrays = list(batches(tuples, size, workload.items))
    tables = [(store, rows_of(items, times, rows)) for store, items, times, rows in arrays]
    every, plain = least(lambda: plain_join(arrays, workload.window), rounds)
    print(f"{title}, batches of {size:,}: {every:,} pairs, {every / tuples / 2:,.0f} per tuple")
    print(f"    {'':<24}{'found':>8}{'cpu s':>8}{'of plain':>10}{'of exact':>10}")
    print(f"    {'plain':<24}{1:>8.1%}{plain:>8.3f}{1:>10.2f}")
    exact = None
    for order, share in [("desc", None), ("desc", 0.1), ("asc", 0.1), ("weighted", 0.1), ("desc", 0.01)]:
        budget = None if share is None else int(every / len(arrays) * share)
        run = partial(promising_join, tables, order, budget, workload.window)
        found, took = least(run, rounds)
        exact = took if exact is None else exact
        name = "no budget" if share is None else f"{order}, budget of {share:.0%}"
        print(f"    {name:<24}{found / every:>8.1%}{took:>8.3f}{took / plain:>10.2f}{took / exact:>10.2f}")
    for upto, name in (("keep", "keep tuples, no more"), ("count", "and count partners")):
        run = partial(promising_join, tables, "desc", None, workload.window, upto)
        _, took = least(run, rounds)
        print(f"    {name:<24}{0:>8.1%}{took:>8.3f}{took / plain:>10.2f}{took / (exact or 1):>10.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=60_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--selections", type=int, default=200)
    parts = ["joins", "time", "selections"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    options = parser.parse_args(arguments)
    if "joins" in options.only:
        for title, workload in WORKLOADS.items():
            for size in options.batch:
                compare(title, workload, options.tuples, size, options.rounds)
    if "time" in options.only:
        time_budget(Workload(20, 60 * SECOND))
    if "selections" in options.only:
        compare_selections(options.selections)


if __name__ == "__main__":
    main()
