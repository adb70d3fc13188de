"""Queries are compiled when they are registered, and a batch takes what still belongs to them."""

from __future__ import annotations

from pathlib import Path

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import PER_SITE, bids_engine
from transom.plan.compiled_query import CompiledQuery

ROWS = [{"site": 1, "price": 2.0, "ts": "2013-01-01 12:00:10"}]
OTHER = PER_SITE.replace("GROUP BY", "WHERE site > 1 GROUP BY")


def test_a_batch_takes_the_compiled_query_and_forgets_what_waited(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    directory = engine._loop.directory
    engine.register_all({"first": PER_SITE, "second": OTHER})
    waiting = dict(directory.compiled)
    feed.push(ROWS)
    engine.step()
    executables = {entry.name: entry.executable for entry in directory.registry}
    assert all(executables[name] is compiled for name, compiled in waiting.items())
    assert set(waiting) == {"first", "second"}
    assert not directory.compiled


def test_a_query_with_another_text_is_compiled_by_its_batch(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_SITE, "q")
    query.drop()
    engine.register(OTHER, "q")
    engine.query("q").edit(PER_SITE)
    feed.push(ROWS)
    engine.step()
    executable = engine._loop.directory.registry["q"].executable
    assert isinstance(executable, CompiledQuery)
    assert (executable.query.text, executable.where.parts) == (PER_SITE, ())
