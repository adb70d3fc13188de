"""Mutated texts through parse, bind and plan: only the project's own errors, each text in bounded time."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import transom
from tests.engine_factory import ON_BOTH, EngineFactory
from tests.sql.mutated_texts import QUERIES, SCHEMA, STATEMENTS, mutated
from transom.backends.local.backend import LocalBackend
from transom.sql import bind_summary
from transom.sql.catalog import Catalog, Relation
from transom.sql.clauses.summary import read_statement

TEXTS = int(os.environ.get("TRANSOM_FUZZ_TEXTS", "3000"))  # `make fuzz` takes a million
SPARK_TEXTS = 300  # analysed by Spark, which takes longer
MOST_SECONDS = 10.0  # of processor time, for one text
HUGE_NUMBERS = ("9" * 5000, "9" * 4300, f"0.{'0' * 5000}1", f"{'9' * 5000}.5", "1e9999999999", "9" * 25)

SITES1 = "CREATE SUMMARY sites1 ON bids(site) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"


@pytest.fixture(scope="module")
def engine(make_engine: EngineFactory) -> Iterator[transom.Engine]:
    engine = make_engine()
    engine.feed("bids", SCHEMA, time="ts", retain="7 days")
    engine.table("sites", [{"site": 1, "name": "a"}])
    engine.execute(SITES1)
    engine.register(
        "SELECT site, count(*) AS n FROM bids [RANGE 2 min SLIDE 1 min] GROUP BY site", "per_site"
    )
    yield engine
    engine.stop()


def planned(engine: transom.Engine, text: str) -> bool:
    """Whether a text can be planned; an error that is not the project's own, or a long time, fails the test."""
    started = time.process_time()
    try:
        engine.check(text)
        engine.explain_text(text)
        is_planned = True
    except transom.TransomError as error:
        assert str(error)
        is_planned = False
    assert time.process_time() - started < MOST_SECONDS, text
    return is_planned


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The names that a statement can use, as the engine has them."""
    bids = Catalog({"bids": Relation("bids", LocalBackend().parse_schema(SCHEMA), "ts")})
    return replace(bids, summaries={"sites1": bind_summary(SITES1, bids)})


def summarized(catalog: Catalog, text: str) -> bool:
    """Whether a text is a statement that can be run."""
    try:
        return read_statement(text) is not None and bool(bind_summary(text, catalog))
    except transom.TransomError as error:
        assert str(error)
        return False


@pytest.mark.parametrize("text", QUERIES)
def test_the_texts_that_are_mutated_are_valid(engine: transom.Engine, text: str) -> None:
    assert planned(engine, text), engine.check(text)


@ON_BOTH
@pytest.mark.timeout(0)
def test_a_mutated_text_has_only_errors_of_the_project(
    make_engine: EngineFactory, engine: transom.Engine, seed: int
) -> None:
    draw = random.Random(seed)
    count = TEXTS if make_engine.session is None else min(TEXTS, SPARK_TEXTS)
    for _ in range(count):
        check(mutated(draw, QUERIES), lambda text: planned(engine, text))


@pytest.mark.timeout(0)
def test_a_mutated_statement_has_only_errors_of_the_project(catalog: Catalog, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(TEXTS):
        check(mutated(draw, STATEMENTS), lambda text: summarized(catalog, text))


def with_number(text: str, number: str) -> Iterator[str]:
    """The text with each of its numbers replaced, one at a time; also those in quotes."""
    for found in re.finditer(r"(?<![\w.])\d+(\.\d+)?", text):
        yield text[: found.start()] + number + text[found.end() :]


@pytest.mark.parametrize("number", HUGE_NUMBERS, ids=lambda number: f"{number[:4]}_{len(number)}")
def test_a_huge_number_in_any_place_has_only_errors_of_the_project(
    engine: transom.Engine, catalog: Catalog, number: str
) -> None:
    for query in QUERIES:
        for text in with_number(query, number):
            check(text, lambda text: planned(engine, text))
    for statement in STATEMENTS:
        for text in with_number(statement, number):
            check(text, lambda text: summarized(catalog, text))


def check(text: str, run: Any) -> None:
    try:
        run(text)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} for {text!r}") from error


@ON_BOTH
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT max(price) FROM bids [RANGE 5 min] USING timegram(1e308.8)", "1e308.8 is not a number"),
        ("SELECT max(price) FROM bids [RANGE 5 min] USING timegram(4E)", "4E is not a number"),
        ("SELECT sum(price) FROM bids [RANGE 5 min SLIDE 1 min] EMIT EARLY AT 4E% OF SLIDE", "4E is not"),
        ("SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE price > 4E", "4E is not a number"),
        (
            "SELECT sum(CAST(kind AS DECIMAL(99999999999999999999, 6))) FROM bids [RANGE 1 min SLIDE 1 min]",
            ".",
        ),
        ("SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE ts > ts - INTERVAL 0.1 MINUTES", "."),
        (f"SELECT price FROM bids WITH PREFERENCE desc {'1 + ' * 500}price", "at most 100 operands"),
        ("SELECT sum(price) FROM bids [RANGE 5 min] WITHIN 1e999999999 USING timegram(64)", "largest double"),
        ("SELECT sum(price) FROM bids [RANGE 5 min] WITHIN 1e-999999999 USING timegram(64)", "like 5%"),
        (
            f"SELECT sum(price) FROM bids [RANGE 5 min] WITHIN 1e{'9' * 40} USING timegram(64)",
            "largest double",
        ),
        (f"SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE price > {'9' * 39}", "."),
        (f"SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE price > {'9' * 400}", "."),
        (f"SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE price > {'9' * 5000}", "."),
        (f"SELECT sum(price * {'9' * 5000}) FROM bids [RANGE 1 min SLIDE 1 min]", "."),
        (f"SELECT count(*) FROM bids [RANGE {'9' * 400} min SLIDE 1 min]", "RANGE is longer than any stream"),
        (f"SELECT site, count(*) FROM bids [RANGE 1 min SLIDE 1 min] GROUP BY {'9' * 5000}", "."),
        (f"SELECT site, count(*) FROM bids [RANGE 1 min SLIDE 1 min] GROUP BY CUBE (1, {'9' * 5000})", "."),
        (
            f"SELECT site, count(*) FROM bids [RANGE 1 min SLIDE 1 min] GROUP BY site ORDER BY {'9' * 5000} LIMIT 2",
            ".",
        ),
        (f"SELECT sum(CAST(price AS DECIMAL({'9' * 5000}, 2))) FROM bids [RANGE 1 min SLIDE 1 min]", "."),
        (f"SELECT count(*) FROM bids [ROWS {'9' * 5000} SLIDE 1]", "ROWS is longer than any stream"),
        (f"SELECT sum(CAST({'9' * 5000} AS BIGINT)) FROM bids [RANGE 1 min SLIDE 1 min]", "."),
        (f"SELECT {'(' * 5000}1 FROM bids [RANGE 1 min SLIDE 1 min]", "."),
        (f"SELECT count(*) FROM bids [RANGE 1 min SLIDE 1 min] WHERE {'NOT ' * 5000}seen", "."),
    ],
)
def test_a_text_that_raised_something_else_before(engine: transom.Engine, text: str, message: str) -> None:
    with pytest.raises(transom.TransomError, match=message):
        engine.check(text)
