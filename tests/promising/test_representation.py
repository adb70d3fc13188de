from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.promising.streams import KINDS, STRUCTURES, Plain, Tuple, batches, shaped, shapes, tuples
from transom.elements import Summary
from transom.promising.representation import Representation
from transom.promising.step_summaries import StepSummaries, merge_steps, summarize_steps
from transom.promising.summary_kinds import concat_summaries, empty_summaries
from transom.promising.summary_protocol import CellSummaries
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of, step_of

KEYS = np.arange(7, dtype=np.uint64)


@given(shapes, batches)
def test_zones_are_adjacent_and_count_all_kept_tuples(shape: Summary, batches: list[list[Tuple]]) -> None:
    plain = Plain(shape)
    for batch_id in batches:
        plain.batch(batch_id)
        zones = plain.kept.zones()
        assert zones.since[-1] >= plain.floor
        assert (zones.since[:-1] >= zones.until[1:]).all()
        assert (zones.counts.any(axis=1) | (zones.granularity == 1)).all(), "behind G1 there are none without"
        assert zones.counts.sum() == sum(plain.counts(plain.floor, zones.until[0]))
        assert zones.until[0] > plain.kept.high >= zones.until[0] - step_of(shape)
        assert (np.diff(zones.granularity) >= 0).all() and zones.granularity[0] == 1
        for since, until, counts in zip(zones.since, zones.until, zones.counts.tolist(), strict=True):
            assert counts == plain.counts(since, until)


