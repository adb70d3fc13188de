"""A query over a subquery or over a name of WITH is the query that one would write by hand."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.errors import SQLError
from transom.sql import Query, bind, bind_all, sources_of

WINDOW = "[RANGE 5 min SLIDE 1 min]"
ALIKE = {
    "a filter": (
        f"SELECT site, count(*) AS n FROM (SELECT site FROM Trades WHERE price > 5) {WINDOW} GROUP BY site",
        f"SELECT site, count(*) AS n FROM Trades {WINDOW} WHERE price > 5 GROUP BY site",
    ),
    "a projection": (
        f"SELECT s, sum(value) AS v FROM (SELECT symbol AS s, price * volume AS value FROM Trades) d {WINDOW} GROUP BY s",
        f"SELECT symbol AS s, sum(price * volume) AS v FROM Trades {WINDOW} GROUP BY symbol",
    ),
    "both conditions": (
        f"SELECT count(*) AS n FROM (SELECT * FROM Trades t WHERE t.price > 5 OR t.live) d {WINDOW} WHERE d.site = 1 OR d.site = 3",
        f"SELECT count(*) AS n FROM Trades {WINDOW} WHERE (price > 5 OR live) AND (site = 1 OR site = 3)",
    ),
    "WITH": (
        f"WITH d AS (SELECT *, price * 2 AS twice FROM Trades WHERE live) SELECT max(twice) AS m FROM d {WINDOW} WHERE site > 1",
        f"SELECT max(price * 2) AS m FROM Trades {WINDOW} WHERE live AND site > 1",
    ),
    "definitions that use each other": (
        f"WITH a AS (SELECT * FROM Trades WHERE live), b AS (SELECT site + 1 AS s, ts FROM a x WHERE x.price > 2) SELECT s, count(*) AS n FROM b {WINDOW} GROUP BY s HAVING s > 3",
        f"SELECT site + 1 AS s, count(*) AS n FROM Trades {WINDOW} WHERE live AND price > 2 GROUP BY site + 1 HAVING site + 1 > 3",
    ),
    "a subquery in a subquery": (
        f"SELECT sum(c) AS v FROM (SELECT b * 2 AS c FROM (SELECT price + 1 AS b, live FROM Trades) WHERE live) {WINDOW}",
        f"SELECT sum((price + 1) * 2) AS v FROM Trades {WINDOW} WHERE live",
    ),
    "window()": (
        "SELECT window.start AS w, count(*) AS n FROM (SELECT ts AS t, site FROM Trades) GROUP BY window(t, '5 minutes')",
        "SELECT window.start AS w, count(*) AS n FROM Trades GROUP BY window(ts, '5 minutes')",
    ),
    "WATTR": (
        "SELECT count(*) AS n FROM (SELECT day AS d FROM Trades) x [RANGE 2 days SLIDE 1 day WATTR x.d]",
        "SELECT count(*) AS n FROM Trades [RANGE 2 days SLIDE 1 day WATTR day]",
    ),
    "a join outside": (
        f"SELECT C.sector, sum(p) AS v FROM (SELECT symbol, price AS p FROM Trades WHERE live) d {WINDOW} JOIN Close C ON d.symbol = C.symbol GROUP BY C.sector",
        f"SELECT C.sector, sum(price) AS v FROM Trades d {WINDOW} JOIN Close C ON d.symbol = C.symbol WHERE live GROUP BY C.sector",
    ),
    "fields": (
        f"SELECT max(p.lat) AS a, max(p.Zone.name) AS b FROM (SELECT spot AS p FROM Trades) {WINDOW}",
        f"SELECT max(spot.lat) AS a, max(spot.Zone.name) AS b FROM Trades {WINDOW}",
    ),
    "an alias of the result hides a column in HAVING": (
        f"SELECT sum(v) AS v FROM (SELECT volume AS v FROM Trades) {WINDOW} HAVING v > 5",
        f"SELECT sum(volume) AS v FROM Trades {WINDOW} HAVING v > 5",
    ),
    "on demand": (
        "SELECT max(p) AS m FROM (SELECT price AS p FROM Trades WHERE live) [RANGE 5 minutes]",
        "SELECT max(price) AS m FROM Trades [RANGE 5 minutes] WHERE live",
    ),
}


@pytest.mark.parametrize("case", ALIKE)
def test_a_subquery_is_inlined(case: str) -> None:
    derived, by_hand = (replace(bound(text), text="") for text in ALIKE[case])
    assert derived.stream == "Trades"
    if case in ("fields", "definitions that use each other", "a subquery in a subquery"):
        # Parentheses stay where a column was.
        texts = [
            [scalar.sql.replace("(", "").replace(")", "") for scalar in query.scalars()]
            for query in (derived, by_hand)
        ]
        assert texts[0] == texts[1]
        assert [item.sql for item in derived.items] == [item.sql for item in by_hand.items]
    else:
        assert derived == by_hand


def test_results_are_named_by_the_columns_of_the_subquery() -> None:
    query = bound(
        f"SELECT c, sum(d) FROM (SELECT symbol AS c, price * 2 AS d FROM Trades) {WINDOW} GROUP BY c"
    )
    assert [item.name for item in query.items] == ["c", "sum(d)"]


def test_templates_keep_the_constants_of_a_subquery_apart() -> None:
    text = f"SELECT sum(c) AS a, max(c + #) AS b FROM (SELECT price * # AS c FROM Trades WHERE site > #) {WINDOW} WHERE c < #"
    texts = {}
    for name, numbers in {"a": "1234", "b": "1254", "c": "9278", "d": "1234"}.items():
        filled = text
        for number in numbers:
            filled = filled.replace("#", number, 1)
        texts[name] = filled
    assert bind(texts, CATALOG, Rules()) == {name: bound(one) for name, one in texts.items()}


def test_a_subquery_reads_the_results_of_a_query() -> None:
    texts = {
        "outer": f"SELECT max(m) AS top FROM (SELECT n * 2 AS m FROM per_site WHERE n > 1) {WINDOW}",
        "per_site": f"SELECT site, count(*) AS n FROM Trades {WINDOW} GROUP BY site",
    }
    outer = bind_all(texts, CATALOG, Rules(), {})["outer"]
    assert isinstance(outer, Query)
    assert outer.stream == "per_site"


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (
            "WITH v AS (SELECT * FROM a), w AS (SELECT * FROM v) SELECT count(*) FROM w [RANGE 1 s SLIDE 1 s], t WHERE x = y",
            ("a", "t"),
        ),
        (
            "SELECT extract(year FROM d) FROM (SELECT trim(both 'x' FROM s) AS d FROM b WHERE a IS DISTINCT FROM c) x [RANGE 1 s SLIDE 1 s]",
            ("b",),
        ),
    ],
)
def test_the_streams_of_a_nested_query_are_found(text: str, sources: tuple[str, ...]) -> None:
    assert sources_of(text) == sources


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (f"SELECT sum(price) FROM (SELECT site FROM Trades) {WINDOW}", "unknown column price\n", "price"),
        (
            f"WITH c(volume, price) AS (SELECT price, volume FROM Trades) SELECT sum(price) FROM c {WINDOW}",
            "a list of columns after an alias is not supported",
            None,
        ),
        (
            f"SELECT sum(price) FROM (SELECT price, volume FROM Trades) AS c(volume, price) {WINDOW}",
            "a list of columns after an alias is not supported",
            None,
        ),
        (
            f"SELECT sum(c.price) FROM Trades AS c(volume, price) {WINDOW}",
            "a list of columns after an alias is not supported",
            None,
        ),
        (
            f"SELECT sum(d.prise) FROM (SELECT price FROM Trades) d {WINDOW}",
            "unknown column prise; did you mean price",
            "d.prise",
        ),
        (
            f"SELECT sum(p) FROM (SELECT prise AS p FROM Trades) {WINDOW}",
            "unknown column prise; did you mean price",
            "prise",
        ),
        (
            f"SELECT sum(n) FROM (SELECT count(*) AS n FROM Trades) {WINDOW}",
            "count\\(\\) is not supported in a subquery",
            None,
        ),
        (
            f"SELECT sum(n) FROM (SELECT site AS n FROM Trades GROUP BY site) {WINDOW}",
            "GROUP BY is not supported in a subquery",
            None,
        ),
        (
            f"SELECT sum(n) FROM (SELECT price * 2 FROM Trades) {WINDOW}",
            "an expression in a subquery needs a name",
            "price * 2",
        ),
        (
            f"SELECT sum(n) FROM (SELECT price AS n, volume AS N FROM Trades) {WINDOW}",
            "two columns of the subquery are called N",
            None,
        ),
        (
            f"SELECT sum(n) FROM (SELECT price AS n FROM Trades {WINDOW})",
            "the window belongs to the outer query",
            None,
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} WHERE site IN (SELECT site FROM Trades)",
            "a subquery in WHERE reads a static table, and Trades is a stream",
            "Trades",
        ),
        (
            f"SELECT count(*) FROM Trades T {WINDOW} LEFT JOIN (SELECT Symbol FROM Close) C ON T.symbol = C.Symbol",
            "a subquery is joined by an inner JOIN only",
            None,
        ),
        (
            "SELECT count(*) FROM (SELECT price * 2 AS p FROM Trades) [RANGE 1 min SLIDE 1 min WATTR p]",
            "WATTR is a column of the stream, and p is an expression",
            "p",
        ),
        (f"WITH RECURSIVE v AS (SELECT site FROM Trades) SELECT count(*) FROM v {WINDOW}", "RECURSIVE", None),
        (
            f"WITH v AS (SELECT site FROM w), w AS (SELECT site FROM Trades) SELECT count(*) FROM v {WINDOW}",
            "unknown stream or table w",
            "w",
        ),
        (
            f"SELECT count(*) FROM (SELECT site FROM Trade) {WINDOW}",
            "unknown stream or table Trade; did you mean Trades",
            "Trade",
        ),
    ],
)
def test_what_a_subquery_can_t_do_is_an_error_at_its_place(
    text: str, message: str, place: str | None
) -> None:
    with pytest.raises(SQLError, match=message) as caught:
        bound(text)
    assert place is None or caught.value.text[caught.value.start : caught.value.end] == place


def doubled(first: str, step: str, times: int = 30) -> str:
    """Definitions of which each names the one before twice."""
    steps = [
        f"q0 AS ({first})",
        *(f"q{i} AS ({step.replace('before', f'q{i - 1}')})" for i in range(1, times)),
    ]
    return f"WITH {', '.join(steps)} SELECT count(*) AS n FROM q{times - 1} {WINDOW} WHERE v > 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            doubled("SELECT ts, site AS v FROM Trades", "SELECT ts, v + v AS v FROM before"),
            "more than 20,000 parts",
        ),
        (
            doubled(
                "SELECT ts, site AS v FROM Trades UNION ALL SELECT ts, site AS v FROM Trades",
                "SELECT * FROM before UNION ALL SELECT * FROM before",
            ),
            "more than 20,000 parts",
        ),
        (
            f"SELECT count(*) AS n FROM ({' UNION ALL '.join(['SELECT ts FROM Trades'] * 300)}) {WINDOW}",
            "UNION ALL has more than 256 parts",
        ),
        (
            f"SELECT max(site) AS a0, {', '.join(f'a{i} + a{i} AS a{i + 1}' for i in range(30))} FROM Trades {WINDOW}",
            "longer than 20,000 characters when its aliases are written out",
        ),
    ],
    ids=["expressions", "unions", "parts of one union", "aliases"],
)
def test_texts_that_stand_for_much_longer_ones_are_refused_in_short_time(text: str, message: str) -> None:
    started = time.process_time()
    with pytest.raises(SQLError, match=message):
        bound(text)
    assert time.process_time() - started < 20
