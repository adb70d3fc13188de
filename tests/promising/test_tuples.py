"""Kept tuples and where they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transom.promising.tuples import CellPlaces, KeptTuples, KeyRuns

Row = tuple[int, int, int]  # bucket, time, batch
rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 20), st.integers(0, 4)), max_size=30)


def made(some: list[Row]) -> KeptTuples:
    columns = np.array(some, np.int64).reshape(-1, 3).T
    numbers = pa.array(np.arange(len(some)))
    return KeptTuples.of_arrays(
        columns[0].astype(np.uint64), columns[0], columns[1], columns[2], number=numbers
    )


@given(rows)
def test_tuples_are_kept_by_bucket_time_batch_and_arrival(some: list[Row]) -> None:
    kept = made(some)
    ordered = sorted((*row, i) for i, row in enumerate(some))
    numbers = kept.table.column("number").to_pylist()
    assert (
        list(zip(kept.bucket.tolist(), kept.time.tolist(), kept.batch_id.tolist(), numbers, strict=True))
        == ordered
    )


@given(rows, st.integers(0, 30))
def test_merged_parts_equal_the_whole(some: list[Row], cut: int) -> None:
    assert KeptTuples.merged([made(some[:cut]), made(some[cut:])]).table.drop("number") == made(
        some
    ).table.drop("number")


@given(rows, st.integers(-6, 21), st.integers(0, 4))
def test_tuples_are_evicted_by_time_and_read_by_batch(some: list[Row], floor: int, batch_id: int) -> None:
    assert made(some).since(floor).time.tolist() == [t for _, t, _ in sorted(some) if t >= floor]
    assert made(some).in_batch(batch_id).time.tolist() == [t for _, t, p in sorted(some) if p == batch_id]
    assert made(some).since(None).table == made(some).table


@given(rows, st.integers(0, 3), st.integers(-10, 30))
def test_a_place_is_the_first_row_of_a_bucket_at_or_after_a_time(
    some: list[Row], bucket: int, time: int
) -> None:
    kept = made(some)
    found = CellPlaces.of(kept.bucket, kept.time).at(np.array([bucket]), np.array([time]))
    assert found.tolist() == [sum((b, t) < (bucket, time) for b, t, _ in some)]


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(0, 5), st.integers(0, 30), st.integers(0, 30))
def test_runs_are_the_rows_of_a_key_between_two_rows(
    keys: list[int], key: int, since: int, until: int
) -> None:
    until = min(until, len(keys))
    runs = KeyRuns.of(np.array(keys, np.uint64))
    (start,), (stop,) = runs.between(np.array([key], np.uint64), np.array([since]), np.array([until]))
    assert runs.rows[start:stop].tolist() == [i for i in range(since, until) if keys[i] == key]
