"""A damaged checkpoint has the same answers as a whole one, or says which file is damaged. Never other answers."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import BIDS, PER_SITE, SettableClock, accounted, answers, bids, bids_files
from tests.runtime.fault_helpers import Crash, Fault
from transom.plan.limits import Limits
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store
from transom.storage.framed_file import content
from transom.storage.sealed_directory import SEAL, sealed_files

BATCHES = [
    [(1, 1.0, "12:00"), (2, 2.0, "12:00:30"), (9, 1.0, None)],
    [(site, float(site), f"12:01:{site:02d}") for site in range(16)],
    [(1, 1.0, "11:50:10"), (2, 2.0, "12:02:30"), (3, 3.0, "12:02:40")],
    [(2, 1.0, "12:03"), (1, 4.0, "12:03:10"), (None, 1.0, "12:03:20")],
    [(5, 1.0, "12:00:10"), (2, 2.0, "12:04:30"), (7, 3.0, None)],
    [(1, 1.0, "12:05"), (2, 2.0, "12:05:30")],
]
TEXTS = {
    "per_site": "SELECT site, sum(price) AS p, avg(price) AS a FROM bids [RANGE 2 minutes SLIDE 1 minute] "
    "GROUP BY site",
    "named": "SELECT name, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] "
    "JOIN sites ON bids.site = sites.site GROUP BY name",
    "alerting": "SELECT site, count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site HAVING n > 0 ALERT",
}
PAST = "SELECT site, sum(price) AS p FROM bids [RANGE 1 hour SLIDE 1 minute] GROUP BY site"
ON_DEMAND = "SELECT site, sum(price) AS p, max(price) AS m FROM bids [RANGE 1 minute] GROUP BY site"
PREFERENCE = "SELECT site, price FROM bids WITH PREFERENCE desc SUMMARY.Estimate.Count(site) BUDGET 2 PROBES"
FLIPS = 1000  # of bits, each in a file of the checkpoint


class Program:
    """A program that reads files, and is started again on copies of one checkpoint."""

    def __init__(self, make_engine: EngineFactory, place: Path, state: str):
        self.make_engine, self.place, self.state = make_engine, place, state
        bids_files(place / "in", *BATCHES)

    def start(self, checkpoint: Path) -> transom.Engine:
        limits = Limits(pushed_rows=0)  # the backend writes late and rejected rows
        engine = self.make_engine(checkpoint, clock=SettableClock(), state=self.state, limits=limits)
        engine.stream(
            "bids",
            str(self.place / "in"),
            time="ts",
            slack="30 s",
            overload="sideline",
            budget=4,
            share=1,
            retain="1 hour",
        )
        engine.table("sites", [{"site": site, "name": f"site {site}"} for site in range(4)])
        engine.execute("CREATE SUMMARY sites1 ON bids(site) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)")
        engine.register_all(TEXTS)
        engine.register(ON_DEMAND, "on_demand")
        engine.register(PREFERENCE, "preferred")
        return engine

    def outcome(self, checkpoint: Path) -> dict[str, Any]:
        """What comes out when a program continues from a checkpoint."""
        engine = self.start(checkpoint)
        engine.drain()
        return {
            **{name: answers(engine.query(name)) for name in TEXTS},
            "on_demand": answers(engine.query("on_demand").lookup()),
            "preferred": sorted(str((row["site"], row["price"])) for row in rows(engine.query("preferred"))),
            "late": sorted(str((row["site"], row["ts"])) for row in engine.late("bids").to_pylist()),
            "rejected": sorted(str((row["site"], row["ts"])) for row in engine.rejected("bids").to_pylist()),
            "accounted": accounted(engine),
            "alerts": sorted(event.event_id for event in engine.alerting.events()[0]),
            "past": answers(engine.lookup(PAST, at="2013-01-01 12:03:00")),
        }


def rows(query: Any) -> list[dict[str, Any]]:
    return query.results().to_pylist()


class Damage:
    """A checkpoint in the middle of a batch, and the outcome of continuing from it."""

    def __init__(self, program: Program):
        self.program, self.original = program, program.place / "checkpoint"
        engine = program.start(self.original)
        with pytest.MonkeyPatch.context() as patch:
            Fault(patch, BatchLog, "commit", lambda log, state, record: state.batch_id == 5, False)
            with pytest.raises(Crash):
                engine.drain()
        engine.stop()
        self.copies = 0
        self.whole = program.outcome(self.copy())
        assert self.whole["late"] and self.whole["rejected"]
        assert all(self.whole[name] for name in (*TEXTS, "on_demand", "preferred", "alerts", "past"))

    def copy(self) -> Path:
        self.copies += 1
        return Path(shutil.copytree(self.original, self.program.place / f"copy{self.copies}"))

    def files(self) -> list[str]:
        files = (file for file in self.original.rglob("*") if file.is_file() and file.stat().st_size)
        return sorted(str(file.relative_to(self.original)) for file in files)

    def check(self, file: str, damage: Callable[[Path], None]) -> bool:
        """Whether a checkpoint with a damaged file is refused; otherwise it has the same outcome."""
        copy = self.copy()
        damage(copy / file)
        try:
            outcome = self.program.outcome(copy)
        except transom.CheckpointError as error:
            assert "of the checkpoint" in str(error) and ";" in str(error), error
            return True
        finally:
            shutil.rmtree(copy)
        assert outcome == self.whole, file
        return False


@pytest.fixture(scope="module", params=["driver", pytest.param("executors", marks=pytest.mark.faults)])
def damage(
    request: pytest.FixtureRequest, make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory
) -> Damage:
    return Damage(Program(make_engine, tmp_path_factory.mktemp(request.param), request.param))


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


def add_bytes(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0\0\0\0")


def flip(position: float) -> Callable[[Path], None]:
    """Flip the bit at a position between 0 and 1 of a file."""

    def flipped(file: Path) -> None:
        data = bytearray(file.read_bytes())
        bit = int(position * len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bytes(data))

    return flipped


def kind(file: str) -> str:
    """What a file holds."""
    top, *_, name = file.split("/")
    return f"{top}/{name}" if name.startswith("_") else f"{top}{os.path.splitext(name)[1]}"


def test_a_damaged_file_of_a_few_kinds_changes_no_answer(damage: Damage) -> None:
    first = {kind(file): file for file in reversed(damage.files())}
    last = {kind(file): file for file in damage.files()}
    assert damage.check(first["results.arrow"], flip(0.4))
    assert damage.check(last["sidelined.parquet"], truncate)
    assert not damage.check(last["state.arrow"], remove)
    assert damage.check(first["alerts.json"], flip(0.4))
    assert damage.check(first["history.parquet"], truncate)


def test_files_that_are_none_of_an_engine_are_left_alone(damage: Damage) -> None:
    copy = damage.copy()
    places = ("alerts", "history/bids", "late/bids", "rejected/bids", "results", "runs")
    strangers = [copy / place / "notes.txt" for place in places]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_text("not of an engine")
    assert damage.program.outcome(copy) == damage.whole
    assert all(stranger.exists() for stranger in strangers)
    shutil.rmtree(copy)


@pytest.mark.faults
@pytest.mark.parametrize("how", [remove, truncate, flip(0.4)], ids=["removed", "truncated", "a flipped bit"])
def test_a_damaged_file_of_any_kind_changes_no_answer(damage: Damage, how: Callable[[Path], None]) -> None:
    # The last files there may be those of the begun batch.
    committed = ("results/", "late/", "rejected/", "history/", "alerts/")
    kinds = {kind(file): file for file in damage.files() if not file.startswith(committed)}
    kinds |= {kind(file): file for file in reversed(damage.files()) if file.startswith(committed)}
    assert {"log.json", "state.arrow", "results.arrow", "late.parquet", "sidelined.parquet"} <= set(kinds)
    if damage.program.state == "executors":  # the other kinds are those of a driver's checkpoint
        kinds = {name: file for name, file in kinds.items() if file.startswith(("shards/", "state/"))}
        assert len(kinds) >= 2
    refused = {name for name, file in kinds.items() if damage.check(file, how)}
    if damage.program.state == "driver":
        assert refused >= {"results.arrow", "late.parquet", "rejected.parquet", "sidelined.parquet"}


def test_any_single_flipped_bit_is_found(damage: Damage, seed: int) -> None:
    draw = random.Random(seed)
    store = Store(damage.original)
    files = [file for file in damage.files() if not file.endswith(".parquet")]
    for _ in range(FLIPS):
        file = draw.choice(files)
        data = bytearray(store.raw(file))
        bit = draw.randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(transom.CheckpointError, match=f"{file} of the checkpoint"):
            content(file, bytes(data))


@pytest.mark.parametrize("how", [remove, empty, truncate, add_bytes, flip(0.4)])
def test_files_that_the_backend_wrote_are_listed(damage: Damage, how: Callable[[Path], None]) -> None:
    copy = damage.copy()
    sealed = [file.parent for file in copy.rglob(SEAL)]
    assert {directory.relative_to(copy).parts[0] for directory in sealed} >= {"late", "rejected", "sidelined"}
    for directory in sealed:
        name = str(directory.relative_to(copy))
        assert sealed_files(Store(copy), name)
        how(next(file for file in sorted(directory.rglob("*")) if file.suffix in (".parquet", ".arrow")))
        with pytest.raises(transom.CheckpointError, match=name):
            for file in sealed_files(Store(copy), name):
                Store(copy).read(file)


@pytest.mark.faults
def test_a_damaged_last_state_is_replayed_from_the_one_before(
    damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    last = max(file for file in damage.files() if file.startswith("state/"))
    for how in (remove, truncate, flip(0.5)):
        assert not damage.check(last, how)
    assert "is replayed instead" in caplog.text


def test_two_damaged_states_are_refused(damage: Damage) -> None:
    *_, before, last = sorted(file for file in damage.files() if file.startswith("state/"))
    copy = damage.copy()
    for file in (before, last):
        truncate(copy / file)
    with pytest.raises(transom.CheckpointError, match=f"{last} of the checkpoint is damaged: .*truncated"):
        damage.program.start(copy)


def test_a_checkpoint_without_any_state_is_refused(damage: Damage) -> None:
    copy = damage.copy()
    shutil.rmtree(copy / "state")
    with pytest.raises(transom.CheckpointError, match=r"state/.* of the checkpoint is missing"):
        damage.program.start(copy)


@ON_BOTH
def test_a_damaged_shard_is_named_by_the_task_that_reads_it(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    options = {"clock": SettableClock(), "state": "executors"}
    engine = make_engine(tmp_path / "checkpoint", **options)
    feed = engine.feed("bids", BIDS, time="ts")
    query = engine.register(PER_SITE, name="q")
    feed.push(bids((1, 1.0, "12:00"), (2, 2.0, "12:00:30")))
    engine.step()
    for file in (tmp_path / "checkpoint" / "shards").rglob("*.arrow"):
        flip(0.5)(file)
    feed.push(bids((1, 1.0, "12:10")))
    with pytest.raises(transom.CheckpointError, match=r"^shards/.*arrow of the checkpoint is damaged"):
        engine.step()
    assert answers(query) == []
