"""Binding many queries at once: typing in bulk, independence, and what leaves a query the same."""

from __future__ import annotations

import gc
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.sql.trades_catalog import CATALOG, TRADES, Rules, bound
from transom.errors import SQLError
from transom.sql import Query, bind

WINDOW = "[RANGE 5 min SLIDE 1 min]"


def test_plain_columns_need_no_typing() -> None:
    rules = Rules()
    texts = {
        "a": f"SELECT site, sum(price) FROM Trades {WINDOW} WHERE price > 1 AND symbol = 'a' GROUP BY site"
    }
    assert isinstance(bind(texts, CATALOG, rules)["a"], Query)
    assert rules.calls == []


def test_each_text_is_typed_once_in_one_call_for_each_set_of_columns() -> None:
    rules = Rules()
    texts = {
        f"q{n}": f"SELECT sum(price * volume) / count(*) AS m FROM Trades {WINDOW} WHERE abs(price) > {n}"
        for n in range(50)
    }
    bound = bind(texts, CATALOG, rules)
    assert all(isinstance(query, Query) for query in bound.values())
    assert [texts for _, texts in rules.calls] == [["abs(`price`)", "`price` * `volume`"], ["`a0` / `a1`"]]
    assert rules.calls[0][0] == tuple(TRADES)
    assert rules.calls[1][0] == ("a0", "a1", "window_start", "window_end")


def test_a_bad_query_affects_no_other_and_the_order_is_kept() -> None:
    good = f"SELECT count(*) FROM Trades {WINDOW} WHERE midcap(symbol)"
    deep = f"SELECT max({'(' * 3000}price{')' * 3000}) FROM Trades {WINDOW}"
    texts = {
        "first": good,
        "unparsed": "SELEC",
        "untyped": good.replace("midcap", "to_number"),
        "deep": deep,
        "last": good,
    }
    outcome = bind(texts, CATALOG, Rules())
    assert list(outcome) == list(texts)
    assert [isinstance(query, SQLError) for query in outcome.values()] == [False, True, True, True, False]
    assert outcome["first"] == outcome["last"]


def test_the_garbage_collector_is_restored() -> None:
    gc.enable()
    bind({"a": "SELECT"}, CATALOG, Rules())
    assert gc.isenabled()
    gc.disable()
    try:
        bind({"a": "SELECT"}, CATALOG, Rules())
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_row_reads_the_joined_tables_columns_and_flags() -> None:
    rules = Rules()
    text = f"SELECT max(price - cp) FROM Trades T {WINDOW} JOIN Close C ON T.symbol = C.symbol"
    (join,) = bind({"a": text}, CATALOG, rules)["a"].joins  # type: ignore[union-attr]
    assert rules.calls[0][0] == (*TRADES, join.id, f"{join.id}.Symbol", f"{join.id}.cp", f"{join.id}.sector")


def test_every_scalar_of_a_query_is_found() -> None:
    query = bound(
        f"SELECT sum(price) FILTER (WHERE live) FROM Trades {WINDOW} WHERE volume > 1 GROUP BY site"
    )
    assert [scalar.sql for scalar in query.scalars()] == ["`volume`", "`site`", "`price`", "`live`"]


QUERIES = [
    f"SELECT site, count(*) AS n, sum(price * volume) / count(*) AS m FROM Trades T {WINDOW} "
    "WHERE price > 1 AND symbol IN ('a', 'B') AND NOT (live OR symbol LIKE 'xY%') GROUP BY site HAVING n > 5",
    "SELECT window.start, lower(symbol) AS s, approx_percentile(price, array(0.1, 0.5)) AS p FROM Trades "
    "WHERE ts BETWEEN TIMESTAMP '2020-01-01 00:00:00' AND '2021-01-01' "
    "GROUP BY window(ts, '12 minutes', '5 minutes', '1 minute'), lower(symbol)",
    "SELECT avg(abs(T.price - C.cp) / C.cp) AS d FROM Trades T [ROWS 100 SLIDE 10], Close C, Index X "
    "WHERE T.symbol = C.symbol AND C.sector = X.sector AND midcap(T.symbol) AND X.name IS NOT NULL",
    "SELECT CASE WHEN live THEN 1 ELSE 2 END AS c, max(cast(symbol AS date)) FILTER (WHERE cost < 1.5) AS x "
    "FROM Trades [RANGE 60 SLIDE 20 WATTR site ORIGIN 7] GROUP BY CASE WHEN live THEN 1 ELSE 2 END",
    f"SELECT site, sum(price) AS m FROM Trades {WINDOW} WHERE live GROUP BY site HAVING m > 5 "
    "EMIT EARLY WITH ACCURACY 95% BETWEEN 10% AND 90% OF SLIDE CONFIDENCE 80%",
    "SELECT max(price) AS m FROM Trades WHERE volume > 7 GROUP BY window(ts, '5 minutes') "
    "EMIT EARLY EVERY '1 second'",
    "SELECT site, max(price) - min(price) AS m FROM Trades [RANGE 10 minutes WATTR ts] WHERE volume > 7 "
    "GROUP BY site HAVING m > 5 USING ordered_sharing",
    "SELECT sum(price) AS s, count(*) AS n FROM Trades T [ROWS 600] JOIN Close C USING (symbol) "
    "WHERE price > 1 USING timegram(64 BETWEEN -10 AND 10, SLICE 100)",
    "SELECT avg(price) AS m FROM Trades [RANGE 1 hour] "
    "USING timegram(BOUNDS -10, -6, 4.5, 10, SLICE '1 second')",
    "SELECT max(price) AS m FROM Trades [RANGE 60 WATTR site] WITHIN 5% USING timegram(SLICE 10)",
]
_PIECES = re.compile(r"'[^']*'|\w+|\s+|[^\w\s]")
_ALIASES = {"n", "m", "s", "p", "d", "c", "x"}


@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_case_and_white_space_leave_a_query_the_same(text: str, random) -> None:  # type: ignore[no-untyped-def]
    written = []
    for piece in _PIECES.findall(text):
        if piece.isspace():
            written.append(random.choice([" ", "  ", "\n", "\t", " /* note */ ", " -- note\n"]))
        elif piece.startswith("'") or piece in _ALIASES:
            written.append(piece)
        else:
            written.append(random.choice([piece, piece.upper(), piece.lower(), piece.capitalize()]))
    changed = "".join(written) + random.choice(["", ";", "\n;\n", "  "])
    assert replace(bound(changed), text=text) == bound(text)


@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_a_mangled_query_gives_a_query_or_an_error_that_points_into_it(text: str, random) -> None:  # type: ignore[no-untyped-def]
    pieces = _PIECES.findall(text)
    for _ in range(random.randint(1, 4)):
        at, other = random.randrange(len(pieces)), random.randrange(len(pieces))
        pieces[at : at + random.randint(0, 1)] = random.choice([[], ["("], [pieces[other]]])
    mangled = "".join(pieces)
    outcome = bind({"q": mangled}, CATALOG, Rules())["q"]
    if isinstance(outcome, SQLError) and outcome.start is not None:
        assert outcome.end is not None
        assert 0 <= outcome.start < outcome.end <= len(mangled)
