"""Late rows are counted for every query: a short window beside a long one does not lose rows in silence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.durations import parse_instant
from transom.state.accounts import Accounts, QueryAccount

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


def payments(*times: str, account: int = 1) -> list[tuple[int, float, str]]:
    """A payment of 1 at each time of day."""
    return [(account, 1.0, f"2013-01-01 {time}") for time in times]


def clock_times(table: pa.Table) -> list[tuple[str, str, int]]:
    """Windows that missed rows: start and end as times of day, and the rows."""
    columns = (table[name].to_pylist() for name in ("window_start", "window_end", "late"))
    return [(f"{start:%H:%M}", f"{end:%H:%M}", late) for start, end, late in zip(*columns, strict=True)]


def test_a_row_can_be_late_for_some_windows_of_a_query_and_in_time_for_others(
    make_engine: EngineFactory,
) -> None:
    #  12:00  12:01  12:02  12:03  12:04     watermark 12:02:30
    #    [-------------)                     closed: misses the row at 12:01:30
    #           [-------------)              open: counts it
    engine = make_engine()
    feed = engine.feed("payments", SCHEMA, time="ts")
    query = engine.register("SELECT count(*) AS n FROM payments [RANGE 2 minutes SLIDE 1 minute]")
    feed.push(payments("12:00:10", "12:02:30"))
    engine.step()
    feed.push(payments("12:01:30"))
    engine.step()
    engine.drain()
    assert clock_times(query.late()) == [("12:00", "12:02", 1)]
    assert query.account == QueryAccount(rows=3, counted=2, late=1)
    ends = [f"{end:%H:%M}" for end in query.results()["window_end"].to_pylist()]
    counts, late = (query.results()[name].to_pylist() for name in ("n", "late"))
    found = dict(zip(ends, zip(counts, late, strict=True), strict=True))
    assert found == {"12:01": (1, 0), "12:02": (1, 0), "12:03": (2, 1), "12:04": (1, 1)}
    assert query.results()["complete"].to_pylist() == [True] * 4, "each was complete when it was made"


def test_a_restart_keeps_what_a_query_missed(make_engine: EngineFactory, tmp_path: Path) -> None:
    def opened() -> tuple[Any, Any, Any]:
        engine = make_engine(tmp_path)
        feed = engine.feed("payments", SCHEMA, time="ts")
        return engine, feed, engine.register(SHORT, "volume_1m")

    for minute in range(1, 5):  # one late row a batch, and a new engine for each batch
        engine, feed, query = opened()
        feed.push(payments("12:00:00", f"12:{minute:02d}:30"))
        engine.step()
    assert clock_times(query.late()) == [("12:00", "12:01", 3)]
    assert query.late(rows=True)["batch"].to_pylist() == [2, 3, 4]
    query.drop()
    engine.step()
    again = engine.register(SHORT, "volume_1m")
    feed.push(payments("12:00:30"))
    engine.step()
    assert clock_times(again.late()) == [("12:00", "12:01", 1)], "a query of the same name begins anew"
    assert again.late(rows=True).num_rows == 1 and engine.late("payments").num_rows == 4


def test_a_query_over_results_is_incomplete_where_the_inner_query_missed_rows(
    make_engine: EngineFactory,
) -> None:
    engine = make_engine()
    feed = engine.feed("payments", SCHEMA, time="ts")
    engine.register(SHORT, "volume_1m")
    outer = engine.register("SELECT max(n) AS most FROM volume_1m [RANGE 2 minutes SLIDE 2 minutes]", "peak")
    for times in (["12:00:10", "12:01:10"], ["12:00:20"], ["12:02:10", "12:04:10"], ["12:06:30"]):
        feed.push(payments(*times))
        engine.step()
    engine.drain()
    table = outer.results()
    ends = [f"{end:%H:%M}" for end in table["window_end"].to_pylist()]
    complete = dict(zip(ends, table["complete"].to_pylist(), strict=True))
    assert complete.pop("12:02") is False and all(complete.values()), (
        "the first had one row less than arrived"
    )
    assert outer.account.late == 0, "it missed no result"


def test_the_runtime_check_notices_rows_that_are_not_accounted_for(
    make_engine: EngineFactory, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = Accounts().plus(["q"], np.array([[5], [3], [0], [1], [0]]), np.zeros((4, 0), np.int64))
    assert accounts.unaccounted == 1 and accounts.of("q").rows == 5
    engine = make_engine()
    feed = engine.feed("payments", SCHEMA, time="ts")
    engine.register(SHORT, "volume_1m")
    feed.push(payments("12:00:10", "12:01:10"))
    engine.step()
    assert engine.progress().unaccounted == 0 and "accounted for" not in caplog.text
