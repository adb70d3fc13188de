"""Batches beyond their budget: rows are sidelined and resumed, or shed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, STREAMING, EngineFactory
from tests.runtime.engine_helpers import (
    BIDS,
    PER_MINUTE,
    PER_SITE,
    SettableClock,
    accounted,
    another_batch,
    answers,
    begun,
    bids,
    bids_engine,
    bids_files,
    committed,
    short,
)
from tests.runtime.fault_helpers import Crash, Fault
from transom.elements import Overload
from transom.ingest.batch import IngestRun
from transom.ingest.sources import FeedSource
from transom.ingest.streams import Stream
from transom.ingest.tables import StaticTables
from transom.overload.sideline import Sideline
from transom.runtime import loop as loop_module
from transom.runtime.options import stream_rules
from transom.runtime.outputs import Outputs
from transom.runtime.row_outputs import RowOutputs
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store

BURST = [(i % 3, float(i), f"12:01:10.{i:02d}") for i in range(20)]
FIRST = [(1, 1.0, "12:00"), *BURST, (1, 1.0, "12:02")]
SECOND = [(1, 1.0, "12:03"), (2, 1.0, "12:04:30")]
THIRD = [(i % 2, 1.0, f"12:05:{i:02d}") for i in range(6)]
SIDELINE = {"overload": "sideline", "budget": 8}


def aside(engine: transom.Engine) -> int:
    return engine.progress().streams["bids"].sidelined


def batch(engine: transom.Engine) -> bool:
    """Run one batch."""
    return engine.step(1) == 1


def plain_answers(make_engine: EngineFactory, place: Path, texts: list[str], *batches: Any) -> list[Any]:
    """What comes out without a budget."""
    engine, feed = bids_engine(make_engine, place / "plain")
    queries = [engine.register(text) for text in texts]
    for rows in batches:
        feed.push(bids(*rows))
        engine.step()
    engine.drain()
    return [answers(query) for query in queries]


@ON_BOTH
def test_later_windows_close_on_time_and_the_burst_closes_late_but_complete(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, **SIDELINE)
    query = engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    assert batch(engine)
    assert answers(query) == [("12:00", "12:01", 1)]
    assert accounted(engine) == {"rows": 22, "counted": 8, "unwanted": 0, "late": 0, "rejected": 0}
    assert aside(engine) == 14
    assert {short(datetime.fromtimestamp(end / 1e6, UTC)) for held in held_times(engine) for end in held} == {
        "12:01:10"
    }
    assert "sidelined 14 since 2013-01-01" in str(engine.progress())
    assert ", held 2013-01-01" in str(engine.progress())
    plan = engine.explain()
    assert "budget 8 rows; rows beyond it are sidelined, and resumed 1 for every 3 new rows" in plan
    assert "sidelined: 14 rows since 2013-01-01" in plan

    feed.push(bids(*SECOND))
    assert batch(engine)
    assert answers(query) == [("12:00", "12:01", 1), ("12:02", "12:03", 1), ("12:03", "12:04", 1)]
    before = aside(engine)
    assert before == 14  # two new rows have not earned one yet
    while batch(engine):
        assert aside(engine) < before
        before = aside(engine)
    assert aside(engine) == 0 and held_times(engine) == ()
    assert answers(query) == [
        ("12:00", "12:01", 1), ("12:01", "12:02", 20), ("12:02", "12:03", 1), ("12:03", "12:04", 1)
    ]  # fmt: skip
    assert set(query.results()["complete"].to_pylist()) == {True}
    another_batch(engine)
    assert not list((tmp_path / "checkpoint" / "sidelined" / "bids").glob("*"))
    assert accounted(engine) == {"rows": 24, "counted": 24, "unwanted": 0, "late": 0, "rejected": 0}


def held_times(engine: transom.Engine) -> Any:
    return engine.progress().streams["bids"].held


@pytest.mark.parametrize("strategy", ["auto", "naive"])
def test_everything_comes_out_as_without_a_budget(
    make_engine: EngineFactory, tmp_path: Path, strategy: str
) -> None:
    texts = [PER_MINUTE, PER_SITE, "SELECT sum(price) AS p FROM bids [RANGE '90 s' SLIDE '1 minute']"]
    batches = [FIRST, SECOND, THIRD, [(7, 1.0, "12:09")]]
    expected = plain_answers(make_engine, tmp_path, texts, *batches)
    engine, feed = bids_engine(
        make_engine, tmp_path, strategy=strategy, overload="sideline", budget=5, share=1
    )
    queries = [engine.register(text) for text in texts]
    for rows in batches:
        feed.push(bids(*rows))
        batch(engine)
    engine.drain()
    assert [answers(query) for query in queries] == expected
    assert accounted(engine)["counted"] == sum(map(len, batches))


def test_a_burst_of_one_instant_is_sidelined_too(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, **SIDELINE)
    query = engine.register(PER_MINUTE)
    feed.push(bids(*[(1, 1.0, "12:00")] * 30))
    assert batch(engine) and aside(engine) == 22
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 30)]


def test_new_rows_earn_credit_for_sidelined_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, overload="sideline", budget=8, share=2)
    engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    batch(engine)
    found = []
    for minute in range(10, 16):
        feed.push(bids(*((1, 1.0, f"12:{minute}:{i:02d}") for i in range(4))))
        batch(engine)
        found.append(aside(engine))
    assert found == [14, 12, 10, 8, 6, 4]


def test_rows_where_something_is_closed_are_never_sidelined(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, overload="sideline", budget=1)
    query = engine.register("SELECT count(*) AS n FROM bids [RANGE 10 minutes SLIDE 10 minutes]")
    feed.push(bids((1, 1.0, "12:05")))
    batch(engine)
    feed.push(bids(*((1, 1.0, f"12:04:{i:02d}") for i in range(9))))
    batch(engine)
    assert aside(engine) == 0
    engine.drain()
    assert answers(query) == [("12:00", "12:10", 10)]


def test_the_end_of_a_stream_waits_for_sidelined_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, idle="1 minute", **SIDELINE)
    query = engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    batch(engine)
    clock.advance(minutes=5)
    while batch(engine):
        pass
    assert answers(query) == [("12:00", "12:01", 1), ("12:01", "12:02", 20), ("12:02", "12:03", 1)]
    assert accounted(engine)["late"] == 0


def test_a_flush_processes_all_sidelined_rows(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, **SIDELINE)
    query = engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    batch(engine)
    engine.flush("bids")
    assert batch(engine) and aside(engine) == 0
    assert answers(query) == [("12:00", "12:01", 1), ("12:01", "12:02", 20), ("12:02", "12:03", 1)]


def test_shed_rows_are_counted_and_their_windows_are_not_complete(
    make_engine: EngineFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, overload="shed", budget=8)
    query = engine.register(PER_MINUTE, name="per_minute")
    over = engine.register("SELECT max(n) AS most FROM per_minute [RANGE 2 minutes SLIDE 2 minutes]")
    feed.push(bids(*FIRST))
    with caplog.at_level("WARNING", "transom"):
        engine.drain()
    found = {row["window_start"].minute: (row["n"], row["complete"]) for row in query.results().to_pylist()}
    assert found == {0: (1, True), 1: (6, False), 2: (1, True)}
    found = [(row["window_start"].minute, row["most"], row["complete"]) for row in over.results().to_pylist()]
    assert sorted(found) == [(0, 6, False), (2, 1, True)]
    assert engine.progress().streams["bids"].shed == 14 and "shed 14" in str(engine.progress())
    assert "14 rows were shed" in caplog.text
    assert accounted(engine)["counted"] == 8


def test_files_have_budgets_too(make_engine: EngineFactory, tmp_path: Path) -> None:
    check_budget(make_engine, tmp_path, "path")


@STREAMING
def test_streaming_dataframes_have_budgets_too(make_engine: EngineFactory, tmp_path: Path) -> None:
    check_budget(make_engine, tmp_path, "streaming")


def check_budget(make_engine: EngineFactory, tmp_path: Path, source: str) -> None:
    """Files of a path and batches of a streaming DataFrame have the answers of a stream without a budget."""
    place = bids_files(tmp_path / "in", FIRST, SECOND, THIRD)
    (expected,) = plain_answers(EngineFactory("local"), tmp_path, [PER_SITE], FIRST, SECOND, THIRD)
    engine = make_engine(str(tmp_path / "checkpoint"))
    batches: Any = str(place)
    if source == "streaming":
        reader = make_engine.session.readStream.schema(BIDS).option("maxFilesPerTrigger", 1)
        batches = reader.parquet(str(place))
    engine.stream("bids", batches, time="ts", **SIDELINE)
    query = engine.register(PER_SITE)
    engine.drain(close=True)
    assert answers(query) == expected and accounted(engine)["counted"] == 30


def test_without_the_option_no_batch_is_looked_at_twice(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(*args: Any) -> Any:
        raise AssertionError("a batch was judged")

    engine, feed = bids_engine(make_engine, tmp_path)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()
    monkeypatch.setattr(IngestRun, "judge_times", judged)
    monkeypatch.setattr(Sideline, "_kept", judged)
    feed.push(bids(*FIRST))
    engine.drain()
    assert len(answers(query)) == 3


def test_the_pace_of_batches_is_measured_and_kept(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, overload="sideline", budget="2 s")
    engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    assert batch(engine) and aside(engine) == 0
    (first,) = committed(tmp_path)[1].paces["bids"]
    assert first[0] == 22 and first[1] > 0
    again, feed = bids_engine(make_engine, tmp_path, overload="sideline", budget="2 s")
    feed.push(bids((1, 1.0, "12:10")))
    batch(again)
    before, second = committed(tmp_path)[1].paces["bids"]
    assert before == first and second[0] == 1


def test_a_budget_of_time_follows_the_pace_of_batches(make_engine: EngineFactory, tmp_path: Path) -> None:
    backend, store = make_engine.backend, Store(tmp_path)
    columns = backend.parse_schema(BIDS)
    rules = stream_rules("bids", columns, "ts", "default", None, False, None, Overload(2_000_000, True))
    stream = Stream("bids", columns, rules, FeedSource(backend, store, "bids", columns))
    sideline = Sideline(backend, store, StaticTables(store, backend))
    assert sideline.budget(stream) is None
    sideline.resume({"bids": [(1000, 1.0), (5000, 1.0), (10, 1.0)]})
    assert sideline.budget(stream) == 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overload": "sidelne", "budget": 5}, "sideline"),
        ({"overload": "shed"}, "needs a budget"),
        ({"budget": 5}, "overload"),
        ({"overload": "shed", "budget": 0}, "at least one row"),
        ({"overload": "shed", "budget": "soon"}, "soon"),
        ({"overload": "shed", "budget": 5, "share": 0}, "share"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_options_that_make_no_sense_are_refused(
    make_engine: EngineFactory, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(transom.SettingError, match=message):
        bids_engine(make_engine, tmp_path, **options)


# --- failures --------------------------------------------------------------------------------

BATCHES = [FIRST, SECOND, THIRD]
TEXTS = {"per_minute": PER_MINUTE, "rows": "SELECT sum(price) AS p FROM bids [ROWS 3 SLIDE 2]"}


class Program:
    """A program that is started again and again on one checkpoint, and knows from it what to push."""

    def __init__(self, make_engine: EngineFactory, place: Path):
        self.make_engine, self.place = make_engine, place

    def start(self) -> transom.Engine:
        engine, self.feed = bids_engine(self.make_engine, self.place, clock=SettableClock(), **SIDELINE)
        engine.register_all(TEXTS)
        return engine

    def run(self, engine: transom.Engine) -> None:
        if begun(self.place) is not None:
            batch(engine)
        while (taken := len(self.taken())) < len(BATCHES):
            self.feed.push(bids(*BATCHES[taken]))
            batch(engine)
        while batch(engine):
            pass
        engine.drain()

    def taken(self) -> set[str]:
        """The batches that were begun with pushed rows: their files, and what the state says is gone."""
        log = self.place / "checkpoint" / "log"
        seen = self.place / "seen"
        seen.mkdir(exist_ok=True)
        for file in log.glob("*.json"):
            if b'"feed"' in file.read_bytes():
                (seen / file.name).touch()
        return {file.name for file in seen.iterdir()}


def outcome(engine: transom.Engine) -> Any:
    results = {name: answers(engine.query(name)) for name in TEXTS}
    return results, accounted(engine), aside(engine)


@pytest.fixture(scope="module")
def undisturbed(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> Any:
    program = Program(make_engine, tmp_path_factory.mktemp("undisturbed"))
    engine = program.start()
    program.run(engine)
    found = outcome(engine)
    assert found[1]["counted"] == 30 and found[2] == 0
    return found


STEPS: dict[str, tuple[Any, str]] = {
    "writing the batch ahead": (BatchLog, "begin"),
    "choosing rows": (Sideline, "split"),
    "writing sidelined rows": (Sideline, "_write"),
    "ingest": (IngestRun, "process"),
    "writing late rows": (RowOutputs, "write"),
    "emit": (loop_module, "emit"),
    "writing results": (Outputs, "write_results"),
    "the commit": (BatchLog, "commit"),
    "deleting resumed rows": (Sideline, "unused"),
}
CASES = [
    *(
        ("the burst", step, after)
        for step in STEPS
        if step != "deleting resumed rows"
        for after in (False, True)
    ),
    *(("no new rows", step, False) for step in STEPS if step != "writing sidelined rows"),
    ("no new rows", "the commit", True),
    ("no new rows", "writing the batch ahead", True),
]


@pytest.mark.parametrize(("when", "step", "after"), CASES)
def test_no_row_is_lost_or_counted_twice_when_it_fails(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    step: str,
    after: bool,
) -> None:
    program = Program(make_engine, tmp_path)
    engine = program.start()
    if when == "no new rows":
        for rows in BATCHES:
            program.feed.push(bids(*rows))
            batch(engine)
        program.taken()
        assert aside(engine) > 0
    owner, name = STEPS[step]
    fault = Fault(monkeypatch, owner, name, lambda *args, **options: True, after)
    with pytest.raises(Exception, match="Crash|failed|" + name):
        program.run(engine)
    assert fault.fired
    engine.stop()
    again = program.start()
    program.run(again)
    assert outcome(again) == undisturbed
    assert not list((tmp_path / "checkpoint" / "sidelined" / "bids").glob("*"))


def test_the_same_engine_continues_after_a_failed_batch_without_new_rows(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(make_engine, tmp_path)
    engine = program.start()
    for rows in BATCHES:
        program.feed.push(bids(*rows))
        batch(engine)
    program.taken()
    Fault(monkeypatch, Store, "write", lambda store, name, data: name.startswith("state/"), False)
    with pytest.raises(Crash):
        batch(engine)
    program.run(engine)
    assert outcome(engine) == undisturbed


def test_an_engine_without_a_budget_resumes_sidelined_rows(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, **SIDELINE)
    engine.register(PER_MINUTE, name="q")
    feed.push(bids(*FIRST))
    batch(engine)
    again, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids(*SECOND))
    again.drain()
    assert ("12:01", "12:02", 20) in answers(again.query("q")) and accounted(again)["counted"] == 24


def test_a_late_row_for_a_window_that_is_held_counts(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, **SIDELINE)
    query = engine.register(PER_MINUTE)
    feed.push(bids(*FIRST))
    batch(engine)
    feed.push(bids((9, 1.0, "12:01:50")))
    batch(engine)
    engine.drain()
    assert ("12:01", "12:02", 21) in answers(query) and accounted(engine)["late"] == 0
