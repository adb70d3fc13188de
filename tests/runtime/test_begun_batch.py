"""Processes that end in a batch: a query that ends them is found, and kills from outside accuse no query."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.engine_factory import EngineFactory
from transom.backends.local.backend import LocalBackend
from transom.plan.limits import Limits
from transom.runtime.begun_batch import BegunBatch, ProcessEndedError
from transom.runtime.declarations import Declared
from transom.runtime.ingest import Ingest
from transom.runtime.quarantine import Quarantine
from transom.runtime.query_directory import QueryDirectory
from transom.runtime.registry import Registry
from transom.runtime.write_ahead_log import BatchLog
from transom.state.batch_intent import BatchIntent
from transom.storage.file_store import Store

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
RAISING = f"SELECT count(*) AS n FROM s {WINDOW} WHERE name RLIKE concat('(', name)"


# --- the search alone ---------------------------------------------------------------------------------


ENDS = Limits().process_ends


class ProcessEnd(BaseException):
    """Ends a process without a trace: nothing that it writes afterwards reaches the checkpoint."""


class MemoryLog(BatchLog):
    """Holds the last intent as it would be read after a restart, without a file."""

    def __init__(self) -> None:
        self.last_intent = BatchIntent(1, 0)

    def begin(self, intent: BatchIntent) -> None:
        self.last_intent = BatchIntent.from_json(intent.to_json())


class Search:
    """A batch of numbered queries, searched by one process after the other; culprits raise, or end the process.

    `is_killed` says for each attempt, numbered over all processes from 1, whether its process is killed from outside.
    """

    def __init__(
        self,
        size: int,
        deadly: Collection[int] = (),
        raising: Collection[int] = (),
        is_killed: Callable[[int], bool] = lambda attempt: False,
        most_ends: int = ENDS,
    ):
        self.log, self.most_ends = MemoryLog(), most_ends
        self.directory = QueryDirectory(Declared(LocalBackend(), Store("unused")), Registry(), None)
        self.names = [str(i) for i in range(size)]
        self.deadly, self.raising = {str(i) for i in deadly}, {str(i) for i in raising}
        self.is_killed = is_killed
        self.attempts = self.processes = 0
        self.unfinished: list[AbstractContextManager[None]] = []  # attempts that are never left

    def suspended(self) -> list[str]:
        """Start processes until one gets past the batch: the suspended queries."""
        while True:
            self.processes += 1
            begun = BegunBatch(
                self.log.last_intent,
                self.log,
                self.directory,
                is_replay=self.processes > 1,
                is_fatal=lambda error: False,
                most_ends=self.most_ends,
            )
            with suppress(ProcessEnd):
                self._quarantine(begun).run()
                return sorted(begun.intent.suspended, key=int)

    def _quarantine(self, begun: BegunBatch) -> Quarantine[None]:
        def attempt(excluded: Mapping[str, str], in_search: bool, confirms: bool = False) -> None:
            running = begun.attempt(excluded, confirms)
            running.__enter__()
            self.attempts += 1
            left = {name for name in self.names if name not in begun.without(excluded).suspended}
            if self.is_killed(self.attempts) or left & self.deadly:
                self.unfinished.append(running)
                raise ProcessEnd
            error = ValueError("because of it") if left & self.raising else None
            if error is None:
                running.__exit__(None, None, None)
            elif not running.__exit__(ValueError, error, None):
                raise error

        def candidates() -> Sequence[str]:
            return [name for name in self.names if name not in begun.intent.suspended]

        return Quarantine(
            candidates,
            attempt,
            begun.suspend,
            str,
            lambda error: False,
            is_ended=lambda error: isinstance(error, ProcessEndedError),
            confirm=lambda excluded, in_search: attempt(excluded, in_search, True),
        )


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100, 1000])
def test_a_query_that_ends_processes_is_found_within_a_logarithmic_number_of_restarts(size: int) -> None:
    for culprit in {0, size // 3, size // 2, max(size - 2, 0), size - 1}:
        search = Search(size, deadly=[culprit])
        assert search.suspended() == [str(culprit)]
        assert search.processes - 1 <= 2 * ENDS + math.ceil(math.log2(size)), culprit


def test_the_newest_query_is_found_after_one_restart_more() -> None:
    search = Search(100, deadly=[99])
    assert search.suspended() == ["99"] and search.processes - 1 == ENDS + 1


@pytest.mark.parametrize(
    ("deadly", "raising"), [({1, 5}, {3}), ({6}, {0, 7}), ({0, 7}, {1}), ({3, 4}, set())]
)
def test_queries_that_end_processes_and_queries_that_raise_are_found_in_one_batch(
    deadly: set[int], raising: set[int]
) -> None:
    search = Search(8, deadly, raising)
    assert search.suspended() == [str(i) for i in sorted(deadly | raising)]
    assert search.processes - 1 <= len(deadly | raising) * (2 * ENDS + 3)


@pytest.mark.parametrize("kind", ["deadly", "raising"])
@pytest.mark.parametrize("culprit", [0, 3, 6, 7])
def test_two_kills_in_the_middle_of_a_search_accuse_no_other_query(culprit: int, kind: str) -> None:
    for first in range(1, 25):
        for second in range(first, 25):
            kills = {first, second}
            search = Search(8, is_killed=kills.__contains__, most_ends=3, **{kind: [culprit]})
            assert search.suspended() == [str(culprit)], kills


@pytest.mark.parametrize("kind", ["deadly", "raising"])
@pytest.mark.parametrize(("size", "culprit"), [(1, 0), (2, 0), (2, 1)])
def test_a_kill_in_a_search_among_few_queries_does_not_stop_the_engine(
    size: int, culprit: int, kind: str
) -> None:
    for kill in range(1, 15):
        search = Search(size, is_killed=lambda attempt, kill=kill: attempt == kill, **{kind: [culprit]})
        assert search.suspended() == [str(culprit)], kill


@pytest.mark.parametrize("kind", ["deadly", "raising"])
def test_random_kills_accuse_no_other_query(kind: str, seed: int) -> None:
    draw = Random(seed)
    for number in range(40):
        culprit, rate = draw.randrange(8), draw.uniform(0.05, 0.2)
        kills = {attempt for attempt in range(2_000) if draw.random() < rate}
        search = Search(8, is_killed=kills.__contains__, **{kind: [culprit]})
        assert search.suspended() == [str(culprit)], (number, culprit, rate)


@pytest.mark.parametrize("kills", range(3, 30))
def test_any_number_of_kills_in_a_row_accuses_no_query(kills: int) -> None:
    search = Search(8, is_killed=lambda attempt: attempt <= kills)
    try:
        assert search.suspended() == []
    except ProcessEndedError:  # also without any query: the engine stops with an error
        assert kills > 2 * ENDS and not search.log.last_intent.suspended


# --- engines ------------------------------------------------------------------------------------------


class Processes:
    """Engines on one checkpoint, one after the other, each in a process that may end while it attempts the batch.

    The attempts are numbered over all processes, from 1. In the `kills` among them a process is killed from outside;
    an attempt with the query `deadly` ends its process, too. The query `raising` fails with an exception.
    """

    def __init__(self, make_engine: EngineFactory, place: Path, monkeypatch: pytest.MonkeyPatch):
        self.make_engine, self.place = make_engine, place
        self.kills: Collection[int] = ()
        self.attempts, self.ends, self.has_ended = 0, 0, False
        process, write, delete = Ingest.process, Store.write, Store.delete

        def attempt(*args: Any) -> object:
            self.attempts += 1
            registry = next(arg for arg in args if isinstance(arg, Registry))
            if self.attempts in self.kills or "deadly" in registry.members():
                self.has_ended = True
                raise ProcessEnd
            return process(*args)

        def unless_ended(change: Callable[..., None]) -> Callable[..., None]:
            return lambda *args: None if self.has_ended else change(*args)

        monkeypatch.setattr(Ingest, "process", attempt)
        monkeypatch.setattr(Store, "write", unless_ended(write))
        monkeypatch.setattr(Store, "delete", unless_ended(delete))

    def suspended(
        self, queries: Collection[str], kills: Collection[int] = (), **options: Any
    ) -> dict[str, str]:
        """Run processes until one gets past the batch: the suspended queries, and why they are."""
        self.kills, self.attempts, self.ends = kills, 0, 0
        engine, feed = self._process(options)
        for place, name in enumerate(queries):
            text = f"SELECT sum(v + {place}) AS n FROM s {WINDOW}"
            engine.register(RAISING if name == "raising" else text, name)
        feed.push([("a", 1, "2013-01-01 12:00:00")])
        while True:
            try:
                engine.step()
                break
            except ProcessEnd:
                self.ends += 1
                engine.stop()
                self.has_ended = False
                engine, _ = self._process(options)
        assert engine.progress().batch_id == 1
        suspended = dict(engine.progress().suspended)
        engine.stop()
        return suspended

    def _process(self, options: dict[str, Any]) -> tuple[Any, Any]:
        engine = self.make_engine(self.place, **options)
        return engine, engine.feed("s", "name string, v int, ts timestamp", time="ts")


@pytest.fixture
def processes(make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(make_engine, tmp_path / "checkpoint", monkeypatch)


def queries_with(culprit: str, place: int) -> list[str]:
    """Six queries, oldest first, one of which is a culprit."""
    return [culprit if i == place else f"q{i}" for i in range(6)]


@pytest.mark.parametrize("state", ["driver", "executors"])
@pytest.mark.parametrize(("place", "first"), [(0, 3), (0, 6), (3, 5), (3, 7), (5, 1), (5, 3)])
def test_two_kills_while_a_query_that_raises_is_looked_for_accuse_no_other(
    processes: Processes, first: int, place: int, state: str
) -> None:
    suspended = processes.suspended(queries_with("raising", place), {first, first + 3}, state=state)
    assert list(suspended) == ["raising"] and "missing" in suspended["raising"]


@pytest.mark.parametrize("kills", [8, 9])
def test_kills_that_end_when_the_search_has_begun_accuse_no_query(processes: Processes, kills: int) -> None:
    assert processes.suspended(["q0", "q1", "q2"], range(1, kills + 1)) == {}
    assert processes.ends == kills


@pytest.mark.parametrize(("place", "killed"), [(0, 5), (1, 7), (2, 5), (3, 9), (4, 7), (5, 3)])
def test_a_kill_while_a_query_that_ends_processes_is_looked_for_accuses_no_other(
    processes: Processes, place: int, killed: int
) -> None:
    limits = Limits(process_ends=2)
    suspended = processes.suspended(queries_with("deadly", place), {killed}, limits=limits)
    assert list(suspended) == ["deadly"] and "the process ended" in suspended["deadly"]