@given(shapes, batches)
def test_exact_summaries_estimate_exactly_in_any_order_of_arrival(
    shape: Summary, batches: list[list[Tuple]]
) -> None:
    plain = Plain(shape)
    for batch_id in batches:
        plain.batch(batch_id)
    zones, buckets = plain.kept.zones(), bucket_of(shape, KEYS)
    spans = list(zip(zones.since.tolist(), zones.until.tolist(), strict=True))
    counted = [[plain.count(key, *span) for span in spans] for key in KEYS.tolist()]
    if shape.structure == "none":  # nothing is known but how many there are
        counted = [[plain.counts(*span)[0] for span in spans] for _ in KEYS]
    assert plain.kept.estimate(KEYS, buckets).tolist() == counted
    assert plain.kept.total(KEYS, buckets).tolist() == [sum(row) for row in counted]
    assert plain.kept.flat().total(KEYS, buckets).tolist() == [sum(row) for row in counted]
    middle = spans[len(spans) // 2]
    assert plain.kept.total(KEYS, buckets, middle[0]).tolist() == [
        sum(row[: len(spans) // 2 + 1]) for row in counted
    ]


@given(shapes, batches)
def test_sketches_of_zones_and_pyramid_nodes_equal_the_sketches_of_their_tuples(
    shape: Summary, batches: list[list[Tuple]]
) -> None:
    plain = Plain(replace(shape, kind="countsketch", structure="adjusting", rows=3, width=4))
    for batch_id in batches:
        plain.batch(batch_id)
    step = step_of(shape)
    sums: dict[int, CellSummaries] = {}
    for zone in plain.kept.every:
        keys = [key for time, key in plain.tuples if zone.since * step <= time < zone.until * step]
        there = np.array(keys, np.uint64)
        fresh = empty_summaries("countsketch", shape.buckets, 3, 4).summarize(
            bucket_of(plain.shape, there), there
        )
        assert zone.summaries.packed() == fresh.packed()
        sums[zone.granularity] = fresh.add(sums[zone.granularity]) if zone.granularity in sums else fresh
    for i in sums:
        roots = [node.summaries for node in plain.kept.pyramids[i - 1].levels[-1]]
        assert (
            concat_summaries(roots)
            .sum_groups(np.tile(np.arange(shape.buckets), len(roots)), shape.buckets)
            .packed()
            == sums[i].packed()
        )


@given(shapes, batches)
def test_the_floor_is_a_reach_behind_the_newest_and_never_falls(
    shape: Summary, batches: list[list[Tuple]]
) -> None:
    plain, before = Plain(shape), None
    for batch_id in batches:
        plain.batch(batch_id)
        assert plain.floor <= plain.kept.high - shape.reach + step_of(shape)
        assert before is None or plain.floor >= before
        before = plain.floor


@given(shapes, st.lists(tuples, min_size=1, max_size=30), st.lists(st.booleans(), min_size=30, max_size=30))
def test_zones_do_not_depend_on_how_a_stream_in_order_is_cut_into_batches(
    shape: Summary, tuples: list[Tuple], cuts: list[bool]
) -> None:
    whole, cut = Plain(shape), Plain(shape)
    tuples, batch = sorted(tuples), []
    for one, ends in zip(tuples, cuts, strict=False):
        batch.append(one)
        if ends:
            cut.batch(batch)
            batch = []
    if batch:
        cut.batch(batch)
    whole.batch(tuples)
    one, other = whole.kept, cut.kept
    assert (
        _spans(one)[: one.zones().granularity.tolist().count(1)]
        == _spans(other)[: other.zones().granularity.tolist().count(1)]
    )
    assert one.zones().counts.tolist() == other.zones().counts.tolist()
    assert whole.floor == cut.floor


def _spans(kept: Representation) -> list[tuple[int, int]]:
    zones = kept.zones()
    return list(zip(zones.since.tolist(), zones.until.tolist(), strict=True))


@given(shapes, st.lists(tuples, min_size=1, max_size=30), st.integers(0, 30))
def test_merged_parts_of_a_batch_equal_the_batch(shape: Summary, tuples: list[Tuple], cut: int) -> None:
    times = np.array([time for time, _ in tuples], np.int64)
    keys = np.array([key for _, key in tuples], np.uint64)
    buckets = bucket_of(shape, keys)
    parts = [summarize_steps(shape, times[s], keys[s], buckets[s]) for s in (slice(0, cut), slice(cut, None))]
    parts = [StepSummaries.unpacked(part.packed()) for part in parts]
    high = int(times.max())
    whole = Representation.new(shape).inserted(summarize_steps(shape, times, keys, buckets), high)
    made = Representation.new(shape).inserted(merge_steps(parts), high)
    assert _spans(made) == _spans(whole)
    assert made.zones().counts.tolist() == whole.zones().counts.tolist()
    assert (
        made.estimate(KEYS, bucket_of(shape, KEYS)).tolist()
        == whole.estimate(KEYS, bucket_of(shape, KEYS)).tolist()
    )


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_round_trips_through_bytes_and_pickles(structure: str, kind: str) -> None:
    shape = shaped(structure, 160, kind=kind, buckets=8)
    rng = np.random.default_rng(5)
    stream = [
        (int(time), int(key)) for time, key in zip(range(0, 4000, 3), rng.integers(0, 7, 1334), strict=False)
    ]
    plain = Plain(shape)
    plain.batch(stream[:900])
    again = (Representation.unpacked(shape, plain.kept.packed()), pickle.loads(pickle.dumps(plain.kept)))
    plain.batch(stream[900:])
    for other in again:
        rest = Plain(shape)
        rest.kept = other
        rest.batch(stream[900:])
        assert _spans(rest.kept) == _spans(plain.kept)
        buckets = bucket_of(shape, KEYS)
        assert rest.kept.estimate(KEYS, buckets).tolist() == plain.kept.estimate(KEYS, buckets).tolist()
        assert rest.kept.packed() == plain.kept.packed()
    assert Representation.unpacked(shape, Representation.new(shape).packed()).floor is None


def test_zones_collapse_as_in_figure_5() -> None:
    """
    Granularity 4, zones of 1; rate 2, depth 3: G2 has zones of 4, G3 of 8. A tuple at every time from 0.

     now                G3                     G2               G1
      12                     [0,4) [4,8) [8,9)      9 10 11 12
      13                     [0,4) [4,8) [8,10)    10 11 12 13      9 is pushed into G2
      23   [0,8) [8,12)         [12,16) [16,20)   20 21 22 23      [0,4), [4,8), [8,12) into G3
    """
    plain = Plain(shaped("cells", 4, rate=2, depth=3, buckets=1, kind="histogram"))
    plain.batch([(time, time % 2) for time in range(13)])
    assert _layers(plain.kept)[1] == [(12, 13), (11, 12), (10, 11), (9, 10)]
    assert _layers(plain.kept)[2] == [(8, 9), (4, 8), (0, 4)]
    assert 3 not in _layers(plain.kept)
    plain.batch([(13, 1)])
    assert _layers(plain.kept)[1] == [(13, 14), (12, 13), (11, 12), (10, 11)]
    assert _layers(plain.kept)[2] == [(8, 10), (4, 8), (0, 4)]
    for time in range(14, 24):
        plain.batch([(time, time % 2)])
    assert _layers(plain.kept) == {
        1: [(23, 24), (22, 23), (21, 22), (20, 21)],
        2: [(16, 20), (12, 16)],
        3: [(8, 12), (0, 8)],
    }
    # A zone's tuples came along, and so did their summaries.
    zeros = plain.kept.estimate(np.array([0], np.uint64), np.array([0]))[0]
    assert zeros.tolist() == [0, 1, 0, 1, 2, 2, 2, 4]


def _layers(kept: Representation) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for i, span in zip(kept.zones().granularity.tolist(), _spans(kept), strict=True):
        found.setdefault(i, []).append(span)
    return found


def test_a_change_of_behaviour_ends_a_zone_and_a_steady_stream_has_zones_of_maxlength() -> None:
    shape = shaped("adjusting", 1600)  # steps of 100
    rng = np.random.default_rng(3)
    times = np.arange(1600)
    steady = rng.integers(0, 20, 1600)
    for changes in ([], [600], [300, 600, 1300]):
        keys = steady + 100 * np.searchsorted(changes, times, side="right")
        plain = Plain(shape)
        plain.batch(list(zip(times.tolist(), keys.tolist(), strict=True)))
        starts = plain.kept.zones().since[plain.kept.zones().granularity == 1]
        starts = sorted(starts[starts >= 0].tolist())
        assert set(changes) <= set(starts)
        quiet = [start for start in starts if start not in changes and start != 1500]
        cuts = [0, *changes]
        assert all(min(start - cut for cut in cuts if start >= cut) % 400 == 0 for start in quiet)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_memory_is_bounded_by_depth_not_by_how_long_a_stream_is(structure: str) -> None:
    shape = shaped(structure, 1600, buckets=16, rate=3)
    rng = np.random.default_rng(4)
    kept, sizes = Representation.new(shape), {}
    for batch_id in range(1000):
        times = np.arange(batch_id * 16_000, (batch_id + 1) * 16_000, 100)  # ten granularities
        keys = rng.integers(0, 50, len(times)).astype(np.uint64)
        kept = kept.inserted(summarize_steps(shape, times, keys, bucket_of(shape, keys)), int(times[-1]))
        sizes[batch_id] = kept.nbytes
    assert max(sizes.values()) <= 1.5 * sizes[1]


def test_a_batch_of_a_very_long_time_takes_little_memory() -> None:
    shape = shaped("adjusting", 1600, rate=10, depth=4)
    times = np.arange(0, 5_000_000, 500)
    keys = (times % 77).astype(np.uint64)
    some = summarize_steps(shape, times, keys, bucket_of(shape, keys))
    assert len(some.steps) < 80
    kept = Representation.new(shape).inserted(some, int(times[-1]))
    assert kept.zones().counts.sum() == (times >= kept.floor).sum()


def test_a_zone_does_not_keep_the_arrays_of_its_batch_alive() -> None:
    plain = Plain(shaped("adjusting", 160, buckets=4))
    plain.batch([(time, time) for time in range(160)])
    assert sum(zone.summaries.counters.flags.owndata for zone in plain.kept.every) == len(plain.kept.every)


def test_an_empty_representation_estimates_nothing() -> None:
    shape = shaped("adjusting", 160, buckets=4)
    new, nothing = Representation.new(shape), np.zeros(0, np.int64)
    assert new.floor is None and new.zones().counts.shape == (0, 4)
    assert new.estimate(KEYS, bucket_of(shape, KEYS)).shape == (7, 0)
    assert new.total(KEYS, bucket_of(shape, KEYS)).tolist() == [0.0] * 7
    idle = new.inserted(summarize_steps(shape, nothing, nothing.view(np.uint64), nothing), 1000)
    assert idle.zones().counts.sum() == 0 and idle.floor <= 1000 - shape.reach
    assert idle.estimate(KEYS[:0], nothing).shape == (0, len(idle.every))


def test_the_pyramid_prunes_values_that_a_zone_alone_would_take_for_likely() -> None:
    shape = shaped("cells", 1600, buckets=4, width=8)
    rng = np.random.default_rng(6)
    times = np.arange(6400)
    keys = rng.zipf(1.3, 6400).astype(np.uint64) % np.uint64(1000)
    kept = Representation.new(shape).inserted(
        summarize_steps(shape, times, keys, bucket_of(shape, keys)), 6399
    )
    absent = np.arange(2000, 4000, dtype=np.uint64)
    buckets = bucket_of(shape, absent)
    guided = kept.estimate(absent, buckets)
    alone = np.stack([zone.summaries.estimate(buckets, absent) for zone in kept.every[::-1]], 1)
    likely = guided >= 0.5
    assert (likely <= (alone >= 0.5)).all() and likely.sum() < 0.85 * (alone >= 0.5).sum()


def test_buckets_between_two_numbers_need_the_values() -> None:
    shape = shaped("cells", buckets=4, between=(0.0, 8.0))
    keys = np.zeros(5, np.uint64)
    assert bucket_of(shape, keys, np.array([-1.0, 0.0, 3.0, 8.0, np.nan])).tolist() == [0, 0, 1, 3, 0]
    with pytest.raises(ValueError, match="needs the values"):
        bucket_of(shape, keys)


def test_buckets_by_hash_are_of_about_one_size() -> None:
    keys = np.arange(100_000, dtype=np.uint64)
    sizes = np.bincount(bucket_of(shaped("cells", buckets=64), keys), minlength=64)
    assert sizes.min() > 1400 and sizes.max() < 1730


def test_waiting_tuples_are_in_the_zones_that_are_read() -> None:
    shape = Summary("s", "stream", "column", 16_000, structure="cells", buckets=4)
    rng = np.random.default_rng(2)
    eager = waiting = Representation.new(shape)
    parts = []
    for batch_id in range(3):
        times = np.sort(rng.integers(batch_id * 4_000, batch_id * 4_000 + 4_000, 50))
        keys = rng.integers(0, 9, 50).astype(np.uint64)
        parts.append(KeptTuples.of_arrays(keys, bucket_of(shape, keys), times, batch_id))
        more = summarize_steps(shape, parts[-1].time, parts[-1].key, parts[-1].bucket)
        eager = eager.inserted(more, int(times.max()))
        waiting = waiting.awaiting(parts[-1])
    assert (waiting.zone_count, waiting.nbytes, waiting.tuples) == (0, 0, 150)
    again = Representation.unpacked(shape, waiting.packed(), parts)
    for lazy in (waiting.settle(), again, pickle.loads(pickle.dumps(waiting))):
        assert lazy.floor == eager.floor and lazy.tuples == 150
        assert lazy.zones().since.tolist() == eager.zones().since.tolist()
        assert lazy.zones().counts.tolist() == eager.zones().counts.tolist()
    assert waiting.zone_count == 0, "settling makes another representation"
