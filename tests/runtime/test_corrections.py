"""EMIT CORRECTIONS in an engine: what users see of a corrected window, restarts, edits, limits and refusals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import SettableClock, at, bids, bids_engine
from transom import CostError, SettingError, SQLError
from transom.plan.limits import Limits
from transom.storage.failpoints import arm

WINDOW = "[RANGE 2 minutes SLIDE 1 minute]"
TEXT = f"SELECT site, sum(price) AS total FROM bids {WINDOW} GROUP BY site"
CORRECTED = f"{TEXT} EMIT CORRECTIONS WITHIN '10 minutes'"
BATCHES = [
    [(1, 2.5, "12:00:10")],
    [(1, 2.5, "12:01:10")],
    [(1, 2.5, "12:03:10")],
    [(1, 1.0, "12:00:30"), (2, 7.0, "12:01:30")],
    [(2, 1.0, "12:01:40")],
    [(1, 9.0, "11:00:00")],
]


def run(engine: Any, feed: Any, batches: list[Any] = BATCHES) -> None:
    for rows in batches:
        feed.push(bids(*rows))
        engine.step()


def shown(table: Any, *names: str) -> list[tuple[Any, ...]]:
    columns = names or ("kind", "revision", "total")
    return [
        (f"{row['window_end']:%H:%M}", row["site"], *(row[name] for name in columns))
        for row in table.to_pylist()
    ]


def consolidated(table: Any) -> Counter[tuple[Any, ...]]:
    """Finals and corrections, without what was retracted."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        if row["kind"] != "early":
            rows[row["window_end"], row["site"], row["total"]] += -1 if row["kind"] == "retraction" else 1
    return +rows


