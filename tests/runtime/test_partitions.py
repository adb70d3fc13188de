"""The watermark follows the partition of the source that is furthest behind."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SettingError
from transom.runtime.write_ahead_log import BatchLog

SCHEMA = "device string, n int, ts timestamp"
SQL = "SELECT sum(n) AS total, count(*) AS n FROM rows [RANGE 1 minute SLIDE 1 minute]"
START = datetime(2024, 1, 1, 12)
SECOND = 1_000_000


def at(seconds: float) -> str:
    return str(START + timedelta(seconds=seconds))


def totals(query: Any) -> list[tuple[str, int]]:
    rows = query.results().to_pylist()
    return sorted((f"{row['window_end']:%H:%M}", row["n"]) for row in rows)


@ON_BOTH
def test_rows_of_a_slow_partition_are_in_time(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, time="ts", partition="device", partition_idle=None)
        query = engine.register(SQL)
        feed.push([("fast", 1, at(0)), ("slow", 1, at(0))])
        engine.step()
        feed.push([("fast", 1, at(600))])  # ten minutes ahead of the slow one
        engine.step()
        assert totals(query) == []
        feed.push([("slow", 1, at(30)), ("slow", 1, at(90))])
        engine.step()
        assert totals(query) == [("12:01", 3)]  # 90 seconds are the watermark now
        engine.drain()
        assert totals(query) == [("12:01", 3), ("12:02", 1), ("12:11", 1)]
        assert engine.progress().streams["rows"].late == 0


def test_without_partitions_the_same_rows_are_late(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, time="ts")
        query = engine.register(SQL)
        for rows in ([("fast", 1, at(0))], [("fast", 1, at(600))], [("slow", 1, at(30))]):
            feed.push(rows)
            engine.step()
        assert totals(query) == [("12:01", 1)] and engine.progress().streams["rows"].late == 1


def test_an_idle_partition_is_not_waited_for(make_engine: EngineFactory) -> None:
    now = [0]
    with make_engine(clock=lambda: now[0]) as engine:
        feed = engine.feed(
            "rows", SCHEMA, time="ts", partition="device", partition_idle="30 seconds", max_ahead=None
        )
        query = engine.register(SQL)
        feed.push([("fast", 1, at(0)), ("slow", 1, at(0))])
        engine.step()
        now[0] = 20 * SECOND
        feed.push([("fast", 1, at(100))])
        engine.step()
        assert totals(query) == []
        now[0] = 31 * SECOND  # the slow one brought its last row 31 seconds ago
        feed.push([("fast", 1, at(110))])
        engine.step()
        assert totals(query) == [("12:01", 2)]
        feed.push([("slow", 1, at(10)), ("slow", 1, at(115))])  # it is back, one row too late
        engine.step()
        assert engine.progress().streams["rows"].late == 1


def test_a_partition_that_becomes_idle_releases_the_watermark_without_new_rows(
    make_engine: EngineFactory,
) -> None:
    now = [0]
    with make_engine(clock=lambda: now[0]) as engine:
        feed = engine.feed(
            "rows", SCHEMA, time="ts", partition="device", partition_idle="30 seconds", max_ahead=None
        )
        query = engine.register(SQL)
        feed.push([("fast", 1, at(0)), ("slow", 1, at(0))])
        engine.step()
        now[0] = 20 * SECOND
        feed.push([("fast", 1, at(100))])
        engine.step()
        now[0] = 31 * SECOND
        before = engine.progress().batch_id
        assert totals(query) == []
        engine.step()
        assert totals(query) == [("12:01", 2)]
        assert not engine.step() and engine.progress().batch_id == before + 1  # once is enough
        now[0] = 3600 * SECOND  # all partitions are idle: there is no clock to follow
        assert not engine.step()


def test_partitions_survive_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    now, checkpoint = [0], str(tmp_path / "checkpoint")

    def started() -> Any:
        engine = make_engine(checkpoint=checkpoint, clock=lambda: now[0])
        feed = engine.feed(
            "rows", SCHEMA, time="ts", partition="device", partition_idle="30 seconds", max_ahead=None
        )
        return engine, feed, engine.register(SQL, "q")

    engine, feed, query = started()
    feed.push([("fast", 1, at(0)), ("slow", 1, at(0))])
    engine.step()
    engine.stop()
    now[0] = 3600 * SECOND  # the engine was down for an hour: the slow partition was not silent
    engine, feed, query = started()
    feed.push([("fast", 1, at(600))])
    engine.step()
    assert totals(query) == []
    now[0] += 31 * SECOND
    feed.push([("fast", 1, at(601))])
    engine.step()
    assert totals(query) == [("12:01", 2)]
    engine.stop()


def test_a_batch_that_is_replayed_after_a_restart_has_the_same_live_partitions(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch began soon after a restart, when the slow partition counted as live, and runs again after another."""
    now, checkpoint = [0], str(tmp_path / "checkpoint")

    def started() -> Any:
        engine = make_engine(checkpoint=checkpoint, clock=lambda: now[0])
        options: dict[str, Any] = {"partition": "device", "partition_idle": "30 seconds", "max_ahead": None}
        return engine, engine.feed("rows", SCHEMA, time="ts", **options), engine.register(SQL, "q")

    engine, feed, _ = started()
    feed.push([("fast", 1, at(0)), ("slow", 1, at(0))])
    engine.step()
    engine.stop()
    now[0] = 3600 * SECOND
    engine, feed, _ = started()
    feed.push([("fast", 1, at(600))])

    def broken(*_: Any) -> int:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(BatchLog, "commit", broken)
        with pytest.raises(OSError, match="no space left"):
            engine.step()
        engine.stop()
    now[0] += 10 * SECOND
    engine, feed, query = started()
    engine.step()
    assert totals(query) == []
    engine.stop()


@ON_BOTH
def test_any_speeds_and_batches(make_engine: EngineFactory, seed: int) -> None:
    """Rows in order within each partition are never late, and windows close as soon as all partitions passed them."""
    draw = random.Random(seed)
    clocks = {f"p{i}": 0.0 for i in range(4)}
    speeds = {name: draw.choice([1, 3, 20, 60]) for name in clocks}
    rows: list[tuple[str, int, float]] = []
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, time="ts", partition="upper(device)", partition_idle=None)
        query = engine.register(SQL)
        feed.push([(name, 1, at(0)) for name in clocks])
        rows += [(name, 1, 0.0) for name in clocks]
        engine.step()
        for _ in range(8):
            batch = []
            for _ in range(draw.randrange(1, 12)):
                name = draw.choice(list(clocks))
                clocks[name] += draw.random() * speeds[name]
                batch.append((name, draw.randrange(10), clocks[name]))
            feed.push([(name, n, at(time)) for name, n, time in batch])
            engine.step()
            rows += batch
            watermark = min(clocks.values())
            expected = {
                end: sum(end - 60 <= time < end for _, _, time in rows)
                for end in range(60, int(watermark) + 1, 60)
            }
            closed = {f"{START + timedelta(seconds=end):%H:%M}": n for end, n in expected.items() if n}
            assert dict(totals(query)) == closed
        assert engine.progress().streams["rows"].late == 0


@pytest.mark.parametrize(
    ("partition", "says"), [("devise", "devise"), ("count(*)", "partition of rows, count"), ("1 +", "rows")]
)
def test_what_is_no_expression_is_refused(make_engine: EngineFactory, partition: str, says: str) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match=says.replace("(", r"\(")):
        engine.feed("rows", SCHEMA, time="ts", partition=partition)
