"""Event times that are expressions: numbers since 1970, fields, and text in a form of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory, on_spark
from transom.errors import SettingError, SQLError

MINUTE = 60_000_000
PER_MINUTE = "SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]"
TIMES = [0, 10_000_000, 70_000_000, None, 125_000_000]
EXPECTED = [(0, 2), (60_000_000, 1), (120_000_000, 1)]

# The schema, the declared time, its unit, how a row tells a time in microseconds, and the call of window().
FORMS: dict[str, tuple[str, str, str | None, Any, str]] = {
    "seconds": ("t bigint", "t", "s", lambda us: us // 1_000_000, "timestamp_seconds(t)"),
    "milliseconds": ("t bigint", "t", "milliseconds", lambda us: us // 1_000, "timestamp_millis(t)"),
    "microseconds of an int": ("t bigint", "T", "us", lambda us: us, "timestamp_micros(T)"),
    "a call": ("t bigint", "timestamp_millis(t)", None, lambda us: us // 1_000, "timestamp_millis( `t` )"),
    "a field": ("e struct<ts: timestamp, k: int>", "e.ts", None, lambda us: {"ts": us, "k": 1}, "s.e.ts"),
    "a number in a field": (
        "e struct<at: bigint>", "e.at", "ms", lambda us: {"at": us // 1_000}, "timestamp_millis(e.at)"
    ),
    "text in parts": (
        "t string",
        "to_timestamp(concat('1970-01-01 ', t))",
        None,
        lambda us: f"00:{us // MINUTE:02}:{us % MINUTE // 1_000_000:02}",
        "to_timestamp(concat('1970-01-01 ', t))",
    ),
}  # fmt: skip


def rows_of(schema: str, told: Any) -> list[dict[str, Any]]:
    name = schema.split()[0]
    return [{name: None if time is None else told(time), "v": 1} for time in TIMES]


def arrow_of(schema: str, rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {
        "t bigint": pa.int64(),
        "t string": pa.string(),
        "e struct<ts: timestamp, k: int>": pa.struct([("ts", pa.timestamp("us", "UTC")), ("k", pa.int32())]),
        "e struct<at: bigint>": pa.struct([("at", pa.int64())]),
    }
    name = schema.split()[0]
    return pa.table(
        {
            name: pa.array([row[name] for row in rows], kinds[schema]),
            "v": pa.array([1] * len(rows), pa.int32()),
        }
    )


def counts(query: Any) -> list[tuple[int, int]]:
    starts = query.results()["window_start"].cast(pa.int64()).to_pylist()
    return sorted(zip(starts, query.results()["n"].to_pylist(), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_pushed_rows_have_the_declared_time(make_engine: EngineFactory, tmp_path: Path, form: str) -> None:
    check_pushed_rows(make_engine, tmp_path, form)


@on_spark("three forms are enough for a backend that takes seconds")
@pytest.mark.parametrize("form", ["milliseconds", "a field", "text in parts"])
def test_pushed_rows_have_the_declared_time_on_spark(
    make_engine: EngineFactory, tmp_path: Path, form: str
) -> None:
    check_pushed_rows(make_engine, tmp_path, form)


def check_pushed_rows(make_engine: EngineFactory, tmp_path: Path, form: str) -> None:
    schema, time, unit, told, call = FORMS[form]
    engine = make_engine(tmp_path)
    feed = engine.feed("s", f"{schema}, v int", time=time, time_unit=unit)
    bracket = engine.register(PER_MINUTE, "bracket")
    by_call = engine.register(f"SELECT count(*) AS n FROM s GROUP BY window({call}, '1 minute')", "by_call")
    newest = engine.register(
        "SELECT max(event_time) AS t, count(*) AS n FROM s [RANGE 1 hour SLIDE 1 hour WATTR event_time]"
    )
    feed.push(arrow_of(schema, rows_of(schema, told)))
    engine.step()
    engine.flush("s")
    engine.step(empty=True)
    assert counts(bracket) == counts(by_call) == EXPECTED
    assert newest.results()["t"].cast(pa.int64()).to_pylist() == [125_000_000]
    assert engine.progress().streams["s"].rejected == 1, "a row without a time"


@ON_BOTH
def test_files_are_read_by_the_declared_time_and_a_restart_continues(
    make_engine: EngineFactory, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = [{"event": {"at": number * 90_000 + i * 1_000}, "v": i} for i in range(30)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))
        engine = make_engine(tmp_path / "checkpoint")
        schema = "event struct<at: bigint>, v int"
        engine.stream(
            "s", str(tmp_path / "in"), time="event.at", time_unit="ms", format="json", schema=schema
        )
        query = engine.query("q") if number else engine.register(PER_MINUTE, "q")
        engine.drain()
        if not number:
            engine.stop()
    engine.flush("s")
    engine.step(empty=True)
    assert counts(query) == [(0, 30), (60_000_000, 30)]


@pytest.mark.parametrize(
    ("time", "unit", "message"),
    [
        ("ts", None, "the stream s has no column ts"),
        ("t", "minutes", "unknown time_unit 'minutes': s, ms, us"),
        ("name", "ms", "time_unit is for numbers since 1970, and name is string: leave it out"),
        ("timestamp_millis(x)", None, "the time of s, timestamp_millis(x): unknown column x"),
        ("price", None, "windows need a time or an integer"),
        ("price * 2", None, "windows need a time or an integer"),
    ],
)
def test_a_wrong_time_is_refused(
    make_engine: EngineFactory, tmp_path: Path, time: str, unit: str | None, message: str
) -> None:
    with pytest.raises(
        SettingError, match=message.replace("(", r"\(").replace(")", r"\)").replace("*", r"\*")
    ):
        make_engine(tmp_path).feed("s", "t bigint, name string, price double", time=time, time_unit=unit)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("window(timestamp_seconds(t), '1 minute')", "declare the stream with time='timestamp_seconds(t)'"),
        ("window(u, '1 minute')", "declare the stream with time='u', time_unit='ms'"),
        (
            "window(t, '1 minute')",
            "write window(event_time, ...) for the event time that the stream makes of it",
        ),
        ("session_window(t, '1 minute')", "write session_window(event_time, ...) for the event time"),
    ],
)
def test_another_expression_in_window_says_how_to_declare_it(
    make_engine: EngineFactory, tmp_path: Path, call: str, message: str
) -> None:
    engine = make_engine(tmp_path)
    engine.feed("s", "t bigint, u bigint", time="t", time_unit="ms")
    with pytest.raises(SQLError) as refused:
        engine.register(f"SELECT count(*) FROM s GROUP BY {call}")
    assert message in refused.value.message


def test_a_column_of_that_name_stays_what_it_is(make_engine: EngineFactory, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    feed = engine.feed("s", "t bigint, event_time string", time="t", time_unit="s")
    query = engine.register(
        "SELECT max(event_time) AS e, max(transom_event_time) AS t FROM s [RANGE 1 minute SLIDE 1 minute]"
    )
    feed.push([(5, "late"), (65, "x")])
    engine.step()
    (row,) = query.results().to_pylist()
    assert (row["e"], row["t"].second) == ("late", 5)
