"""The competitors give the right answers: what they are timed at is the whole work."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.peers import SingleJob, in_polars, native
from benchmarks.peers.answers import Answers, paired_edges, plain_answers, slices_of, window_ends
from benchmarks.trades import START, TradingHour, trading_hour
from benchmarks.workloads import BenchQuery, Window, load

SETS = [("A", 16), ("B", 16), ("C_regular", 16), ("C_low", 32)]


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> TradingHour:
    return trading_hour(tmp_path_factory.mktemp("hour"), 3_000)


@pytest.fixture(scope="module")
def trades(hour: TradingHour) -> pa.Table:
    return pa.concat_tables(hour.batches())


def same(ours: Answers, theirs: Answers) -> None:
    assert ours.keys() == theirs.keys()
    for number, windows in ours.items():
        rounded = {end: value for end, value in windows.items() if abs(value) > 1e-3}
        assert rounded == pytest.approx(theirs[number], rel=1e-9), f"query {number}"


def test_windows_of_range_5_and_slide_3() -> None:
    # 0  1  2  3  4  5  6  7  8  9
    #    [--------------)            ends are multiples of 3
    #             [--------------)
    # [--------------)               starts are
    #          [--------------)
    window = Window(5, 3)
    assert window_ends(window, 4_000, 5_000).tolist() == [6_000, 9_000]
    assert window_ends(window, 4_000, 5_000, starts_aligned=True).tolist() == [5_000, 8_000]
    assert window_ends(window, 5_000, 5_000, starts_aligned=True).tolist() == [8_000]


def test_slices_are_cut_at_both_ends_of_every_window() -> None:
    edges = paired_edges([Window(5, 3)], 4_000, 5_000)
    assert edges.tolist() == [1_000, 4_000, 6_000, 9_000]
    assert slices_of(np.array([4_000, 4_000, 5_000, 6_000]), edges).tolist() == [2, 2, 2, 3]


def test_plain_answers_of_three_trades() -> None:
    seconds = np.array([0, 599, 600]) * 1_000_000 + START
    trades = pa.table(
        {"time": pa.array(seconds, pa.timestamp("us", "UTC")), "price": [1.0, 2.0, 4.0], "vol": [1, 1, 1]}
        | {"cp": [1.0, 1.0, 1.0], "r3000": [True] * 3, "r2000": [True] * 3, "r1000": [False] * 3}
    )
    found = plain_answers(trades, [BenchQuery(Window(600_000, 600_000))])
    assert found == {0: {START + 600_000_000: 3.0, START + 1_200_000_000: 4.0}}


@pytest.mark.parametrize(("workload", "size"), SETS)
def test_polars_agrees_with_numpy(trades: pa.Table, workload: str, size: int) -> None:
    pytest.importorskip("polars")
    from benchmarks.peers.polars_scan import answer, frame_of

    queries = load(workload, size)[0]
    expected = plain_answers(trades, queries)
    assert any(expected.values())
    for chunk in (1_000, 7):
        same(answer(frame_of(trades), queries, chunk)[1], expected)


def test_polars_runs_in_a_process_of_its_own(hour: TradingHour) -> None:
    pytest.importorskip("polars")
    assert [seconds > 0 for seconds in in_polars(hour, "C_low", 16, repeats=2)] == [True, True]


@pytest.mark.parametrize("chunk", [None, 7])
def test_the_single_job_agrees_with_numpy(spark: SparkSession, trades: pa.Table, chunk: int | None) -> None:
    queries = load("C_low", 16)[0]
    with SingleJob(spark, trades, queries) as job:
        seconds, answers = job.run(chunk)
    assert seconds > 0
    same(answers, plain_answers(trades, queries))


def test_native_streaming_agrees_with_numpy(spark: SparkSession, hour: TradingHour, trades: pa.Table) -> None:
    queries = load("C_low", 16)[0][:1]
    seconds, answers = native(spark, hour, queries, with_answers=True)
    assert seconds > 0
    same(answers, plain_answers(trades, queries, starts_aligned=True))
