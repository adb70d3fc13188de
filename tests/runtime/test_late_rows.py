"""Late rows are counted for every query: a short window beside a long one does not lose rows in silence."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.durations import parse_instant

SCHEMA = "account int, amount double, ts timestamp"
SHORT = "SELECT count(*) AS n FROM payments [RANGE 1 minute SLIDE 1 minute]"
LONG = "SELECT count(*) AS n FROM payments [RANGE 1 hour SLIDE 1 hour]"
SECOND, MINUTE = 1_000_000, 60_000_000
START = parse_instant("2013-01-01 12:10")


def disordered(rng: Random, batches: int = 20, rows: int = 200) -> list[list[tuple[int, float, int]]]:
    """Payments of 10 seconds a batch; one in twenty-five comes up to three minutes late."""
    found = []
    for number in range(batches):
        batch = []
        for _ in range(rows):
            time = START + number * 10 * SECOND + rng.randrange(10 * SECOND)
            delay = rng.randrange(180 * SECOND) if rng.random() < 0.04 else 0
            batch.append((rng.randrange(5), round(rng.random() * 100, 2), time - delay))
        found.append(batch)
    return found


def missed(batches: list[list[tuple[int, float, int]]], length: int) -> Counter[int]:
    """The rows that tumbling windows of a length miss, by the start of the window, without slack."""
    found: Counter[int] = Counter()
    high = None
    for batch in batches:
        for _, _, time in batch:
            start = time - time % length
            if high is not None and start + length <= high:
                found[start] += 1
        high = max([time for *_, time in batch] + ([] if high is None else [high]))
    return found


@pytest.mark.parametrize("beside", [[], [LONG]], ids=["alone", "beside a longer window"])
@ON_BOTH
def test_a_query_counts_the_rows_it_missed_by_window(
    make_engine: EngineFactory, seed: int, beside: list[str]
) -> None:
    batches = disordered(Random(seed), batches=20 if make_engine.name == "local" else 6)
    engine = make_engine()
    feed = engine.feed("payments", SCHEMA, time="ts")
    short = engine.register(SHORT, "volume_1m")
    for text in beside:
        engine.register(text, "volume_1h")
    for batch in batches:
        feed.push([(account, amount, time) for account, amount, time in batch])
        engine.step()
    expected = missed(batches, MINUTE)
    assert expected, "the stream has no disorder"
    found = short.late()
    starts = [time.as_py() for time in found["window_start"].cast("int64")]
    assert dict(zip(starts, found["late"].to_pylist(), strict=True)) == expected
    rows = short.late(rows=True)
    assert rows.num_rows == expected.total()
    assert Counter(time - time % MINUTE for time in rows["ts"].cast("int64").to_pylist()) == expected
    listed = engine.late("payments")
    assert listed.num_rows == expected.total() == engine.progress().streams["payments"].late
    assert set(map(tuple, listed["missed_by"].to_pylist())) == {("volume_1m",)}
