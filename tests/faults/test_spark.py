"""Spark: a driver that is killed, and Python workers that the system kills in the middle of a batch."""

from __future__ import annotations

import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.engine_factory import EngineFactory, on_spark
from tests.faults.lives import Fault, Lives
from tests.faults.processes import descendants
from tests.faults.workload import Workload
from tests.runtime.engine_helpers import PER_SITE, answers, bids, bids_engine, bids_table
from transom.plan.limits import Limits

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SHARED = Workload("files", at_once=True, batches=4)


def comparable(outcome: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the backend: times in JSON have another form, and a stream has a batch more."""
    texts = {name: outcome[name] for name in ("subscribed", "results", "late", "rejected", "lookups")}
    sinks = {"all": outcome["sink of all"], "days": outcome["sink by day"], **outcome["sinks"]}
    assert all(len(lines) == len(set(lines)) for lines in sinks.values()), "nothing is written twice"
    return {
        "texts": re.sub(r'"batch": "\d+", ', "", repr(texts)),
        "sinks": {name: len(lines) for name, lines in sinks.items()},
        "accounted": outcome["accounted"],
    }


def test_a_driver_of_a_stream_that_is_killed(tmp_path: Path) -> None:
    local = Lives(SHARED, tmp_path / "local")
    assert local.until(Fault()) is None
    streaming = Workload("streaming", "executors", at_once=True, batches=SHARED.batches, backend="spark")
    program = Lives(streaming, tmp_path / "spark")
    for failpoint in ("sink.rename", "state.rename", "state.renamed"):
        assert program.until(Fault(frozenset({failpoint}), skipped=20)) == failpoint
    assert program.until(Fault()) is None
    assert comparable(program.outcome()) == comparable(local.outcome())


@on_spark("the local backend has no Python workers")
def test_python_workers_that_are_killed_in_the_middle_of_a_batch(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, state="executors", limits=Limits(pushed_rows=0))
    query = engine.register(PER_SITE)
    rows = [(site, 1.0, "12:00:10") for site in range(100)]
    feed.push(bids(*rows))
    engine.step()
    workers = descendants(os.getpid(), "pyspark.daemon")[1:]  # the first one makes the others
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # a task that gets this worker waits for it
    feed.push(bids(*rows, (1, 1.0, "12:10")))
    kill = threading.Timer(3, lambda: [os.kill(worker, signal.SIGKILL) for worker in workers])
    kill.start()
    engine.step()
    kill.join()
    assert query.suspended is None
    expected = [(window, site, 2) for window in ("11:59", "12:00") for site in range(100)]
    assert [(start, site, n) for start, _, site, n in answers(query)] == expected


@on_spark("the local backend has no Python workers")
def test_python_workers_that_are_killed_while_they_read_files(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    files = tmp_path / "in"
    files.mkdir()
    engine = make_engine(tmp_path / "checkpoint", limits=Limits(pushed_rows=0))
    engine.stream(
        "bids", str(files), time="ts", format="parquet", schema="site int, price double, ts timestamp"
    )
    query = engine.register(PER_SITE)
    rows = [(site, 1.0, "12:00:10") for site in range(100)]
    pq.write_table(bids_table(*rows), files / "a.parquet")
    engine.step()
    workers = descendants(os.getpid(), "pyspark.daemon")[1:]  # the first one makes the others
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # a task that gets this worker waits for it
    pq.write_table(bids_table(*rows, (1, 1.0, "12:10")), files / "b.parquet")
    kill = threading.Timer(3, lambda: [os.kill(worker, signal.SIGKILL) for worker in workers])
    kill.start()
    engine.step()
    kill.join()
    assert query.suspended is None and engine.file_problems("bids").num_rows == 0
    expected = [(window, site, 2) for window in ("11:59", "12:00") for site in range(100)]
    assert [(start, site, n) for start, _, site, n in answers(query)] == expected
