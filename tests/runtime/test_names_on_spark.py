"""Names in GROUP BY, HAVING and ORDER BY refer to the same items, keys and columns as in Spark."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.engine_factory import ON_BOTH, EngineFactory
from transom.errors import SQLError

pytestmark = [pytest.mark.comparison, ON_BOTH]

SCHEMA = "ts timestamp, k string, b boolean, v int, x int, total int"
CASES = (
    "SELECT k AS v, sum(x) AS k FROM drawn GROUP BY k ORDER BY k DESC LIMIT 2",
    "SELECT k AS v, sum(x) AS k FROM drawn GROUP BY k HAVING k IS NOT NULL",
    "SELECT b AS x, x AS b, count(*) AS c FROM drawn GROUP BY b, x ORDER BY x DESC, b DESC LIMIT 3",
    "SELECT NOT b AS b, count(*) AS c FROM drawn GROUP BY b ORDER BY b DESC LIMIT 1",
    "SELECT NOT b AS b, count(*) AS c FROM drawn GROUP BY b ORDER BY 1 DESC LIMIT 1",
    "SELECT -v AS v, count(*) AS c FROM drawn GROUP BY -v ORDER BY -v LIMIT 2",
    "SELECT NOT b AS b, count(*) AS c FROM drawn GROUP BY b HAVING b",
    "SELECT max(v) AS window, k FROM drawn GROUP BY k HAVING window > 3",
    "SELECT v > 5 AS k, count(*) AS window FROM drawn GROUP BY v > 5 ORDER BY window DESC, k LIMIT 1",
    "SELECT v AS g, count(*) AS c FROM drawn GROUP BY ROLLUP(g)",
    "SELECT k, v > 2 AS big, sum(v) AS n FROM drawn GROUP BY ROLLUP (k, v > 2) HAVING big",
    "SELECT k, v > 2 AS big, sum(v) AS n FROM drawn GROUP BY GROUPING SETS (v > 2, (k, v > 2), k)",
    "SELECT k AS v, sum(x) AS k FROM drawn GROUP BY ROLLUP(k) ORDER BY k DESC LIMIT 3",
    "SELECT k, b, count(*) AS c FROM drawn GROUP BY k, b ORDER BY ALL LIMIT 5",
    "SELECT k, b, count(*) AS c FROM drawn GROUP BY k, b ORDER BY ALL DESC NULLS FIRST LIMIT 5",
    "SELECT v > 2 AS g, v > 5 AS h, sum(v) AS a FROM drawn GROUP BY v > 5, v > 2 HAVING g AND NOT h AND a > 2",
    # The names in HAVING over grouping sets are those of columns if Spark has the types without calls and casts.
    "SELECT v IS NULL AS k, k AS total, count(*) AS c FROM drawn GROUP BY ROLLUP(v IS NULL, k) HAVING k IS NOT NULL",
    "SELECT sum(x) AS k, b AS z FROM drawn GROUP BY ROLLUP(k, b) HAVING k > 'a'",
    "SELECT sum(x) AS k, b AS z FROM drawn GROUP BY ROLLUP(k, b) HAVING k > 30 AND count(*) > 0",
    "SELECT sum(x) AS k, b AS z FROM drawn GROUP BY GROUPING SETS ((k), (k, b)) HAVING k > 30 AND count(*) > 0",
    "SELECT b AS k, k AS z, count(*) AS c FROM drawn GROUP BY ROLLUP(k, b) HAVING k IS NULL AND count(*) > 0",
    "SELECT b AS k, k AS z, count(*) AS c FROM drawn GROUP BY ROLLUP(k, b) HAVING grouping_id() = 0 AND k IS NULL",
    "SELECT b AS k, k AS z, sum(x) AS c FROM drawn GROUP BY ROLLUP(k, b) HAVING drawn.k = 'a'",
    "SELECT k AS v, v AS k, sum(v) AS c FROM drawn GROUP BY CUBE(k, v) HAVING k = 'a' AND v > 2",
    "SELECT k, sum(x) AS v FROM drawn GROUP BY ROLLUP(k) HAVING v > 100",
    "SELECT k, sum(x) AS v FROM drawn GROUP BY ROLLUP(k) HAVING sum(v) > 3 AND max(k) > 'a'",
    "SELECT v IS NULL AS v, count(*) AS c FROM drawn GROUP BY ROLLUP(v IS NULL) HAVING v IS NULL",
    "SELECT sum(x) AS b, bool_or(b) AS v FROM drawn GROUP BY CUBE(b AND v > 2) HAVING (b AND v > 2) IS NULL",
    "SELECT sum(x) AS k FROM drawn GROUP BY ROLLUP(k IN ('a', 'b')) HAVING k IN ('a', 'b')",
    "SELECT sum(x) AS k, upper(k) AS z FROM drawn GROUP BY ROLLUP(upper(k)) HAVING k > 30 AND upper(k) > '2'",
    "SELECT sum(x) AS v FROM drawn GROUP BY ROLLUP(v > 5) HAVING v > 5",
    "SELECT sum(x) AS v FROM drawn GROUP BY ROLLUP(v > 5) HAVING v > 5 AND count(*) > 0",
    "SELECT v > 5 AS total, max(x) AS x FROM drawn GROUP BY CUBE(v > 5, total) HAVING x > 3 AND total IS NULL",
    # ORDER BY over grouping sets reads the expanded rows.
    "SELECT b AS k, k AS z, sum(x) AS c FROM drawn GROUP BY ROLLUP(k, b) ORDER BY drawn.k DESC, 1, 2, 3 LIMIT 3",
    "SELECT k AS z, count(DISTINCT k) AS c FROM drawn GROUP BY CUBE(k, b) ORDER BY count(DISTINCT k), 2, 1 LIMIT 4",
    "SELECT k AS z, bool_and(b) AS c FROM drawn GROUP BY CUBE(b, k) ORDER BY bool_and(NOT b), 1, 2 LIMIT 5",
    "SELECT k AS z, max(v) AS c FROM drawn GROUP BY CUBE(v, k) ORDER BY count(*) FILTER (WHERE v > 3), 1, 2 LIMIT 5",
    "SELECT NOT b AS y, count(*) AS c FROM drawn GROUP BY ROLLUP(NOT b, b) ORDER BY NOT b, 1, 2 LIMIT 3",
    "SELECT v % 3 AS z, sum(v) AS c, v AS k FROM drawn GROUP BY ROLLUP(v % 3, v) ORDER BY v % 3, 1, 2, 3 LIMIT 3",
    # `v IS NOT NULL` does not contain `v IS NULL`.
    "SELECT v IS NULL AS g, max(x) AS v FROM drawn GROUP BY v IS NULL HAVING v IS NOT NULL",
    "SELECT v IS NULL AS g, max(x) AS v FROM drawn GROUP BY v IS NULL HAVING NOT v IS NULL",
    "SELECT v IS NULL AS g, max(x) AS v FROM drawn GROUP BY ROLLUP(v IS NULL) HAVING v IS NOT NULL",
    "SELECT v IS NULL AS g, max(x) AS v FROM drawn GROUP BY ROLLUP(v IS NULL) HAVING NOT v IS NULL",
    "SELECT v IS NULL AS g, max(x) AS v FROM (SELECT * FROM drawn) d GROUP BY v IS NULL HAVING v IS NOT NULL",
    # The condition of FILTER belongs to the aggregate.
    "SELECT k, count(*) FILTER (WHERE b) AS c FROM drawn GROUP BY ROLLUP(k, b)",
    "SELECT k, b, sum(x) AS c FROM drawn GROUP BY CUBE(k, b) HAVING count(*) FILTER (WHERE b) > 3",
    # Over a subquery, names are its columns.
    "SELECT sum(x) AS k, b FROM (SELECT * FROM drawn) d GROUP BY k, b HAVING k > 'a'",
    "SELECT sum(x) AS x, b FROM (SELECT * FROM drawn) d GROUP BY k, b HAVING max(x) > 5 AND x > 30",
    "SELECT upper(k) AS k, b FROM (SELECT * FROM drawn) d GROUP BY upper(k), b HAVING upper(k) > 'A' AND k > 'A'",
    "SELECT sum(x) AS j, b FROM (SELECT v + 1 AS j, b, x FROM drawn) d GROUP BY j + 1, b HAVING j + 1 > 5",
    "SELECT bool_or(b) AS j, b FROM (SELECT v > 5 AND x > 3 AS j, b FROM drawn) d GROUP BY b HAVING j",
    "SELECT sum(x) AS j, b FROM (SELECT upper(k) AS j, b, x FROM drawn) d GROUP BY ROLLUP(j, b) HAVING j IS NULL",
    "SELECT sum(x) AS j FROM (SELECT upper(k) AS j, x FROM drawn) d GROUP BY ROLLUP(j) HAVING j > 9 AND max(x) > 1",
)
WINDOW = " [RANGE 1 day SLIDE 1 day]"
KEYS = (
    "k",
    "b",
    "v > 5",
    "v % 3",
    "NOT b",
    "upper(k)",
    "v IS NULL",
    "b AND v > 2",
    "k IN ('a', 'b')",
    "total",
)
AGGREGATES = ("count(*)", "sum(v)", "max(x)", "count(DISTINCT k)", "bool_and(b)", "sum(v) + 5", "max(v) > 5")
NAMES = ("k", "b", "v", "x", "total", "upper", "count", "g", "a0", "window", "max")


def drawn_rows(draw: random.Random) -> list[tuple[Any, ...]]:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return [
        (
            start + timedelta(seconds=number),
            draw.choice(["a", "b", "c", None]),
            draw.choice([True, False, None]),
            draw.choice([None, *range(-3, 10)]),
            draw.randint(0, 9),
            draw.randint(0, 3),
        )
        for number in range(60)
    ]


def drawn_text(draw: random.Random) -> str:
    """A query whose aliases are names of columns and functions, too."""
    keys = draw.sample(KEYS, draw.randint(1, 2))
    expressions = [*keys, *draw.sample(AGGREGATES, draw.randint(1, 2))]
    names = draw.sample(NAMES, len(expressions))
    places = [str(place + 1) for place in range(len(expressions))]

    def written(at: int) -> str:
        return draw.choice([names[at], f"({expressions[at]})", names[at]])

    items = ", ".join(f"{expression} AS {name}" for expression, name in zip(expressions, names, strict=True))
    group = ", ".join(draw.choice([key, place]) for key, place in zip(keys, places, strict=False))
    if draw.random() < 0.2:
        group = f"{draw.choice(['ROLLUP', 'CUBE'])}({', '.join(keys)})"
    conditions = [
        f"{written(draw.randrange(len(names)))} IS {draw.choice(['', 'NOT '])}NULL" for _ in range(2)
    ]
    having = draw.choice(["", f" HAVING {draw.choice([' AND ', ' OR ']).join(conditions)}"])
    order = ""
    if draw.random() < 0.5:  # by all items at last, so that no rows are equal
        first = written(draw.randrange(len(names))) + draw.choice(["", " DESC", " DESC NULLS FIRST"])
        order = f" ORDER BY {', '.join([first, *places])} LIMIT {draw.randint(1, 4)}"
    return f"SELECT {items} FROM drawn GROUP BY {group}{having}{order}"


def windowed(text: str) -> str:
    """The query with its window, which is behind a subquery."""
    source = ") d" if "FROM (" in text else "FROM drawn"
    return text.replace(source, source + WINDOW, 1)


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, zip(*table.to_pydict().values(), strict=True)))


@pytest.mark.timeout(0)
def test_names_refer_to_what_they_refer_to_in_spark(
    make_engine: EngineFactory, spark_without_ansi: Any, seed: int
) -> None:
    draw = random.Random(seed)
    rows, texts = drawn_rows(draw), [*CASES, *(drawn_text(draw) for _ in range(60))]
    engine = make_engine()
    feed = engine.feed("drawn", SCHEMA, time="ts", slack="1 hour")
    queries = {}
    for text in texts:
        try:
            queries[text] = engine.register(windowed(text))
        except SQLError:
            assert text not in CASES
    feed.push(rows)
    engine.step()
    engine.flush("drawn")
    engine.step(empty=True)
    spark_without_ansi.createDataFrame(rows, SCHEMA).createOrReplaceTempView("drawn")
    compared = 0
    for text, query in queries.items():
        try:
            theirs: pa.Table = spark_without_ansi.sql(text).toArrow()
        except Exception:  # Spark refuses ORDER BY over columns that an alias hides
            assert text not in CASES
            continue
        ours = query.results().select(theirs.column_names).cast(theirs.schema)
        assert counted(ours) == counted(theirs), text
        compared += 1
    assert compared > len(CASES) + 20
