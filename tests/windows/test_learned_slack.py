"""A learned slack has the share of rows in time that was asked for, whatever the delays are like."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from transom.errors import SettingError
from transom.windows.delays import BOUNDS, DelayCounts, delay_buckets
from transom.windows.learned_slack import LearnedSlack, SlackRule, slack_share
from transom.windows.partition_clocks import PartitionClocks

Times = NDArray[np.int64]
SECOND = 1_000_000
ROWS = 120_000
RULE = SlackRule(0.99, 60 * SECOND)


def arriving(events: NDArray[np.float64], delays: NDArray[np.float64]) -> Times:
    """The event times of rows in the order in which they arrive."""
    return events[np.argsort(events + delays, kind="stable")].astype(np.int64)


def events(draw: np.random.Generator) -> NDArray[np.float64]:
    return np.cumsum(draw.exponential(SECOND / 100, ROWS))


def exponential(draw: np.random.Generator) -> Times:
    return arriving(events(draw), draw.exponential(2 * SECOND, ROWS))


def heavy_tail(draw: np.random.Generator) -> Times:
    return arriving(events(draw), np.minimum(draw.pareto(1.5, ROWS) * SECOND, 3600 * SECOND))


def drift(draw: np.random.Generator) -> Times:
    scale = np.exp(np.linspace(0, math.log(20), ROWS)) * SECOND
    return arriving(events(draw), draw.exponential(1, ROWS) * scale)


def falling_drift(draw: np.random.Generator) -> Times:
    scale = np.exp(-np.linspace(0, math.log(20), ROWS)) * 20 * SECOND
    return arriving(events(draw), draw.exponential(1, ROWS) * scale)


def periodic(draw: np.random.Generator) -> Times:
    scale = (1 + 0.9 * np.sin(np.arange(ROWS) / ROWS * 20 * np.pi)) * 2 * SECOND
    return arriving(events(draw), draw.exponential(1, ROWS) * scale)


def bursty(draw: np.random.Generator) -> Times:
    """Every now and then a few rows are held back for up to half a minute."""
    delays = draw.exponential(SECOND, ROWS)
    for start in draw.integers(0, ROWS, 30):
        delays[start : start + 20] += draw.uniform(5, 30) * SECOND
    return arriving(events(draw), delays)


STREAMS = [exponential, heavy_tail, drift, falling_drift, periodic, bursty]


def achieved(times: Times, rule: SlackRule, draw: np.random.Generator) -> tuple[float, int, float]:
    """The share of rows in time, of how many, and the mean slack, in batches of any size."""
    clocks, missed, judged, slacks, at = PartitionClocks(), 0, 0, [], 0
    while at < len(times):
        batch, at = times[at : (stop := at + int(draw.integers(50, 400)))], stop
        delays = None
        if clocks.names:
            late = batch < clocks.closed[0]
            missed, judged = missed + int(late.sum()), judged + len(batch)
            delays = DelayCounts.of(
                np.zeros(len(batch), np.int64), clocks.newest[0] - batch, late, late, clocks.sketches
            )
        clocks = clocks.after({"": int(batch.max())}, at, rule, delays)
        slacks.append(float(clocks.slacks(rule)[0]))
    assert clocks.learned is not None
    assert (clocks.learned.rows.sum(), clocks.learned.missed.sum()) == (judged, missed)
    return 1 - missed / judged, judged, float(np.mean(slacks))


@pytest.mark.parametrize("share", [0.95, 0.99, 0.999])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("number", [1, 2])
def test_the_share_of_rows_in_time_is_what_was_asked_for(
    stream: Callable[[np.random.Generator], Times], share: float, number: int
) -> None:
    """Within four standard errors of as many independent rows, and the 20 late rows to which the level reacts."""
    draw = np.random.default_rng(number)
    reached, rows, _ = achieved(stream(draw), SlackRule(share, 60 * SECOND), draw)
    tolerance = 4 * math.sqrt(share * (1 - share) / rows) + 20 / rows
    assert abs(reached - share) <= tolerance, (reached, tolerance)


def test_the_slack_is_little_larger_than_the_best_fixed_one() -> None:
    draw = np.random.default_rng(5)
    times = exponential(draw)
    reached, _, slack = achieved(times, RULE, draw)
    fixed = np.quantile(np.maximum.accumulate(times) - times, reached)
    assert slack <= 1.15 * fixed, (slack, fixed)


def test_a_stream_in_order_has_no_slack() -> None:
    times = np.arange(20_000, dtype=np.int64) * SECOND
    clocks = PartitionClocks()
    for batch in np.split(times, 100):
        delays = None
        if clocks.names:
            none = np.zeros(len(batch), bool)
            delays = DelayCounts.of(np.zeros(len(batch), np.int64), clocks.newest[0] - batch, none, none, 1)
        clocks = clocks.after({"": int(batch.max())}, 0, RULE, delays)
    assert clocks.slacks(RULE).tolist() == [0]


def test_the_slack_stays_within_its_bounds() -> None:
    draw = np.random.default_rng(7)
    times = exponential(draw)
    for rule in (
        SlackRule(0.99, 60 * SECOND, high=3 * SECOND),
        SlackRule(0.99, 60 * SECOND, low=30 * SECOND),
    ):
        _, _, slack = achieved(times[:20_000], rule, draw)
        assert rule.low <= slack and (rule.high is None or slack <= rule.high)


def test_the_watermark_never_goes_back_though_the_slack_grows() -> None:
    draw = np.random.default_rng(8)
    times, clocks, before = drift(draw), PartitionClocks(), None
    grew = False
    for batch in np.split(times, 400):
        delays = None
        if clocks.names:
            late = batch < clocks.closed[0]
            delays = DelayCounts.of(np.zeros(len(batch), np.int64), clocks.newest[0] - batch, late, late, 1)
        after = clocks.after({"": int(batch.max())}, 0, RULE, delays)
        if before is not None:
            assert after.closed[0] >= before
            grew |= bool(clocks.names) and after.slacks(RULE)[0] > clocks.slacks(RULE)[0]
        clocks, before = after, int(after.closed[0])
    assert grew


def test_a_checkpoint_has_the_very_same_clocks() -> None:
    draw = np.random.default_rng(9)
    clocks = PartitionClocks()
    for number in range(30):
        names = [f"p{i}" for i in range(draw.integers(1, 100))]
        numbers = np.minimum(draw.integers(0, max(len(clocks.names), 1), 200), 64)
        late = draw.random(200) < 0.01
        delays = DelayCounts.of(numbers, draw.integers(-9, 10**8, 200), late, late, max(clocks.sketches, 1))
        delays = delays if clocks.names else None
        clocks = clocks.after(dict.fromkeys(names, number * SECOND), number, RULE, delays)
        again = PartitionClocks.from_json(json.loads(json.dumps(clocks.to_json()))).with_slack(RULE)
        assert again.names == clocks.names
        for column in ("newest", "seen", "closed"):
            assert np.array_equal(getattr(again, column), getattr(clocks, column))
        assert np.array_equal(again.slacks(RULE), clocks.slacks(RULE))
        if draw.random() < 0.5:
            clocks = again


def test_partitions_beyond_the_limit_share_a_clock() -> None:
    clocks = PartitionClocks().after({"a": 9, "b": 5, "c": 7, "d": 3}, 1, 0, most=3)
    assert clocks.names == ("a", "b", "") and clocks.newest.tolist() == [9, 5, 7]
    clocks = clocks.after({"e": 8, "b": 6}, 2, 0, most=3)
    assert clocks.names == ("a", "b", "") and clocks.newest.tolist() == [9, 6, 8]


def test_delays_are_in_the_bucket_with_their_bounds() -> None:
    draw = np.random.default_rng(10)
    delays = np.concatenate([BOUNDS, BOUNDS - 1, draw.integers(0, 2**61, 1000), [-7]])
    at = delay_buckets(delays)
    assert (BOUNDS[at] <= np.maximum(delays, 0)).all()
    inner = at < len(BOUNDS) - 1
    assert (delays[inner] < BOUNDS[at[inner] + 1]).all()
    assert len(BOUNDS) < 700


@pytest.mark.parametrize(
    ("text", "share"), [("99.9%", 0.999), (" 95 % ", 0.95), ("9 s", None), (None, None), (5, None)]
)
def test_a_share_is_a_number_of_percent(text: object, share: float | None) -> None:
    assert slack_share(text) == share


@pytest.mark.parametrize("text", ["100%", "0%", "49%"])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"50% to 99\.999%"):
        slack_share(text)


def test_what_is_known_of_no_rows_is_the_first_slack() -> None:
    assert LearnedSlack.empty().slacks(SlackRule(0.9, 7, low=9), 2).tolist() == [9, 9]
