"""State with the executors: the same answers as state on the driver, whatever happens between batches."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.differential.cases import alike, case
from tests.differential.on_engine import check_on_feed, check_on_files
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import BIDS, SettableClock, another_batch, answers, at, bids, committed
from transom.errors import BatchError, SettingError
from transom.plan.limits import Limits
from transom.runtime.executor_state import ExecutorState
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.executor_files import ExecutorFiles

SLIDING = "FROM bids [RANGE 2 minutes SLIDE 1 minute]"
QUERIES = {
    "per site": f"SELECT site, count(*) AS n, avg(price) AS p {SLIDING} GROUP BY site",
    "dear": "SELECT site, max(price) AS top FROM bids [RANGE 3 minutes SLIDE 2 minutes] "
    "WHERE price > 2 GROUP BY site",
    "cheap": "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] "
    "WHERE price <= 2 GROUP BY site",
    "computed": f"SELECT site, sum(price) * 2 + count(*) AS x {SLIDING} GROUP BY site "
    "HAVING count(*) > 1 OR max(price) > 3",
    "all": f"SELECT count(*) AS n, min(price) AS least {SLIDING}",
}
BATCHES = [
    [(1, 1.0, "12:00"), (2, 2.0, "12:00:30"), (3, 9.0, "12:00:40"), (None, 4.0, "12:01")],
    [(2, 3.0, "12:01:10"), (1, 4.0, "12:02"), (1, 5.0, "12:02:10"), (2, 1.0, "12:00:50")],
    [(3, 1.0, "12:03"), (1, 2.0, "12:02:59"), (2, 6.0, "12:04:30")],
    [(1, 1.0, "12:00:10"), (2, 2.0, "12:06:30"), (None, 2.5, "12:05")],
]


class Program:
    """A program over a feed of bids that is started again on its checkpoint as often as one likes."""

    def __init__(
        self,
        make_engine: EngineFactory,
        place: Path,
        state: str,
        queries: dict[str, str] | None = None,
        limits: Limits | None = None,
    ):
        self.make_engine, self.place, self.state, self.limits = make_engine, place, state, limits
        self.queries = QUERIES if queries is None else queries
        self.start()

    def start(self) -> None:
        checkpoint = str(self.place / "checkpoint")
        self.engine = self.make_engine(
            checkpoint, state=self.state, limits=self.limits, clock=SettableClock()
        )
        self.feed = self.engine.feed("bids", BIDS, time="ts", slack="1 minute")
        self.engine.register_all(self.queries)

    def push(self, *rows: tuple[Any, Any, str | None]) -> None:
        self.feed.push(bids(*rows))
        self.engine.step()

    def finish(self) -> dict[str, Any]:
        self.engine.drain()
        return self.answers()

    def answers(self) -> dict[str, Any]:
        return {name: answers(self.engine.query(name)) for name in self.queries}

    def shards(self) -> list[Path]:
        another_batch(self.engine)
        return sorted((self.place / "checkpoint" / "shards").glob("*/*"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers of the local backend with its state on the driver, which are those of any backend."""
    program = Program(EngineFactory("local"), tmp_path_factory.mktemp("on the driver"), "driver")
    for batch_id in BATCHES:
        program.push(*batch_id)
    found = program.finish()
    assert not program.shards()
    assert all(found.values())
    return found


@ON_BOTH
def test_windows_of_any_kind_have_the_same_answers(
    make_engine: EngineFactory, tmp_path: Path, expected: dict[str, Any]
) -> None:
    program = Program(make_engine, tmp_path, "executors")
    for batch_id in BATCHES:
        program.push(*batch_id)
    progress = program.engine.progress()
    assert progress.executor_rows > 0 and progress.executor_bytes == sum(
        f.stat().st_size for f in program.shards()
    )
    assert "with the executors" in str(progress)
    assert program.finish() == expected
    assert not program.shards(), "no window is open: nothing is kept"


