"""Results of batches before the service started are counted and kept, whatever else a batch holds."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids, bids_engine
from transom.runtime.engine import Engine
from transom.runtime.registry import identity
from transom.server import earlier_results
from transom.server.earlier_results import EarlierResults

QUERIES = dict.fromkeys([f"q{n}" for n in range(5)], PER_SITE) | {
    "other": "SELECT max(price) AS top FROM bids [RANGE 1 minute SLIDE 1 minute]"
}


@pytest.fixture
def engine(make_engine: EngineFactory, tmp_path: Path) -> Engine:
    """An engine with results of several queries, of two schemas, in several batches."""
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register_all(QUERIES)
    for minute in range(6):
        feed.push(bids(*[(site, float(site), f"12:{minute:02}:{site:02}") for site in range(4)]))
        engine.step()
    return engine


def read(engine: Engine) -> EarlierResults:
    journal = engine.journal()
    earlier = EarlierResults(journal.loop.outputs, journal.end().batch_id)
    earlier.start()
    assert earlier.wait(30)
    return earlier


def kept(earlier: EarlierResults, engine: Engine, name: str) -> pa.Table:
    query = engine.query(name)
    return earlier.newest(identity(name, query.since or 0), query.results().schema)


def test_the_results_of_each_query_are_read_back_in_order(engine: Engine) -> None:
    earlier = read(engine)
    for name in QUERIES:
        results = engine.query(name).results()
        assert results.num_rows
        rows, last = earlier.count(identity(name, engine.query(name).since or 0))
        assert rows == results.num_rows and last is not None
        assert kept(earlier, engine, name).to_pylist() == results.to_pylist()
    assert earlier.count("nothing@1") == (0, None)


def test_only_the_newest_results_stay_in_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_results, "MOST_ROWS", 3)
    earlier = read(engine)
    results = engine.query("q0").results()
    newest = kept(earlier, engine, "q0")
    assert 0 < newest.num_rows < results.num_rows
    assert newest.to_pylist() == results.slice(results.num_rows - newest.num_rows).to_pylist()
    assert earlier.count(identity("q0", engine.query("q0").since or 0))[0] == results.num_rows
    monkeypatch.setattr(earlier_results, "MOST_BYTES", 0)
    assert kept(read(engine), engine, "q0").num_rows == 0


def test_a_batch_that_can_t_be_read_is_left_out(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = sorted(tmp_path.rglob("results/*/*.arrow"))
    assert files
    files[0].write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING, "transom"):
        earlier = read(engine)
    assert "can't be read back" in caplog.text
    assert earlier.count(identity("other", engine.query("other").since or 0))[0]
