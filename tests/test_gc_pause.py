"""Pauses of the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import transom
from transom.gc_pause import (
    MANY_ADDED,
    allow_garbage_collection,
    collect_after_growth,
    pause_garbage_collection,
)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    if not was_enabled:
        gc.disable()


def test_pauses_nest_and_end_with_the_outermost() -> None:
    with pause_garbage_collection():
        with pause_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_may_work_within_a_pause() -> None:
    with pause_garbage_collection():
        with allow_garbage_collection():
            assert gc.isenabled()
        assert not gc.isenabled()
    with allow_garbage_collection():
        assert gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_a_program_turned_off_stays_off() -> None:
    gc.disable()
    with pause_garbage_collection(), allow_garbage_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_pause_ends_with_an_error() -> None:
    with pytest.raises(ValueError), pause_garbage_collection():
        raise ValueError
    assert gc.isenabled()


@pytest.mark.parametrize(
    "pushed_rows, is_allowed", [(1_000, False), (0, True)], ids=["few rows", "many rows"]
)
def test_no_search_for_cycles_falls_into_a_batch_of_few_rows(pushed_rows: int, is_allowed: bool) -> None:
    seen: list[bool] = []

    def observed(x: int) -> int:
        seen.append(gc.isenabled())
        return x

    limits = transom.Limits(pushed_rows=pushed_rows)
    with transom.Engine(backend="local", limits=limits) as engine:
        engine.udf("observed", observed, "bigint")
        feed = engine.feed("trades", "ts timestamp, volume bigint", time="ts")
        query = engine.register(
            "SELECT sum(observed(volume)) AS x FROM trades [RANGE 1 second SLIDE 1 second]"
        )
        feed.push([("2026-01-01 00:00:00", 5), ("2026-01-01 00:00:02", 1)])
        engine.step()
        assert gc.isenabled(), "between batches the collector works"
        assert query.results()["x"].to_pylist() == [5]
    assert seen and set(seen) == {is_allowed}


@pytest.mark.parametrize(
    ("added", "present", "searches"),
    [
        (MANY_ADDED, MANY_ADDED, 1),
        (MANY_ADDED, 4 * MANY_ADDED, 1),
        (MANY_ADDED, 4 * MANY_ADDED + 1, 0),
        (MANY_ADDED - 1, MANY_ADDED - 1, 0),
    ],
)
def test_a_search_follows_when_the_queries_have_grown_by_a_quarter(
    added: int, present: int, searches: int
) -> None:
    before = gc.get_stats()[2]["collections"]
    collect_after_growth(added, present)
    assert gc.get_stats()[2]["collections"] == before + searches