def test_a_restart_between_batches_changes_nothing(
    make_engine: EngineFactory, tmp_path: Path, expected: dict[str, Any]
) -> None:
    program = Program(make_engine, tmp_path, "executors")
    for batch_id in BATCHES:
        program.push(*batch_id)
        program.engine.stop()
        program.start()
    assert program.finish() == expected


class Crash(OSError):
    """What a test makes happen."""


@pytest.mark.parametrize(
    ("owner", "name"),
    [(BatchLog, "commit"), (ExecutorState, "close"), (ExecutorFiles, "unused")],
    ids=["before the commit", "in the middle of closing", "after the commit"],
)
def test_a_batch_that_dies_is_done_again(
    make_engine: EngineFactory,
    tmp_path: Path,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
) -> None:
    program = Program(make_engine, tmp_path, "executors")
    program.push(*BATCHES[0])
    real: Callable[..., Any] = getattr(owner, name)

    def dies(*args: Any) -> Any:
        if name != "unused":
            real(*args)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises((Crash, BatchError)):
            program.push(*BATCHES[1])
    program.start()
    program.engine.step()
    for batch_id in BATCHES[2:]:
        program.push(*batch_id)
    assert program.finish() == expected
    assert not program.shards(), "strays are gone, too"


def test_a_punctuation_for_one_group_closes_it_alone(make_engine: EngineFactory, tmp_path: Path) -> None:
    found = {}
    for state in ("driver", "executors"):
        program = Program(make_engine, tmp_path / state, state)
        program.push(*BATCHES[0])
        program.feed.punctuate(at("12:02"), where={"site": 3})
        program.push(*BATCHES[1])
        early = program.answers()
        assert {row[2] for row in early["per site"]} >= {3}
        found[state] = early, program.finish()
    assert found["driver"] == found["executors"]


