"""The process that evaluates expressions over texts is killed by the system in the middle of a batch."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.faults.processes import descendants
from tests.runtime.engine_helpers import answers, at

pytestmark = pytest.mark.faults


def test_a_worker_that_is_killed_in_the_middle_of_a_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path, batch_deadline="100 s")
    feed = engine.feed("names", "name string, ts timestamp", time="ts")
    query = engine.register(
        "SELECT count(*) AS n FROM names [RANGE 1 minute SLIDE 1 minute] WHERE name RLIKE 'a.*b'"
    )
    feed.push([("a b", at("12:00")), ("b a", at("12:00"))])
    engine.step()
    (worker,) = descendants(os.getpid(), "scalar_worker")
    os.kill(worker, signal.SIGSTOP)  # the batch waits for it
    kill = threading.Timer(1, os.kill, (worker, signal.SIGKILL))
    kill.start()
    feed.push([("a b", at("12:00:30")), ("ab", at("12:02"))])
    engine.step()
    kill.join()
    assert query.suspended is None
    assert answers(query) == [("12:00", "12:01", 2)]
    engine.stop()
    assert descendants(os.getpid(), "scalar_worker") == []
