"""Joins with a preference, batch by batch, compared with nested loops and symmetric hash join."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduce.promising.baselines import Pairs, Stream, SymmetricHashJoin, exact_join
from reproduce.promising.batch_join import Simulation, product_of_counts, stream_of
from transom.elements import Preference, Summary
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps

STRUCTURES = ("none", "time", "cells", "adjusting")
ORDERS = ("desc", "asc", "weighted")


@dataclass(frozen=True)
class Case:
    streams: tuple[Stream, Stream]
    simulation: Simulation

    @property
    def window(self) -> int | None:
        return self.simulation.preference.window

    @property
    def last(self) -> int:
        return max(int(stream.batch_id.max(initial=0)) for stream in self.streams)


def nested_loops(one: Stream, two: Stream, window: int | None) -> Counter[tuple[int, int]]:
    return Counter(
        (i, j)
        for i in range(len(one))
        for j in range(len(two))
        if one.key[i] == two.key[j] and (window is None or abs(one.time[i] - two.time[j]) <= window)
    )


def pairs(found: Pairs) -> Counter[tuple[int, int]]:
    return Counter(zip(found.left.tolist(), found.right.tolist(), strict=True))


@st.composite
def cases(draw: st.DrawFn, depth: int = 9) -> Case:
    """Streams with times in any order and any batches; with nine granularities no tuple is evicted."""
    size = draw(st.integers(0, 40))
    numbers = st.integers(0, draw(st.sampled_from((30, 300, 3000))))
    times = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), np.int64)
    if draw(st.booleans()):
        times = np.sort(times)
    values = np.array(draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)), np.int64)
    side = np.array(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)), np.int64)
    lengths = draw(st.integers(1, 10))
    batch = 2 * (np.arange(size) // lengths) + side
    streams = tuple(stream_of(times[side == s], values[side == s], batch[side == s], 4) for s in (0, 1))
    shapes = tuple(
        Summary(
            name,
            name,
            "item",
            granularity=draw(st.sampled_from((16, 100, 320))),
            rate=draw(st.integers(2, 4)),
            depth=depth,
            structure=draw(st.sampled_from(STRUCTURES)),
            kind=draw(st.sampled_from(("countsketch", "histogram"))),
            buckets=draw(st.integers(1, 5)),
        )
        for name in ("one", "two")
    )
    window = draw(st.none() | st.integers(0, 400))
    fade = draw(st.sampled_from((1.0, 0.8)))
    preference = Preference(draw(st.sampled_from(ORDERS)), fade, window)
    simulation = Simulation(streams, shapes, preference, product_of_counts(shapes))  # type: ignore[arg-type]
    return Case(streams, simulation)  # type: ignore[arg-type]


@settings(max_examples=50)
@given(cases())
def test_without_a_budget_the_output_is_the_exact_answer(case: Case) -> None:
    assert pairs(case.simulation.run()) == nested_loops(*case.streams, case.window)


@settings(max_examples=50)
@given(st.integers(1, 9).flatmap(cases), st.integers(0, 60))
def test_a_budget_limits_the_probes_and_every_pair_is_right_and_found_once(case: Case, budget: int) -> None:
    found = case.simulation.run(lambda batch_id: budget)
    exact = nested_loops(*case.streams, case.window)
    assert pairs(found) <= exact
    assert all(probes <= budget for probes in found.probes.values())


@settings(max_examples=50)
@given(st.integers(1, 3).flatmap(cases))
def test_only_pairs_of_evicted_tuples_are_missing(case: Case) -> None:
    """Without a budget, a pair is missing only if a tuple was late, or evicted before its partner arrived."""
    found, exact = pairs(case.simulation.run()), nested_loops(*case.streams, case.window)
    assert found <= exact
    for missing in exact - found:
        ages = [age(case, side, missing) for side in (0, 1)]
        assert max(ages) > 0


def age(case: Case, side: int, pair: tuple[int, int]) -> int:
    """How far the tuple of a side was below the floor when the later tuple of the pair arrived."""
    stream, shape = case.streams[side], case.simulation.shapes[side]
    batch_id = max(int(case.streams[s].batch_id[pair[s]]) for s in (0, 1))
    high = int(stream.time[stream.batch_id <= batch_id].max())
    nothing = summarize_steps(shape, np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.int64))
    floor = Representation.new(shape).inserted(nothing, high).floor
    assert floor is not None
    return floor - int(stream.time[pair[side]])


@settings(max_examples=25)
@given(cases(), st.integers(80, 400))
def test_idle_batches_complete_the_answer_if_no_tuple_leaves_the_window(case: Case, budget: int) -> None:
    idle = range(case.last + 1, case.last + 1600 // budget + 2)  # 40 x 40 probes are more than enough
    found = case.simulation.run(lambda batch_id: budget, idle)
    assert pairs(found) <= nested_loops(*case.streams, case.window)
    if case.window is None or case.window >= 3000:
        assert pairs(found) == nested_loops(*case.streams, case.window)


@given(cases())
def test_symmetric_hash_join_without_a_budget_is_the_exact_answer(case: Case) -> None:
    found = exact_join(case.streams, case.window)
    assert pairs(found) == nested_loops(*case.streams, case.window)
    assert found.probes == SymmetricHashJoin(case.streams, case.window).needs


@given(cases(), st.integers(0, 60))
def test_symmetric_hash_join_keeps_to_its_budget(case: Case, budget: int) -> None:
    join = SymmetricHashJoin(case.streams, case.window)
    found = join.run(lambda batch_id: budget)
    assert pairs(found) <= nested_loops(*case.streams, case.window)
    for batch_id, need in join.needs.items():
        assert found.probes[batch_id] <= min(budget, need)
