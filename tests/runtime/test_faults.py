"""Every step of a batch fails once; a new engine on the same checkpoint finishes as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Callable
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
    answers,
    at,
    bids,
    bids_engine,
    bids_files,
    bids_table,
)
from tests.runtime.fault_helpers import Crash, Fault, fault_at
from transom.backends.base import Sink
from transom.ingest.batch import IngestRun
from transom.runtime import loop as loop_module
from transom.runtime.outputs import Outputs, results_of
from transom.runtime.row_outputs import RowOutputs
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store

BATCHES = [
    [(1, 1.0, "12:00"), (2, 2.0, "12:03"), (9, 1.0, None)],
    [(2, 1.0, "12:01"), (1, 4.0, "12:05"), (None, 1.0, "12:04:10")],
    [(1, 1.0, "12:00"), (2, 2.0, "12:05:30")],
]
TEXTS = {
    "per_site": PER_SITE,
    "rows": "SELECT sum(price) AS p FROM bids [ROWS 3 SLIDE 2]",
    "corrected": f"{PER_SITE} EMIT CORRECTIONS WITHIN '1 hour'",
}
SLACK = "1 minute"


def writes(part: str) -> Callable[..., bool]:
    """Whether a file of batch 2 is written that belongs to this part of the checkpoint."""
    return lambda store, name, *rest: name.startswith(part) and "0000000002" in name


def of_batch_two(*args: Any, **options: Any) -> bool:
    return 2 in args


STEPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "writing the batch ahead": (Store, "write", writes("log/")),
    "committing the state": (Store, "write", writes("state/")),
    "writing results": (Store, "write", writes("results/")),
    "writing all results": (Outputs, "write_results", lambda outputs, place, *rest: place == results_of(2)),
    "writing late and rejected rows": (RowOutputs, "write", of_batch_two),
    "a sink": (Sink, "write", of_batch_two),
    "emit": (loop_module, "emit", lambda state, *rest: state.batch_id == 1),
    "the commit": (BatchLog, "commit", lambda log, state, record: state.batch_id == 2),
    "ingest": (IngestRun, "process", lambda run: run.batch.before.totals.rows == 3),
}


class Program:
    """A program that is started again and again on one checkpoint, over one kind of source."""

    def __init__(self, make_engine: EngineFactory, place: Path, source: str):
        self.make_engine, self.place, self.source = make_engine, place, source
        self.sent = 0
        self.clock = SettableClock()
        if source != "feed":
            bids_files(place / "in", *BATCHES)

    def start(self) -> transom.Engine:
        engine = self.make_engine(self.place / "checkpoint", clock=self.clock)
        if self.source == "feed":
            self.feed = engine.feed("bids", BIDS, time="ts", slack=SLACK)
        elif self.source == "path":
            engine.stream("bids", str(self.place / "in"), time="ts", slack=SLACK)
        else:
            frame = self.make_engine.session.readStream.schema(BIDS).option("maxFilesPerTrigger", 1)
            engine.stream("bids", frame.parquet(str(self.place / "in")), time="ts", slack=SLACK)
        for name, query in engine.register_all(TEXTS).items():
            query.sink("json", path=str(self.place / "out" / name), retractions="all")
        return engine

    def run(self, engine: transom.Engine) -> None:
        """Do everything that is still to do; a feed's program knows from the log what was taken."""
        if self.source == "feed":
            while (taken := self.taken()) < len(BATCHES):
                self.feed.push(bids(*BATCHES[taken]))
                engine.step()
            engine.step()
        engine.drain(close=True)

    def taken(self) -> int:
        log = self.place / "checkpoint" / "log"
        return max((int(file.stem) for file in log.glob("*.json")), default=0)

    def outcome(self, engine: transom.Engine) -> dict[str, Any]:
        """All that came out; batches are counted from the first with data: a control batch may come before."""
        (rejected,) = engine.rejected("bids").to_pylist()
        first = rejected["batch"]
        tables = {name: engine.query(name).results() for name in TEXTS}
        return {
            "results": {name: answers(table) for name, table in tables.items()},
            "batches": {
                name: sorted(p - first for p in table["batch"].to_pylist()) for name, table in tables.items()
            },
            "sinks": {name: self.written(name, first) for name in TEXTS},
            "late": [
                (row["ts"], row["reason"], row["batch"] - first) for row in engine.late("bids").to_pylist()
            ],
            "rejected": (rejected["site"], rejected["reason"]),
            "accounted": accounted(engine),
        }

    def written(self, name: str, first: int) -> list[str]:
        """What the sink of a query holds."""
        found = []
        for file in (self.place / "out" / name).glob("batch=*/*.json"):
            batch_id = int(file.parent.name.removeprefix("batch=")) - first
            found += [
                json.dumps({**json.loads(line), "batch": batch_id}) for line in file.read_text().splitlines()
            ]
        return sorted(found)


