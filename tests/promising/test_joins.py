"""The regions of a batch's values, and the pairs that portions of their lines find."""

from __future__ import annotations

import numpy as np
import pytest

from tests.promising.pure_batches import SECOND, PureStores, join_of, rows_of, shape_of
from transom.elements import Preference, Summary
from transom.promising.joins import batch_values, join_regions, probe_join
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.tuples import KeptTuples
from transom.promising.zones import bucket_of
from transom.sql.promise import Arithmetic, Column, EstimatedCount, Promise

ONE, TWO = EstimatedCount("one", "item"), EstimatedCount("two", "item")
BOTH = Arithmetic("*", ONE, TWO)


def shape(stream: str, structure: str = "cells") -> Summary:
    """Granularities of 160 and 640 in zones of 40 and 160."""
    return Summary(stream, stream, "item", 160, 4, 2, structure, "histogram", buckets=4)


def side(stream: str, batch_id: int, *tuples: tuple[int, int]) -> tuple[Representation, KeptTuples]:
    """A stream that came in one batch, of times and items."""
    times, items = np.array(tuples, np.int64).T
    key = items.astype(np.uint64)
    bucket = bucket_of(shape(stream), key)
    kept = Representation.new(shape(stream)).inserted(
        summarize_steps(shape(stream), times, key, bucket), times.max()
    )
    return kept, KeptTuples.of_arrays(key, bucket, times, batch_id)


def planned(
    own: tuple[Representation, KeptTuples],
    other: tuple[Representation, KeptTuples],
    preference: Preference,
    promise: Promise = BOTH,
) -> Regions:
    values = batch_values(own[1], own[1].key.astype(np.float64))
    return join_regions(values, 1, own[0], other[0], preference, promise)


OTHER = side("two", 0, *[(700, 7)] * 3, *[(650, 7)] * 2, (330, 7), (655, 9))
OWN = side("one", 1, (701, 7), (702, 7), (703, 9))


def by_zone(regions: Regions, key: int) -> list[tuple[int, int, float]]:
    """Since, until and promise of a value's likely regions, newest first."""
    some = regions.where((regions.key == key) & regions.likely)
    order = np.argsort(-some.since)
    return [(int(some.since[i]), int(some.until[i]), float(some.promise[i])) for i in order]


def test_a_region_is_a_value_in_a_cell_that_the_window_reaches() -> None:
    regions = planned(OWN, OTHER, Preference("weighted", window=60))
    assert [s for s, _, _ in by_zone(regions, 7)] == [680, 640]
    assert [s for s, _, _ in by_zone(regions, 9)] == [640]
    # 641 to 680 is in the window of what arrives at about 701, all but a fortieth of the zone.
    assert regions.expected[(regions.key == 7) & regions.likely].tolist() == pytest.approx([6, 4 * 39 / 40])


def test_without_a_window_all_kept_tuples_are_reached() -> None:
    assert [s for s, _, _ in by_zone(planned(OWN, OTHER, Preference("weighted")), 7)] == [680, 640, 320]


def test_weighted_promises_are_of_the_tuples_that_arrive_and_those_of_the_cell() -> None:
    assert [p for _, _, p in by_zone(planned(OWN, OTHER, Preference("weighted")), 7)] == [6, 4, 2]


def test_a_zone_is_not_more_promising_for_being_longer() -> None:
    """Per granularity of 160: 3 in the 21 that the zone has so far, 2 in 40, 1 in 160."""
    promises = [p for _, _, p in by_zone(planned(OWN, OTHER, Preference("desc")), 7)]
    assert promises == pytest.approx([2 * 3 * 160 / 21, 2 * 2 * 160 / 40, 2 * 1])


def test_lowest_promises_are_of_the_whole_window() -> None:
    regions = planned(OWN, OTHER, Preference("asc"))
    assert [p for _, _, p in by_zone(regions, 7)] == [12, 12, 12]
    assert [p for _, _, p in by_zone(regions, 9)] == [1]


def test_promises_fade_with_the_granularity_and_come_later_for_it_in_either_order() -> None:
    faded = by_zone(planned(OWN, OTHER, Preference("weighted", fade=0.5)), 7)
    assert [p for _, _, p in faded] == [6, 4, 1]
    assert [p for _, _, p in by_zone(planned(OWN, OTHER, Preference("asc", fade=0.5)), 7)] == [12, 12, 24]


