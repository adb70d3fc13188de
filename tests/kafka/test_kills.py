"""Engines that are killed in the middle of batches: no row is lost, and none is counted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.kafka.broker import Topics
from tests.kafka.test_kafka import bid, expected

pytestmark = pytest.mark.kafka

# Before the intent is on disk, after delivery, and when the state was just written.
KILLS = [("log.create", 2), ("delivery.end", 2), ("state.renamed", 1)]


@pytest.mark.timeout(900)  # each life starts a JVM
def test_kills_lose_and_repeat_nothing(topics: Topics, connector: list[str], tmp_path: Path) -> None:
    topic, results = topics.create("bids", 3), topics.create("results", 2)
    bids = [(p + 1, 3.0 * k, float(k)) for k in range(120) for p in range(3)]
    topics.send(topic, [(site - 1, None, bid(site, seconds, price)) for site, seconds, price in bids])
    topics.send(topic, [(1, None, "poison")])
    place = str(tmp_path / "checkpoint")
    arguments = [place, topics.servers, topic, results, ",".join(connector)]
    command = [sys.executable, "-m", "tests.kafka.life", *arguments]
    for point, batch in KILLS:
        life = subprocess.run([*command, point, str(batch)], capture_output=True, text=True, timeout=200)
        assert life.returncode == -9, f"{point}: {life.stdout}{life.stderr[-2000:]}"
    last = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert last.returncode == 0, last.stderr[-2000:]
    *lines, counts = last.stdout.strip().splitlines()
    wanted = expected(bids)
    assert lines == [f"{end} {site} {n} {total}" for (end, site), (n, total) in sorted(wanted.items())]
    assert counts == f"rows {len(bids) + 1} late 0 rejected 1"
    files = pq.read_table(f"{place}-files").to_pylist()  # a directory for each batch: exactly once
    table = pa.table(DeltaTable(f"{place}-table").scan()).to_pylist()
    assert len(files) == len(table) == len(wanted)
    for rows in (files, table):
        assert {
            (f"{row['window_end']:%H:%M}", row["site"]): (row["n"], row["total"]) for row in rows
        } == wanted
    messages = topics.read(results)  # at least once: the last message of each key counts
    latest = {key: json.loads(value) for key, value in messages}
    assert len(messages) > len(latest) == len(wanted)
    found = {(row["window_end"][11:16], row["site"]): (row["n"], row["total"]) for row in latest.values()}
    assert found == wanted
