"""A query that makes a batch fail is suspended, and the batch is completed without it."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.engine_factory import EngineFactory
from tests.runtime import deadly_query
from tests.runtime.engine_helpers import answers
from transom.backends.local.backend import LocalBackend
from transom.elements import Drop, Register
from transom.errors import BatchError, DeadlineError, StateError
from transom.runtime.begun_batch import BegunBatch, ProcessEndedError
from transom.runtime.declarations import Declared
from transom.runtime.engine import Engine
from transom.runtime.handles import Feed
from transom.runtime.ingest import Ingest
from transom.runtime.quarantine import Quarantine
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import Registry
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent
from transom.storage.file_store import Store

ROOT = Path(__file__).parents[2]
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
PLAIN = f"SELECT count(*) AS n FROM s {WINDOW}"
BAD = "name RLIKE concat('(', name)"  # an open parenthesis: no regular expression

ON_BOTH = pytest.mark.backends("local", "spark")


# --- the search -----------------------------------------------------------------------------------


class Runs:
    """A batch of numbered queries of which some fail; counts how often it runs."""

    def __init__(self, size: int, culprits: set[int], is_external: bool = False):
        self.living, self.culprits = [str(i) for i in range(size)], {str(i) for i in culprits}
        self.count, self.is_external = 0, is_external

    def attempt(self, without: Mapping[str, str], in_search: bool = False) -> list[str]:
        self.count += 1
        left = [name for name in self.living if name not in without]
        if bad := self.culprits.intersection(left):
            raise ValueError(f"because of {min(bad)}")
        return left

    def suspend(self, name: str, reason: str) -> None:
        self.living.remove(name)

    def run(self) -> list[str]:
        return Quarantine(
            lambda: self.living, self.attempt, self.suspend, str, lambda error: self.is_external
        ).run()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 100, 1000])
def test_one_culprit_costs_a_logarithmic_number_of_reruns(size: int) -> None:
    for culprit in {0, size // 3, size // 2, size - 1}:
        batch = Runs(size, {culprit})
        assert batch.run() == [str(i) for i in range(size) if i != culprit]
        assert batch.count <= math.ceil(math.log2(size)) + 5, culprit


def test_the_newest_query_is_tried_first() -> None:
    batch = Runs(1000, {999})
    assert len(batch.run()) == 999
    assert batch.count == 3  # the batch, the batch once more, and without the newest


def test_several_culprits_are_found_one_after_the_other() -> None:
    batch = Runs(64, {0, 5, 6, 40, 63})
    assert batch.run() == [str(i) for i in range(64) if i not in {0, 5, 6, 40, 63}]
    assert batch.count <= 5 * (math.log2(64) + 2)


def test_all_may_be_culprits() -> None:
    assert Runs(5, set(range(5))).run() == []


def test_a_failure_without_any_query_is_raised() -> None:
    def attempt(without: Mapping[str, str], in_search: bool) -> None:
        raise ValueError("the source is broken")

    suspended: list[str] = []
    quarantine = Quarantine(
        lambda: ["a", "b"], attempt, lambda name, _: suspended.append(name), str, lambda _: False
    )
    with pytest.raises(ValueError, match="source is broken"):
        quarantine.run()
    assert suspended == []


def test_a_failure_that_passes_by_itself_has_no_culprit() -> None:
    runs = 0

    def attempt(without: Mapping[str, str], in_search: bool) -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("once")
        return runs

    suspended: list[str] = []
    quarantine = Quarantine(
        lambda: ["a"], attempt, lambda name, _: suspended.append(name), str, lambda _: False
    )
    assert quarantine.run() == 2 and suspended == []


def test_an_external_failure_is_raised_at_once() -> None:
    batch = Runs(10, {3}, is_external=True)
    with pytest.raises(ValueError, match="because of 3"):
        batch.run()
    assert batch.count == 1 and len(batch.living) == 10


# --- where a query can fail -----------------------------------------------------------------------


def engine_and_feed(make_engine: EngineFactory, path: Path | None, **options: object) -> tuple[Engine, Feed]:
    engine = make_engine(None if path is None else str(path), **options)
    return engine, engine.feed("s", "name string, v int, ts timestamp", time="ts")


def rows(minute: int, name: str | None = "a") -> list[tuple[str | None, int, str]]:
    return [(name, 1, f"2013-01-01 12:{minute:02d}:00")]


HOSTILE = {
    "WHERE": f"SELECT count(*) AS n FROM s {WINDOW} WHERE {BAD}",
    "an aggregate": f"SELECT sum(CASE WHEN {BAD} THEN 1 ELSE 0 END) AS n FROM s {WINDOW}",
    "FILTER": f"SELECT count(*) FILTER (WHERE {BAD}) AS n FROM s {WINDOW}",
    "GROUP BY": f"SELECT b, count(*) AS n FROM s {WINDOW} GROUP BY {BAD} AS b",
    "the SELECT list": f"SELECT max(name) RLIKE concat('(', max(name)) AS n FROM s {WINDOW}",
    "HAVING": f"SELECT count(*) AS n FROM s {WINDOW} HAVING max(name) RLIKE concat('(', max(name))",
    "an on-demand query": f"SELECT count(*) AS n FROM s [RANGE 1 minute] WHERE {BAD}",
}
HOSTILE["GROUP BY"] = f"SELECT {BAD} AS b, count(*) AS n FROM s {WINDOW} GROUP BY {BAD}"


@ON_BOTH
@pytest.mark.parametrize("where", HOSTILE)
def test_a_query_that_fails_is_suspended_and_the_others_go_on(make_engine: EngineFactory, where: str) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    before = engine.register(PLAIN, "before")
    bad = engine.register(HOSTILE[where], "bad")
    after = engine.register(f"SELECT sum(v) AS n FROM s {WINDOW}", "after")
    for minute in range(3):
        feed.push(rows(minute))
        engine.step()
    engine.drain()
    expected = [(f"12:{i:02d}", f"12:{i + 1:02d}", 1) for i in range(3)]
    assert answers(before) == answers(after) == expected
    assert bad.suspended is not None and "failed because of it" in bad.suspended
    assert "\n" not in bad.suspended and len(bad.suspended) < 400
    assert before.suspended is None and after.suspended is None
    assert dict(engine.progress().suspended) == {"bad": bad.suspended}


def test_a_query_over_results_that_fails_leaves_the_inner_query_alone(make_engine: EngineFactory) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    inner = engine.register(f"SELECT max(name) AS name, count(*) AS n FROM s {WINDOW}", "first_level")
    outer = engine.register(
        "SELECT count(*) AS n FROM first_level [RANGE 2 minutes SLIDE 2 minutes] WHERE " + BAD, "outer"
    )
    for minute in range(4):
        feed.push(rows(minute))
        engine.step()
    assert inner.suspended is None and outer.suspended is not None
    assert inner.results().num_rows == 3


def test_a_preference_query_that_fails_leaves_its_summary_alone(make_engine: EngineFactory) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    engine.execute("CREATE SUMMARY names ON s(name) WITH GRANULARITY '1 minute'")
    prefers = "WITH PREFERENCE desc SUMMARY.Estimate.Count(name)"
    bad = engine.register(f"SELECT v FROM s WHERE {BAD} {prefers}", "bad")
    good = engine.register(f"SELECT v FROM s {prefers}", "good")
    feed.push(rows(0))
    engine.step()
    assert bad.suspended is not None and good.suspended is None and good.results().num_rows == 1


def test_a_summary_that_fails_is_suspended_with_the_queries_that_read_it(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    plain = engine.register(PLAIN, "plain")
    feed.push(rows(0))
    engine.step()
    engine.execute("CREATE SUMMARY names ON s(name) WITH GRANULARITY '1 minute'")
    guided = engine.register("SELECT v FROM s WITH PREFERENCE desc SUMMARY.Estimate.Count(name)", "guided")

    def arrive(*args: object) -> None:
        raise MemoryError("too many cells")

    other = engine.register("SELECT name FROM s WITH PREFERENCE desc SUMMARY.Estimate.Count(name)", "other")
    with monkeypatch.context() as patch:
        patch.setattr("transom.promising.execution._driver_arrival", arrive)
        feed.push(rows(1))
        engine.step()
    assert guided.suspended == "the summary names is suspended" and plain.suspended is None
    assert "too many cells" in (engine.summaries()["names"].suspended or "")
    feed.push(rows(2))
    engine.step()
    assert plain.results().num_rows == 2 and guided.results().num_rows == 0
    guided.resume()  # and its summary with it
    feed.push(rows(3))
    engine.step()
    assert guided.suspended is None and other.suspended is None
    assert engine.summaries()["names"].suspended is None
    feed.push(rows(4))
    engine.step()
    assert guided.results().num_rows == other.results().num_rows == 2


def test_a_failing_query_is_left_out_of_a_prod_and_raises_if_it_is_prodded_alone(
    make_engine: EngineFactory,
) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    bad = engine.register(HOSTILE["the SELECT list"], "bad")
    engine.register(PLAIN, "good")
    feed.push(rows(0))
    engine.step()
    assert bad.suspended is None  # no window has closed so far
    assert list(engine.prod("s")) == ["good"]
    with pytest.raises(BatchError, match="the prod failed: missing"):
        bad.prod()
    assert bad.suspended is None


# --- replay, drop and resume ----------------------------------------------------------------------


def test_a_batch_that_failed_before_a_restart_is_completed_after_it(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, tmp_path)
    engine.register(PLAIN, "good")
    engine.register(HOSTILE["WHERE"], "bad")
    feed.push(rows(0))
    with monkeypatch.context() as patch:  # the process dies while it looks for the culprit
        patch.setattr(Quarantine, "run", lambda self: self.attempt({}, False))
        with pytest.raises(BatchError):
            engine.step()
    engine.stop()
    again, feed = engine_and_feed(make_engine, tmp_path)
    again.step()
    feed.push(rows(1))
    again.step()
    assert again.query("bad").suspended is not None
    assert answers(again.query("good")) == [("12:00", "12:01", 1)]


def test_a_replay_suspends_what_the_first_run_had_suspended(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, tmp_path)
    engine.register(PLAIN, "good")
    engine.register(HOSTILE["WHERE"], "bad")
    feed.push(rows(0))
    real = Store.write

    def write(store: Store, name: str, *rest: object) -> None:
        if name.startswith("state/"):
            raise OSError(28, "No space left on device")
        real(store, name, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", write)
        with pytest.raises(OSError, match="No space left"):
            engine.step()
    intent = BatchLog(Store(tmp_path)).intent(engine.progress().batch_id + 1)
    assert intent is not None and list(intent.suspended) == ["bad"]
    engine.stop()
    again, feed = engine_and_feed(make_engine, tmp_path)
    runs: list[object] = []
    process: Callable[..., object] = Ingest.process
    monkeypatch.setattr(Ingest, "process", lambda *args: runs.append(args) or process(*args))
    again.step()
    assert len(runs) == 1 and again.query("bad").suspended == intent.suspended["bad"]


def test_a_drop_takes_effect_on_a_batch_that_was_begun(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, tmp_path)
    good = engine.register(PLAIN, "good")
    bad = engine.register(HOSTILE["WHERE"], "bad")
    feed.push(rows(0))
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "run", lambda self: self.attempt({}, False))
        with pytest.raises(BatchError):
            engine.step()
        bad.drop()
        engine.step()  # no quarantine: the query is gone
    assert list(engine.queries()) == ["good"]
    feed.push(rows(1))
    engine.step()
    assert answers(good) == [("12:00", "12:01", 1)]


def test_a_drop_behind_a_registration_of_its_name_waits(tmp_path: Path) -> None:
    directory = QueryDirectory(Declared(LocalBackend(), Store(tmp_path)), Registry(), None)
    directory.push([Drop("old"), Register("new", PLAIN), Drop("new")])
    assert directory.take_drops() == [Drop("old")]
    assert directory.waiting.control == [Register("new", PLAIN), Drop("new")]


@ON_BOTH
def test_a_suspended_query_is_resumed_and_joins_like_a_new_one(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = engine_and_feed(make_engine, tmp_path)
    picky = engine.register(HOSTILE["an aggregate"], "picky")
    plain = engine.register(PLAIN, "plain")
    with pytest.raises(StateError, match="not suspended"):
        picky.resume()
    feed.push(rows(0, "a)"))  # with this name the expression is fine
    engine.step()
    feed.push(rows(1))
    engine.step()
    assert picky.suspended is not None
    picky.resume()
    feed.push(rows(2, "a)"))
    engine.step()
    assert picky.suspended is None
    feed.push(rows(4, "a)"))
    engine.step()
    engine.drain()
    assert answers(picky) == [("12:02", "12:03", 1), ("12:04", "12:05", 1)]
    assert len(answers(plain)) == 4


def test_a_failure_of_the_disk_stops_the_engine_and_suspends_nothing(
    make_engine: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, None)
    query = engine.register(PLAIN)
    feed.push(rows(0))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Ingest, "process", full)
        with pytest.raises(BatchError, match=r"batch 1 of s failed.*No space left on device"):
            engine.step()
    assert query.suspended is None
    engine.step()
    feed.push(rows(1))
    engine.step()
    assert answers(query) == [("12:00", "12:01", 1)]


class LateRuns(Runs):
    """A batch of numbered queries that misses its deadline with a culprit in it, and when the machine is busy."""

    def __init__(self, size: int, culprits: set[int], busy_in: Callable[[int, int], bool]):
        super().__init__(size, culprits)
        self.busy_in = busy_in  # by the number of the attempt, and of queries in it
        self.full_deadlines = 0

    def attempt(self, without: Mapping[str, str], in_search: bool = False) -> list[str]:
        self.full_deadlines += not in_search
        if self.busy_in(self.count + 1, len(self.living) - len(without)):
            self.count += 1
            raise DeadlineError("the machine is busy")
        try:
            return super().attempt(without)
        except ValueError as error:
            raise DeadlineError(str(error)) from error

    def run(self) -> list[str]:
        def is_late(error: Exception) -> bool:
            return isinstance(error, DeadlineError)

        return Quarantine(
            lambda: self.living, self.attempt, self.suspend, str, lambda error: False, is_late
        ).run()


@pytest.mark.parametrize("busy", [1, 3, 4, 5])  # after exactly two late attempts, the newest query is accused
def test_a_busy_machine_accuses_no_query(busy: int) -> None:
    batch = LateRuns(8, set(), lambda count, queries: count <= busy and queries > 0)
    assert len(batch.run()) == 8 and len(batch.living) == 8


@pytest.mark.parametrize("culprit", [0, 5, 7])
@pytest.mark.parametrize("busy", range(1, 12))
def test_a_machine_that_is_busy_once_hides_no_culprit(culprit: int, busy: int) -> None:
    batch = LateRuns(8, {culprit}, lambda count, queries: count == busy)
    assert batch.run() == [str(i) for i in range(8) if i != culprit]


def test_a_culprit_that_is_the_newest_query_costs_one_whole_deadline() -> None:
    batch = LateRuns(8, {7}, lambda count, queries: False)
    assert len(batch.run()) == 7 and batch.full_deadlines == 1


def test_a_machine_that_is_always_too_slow_fails_the_batch_and_accuses_no_query() -> None:
    batch = LateRuns(8, set(), lambda count, queries: True)
    with pytest.raises(DeadlineError, match="busy"):
        batch.run()
    assert len(batch.living) == 8
    batch = LateRuns(8, set(), lambda count, queries: queries == 8)  # a bit too slow for all of them
    assert len(batch.run()) == 7


# --- queries that end the process -----------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [pytest.param(2, marks=pytest.mark.faults), deadly_query.QUERIES - 1],
    ids=["an old query", "the newest"],
)
def test_a_process_that_is_restarted_gets_past_a_query_that_ends_it(tmp_path: Path, place: int) -> None:
    alone = deadly_query.run(str(tmp_path / "alone"), -1)
    command = [sys.executable, "-m", "tests.runtime.deadly_query", str(tmp_path / "disturbed"), str(place)]
    for deaths in range(20):  # noqa: B007  # read after the loop
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    disturbed = json.loads(done.stdout)
    assert deaths <= deadly_query.PROCESS_ENDS + math.log2(deadly_query.QUERIES) + 2
    culprit = f"q{place}"
    assert disturbed["suspended"] == {
        culprit: "batch 3 failed because of it: the process ended while the batch ran"
    }
    answers = {name: found for name, found in disturbed["answers"].items() if name != culprit}
    assert answers == {name: found for name, found in alone["answers"].items() if name != culprit}


def begun_batch(tmp_path: Path, **changes: object) -> BegunBatch:
    log = BatchLog(Store(str(tmp_path)))
    intent = log.intent(1) or BatchIntent(1, 0)
    declared = Declared(LocalBackend(), log.store)
    directory = QueryDirectory(declared, Registry(), intent)
    given = {
        "is_replay": True,
        "is_fatal": lambda error: isinstance(error, EOFError),
        "most_ends": 8,
    } | changes
    return BegunBatch(intent, log, directory, **given)  # type: ignore[arg-type]


def test_an_attempt_that_ends_is_no_death(tmp_path: Path) -> None:
    fresh = begun_batch(tmp_path, is_replay=False)
    with pytest.raises(KeyboardInterrupt), fresh.attempt(()):
        raise KeyboardInterrupt
    again = begun_batch(tmp_path)
    with again.attempt(()):
        pass
    with pytest.raises(ValueError, match="wrong"), again.attempt(["q"]):
        raise ValueError("wrong")
    with begun_batch(tmp_path).attempt(["q"]):
        pass


def test_processes_that_are_killed_from_outside_accuse_no_query(tmp_path: Path) -> None:
    killed: list[AbstractContextManager[None]] = []  # attempts that are never left

    def kill(excluded: Sequence[str]) -> None:
        killed.append(begun_batch(tmp_path).attempt(excluded))
        killed[-1].__enter__()

    for _ in range(7):  # with the process that began the batch, 8 have ended
        kill(())
    with pytest.raises(ProcessEndedError), begun_batch(tmp_path).attempt(()):
        pass
    kill(["q"])
    with pytest.raises(ProcessEndedError), begun_batch(tmp_path).attempt(["q"]):
        pass
    begun_batch(tmp_path).forget_attempts()
    with begun_batch(tmp_path).attempt(()):
        pass


@pytest.mark.parametrize(
    ("excluded", "ends"), [((), 9), (("q",), 8)], ids=["the batch as it is", "without a query"]
)
def test_an_attempt_that_accuses_a_query_has_ended_many_processes_in_a_row(
    tmp_path: Path, excluded: tuple[str, ...], ends: int
) -> None:
    killed: list[AbstractContextManager[None]] = []  # attempts that are never left

    def kill(times: int) -> None:
        for _ in range(times):
            killed.append(begun_batch(tmp_path).attempt(excluded, confirms=True))
            killed[-1].__enter__()

    kill(ends - 1 - (not excluded))  # the process that began the batch has ended in it as it is
    with pytest.raises(ValueError, match="wrong"), begun_batch(tmp_path).attempt(excluded, confirms=True):
        raise ValueError("wrong")  # no process ends in it: the count begins again
    kill(ends - 1)
    with pytest.raises(OSError, match="full"):
        batch = begun_batch(tmp_path, is_external=lambda error: isinstance(error, OSError))
        with batch.attempt(excluded, confirms=True):
            raise OSError("the disk is full")  # which says nothing about queries
    kill(1)
    with pytest.raises(ProcessEndedError), begun_batch(tmp_path).attempt(excluded, confirms=True):
        pass


def test_two_ends_of_the_backend_are_enough(tmp_path: Path) -> None:
    fresh = begun_batch(tmp_path, is_replay=False)
    with pytest.raises(EOFError), fresh.attempt(()):
        raise EOFError
    with pytest.raises(EOFError), begun_batch(tmp_path).attempt(()):
        raise EOFError
    with pytest.raises(ProcessEndedError), begun_batch(tmp_path).attempt(()):
        pass


def test_a_batch_that_no_query_is_to_blame_for_is_tried_again_by_the_next_process(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = engine_and_feed(make_engine, tmp_path)
    engine.register(PLAIN, "good")
    feed.push(rows(0))

    class Death(BaseException):
        """Ends an attempt without a trace, like the end of the process."""

    def die(*args: object) -> None:
        raise Death

    monkeypatch.setattr(LocalBackend, "is_fatal", lambda self, error: isinstance(error, Death))
    with monkeypatch.context() as patch:
        patch.setattr(Ingest, "process", die)
        for _ in range(4):  # twice as it is, and twice without any query
            with pytest.raises(Death):
                engine.step()
            engine.stop()
            engine, feed = engine_and_feed(make_engine, tmp_path)
        with pytest.raises(BatchError, match="batch 1 of s failed: the process ended"):
            engine.step()
        engine.stop()
    engine, feed = engine_and_feed(make_engine, tmp_path)
    engine.step()
    assert engine.query("good").suspended is None and engine.progress().batch_id == 1
