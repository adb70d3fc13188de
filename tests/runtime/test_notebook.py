"""Engines, queries and feeds in a notebook: they show what they are, and nothing of a user is HTML."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree.ElementTree import Element, fromstring

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


def charts(html: str) -> list[Element]:
    """The charts in some HTML, parsed: a chart that is not well formed is an error."""
    return [fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def tags(chart: Element) -> Counter[str]:
    return Counter(element.tag for element in chart.iter())


def test_a_query_shows_a_line_for_each_group(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", "card string, amount double, ts timestamp", time="ts")
    query = engine.register(
        "SELECT card, sum(amount) AS total FROM tx [RANGE 1 minute SLIDE 1 minute] GROUP BY card "
        "EMIT EARLY ON DEMAND",
        "totals",
    )
    assert charts(query._repr_html_()) == []
    feed.push([(card, 1.0, f"2024-01-01 12:0{n}:00") for n in range(3) for card in ("<ann>", "bob & co")])
    engine.step()
    query.prod()  # early results are not drawn
    engine.drain()
    (chart,) = charts(query._repr_html_())
    assert tags(chart)["polyline"] == 2
    texts = [element.text for element in chart.iter("text")]
    assert {"<ann>", "bob & co", "2024-01-01 12:01:00", "2024-01-01 12:03:00"} <= set(texts)
    assert all(len(line.attrib["points"].split()) == 3 for line in chart.iter("polyline"))
    assert "<script" not in query._repr_html_()


def test_a_query_over_names_of_system_columns_is_drawn(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", "kind string, window_end bigint, ts timestamp", time="ts")
    query = engine.register(
        "SELECT kind, max(window_end) AS window_end FROM tx [RANGE 1 minute SLIDE 1 minute] GROUP BY kind"
    )
    feed.push([("early", 1, "2024-01-01 12:00:00"), ("early", None, "2024-01-01 12:01:00")])
    engine.drain()
    (chart,) = charts(query._repr_html_())
    assert tags(chart)["circle"] == 1  # the window of a null is a gap


def test_a_query_without_a_number_has_no_chart(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", "card string, ts timestamp", time="ts")
    query = engine.register("SELECT max(card) AS last FROM tx [RANGE 1 minute SLIDE 1 minute]")
    feed.push([("ann", "2024-01-01 12:00:00")])
    engine.drain()
    assert "1 results" in query._repr_html_() and charts(query._repr_html_()) == []


def test_progress_shows_the_time_of_a_batch_and_the_fate_of_rows(make_engine: EngineFactory) -> None:
    engine = make_engine()
    feed = engine.feed("tx", "amount double, ts timestamp", time="ts")
    engine.register("SELECT count(*) AS n FROM tx [RANGE 1 minute SLIDE 1 minute] WHERE amount > 1")
    assert charts(engine.progress()._repr_html_()) == []
    feed.push([(2.0, "2024-01-01 12:00:00"), (0.0, "2024-01-01 12:00:01"), (2.0, None)])
    engine.step()
    shown = engine.progress()._repr_html_()
    seconds, rows = charts(shown)
    assert seconds.attrib["aria-label"] == "seconds of the last batch"
    assert {"counted 1", "unwanted 1", "rejected 1"} <= {element.text for element in rows.iter("text")}
    assert "<td>tx</td><td>3</td>" in shown


def test_a_plan_is_text_that_shows_what_queries_share(make_engine: EngineFactory) -> None:
    engine = make_engine()
    engine.feed("tx", "amount double, ts timestamp", time="ts")
    for minutes in (1, 2, 3):
        engine.register(
            f"SELECT count(*) AS n FROM tx [RANGE {minutes} minutes SLIDE 1 minute] WHERE amount < 5"
        )
    engine.register("SELECT count(*) AS n FROM tx [RANGE 1 minute SLIDE 1 minute]", "all_rows")
    engine.step()
    plan = engine.explain()
    assert isinstance(plan, str) and plan == str(plan)
    (chart,) = charts(plan._repr_html_())
    titles = [element.text for element in chart.iter("title")][1:]
    assert sorted(title.rpartition(": ")[2] for title in titles) == ["1", "3"]
    (alone,) = charts(engine.query("all_rows").explain()._repr_html_())
    assert tags(alone)["rect"] == 1
    assert not hasattr(engine.explain("json"), "_repr_html_")