@ON_BOTH
def test_a_late_row_corrects_the_closed_windows_that_hold_it(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query, plain = engine.register(CORRECTED, "corrected"), engine.register(TEXT, "plain")
    run(engine, feed)
    assert shown(query.results()) == [
        ("12:01", 1, "final", 0, 2.5),
        ("12:02", 1, "final", 0, 5.0),
        ("12:03", 1, "final", 0, 2.5),
        ("12:01", 1, "retraction", 0, 2.5),
        ("12:02", 1, "retraction", 0, 5.0),
        ("12:01", 1, "correction", 1, 3.5),
        ("12:02", 1, "correction", 1, 6.0),
        ("12:02", 2, "correction", 1, 7.0),
        ("12:03", 2, "correction", 1, 7.0),
        ("12:02", 2, "retraction", 1, 7.0),
        ("12:03", 2, "retraction", 1, 7.0),
        ("12:02", 2, "correction", 2, 8.0),
        ("12:03", 2, "correction", 2, 8.0),
    ]
    newest = {("12:01", 1, 3.5), ("12:02", 1, 6.0), ("12:03", 1, 2.5), ("12:02", 2, 8.0), ("12:03", 2, 8.0)}
    assert set(shown(query.latest(), "total")) == newest and query.latest().num_rows == len(newest)
    assert sorted(consolidated(query.results()).values()) == [1] * 5
    assert {total for _, _, total in consolidated(query.results())} == {3.5, 6.0, 2.5, 8.0}
    accounts = query.account, plain.account
    assert [(one.rows, one.counted, one.late) for one in accounts] == [(7, 6, 1), (7, 3, 4)]
    assert engine._loop.state.accounts.unaccounted == 0
    assert plain.results().column_names == [n for n in query.results().column_names if n != "revision"]
    assert plain.latest().equals(plain.results())
    assert (
        {row["rows"] for row in query.late(rows=False).to_pylist()} if False else query.late().num_rows == 2
    )
    explained = engine.explain()
    assert "shared by 2 queries" in explained or "corrected, plain" in explained


def test_a_group_that_having_rules_out_is_retracted_and_can_come_back(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    text = f"{TEXT} HAVING sum(price) < 5 EMIT CORRECTIONS WITHIN '1 hour'".replace("2 minutes", "1 minute")
    query = engine.register(text, "small")
    run(engine, feed, [[(1, 1.0, "12:00:10")], [(1, 1.0, "12:02:10")]])
    run(engine, feed, [[(1, 8.0, "12:00:20")]])
    assert query.latest().num_rows == 0
    run(engine, feed, [[(1, -6.0, "12:00:30")]])
    assert shown(query.results()) == [
        ("12:01", 1, "final", 0, 1.0),
        ("12:01", 1, "retraction", 0, 1.0),
        ("12:01", 1, "correction", 1, 3.0),
    ]
    assert shown(query.latest(), "total") == [("12:01", 1, 3.0)]


def test_a_correction_can_change_which_groups_are_the_first(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    text = "SELECT site, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
    query = engine.register(f"{text} ORDER BY total DESC LIMIT 1 EMIT CORRECTIONS WITHIN '1 hour'", "first")
    run(engine, feed, [[(1, 5.0, "12:00:10"), (2, 3.0, "12:00:11")], [(1, 1.0, "12:02:10")]])
    run(engine, feed, [[(2, 1.0, "12:00:20")], [(2, 9.0, "12:00:30")]])
    assert shown(query.results()) == [
        ("12:01", 1, "final", 0, 5.0),
        ("12:01", 1, "retraction", 0, 5.0),
        ("12:01", 2, "correction", 1, 13.0),
    ], "the first late row changed no result"


def test_revisions_go_on_after_a_restart_and_a_batch_that_runs_again(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    """The batch with corrections fails after delivery; it runs again with the same outcome."""

    def started() -> Any:
        engine, feed = bids_engine(make_engine, tmp_path)
        return engine, feed, engine.register(CORRECTED, "corrected")

    def fail(point: str) -> None:
        if point == "delivery.end":
            raise OSError("the power is gone")

    engine, feed, query = started()
    run(engine, feed, BATCHES[:3])
    feed.push(bids(*BATCHES[3]))
    arm(fail)
    try:
        with pytest.raises(OSError, match="power"):
            engine.step()
    finally:
        arm(None)
        engine.stop()
    engine, feed, query = started()
    engine.step()
    engine.stop()
    engine, feed, query = started()
    run(engine, feed, BATCHES[4:])
    rows = shown(query.results())
    assert rows[-1] == ("12:03", 2, "correction", 2, 8.0) and len(rows) == 13
    assert query.account.late == 1


def test_a_window_that_closed_because_the_stream_fell_idle_is_corrected(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, idle="5 minutes", slack="1 minute")
    query = engine.register(CORRECTED, "corrected")
    run(engine, feed, [[(1, 2.5, "12:00:10")]])
    clock.advance(6)
    engine.step()
    assert shown(query.latest(), "total") == [("12:01", 1, 2.5), ("12:02", 1, 2.5)]
    run(engine, feed, [[(1, 1.0, "12:00:20")]])
    assert shown(query.latest(), "total", "revision") == [("12:01", 1, 3.5, 1), ("12:02", 1, 3.5, 1)]
    assert query.account.late == 0


def test_punctuations_of_a_group_close_its_windows_and_late_rows_of_it_correct_them(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(CORRECTED, "corrected")
    feed.push(bids((1, 2.5, "12:00:10"), (2, 1.0, "12:00:10")))
    engine.punctuate("bids", at("12:02:00"), where={"site": 1})
    engine.step()
    run(engine, feed, [[(1, 1.0, "12:00:20"), (2, 1.0, "12:00:20")]])
    assert shown(query.latest(), "total", "revision") == [("12:01", 1, 3.5, 1), ("12:02", 1, 3.5, 1)]
    engine.punctuate("bids", at("12:12:00"), where={"site": 1})
    engine.step()
    run(engine, feed, [[(1, 100.0, "12:00:20"), (2, 1.0, "12:00:20")]])
    assert query.account.late == 1, "it is ten minutes after the end of both windows"
    engine.punctuate("bids", at("12:02:00"))
    engine.step()
    assert shown(query.latest(), "total")[2:] == [("12:01", 2, 3.0), ("12:02", 2, 3.0)]


def test_early_results_come_first_and_are_not_corrected(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(f"{CORRECTED} EMIT EARLY EVERY '1 second'", "corrected")
    plain = engine.register(f"{TEXT} EMIT EARLY EVERY '1 second'", "plain")
    run(engine, feed)
    kinds = Counter(row["kind"] for row in query.results().to_pylist())
    assert kinds == {"early": kinds["early"], "final": 3, "retraction": 4, "correction": 6}
    assert set(query.latest()["kind"].to_pylist()) == {"final", "correction"}
    assert str(query.accuracy()) == str(plain.accuracy()), "finals are what early results are compared with"


def test_an_edit_of_having_keeps_the_results_that_can_be_corrected(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(CORRECTED, "corrected")
    run(engine, feed, BATCHES[:3])
    query.edit(f"{TEXT} HAVING sum(price) < 6 EMIT CORRECTIONS WITHIN '10 minutes'")
    run(engine, feed, BATCHES[3:])
    assert ("12:02", 1, 5.0) not in shown(query.latest(), "total"), "six is not below six"
    assert ("12:02", 1, "retraction", 0, 5.0) in shown(query.results())
    engine.rename("corrected", "renamed") if hasattr(engine, "rename") else query.rename("renamed")
    run(engine, feed, [[(1, 0.5, "12:00:40")]])
    assert ("12:01", 1, "correction", 2, 4.0) in shown(query.results())


def test_a_query_that_asks_for_the_past_corrects_windows_from_before_it_joined(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, retain="1 day")
    live = engine.register(CORRECTED, "live")
    run(engine, feed, BATCHES[:4])
    past = engine.register(CORRECTED, "past", since=at("11:00:00"))
    engine.step()
    run(engine, feed, BATCHES[4:])
    assert shown(past.results()) == shown(live.results())
    assert past.account.late == live.account.late == 1


def test_files_have_retractions_of_results_that_nothing_replaces_or_all(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    text = CORRECTED.replace(" EMIT", " HAVING sum(price) < 6 EMIT")
    query = engine.register(text, "corrected")
    calls: list[Any] = []
    query.subscribe(calls.append)
    query.sink("parquet", str(tmp_path / "rows"))
    query.sink("parquet", str(tmp_path / "all"), retractions="all")
    engine.sink("json", str(tmp_path / "everything"))
    run(engine, feed)

    def kinds(place: str) -> Counter[str]:
        tables = [pq.read_table(file) for file in (tmp_path / place).glob("batch=*/*.parquet")]
        return Counter(kind for table in tables for kind in table["kind"].to_pylist())

    everything = Counter(row["kind"] for row in query.results().to_pylist())
    assert everything == {"final": 3, "retraction": 2, "correction": 1} and kinds("all") == everything
    assert kinds("rows") == {"final": 3, "retraction": 1, "correction": 1}
    assert sum(table.num_rows for table in calls) == everything.total()
    lines = [
        json.loads(line)
        for file in (tmp_path / "everything").glob("batch=*/*.json")
        for line in file.read_text().splitlines()
    ]
    assert Counter(line["kind"] for line in lines) == kinds("rows")
    assert {line["values"]["revision"] for line in lines if line["kind"] == "final"} == {0}
    with pytest.raises(SettingError, match="retractions is all or deleted, not 'some'"):
        query.sink("parquet", str(tmp_path / "other"), retractions="some")


def test_slices_and_results_are_kept_for_the_bound_and_not_longer(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(CORRECTED.replace("10 minutes", "5 minutes"), "corrected")
    held = []
    for minute in range(60):
        run(engine, feed, [[(1, 1.0, f"12:{minute:02}:10")]])
        state = engine._loop.state
        held.append(
            (sum(sheet.num_rows for sheet in state.sheets.values()), len(state.reported.get("corrected", ())))
        )
    slices, results = (max(column) for column in zip(*held[20:], strict=True))
    assert slices <= 10 and results <= 14
    assert "keeps the slices of 5 more windows for each group" in engine.query("corrected").explain()


def test_more_results_than_the_limit_suspend_the_query_and_no_other(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    limits = Limits(correctable_results=20)
    engine, feed = bids_engine(make_engine, tmp_path, limits=limits)
    many, plain = engine.register(CORRECTED, "many"), engine.register(TEXT, "plain")
    run(engine, feed, [[(site, 1.0, "12:00:10") for site in range(30)], [(1, 1.0, "12:05:10")]])
    assert many.suspended is not None and "raise the setting correctable_results" in many.suspended
    assert plain.suspended is None and plain.results().num_rows == 60


def test_groups_on_the_executors_suspend_the_query_and_no_other(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, limits=Limits(driver_rows=20))
    many, plain = engine.register(CORRECTED, "many"), engine.register(TEXT, "plain")
    run(engine, feed, [[(site, 1.0, "12:00:10") for site in range(30)], [(1, 1.0, "12:05:10")]])
    assert many.suspended is not None and "the slices of its groups are on the executors" in many.suspended
    assert plain.suspended is None and plain.results().num_rows == 60


def test_an_engine_with_its_state_on_the_executors_refuses_the_clause(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, state="executors")
    plain = engine.register(TEXT, "plain")
    for change in (
        lambda: engine.register(CORRECTED, "corrected"),
        lambda: engine.register_all({"another": TEXT, "corrected": CORRECTED}),
        lambda: plain.edit(CORRECTED),
        lambda: engine.check(CORRECTED),
    ):
        with pytest.raises(SettingError, match=r"EMIT CORRECTIONS.*use state='auto' or state='driver'"):
            change()
    run(engine, feed, BATCHES[:2])
    assert list(engine.queries()) == ["plain"] and plain.suspended is None


def test_groups_that_are_on_the_executors_refuse_the_clause_until_their_queries_are_dropped(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    options = {"limits": Limits(driver_rows=20)}
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    engine.register(TEXT, "plain")
    run(engine, feed, [[(site, 1.0, "12:00:10") for site in range(30)]])
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path, **options)
    with pytest.raises(
        CostError, match="corrected has EMIT CORRECTIONS, and the slices of its groups are on"
    ):
        engine.register(CORRECTED, "corrected")
    all_sites = engine.register(CORRECTED.replace("site, ", "").replace(" GROUP BY site", ""), "all_sites")
    engine.query("plain").drop()
    corrected = engine.register(CORRECTED, "corrected")
    run(engine, feed, [[(1, 1.0, "12:05:10")]])
    assert corrected.suspended is None and all_sites.suspended is None


def test_a_query_of_a_checkpoint_goes_on_in_an_engine_that_keeps_new_slices_on_the_executors(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(CORRECTED, "corrected")
    engine.step()
    engine.stop()
    engine, feed = bids_engine(make_engine, tmp_path, state="executors")
    query = engine.register(CORRECTED, "corrected")  # the same text as in the checkpoint
    plain = engine.register(TEXT.replace("site, ", "").replace(" GROUP BY site", ""), "plain")
    run(engine, feed, BATCHES[:3])
    assert plain.suspended is None
    assert query.suspended is None, "slices that are on the driver stay there"


REFUSED = {
    f"SELECT count(*) FROM bids {WINDOW} EMIT CORRECTIONS": "needs how long",
    f"SELECT count(*) FROM bids {WINDOW} EMIT CORRECTIONS WITHIN": "needs how long",
    f"SELECT count(*) FROM bids {WINDOW} EMIT CORRECTIONS WITHIN '0 seconds'": "must be positive",
    f"SELECT count(*) FROM bids {WINDOW} EMIT CORRECTION WITHIN '1 day'": "did you mean CORRECTIONS",
    "SELECT count(*) FROM bids [RANGE 1 day] EMIT CORRECTIONS WITHIN '1 day'": "needs SLIDE",
    "SELECT count(*) FROM bids [ROWS 10 SLIDE 5] EMIT CORRECTIONS WITHIN 5": "not for windows of ROWS",
    "SELECT count(*) FROM bids [PARTITION BY site ROWS 9 SLIDE 5] GROUP BY site EMIT CORRECTIONS WITHIN 5": "of ROWS",
    "SELECT site FROM bids WHERE price > 1 EMIT CORRECTIONS WITHIN '1 day'": "the query has no window",
    "SELECT count(*) FROM bids [SESSION 5 minutes] EMIT CORRECTIONS WITHIN '1 day'": "session windows",
    f"SELECT LAG(count(*)) OVER WINDOWS FROM bids {WINDOW} EMIT CORRECTIONS WITHIN '1 day'": "LAG",
    f"SELECT count(*) FROM bids {WINDOW} EMIT EMPTY EMIT CORRECTIONS WITHIN '1 day'": "EMIT EMPTY",
    f"SELECT count(*) FROM plain {WINDOW} EMIT CORRECTIONS WITHIN '1 day'": "over the results of plain",
    f"SELECT count(*) FROM corrected {WINDOW}": "corrected has EMIT CORRECTIONS: no query can read its results",
    f"SELECT count(*) FROM bids a JOIN asks b ON a.site = b.site AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE "
    f"{WINDOW} EMIT CORRECTIONS WITHIN '1 day'": "join of streams",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_corrected_is_refused(make_engine: EngineFactory, tmp_path: Path, text: str) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.feed("asks", "site int, ts timestamp", time="ts")
    engine.register(TEXT, "plain")
    engine.register(CORRECTED, "corrected")
    with pytest.raises(SQLError, match=REFUSED[text]):
        engine.register(text, "new")


def test_a_text_that_is_not_registered_is_explained(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    assert "correct" in engine.explain_text(CORRECTED)


def test_a_bound_that_keeps_too_much_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, _ = bids_engine(make_engine, tmp_path)
    text = "SELECT count(*) FROM bids [RANGE 1 second SLIDE 1 second] EMIT CORRECTIONS WITHIN '3650 days'"
    with pytest.raises(CostError, match="results to keep for corrections, for each group"):
        engine.register(text)


def test_rows_of_a_union_and_of_a_joined_table_correct_windows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    other = engine.feed("asks", "site int, price double, ts timestamp", time="ts")
    engine.table("cities", [{"site": 1, "city": "Oslo"}, {"site": 2, "city": "Bergen"}])
    union = engine.register(
        f"SELECT site, sum(price) AS total FROM (SELECT site, price, ts FROM bids UNION ALL SELECT site, price, ts "
        f"FROM asks) {WINDOW} GROUP BY site EMIT CORRECTIONS WITHIN '10 minutes'",
        "union",
    )
    joined = engine.register(
        f"SELECT city AS site, sum(price) AS total FROM bids {WINDOW} JOIN cities ON bids.site = cities.site "
        "GROUP BY city EMIT CORRECTIONS WITHIN '10 minutes'",
        "joined",
    )
    for rows in BATCHES[:3]:
        feed.push(bids(*rows))
        other.push(bids(*rows))
        engine.step()
    run(engine, feed, BATCHES[3:])
    assert {("12:01", 1, 6.0), ("12:02", 1, 11.0), ("12:02", 2, 8.0)} <= set(shown(union.latest(), "total"))
    assert {("12:01", "Oslo", 3.5), ("12:02", "Bergen", 8.0)} <= set(shown(joined.latest(), "total"))
    assert engine._loop.state.accounts.unaccounted == 0


def test_an_edit_that_adds_the_clause_corrects_no_window_whose_slices_are_gone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(TEXT, "edited")
    run(engine, feed, BATCHES[:3])
    query.edit(CORRECTED)
    run(engine, feed, [BATCHES[3], [(1, 2.0, "12:09:10")], [(1, 2.0, "12:04:30")]])
    rows = shown(query.results(), "kind", "total")
    assert ("12:01", 1, "correction", 1.0) not in rows, "the first row of this window is not there any more"
    assert ("12:06", 1, "correction", 2.0) in rows, "a window that begins after the edit is corrected"
    assert query.suspended is None and engine._loop.state.accounts.unaccounted == 0


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_a_query_that_joins_late_corrects_no_window_that_had_closed(
    make_engine: EngineFactory, tmp_path: Path, restart: bool
) -> None:
    place = tmp_path / "checkpoint"
    engine, feed = bids_engine(make_engine, place)
    early = engine.register(CORRECTED, "early")
    run(engine, feed, [[(1, 2.5, "12:00:10")], [(1, 2.5, "12:05:10")]])
    engine.register(CORRECTED, "late")
    engine.step()
    if restart:
        engine.stop()
        engine, feed = bids_engine(make_engine, place)
        early = engine.query("early")
    late = engine.query("late")
    # 12:01 to 12:02 had rows of no group, and had closed; 12:05 to 12:06 is open.
    run(engine, feed, [[(1, 1.0, "12:00:20"), (2, 7.0, "12:02:30"), (2, 3.0, "12:05:30")]])
    assert ("12:03", 2, "correction", 1, 7.0) in shown(early.results())
    assert shown(late.results()) == [], "it gave no final result yet"
    run(engine, feed, [[(1, 1.0, "12:08:10")], [(2, 1.0, "12:05:40"), (2, 1.0, "12:02:40")]])
    assert [row for row in shown(late.results()) if row[0] < "12:06"] == []
    assert ("12:06", 2, "correction", 1, 4.0) in shown(late.results())
    in_time = {row for row in shown(early.results()) if row[0] >= "12:06"}
    assert set(shown(late.results())) == in_time, "both have all of these windows"
    assert late.account.late == 0 and engine._loop.state.accounts.unaccounted == 0
    run(engine, feed, [[(1, 1.0, "12:30:00")]])
    assert engine._loop.state.queries["late"].closed_before is None, "nothing has to be remembered any more"


def test_groups_that_a_punctuation_closed_before_a_query_joined_are_not_corrected(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    engine.register(CORRECTED, "early")
    feed.push(bids((1, 2.5, "11:50:10"), (2, 1.0, "11:50:10")))
    engine.punctuate("bids", at("12:02:00"), where={"site": 1})
    engine.step()
    late = engine.register(CORRECTED, "late")
    run(engine, feed, [[(1, 1.0, "12:00:20"), (2, 1.0, "12:00:20")]])
    engine.punctuate("bids", at("12:02:00"))
    engine.step()
    run(engine, feed, [[(1, 1.0, "12:00:30"), (2, 1.0, "12:00:30")]])
    newest = [row for row in shown(late.latest(), "total", "revision") if row[0] >= "12:00"]
    assert newest == [("12:01", 2, 2.0, 1), ("12:02", 2, 2.0, 1)], "those of site 1 had closed"


def test_an_edit_to_other_results_corrects_no_window_of_the_earlier_text(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(CORRECTED, "edited")
    run(engine, feed, BATCHES[:3])
    query.edit(CORRECTED.replace("AS total", "AS other"))
    run(engine, feed, BATCHES[3:5])
    assert query.results().num_rows == 0, "its windows closed before the edit"