@pytest.fixture(scope="module")
def undisturbed(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes out when nothing fails."""
    program = Program(make_engine, tmp_path_factory.mktemp("undisturbed"), "feed")
    engine = program.start()
    program.run(engine)
    outcome = program.outcome(engine)
    assert outcome["accounted"] == {"rows": 8, "counted": 5, "unwanted": 0, "late": 2, "rejected": 1}
    results = outcome["results"]
    assert len(results["per_site"]) > 8 and len(results["rows"]) > 2
    assert {name: len(rows) for name, rows in outcome["sinks"].items()} == {
        n: len(r) for n, r in results.items()
    }
    return outcome


def crash(program: Program, engine: transom.Engine) -> None:
    with pytest.raises(Exception, match=r"Crash|failed|" + "|".join(name for _, name, _ in STEPS.values())):
        program.run(engine)
    engine.stop()


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", STEPS)
def test_a_feed_whose_batch_fails_at(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    check_fault(make_engine, tmp_path, undisturbed, monkeypatch, "feed", step, after)


@pytest.mark.parametrize(
    ("step", "after"),
    [
        ("writing the batch ahead", False),
        ("ingest", False),
        ("committing the state", False),
        ("the commit", True),
    ],
)
def test_a_path_whose_batch_fails_at(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    check_fault(make_engine, tmp_path, undisturbed, monkeypatch, "path", step, after)


@pytest.mark.faults
@STREAMING
@pytest.mark.parametrize(
    ("step", "after"),
    [("writing the batch ahead", False), ("committing the state", False), ("the commit", True)],
)
def test_a_streaming_dataframe_whose_batch_fails_at(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    check_fault(make_engine, tmp_path, undisturbed, monkeypatch, "streaming", step, after)


def check_fault(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    step: str,
    after: bool,
) -> None:
    """A program whose batch fails at a step and that is started again has the same outcome."""
    program = Program(make_engine, tmp_path, source)
    fault = fault_at(monkeypatch, make_engine, STEPS[step], after)
    crash(program, program.start())
    assert fault.fired
    engine = program.start()
    program.run(engine)
    assert program.outcome(engine) == undisturbed


def test_the_same_engine_goes_on_with_a_feed_after_a_failure(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_engine(make_engine, tmp_path, undisturbed, monkeypatch, "feed")


@ON_BOTH
def test_the_same_engine_goes_on_with_a_path_after_a_failure(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_engine(make_engine, tmp_path, undisturbed, monkeypatch, "path")


@STREAMING
def test_the_same_engine_goes_on_with_a_streaming_dataframe(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_engine(make_engine, tmp_path, undisturbed, monkeypatch, "streaming")


def check_same_engine(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
) -> None:
    """An engine whose batch failed has the same outcome when it runs it again."""
    program = Program(make_engine, tmp_path, source)
    fault_at(monkeypatch, make_engine, STEPS["committing the state"], False)
    engine = program.start()
    crash(program, engine)
    program.run(engine)
    assert program.outcome(engine) == undisturbed


def test_a_batch_dataframe_is_read_when_the_first_try_failed(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(str(tmp_path))
    engine.stream("bids", make_engine.rows(bids_table((1, 1.0, "12:00"))), time="ts")
    query = engine.register(PER_MINUTE)
    Fault(monkeypatch, Store, "write", lambda store, name, data: name.startswith("log/"), False)
    with pytest.raises(Crash):
        engine.step()
    engine.drain()
    assert answers(query) == [("12:00", "12:01", 1)]


def test_a_pushed_batch_that_cannot_be_stored_stays_pushed(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack=None)
    query = engine.register(PER_MINUTE)
    feed.push(bids((1, 1.0, "12:00")))
    feed.punctuate(until=at("12:01"))
    feed.push(bids((1, 1.0, "12:05")))
    Fault(monkeypatch, Store, "write_table", lambda store, name, table: name.startswith("feeds/"), False)
    with pytest.raises(Crash):
        engine.step()
    assert engine.step() == 2
    assert answers(query) == [("12:00", "12:01", 1)] and accounted(engine)["rows"] == 2


# --- what is bound to a batch -----------------------------------------------------------------


def test_a_begun_batch_is_run_again_with_its_control_clock_and_number(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SettableClock(at("12:00"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack=None)
    text = "SELECT count(*) AS n, max(current_timestamp()) AS now FROM bids [RANGE 1 minute SLIDE 1 minute]"
    engine.register(text, name="q")
    feed.push(bids((1, 1.0, "12:00")))
    feed.punctuate(until=at("12:01"))
    with monkeypatch.context() as patch:
        Fault(patch, BatchLog, "commit", lambda *args: True, False)
        with pytest.raises(Crash):
            engine.step()
    clock.advance(minutes=30)
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack=None)
    assert set(engine.queries()) == {"q"}  # it joins with the batch that was begun
    engine.register(PER_SITE, name="later")
    feed.push(bids((2, 1.0, "12:00")))
    assert engine.step() == 2
    (row,) = engine.query("q").results().to_pylist()
    assert (row["n"], row["batch"], f"{row['now']:%H:%M}") == (1, 1, "12:00")
    # The row of batch 2 is late for the first query, and counts in the second's window of 12:00 to 12:02.
    assert accounted(engine) == {"rows": 2, "counted": 1, "unwanted": 0, "late": 1, "rejected": 0}


def test_a_table_is_joined_in_the_version_that_its_batch_was_begun_with(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = "[RANGE 1 minute SLIDE 1 minute]"
    text = f"SELECT city, count(*) AS n FROM bids {window} JOIN sites USING (site) GROUP BY city"
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", [{"site": 1, "city": "Portland"}])
    engine.register(text, name="q")
    feed.push(bids((1, 1.0, "12:00")))
    with monkeypatch.context() as patch:
        Fault(patch, BatchLog, "commit", lambda *args: True, False)
        with pytest.raises(Crash):
            engine.step()
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.table("sites", [{"site": 1, "city": "Salem"}])
    feed.push(bids((1, 1.0, "12:00:30")))
    engine.drain()
    assert answers(engine.query("q")) == [("12:00", "12:01", "Portland", 1), ("12:00", "12:01", "Salem", 1)]


def test_a_dropped_query_leaves_nothing_in_the_state(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = bids_engine(make_engine, tmp_path, slack="1 hour")
    engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site", name="large"
    )
    engine.register(PER_MINUTE, name="small")
    feed.push(bids(*((i, 1.0, "12:00") for i in range(20_000))))
    engine.step()
    before = engine.progress().state_bytes
    engine.query("large").drop()
    engine.step()
    assert engine.progress().state_bytes < before / 5
    again, _ = bids_engine(make_engine, tmp_path, slack="1 hour")
    assert set(again.queries()) == {"small"}
    again.drain()
    assert answers(again.query("small")) == [("12:00", "12:01", 20_000)]


# --- checkpoints that do not fit -------------------------------------------------------------


def committed(make_engine: EngineFactory, place: Path) -> None:
    engine, feed = bids_engine(make_engine, place)
    engine.register(PER_MINUTE, name="q")
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()


def test_a_stream_that_queries_of_the_checkpoint_read_has_to_be_declared(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    committed(make_engine, tmp_path)
    engine = make_engine(str(tmp_path / "checkpoint"))
    engine.feed("bits", BIDS, time="ts")
    with pytest.raises(transom.StateError, match=r"q.*bids"):
        engine.step()
    with pytest.raises(transom.StateError, match="bids"):
        engine.start()


def test_a_stream_of_a_begun_batch_has_to_be_declared(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    feed.push(bids((1, 1.0, "12:00")))
    with monkeypatch.context() as patch:
        Fault(patch, BatchLog, "commit", lambda *args: True, False)
        with pytest.raises(Crash):
            engine.step()
    with pytest.raises(transom.StateError, match="bids"):
        make_engine(str(tmp_path / "checkpoint")).step()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("state/0000000001.arrow", b"nonsense"),
        ("state/0000000001.arrow", b""),
        ("state/notes.arrow", b"another program's"),
        ("log/0000000002.json", b"{"),
        ("log/0000000002.json", json.dumps({"another": "program's"}).encode()),
    ],
    ids=[
        "a state of nonsense",
        "an empty state",
        "a foreign state",
        "half a log entry",
        "a foreign log entry",
    ],
)
def test_a_checkpoint_that_cannot_be_read_says_so(
    make_engine: EngineFactory, tmp_path: Path, file: str, content: bytes
) -> None:
    committed(make_engine, tmp_path)
    (tmp_path / "checkpoint" / file).write_bytes(content)
    if file == "state/0000000001.arrow":
        (tmp_path / "checkpoint" / "log" / "0000000001.json").unlink()  # its batch can't be replayed
    with pytest.raises(transom.StateError, match="checkpoint"):
        engine, _ = bids_engine(make_engine, tmp_path)
        engine.step()


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_damaged_first_state_is_replayed_from_the_log(
    make_engine: EngineFactory, tmp_path: Path, content: bytes
) -> None:
    committed(make_engine, tmp_path)
    (tmp_path / "checkpoint" / "state" / "0000000001.arrow").write_bytes(content)
    engine, _ = bids_engine(make_engine, tmp_path)
    engine.drain()
    assert answers(engine.query("q")) == [("12:00", "12:01", 1)] and accounted(engine)["rows"] == 1


def test_columns_of_other_types_than_the_checkpoints_are_refused(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = bids_engine(make_engine, tmp_path)
    engine.register(PER_SITE, name="q")
    feed.push(bids((1, 1.0, "12:00")))
    engine.step()
    engine, feed = bids_engine(make_engine, tmp_path, schema="site string, price double, ts timestamp")
    feed.push([("1", 1.0, at("12:00:30"))])
    with pytest.raises(transom.StateError, match=r"q have other types"):
        engine.step()


def test_a_checkpoint_of_the_other_strategy_is_refused(make_engine: EngineFactory, tmp_path: Path) -> None:
    committed(make_engine, tmp_path)
    with pytest.raises(transom.StateError, match="strategy"):
        engine, _ = bids_engine(make_engine, tmp_path, strategy="naive")
        engine.step()
