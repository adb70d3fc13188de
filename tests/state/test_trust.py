"""A checkpoint is data: reading one unpickles nothing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, bids
from tests.server.server_helpers import EARLY, ON_DEMAND, SUMMARY, WITH_PREFERENCE

QUERIES = {"early": EARLY, "on_demand": ON_DEMAND, "preferred": WITH_PREFERENCE}


def filled(make_engine: EngineFactory, place: Path, **options: Any) -> transom.Engine:
    """An engine with state of every kind."""
    engine = make_engine(str(place), **options)
    feed = engine.feed("bids", BIDS, time="ts")
    engine.execute(SUMMARY)
    engine.register_all(QUERIES)
    for minute in range(5):
        feed.push(bids((minute, 1.0, f"12:0{minute}"), (1, 2.0, "11:00"), (9, 9.0, None)))
        engine.step()
    return engine


@pytest.mark.parametrize("state", ["driver", "executors"])
def test_a_checkpoint_is_read_without_unpickling(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    engine = filled(make_engine, tmp_path, state=state)
    results, answer = engine.query("early").results(), engine.query("on_demand").lookup()
    assert results.num_rows and answer.num_rows
    engine.stop()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert not file.read_bytes().startswith((b"\x80\x03", b"\x80\x04", b"\x80\x05")), file

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("something is unpickled")

    with monkeypatch.context() as patch:
        for name in ("load", "loads", "Unpickler"):
            patch.setattr(pickle, name, refuse)
        again = make_engine(str(tmp_path), state=state)
        again.feed("bids", BIDS, time="ts")
        assert again.query("early").results().equals(results)
        assert set(again.queries()) == set(QUERIES) and set(again.summaries()) == {"bids_sites"}
        assert again.late("bids").num_rows and again.rejected("bids").num_rows
        again.stop()
