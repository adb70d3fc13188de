"""Restarts of an engine, and input that is not what it seems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import transom
from tests.engine_factory import EngineFactory, on_spark
from transom.cli.build_engine import declare_pipeline
from transom.cli.pipeline import read_pipeline
from transom.runtime.fixed_schema import as_json

COUNT = "SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]"


def test_a_garbled_punctuation_in_the_stream_closes_nothing(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("s", "mark boolean, ts timestamp", time="ts", slack=None, punctuation="mark")
    query = engine.register(COUNT)
    feed.push([(False, "2013-01-01 12:00:10"), (True, "2999-01-01 00:00:00")])
    engine.step()
    feed.push([(False, "2013-01-01 12:00:20"), (True, "2013-01-01 12:01:00")])
    engine.step()
    assert query.results()["n"].to_pylist() == [2]
    assert engine.late("s").num_rows == 0


@on_spark("the local backend has no timestampFormat patterns")
def test_one_unreadable_time_leaves_the_other_rows_of_a_csv_alone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("shop,at\n1,1/2/2013 9:05:00\n1,garbage\n2,1/2/2013 9:05:30\n")
    engine = make_engine()
    form = {"timestampFormat": "M/d/yyyy H:mm:ss"}
    engine.stream("s", str(tmp_path / "in.csv"), time="at", options=form)
    query = engine.register(COUNT)
    engine.drain()
    assert query.results()["n"].to_pylist() == [2]
    assert [row["_time_text"] for row in engine.rejected("s").to_pylist()] == ["garbage"]


def test_queries_without_a_name_do_not_multiply_over_restarts(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    for _ in range(3):
        engine = make_engine(str(tmp_path))
        engine.feed("s", "ts timestamp", time="ts")
        engine.register(COUNT)
        engine.step()
    assert list(engine.queries()) == ["q1"]


def test_a_pipeline_file_that_changed_is_the_truth(make_engine: EngineFactory, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps({"ts": "2013-01-01T12:00:10Z"}))
    stream = {"path": str(tmp_path / "in.json"), "time": "ts", "schema": "ts timestamp"}
    changed = COUNT.replace("count(*)", "count(ts)")
    for queries in ({"kept": COUNT, "gone": COUNT, "edited": COUNT}, {"kept": COUNT, "edited": changed}):
        engine = make_engine(str(tmp_path / "state"))
        declare_pipeline(engine, read_pipeline({"streams": {"s": stream}, "queries": queries}, tmp_path))
        engine.step()
    assert {name: handle.text for name, handle in engine.queries().items()} == {
        "kept": COUNT,
        "edited": changed,
    }


def test_a_pattern_on_an_array_is_refused_when_it_is_said(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("s", "tags array<string>, ts timestamp", time="ts")
    with pytest.raises(transom.SettingError, match="no pattern can match"):
        feed.punctuate("2013-01-01 12:00", where={"tags": ["a"]})


def test_json_has_no_nan() -> None:
    assert json.loads(as_json({"a": float("nan"), "b": float("-inf"), "c": 1.5})) == {
        "a": "NaN",
        "b": "-Infinity",
        "c": 1.5,
    }
