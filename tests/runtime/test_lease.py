"""Two engines on one checkpoint: the one that opened it last goes on, the other one stops and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, SettableClock, accounted, answers, bids_files
from transom.backends.arrow_frame import ArrowFrame
from transom.backends.local.sinks import LocalSink
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store
from transom.storage.lease import Lease

BATCHES = [
    [(1, 1.0, "12:00"), (2, 2.0, "12:03"), (9, 1.0, None)],
    [(2, 1.0, "12:01"), (1, 4.0, "12:05"), (None, 1.0, "12:04:10")],
    [(1, 1.0, "11:00"), (2, 2.0, "12:06:30"), (1, 1.0, None)],
    *([(site, 1.0, f"12:{minute:02d}") for site in range(3)] for minute in range(7, 14)),
]
# What an engine does before a file of its own gets its name, is deleted, or is brought to disk.
POINTS: list[tuple[Any, str]] = [
    (Store, "write"),
    (Store, "delete"),
    (Store, "flush"),
    (ArrowFrame, "write_parquet"),
    (LocalSink, "write"),
    (BatchLog, "commit"),
]


class Program:
    """A program over files with a sink; any number of engines run it on one checkpoint."""

    def __init__(self, make_engine: EngineFactory, place: Path):
        self.make_engine, self.place = make_engine, place
        bids_files(place / "in", *BATCHES)

    def start(self, clock: SettableClock | None = None) -> transom.Engine:
        engine = self.make_engine(self.place / "checkpoint", clock=clock or SettableClock(), sync=True)
        engine.stream("bids", str(self.place / "in"), time="ts", slack="1 minute")
        query = engine.register(PER_SITE, name="q")
        query.sink("json", path=str(self.place / "out"))
        return engine

    def outcome(self) -> dict[str, Any]:
        """What an engine reads that continues after all that happened."""
        engine = self.start()
        engine.drain()
        return {
            "results": answers(engine.query("q")),
            "sink": {
                str(file.relative_to(self.place / "out")): sorted(
                    json.dumps({k: v for k, v in json.loads(line).items() if k not in ("made", "latency")})
                    for line in file.read_text().splitlines()
                )
                for file in sorted((self.place / "out").rglob("*"))
                if file.is_file()
            },
            "late": sorted(map(str, engine.late("bids")["ts"].to_pylist())),
            "rejected": engine.rejected("bids").num_rows,
            "accounted": accounted(engine),
        }


@pytest.fixture(scope="module")
def undisturbed(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    program = Program(make_engine, tmp_path_factory.mktemp("undisturbed"))
    outcome = program.outcome()
    assert outcome["late"] and outcome["rejected"] == 2 and outcome["sink"]
    return outcome


class Pause:
    """Calls back before the nth step of one engine's second batch; `steps` counts them."""

    def __init__(self, patch: pytest.MonkeyPatch, engine: transom.Engine, at: int, call: Callable[[], None]):
        self.engine, self.steps, self.paused, self.at, self.call = engine, 0, False, at, call
        for owner, name in POINTS:
            patch.setattr(owner, name, self.wrapped(getattr(owner, name)))

    def wrapped(self, real: Any) -> Any:
        def step(*args: Any, **options: Any) -> Any:
            if self.engine.progress().batch_id == 1 and not self.paused:
                self.steps += 1
                if self.steps == self.at:
                    self.paused = True
                    self.call()
            return real(*args, **options)

        return step


@pytest.mark.faults
def test_an_engine_that_wakes_at_any_step_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    at = 1
    while wakes_at(Program(make_engine, tmp_path / str(at)), at, undisturbed):
        at += 1
    assert at > 11, "the steps of a batch"


def test_an_engine_that_wakes_in_the_middle_of_a_batch_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    assert wakes_at(Program(make_engine, tmp_path), 6, undisturbed)


def wakes_at(program: Program, at: int, undisturbed: dict[str, Any]) -> bool:
    """Whether there is such a step; the engine that is paused there while another one overtakes it changes nothing."""

    def overtake() -> None:
        program.start().drain()

    stale = program.start()
    with pytest.MonkeyPatch.context() as patch:
        pause = Pause(patch, stale, at, overtake)
        try:
            stale.drain()
        except transom.StateError as error:
            assert "another engine has taken over this checkpoint: process" in str(error)
        else:
            assert not pause.paused, f"step {at} of a batch of an engine that another one replaced"
    assert program.outcome() == undisturbed, f"woken at step {at}"
    return pause.paused


def test_the_engine_before_stops_with_its_next_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    program = Program(make_engine, tmp_path)
    first = program.start()
    second = program.start()
    with pytest.raises(transom.StateError, match=r"process \d+ on .*; this one stops"):
        first.step()
    assert second.step() == len(BATCHES)
    assert answers(first.query("q")) == [], "it can be read still"


def test_a_lease_that_was_deleted_stops_its_engine(tmp_path: Path) -> None:
    store = Store(tmp_path)
    lease = Lease(store)
    with lease.guarded():
        pass
    Store(tmp_path).delete("lease")
    with pytest.raises(transom.StateError, match="its lease is gone"), lease.guarded():
        pass


def test_numbers_of_leases_grow(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert [Lease(store).number for _ in range(3)] == [1, 2, 3]
    assert sorted(store.list("lease")) == ["0000000003.json", "lock"]
