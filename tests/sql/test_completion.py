"""What the editor offers at a place of a query's text; `|` is the cursor."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.aggregates.table import window_function_names
from transom.sql.editor.completion import Candidate, Completion, KnownNames, KnownRelation, complete
from transom.sql.editor.signatures import OF_THE_PROGRAM, aggregate_signatures, scalar_signatures
from transom.sql.functions import ALLOWED

UTC = pa.timestamp("us", "UTC")
FLIGHTS = KnownRelation(
    "flights",
    "stream",
    {
        "origin": pa.string(),
        "dest": pa.string(),
        "dep_delay": pa.float64(),
        "distance": pa.int64(),
        "unit price": pa.float64(),
        "spot": pa.struct([("lat", pa.float64()), ("zone", pa.struct([("name", pa.string())]))]),
        "ts": UTC,
    },
    "ts",
)
AIRPORTS = KnownRelation("airports", "table", {"faa": pa.string(), "name": pa.string()})
LATE_FLIGHTS = KnownRelation("late_flights", "view", {"origin": pa.string(), "ts": UTC}, "ts")
PER_DAY = KnownRelation("per day", "query", {"n": pa.int64(), "window_end": UTC})
NAMES = KnownNames(
    (FLIGHTS, AIRPORTS, LATE_FLIGHTS, PER_DAY), frozenset({"distance_of"}), frozenset({"closeness"})
)
WINDOW = "[RANGE 10 minutes SLIDE 1 minute]"


def at_cursor(marked: str, names: KnownNames = NAMES) -> Completion:
    return complete(marked.replace("|", ""), marked.index("|"), names)


def labels(marked: str) -> list[str]:
    return [candidate.label for candidate in at_cursor(marked).candidates]


def accepted(marked: str, at: int = 0) -> str:
    """The text after a candidate was accepted, with the cursor."""
    found = at_cursor(marked)
    text, chosen = marked.replace("|", ""), found.candidates[at]
    cursor = len(chosen.insert) if chosen.cursor is None else chosen.cursor
    inserted = f"{chosen.insert[:cursor]}|{chosen.insert[cursor:]}"
    return text[: found.start] + inserted + text[found.end :]


def test_a_misspelt_column_finds_the_column_and_no_keyword_of_other_systems():
    assert labels(f"SELECT orign| FROM flights {WINDOW}") == ["origin"]
    assert labels(f"SELECT dst| FROM flights {WINDOW}")[0] == "dest"
    assert labels(f"SELECT dsitance| FROM flights {WINDOW}") == ["distance", "distance_of"]
    assert labels(f"SELECT xyzzy| FROM flights {WINDOW}") == []


@pytest.mark.parametrize(
    ("marked", "first"),
    [
        ("|", "SELECT"),
        ("SEL|", "SELECT"),
        ("SELECT o| FROM flights", "origin"),
        ("SELECT origin F|", "FROM"),
        ("SELECT count(*) A|", "AS"),
        ("SELECT count(*) FROM |", "flights"),
        ("SELECT count(*) FROM fl|", "flights"),
        ("SELECT count(*) FROM late|", "late_flights"),
        ("SELECT count(*) FROM per|", "per day"),
        (f"SELECT count(*) FROM flights {WINDOW} JOIN |", "airports"),
        (f"SELECT count(*) FROM flights {WINDOW} W|", "WHERE"),
        (f"SELECT count(*) FROM flights {WINDOW} GR|", "GROUP BY"),
        (f"SELECT count(*) FROM flights {WINDOW} WHERE dep|", "dep_delay"),
        (f"SELECT count(*) FROM flights {WINDOW} WHERE dep_delay > 5 A|", "AND"),
        (f"SELECT count(*) FROM flights {WINDOW} WHERE dep_delay I|", "IN"),
        (f"SELECT count(*) FROM flights {WINDOW} GROUP BY d|", "dest"),
        (f"SELECT count(*) AS total FROM flights {WINDOW} HAVING to|", "total"),
        (f"SELECT count(*) AS total FROM flights {WINDOW} ORDER BY tot|", "total"),
        (f"SELECT count(*) AS n FROM flights {WINDOW} ORDER BY n D|", "DESC"),
        (f"SELECT count(*) AS n FROM flights {WINDOW} ORDER BY n DESC L|", "LIMIT"),
        (f"SELECT count(*) FROM flights {WINDOW} EM|", "EMIT EMPTY"),
        (f"SELECT count(*) FROM flights {WINDOW} EMIT |", "EARLY"),
        (f"SELECT count(*) FROM flights {WINDOW} EMIT EARLY |", "EVERY"),
        (f"SELECT count(*) FROM flights {WINDOW} EMIT EARLY AT 50% |", "OF SLIDE"),
        (f"SELECT count(*) FROM flights {WINDOW} EMIT EARLY AT 50% OF SLIDE QUALITY |", "closeness"),
        ("SELECT max(distance) FROM flights [RANGE 1 hour] USING t|", "timegram"),
        ("SELECT count(*) FROM flights [|", "RANGE"),
        ("SELECT count(*) FROM flights [RANGE 10 m|", "minutes"),
        ("SELECT count(*) FROM flights [RANGE 1 h|", "hour"),
        ("SELECT count(*) FROM flights [RANGE 10 minutes S|", "SLIDE"),
        ("SELECT count(*) FROM flights [RANGE 10 minutes SLIDE 1 minute WATTR |", "distance"),
        ("SELECT count(*) FROM flights [RANGE 10 minutes orig|", "ORIGIN"),
        ("SELECT count(*) FROM flights [PARTITION BY o|", "origin"),
        ("SELECT count(*) FROM flights [RANGE 1 day SLIDE 1 day IN TIME ZONE 'Europe/Ber|", "Europe/Berlin"),
        ("SELECT f.d| FROM flights f", "dest"),
        ("SELECT spot.| FROM flights", "lat"),
        ("SELECT f.spot.zone.| FROM flights f", "name"),
        ("SELECT sum(dep| FROM flights", "dep_delay"),
        ("SELECT x FROM (SELECT ori| FROM flights)", "origin"),
        ("SELECT x FROM (SELECT origin FROM |)", "flights"),
        ("WITH clean AS (SELECT o| FROM flights) SELECT 1", "origin"),
        ("SELECT CASE W|", "WHEN"),
        ("SELECT `un| FROM flights", "unit price"),
        ("SELECT dist| FROM flights", "distance"),
        ("SELECT count(*) -- note\nFROM fl|", "flights"),
    ],
)
def test_the_first_candidate_fits_the_place(marked: str, first: str):
    assert labels(marked)[0] == first


@pytest.mark.parametrize(
    "marked",
    [
        "SELECT 'ori|",
        "SELECT -- ori|",
        "SELECT /* ori|",
        "SELECT 12|",
        "SELECT '' AS x FROM flights WHERE a = 'o|'",
    ],
)
def test_nothing_is_offered_in_texts_comments_and_numbers(marked: str):
    assert labels(marked) == []


def test_an_aggregate_is_offered_where_a_query_can_have_one():
    assert "avg" in labels("SELECT av| FROM flights")
    assert "avg" in labels(f"SELECT 1 FROM flights {WINDOW} HAVING av|")
    assert "avg" not in labels(f"SELECT 1 FROM flights {WINDOW} WHERE av|")


def test_functions_have_signatures_and_those_of_the_program_are_offered():
    found = {candidate.label: candidate for candidate in at_cursor("SELECT max| FROM flights").candidates}
    assert found["max_by"].detail == "max_by(x, y)" and "greatest y" in found["max_by"].info
    assert "distance_of" in labels("SELECT distance_| FROM flights")
    assert not [
        each.name
        for each in (*aggregate_signatures(), *scalar_signatures())
        if each.meaning == OF_THE_PROGRAM
    ]
    assert {each.name for each in scalar_signatures()} == ALLOWED
    assert {each.name for each in aggregate_signatures()} == set(window_function_names())


def test_an_accepted_candidate_leaves_the_cursor_where_one_writes_on():
    assert accepted("SELECT sum| FROM flights") == "SELECT sum(|) FROM flights"
    assert accepted("SELECT sum|(dest) FROM flights") == "SELECT sum|(dest) FROM flights"
    assert accepted("SELECT coun| FROM flights") == "SELECT count(*)| FROM flights"
    assert accepted("SELECT no| FROM flights").startswith("SELECT now()|")
    assert accepted("SELECT unit| FROM flights") == "SELECT `unit price`| FROM flights"
    assert accepted("SELECT `unit| FROM flights") == "SELECT `unit price`| FROM flights"
    assert accepted("SELECT 1 FROM p|") == "SELECT 1 FROM `per day`|"


def test_a_window_is_offered_behind_a_stream():
    found = at_cursor("SELECT count(*) FROM flights |").candidates
    assert found[0].insert == WINDOW and found[0].kind == "window"
    assert not any(
        each.kind == "window" for each in at_cursor(f"SELECT 1 FROM flights {WINDOW} |").candidates
    )


def test_columns_of_two_relations_say_whose_they_are():
    sql = f"SELECT | FROM flights f {WINDOW} JOIN airports a ON f.dest = a.faa"
    found = {each.label: each.detail for each in at_cursor(sql).candidates if each.kind == "column"}
    assert found["faa"] == "string of airports"
    assert found["ts"] == "timestamp of flights, event time"
    assert labels(sql.replace("|", "a.|")) == ["faa", "name"]


def test_a_text_without_from_offers_the_columns_of_all_streams():
    assert labels("SELECT ori|") == ["origin"]


def test_the_parts_of_a_window_that_are_given_are_not_offered_again():
    assert labels("SELECT 1 FROM flights [RANGE 10 minutes SLIDE 1 minute |") == [
        "WATTR",
        "ORIGIN",
        "IN TIME ZONE",
    ]
    assert labels("SELECT 1 FROM flights [SESSION 5 minutes |") == ["WATTR", "ORIGIN", "IN TIME ZONE"]


def test_a_cursor_out_of_the_text_is_moved_into_it():
    assert complete("SEL", 99, NAMES) == complete("SEL", 3, NAMES)
    assert complete("SEL", -1, NAMES).candidates[0] == Candidate("SELECT", "keyword", "", "", "SELECT")


def test_every_prefix_of_a_query_can_be_completed():
    sql = (
        "WITH c AS (SELECT *, spot.lat[0] AS x FROM flights WHERE `unit price` > 1e5 /* a */)\n"
        f"SELECT origin, CASE WHEN dest = 'x' THEN 1 END, raw:a.b['c'], arr[1] FROM c {WINDOW}\n"
        "LEFT JOIN airports a USING (faa) WHERE a IN (SELECT b FROM airports) GROUP BY ROLLUP(origin)\n"
        "HAVING n > :limit ORDER BY n DESC LIMIT 5 WITH TIES ON OVERLOAD PREFER desc x EMIT EMPTY FOR 3 WINDOWS\n"
        "EMIT EARLY WITH ACCURACY 95% BETWEEN 10% AND 50% OF SLIDE CONFIDENCE 90% QUALITY closeness -- ])"
    )
    for cursor in range(len(sql) + 1):
        for text in (sql[:cursor], sql):
            found = complete(text, cursor, NAMES)
            assert 0 <= found.start <= found.end <= len(text)
            assert all(each.insert for each in found.candidates)
