"""EMIT EARLY in all the ways to write it, and what is said to those who write it wrong."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sql.test_templates import counted
from tests.sql.trades_catalog import CATALOG, Rules, bound
from transom.elements import Emit
from transom.errors import SQLError
from transom.sql import Query, bind, bind_one

QUERY = "SELECT site, count(*) AS n FROM Trades [RANGE 5 min SLIDE 1 min] WHERE price > 1 GROUP BY site HAVING n > 5"
SECOND = 1_000_000
JUDGED = replace(CATALOG, qualities=frozenset({"hamming", "Edit Distance"}))

CLAUSES: dict[str, Emit] = {
    "EVERY '1 second'": Emit(every=SECOND),
    "every 1 hour 30 minutes": Emit(every=5400 * SECOND),
    "EVERY INTERVAL '250' MILLISECONDS": Emit(every=SECOND // 4),
    "EVERY /* often */ 1 s": Emit(every=SECOND),
    "AT 75% OF SLIDE": Emit(at=(0.75,)),
    "AT 75 % OF SLIDE": Emit(at=(0.75,)),
    "at 75 percent of slide": Emit(at=(0.75,)),
    "AT 90%, 12.5%, 100% OF SLIDE": Emit(at=(0.125, 0.9, 1.0)),
    "AT 0.5% OF SLIDE": Emit(at=(0.005,)),
    "WITH ACCURACY 95%": Emit(accuracy=0.95),
    "WITH ACCURACY 95% BETWEEN 10% AND 90% OF SLIDE": Emit(accuracy=0.95, between=(0.1, 0.9)),
    "ON DEMAND": Emit(),
    "ON DEMAND CONFIDENCE 50%": Emit(confidence=0.5),
    "AT 75% OF SLIDE CONFIDENCE 99.9%": Emit(at=(0.75,), confidence=0.999),
    "EVERY 1 s QUALITY hamming": Emit(every=SECOND, quality="hamming"),
    "EVERY 1 s QUALITY HAMMING CONFIDENCE 80%": Emit(every=SECOND, quality="hamming", confidence=0.8),
    "WITH ACCURACY 95% CONFIDENCE 80% QUALITY `edit distance`": Emit(
        accuracy=0.95, confidence=0.8, quality="Edit Distance"
    ),
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_each_form_of_emit_early_is_bound(clause: str) -> None:
    query = bind_one(f"{QUERY} EMIT EARLY {clause}", JUDGED, Rules())
    assert query.emit == CLAUSES[clause]
    assert replace(query, emit=None, text=QUERY) == bound(QUERY)


ENDS_WITH_EMIT = {
    "after the window": "SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] EMIT EARLY ON DEMAND",
    "after an alias, with a semicolon": "SELECT count(*) FROM Trades T [RANGE 5 min SLIDE 1 min] EMIT EARLY ON DEMAND;",
    "after an alias behind the window": "SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] T emit early on demand",
    "after the keyword WINDOW": "SELECT count(*) FROM Trades WINDOW [RANGE=50 min, SLIDE=50 min] EMIT EARLY ON DEMAND",
    "after WHERE": "SELECT count(*) FROM Trades [ROWS 10 SLIDE 5] WHERE live EMIT EARLY ON DEMAND",
    "after GROUP BY window": "SELECT count(*) FROM Trades GROUP BY window(ts, '5 min') EMIT EARLY ON DEMAND",
    "after GROUP BY with a key": "SELECT site, count(*) FROM Trades GROUP BY window(ts, '5 min'), site EMIT EARLY ON DEMAND",
    "with a comment in it": "SELECT day, count(*) FROM Trades GROUP BY window(ts, '5 min'), day EMIT -- soon\n EARLY ON DEMAND",
    "after a join by WHERE": "SELECT max(cp) FROM Trades T [ROWS 9 SLIDE 3], Close C WHERE T.symbol = C.symbol EMIT EARLY ON DEMAND",
    "after USING of a join": "SELECT max(cp) FROM Trades T [ROWS 9 SLIDE 3] JOIN Close C USING (symbol) EMIT EARLY ON DEMAND",
    "after HAVING": "SELECT max(price) AS m FROM Trades [ROWS 9 SLIDE 3] HAVING m IS NOT NULL EMIT EARLY ON DEMAND",
}


@pytest.mark.parametrize("text", ENDS_WITH_EMIT.values(), ids=ENDS_WITH_EMIT)
def test_the_clause_may_end_any_query(text: str) -> None:
    assert bound(text).emit == Emit()


EMIT_AS_NAME = {
    "alias of an item, in HAVING": "SELECT count(*) AS emit FROM Trades [ROWS 9 SLIDE 3] HAVING emit > 5",
    "alias of an item without AS": "SELECT count(*) emit FROM Trades [ROWS 9 SLIDE 3]",
    "alias of the stream, before a column": "SELECT max(emit.price) FROM Trades emit [ROWS 9 SLIDE 3] WHERE emit.live",
    "alias of the stream": "SELECT max(price) FROM Trades AS emit [ROWS 9 SLIDE 3]",
    "alias behind the window": "SELECT max(cp) FROM Trades [ROWS 9 SLIDE 3] emit JOIN Close C ON emit.symbol = C.symbol",
    "alias of a table": "SELECT max(cp) FROM Trades T [ROWS 9 SLIDE 3] JOIN Close emit ON T.symbol = emit.symbol",
    "alias of a key": "SELECT site AS emit, count(*) AS early FROM Trades [ROWS 9 SLIDE 3] GROUP BY emit",
}


@pytest.mark.parametrize("text", EMIT_AS_NAME.values(), ids=EMIT_AS_NAME)
def test_emit_may_be_a_name(text: str) -> None:
    assert bound(text).emit is None


def test_without_the_clause_no_early_results_are_emitted() -> None:
    assert bound(QUERY).emit is None


@pytest.mark.parametrize(
    ("clause", "said", "place"),
    [
        ("EMIT", "expected EARLY after EMIT", "EMIT"),
        ("EMIT ERLY ON DEMAND", "expected EARLY after EMIT, found ERLY; did you mean EARLY?", "ERLY"),
        ("EMIT FINAL", "found FINAL; finals need no asking: every window gets one", "FINAL"),
        ("EMIT WITH ACCURACY 95%", "expected EARLY after EMIT, found WITH", "WITH"),
        ("EMIT ON DEMAND", "expected EARLY after EMIT, found ON", "ON"),
        ("EMIT EARLY", "EMIT EARLY needs EVERY '1 second', AT 75% OF SLIDE, WITH ACCURACY 95% or ON DEMAND", "EMIT EARLY"),
        ("EMIT EARLY CONFIDENCE 90%", "EMIT EARLY needs EVERY", "EMIT EARLY CONFIDENCE 90%"),
        ("EMIT EARLY EVRY '1 second'", "found EVRY; did you mean EVERY?", "EVRY"),
        ("EMIT EARLY ACCURACY 95%", "did you mean WITH ACCURACY?", "ACCURACY"),
        ("EMIT EARLY `ON` DEMAND", "expected EVERY, AT, WITH ACCURACY, ON DEMAND, CONFIDENCE or QUALITY, found `ON`", "`ON`"),
        ("EMIT EARLY EVERY", "EVERY needs a duration like '1 second'", "EVERY"),
        ("EMIT EARLY EVERY CONFIDENCE 90%", "EVERY needs a duration like '1 second'", "EVERY"),
        ("EMIT EARLY EVERY 5", "'5' has no unit; did you mean '5 seconds'?", "5"),
        ("EMIT EARLY EVERY 5 secnds", "unknown unit secnds; did you mean seconds?", "5 secnds"),
        ("EMIT EARLY EVERY '0 s'", "EVERY must be positive", "'0 s'"),
        ("EMIT EARLY EVERY - 5 s", "EVERY must be positive", "- 5 s"),
        (f"EMIT EARLY EVERY '1{'0' * 5000} s'", "EVERY is longer than any stream", f"'1{'0' * 5000} s'"),
        ("EMIT EARLY EVERY 1 month", "no fixed length", "1 month"),
        ("EMIT EARLY AT", "AT needs a percentage like 75%", "AT"),
        ("EMIT EARLY AT 75%", "expected OF after %; a point is written as a part of the slide: AT 75% OF SLIDE", "%"),
        ("EMIT EARLY AT 75% OF RANGE", "expected SLIDE after OF, found RANGE", "RANGE"),
        ("EMIT EARLY AT 0.75 OF SLIDE", "AT needs a percentage; write 75%", "0.75"),
        ("EMIT EARLY AT 75 OF SLIDE", "AT needs a percentage; write 75%", "75"),
        ("EMIT EARLY AT '75%' OF SLIDE", "AT needs a percentage like 75%, found '75%'", "'75%'"),
        ("EMIT EARLY AT 150% OF SLIDE", "a point of the slide is above 0% and at most 100%", "150%"),
        ("EMIT EARLY AT 0% OF SLIDE", "a point of the slide is above 0% and at most 100%", "0%"),
        ("EMIT EARLY AT -5 % OF SLIDE", "a point of the slide is above 0% and at most 100%", "-5 %"),
        ("EMIT EARLY AT 50%, 75%, 50.0% OF SLIDE", "this point of the slide is there twice", "50.0%"),
        ("EMIT EARLY AT 50%, OF SLIDE", "AT needs a percentage like 75%, found OF", "OF"),
        ("EMIT EARLY WITH ACURACY 95%", "found ACURACY; did you mean ACCURACY?", "ACURACY"),
        ("EMIT EARLY WITH ACCURACY", "ACCURACY needs a percentage like 75%", "ACCURACY"),
        ("EMIT EARLY WITH ACCURACY 0.95", "ACCURACY needs a percentage; write 95%", "0.95"),
        ("EMIT EARLY WITH ACCURACY 100%", "ACCURACY is above 0% and below 100%", "100%"),
        ("EMIT EARLY WITH ACCURACY 0 PERCENT", "ACCURACY is above 0% and below 100%", "0 PERCENT"),
        ("EMIT EARLY WITH ACCURACY 95% BETWEEN 90% AND 10% OF SLIDE", "BETWEEN takes the earlier point first", "90% AND 10%"),
        ("EMIT EARLY WITH ACCURACY 95% BETWEEN 10% AND 10% OF SLIDE", "and two that differ", "10% AND 10%"),
        ("EMIT EARLY WITH ACCURACY 95% BETWEEN 10% AND 110% OF SLIDE", "BETWEEN: a point of the slide is above 0%", "110%"),
        ("EMIT EARLY WITH ACCURACY 95% BETWEEN 10%, 90% OF SLIDE", "expected AND after %, found ,", ","),
        ("EMIT EARLY WITH ACCURACY 95% BETWEEN 10% AND 90%", "expected OF after %", "%"),
        ("EMIT EARLY ON DEMND", "expected DEMAND after ON, found DEMND; did you mean DEMAND?", "DEMND"),
        ("EMIT EARLY ON", "expected DEMAND after ON", "ON"),
        ("EMIT EARLY ON DEMAND CONFIDENCE 49%", "CONFIDENCE is at least 50% and below 100%", "49%"),
        ("EMIT EARLY ON DEMAND CONFIDENCE 100%", "CONFIDENCE is at least 50% and below 100%", "100%"),
        ("EMIT EARLY ON DEMAND CONFIDENCE .9", "CONFIDENCE needs a percentage like 75%, found .", "."),
        ("EMIT EARLY ON DEMAND CONFIDENCE 90% CONFIDENCE 80%", "CONFIDENCE is given twice", "CONFIDENCE"),
        ("EMIT EARLY ON DEMAND ON DEMAND", "ON DEMAND is given twice", "ON"),
        ("EMIT EARLY ON DEMAND EVERY 1 s", "EMIT EARLY takes one of EVERY '1 second', AT 75% OF SLIDE, WITH ACCURACY 95% or ON DEMAND; ON DEMAND is given already", "EVERY"),
        ("EMIT EARLY ON DEMAND EMIT EARLY ON DEMAND", "EMIT EARLY is given twice", "EMIT"),
        ("EMIT EARLY ON DEMAND HAVING n > 5", "EMIT EARLY comes at the very end of a query", "HAVING"),
        ("EMIT EARLY EVERY 1 s GROUP BY site", "EMIT EARLY comes at the very end of a query", "GROUP BY"),
        ("EMIT EARLY ON DEMAND [ROWS 5 SLIDE 1]", "EMIT EARLY comes at the very end of a query", "["),
        ("EMIT EARLY ON DEMAND QUALITY", "QUALITY needs the name of a function", "QUALITY"),
        ("EMIT EARLY ON DEMAND QUALITY CONFIDENCE 90%", "QUALITY needs the name of a function", "QUALITY"),
        ("EMIT EARLY ON DEMAND QUALITY 'hamming'", "QUALITY takes the name of a function, not 'hamming'", "'hamming'"),
        ("EMIT EARLY ON DEMAND QUALITY 5", "QUALITY takes the name of a function, not 5", "5"),
        ("EMIT EARLY ON DEMAND QUALITY haming", "unknown quality function haming; did you mean hamming?", "haming"),
        ("EMIT EARLY ON DEMAND QUALITY hamming(1)", "found (", "("),
    ],
)  # fmt: skip
def test_a_wrong_clause_is_pointed_at(clause: str, said: str, place: str) -> None:
    text = f"{QUERY} {clause}"
    with pytest.raises(SQLError) as refused:
        bind_one(text, JUDGED, Rules())
    error = refused.value
    assert said in error.message
    assert text[error.start : error.end] == place
    assert error.start is not None
    assert error.start >= len(QUERY)


def test_a_quality_function_has_to_be_registered() -> None:
    with pytest.raises(SQLError, match="unknown quality function hamming"):
        bound(f"{QUERY} EMIT EARLY ON DEMAND QUALITY hamming")


def test_queries_that_differ_in_the_clause_only_keep_their_own() -> None:
    texts = {clause: f"{QUERY} EMIT EARLY {clause}" for clause in CLAUSES} | {"none": QUERY}
    for clause, query in bind(texts, JUDGED, Rules()).items():
        assert isinstance(query, Query)
        assert query.emit == CLAUSES.get(clause)


def test_queries_that_differ_in_the_clause_share_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        f"{window} {point}": f"SELECT count(*) FROM Trades [RANGE {window} min SLIDE 1 min] EMIT EARLY AT {point}% OF SLIDE"
        for window in (5, 6, 7)
        for point in range(1, 30)
    }
    read = counted(monkeypatch)
    outcome = bind(texts, CATALOG, Rules())
    assert len(read) == 1
    for name, query in outcome.items():
        window, point = map(int, name.split())
        assert isinstance(query, Query)
        assert query.emit == Emit(at=(point / 100,))
        assert query.window.range == window * 60 * SECOND


def test_an_error_in_a_later_query_s_clause_points_into_that_query() -> None:
    right = "SELECT count(*) FROM Trades [RANGE 1000 s SLIDE 10 s] EMIT EARLY AT 75% OF SLIDE"
    wrong = "SELECT count(*) FROM Trades [RANGE 5 s SLIDE 1 s] EMIT EARLY AT 175% OF SLIDE"
    outcome = bind({"right": right, "wrong": wrong}, CATALOG, Rules())["wrong"]
    assert isinstance(outcome, SQLError)
    assert (outcome.text, wrong[outcome.start : outcome.end]) == (wrong, "175%")


@given(st.sampled_from(sorted(CLAUSES)), st.randoms(use_true_random=False))
def test_a_mangled_clause_gives_a_query_or_an_error_that_points_into_it(clause: str, random: Any) -> None:
    words = f"{QUERY} EMIT EARLY {clause}".replace("%", " %").split(" ")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(-8, 0)
        words[at:at] = random.choice([["("], ["EMIT"], ["%"], ["'"], [random.choice(words)]])
        del words[random.randrange(-8, 0)]
    text = " ".join(words)
    outcome = bind({"q": text}, JUDGED, Rules())["q"]
    if isinstance(outcome, SQLError) and outcome.start is not None:
        assert outcome.end is not None
        assert 0 <= outcome.start < outcome.end <= len(text)