def test_a_query_that_joins_is_answered_from_shards_kept_for_others(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    found = {}
    for state in ("driver", "executors"):
        program = Program(make_engine, tmp_path / state, state, {"per site": QUERIES["per site"]})
        program.push(*BATCHES[0])
        later = "SELECT site, count(*) AS n FROM bids [RANGE 4 minutes SLIDE 2 minutes] GROUP BY site"
        seen, whole = (
            program.engine.register(later, name, partial=name == "whole") for name in ("a", "whole")
        )
        for batch_id in BATCHES[1:]:
            program.push(*batch_id)
        program.engine.drain()
        found[state] = answers(seen), answers(whole, "n", "complete")
    assert found["driver"] == found["executors"]
    assert ("12:00", "12:04", 2, 3) in found["executors"][0], "it reaches back before the query joined"


def test_a_query_that_leaves_takes_its_shards_with_it(make_engine: EngineFactory, tmp_path: Path) -> None:
    program = Program(make_engine, tmp_path, "executors", {"all": QUERIES["all"]})
    program.push(*BATCHES[0])
    assert program.shards()
    program.engine.query("all").drop()
    program.engine.step()
    assert not program.shards()


def test_selections_go_far_when_they_grow(
    make_engine: EngineFactory, tmp_path: Path, expected: dict[str, Any]
) -> None:
    program = Program(make_engine, tmp_path, "auto", limits=Limits(driver_rows=12, batches_to_limit=1))
    far = []
    for batch_id in BATCHES:
        program.push(*batch_id)
        far.append(bool(program.engine.progress().executor_rows))
    assert far == [False, False, True, True]
    near = {own.name for own in committed(tmp_path)[0].selections.values() if not own.on_executors}
    assert near == {"bids by ts"}, "one group is never too many"
    assert program.finish() == expected


def test_a_batch_with_many_groups_goes_far_at_once(
    make_engine: EngineFactory, tmp_path: Path, expected: dict[str, Any]
) -> None:
    program = Program(make_engine, tmp_path, "auto", limits=Limits(driver_groups=3))
    program.push(*BATCHES[0])
    assert program.engine.progress().executor_rows
    for batch_id in BATCHES[1:]:
        program.push(*batch_id)
    assert program.finish() == expected


def test_small_files_are_rolled_up(
    make_engine: EngineFactory, tmp_path: Path, expected: dict[str, Any]
) -> None:
    program = Program(make_engine, tmp_path, "executors", limits=Limits(shard_files=2))
    for batch_id in BATCHES:
        program.push(*batch_id)
        assert len(committed(tmp_path)[0].shards) <= 5
    assert program.finish() == expected


def test_sinks_and_subscribers_are_given_what_tasks_wrote(make_engine: EngineFactory, tmp_path: Path) -> None:
    found = {}
    for state in ("driver", "executors"):
        program = Program(make_engine, tmp_path / state, state)
        tables: list[pa.Table] = []
        program.engine.query("dear").subscribe(tables.append)
        program.engine.query("computed").sink("json", path=str(tmp_path / state / "one"))
        program.engine.sink("json", path=str(tmp_path / state / "every"))
        for batch_id in BATCHES:
            program.push(*batch_id)
        program.engine.drain()
        found[state] = (
            answers(pa.concat_tables(tables)),
            written(tmp_path / state / "one"),
            written(tmp_path / state / "every"),
        )
    assert found["driver"] == found["executors"]
    assert all(found["executors"])


@ON_BOTH
def test_joins_that_repeat_rows_and_functions_of_the_user(make_engine: EngineFactory, tmp_path: Path) -> None:
    texts = {
        "cities": f"SELECT city, count(*) AS n {SLIDING}, sites WHERE bids.site = sites.site GROUP BY city",
        "doubled": f"SELECT site, doubled(sum(price)) AS p {SLIDING} GROUP BY site "
        "HAVING doubled(count(*)) > 2",
    }
    found = {}
    for state, backend in (("driver", EngineFactory("local")), ("executors", make_engine)):
        engine = backend(str(tmp_path / state), state=state)
        feed = engine.feed("bids", BIDS, time="ts", slack="1 minute")
        engine.table(
            "sites", [{"site": 1, "city": "Rome"}, {"site": 1, "city": "Ulm"}, {"site": 2, "city": "Ulm"}]
        )
        engine.udf("doubled", lambda number: 2.0 * number, "double")
        queries = engine.register_all(texts)
        for batch_id in BATCHES:
            feed.push(bids(*batch_id))
            engine.step()
        engine.drain()
        found[state] = {name: answers(query) for name, query in queries.items()}
    assert found["driver"] == found["executors"]
    assert all(found["executors"].values())


def written(place: Path) -> list[str]:
    """The rows of a JSON sink, with the batch of each."""
    rows = []
    for file in place.glob("batch=*/*.json"):
        for line in file.read_text().splitlines():
            rows.append(json.dumps({**json.loads(line), "batch": file.parent.name}, sort_keys=True))
    return sorted(rows)


def test_where_state_can_be(make_engine: EngineFactory) -> None:
    with pytest.raises(SettingError, match="unknown state 'disk': auto or driver or executors"):
        make_engine(state="disk")


def test_pushed_rows_give_the_oracles_answers(make_engine: EngineFactory, tmp_path: Path, seed: int) -> None:
    for number in range(seed, seed + 3):
        for name, draw in (("any", case), ("alike", alike)):
            place = tmp_path / f"{name} {number}"
            check_on_feed(
                draw(Random(number)), make_engine, place, restart=number % 2 == 0, state="executors"
            )


def test_rows_of_files_give_the_oracles_answers(
    make_engine: EngineFactory, tmp_path: Path, seed: int
) -> None:
    for number in range(seed + 50, seed + 53):
        check_on_files(case(Random(number)), make_engine, tmp_path / str(number), state="executors")


def test_a_local_engine_leaves_the_program_s_garbage_collection_alone(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine = make_engine(tmp_path / "executors", state="executors")
    feed = engine.feed("bids", BIDS, time="ts")
    engine.register(f"SELECT site, count(*) AS n {SLIDING} GROUP BY site")
    frozen = gc.get_freeze_count()
    for batch in BATCHES:
        feed.push(bids(*batch))
        engine.step()
    assert gc.get_freeze_count() == frozen
