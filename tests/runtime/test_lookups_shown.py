"""What EXPLAIN and the metrics of a running engine say of on-demand queries."""

from __future__ import annotations

from pathlib import Path

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, bids

TOP = "SELECT max(price) AS top FROM bids [RANGE 10 minutes]"
PER_SITE = "SELECT site, count(*) AS n, max(price) AS m FROM bids [RANGE 5 minutes] GROUP BY site"


def test_explain_and_progress_follow_the_batches_and_the_lookups(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(str(tmp_path / "checkpoint"))
    feed = engine.feed("bids", BIDS, time="ts")
    top = engine.register(TOP, "top")
    engine.register(f"{PER_SITE} USING timegram(8)", "buckets")
    pushed = engine.register("SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]", "pushed")
    assert top.on_demand and not pushed.on_demand
    assert "query top over bids, on demand (joins with the next batch)" in top.explain()
    assert not engine.progress().on_demand.stores

    feed.push(bids((1, 10.0, "12:00:05"), (2, 14.0, "12:06:10")))
    engine.step()
    for name in ("top", "top", "buckets"):
        engine.query(name).lookup()
    told = engine.progress()
    assert (told.queries, told.on_demand.queries, told.on_demand.lookups) == (3, 2, 3)
    assert (told.on_demand.reads, told.on_demand.hits, told.on_demand.updates) == (4, 4, 6)
    store = told.on_demand.stores["bids by ts group by site | timegram(8) of price"]
    assert (store.updates, store.lookups, store.entries, store.on_executors) == (2, 1, 2, False)
    assert told.state_bytes > told.on_demand.bytes > 0 and told.executor_rows == 0
    assert "on demand: 2 queries over 5 stores" in str(told)
    assert "max(price) by buckets of store" in engine.explain() and "waits" not in engine.explain()
    assert engine.explain(format="mermaid").count("timegram(8)") == 2
    engine.stop()

    engine = make_engine(str(tmp_path / "checkpoint"))  # what was kept is there again
    engine.feed("bids", BIDS, time="ts")
    assert "holds 1 entry" in engine.query("top").explain()
    engine.query("top").lookup()
    assert engine.progress().on_demand.entries == told.on_demand.entries
    assert engine.progress().on_demand.lookups == 1
    engine.stop()
