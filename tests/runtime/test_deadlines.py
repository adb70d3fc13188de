"""A batch that passes its deadline is cancelled; the query that is the cause is suspended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

import transom
from tests.engine_factory import EngineFactory
from transom.backends.local.backend import LocalBackend
from transom.backends.scalar_worker import MOST_MEMORY, ExpressionError, ScalarWorker
from transom.backends.spark.failures import failure_text, is_external_failure, is_fatal_failure
from transom.backends.time_limit import interrupting
from transom.elements import Adopt
from transom.errors import BatchError, DeadlineError
from transom.plan.limits import Limits
from transom.runtime import slice_tiers, slice_work
from transom.runtime.handles import Feed
from transom.runtime.row_history import RowHistory

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
ENDLESS = "RLIKE '(a+)+b'"
A_TEXT = "a" * 40


@pytest.mark.backends("local")
def test_a_pattern_that_never_ends_is_killed_and_its_query_suspended(make_engine: EngineFactory) -> None:
    engine = make_engine(batch_deadline="2 seconds")
    feed = engine.feed("s", "name string, ts timestamp", time="ts")
    good = engine.register(f"SELECT count(*) AS n FROM s {WINDOW} WHERE name LIKE '%a%'", "good")
    bad = engine.register(f"SELECT count(*) AS n FROM s {WINDOW} WHERE name {ENDLESS}", "bad")
    late = engine.register(f"SELECT max(name) {ENDLESS} AS n FROM s {WINDOW}", "late")
    for minute in range(3):
        feed.push([(A_TEXT, f"2013-01-01 12:0{minute}:00")])
        engine.step()
        if minute == 0:
            with pytest.raises(BatchError, match="deadline"):
                late.prod()
    assert good.results()["n"].to_pylist() == [1, 1]
    assert "longer than the deadline" in (bad.suspended or "")
    assert "longer than the deadline" in (late.suspended or "")
    assert good.suspended is None and engine.overdue is None
    engine.stop()


@pytest.mark.backends("local")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_pattern_that_never_ends_on_retained_rows_suspends_its_query(
    make_engine: EngineFactory, tmp_path: Path, restarted: bool
) -> None:
    def opened() -> tuple[transom.Engine, Feed]:
        engine = make_engine(tmp_path, batch_deadline="2 seconds")
        return engine, engine.feed("s", "name string, ts timestamp", time="ts", retain="1 day")

    engine, feed = opened()
    good = engine.register(f"SELECT count(*) AS n FROM s {WINDOW}", "good")
    for minute in range(3):
        feed.push([(A_TEXT, f"2013-01-01 12:0{minute}:00")])
        engine.step()
    past = f"SELECT count(*) AS n FROM s {WINDOW} WHERE name {ENDLESS} BACKFILL"
    bad = engine.register(past, "bad")
    if restarted:  # the batch in which the query takes part, as if its replay had ended
        engine._loop.control_batch()
        engine._loop.directory.push([Adopt("bad", engine._loop.directory.registry["bad"].since)])
        with engine._loop.directory.lock:
            engine._loop._begin(None, {}, ())
        engine.stop()
        engine, feed = opened()
        good, bad = engine.query("good"), engine.query("bad")
    engine.step()
    feed.push([("b", "2013-01-01 12:05:00")])
    engine.step()
    assert "its backfill failed: " in (bad.suspended or "") and "deadline" in (bad.suspended or "")
    assert good.suspended is None and good.results()["n"].to_pylist() == [1, 1, 1]


@pytest.mark.backends("local")
def test_a_pattern_that_never_ends_on_old_rows_has_no_sealed_slices(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slice_work, "FEWEST_ROWS", 1)
    monkeypatch.setattr(RowHistory, "waits_for_merge", lambda *_: set())
    monkeypatch.setattr(slice_work, "ROWS_PER_SLICE", 0)
    monkeypatch.setattr(slice_tiers, "ROWS_PER_SLICE", 0)
    engine = make_engine(batch_deadline="2 seconds")
    feed = engine.feed("s", "name string, ts timestamp", time="ts", retain="1 day")
    for minute in range(3):
        feed.push([(A_TEXT, f"2013-01-01 12:0{minute}:00")])
        engine.step(1)
    bad = engine.register(f"SELECT count(*) AS n FROM s {WINDOW} WHERE name {ENDLESS}", "bad")
    engine.register(f"SELECT count(*) AS n FROM s {WINDOW}", "good")
    engine.step()
    while engine._loop.tend_history():
        pass
    assert engine._loop.history.slices.rows("s") == 3, "the good query has slices of all rows"
    assert bad.suspended is None
    assert caplog.text.count("not added up to sealed slices") == 1


def test_the_past_of_a_query_has_a_limit(make_engine: EngineFactory) -> None:
    engine = make_engine(limits=Limits(backfill_results=100))
    feed = engine.feed("s", "name string, ts timestamp", time="ts", retain="1 day")
    feed.push([("a", "2013-01-01 12:00:00")])
    engine.step()
    feed.push([("a", "2013-01-01 13:00:00")])
    engine.step()
    few = engine.register("SELECT count(*) AS n FROM s [RANGE 100 seconds SLIDE 1 second] BACKFILL", "few")
    many = engine.register("SELECT count(*) AS n FROM s [RANGE 101 seconds SLIDE 1 second] BACKFILL", "many")
    engine.step()
    assert few.suspended is None and few.results().num_rows == 100
    assert "more than 100 results" in (many.suspended or "") and "backfill_results" in (many.suspended or "")


def test_the_batch_thread_is_interrupted_where_it_does_not_wait_for_the_worker() -> None:
    started = time.monotonic()
    with pytest.raises(DeadlineError, match=r"deadline of 0.2 s"), interrupting(0.2, grace=0):
        while True:
            sum(range(1000))
    assert time.monotonic() - started < 5
    with interrupting(5):
        pass


def test_a_block_that_catches_the_exception_is_interrupted_again() -> None:
    caught = 0
    with pytest.raises(DeadlineError, match=r"deadline of 0.1 s"), interrupting(0.1, grace=0, again=0.1):
        while True:
            try:
                while True:
                    sum(range(1000))
            except DeadlineError:
                caught += 1
                if caught == 2:
                    raise
    assert caught == 2


def test_a_function_that_never_returns_is_interrupted_and_its_query_suspended(
    make_engine: EngineFactory,
) -> None:
    def endless(value: int) -> int:
        while value:
            value += 1
        return value

    engine = make_engine(batch_deadline="1 second")
    engine.udf("endless", endless, "int")
    feed = engine.feed("s", "v int, ts timestamp", time="ts")
    good = engine.register(f"SELECT sum(v) AS n FROM s {WINDOW}", "good")
    bad = engine.register(f"SELECT sum(endless(v)) AS n FROM s {WINDOW}", "bad")
    for minute in range(3):
        feed.push([(minute, f"2013-01-01 12:0{minute}:0{second}") for second in range(9)])
        engine.step()
    assert good.results()["n"].to_pylist() == [0, 9] and good.suspended is None
    assert "longer than the deadline of 1 s" in (bad.suspended or "")


@pytest.fixture
def worker() -> Iterator[ScalarWorker]:
    worker = ScalarWorker()
    yield worker
    worker.stop()


def test_a_worker_starts_below_a_lower_limit_of_memory() -> None:
    limit = MOST_MEMORY // 2
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n"
        "from transom.backends.scalar_worker import limit_memory; limit_memory()\n"
        "print(*resource.getrlimit(resource.RLIMIT_AS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(limit)] * 2


def test_a_worker_that_fails_or_dies_is_replaced(worker: ScalarWorker) -> None:
    import pyarrow as pa

    table, soon = pa.table({"name": [A_TEXT]}), time.monotonic() + 60
    assert worker.project(table, {"x": "concat(name, 'b')"}, soon)["x"].to_pylist() == [A_TEXT + "b"]
    with pytest.raises(ExpressionError, match="unterminated"):
        worker.project(table, {"x": "name RLIKE concat('(', name)"}, soon)
    assert worker._process is not None
    worker._process.kill()
    with pytest.raises(ExpressionError, match="ended the worker process"):
        worker._process.wait()
        worker._process.poll = lambda: None  # type: ignore[method-assign]  # it dies just now
        worker.project(table, {"x": "name LIKE '%a'"}, soon)
    assert worker.project(table, {"x": "name LIKE '%a'"}, soon)["x"].to_pylist() == [True]


def test_an_overdue_batch_is_reported(make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(batch_deadline="2 seconds")
    feed = engine.feed("s", "name string, ts timestamp", time="ts")
    query = engine.register(f"SELECT count(*) AS n FROM s {WINDOW}")
    overdue: list[float | None] = []

    def slow(results: object) -> None:
        overdue.append(engine.overdue)
        later = time.monotonic() + 61
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: later)
            overdue.append(engine.overdue)

    query.subscribe(slow)
    feed.push([("a", "2013-01-01 12:00:00"), ("a", "2013-01-01 12:01:00")])
    engine.step()
    assert overdue == [None, pytest.approx(59, abs=5)] and engine.overdue is None
    with pytest.raises(transom.SettingError):
        make_engine(batch_deadline="soon")


def test_a_cancelled_job_is_a_missed_deadline_whatever_it_failed_with() -> None:
    try:
        try:
            raise OSError("Job 2 cancelled part of cancelled job group")
        except OSError as error:
            raise DeadlineError("it takes longer than the deadline of 8 s") from error
    except DeadlineError as error:
        assert failure_text(error) == "it takes longer than the deadline of 8 s"
        assert not is_external_failure(error) and not LocalBackend().is_external(error)


def test_the_end_of_the_jvm_is_fatal_and_said_in_one_line() -> None:
    try:
        try:
            raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError as error:
            raise Py4JError("An error occurred while calling o42.collect") from error
    except Py4JError as error:
        assert is_fatal_failure(error) and is_external_failure(error)
        assert failure_text(error).startswith("Spark's JVM does not answer any more: it has ended")
    assert not is_fatal_failure(ValueError("a query's own failure"))


def test_a_worker_that_ended_is_a_failure_of_an_expression_whatever_the_connection_says() -> None:
    try:
        try:
            raise ConnectionResetError("by peer")
        except ConnectionResetError:
            raise ExpressionError("evaluating its expressions ended the worker process") from None
    except ExpressionError as error:
        assert not LocalBackend().is_external(error) and not is_external_failure(error)


@pytest.mark.backends("spark", reason="its jobs are cancelled")
def test_a_job_that_takes_too_long_is_cancelled_and_its_query_suspended(make_engine: EngineFactory) -> None:
    engine = make_engine(batch_deadline="10 minutes")
    engine.udf("slow", lambda value: time.sleep(600), "int")
    feed = engine.feed("s", "v int, ts timestamp", time="ts")
    good = engine.register(f"SELECT sum(v) AS n FROM s {WINDOW}", "good")
    seconds = []
    for minute in range(4):
        started = time.monotonic()
        if minute == 2:
            bad = engine.register(f"SELECT sum(slow(v)) AS n FROM s {WINDOW}", "bad")
            deadline = engine._loop.deadline = max(3.0, 4 * seconds[-1])
        feed.push([(minute, f"2013-01-01 12:0{minute}:00")])
        engine.step()
        seconds.append(time.monotonic() - started)
    assert "longer than the deadline" in (bad.suspended or "") and good.suspended is None
    assert good.results()["n"].to_pylist() == [0, 1, 2]
    assert seconds[2] < deadline + 60
