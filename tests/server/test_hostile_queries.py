"""Hostile queries over HTTP, beside a hundred healthy ones: none of them hurts another.

Each case is registered through the API, and a batch runs with it unless it is refused. A case is refused, suspended or
harmless; the results of the healthy queries are those of a run without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

import transom
from tests.engine_factory import EngineFactory
from transom.runtime.handles import Feed
from transom.web_service import serving

WINDOW = "[RANGE 1 minute SLIDE 1 minute]"
SCHEMA = "name string, v int, price double, ts timestamp"
A_TEXT = "a" * 60
DEADLINE = 2.0  # seconds
PATIENCE = 10.0  # until another worker process runs on a busy machine
ATTEMPTS = 6  # at a batch whose newest query is the culprit: at most four, and a batch may take a bit longer


def where(condition: str) -> str:
    return f"SELECT count(*) AS n FROM s {WINDOW} WHERE {condition}"


def value(expression: str) -> str:
    return f"SELECT max({expression}) AS m FROM s {WINDOW}"


def item(expression: str) -> str:
    return f"SELECT {expression} AS m FROM s {WINDOW}"


def windows(text: str) -> str:
    return f"SELECT count(*) AS n FROM s [{text}]"


def chain(count: int) -> str:
    return "%".join(["", *"a" * count, "b"])


REFUSED = {
    "a slide of a second for 100 years": windows("RANGE 36500 days SLIDE 1 second"),
    "years without a length": windows("RANGE 100 years SLIDE 1 second"),
    "a slide of a millisecond for a day": windows("RANGE 1 day SLIDE 1 ms"),
    "a slide of a microsecond": windows("RANGE 1 minute SLIDE 1 microsecond"),
    "a range beyond 64 bits": windows("RANGE 99999999999999999999 seconds SLIDE 1 day"),
    "rows beyond 64 bits": windows("ROWS 99999999999999999999 SLIDE 1"),
    "rows at the edge of 64 bits": windows("ROWS 9223372036854775807 SLIDE 1"),
    "a slide beyond 64 bits": windows("ROWS 10 SLIDE 99999999999999999999"),
    "rows by the million for each row": windows("ROWS 100000000 SLIDE 1"),
    "a window call by the millisecond": "SELECT count(*) FROM s GROUP BY window(ts, '1 day', '1 millisecond')",
    "a negative window": windows("RANGE -1 minute SLIDE 1 minute"),
    "a window of nothing": windows("RANGE 0 seconds SLIDE 0 seconds"),
    "a slide of nothing": windows("RANGE 1 minute SLIDE 0 minutes"),
    "2,000 items": f"SELECT {', '.join(f'sum(v+{i}) AS s{i}' for i in range(2000))} FROM s {WINDOW}",
    "sketches for every second of a day": (
        f"SELECT {', '.join(f'approx_count_distinct(v+{i}) AS s{i}' for i in range(20))} "
        "FROM s [RANGE 1 day SLIDE 1 second]"
    ),
    "a thousand parentheses": value("(" * 1000 + "v" + ")" * 1000),
    "a thousand calls": value("abs(" * 1000 + "v" + ")" * 1000),
    "a thousand minuses": value("- " * 1000 + "v"),
    "a thousand negations": where("NOT " * 1000 + "v > 1"),
    "a thousand conditions": where(" AND ".join(f"v > {i}" for i in range(1000))),
    "a thousand additions": value("v" + " + 1" * 1000),
    "a thousand cases": value("CASE WHEN v > 1 THEN 1 ELSE " * 1000 + "v" + " END" * 1000),
    "replace of replace": value("replace(" * 6 + "name" + ", 'a', 'aaaaaaaaaa')" * 6),
    "hex of hex": value("hex(" * 20 + "name" + ")" * 20),
    "repeat": value("repeat(name, 2000000000)"),
    "lpad": value("lpad(name, 2000000000, 'x')"),
    "space": value("space(2000000000)"),
    "a sequence": value("size(sequence(1, 2000000000))"),
    "an array of repetitions": value("size(array_repeat(v, 2000000000))"),
    "a group that repeats a repetition": where("name RLIKE '(a+)+b'"),
    "a choice that repeats": where("name RLIKE '(a|a)*b'"),
    "a reference back": where(r"name RLIKE '(a*)\\1b'"),
    "no regular expression": where("name RLIKE '('"),
    "an unknown function": value("no_such_function(v)"),
    "an unknown column": value("no_such_column"),
    "a number that is none": value("1e308.8"),
    "a decimal of 99 digits": value("CAST(v AS DECIMAL(99, 2))"),
    "an aggregate in an aggregate": value("sum(v)"),
    "a window in a window": value("row_number() OVER (ORDER BY v)"),
    "a subquery": value("(SELECT max(v) FROM s)"),
    "a file": "SELECT count(*) FROM parquet.`/etc/passwd`" + WINDOW,
    "a variable of the environment": value("'${env:HOME}'"),
    "two statements": where("v > 1") + "; DROP SUMMARY x",
    "half a query": "SELECT count(*) AS n FROM",
    "nothing": " ",
    "an open string": where("name = 'a"),
    "a null character": where("name = '\x00' AND"),
}
SUSPENDED = {
    "WHERE with a broken pattern": where("name RLIKE concat('(', name)"),
    "a broken pattern in an aggregate": value("CASE WHEN name RLIKE concat('[', name) THEN 1 END"),
    "a broken pattern in a group": f"SELECT count(*) FROM s {WINDOW} GROUP BY name RLIKE concat('*', name)",
    "a broken pattern in FILTER": f"SELECT count(*) FILTER (WHERE name RLIKE concat('+', name)) AS n FROM s {WINDOW}",
    "a broken pattern in the SELECT list": item("max(name) RLIKE concat('(', max(name))"),
    "a broken pattern in HAVING": f"SELECT count(*) AS n FROM s {WINDOW} HAVING max(name) RLIKE concat('(', max(name))",
    "a broken pattern in a lookup": "SELECT count(*) FROM s [RANGE 1 minute] WHERE name RLIKE concat('(', name)",
    "a map with a null key": value("element_at(map(name, 1), 'a')"),
    "a repetition that never ends": where("name RLIKE '(.*a){25}b'"),
}
HARMLESS = {
    "a chain of LIKE": where(f"name LIKE '{chain(25)}'"),
    "a lookup beyond 64 bits": windows("RANGE 99999999999999999999 seconds"),
    "an index of zero": value("element_at(array(v), 0)"),
    "an index of a text": value("element_at(array(v), v)"),
    "a division by zero": value("v / 0"),
    "a remainder of zero": value("v % 0"),
    "an infinite power": value("pow(1e300, 99)"),
    "a date of the year 5,000,000": value("date_add(date'2020-01-01', 2000000000)"),
    "a sum of the largest numbers": item("sum(9223372036854775807 + v)"),
    "a shift by more than there are bits": value("shiftleft(v, 1000000)"),
    "a decimal that overflows": value("CAST(1e37 AS DECIMAL(38, 0)) * CAST(1e37 AS DECIMAL(38, 0))"),
    "a cast of a text": value("CAST(name AS INT)"),
    "a time zone that is none": value("CAST(concat(name, ' 12:00') AS TIMESTAMP)"),
    "a hundred conditions": where(" OR ".join(f"name LIKE '%x{i}%'" for i in range(100))),
}
CASES = {**REFUSED, **SUSPENDED, **HARMLESS}
FEW_THAT_RUN = ("WHERE with a broken pattern", "a division by zero")

HEALTHY = {
    **{f"sum{i}": f"SELECT sum(v * {i}) AS n FROM s {WINDOW}" for i in range(40)},
    **{f"some{i}": f"SELECT count(*) AS n FROM s {WINDOW} WHERE v > {i % 4}" for i in range(30)},
    **{
        f"text{i}": f"SELECT name, count(*) AS n FROM s {WINDOW} WHERE name LIKE '%a{i % 3}%' GROUP BY name"
        for i in range(10)
    },
    **{
        f"long{i}": f"SELECT avg(price) AS n FROM s [RANGE {i + 2} minutes SLIDE 1 minute]" for i in range(20)
    },
}


def rows(minute: int) -> list[tuple[Any, ...]]:
    at = f"2013-01-01 {12 + minute // 60:02d}:{minute % 60:02d}"
    names = (A_TEXT, None, "a1", f"a2 {minute}")
    return [(name, i, 1.5 * minute, f"{at}:{i:02d}") for i, name in enumerate(names)]


def results(engine: transom.Engine) -> dict[str, list[dict[str, Any]]]:
    left = ("made", "latency")
    return {
        name: sorted(
            (
                {key: cell for key, cell in row.items() if key not in left}
                for row in engine.query(name).results().to_pylist()
            ),
            key=repr,
        )
        for name in HEALTHY
    }


@dataclass
class Run:
    """What became of each case, how long its batch took, and what the healthy queries answered."""

    outcomes: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    batches: int = 0
    usual: float = 0.0  # seconds of the longest batch that did not fail


def run(engine: transom.Engine, feed: Feed, cases: Mapping[str, str]) -> Run:
    """Register each case through the API, and run a batch with it."""
    done, names = Run(), dict[str, str]()

    def batch() -> float:
        suspended, started = len(engine.progress().suspended), time.monotonic()
        feed.push(rows(done.batches))
        engine.step()
        done.batches += 1
        seconds = time.monotonic() - started
        if len(engine.progress().suspended) == suspended:
            done.usual = max(done.usual, seconds)
        return seconds

    engine.register_all(HEALTHY)
    batch()
    with serving(engine, start=False) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        for case, sql in cases.items():
            answer = client.post("/api/queries", json={"sql": sql, "name": f"case{len(names)}"})
            assert answer.status_code in (201, 400), (case, answer.text)
            if answer.status_code == 400:
                assert answer.json()["error"]["message"], case
                done.outcomes[case] = "refused"
                continue
            names[case] = f"case{len(names)}"
            done.seconds[case] = batch()
    batch()  # a window of the last case closes
    for case, name in names.items():
        reason = engine.query(name).suspended
        done.outcomes[case] = "harmless" if reason is None else "suspended"
        if reason is not None:
            done.suspended[case] = reason
    done.suspended |= {n: r for n, r in engine.progress().suspended.items() if not n.startswith("case")}
    done.results = results(engine)
    return done


def run_locally(cases: Mapping[str, str]) -> Run:
    with transom.Engine(backend="local", batch_deadline=f"{DEADLINE} seconds", sync=False) as engine:
        return run(engine, engine.feed("s", SCHEMA, time="ts"), cases)


@pytest.fixture(scope="module")
def disturbed() -> Run:
    return run_locally(CASES)


@pytest.fixture(scope="module")
def disturbed_a_little() -> Run:
    return run_locally({case: CASES[case] for case in (*REFUSED, *FEW_THAT_RUN)})


def check_outcome(done: Run, case: str) -> None:
    expected = "refused" if case in REFUSED else "suspended" if case in SUSPENDED else "harmless"
    assert done.outcomes[case] == expected
    assert done.seconds.get(case, 0.0) < DEADLINE + ATTEMPTS * done.usual + PATIENCE


@pytest.mark.parametrize("case", [*REFUSED, *FEW_THAT_RUN])
def test_a_hostile_query_is_refused_or_one_of_a_few_that_run(disturbed_a_little: Run, case: str) -> None:
    check_outcome(disturbed_a_little, case)


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES)
def test_a_hostile_query_is_refused_suspended_or_harmless(disturbed: Run, case: str) -> None:
    check_outcome(disturbed, case)


def test_there_are_at_least_sixty_cases_and_a_hundred_healthy_queries() -> None:
    assert len(CASES) >= 60 and len(HEALTHY) == 100


def test_the_healthy_queries_answer_as_if_few_hostile_ones_were_not_there(disturbed_a_little: Run) -> None:
    assert set(disturbed_a_little.suspended) == set(SUSPENDED).intersection(FEW_THAT_RUN)
    check_healthy(disturbed_a_little)


@pytest.mark.faults
def test_the_healthy_queries_answer_as_if_they_were_alone(disturbed: Run) -> None:
    assert set(disturbed.suspended) == set(SUSPENDED)
    check_healthy(disturbed)


def check_healthy(disturbed: Run) -> None:
    with transom.Engine(backend="local", sync=False) as engine:
        feed = engine.feed("s", SCHEMA, time="ts")
        engine.register_all(HEALTHY)
        for minute in range(disturbed.batches):
            feed.push(rows(minute))
            engine.step()
        alone = results(engine)
    assert all("\n" not in reason for reason in disturbed.suspended.values())
    for name in HEALTHY:
        assert disturbed.results[name] == alone[name], name


ON_SPARK = {
    "an index of zero": value("element_at(array(length(soundex(name))), 0)"),
    "an address that is none": value("url_decode(concat('%', name))"),
    "a pattern of weeks": value("date_format(ts, 'YYYY')"),
    "a time zone that is none": value("from_utc_timestamp(ts, name)"),
    "a group that is not there": value("regexp_extract(name, 'a', 5)"),
    "a null in a map": item("max(map_keys(map(soundex(name), 1))[0])"),
    "a format of a number": item("to_number(max(name), '99')"),
    "HAVING with an index of zero": f"SELECT count(*) AS n FROM s {WINDOW} HAVING "
    "element_at(array(length(soundex(max(name)))), 0) > 1",
    # Compiled expressions are null where Spark raises an error.
    "a compiled index of zero": value("element_at(array(v), 0)"),
    "a compiled null in a map": item("max(map_keys(map(name, 1))[0])"),
}


@pytest.mark.faults
@pytest.mark.backends("spark", reason="functions that only Spark has")
def test_hostile_queries_on_spark(make_engine: EngineFactory) -> None:
    engine = make_engine()
    done = run(engine, engine.feed("s", SCHEMA, time="ts"), ON_SPARK)
    assert set(done.outcomes.values()) <= {"suspended", "harmless"}
    assert set(done.suspended) <= set(ON_SPARK) and len(done.suspended) >= 6
    assert {name for name in done.suspended if "compiled" in name} == set()
    check_healthy(done)  # the local backend answers the same
