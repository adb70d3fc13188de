"""Streams whose slack is learned: `slack="99%"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SettingError

SCHEMA = "device string, n int, ts timestamp"
SQL = (
    "SELECT device, sum(n) AS total, count(*) AS n FROM rows [RANGE 1 second SLIDE 1 second] GROUP BY device"
)
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def disordered(rows: int, seed: int = 0, delay: float = 2.0) -> pa.Table:
    """Rows of three devices, a hundred a second, in the order of their arrival."""
    draw = np.random.default_rng(seed)
    times = START + np.cumsum(draw.exponential(SECOND / 100, rows))
    device = draw.integers(0, 3, rows)
    order = np.argsort(
        times + draw.exponential(delay * SECOND, rows) * (1 + 4 * (device == 2)), kind="stable"
    )
    return pa.table(
        {
            "device": np.array(["a", "b", "slow"])[device[order]],
            "n": draw.integers(0, 10, rows).astype(np.int32),
            "ts": pa.array(times[order].astype(np.int64)).cast(pa.timestamp("us", "UTC")),
        }
    )


def run(engine: Any, feed: Any, rows: pa.Table, size: int = 500) -> None:
    for start in range(0, rows.num_rows, size):
        feed.push(rows.slice(start, size))
        engine.step()


OPTIONS: dict[str, Any] = {"time": "ts", "slack": "99%", "max_ahead": None}


def test_the_share_that_was_asked_for_is_in_time(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, **OPTIONS)
        engine.register(SQL)
        run(engine, feed, disordered(20_000))
        stream = engine.progress().streams["rows"]
        clocks = stream.clocks
        assert clocks.target == 0.99 and clocks.rows == 19_500
        assert clocks.in_time is not None and abs(clocks.in_time - 0.99) < 0.004
        assert stream.late <= clocks.missed  # a row behind the watermark may be in an open window
        assert clocks.slack is not None and SECOND < clocks.slack < 40 * SECOND
        assert stream.high is not None and stream.watermark is not None
        assert "for 99%" in str(stream) and "of 19,500 rows in time" in str(stream)


def test_each_partition_has_a_slack_of_its_own(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", SCHEMA, partition="device", partition_idle=None, **OPTIONS)
        engine.register(SQL)
        run(engine, feed, disordered(30_000))
        clocks = engine.progress().streams["rows"].clocks
        by_name = {clock.name: clock for clock in clocks.slowest}
        assert by_name.keys() == {"a", "b", "slow"} and clocks.clocks == 3
        slow, fast = by_name["slow"].slack, by_name["a"].slack
        assert slow is not None and fast is not None and slow > 2 * fast
        assert clocks.in_time is not None and clocks.in_time > 0.985


@ON_BOTH
def test_a_restart_goes_on_with_what_was_learned(make_engine: EngineFactory, tmp_path: Path) -> None:
    rows, results, learned = disordered(6_000), [], []
    for restarts in (False, True):
        checkpoint = str(tmp_path / str(restarts))

        def started(checkpoint: str = checkpoint) -> Any:
            engine = make_engine(checkpoint=checkpoint)
            return engine, engine.feed("rows", SCHEMA, partition="device", partition_idle=None, **OPTIONS)

        engine, feed = started()
        query = engine.register(SQL, "q")
        for start in range(0, 6_000, 750):
            feed.push(rows.slice(start, 750))
            engine.step()
            if restarts and start in (1_500, 3_750):
                engine.stop()
                engine, feed = started()
                query = engine.query("q")
        results.append(sorted(map(str, query.results().drop_columns(["made", "latency"]).to_pylist())))
        learned.append(engine.progress().streams["rows"].clocks.as_dict())
        engine.stop()
    assert results[0] == results[1] and learned[0] == learned[1]


def test_a_replayed_batch_has_the_same_watermark(
    make_engine: EngineFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transom.runtime.write_ahead_log import BatchLog

    rows, outcomes = disordered(4_000), []
    for fails in (False, True):
        engine = make_engine(checkpoint=str(tmp_path / f"fails {fails}"))
        feed = engine.feed("rows", SCHEMA, **OPTIONS)
        query = engine.register(SQL, "q")
        commit = BatchLog.commit
        for number, start in enumerate(range(0, 4_000, 400)):
            feed.push(rows.slice(start, 400))
            if fails and number in (3, 7):
                with monkeypatch.context() as patched:

                    def broken(*_: Any) -> int:
                        raise OSError("no space left")

                    patched.setattr(BatchLog, "commit", broken)
                    with pytest.raises(OSError, match="no space left"):
                        engine.step()
            engine.step()
        assert BatchLog.commit is commit
        stream = engine.progress().streams["rows"]
        outcomes.append((stream.watermark, stream.clocks.as_dict(), stream.late, query.results().num_rows))
        engine.stop()
    assert outcomes[0] == outcomes[1]


def test_the_bounds_and_the_first_slack(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        options = OPTIONS | {"slack_start": "10 seconds", "slack_max": "4 seconds", "slack_min": "1 second"}
        feed = engine.feed("rows", SCHEMA, **options)
        feed.push(disordered(50))
        engine.register(SQL)
        engine.step()
        stream = engine.progress().streams["rows"]
        assert stream.high is not None and stream.watermark == stream.high - 4 * SECOND
        assert engine.explain().count("slack learned for 0.99 of the rows, at first 4 seconds") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slack": "100%"}, "for 50% to 99.999% of the rows"),
        ({"slack": "5 s", "slack_max": "9 s"}, "for a slack that is learned"),
        (
            {"slack": "99%", "slack_min": "9 s", "slack_max": "5 s"},
            "slack_min, '9 s', is larger than slack_max",
        ),
        ({"slack": "99%", "slack_start": None}, "can't be none"),
        ({"slack": "99%", "time": "n"}, "say with slack_start"),
        ({"slack": 0.99}, "the slack 0.99 has no unit; write one like '5 seconds', or '99%' to learn it"),
        ({"slack": "99.9"}, "or '99.9%' to learn it"),
        ({"slack": {"tss": "99.9%"}}, r"only that of ts, the stream's time; did you mean ts\?"),
        ({"slack": {"n": "99%"}}, "the slack of n can't be learned: only that of ts"),
        ({"watermark_clocks": 0}, "at least 1"),
        ({"watermark_by": "devise"}, "did you mean device"),
        ({"watermark_by": "device", "partition": "n"}, "leave out partition or watermark_by"),
        ({"watermark_by": "ts"}, "needs a column with texts, integers, booleans or dates"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    make_engine: EngineFactory, options: dict[str, Any], says: str
) -> None:
    with make_engine() as engine, pytest.raises(SettingError, match=says):
        engine.feed("rows", SCHEMA, **{"time": "ts", **options})


def test_a_learned_slack_in_a_mapping_and_along_numbers(make_engine: EngineFactory) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", "n long, m long", time="n", slack={"n": "99%", "m": 5}, slack_start=100)
        engine.register("SELECT count(*) AS c FROM rows [RANGE 10 SLIDE 10]")
        draw = np.random.default_rng(3)
        times = np.arange(5_000) - draw.integers(0, 50, 5_000)
        for part in np.split(times, 50):
            feed.push(pa.table({"n": part, "m": part}))
            engine.step()
        clocks = engine.progress().streams["rows"].clocks
        assert clocks.slack is not None and clocks.slack < 60
        assert clocks.in_time is not None and clocks.in_time > 0.98


@pytest.mark.parametrize(
    "options", [{"slack": "99%"}, {"slack": "1 minute", "partition": "device"}, {"slack": "1 minute"}]
)
def test_the_slack_of_a_time_is_none_of_an_integer_column(
    make_engine: EngineFactory, options: dict[str, Any]
) -> None:
    with make_engine() as engine:
        feed = engine.feed("rows", f"{SCHEMA}, seq long", time="ts", max_ahead=None, **options)
        query = engine.register("SELECT count(*) AS n FROM rows [RANGE 10 SLIDE 10 WATTR seq]")
        for start in range(0, 40, 10):
            feed.push([("a", 1, START + 1000 * seq, seq) for seq in range(start, start + 10)])
            engine.step()
        assert [row["n"] for row in query.results().to_pylist()] == [10, 10, 10]
