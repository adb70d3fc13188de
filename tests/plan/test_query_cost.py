"""Queries that cost too much are refused before they are registered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import transom
from transom.errors import CostError
from transom.plan.limits import Limits
from transom.runtime.engine import Engine

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SUMMARY = "CREATE SUMMARY big ON s(name) WITH GRANULARITY '1 minute'"


def nested(function: str, times: int, rest: str = "") -> str:
    return f"SELECT max({f'{function}(' * times}name{f'{rest})' * times}) AS m FROM s {WINDOW}"


REFUSED = {
    "windows that slide by a second for 100 years": (
        "SELECT count(*) FROM s [RANGE 36500 days SLIDE 1 second]",
        "3,153,600,000 windows for each row, and the limit is 100,000.* the setting windows_per_row",
    ),
    "windows that slide by a millisecond for a day": (
        "SELECT count(*) FROM s [RANGE 1 day SLIDE 1 ms]",
        "86,400,000 windows for each row",
    ),
    "windows that slide by a microsecond": (
        "SELECT count(*) FROM s [RANGE 1 second SLIDE 1 microsecond]",
        "1,000,000 windows for each row",
    ),
    "a window function": (
        "SELECT count(*) FROM s GROUP BY window(ts, '1 day', '1 millisecond')",
        "86,400,000 windows",
    ),
    "a range beyond 64 bits": (
        "SELECT count(*) FROM s [RANGE 99999999999999999999999 seconds SLIDE 1 day]",
        "longest_window",
    ),
    "a range just below 64 bits": (
        "SELECT count(*) FROM s [RANGE 9223372036854 seconds SLIDE 9223372036854 seconds]",
        "longest_window",
    ),
    "rows beyond 64 bits": ("SELECT count(*) FROM s [ROWS 99999999999999999999 SLIDE 1]", "longest_window"),
    "a slide beyond 64 bits": (
        "SELECT count(*) FROM s [ROWS 5 SLIDE 99999999999999999999]",
        "longest_window",
    ),
    "2,000 items": (
        f"SELECT {', '.join(f'sum(v + {i}) AS s{i}' for i in range(2000))} FROM s {WINDOW}",
        "2,000 columns in its results, and the limit is 1,000",
    ),
    "hex of hex of hex": (nested("hex", 15), "text_bytes"),
    "replace of replace": (nested("replace", 6, ", 'a', 'aaaaaaaaaa'"), "1,000,000,000 bytes in a text"),
    "repeat": (nested("repeat", 1, ", 2000000000"), "text_bytes"),
    "repeat of repeat": (nested("repeat", 3, ", v"), "text_bytes"),
    "rpad": (nested("rpad", 1, ", 2000000000"), "text_bytes"),
    "growth on both sides of an aggregate": (
        f"SELECT {'hex(' * 8}max({'hex(' * 8}name{')' * 17} AS m FROM s {WINDOW}",
        "text_bytes",
    ),
    "concat of itself": (
        nested("concat", 1, ", " + ", ".join(["repeat(name, 1000)"] * 20)),
        "text_bytes",
    ),
    "sketches for every slice": (
        f"SELECT {', '.join(f'approx_count_distinct(v + {i}) AS s{i}' for i in range(20))} "
        "FROM s [RANGE 1 day SLIDE 1 second]",
        "group_bytes",
    ),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with transom.Engine(backend="local") as engine:
        engine.feed("s", "name string, v int, ts timestamp", time="ts")
        # The local backend has no hex; the estimate does not depend on the backend.
        engine.udf("hex", lambda text: text, "string")
        yield engine


@pytest.mark.parametrize("case", REFUSED)
def test_a_query_that_costs_too_much_is_refused(engine: Engine, case: str) -> None:
    sql, message = REFUSED[case]
    with pytest.raises(CostError, match=message):
        engine.register(sql)
    with pytest.raises(CostError, match=message):
        engine.check(sql)
    assert engine.queries() == {}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM s [RANGE 1 day SLIDE 1 second]",
        "SELECT count(*) FROM s [RANGE 36500 days]",
        "SELECT count(*) FROM s [ROWS 1000000 SLIDE 100]",
        nested("hex", 5),
        nested("replace", 2, ", 'a', 'aaaaaaaaaa'"),
        f"SELECT {', '.join(f'sum(v + {i}) AS s{i}' for i in range(500))} FROM s {WINDOW}",
    ],
)
def test_an_honest_query_passes(engine: Engine, sql: str) -> None:
    engine.check(sql)


def test_a_summary_that_takes_too_much_memory_is_refused(engine: Engine) -> None:
    with pytest.raises(CostError, match=r"big would have .* bytes in the cells of a summary.*summary_bytes"):
        engine.execute(f"{SUMMARY} AND BUCKETS 65536 AND COUNTSKETCH(15, 4096)")
    assert engine.summaries() == {}


def test_limits_are_settings() -> None:
    sql = "SELECT count(*) FROM s [RANGE 1 hour SLIDE 1 ms]"
    with transom.Engine(backend="local", limits=Limits(windows_per_row=3_600_000)) as engine:
        engine.feed("s", "name string, v int, ts timestamp", time="ts")
        engine.register(sql)
    with transom.Engine(backend="local", limits=Limits(windows_per_row=3_599_999)) as engine:
        engine.feed("s", "name string, v int, ts timestamp", time="ts")
        with pytest.raises(CostError):
            engine.register(sql)


def test_the_expressions_of_all_queries_of_a_stream_are_limited() -> None:
    def sql(number: int) -> str:
        return f"SELECT sum(v * {number}) AS n FROM s {WINDOW} WHERE v > {number}"

    with transom.Engine(backend="local", limits=Limits(stream_expressions=5)) as engine:
        feed = engine.feed("s", "name string, v int, ts timestamp", time="ts")
        engine.feed("t", "name string, v int, ts timestamp", time="ts")
        engine.register_all({f"q{i}": sql(i) for i in (2, 3)})
        feed.push([("a", 1, "2013-01-01 12:00:00")])
        engine.step()
        engine.register(sql(4), "q4")
        engine.register(sql(5), "q5")  # v, v * 2 and so on: five
        refusal = (
            r"q6 would have 6 expressions for each row of s.* limit is 5.* the setting stream_expressions"
        )
        with pytest.raises(CostError, match=refusal):
            engine.register(sql(6), "q6")
        engine.register(sql(5), "q5")
        engine.register(sql(4).replace("sum", "max"), "like_q4")
        engine.register(sql(6).replace("FROM s", "FROM t"), "q6_of_t")
        engine.query("q2").drop()
        engine.register(sql(6), "q6")


def test_a_day_of_a_zone_by_the_second_is_no_more_than_a_day() -> None:
    day = "SELECT count(*) FROM s [RANGE UP TO 1 day SLIDE 1 second{}]"
    with transom.Engine(backend="local") as engine:
        engine.feed("s", "name string, v int, ts timestamp", time="ts")
        engine.register(day.format(""), "utc")
        engine.register(day.format(" IN TIME ZONE 'Europe/Berlin'"), "berlin")
