"""Engines, queries and feeds in a notebook: they show what they are, and nothing of a user is HTML."""

from __future__ import annotations

from tests.engine_factory import EngineFactory


def test_an_engine_a_query_and_a_feed_show_themselves(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", "card string, amount double, ts timestamp", time="ts")
    query = engine.register("SELECT card, amount FROM tx WHERE amount > 5", "<big>")
    looked_up = engine.register("SELECT max(amount) AS top FROM tx [RANGE 1 hour]", "top")
    feed.push([("<b>", 6.0, "2024-01-01")])
    assert "1 rows wait" in feed._repr_html_() and "amount" in feed._repr_html_()
    engine.step()
    shown = query._repr_html_()
    assert "query &lt;big&gt;: 1 results" in shown
    assert "amount &gt; 5" in shown and "&lt;b&gt;" in shown and "<b></td>" not in shown
    assert "RANGE 1 hour" in looked_up._repr_html_()  # it has no results to show
    whole = engine._repr_html_()
    assert "engine (local): 2 queries" in whole and "&lt;big&gt;" in whole and "tx" in whole
    query.pause()
    engine.step()
    assert "paused" in query._repr_html_()
