"""A recording comes again by its times on the engine's clock, which these tests set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import (
    PER_MINUTE,
    SettableClock,
    answers,
    bids_files,
    bids_table,
)
from transom.errors import BatchError, SettingError, StateError
from transom.runtime import loop as loop_module
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store

ROWS = (
    (1, 10.0, "12:00:00"),
    (1, 14.0, "12:00:30"),
    (2, 11.0, "12:01:10"),
    (1, 12.0, "12:02:10"),
    (2, 13.0, "12:03:20"),
)
FINALS = [("12:00", "12:01", 2), ("12:01", "12:02", 1), ("12:02", "12:03", 1), ("12:03", "12:04", 1)]


def replayed(
    make_engine: EngineFactory, where: Path, clock: SettableClock, source: Any = None, **options: Any
) -> tuple[transom.Engine, Any, Any]:
    engine = make_engine(str(where), clock=clock)
    recording = engine.replay("bids", bids_table(*ROWS) if source is None else source, time="ts", **options)
    return engine, recording, engine.register(PER_MINUTE, "n")


def test_rows_come_when_they_are_due(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock("2026-01-01 00:00")  # not the recording's year
    engine, recording, query = replayed(make_engine, tmp_path, clock)
    delivered = []
    for seconds in (0, 29, 31, 100, 135, 199, 200):
        clock.now = SettableClock("2026-01-01 00:00").now + seconds * 1_000_000
        engine.step()
        delivered.append(recording.delivered)
    assert delivered == [1, 1, 2, 3, 4, 4, 5]
    assert recording.finished and recording.rows == 5
    assert answers(query, "n") == FINALS[:3]  # the last window waits for a later row
    engine.drain()
    assert answers(query, "n") == FINALS


def test_at_speed_60_a_minute_takes_a_second(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, recording, _ = replayed(make_engine, tmp_path, clock, speed=60)
    for seconds, delivered in ((0, 1), (1, 2), (2, 3), (3.4, 5)):
        clock.now = SettableClock().now + int(seconds * 1_000_000)
        engine.step()
        assert recording.delivered == delivered
    engine.stop()


@ON_BOTH
@pytest.mark.parametrize("kind", ["a path", "a path of text times", "a DataFrame", "an Arrow table"])
def test_a_drain_delivers_the_rest_at_once(make_engine: EngineFactory, tmp_path: Path, kind: str) -> None:
    text = tmp_path / "bids.csv"
    text.write_text("site,price,ts\n" + "".join(f"{s},{p},2013-01-01 {t}\n" for s, p, t in ROWS))
    source = {
        "a path": str(bids_files(tmp_path / "files", ROWS[:2], ROWS[2:])),
        "a path of text times": str(text),
        "a DataFrame": make_engine.rows(bids_table(*ROWS)),
        "an Arrow table": bids_table(*ROWS),
    }[kind]
    schema = {"schema": "site int, price double, ts string"} if "text" in kind else {}
    engine, recording, query = replayed(
        make_engine, tmp_path / "checkpoint", SettableClock(), source, **schema
    )
    engine.drain()
    assert answers(query, "n") == FINALS and recording.finished


def test_rows_held_for_a_burst_come_together(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, recording, _ = replayed(make_engine, tmp_path, clock, burst=("2 minutes", "1 minute"))
    for minutes, delivered in ((0, 1), (0.9, 2), (1.9, 2), (2, 3), (3.9, 4), (4, 5)):
        clock.now = SettableClock().now + int(minutes * 60_000_000)
        engine.step()
        assert recording.delivered == delivered, minutes
    engine.stop()


def test_delayed_rows_arrive_out_of_order_and_may_be_late(make_engine: EngineFactory, tmp_path: Path) -> None:
    rows = [(1, float(i), f"12:{i // 60:02d}:{i % 60:02d}") for i in range(600)]
    late = {}
    for slack in ("0 seconds", "1 minute"):
        clock = SettableClock()
        engine, _, query = replayed(
            make_engine, tmp_path / slack, clock, bids_table(*rows), delay="1 minute", seed=7, slack=slack
        )
        for _ in range(11):
            engine.step()
            clock.advance(minutes=1)
        engine.drain()
        counted = sum(row["n"] for row in query.results().to_pylist())
        late[slack] = engine.late("bids").num_rows
        assert counted + late[slack] == 600
    assert late["0 seconds"] > 0 == late["1 minute"]


def test_a_restart_continues_and_the_time_it_was_down_does_not_count(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    engine, _, _ = replayed(make_engine, tmp_path, clock, delay="10 seconds", seed=5)
    clock.advance(minutes=1.5)
    engine.step()
    engine.step()
    engine.stop()
    clock.advance(minutes=600)
    engine, recording, query = replayed(make_engine, tmp_path, clock, delay="10 seconds", seed=5)
    engine.step()
    before = recording.delivered
    clock.advance(minutes=3)
    engine.step()
    assert (before, recording.delivered) == (1, 4)
    engine.drain()
    assert answers(query, "n") == FINALS


def test_a_batch_that_failed_has_the_same_rows_again(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SettableClock()
    engine, _, _ = replayed(make_engine, tmp_path, clock)
    engine.step()
    clock.advance(minutes=1.5)
    with monkeypatch.context() as broken:
        broken.setattr(loop_module, "emit", lambda *_: 1 / 0)
        with pytest.raises(BatchError, match="division by zero"):
            engine.step()
    intent = BatchLog(Store(tmp_path)).intent(engine.progress().batch_id + 1)
    assert intent is not None and intent.reference["replay"] == [1, 3]
    engine.stop()
    clock.advance(minutes=60)
    engine, recording, query = replayed(make_engine, tmp_path, clock)
    engine.step()
    assert recording.delivered == 3
    engine.drain()
    assert answers(query, "n") == FINALS


def test_rows_before_the_start_are_left_out_and_one_without_a_time_comes_with_its_neighbour(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    rows = (*ROWS[:3], (9, 9.0, None), *ROWS[3:])
    engine, recording, query = replayed(
        make_engine, tmp_path, SettableClock(), bids_table(*rows), start="2013-01-01 12:01"
    )
    engine.step()
    assert (recording.rows, recording.delivered) == (4, 2)
    engine.drain()
    assert answers(query, "n") == FINALS[1:]
    assert engine.rejected("bids").num_rows == 1


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a speed of nothing", {"speed": 0}, "speed is a factor above 0"),
    ("a speed that is no number", {"speed": "fast"}, "speed is a factor above 0"),
    ("a batch of nothing", {"batch": "0 s"}, "batch must be a positive duration"),
    ("a misspelled option", {"sped": 2}, "no option sped; did you mean speed"),
    ("a bad delay", {"delay": "-1 s"}, "delay must be a positive duration"),
    ("a bad start", {"start": "noon"}, "is not a time"),
]


@pytest.mark.parametrize(("options", "says"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused(make_engine: EngineFactory, tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        replayed(make_engine, tmp_path, SettableClock(), **options)


def test_a_column_without_times_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(str(tmp_path))
    with pytest.raises(SettingError, match="the column site is int32: a recording is delivered by its times"):
        engine.replay("bids", bids_table(*ROWS), time="site")


def test_another_seed_on_the_same_checkpoint_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    replayed(make_engine, tmp_path, SettableClock(), delay="1 s", seed=1)
    with pytest.raises(StateError, match="begun with another"):
        replayed(make_engine, tmp_path, SettableClock(), delay="1 s", seed=2)


def test_a_recording_without_rows_is_finished_at_once(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, recording, query = replayed(make_engine, tmp_path, SettableClock(), bids_table())
    assert recording.finished
    engine.drain()
    assert query.results().num_rows == 0
