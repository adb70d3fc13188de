"""Registered queries that are edited, renamed, paused and described while they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import PER_MINUTE, answers, bids, bids_engine, committed, written
from tests.runtime.preference_helpers import JOIN, sale, stores
from transom.errors import SettingError, SQLError, StateError
from transom.runtime.loop import BatchLoop

WINDOW = "[RANGE 2 minutes SLIDE 1 minute]"
COUNTED = f"SELECT site, count(*) AS n FROM bids {WINDOW} GROUP BY site"
OFTEN = f"{COUNTED} HAVING count(*) > 1"
DEAR = f"SELECT site, count(*) AS n FROM bids {WINDOW} WHERE price > 5 GROUP BY site"


def push(engine: Any, feed: Any, *rows: Any) -> None:
    feed.push(bids(*rows))
    engine.step()


# --- edit --------------------------------------------------------------------------------------


@ON_BOTH
def test_an_edit_of_having_keeps_open_windows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"), (2, 1.0, "12:00:20"))
    outcome = rule.edit(OFTEN)
    assert (outcome.kept, str(outcome)) == (True, "open windows are kept")
    push(engine, feed, (1, 1.0, "12:00:40"), (1, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]
    assert rule.text == OFTEN
    assert rule.edited == 2


def test_an_edit_of_where_reports_only_windows_of_which_it_saw_everything(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 9.0, "12:00:10"), (1, 9.0, "12:01:20"))
    outcome = rule.edit(DEAR)
    assert not outcome.kept
    assert outcome.changed == ("WHERE",)
    assert str(outcome) == (
        "windows that begin before 2013-01-01 12:02:00 are not reported, because WHERE changed; results begin anew"
    )
    push(engine, feed, (1, 9.0, "12:02:30"), (1, 1.0, "12:03:30"), (1, 1.0, "12:09:00"))
    assert answers(rule) == [("12:02", "12:04", 1, 1)]


def test_a_new_aggregate_is_one_reason_why_windows_are_not_kept(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 9.0, "12:00:10"))
    outcome = rule.edit(COUNTED.replace("count(*)", "max(price)"))
    assert outcome.changed == ("the aggregates",)
    push(engine, feed, (1, 7.0, "12:01:30"), (1, 1.0, "12:09:00"))
    assert answers(rule) == [("12:01", "12:03", 1, 7.0)]


def test_slices_of_another_query_answer_for_an_edited_one(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    engine.register(DEAR, "other")
    push(engine, feed, (1, 9.0, "12:00:10"), (1, 1.0, "12:00:20"))
    assert rule.edit(DEAR).kept
    push(engine, feed, (1, 7.0, "12:01:30"), (1, 1.0, "12:09:00"))
    assert answers(rule) == answers(engine.query("other"))


def test_a_text_that_is_refused_leaves_the_old_one_running(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    for text in ("SELECT pric FROM bids [RANGE 1 minute SLIDE 1 minute]", "CREATE VIEW v AS SELECT 1"):
        with pytest.raises(SQLError):
            rule.edit(text)
    push(engine, feed, (1, 1.0, "12:01:10"), (1, 1.0, "12:05:00"))
    assert rule.text == COUNTED
    assert answers(rule)[:2] == [("11:59", "12:01", 1, 1), ("12:00", "12:02", 1, 2)]


def test_results_of_both_texts_are_read_together_if_their_columns_are_the_same(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:01:10"))
    assert answers(rule) == [("11:59", "12:01", 1, 1)]
    assert rule.edit(OFTEN).results_continue
    push(engine, feed, (1, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 1), ("12:00", "12:02", 1, 2)]
    named = COUNTED.replace("AS n", "AS bids")
    outcome = rule.edit(named)
    assert str(outcome) == "open windows are kept; results begin anew"
    push(engine, feed, (1, 1.0, "12:09:00"))
    assert answers(rule) == [("12:04", "12:06", 1, 1), ("12:05", "12:07", 1, 1)]


def test_a_dry_run_changes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    assert rule.edit(DEAR, dry_run=True).changed == ("WHERE",)
    assert (rule.text, engine.step()) == (COUNTED, 0)


def test_a_name_can_have_several_texts_before_its_first_batch(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(DEAR, "rule").drop()
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:01:10"))
    assert answers(rule) == [("11:59", "12:01", 1, 1)]


def test_the_same_text_changes_nothing(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    assert str(rule.edit(COUNTED)) == "nothing changes: the text is the same"
    assert not engine.step()


def test_a_handle_follows_an_edit_by_another_program(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    engine.query("rule").edit(OFTEN)
    push(engine, feed, (1, 1.0, "12:00:20"), (1, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]
    assert rule.text == OFTEN


def test_two_edits_wait_for_one_batch(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.edit(DEAR)
    assert rule.edit(OFTEN).kept, "compared with what runs, not with what waits"
    push(engine, feed, (1, 1.0, "12:00:20"), (1, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]


def test_a_query_that_is_edited_before_it_joins_joins_with_the_new_text(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    rule.edit(OFTEN)
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:00:20"), (2, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]


def test_an_edit_and_a_drop_in_one_batch_leave_nothing_behind(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.edit(DEAR)
    rule.drop()
    push(engine, feed, (1, 1.0, "12:00:20"))
    state, record = committed(tmp_path)
    assert not state.queries
    assert not state.selections
    assert not state.sheets
    assert not record.queries


def test_an_edit_of_a_suspended_query_lets_it_take_part_again(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, max_failures=1)

    def fail(price: float) -> float:
        raise ValueError("no")

    engine.udf("fails", fail, "double")
    rule = engine.register(f"SELECT sum(fails(price)) AS n FROM bids {WINDOW}", "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    push(engine, feed, (1, 1.0, "12:00:20"))
    assert rule.suspended is not None
    assert str(rule.edit(COUNTED)) == "the query joins with the next batch, like a new one"
    push(engine, feed, (1, 1.0, "12:03:20"), (1, 1.0, "12:09:00"))
    assert rule.suspended is None
    assert answers(rule) == [("12:02", "12:04", 1, 1), ("12:03", "12:05", 1, 1)]


def test_a_paused_query_that_is_edited_stays_paused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.pause()
    engine.step()
    assert str(rule.edit(OFTEN)) == "the query stays paused"
    push(engine, feed, (1, 1.0, "12:05:00"))
    assert rule.paused
    assert rule.text == OFTEN
    assert answers(rule) == []


def test_a_query_that_others_read_keeps_its_columns_and_windows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    inner = engine.register(f"SELECT count(*) AS n FROM bids {WINDOW}", "sites")
    outer = engine.register("SELECT sum(n) AS s FROM sites [RANGE 4 minutes SLIDE 4 minutes]", "wide")
    push(engine, feed, (1, 1.0, "12:00:10"))
    for text in (
        f"SELECT count(*) AS m FROM bids {WINDOW}",
        f"SELECT count(*) AS n FROM bids {WINDOW} WHERE site = 1",
        "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute]",
        "SELECT sum(s) AS n FROM wide [RANGE 4 minutes SLIDE 4 minutes]",
    ):
        with pytest.raises(StateError, match="sites is read by wide"):
            inner.edit(text)
    with pytest.raises(StateError, match="sites is read by wide"):
        inner.rename("other")
    inner.edit(f"SELECT count(*) AS n FROM bids {WINDOW} HAVING count(*) > 1")
    push(engine, feed, (1, 1.0, "12:00:20"), (1, 1.0, "12:20:00"))
    assert answers(outer) == [("12:00", "12:04", 4)]


def test_an_edit_can_not_change_the_kind_of_a_query_with_a_preference(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, _ = stores(make_engine, tmp_path)
    pairs = engine.register(JOIN.format("desc"), "pairs")
    with pytest.raises(SettingError, match="pairs has a WITH PREFERENCE"):
        pairs.edit(f"SELECT count(*) AS n FROM store1 {WINDOW}")


def test_a_query_with_a_preference_is_edited_renamed_and_paused(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feeds = stores(make_engine, tmp_path)
    query = engine.register(JOIN.format("desc"), "pairs")
    feeds[1].push([sale(1, 0)])
    feeds[2].push([sale(1, 1)])
    engine.step()
    query.rename("found")
    feeds[2].push([sale(1, 2)])
    engine.step()
    assert query.results().num_rows == 2, "of both names"
    assert query.coverage().produced == 2
    assert str(query.edit(JOIN.format("asc"))) == "what the query has found and deferred begins anew"
    feeds[1].push([sale(1, 3)])
    feeds[2].push([sale(1, 4)])
    engine.step()
    assert query.results().num_rows == 1, "of the new text, over tuples since the edit"
    query.pause()
    feeds[2].push([sale(1, 5)])
    engine.step()
    assert query.results().num_rows == 1
    query.resume()
    feeds[1].push([sale(2, 6)])
    feeds[2].push([sale(2, 7)])
    engine.step()
    assert query.results().num_rows == 2


def test_an_on_demand_query_keeps_what_its_lookups_read(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    top = engine.register("SELECT max(price) AS top FROM bids [RANGE 10 minutes]", "top")
    push(engine, feed, (1, 3.0, "12:00:10"))
    assert top.edit("SELECT max(price) AS highest FROM bids [RANGE 5 minutes]").kept
    top.rename("highest")
    push(engine, feed, (1, 1.0, "12:01:10"))
    assert top.lookup()["highest"].to_pylist() == [3.0]


def test_an_edit_survives_a_process_that_dies_in_its_batch(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    rule.describe("bids of a site", ["bids"])
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.edit(OFTEN)
    rule.rename("often")
    feed.push(bids((1, 1.0, "12:00:20")))
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(BatchLoop, "_commit", lambda *args: (_ for _ in ()).throw(SystemExit()))
        engine.step()
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    assert list(engine.queries()) == ["often"], "what is written ahead will be done"
    push(engine, feed, (2, 1.0, "12:05:00"))
    rule = engine.query("often")
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]
    assert (rule.text, rule.description, rule.tags) == (OFTEN, "bids of a site", ("bids",))


def test_lag_goes_on_after_an_edit(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    minute = "[RANGE 1 minute SLIDE 1 minute]"
    rule = engine.register(
        f"SELECT count(*) AS n, lag(count(*)) OVER WINDOWS AS before FROM bids {minute}", "rule"
    )
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:00:20"), (1, 1.0, "12:01:10"))
    rule.edit(f"{rule.text} HAVING count(*) < 5")
    push(engine, feed, (1, 1.0, "12:02:10"))
    assert answers(rule) == [("12:00", "12:01", 2, None), ("12:01", "12:02", 1, 2)]


# --- rename ------------------------------------------------------------------------------------


@ON_BOTH
def test_a_renamed_query_keeps_results_windows_sinks_and_subscribers(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule, seen = engine.register(COUNTED, "rule"), list[pa.Table]()
    rule.subscribe(seen.append)
    rule.sink("parquet", str(tmp_path / "out"))
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:01:10"))
    rule.rename("often")
    push(engine, feed, (1, 1.0, "12:03:00"))
    expected = [("11:59", "12:01", 1, 1), ("12:00", "12:02", 1, 2), ("12:01", "12:03", 1, 1)]
    assert answers(rule) == expected
    assert answers(pa.concat_tables(seen)) == expected
    assert sorted(row["n"] for row in written(tmp_path / "out")) == [1, 1, 2]
    assert list(engine.queries()) == ["often"]
    with pytest.raises(StateError, match="there is no query named rule"):
        engine.query("rule")
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.step()
    assert answers(engine.query("often")) == expected


def test_a_name_that_became_free_belongs_to_another_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    journal = engine.journal()
    engine.register_all({"a": COUNTED, "b": COUNTED})
    push(engine, feed, (1, 1.0, "12:00:10"), (1, 1.0, "12:01:10"))
    engine.query("a").rename("c")
    engine.query("b").rename("a")
    push(engine, feed, (1, 1.0, "12:03:00"))
    expected = [("11:59", "12:01", 1, 1), ("12:00", "12:02", 1, 2), ("12:01", "12:03", 1, 1)]
    assert answers(engine.query("c")) == answers(engine.query("a")) == expected
    assert journal.end()
    push(engine, feed, (1, 9.0, "12:00:01"))
    assert engine.late("bids")["missed_by"].to_pylist() == [["c", "a"]]
    assert engine.query("a").late(rows=True).num_rows == 1
    assert "query c" in [decision.about for decision in engine.query("c").decisions()]


def test_a_name_is_taken_only_once(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register_all({"a": COUNTED, "b": COUNTED})
    push(engine, feed, (1, 1.0, "12:00:10"))
    for name, problem in (
        ("b", "there is a query named b already"),
        ("bids", "there is a stream named bids"),
        ("", "not a name"),
    ):
        with pytest.raises((StateError, SettingError), match=problem):
            engine.query("a").rename(name)
    engine.query("b").drop()
    with pytest.raises(StateError, match="the query named b leaves with the next batch"):
        engine.query("a").rename("b")
    engine.step()
    engine.query("a").rename("b")
    engine.query("b").drop()
    engine.step()
    assert engine.queries() == {}


# --- pause and resume --------------------------------------------------------------------------


@ON_BOTH
def test_a_paused_query_reports_nothing_and_joins_again_when_it_is_resumed(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.pause()
    assert rule.paused
    push(engine, feed, (1, 1.0, "12:05:10"))
    assert (answers(rule), rule.suspended) == ([], None)
    assert not committed(tmp_path)[0].queries
    assert "paused: rule" in engine.explain()
    assert rule.explain() == "query rule takes no part in batches: paused"
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.query("rule")
    assert rule.paused
    rule.resume()
    push(engine, feed, (1, 1.0, "12:06:10"), (1, 1.0, "12:09:10"), (1, 1.0, "12:20:00"))
    assert not rule.paused
    assert answers(rule)[0] == ("12:06", "12:08", 1, 1), "the first window without rows from before"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT site, sum(n) AS n FROM per_minute [RANGE 3 minutes SLIDE 1 minute] GROUP BY site",
        "SELECT bids.site, count(*) AS n FROM bids JOIN asks ON bids.site = asks.site "
        "AND bids.ts BETWEEN asks.ts - INTERVAL '10 seconds' AND asks.ts [RANGE 3 minutes SLIDE 1 minute] "
        "GROUP BY bids.site",
    ],
    ids=["results", "pairs"],
)
def test_the_only_reader_of_results_or_pairs_is_paused_and_resumed(
    make_engine: EngineFactory, text: str
) -> None:
    """It reports what it reports beside another reader, for which the engine keeps following them meanwhile."""

    def found(other: bool) -> list[Any]:
        with make_engine() as engine:
            feeds = [engine.feed(name, "site int, ts timestamp", time="ts") for name in ("bids", "asks")]
            inner = "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
            engine.register(inner, "per_minute")
            query = engine.register(text, "reader")
            if other:
                engine.register(text.replace("3 minutes", "2 minutes"), "other")
            for minute in range(12):
                if minute in (4, 6):
                    (query.pause if minute == 4 else query.resume)()
                for feed in feeds:
                    feed.push(
                        [(1, f"2024-01-01 12:{minute:02d}:{second:02d}") for second in (5, 20 + minute)]
                    )
                engine.step()
            return [(f"{row['window_end']:%H:%M}", row["n"]) for row in query.results().to_pylist()]

    alone = found(other=False)
    assert alone == found(other=True)
    assert [end for end, _ in alone if end < "12:04"] == ["12:01", "12:02", "12:03"]
    assert {n for end, n in alone if end > "12:06"} == {6} and "12:11" in dict(alone)


def test_a_pause_that_is_taken_back_before_its_batch_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.pause()
    with pytest.raises(StateError, match="paused already"):
        rule.pause()
    rule.resume()
    with pytest.raises(StateError, match="not suspended, and not paused"):
        rule.resume()
    push(engine, feed, (1, 1.0, "12:00:20"), (2, 1.0, "12:05:00"))
    assert answers(rule) == [("11:59", "12:01", 1, 2), ("12:00", "12:02", 1, 2)]


def test_a_paused_query_can_not_be_looked_up(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    top = engine.register("SELECT max(price) AS top FROM bids [RANGE 10 minutes]", "top")
    push(engine, feed, (1, 3.0, "12:00:10"))
    top.pause()
    engine.step()
    with pytest.raises(StateError, match="the query top is paused: resume it first"):
        top.lookup()


# --- descriptions and tags ---------------------------------------------------------------------


def test_descriptions_and_tags_stay_with_a_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    rule.describe("how often a site bids", ["bids", " sites ", "bids"])
    assert (rule.description, rule.tags) == ("how often a site bids", ("bids", "sites"))
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.describe(tags=[])
    rule.edit(DEAR)
    rule.rename("dear")
    engine.step()
    engine.stop()
    engine, _ = bids_engine(make_engine, tmp_path)
    rule = engine.query("dear")
    assert (rule.description, rule.tags) == ("how often a site bids", ())


def test_units_stay_with_a_query(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    rule, other = engine.register(COUNTED, "rule"), engine.register(PER_MINUTE, "other")
    rule.describe(units={"n": " bids "})
    assert (rule.units, other.units, rule.description) == ({"n": "bids"}, {}, "")
    push(engine, feed, (1, 1.0, "12:00:10"))
    rule.describe("how often a site bids")
    rule.edit(OFTEN)
    rule.rename("often")
    engine.step()
    engine.stop()
    engine, _ = bids_engine(make_engine, tmp_path)
    rule = engine.query("often")
    assert (rule.units, engine.query("other").units) == ({"n": "bids"}, {})
    rule.describe(units={})
    engine.step()
    assert rule.units == {} and rule.description == "how often a site bids"


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ({"m": "bids"}, "the query has no value named m; its values are n"),
        ({"site": "id"}, "the query has no value named site"),
        ({"n": "x" * 21}, "not a unit of n"),
        ({"n": "a\nb"}, "not a unit of n"),
        ({"n": 3}, "not a unit of n: '3'"),
        (["n"], "units are a mapping from column to unit"),
    ],
)
def test_what_is_no_unit_is_refused(
    make_engine: EngineFactory, tmp_path: Path, units: Any, message: str
) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    with pytest.raises(SettingError, match=re.escape(message)):
        rule.describe(units=units)
    assert rule.units == {}


@pytest.mark.parametrize("tags", ["bids", [""], ["a,b"], ["x" * 61], [str(i) for i in range(21)]])
def test_what_is_no_tag_is_refused(make_engine: EngineFactory, tmp_path: Path, tags: Any) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    rule = engine.register(COUNTED, "rule")
    with pytest.raises(SettingError):
        rule.describe(tags=tags)
