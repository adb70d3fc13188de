"""A process without free file descriptors: batches wait, and go on when there are some again."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine_factory import STREAMING, EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_MINUTE, accounted, answers, bids, bids_engine, bids_files
from transom.errors import BatchError
from transom.ingest.batch import IngestRun
from transom.runtime import descriptor_shortage
from transom.runtime.descriptor_shortage import DescriptorShortage, lacks_descriptors
from transom.storage.file_store import Store

FILES = [[(1, 1.0, "12:00")], [(1, 1.0, "12:01"), (1, 1.0, "12:01:30")], [(1, 1.0, "12:02")]]
COUNTS = [("12:00", "12:01", 1), ("12:01", "12:02", 2), ("12:02", "12:03", 1)]


def shortage(
    patch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool], times: int = 2
) -> list[int]:
    """Let a function lack file descriptors some times; the list that is returned counts down."""
    left, real = [times], getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        if left[0] and when(*args, **options):
            left[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args, **options)

    patch.setattr(owner, name, wrapped)
    return left


def writes(part: str) -> Callable[..., bool]:
    return lambda store, name, *rest: name.startswith(part)


STEPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "writing the batch ahead": (Store, "write", writes("log/")),
    "aggregating": (IngestRun, "_aggregate", lambda *args: True),
    "writing results": (Store, "write", writes("results/")),
    "committing the state": (Store, "write", writes("state/")),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("drains", [True, False], ids=["drained", "running"])
def test_a_batch_that_lacks_descriptors_is_run_again(
    make_engine: EngineFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    step: str,
    drains: bool,
) -> None:
    engine = make_engine(str(tmp_path / "state"), poll="10 ms")
    engine.stream("bids", bids_files(tmp_path / "bids", *FILES), time="ts", slack="0 seconds")
    query = engine.register(PER_MINUTE)
    left = shortage(monkeypatch, *STEPS[step])
    with caplog.at_level(logging.WARNING, "transom"):
        if not drains:
            engine.start()
            until(lambda: accounted(engine)["rows"] == 4)
            engine.stop()
            assert engine.failure is None
        engine.drain()
    assert left == [0]
    assert answers(query) == COUNTS and query.suspended is None
    assert accounted(engine)["late"] == 0  # files stay in their order
    assert "too many open files" in caplog.text
    assert engine.warning is None


@STREAMING
def test_a_batch_of_a_streaming_dataframe_is_run_again(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(str(tmp_path / "state"))
    reader = make_engine.session.readStream.schema(BIDS).option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(bids_files(tmp_path / "bids", *FILES)))
    engine.stream("bids", frame, time="ts", slack="0 seconds")
    query = engine.register(PER_MINUTE)
    left = shortage(monkeypatch, Store, "write", writes("state/"))
    engine.drain(close=True)
    assert left == [0]
    assert answers(query) == COUNTS and query.suspended is None


def test_the_warning_lasts_as_long_as_the_shortage_and_a_waiting_engine_can_be_stopped(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_MINUTE, "counts")
    left = shortage(monkeypatch, Store, "write", writes("state/"), times=10**6)
    engine.start()
    feed.push(bids((1, 1.0, "12:00")))
    until(lambda: engine.warning is not None)
    assert "too many open files" in str(engine.warning)
    engine.stop()
    assert engine.failure is None
    left[0] = 0
    engine.start()
    until(lambda: engine.warning is None)
    engine.stop()
    assert accounted(engine)["rows"] == 1


def test_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def call() -> str:
        if len(pauses) < 8:
            raise BatchError("batch 3 failed") from OSError(errno.ENFILE, "Too many open files in system")
        return "done"

    assert DescriptorShortage().retry(call, pauses.append) == "done"
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, descriptor_shortage.LONGEST_RETRY_PAUSE, 5.0]


def test_other_errors_are_raised() -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        DescriptorShortage().retry(fail, lambda seconds: pytest.fail("it waits"))
    assert not lacks_descriptors(ValueError("Too many open files"))


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)
