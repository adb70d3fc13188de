"""Mistakes that the parser meets: what the error says, and which place it points at."""

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import bound
from transom.errors import SQLError

WINDOW = "[RANGE 1 hour SLIDE 1 hour]"


def error_of(text: str) -> SQLError:
    with pytest.raises(SQLError) as caught:
        bound(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT count(*) FROM ()", "expected the name of a stream, or a subquery (SELECT ...)", ")"),
        ("SELECT count(*) FROM", "expected the name of a stream, or a subquery (SELECT ...)", "FROM"),
        (
            f"SELECT count(*) FROM Trades {WINDOW} WHERE price > ?",
            "parameters have names: write :name, and give parameters={'name': ...}",
            "?",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} WHERE price > :",
            "expected the name of a parameter after :",
            ":",
        ),
        (
            f"SELECT count(DISTINCT *) FROM Trades {WINDOW}",
            "count(DISTINCT *) is not supported; name the columns: count(DISTINCT a, b)",
            "count(DISTINCT *)",
        ),
        (
            f"SELECT cast(price AS intt) AS c, count(*) FROM Trades {WINDOW} GROUP BY 1",
            "this is not a type; expected one such as INT, DOUBLE or STRING",
            "intt",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} EMIT EMTPY",
            "expected EARLY, EMPTY or CORRECTIONS after EMIT, found EMTPY; did you mean EMPTY?",
            "EMTPY",
        ),
        *(
            (
                f"SELECT count(*) FROM {source} {word} GROUP BY price",
                f"{word} comes at the end of a query, after WHERE, GROUP BY and HAVING; an alias is written AS "
                f"{word.lower()}",
                word,
            )
            for word in ("ALERT", "BACKFILL", "EMIT")
            for source in (f"Trades {WINDOW}", f"Trades AS t {WINDOW}")
        ),
        (
            f"SELECT price, count(*) FROM Trades {WINDOW} EMIT CORRECTIONS WITHIN '1 hour' GROUP BY price",
            "EMIT CORRECTIONS comes after GROUP BY and HAVING",
            "GROUP BY",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} HAVING count(*) > 1 FOR 2 WINDOWS",
            "this was not expected here; write ALERT FOR 3 WINDOWS",
            "FOR",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} SINCE '1 hour ago'",
            "this was not expected here; write BACKFILL SINCE '24 hours ago'",
            "'1 hour ago'",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} HAVING count(*) > 1 CONFIDENCE 90%",
            "this was not expected here; write WITH CONFIDENCE 95%",
            "CONFIDENCE",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} BACKFILL EMIT EARLY ON DEMAND",
            "BACKFILL comes last: write EMIT before it",
            "EMIT",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} HAVING count(*) > 1 BACKFILL ALERT",
            "BACKFILL comes last: write ALERT before it",
            "ALERT",
        ),
        (
            f"SELECT count(*) FROM Trades {WINDOW} WITH TIES",
            "WITH TIES follows ORDER BY ... LIMIT k",
            "WITH TIES",
        ),
    ],
)
def test_an_error_says_what_was_expected(text: str, message: str, place: str) -> None:
    error = error_of(text)
    assert (error.message, text[error.start : error.end]) == (message, place)


@pytest.mark.parametrize(
    ("condition", "message", "place"),
    [
        ("(" * 600 + "price" + ")" * 600 + " > 0", "the query is nested too deeply: ", "("),
        ("abs(" * 500 + "price" + ")" * 500 + " > 0", "the query is nested too deeply: ", "("),
        (" OR ".join(f"price = {n}" for n in range(5_000)), "this expression has too many operators", "p"),
    ],
    ids=["parentheses", "calls", "operators"],
)
def test_an_error_points_at_the_deepest_place(condition: str, message: str, place: str) -> None:
    error = error_of(f"SELECT count(*) FROM Trades {WINDOW} WHERE {condition}")
    assert error.message.startswith(message)
    assert error.start is not None and error.text[error.start] == place


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("average", "avg"), ("avarage", "avg"), ("medain", "median"), ("mediam", "median"), ("meadian", "median"),
        ("group_concat", "string_agg"), ("quantile", "percentile"), ("arg_max", "max_by"), ("topk", "approx_top_k"),
        ("stdev", "stddev"), ("countif", "count_if"), ("uniq", "approx_count_distinct"),
        ("variant_get", "get_json_object"),
    ],
)  # fmt: skip
def test_an_unknown_function_has_a_sensible_suggestion(written: str, meant: str) -> None:
    error = error_of(f"SELECT {written}(price) FROM Trades {WINDOW}")
    assert error.message == f"unknown function {written}; did you mean {meant}?"
