"""The engine on a cluster: nothing may count on executors sharing the driver's memory or its code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import transom
from tests.differential.cases import case
from tests.differential.lookup_cases import looked_up
from tests.differential.on_engine import check_on_files
from tests.engine_factory import EngineFactory
from tests.faults.processes import descendants
from tests.runtime.engine_helpers import PER_SITE, answers, bids, bids_engine
from tests.runtime.preference_helpers import JOIN, joined, pairs, sales, stores
from transom.plan.limits import Limits

pytestmark = pytest.mark.cluster


def test_the_package_is_shipped_to_the_executors(cluster: SparkSession) -> None:
    transom.Engine(cluster)

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import transom.kernel.aggregate as kernel

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [kernel.__file__]})

    found = cluster.range(2, numPartitions=2).mapInArrow(where, "path string").toArrow()["path"].to_pylist()
    assert found and all("transom.zip" in path for path in found)


@pytest.mark.parametrize("part", range(3))
def test_every_answer_is_the_oracles(
    cluster_engine: EngineFactory, tmp_path: Path, seed: int, part: int
) -> None:
    for number in range(seed + 4 * part, seed + 4 * (part + 1)):
        check_on_files(case(Random(number)), cluster_engine, tmp_path / str(number))


def test_a_large_batch_is_cut_up_among_the_executors(cluster: SparkSession) -> None:
    engine = transom.Engine(cluster)
    rows = cluster.range(0, 200_000, numPartitions=4).selectExpr(
        "timestamp_seconds(id div 100) AS ts", "CAST(id % 7 AS INT) AS site", "CAST(id AS DOUBLE) AS price"
    )
    engine.stream("bids", rows, time="ts")
    query = engine.register(
        "SELECT site, count(*) AS n, sum(price) AS total "
        "FROM bids [RANGE 10 minutes SLIDE 5 minutes] GROUP BY site"
    )
    engine.drain()
    found = query.results()
    assert pc.sum(found["n"]).as_py() == 2 * 200_000  # every row is in two windows
    assert pc.sum(found["total"]).as_py() == 2 * sum(range(200_000))


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_every_lookup_is_answered_as_by_the_oracle(
    cluster_engine: EngineFactory, tmp_path: Path, seed: int, state: str
) -> None:
    check_on_files(looked_up(Random(seed)), cluster_engine, tmp_path, state=state)


def test_a_join_with_a_preference_is_made_where_the_tuples_are(
    cluster_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    engine, feeds = stores(cluster_engine, tmp_path, state="executors")
    every = engine.register(JOIN.format("desc"), "every")
    cut = engine.register(f"{JOIN.format('weighted')} BUDGET 200 PROBES", "cut")
    rng, sold = np.random.default_rng(seed), {1: list[Any](), 2: list[Any]()}
    for batch_id in range(2):
        for number, feed in feeds.items():
            rows = sales(rng, 10.0 * batch_id)
            sold[number] += rows
            feed.push(rows)
            engine.step()
    exact = joined(sold[1], sold[2])
    assert pairs(every) == exact
    assert not pairs(cut) - exact and pairs(cut).total() > 0
    assert engine.summaries()["items1"].on_executors


def test_an_executor_that_is_lost_in_the_middle_of_a_batch(
    cluster_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(cluster_engine, tmp_path, state="executors", limits=Limits(pushed_rows=0))
    query = engine.register(PER_SITE)
    rows = [(site, 1.0, "12:00:10") for site in range(100)]
    feed.push(bids(*rows))
    engine.step()
    first, *_ = descendants(os.getpid(), "CoarseGrainedExecutorBackend")
    os.kill(first, signal.SIGSTOP)  # tasks that it gets wait
    kill = threading.Timer(3, os.kill, (first, signal.SIGKILL))
    kill.start()
    feed.push(bids(*rows, (1, 1.0, "12:10")))
    try:
        engine.step()
    except transom.BatchError:
        engine.step()
    kill.join()
    assert query.suspended is None
    found = [(start, site, n) for start, _, site, n in answers(query)]
    assert found == [(start, site, 2) for start in ("11:59", "12:00") for site in range(100)]
