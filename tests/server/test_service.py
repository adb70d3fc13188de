"""The service without HTTP: what it tells of an engine, and what it lets people do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.engine_factory import EngineFactory
from tests.runtime.bad_files import stream_engine, three_files
from tests.runtime.engine_helpers import PER_SITE, SettableClock, bids, bids_engine
from transom.api.errors import LimitError, NotFound
from transom.errors import SettingError, SQLError, StateError
from transom.server.limits import ServiceLimits
from transom.server.metrics import RequestCounts, metrics_registry
from transom.server.service import Service, check_name

EARLY = (
    "SELECT site, sum(price) AS total FROM bids [RANGE 2 minutes SLIDE 1 minute] GROUP BY site "
    "EMIT EARLY AT 50% OF SLIDE"
)
ON_DEMAND = "SELECT max(price) AS top FROM bids [RANGE 10 minutes]"
FIVE_MINUTES = bids(
    (1, 10.0, "12:00:05"),
    (2, 20.0, "12:01:05"),
    (1, 30.0, "12:02:05"),
    (1, 40.0, "12:03:05"),
    (2, 5.0, "12:04:05"),
)


def bids_service(make_engine: EngineFactory, tmp_path: Path, **options: Any) -> tuple[Service, Any]:
    limits = options.pop("limits", None)
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    return Service(engine, limits), feed


def test_a_stream_in_numbers(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock("2013-01-01 12:10")
    service, feed = bids_service(make_engine, tmp_path, clock=clock, slack="30 seconds")
    service.register(PER_SITE, "per site")
    feed.push([*FIVE_MINUTES, *bids((1, 1.0, "11:00"), (1, 1.0, None))])
    service.engine.step()
    stream = service.stream("bids")
    assert (stream.rows, stream.late, stream.rejected, stream.queries) == (7, 0, 1, 1)
    assert stream.columns == {"site": "int", "price": "double", "ts": "timestamp"}
    assert (stream.slack, stream.watermark_delay, stream.lag) == ("30 seconds", 30.0, 355.0)
    assert stream.rate > 0
    with pytest.raises(NotFound, match="did you mean bids"):
        service.stream("bid")


def test_rows_of_derived_streams_are_counted_once(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    other = service.engine.feed("asks", "site int, price double, ts timestamp", time="ts")
    both = "(SELECT price, ts FROM bids UNION ALL SELECT price, ts FROM asks) b"
    service.register(f"SELECT count(*) AS n FROM {both} [RANGE 1 minute SLIDE 1 minute]", "both")
    feed.push(FIVE_MINUTES)
    other.push(FIVE_MINUTES)
    service.engine.step()
    status = service.status()
    assert (status.streams, status.rows) == (2, 10)
    streams = service.streams()
    assert [(each.derived_from, each.rows) for each in streams] == [((), 5), ((), 5), (("bids", "asks"), 10)]
    assert repr(service.engine) == "<engine (local) with 1 query over bids, asks>"


def test_the_problems_of_files_are_counted_and_listed(make_engine: EngineFactory, tmp_path: Path) -> None:
    service = Service(stream_engine(make_engine, None, three_files(tmp_path / "in", "no parquet")))
    service.register(PER_SITE, "per site")
    service.engine.step()
    stream = service.stream("bids")
    assert (stream.rows, stream.unreadable_files, stream.missing_columns) == (2, 1, 0)
    assert service.file_problems("bids")["problem"].to_pylist() == ["unreadable"]
    with pytest.raises(NotFound, match="did you mean bids"):
        service.file_problems("bid")
    metrics = generate_latest(metrics_registry(service, RequestCounts(), 10)).decode()
    assert 'transom_unreadable_files_total{stream="bids"} 1.0' in metrics
    assert 'transom_rewritten_files_total{stream="bids"} 0.0' in metrics


def test_a_stream_that_is_a_recording_has_no_lag(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    feed.push(FIVE_MINUTES)
    service.engine.step()
    assert service.stream("bids").lag is None


def test_a_query_in_words(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    made = service.register(EARLY, "totals")
    assert (made.kind, made.streams, made.pending, made.since) == ("standing", ("bids",), True, None)
    assert made.window == "range 2 minutes, slide 1 minute"
    assert [(c.name, c.role, c.of) for c in made.columns[:7]] == [
        ("window_start", "window", None),
        ("window_end", "window", None),
        ("site", "key", None),
        ("total", "value", None),
        ("total_projected", "estimate", "total"),
        ("total_low", "estimate", "total"),
        ("total_high", "estimate", "total"),
    ]
    assert (made.early, made.aggressiveness, made.tuned) == ("at 50% of the slide", 0.5, False)
    service.tune("totals", 0.25)
    feed.push(FIVE_MINUTES)
    service.engine.step()
    known = service.query("totals")
    assert (known.pending, known.since, known.aggressiveness, known.tuned) == (False, 1, 0.25, True)
    assert known.results == service.engine.query("totals").results().num_rows
    assert known.last is not None
    assert [query.name for query in service.queries()] == ["totals"]


def test_queries_on_demand_and_their_lookups(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    made = service.register(ON_DEMAND, "top")
    assert (made.kind, made.window) == ("on demand", "the last 10 minutes of ts")
    feed.push(FIVE_MINUTES)
    service.engine.step()
    assert service.lookup("top")["top"].to_pylist() == [40.0]
    assert service.lookup("top", range="30 seconds")["top"].to_pylist() == [5.0]
    assert service.lookup_text("SELECT max(price) AS m FROM bids [RANGE 2 minutes]")["m"].to_pylist() == [
        40.0
    ]
    with pytest.raises(SettingError, match="look it up"):
        service.results("top")


def test_results_by_cursor_are_all_results(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.register(EARLY, "totals")
    end = service.results("totals", "end").cursor
    for row in FIVE_MINUTES:
        feed.push([row])
        service.engine.step()
    service.prod("totals")
    everything = service.engine.query("totals").results()
    for start in (None, end):
        cursor, more, found = start, True, []
        while more:
            chunk = service.results("totals", cursor, limit=2)
            found += chunk.table.to_pylist()
            cursor, more = chunk.cursor, chunk.more
        assert found == everything.to_pylist()
    assert service.recent("totals", 1000).to_pylist() == everything.to_pylist()


def test_a_reader_goes_on_after_a_restart(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.register(PER_SITE, "per site")
    feed.push(FIVE_MINUTES[:3])
    service.engine.step()
    chunk = service.results("per site", limit=1)
    service.engine.stop()
    service, feed = bids_service(make_engine, tmp_path)
    feed.push(FIVE_MINUTES[3:])
    service.engine.step()
    rest = service.results("per site", chunk.cursor)
    assert (
        chunk.table.to_pylist() + rest.table.to_pylist()
        == service.engine.query("per site").results().to_pylist()
    )


def test_limits(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(
        make_engine, tmp_path, limits=ServiceLimits(queries=1, rows=2, sql=100, previews=0)
    )
    service.register(PER_SITE)
    with pytest.raises(LimitError, match="drop one first"):
        service.register(PER_SITE)
    with pytest.raises(SettingError, match="limit is 100"):
        service.check(f"{PER_SITE} {' ' * 100}")
    with pytest.raises(LimitError, match="previews already"):
        service.preview(PER_SITE)
    feed.push([*FIVE_MINUTES, *bids((1, None, None), (2, None, None), (3, None, None))])
    service.engine.step()
    assert service.results("q1", limit=100).table.num_rows == 2
    assert service.rejected("bids")["site"].to_pylist() == [2, 3], "the newest"
    with pytest.raises(SettingError, match="at least 1"):
        service.results("q1", limit=0)


def test_an_error_points_at_the_place_in_the_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    text = "SELECT sum(prise) AS s FROM bids [RANGE 1 minute SLIDE 1 minute]"
    for attempt in (service.check, service.register, service.preview):
        with pytest.raises(SQLError, match="did you mean price") as caught:
            attempt(text)
        assert (caught.value.start, caught.value.end) == (11, 16)
    assert service.queries() == []


def test_a_check_tells_what_a_query_would_be_and_share(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    service.register(PER_SITE, "per site")
    checked = service.check(PER_SITE.replace("1 minute", "30 seconds"))
    assert checked.kind == "standing"
    assert [column.name for column in checked.columns[2:4]] == ["site", "n"]
    assert "shared with per site" in checked.plan
    assert [query.name for query in service.queries()] == ["per site"], "nothing was registered"


def test_a_preview_is_run_for_real_and_leaves(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    feed.push(FIVE_MINUTES[:1])
    service.engine.step()
    name = service.preview(PER_SITE)
    assert service.queries() == []
    feed.push(FIVE_MINUTES[1:4])
    service.engine.step()
    found = service.results(name).table
    assert found.num_rows, "windows that it saw in part are shown"
    with pytest.raises(SettingError, match="end it instead"):
        service.drop(name)
    service.end_preview(name)
    service.engine.step()
    with pytest.raises(NotFound):
        service.results(name)
    with pytest.raises(NotFound):
        service.end_preview(name)


def test_an_idle_preview_is_dropped(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    name = service.preview(PER_SITE)
    feed.push(FIVE_MINUTES[:1])
    service.engine.step()
    service.previews.idle_seconds = -1.0
    feed.push(FIVE_MINUTES[1:2])
    service.engine.step()
    service.engine.step()
    assert name not in service.engine.queries()


def test_previews_of_an_earlier_run_are_gone_after_a_start(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    name = service.preview(PER_SITE)
    feed.push(FIVE_MINUTES[:1])
    service.engine.step()
    service.engine.stop()
    service, _ = bids_service(make_engine, tmp_path)
    assert name in service.engine.queries()
    service.start()
    assert (name in service.engine.queries(), service.state) == (False, "running")
    service.stop()
    assert service.state == "stopped"


def test_drop_and_what_is_read_by_others(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    service.register(PER_SITE, "per_site")
    service.register("SELECT max(n) AS most FROM per_site [RANGE 5 minutes SLIDE 5 minutes]", "busiest")
    with pytest.raises(StateError, match="read by busiest"):
        service.drop("per_site")
    service.drop("busiest")
    service.drop("per_site")
    with pytest.raises(NotFound):
        service.query("per_site")


def test_a_trend_is_of_the_group_with_the_highest_value(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.register(
        "SELECT site, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site", "per site"
    )
    rows = [(1, 5.0, "12:00"), (2, 7.0, "12:00"), (1, 9.0, "12:01"), (2, 8.0, "12:01"), (3, 1.0, "12:01")]
    feed.push(bids(*rows, (1, 0.0, "12:09")))
    service.engine.step()
    trend = service.trend("per site", points=2)
    assert trend is not None
    assert (trend.name, trend.group, trend.groups, trend.values) == ("total", (1,), 3, (5.0, 9.0))
    assert trend.is_highest
    service.register(ON_DEMAND, "top")
    assert service.trend("top") is None


def test_a_trend_of_sessions_is_of_the_group_of_the_newest_result(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.register("SELECT site, count(*) AS n FROM bids [SESSION 1 minute] GROUP BY site", "visits")
    feed.push(bids((1, 5.0, "12:00"), (1, 5.0, "12:00:30"), (2, 7.0, "12:05"), (3, 0.0, "12:30")))
    service.engine.step()
    trend = service.trend("visits")
    assert trend is not None
    assert (trend.group, trend.groups, trend.values, trend.is_highest) == ((2,), 2, (1.0,), False)


def test_results_counts_and_trends_are_there_after_a_restart(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.register(PER_SITE, "per site")
    feed.push(FIVE_MINUTES)
    service.engine.step()
    service.engine.query("per site").rename("by site")
    feed.push(bids((1, 1.0, "12:05:30"), (1, 0.0, "12:08")))
    service.engine.step()
    before, trend = service.query("by site"), service.trend("by site")
    assert before.results and trend is not None and len(trend.values) > 2
    service.engine.stop()
    again, feed = bids_service(make_engine, tmp_path)
    again.earlier.start()
    assert again.earlier.wait(30)
    after = again.query("by site")
    assert after.results == before.results
    assert after.last is not None
    assert again.trend("by site") == trend
    feed.push(bids((1, 1.0, "12:10:30"), (1, 0.0, "12:15")))
    again.engine.step()
    assert again.query("by site").results > before.results
    now = again.trend("by site")
    assert now is not None and now.ends[0] == trend.ends[0] and len(now.ends) > len(trend.ends)
    assert again.recent("by site").num_rows == again.query("by site").results


def test_the_plan_of_everything(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    service.register(PER_SITE, "per site")
    assert json.loads(service.explain(format="json"))["streams"][0]["name"] == "bids"
    assert "per site" in service.explain("per site")


def test_summaries(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    service.create_summary(
        "CREATE SUMMARY sites ON bids(site) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
    )
    feed.push(FIVE_MINUTES)
    service.engine.step()
    assert list(service.summaries()) == ["sites"]
    with pytest.raises(SettingError, match="CREATE SUMMARY"):
        service.create_summary("DROP SUMMARY sites")
    service.drop_summary("sites")
    service.engine.step()
    assert service.summaries() == {}
    with pytest.raises(NotFound):
        service.drop_summary("sites")


@pytest.mark.parametrize("name", ["", " a", "a/b", "a\\b", "..", "a\nb", "x" * 201, "preview.a"])
def test_names_that_could_not_stand_in_a_path_are_refused(name: str) -> None:
    with pytest.raises(SettingError):
        check_name(name)
    check_name("mean delay, by origin, 1 hour")


@pytest.mark.parametrize("call", ["repeat('x', 2000000000)", "SPACE (2000000000)", "sequence(1, site)"])
def test_functions_that_could_fill_the_memory_are_not_taken_from_requests(
    make_engine: EngineFactory, tmp_path: Path, call: str
) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    text = f"SELECT max({call}) AS m FROM bids [RANGE 1 minute SLIDE 1 minute]"
    for attempt in (service.check, service.register, service.preview, service.lookup_text):
        with pytest.raises(SQLError, match="not allowed in a request"):
            attempt(text)
    service.check("SELECT count(*) AS repeat FROM bids [RANGE 1 minute SLIDE 1 minute]")


@pytest.mark.parametrize(
    "call",
    ["format_string('%30000000d', 1)", "array_insert(array(1), 3000000, 1)", "format_number(1, 99999999)"],
)
def test_other_functions_without_bounds_are_not_taken_either(
    make_engine: EngineFactory, tmp_path: Path, call: str
) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    with pytest.raises(SQLError, match="not allowed in a request"):
        service.check(f"SELECT max({call}) AS m FROM bids [RANGE 1 minute SLIDE 1 minute]")


@pytest.mark.parametrize("pattern", [r"r'^.(a+)+(b)?\2$'", r"'(a*)*b'", r"'(a|aa)+$'"])
def test_patterns_that_may_be_matched_for_ever_are_not_taken(
    make_engine: EngineFactory, tmp_path: Path, pattern: str
) -> None:
    service, _ = bids_service(make_engine, tmp_path)
    minute = "[RANGE 1 minute SLIDE 1 minute]"
    text = f"SELECT count(*) AS n FROM bids {minute} WHERE regexp_like(CAST(site AS STRING), {{}})"
    with pytest.raises(SQLError, match="for ever"):
        service.check(text.format(pattern))
    service.check(text.format(r"'^(1|2)[0-9]+$'"))


def test_nothing_is_remembered_of_previews_that_left(make_engine: EngineFactory, tmp_path: Path) -> None:
    service, feed = bids_service(make_engine, tmp_path)
    name = service.preview(PER_SITE)
    feed.push(FIVE_MINUTES)
    service.engine.step()
    assert service.query(name).results
    service.end_preview(name)
    service.engine.step()
    assert not service.catalog.descriptions
    assert not service.history.results
    assert not service.history.last
