"""Batches of preference queries: every pair is found once, on the driver and in partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.promising.pure_batches import SECOND, PureStores, join_of, rows_of, shape_of
from transom.elements import Preference
from transom.state import snapshot
from transom.state.commit_record import CommitRecord
from transom.state.state import State

STRUCTURES = ["none", "time", "cells", "adjusting"]
WINDOW = 20 * SECOND

batch = st.tuples(
    st.sampled_from([1, 2]),
    st.lists(st.tuples(st.integers(0, 5) | st.none(), st.integers(0, 60 * SECOND)), min_size=1, max_size=12),
)


def stores(
    structures: tuple[str, str],
    preference: Preference,
    partitions: int = 1,
    by_cell: bool = False,
    **options: Any,
) -> PureStores:
    shapes = {
        f"items{n}": shape_of(n, structure=structures[n - 1], buckets=4, rate=2, depth=6, **options)
        for n in (1, 2)
    }
    return PureStores(shapes, {"join": join_of(preference)}, partitions, by_cell)


def run(engine: PureStores, batches: Any, budget: int | None, restarts: bool = False) -> Counter[Any]:
    """Run batches; the result is all pairs, by comparing every row with every other."""
    held: dict[int, list[Any]] = {1: [], 2: []}
    number = 0
    for store, rows in batches:
        held[store] += [(number + i, *row) for i, row in enumerate(rows)]
        items, times = zip(*rows, strict=True)
        engine.push(store, rows_of(items, times, number), budget)
        number += len(rows)
        if restarts:
            packed = snapshot.dumps(State(promising=engine.known), CommitRecord("local"))
            engine.known = snapshot.loads(packed)[0].promising
    return Counter(
        (one, other)
        for one, item, here in held[1]
        for other, same, there in held[2]
        if item is not None and item == same and abs(here - there) <= WINDOW
    )


def pairs(engine: PureStores) -> Counter[Any]:
    return Counter((row["0.row"], row["1.row"]) for row in engine.found["join"])


@given(
    st.lists(batch, min_size=1, max_size=8),
    st.tuples(st.sampled_from(STRUCTURES), st.sampled_from(STRUCTURES)),
    st.sampled_from(["desc", "asc", "weighted"]),
    st.sampled_from([1, 3]),
    st.sampled_from(["countsketch", "histogram"]),
)
@settings(max_examples=60)
def test_without_a_budget_every_pair_is_found_once(
    batches: Any, structures: tuple[str, str], order: str, partitions: int, kind: str
) -> None:
    mixed = partitions > 1 and len({one in ("none", "time") for one in structures}) > 1
    engine = stores(structures, Preference(order, window=WINDOW), 1 if mixed else partitions, kind=kind)
    exact = run(engine, batches, None)
    assert pairs(engine) == exact


@given(
    st.lists(batch, min_size=1, max_size=8),
    st.sampled_from(STRUCTURES),
    st.sampled_from(["desc", "asc", "weighted"]),
    st.integers(0, 20),
    st.sampled_from([1, 3]),
)
@settings(max_examples=60)
def test_a_budget_is_kept_and_deferred_pairs_are_found_when_idle(
    batches: Any, structure: str, order: str, budget: int, partitions: int
) -> None:
    engine = stores((structure, structure), Preference(order, window=WINDOW), partitions)
    exact = run(engine, batches, budget, restarts=True)
    own = engine.known.queries["join"]
    assert own.done.probes <= budget * len(batches)
    assert not pairs(engine) - exact
    engine.idle()
    left = engine.known.queries["join"]
    assert not pairs(engine) - exact, "and nothing twice"
    assert left.done.produced == pairs(engine).total()
    assert not any(map(len, left.pending))
    if left.lost == 0:
        high = max(time for _, rows in batches for _, time in rows)
        recent = all(time > high - WINDOW for _, rows in batches for _, time in rows)
        assert pairs(engine) == exact or not recent


def test_partitions_make_the_same_choice_as_the_driver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [
        (n % 2 + 1, [(int(i), n * SECOND) for i in np.minimum(rng.zipf(1.5, 60), 40)]) for n in range(12)
    ]
    found = []
    for partitions in (1, 4):
        engine = stores(("cells", "adjusting"), Preference("desc", window=WINDOW), partitions, by_cell=True)
        run(engine, batches, 300)
        found.append((pairs(engine), engine.known.queries["join"].done))
    assert found[0] == found[1]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900 * SECOND)), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900 * SECOND)), min_size=1, max_size=30),
    st.sampled_from(STRUCTURES),
    st.integers(1, 3),
)
@settings(max_examples=40)
def test_batches_may_be_longer_than_all_granularities_together(
    first: Any, second: Any, structure: str, depth: int
) -> None:
    shapes = {f"items{n}": shape_of(n, structure=structure, buckets=4, rate=2, depth=depth) for n in (1, 2)}
    engine = PureStores(shapes, {"join": join_of(Preference("desc", window=WINDOW))})
    assert max(shape.reach for shape in shapes.values()) <= 70 * SECOND
    exact = run(engine, [(1, first), (2, second)], None)
    assert pairs(engine) == exact


@pytest.mark.parametrize("seconds", [60, 6_000])
def test_runs_stay_few_and_old_tuples_are_evicted(seconds: int) -> None:
    engine = stores(("adjusting", "adjusting"), Preference("desc", window=WINDOW))
    for second in range(0, seconds, seconds // 60):
        for store in (1, 2):
            engine.push(store, rows_of([1, 2, 3], [second * SECOND] * 3))
    own = engine.known.summaries["items1"]
    assert own.arrived == 180 and len(own.runs) <= 16
    reach = own.representation.shape.reach
    assert own.kept <= 180 * min(1, 2 * reach / SECOND / seconds) + 3


def test_tuples_are_kept_for_a_stream_that_lags() -> None:
    engine = stores(("adjusting", "adjusting"), Preference("desc", window=WINDOW))
    engine.push(2, rows_of([9], [0]))
    for second in range(0, 6_000, 100):
        engine.push(1, rows_of([1, 2, 3], [second * SECOND] * 3))
    assert engine.known.summaries["items1"].kept == 180, "the other stream may have partners for them"
    engine.push(2, rows_of([1], [5_900 * SECOND]))
    assert engine.known.summaries["items1"].kept < 60


def test_a_tuple_that_is_not_late_finds_partners_that_are_older_by_the_window() -> None:
    """The summaries keep 210 seconds; a is 195 seconds older than b, which comes 205 seconds behind."""
    shapes = {f"items{n}": shape_of(n, structure="cells", buckets=4) for n in (1, 2)}
    assert shapes["items1"].reach == 210 * SECOND
    engine = PureStores(shapes, {"join": join_of(Preference("desc", window=200 * SECOND))})
    engine.push(1, rows_of([7], [0], first=0))
    engine.push(1, rows_of([1], [400 * SECOND], first=1))
    engine.push(2, rows_of([2], [400 * SECOND], first=2))
    engine.push(2, rows_of([7], [195 * SECOND], first=3))
    assert engine.known.queries["join"].coverage.complete
    assert pairs(engine) == Counter({(0, 3): 1})


def test_a_tuple_behind_all_granularities_is_late_even_if_older_ones_are_kept() -> None:
    shapes = {f"items{n}": shape_of(n, structure="cells", buckets=4) for n in (1, 2)}
    engine = PureStores(shapes, {"join": join_of(Preference("desc", window=200 * SECOND))})
    for store in (1, 2):
        engine.push(store, rows_of([7], [150 * SECOND]))
        engine.push(store, rows_of([1], [400 * SECOND]))
    found = pairs(engine)
    engine.push(2, rows_of([7, 7], [189 * SECOND, 190 * SECOND], first=100))
    assert pairs(engine) - found == Counter({(0, 101): 1})
    own = engine.known.summaries["items2"]
    assert (own.arrived, own.late, own.kept) == (4, 1, 3)
    engine.push(2, rows_of([7], [0]))
    assert engine.known.summaries["items2"].late == 2, "a batch may be late as a whole"


disordered = st.lists(
    st.tuples(
        st.sampled_from([1, 2]),
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 70 * SECOND)), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=20,
)


@given(disordered, st.sampled_from(STRUCTURES), st.sampled_from([5, 25, 70]))
@settings(max_examples=60)
def test_disorder_loses_no_pair_of_tuples_that_were_not_late(
    batches: Any, structure: str, window: int
) -> None:
    """Batch n is 25 n seconds later; each of its tuples is up to 70 seconds older than that."""
    shapes = {f"items{n}": shape_of(n, structure=structure, buckets=3, rate=2) for n in (1, 2)}
    engine = PureStores(shapes, {"join": join_of(Preference("desc", window=window * SECOND))})
    high, held, number, some_late = {1: None, 2: None}, {1: [], 2: []}, 0, False
    for n, (store, rows) in enumerate(batches):
        times = [25 * SECOND * n - behind for _, behind in rows]
        slowest = None if None in high.values() else min(high.values())
        for i, ((item, _), time) in enumerate(zip(rows, times, strict=True)):
            is_late = slowest is not None and time < slowest - shapes["items1"].reach
            some_late |= is_late
            if not is_late:
                held[store].append((number + i, item, time))
        on_time = [time for time in times if slowest is None or time >= slowest - shapes["items1"].reach]
        if on_time:
            high[store] = max(on_time) if high[store] is None else max(high[store], *on_time)
        engine.push(store, rows_of([item for item, _ in rows], times, number))
        number += len(rows)
    assert any(own.late for own in engine.known.summaries.values()) == some_late
    assert pairs(engine) == Counter(
        (one, other)
        for one, item, here in held[1]
        for other, same, there in held[2]
        if item == same and abs(here - there) <= window * SECOND
    )


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("year", [253_402_300_799 * SECOND, -62_135_596_800 * SECOND])
def test_a_row_of_the_first_or_last_year_harms_no_later_batch(structure: str, year: int) -> None:
    shapes = {f"items{n}": shape_of(n, structure=structure, buckets=256) for n in (1, 2)}
    engine = PureStores(shapes, {"join": join_of(Preference("desc", window=WINDOW))})
    batches = [(1, [(i, i * SECOND) for i in range(20)] + [(7, year)]), (2, [(7, 8 * SECOND)])]
    batches += [(1, [(7, 9 * SECOND)]), (2, [(9, 8 * SECOND)])]
    exact = run(engine, batches, 50)
    engine.idle()
    assert pairs(engine) == exact and exact.total() == 3


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("fade", [1.0, 0.8])
def test_a_short_budget_is_spent_on_pairs_alone_and_the_share_is_exact(order: str, fade: float) -> None:
    """Tuples come up to half a minute out of order, in batches that are longer than the window."""
    rng = np.random.default_rng(7)
    engine = stores(("adjusting", "cells"), Preference(order, fade, WINDOW))
    batches = []
    for n in range(8):
        times = n * 15 * SECOND + rng.integers(-30, 30, 80) * SECOND
        batches.append(
            (n % 2 + 1, list(zip(np.minimum(rng.zipf(1.5, 80), 20).tolist(), times.tolist(), strict=True)))
        )
    exact = run(engine, batches, 40)
    own = engine.known.queries["join"]
    assert own.done.probes == own.done.produced == pairs(engine).total() == 40 * 7, (
        "the first batch has no partners"
    )
    assert not pairs(engine) - exact
    assert own.coverage.share == pytest.approx(pairs(engine).total() / exact.total())
