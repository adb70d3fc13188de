"""EMIT EARLY on Spark: queries that prod themselves, what they learn, and batches that fail meanwhile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.runtime.engine_helpers import MINUTE, SettableClock, at, bids, bids_engine
from tests.runtime.fault_helpers import Crash, Fault
from tests.runtime.prod_helpers import early, final, told, traffic
from tests.runtime.test_faults import STEPS

SUM = "SELECT sum(volume) AS v FROM s [RANGE 50 SLIDE 50]"
STEPS_OF_A_BATCH = {
    "ingest": (*STEPS["ingest"][:2], lambda run: run.batch.before.totals.rows == 2),
    **{name: STEPS[name] for name in ("emit", "writing all results", "the commit")},
}


# --- by the engine's clock -------------------------------------------------------------------


@ON_BOTH
def test_every_so_often_but_not_again_until_rows_come(make_engine: EngineFactory, tmp_path: Path) -> None:
    clock = SettableClock()
    engine, feed = traffic(make_engine, tmp_path, clock=clock)
    query = engine.register(f"{SUM} EMIT EARLY EVERY '1 minute'")
    feed.push([(10, 1, 0, 1)])
    engine.step()
    clock.advance(minutes=0.5)
    feed.push([(11, 1, 0, 2)])
    engine.step()
    assert early(query, "v", "batch") == [(0, 50, 1, 1)]
    clock.advance(minutes=0.5)
    assert engine.step() == 1, "the timer makes a batch"
    clock.advance(minutes=10)
    assert engine.step() == 0, "and no other while nothing comes"
    feed.push([(12, 1, 0, 4), (60, 1, 0, 8)])
    engine.step()
    assert early(query, "v", "batch") == [(0, 50, 1, 1), (0, 50, 3, 3), (0, 50, 7, 4), (50, 100, 8, 4)]


def test_queries_over_a_query_do_not_keep_each_other_awake(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock()
    engine, feed = traffic(make_engine, tmp_path, clock=clock)
    engine.register_all(
        {
            "per_window": SUM,
            "a": "SELECT max(v) AS v FROM per_window [RANGE 100 SLIDE 100] EMIT EARLY EVERY '60 seconds'",
            "b": "SELECT max(v) AS v FROM per_window [RANGE 100 SLIDE 100] EMIT EARLY EVERY '90 seconds'",
        }
    )
    feed.push([(10, 1, 0, 1)])
    engine.step()
    clock.advance(minutes=0.5)
    feed.push([(11, 1, 0, 2)])
    engine.step()
    batches = []
    for _ in range(6):
        clock.advance(minutes=0.5)
        batches.append(engine.step())
    assert batches == [1, 1, 0, 0, 0, 0]
    assert early(engine.query("a"), "v") == [(0, 100, 1), (0, 100, 3)] == early(engine.query("b"), "v")


def test_the_marks_of_a_live_stream_are_passed_by_the_clock(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    clock = SettableClock(at("12:00:20"))
    engine, feed = bids_engine(make_engine, tmp_path, clock=clock, slack=None, live=True)
    query = engine.register(
        "SELECT count(*) AS n FROM bids [RANGE 1 minute SLIDE 1 minute] EMIT EARLY AT 75% OF SLIDE"
    )
    feed.push(bids((1, 1.0, "12:00:10")))
    engine.step()
    clock.now += MINUTE // 3
    assert engine.step() == 0 and early(query) == []
    clock.now += MINUTE // 10
    assert engine.step() == 1 and early(query, "n", "made") == [("12:00", "12:01", 1, "12:00:46")]
    for _ in range(3):
        clock.advance(minutes=1)
        assert engine.step() == 0, "windows without rows have nothing to tell"
    clock.advance(minutes=0.4)
    feed.push(bids((1, 1.0, "12:04:05")))
    engine.step()
    assert early(query, "n") == [("12:00", "12:01", 1)]
    clock.advance(minutes=0.6)
    engine.step()
    assert early(query, "n") == [("12:00", "12:01", 1), ("12:04", "12:05", 1)]


# --- at points of the slide ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "batches", "expected"),
    [
        (
            "[RANGE 20 SLIDE 10] EMIT EARLY AT 50%, 90% OF SLIDE",
            [1, 4, 5, 9, 10, 16],
            [(-10, 10, 3, 3), (-10, 10, 4, 4), (0, 20, 6, 6)],
        ),
        ("[ROWS 4 SLIDE 4] EMIT EARLY AT 50% OF SLIDE", [1, 2, 3, 4, 5], [(0, 4, 2, 2)]),
        ("[RANGE 5 SLIDE 20] EMIT EARLY AT 90% OF SLIDE", [2, 16, 18, 19, 36], [(15, 20, 2, 3)]),
        ("[RANGE 10 SLIDE 10] EMIT EARLY AT 100% OF SLIDE", [1, 9, 10, 12], [(0, 10, 2, 3)]),
        ("[RANGE 10 SLIDE 10] EMIT EARLY AT 20%, 50%, 80% OF SLIDE", [1, 9], [(0, 10, 2, 2)]),
    ],
    ids=[
        "two of a sliding window",
        "of a window of rows",
        "of windows with gaps between them",
        "of a window that waits for slack",
        "of which one batch passes several",
    ],
)
def test_marks(
    make_engine: EngineFactory, tmp_path: Path, text: str, batches: list[int], expected: Any
) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=20)
    query = engine.register(text.replace("[", "SELECT count(*) AS n FROM s [", 1))
    for time in batches:
        feed.push([(time, 1, 0, 1)])
        engine.step()
    assert early(query, "n", "batch") == expected


def test_windows_past_their_end_are_emitted_while_they_wait(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=20, clock=SettableClock())
    query = engine.register("SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10] EMIT EARLY ON DEMAND")
    feed.push([(1, 1, 0, 1), (25, 1, 0, 1)])
    engine.step()
    assert early(query) == [], "only when prodded"
    assert early(query.prod(until=10), "n") == [(0, 10, 1)]
    feed.push([(2, 1, 0, 1), (30, 1, 0, 1)])
    engine.step()
    assert told(query, "n") == [("early", 0, 10, 1), ("final", 0, 10, 2)]


def test_a_prod_for_a_group_returns_that_group_only(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(
        "SELECT sensor, sum(volume) AS v FROM s [RANGE 50 SLIDE 50] GROUP BY sensor EMIT EARLY ON DEMAND"
    )
    feed.push([(1, 1, 0, 1), (2, 2, 0, 2)])
    engine.step()
    feed.push([(25, 1, 0, 4), (26, 2, 0, 8)])  # passes marks at which all groups are looked at
    feed.prod(where={"sensor": 1})
    engine.step()
    assert early(query, "sensor", "v") == [(0, 50, 1, 5)]


# --- what is learned -------------------------------------------------------------------------


def fill(engine: transom.Engine, feed: Any, windows: range, steps: int = 5) -> None:
    """Windows of 50 with a row of the same volume in every tenth part, a batch for each fifth."""
    for window in windows:
        for step in range(steps):
            start = 50 * window + step * 50 // steps
            feed.push([(start + i, 1, 0, 10) for i in range(0, 50 // steps, 5)])
            engine.step()


def test_projections_and_bounds_come_with_experience_and_survive_a_restart(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    text = f"{SUM} EMIT EARLY AT 60% OF SLIDE CONFIDENCE 80%"
    query = engine.register(text, name="q")
    fill(engine, feed, range(6))
    engine.stop()
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.register(text, name="q")
    known = query.accuracy()
    fill(engine, feed, range(6, 14))
    rows = [row for row in query.results().to_pylist() if row["kind"] == "early"]
    assert [row["v"] for row in rows] == [80] * 14
    assert rows[0]["v_low"] is None and rows[-1]["v_low"] is not None
    assert rows[-1]["v_projected"] == pytest.approx(100)
    assert rows[-1]["v_low"] <= 100 <= rows[-1]["v_high"]
    accuracy = query.accuracy()
    assert 0 < known.total.pairs < accuracy.total.pairs and accuracy.confidence == 0.8
    assert accuracy.total.raw == pytest.approx(0.8) and accuracy.recent.projected > 0.95
    assert all(row["v_projected"] is None for row in query.results().to_pylist() if row["kind"] == "final")


def test_the_loop_moves_its_point(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine, feed = traffic(make_engine, tmp_path, slack=0)
    query = engine.register(f"{SUM} EMIT EARLY WITH ACCURACY 90% BETWEEN 20% AND 90% OF SLIDE", name="q")
    start = query.accuracy()
    assert (start.point, start.target) == (0.9, 0.9)
    fill(engine, feed, range(16))
    assert 0.2 <= query.accuracy().point < 0.9
    point = query.accuracy().point
    again, _ = traffic(make_engine, tmp_path, slack=0)
    assert again.query("q").accuracy().point == point
    again.query("q").drop()
    again.step()
    fresh = again.register(f"{SUM} EMIT EARLY WITH ACCURACY 90% BETWEEN 20% AND 90% OF SLIDE", name="q")
    again.step()
    assert fresh.accuracy().point == 0.9, "another query of this name knows nothing"


def test_a_query_that_is_prodded_is_judged_though_a_batch_fails_meanwhile(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    query = engine.register(f"{SUM} EMIT EARLY ON DEMAND")
    plain = engine.register(SUM)
    feed.push([(10, 1, 0, 1)])
    engine.step()
    query.prod()
    fault = Fault(monkeypatch, *STEPS["the commit"], False)
    feed.push([(11, 1, 0, 3)])
    with pytest.raises(Crash):
        engine.step()
    assert fault.fired
    engine.drain()
    accuracy = query.accuracy()
    assert accuracy.total.pairs == 1 and accuracy.total.raw == 0.25
    with pytest.raises(transom.StateError, match="EMIT EARLY"):
        plain.accuracy()


@ON_BOTH
def test_a_quality_function_judges_what_the_formula_can_not(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    judged: list[tuple[Any, ...]] = []

    def alike(before: str, after: str, seconds: float) -> float:
        judged.append((before, after, seconds))
        return sum(a == b for a, b in zip(before, after, strict=True)) / len(after)

    clock = SettableClock()
    text = "SELECT max(code) AS code FROM parts [RANGE 50 SLIDE 50] EMIT EARLY ON DEMAND QUALITY Alike"
    engine = make_engine(str(tmp_path), clock=clock)
    feed = engine.feed("parts", "ts bigint, code string", time="ts", slack=None)
    with pytest.raises(transom.SQLError, match="Alike"):
        engine.register(text)
    engine.quality("alike", alike)
    query = engine.register(text, name="q")
    feed.push([(1, "abcd")])
    engine.step()
    query.prod()
    clock.advance(minutes=1)
    feed.push([(2, "abzz")])
    feed.punctuate(until=50)
    engine.step()
    assert judged == [("abcd", "abzz", 60.0)] and query.accuracy().total.raw == 0.5
    again = make_engine(str(tmp_path), clock=clock)
    again.feed("parts", "ts bigint, code string", time="ts", slack=None)
    with pytest.raises(transom.StateError, match=r"q of the checkpoint.*[Aa]like"):
        again.step()
    again.quality("alike", alike)
    assert again.step() == 0 and again.query("q").accuracy().total.raw == 0.5


def test_a_quality_function_that_raises_does_not_stop_the_engine(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    engine, feed = traffic(make_engine, tmp_path)
    engine.quality("broken", lambda before, after, seconds: 1 / 0)
    query = engine.register(f"{SUM} EMIT EARLY ON DEMAND QUALITY broken")
    feed.push([(1, 1, 0, 1)])
    engine.step()
    query.prod()
    engine.drain()
    assert final(query, "v") == [(0, 50, 1)]
    assert math.isnan(query.accuracy().total.raw)


# --- batches that fail -------------------------------------------------------------------------


class Program:
    """A program with queries of every kind that are told early, started again on its checkpoint."""

    TEXTS: ClassVar[dict[str, str]] = {
        "marked": "SELECT sensor, sum(volume) AS v FROM s [RANGE 20 SLIDE 10] GROUP BY sensor "
        "EMIT EARLY AT 50% OF SLIDE",
        "timed": "SELECT count(*) AS v FROM s [RANGE 20 SLIDE 20] EMIT EARLY EVERY '1 minute'",
        "outer": "SELECT max(v) AS v FROM marked [RANGE 20 SLIDE 20] EMIT EARLY AT 50% OF SLIDE",
    }
    BATCHES = (
        [(1, 1, 0, 1), (6, 2, 0, 2)],
        [(8, 1, 0, 4), (17, 2, 0, 8)],
        [(12, 1, 0, 16), (26, 2, 0, 32)],
        [(38, 1, 0, 64)],
    )

    def __init__(self, make_engine: EngineFactory, place: Path):
        self.make_engine, self.place, self.clock, self.taken = make_engine, place, SettableClock(), 0

    def start(self) -> transom.Engine:
        engine, self.feed = traffic(self.make_engine, self.place, clock=self.clock, slack=5)
        engine.register_all(self.TEXTS)
        return engine

    def run(self, engine: transom.Engine) -> None:
        log = self.place / "checkpoint" / "log"
        while (taken := max((int(file.stem) for file in log.glob("*.json")), default=0)) < len(self.BATCHES):
            self.clock.now = SettableClock().now + taken * MINUTE
            self.feed.push(self.BATCHES[taken])
            self.feed.prod(where={"sensor": 2})
            engine.step()
        engine.step()
        engine.drain()

    def outcome(self, engine: transom.Engine) -> dict[str, Any]:
        tables = {name: engine.query(name).results() for name in self.TEXTS}
        return {
            name: sorted(map(repr, table.drop(["made", "latency"]).to_pylist()))
            for name, table in tables.items()
        }


@pytest.fixture(scope="module")
def undisturbed(make_engine: EngineFactory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes out when nothing fails."""
    program = Program(make_engine, tmp_path_factory.mktemp("undisturbed"))
    engine = program.start()
    program.run(engine)
    found = {name: engine.query(name) for name in Program.TEXTS}
    assert all(early(query) and final(query) for query in found.values())
    return program.outcome(engine)


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", STEPS_OF_A_BATCH)
def test_a_batch_that_tells_early_results_fails_at(
    make_engine: EngineFactory,
    tmp_path: Path,
    undisturbed: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    after: bool,
) -> None:
    program = Program(make_engine, tmp_path)
    fault = Fault(monkeypatch, *STEPS_OF_A_BATCH[step], after)
    engine = program.start()
    with pytest.raises(Exception, match=r"Crash|failed|" + STEPS_OF_A_BATCH[step][1]):
        program.run(engine)
    engine.stop()
    assert fault.fired
    engine = program.start()
    program.run(engine)
    assert program.outcome(engine) == undisturbed


def test_a_restart_between_batches_changes_no_early_result(
    make_engine: EngineFactory, tmp_path: Path, undisturbed: Any
) -> None:
    program = Program(make_engine, tmp_path)
    for batch_id in range(len(Program.BATCHES)):
        engine = program.start()
        program.clock.now = SettableClock().now + batch_id * MINUTE
        program.feed.push(Program.BATCHES[batch_id])
        program.feed.prod(where={"sensor": 2})
        engine.step()
        engine.stop()
    engine = program.start()
    program.run(engine)
    assert program.outcome(engine) == undisturbed