def test_a_promise_may_read_the_values_and_be_a_number() -> None:
    valued = planned(OWN, OTHER, Preference("weighted"), Arithmetic("*", TWO, Column("one", "item")))
    assert [p for _, _, p in by_zone(valued, 7)] == [21, 14, 7]


def test_unlikely_zones_in_a_row_are_one_region() -> None:
    """Items that share a bucket with 7 and were never seen in the other stream."""
    key = np.arange(100, 200).astype(np.uint64)
    there = bucket_of(shape("one"), np.array([7], np.uint64))[0]
    item = int(key[bucket_of(shape("one"), key) == there][0])
    regions = planned(side("one", 1, (701, item)), OTHER, Preference("desc"))
    assert not regions.likely.any()
    assert regions.since.max() == 640 and regions.until.max() > 680
    assert regions.cell.sum() == (OTHER[1].bucket == there).sum()


def test_portions_of_a_line_find_what_the_whole_does() -> None:
    regions = planned(OWN, OTHER, Preference("desc", window=60))
    whole = sorted(zip(*probe_join(regions, regions.left, OWN[1], OTHER[1], 60)[:2], strict=True))
    assert len(whole) == 11
    found, pending = [], regions
    while len(pending):
        taken = np.minimum(pending.left, 1)
        found += list(zip(*probe_join(pending, taken, OWN[1], OTHER[1], 60)[:2], strict=True))
        pending = pending.after(taken)
    assert sorted(found) == whole


def test_later_tuples_of_the_cell_belong_to_later_batches() -> None:
    later = KeptTuples.of_arrays(
        np.array([7], np.uint64), bucket_of(shape("two"), np.array([7], np.uint64)), np.array([651]), 2
    )
    both = KeptTuples.merged([OTHER[1], later])
    regions = planned(OWN, OTHER, Preference("desc", window=60))
    mine, theirs, *_ = probe_join(regions, regions.left, OWN[1], both, 60)
    assert len(mine) == 11 and (both.batch_id[theirs] == 0).all()


def test_regions_without_all_their_tuples_are_refused() -> None:
    regions = planned(OWN, OTHER, Preference("desc"))
    with pytest.raises(ValueError, match="no longer"):
        probe_join(regions, regions.left, OWN[1], OTHER[1].since(660), None)
    with pytest.raises(ValueError, match="no longer"):
        probe_join(regions, regions.left, OWN[1].since(702), OTHER[1], None)


def test_nothing_taken_finds_nothing() -> None:
    regions = planned(OWN, OTHER, Preference("desc"))
    assert [len(rows) for rows in probe_join(regions, regions.done, OWN[1], OTHER[1], None)[:2]] == [0, 0]


def test_a_promise_over_values_that_are_not_given_is_refused() -> None:
    with pytest.raises(ValueError, match="the promise reads item"):
        join_regions(batch_values(OWN[1]), 1, OWN[0], OTHER[0], Preference("desc"), Column("one", "item"))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_weighted_join_by_cells_is_no_sample_of_the_oldest(partitions: int) -> None:
    """Every item sells evenly over time; a tenth of the pairs must be of all times of both streams."""
    stores = PureStores(
        {f"items{n}": shape_of(n, structure="cells", buckets=8) for n in (1, 2)},
        {"join": join_of(Preference("weighted", window=60 * SECOND))},
        partitions=partitions,
        by_cell=True,
    )
    size = 800
    items, times = np.arange(size) % 4, (np.arange(size) * (8 * SECOND / size)).astype(np.int64)
    stores.push(1, rows_of(items.tolist(), times.tolist()))
    stores.push(2, rows_of(items.tolist(), times.tolist()), budget=size * size // 4 // 10)
    found = stores.found["join"]
    assert len(found) > 5_000
    for side in (0, 1):
        rows = np.array([pair[f"{side}.row"] for pair in found])
        assert abs(rows.mean() - size / 2) < 0.05 * size
        assert np.percentile(rows, [10, 90]) == pytest.approx([0.1 * size, 0.9 * size], abs=0.05 * size)
    pairs = {(pair["0.row"], pair["1.row"]) for pair in found}
    assert len(pairs) == len(found), "nothing is found twice"
    while any(map(len, stores.known.queries["join"].pending)):
        stores.idle(500_000)
    assert len(stores.found["join"]) == size * size // 4
    assert len({(pair["0.row"], pair["1.row"]) for pair in stores.found["join"]}) == size * size // 4
