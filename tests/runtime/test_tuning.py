"""Queries that are tuned while they run: windows are told at another part of their last slide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime.prod_helpers import early, final, traffic
from transom.errors import SettingError

AT_HALF = "SELECT sum(volume) AS v FROM s [RANGE 40 SLIDE 40] EMIT EARLY AT 50% OF SLIDE"


def test_a_tuned_query_emits_its_windows_at_the_new_point(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.register(AT_HALF)
    feed.push([(10, 1, 0, 1), (20, 1, 0, 1)])
    engine.step()
    assert early(query, "v") == [(0, 40, 2)], "its own words: after half of the slide"
    query.tune(0.25)
    feed.push([(41, 1, 0, 4), (60, 1, 0, 8)])
    engine.step()
    assert early(query, "v") == [(0, 40, 2)], "half of the next slide is not enough now"
    feed.push([(70, 1, 0, 16)])
    engine.step()
    assert early(query, "v") == [(0, 40, 2), (40, 80, 28)], "three quarters are"
    assert query.tuned == 0.25
    assert "at 75% of the slide, as it was tuned" in query.explain()


def test_a_query_goes_back_to_its_own_words(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.register(AT_HALF)
    query.tune(0.25)
    feed.push([(10, 1, 0, 1), (20, 1, 0, 1)])
    engine.step()
    assert early(query, "v") == []
    query.tune(None)
    feed.push([(60, 1, 0, 8)])
    engine.step()
    assert early(query, "v") == [(40, 80, 8)]
    assert query.tuned is None


def test_a_tuned_query_stays_so_over_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    engine.register(AT_HALF, "q").tune(0.25)
    feed.push([(10, 1, 0, 1)])
    engine.step()
    engine.stop()
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.query("q")
    feed.push([(20, 1, 0, 1)])
    engine.step()
    assert (query.tuned, early(query, "v")) == (0.25, [])
    feed.push([(30, 1, 0, 2), (90, 1, 0, 1)])
    engine.step()
    assert final(query, "v") == [(0, 40, 4)], "finals are what they were"


def test_a_query_of_the_same_name_is_not_tuned(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.register(AT_HALF, "q")
    query.tune(0.25)
    feed.push([(10, 1, 0, 1)])
    engine.step()
    query.drop()
    again = engine.register(AT_HALF, "q")
    feed.push([(45, 1, 0, 1), (60, 1, 0, 1)])
    engine.step()
    assert again.tuned is None
    assert early(again, "v") == [(40, 80, 2)]


@pytest.mark.parametrize("value", [-0.1, 1, 1.5])
def test_aggressiveness_is_a_part_of_the_slide(
    make_engine: EngineFactory, tmp_path: Path, value: float
) -> None:
    engine, _ = traffic(make_engine, tmp_path)
    with pytest.raises(SettingError, match="part of the slide"):
        engine.register(AT_HALF).tune(value)


def test_only_queries_that_tell_windows_early_can_be_tuned(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, _ = traffic(make_engine, tmp_path)
    with pytest.raises(SettingError, match="has no EMIT EARLY"):
        engine.register("SELECT sum(volume) AS v FROM s [RANGE 40 SLIDE 40]").tune(0.5)
