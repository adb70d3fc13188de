"""The HTML of a stream's page, of the batches and of the help, and the names that the editor lists."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pyarrow as pa
import pytest

from tests.dashboard.fake_service import MINUTE, FakeService, query, stream
from transom.api.records import (
    BatchInfo,
    InputPartition,
    LateOfQuery,
    StreamColumn,
    StreamColumns,
    ViewStatus,
)
from transom.dashboard.batches_view import batch_text, checkpoint_html, timeline_html
from transom.dashboard.editor import EditorNames, names_html
from transom.dashboard.frame import NAVIGATION
from transom.dashboard.help_view import DOCUMENTS, HELP_PAGES, help_html
from transom.dashboard.stream_list import first_query, streams_html, views_html
from transom.dashboard.stream_view import columns_html, fates_html, input_html, late_html, rates_html
from transom.sql.editor.completion import KnownRelation
from transom.sql.editor.example_queries import ExampleQuery

SERVICE = FakeService(query("late", late=40), query("in time", late=0), streams=(stream(),))
DETAIL = SERVICE.stream("bids")


def test_a_stream_lists_the_queries_that_missed_rows_most_first():
    missed = (LateOfQuery("<a>", 40, 1000), LateOfQuery("b", 5, 1000), LateOfQuery("c", 0, 1000))
    html = late_html(replace(DETAIL, late_by_query=missed))
    assert html.index("&lt;a&gt;") < html.index(">b<") and ">c<" not in html
    assert "4.00" in html and "1 query missed none" in html
    assert "in time for the query" in late_html(replace(DETAIL, late_by_query=missed[2:]))
    assert "No query reads" in late_html(replace(DETAIL, late_by_query=()))


def test_what_became_of_rows_adds_up_to_all_rows():
    html = fates_html(replace(DETAIL, counted=900, unwanted=50, late=40, rejected=10, rows=1000))
    shares = [float(share) for share in re.findall(r"([\d.]+)\s%", html)]
    assert sum(shares) == pytest.approx(100.0)
    assert "No rows yet" in fates_html(replace(DETAIL, counted=0, unwanted=0, late=0, rejected=0))


def test_the_input_shows_partitions_and_how_far_they_are_behind():
    partitions = (InputPartition("bids 0", 5, 9), InputPartition("bids 1", 7, None))
    html = input_html(replace(DETAIL, source="Spark stream", partitions=partitions))
    assert html.count("partition-row") == 2 and '<td class="num">4</td>' in html
    assert "has no partitions" in input_html(DETAIL)
    assert "not reported" in input_html(replace(DETAIL, source="Spark stream"))
    assert "Files read" in input_html(replace(DETAIL, source="files", files_read=3, files_waiting=1))


def test_columns_show_what_their_values_are_like():
    column = StreamColumn("<x>", "double", False, 1, 4, "0.5", "9", ("3",))
    html = columns_html(StreamColumns(10, (column, StreamColumn("ts", "timestamp", True))))
    assert "&lt;x&gt;" in html and "10.0" in html and "event time" in html and "<x>" not in html


def test_rates_have_a_scale():
    assert "first rates appear" in rates_html(())
    assert "at most 20 rows per second" in rates_html((10.0, 20.0, 5.0))


def test_the_timeline_has_a_bar_for_each_batch_as_high_as_it_took_long():
    batches = [
        BatchInfo(1, "bids", MINUTE, 0.2, {"ingest": 0.15, "commit": 0.05}, 5, 0, 1),
        BatchInfo(2, None, 2 * MINUTE, 0.1, {"commit": 0.1}, 0, 0, 0),
    ]
    html = timeline_html(batches)
    assert re.findall(r"height:([\d.]+)%", html) == ["100.0", "50.0"]
    assert re.findall(r"flex:([\d.]+)", html) == ["0.7500", "0.2500", "1.0000"]
    assert batch_text(batches[1]) == "Batch 2: 100 ms, no rows, 0 results (commit 100 ms)"


def test_the_checkpoint_shows_its_parts():
    html = checkpoint_html(SERVICE.checkpoint())
    assert "/data/&lt;here&gt;" in html and "batch 2" in html and "30 B" in html
    assert "no batch yet" in checkpoint_html(replace(SERVICE.checkpoint(), batch=-1, parts=(), bytes=None))


def test_the_list_of_streams_leads_to_their_pages_and_to_a_first_query():
    assert 'href="/stream/a%20b"' in streams_html([stream(name="a b")])
    assert first_query(stream(name="a b", is_time=False)).endswith("FROM `a b` [RANGE 100 SLIDE 10]")
    view = ViewStatus("big", "SELECT 1 < 2", "bids", {"x": "int"}, tuple("abcdefg"))
    assert "SELECT 1 &lt; 2" in views_html([view]) and "and 2 more" in views_html([view])


def test_the_editor_lists_streams_tables_and_examples():
    relations = [
        KnownRelation("bids", "stream", {"unit price": pa.float64()}, "ts"),
        KnownRelation("<sites>", "table", {"city": pa.string()}),
    ]
    html = names_html(EditorNames(relations, [ExampleQuery("Count <bids>", "SELECT 1")]))
    assert "Static tables" in html and "&lt;sites&gt;" in html and "Count &lt;bids&gt;" in html
    assert 'data-arg="`unit price`"' in html and "Views" not in html
    assert "No streams" in names_html(EditorNames([], []))


@pytest.mark.parametrize("page", HELP_PAGES)
def test_every_link_of_the_help_leads_somewhere(page):
    html, headings = help_html(page)
    assert headings and "<h2" in html
    for target in re.findall(r'href="([^"]*)"', html):
        path, _, anchor = target.partition("#")
        linked = path.removeprefix("/help/") or page
        assert linked in HELP_PAGES, target
        assert not anchor or f'id="{anchor}"' in help_html(linked)[0], target


def test_the_help_has_all_of_the_sql_reference():
    text = (DOCUMENTS / "sql.md").read_text(encoding="utf-8")
    shown = unescape(re.sub(r"<[^>]+>", "", help_html("sql")[0]))
    for heading in re.findall(r"^#{2,3} (.*)$", text, re.MULTILINE):
        assert heading.replace("`", "") in shown
    assert "|---" not in shown and "| --- |" not in shown and "```" not in shown


def test_every_section_of_the_navigation_has_a_key_of_its_own():
    keys = [key for *_, key in NAVIGATION]
    assert len(set(keys)) == len(keys) and "help" in {section for section, *_ in NAVIGATION}
