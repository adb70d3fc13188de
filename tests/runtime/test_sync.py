"""What an engine brings to disk before a batch is delivered, and before it is committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_SITE, bids
from transom.backends.spark.sinks import sync_local
from transom.storage.failpoints import arm


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that are synced, and of failpoints that are reached, in order."""
    found: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def run(make_engine: EngineFactory, place: Path, steps: list[str], sync: bool) -> None:
    engine = make_engine(place / "checkpoint", sync=sync)
    feed = engine.feed("bids", BIDS, time="ts")
    engine.register(PER_SITE, "q").sink("json", str(place / "out"))
    feed.push(bids((1, 1.0, "12:00"), (1, 1.0, "12:10"), (1, 1.0, None)))
    steps.clear()
    arm(steps.append)
    try:
        engine.step()
    finally:
        arm(None)


def test_what_a_batch_has_written_is_on_disk_before_others_see_it(
    make_engine: EngineFactory, tmp_path: Path, steps: list[str]
) -> None:
    run(make_engine, tmp_path, steps, sync=True)
    delivered, committed = steps.index("delivery.begin"), steps.index("state.create")
    before = {step.removeprefix(f"{tmp_path}/checkpoint/") for step in steps[:delivered] if "/" in step}
    assert {"feeds/bids/0000000001.arrow", "log/0000000001.json", "results/0000000001/0000.arrow"} <= before
    assert any(step.startswith("rejected/bids/") and step.endswith((".arrow", ".arrow")) for step in before)
    assert {"feeds/bids", "log", "results/0000000001", "results"} <= before, "the entries of directories"
    sink = [step.removeprefix(f"{tmp_path}/out") for step in steps[delivered:committed] if "/out" in step]
    assert sink[0].startswith("/batch=1/.unfinished-") and set(sink[1:]) == {"/batch=1", ""}
    assert steps.index("sink.create") < steps.index(f"{tmp_path}/out{sink[0]}") < steps.index("sink.rename")
    after = [step.removeprefix(f"{tmp_path}/checkpoint/") for step in steps[committed:]]
    assert {"state/0000000001.arrow", "state"} <= set(after)


def test_nothing_is_synced_if_it_need_not_be(
    make_engine: EngineFactory, tmp_path: Path, steps: list[str]
) -> None:
    run(make_engine, tmp_path, steps, sync=False)
    assert steps and not [step for step in steps if "/" in step]


def test_files_that_spark_writes_to_a_sink_of_this_machine_are_synced(
    tmp_path: Path, steps: list[str]
) -> None:
    (tmp_path / "batch=1").mkdir()
    (tmp_path / "batch=1" / "part.json").touch()
    sync_local("hdfs://node/batch=1")
    assert not steps
    sync_local(f"file://{tmp_path}/batch=1")
    assert set(steps) == {str(tmp_path), f"{tmp_path}/batch=1", f"{tmp_path}/batch=1/part.json"}
