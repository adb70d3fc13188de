"""GROUPING SETS, ROLLUP and CUBE: the sets, their grouping ids, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from transom.errors import SQLError
from transom.sql import Catalog, Query, Relation, bind
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.item_columns import key_reference

COLUMNS = {"ts": pa.timestamp("us", tz="UTC"), "a": pa.int32(), "b": pa.string(), "x": pa.int64()}
CATALOG = Catalog({"t": Relation("t", COLUMNS, "ts")})
WINDOW = "[RANGE 1 minute SLIDE 1 minute]"


def bound(select: str, group: str, window: str = WINDOW) -> Query:
    text = f"SELECT {select} FROM t {window} GROUP BY {group}"
    query = bind({"q": text}, CATALOG, InterpretedScalars())["q"]
    if isinstance(query, SQLError):
        raise query
    return query


def ids_of(query: Query) -> list[int]:
    assert query.derived is not None and query.derived.branches[0].unnest is not None
    array = query.derived.branches[0].unnest
    return [int(part.split(" AS ")[0]) for part in array.removeprefix("array(").split("CAST(")[1:]]


SETS = {
    "ROLLUP(a, b)": [0, 1, 3],
    "a, b WITH ROLLUP": [0, 1, 3],
    "CUBE(a, b)": [0, 1, 2, 3],
    "a, b WITH CUBE": [0, 1, 2, 3],
    "GROUPING SETS ((a, b), (b), ())": [0, 2, 3],
    "GROUPING SETS (a, b)": [1, 2],
    "a, b GROUPING SETS ((a, b), a)": [0, 1],
    "a, ROLLUP(b)": [0, 1],
    "ROLLUP(a), ROLLUP(b)": [0, 1, 2, 3],
    "ROLLUP((a, b))": [0, 3],
    "GROUPING SETS (ROLLUP(a, b), (b))": [0, 1, 3, 2],
    "ROLLUP(1, 2)": [0, 1, 3],
    "ROLLUP(t.a, B)": [0, 1, 3],
}


@pytest.mark.parametrize("group", SETS)
def test_the_sets_and_their_ids(group: str) -> None:
    query = bound("a, b, count(*) AS n, grouping_id() AS g", group)
    assert ids_of(query) == SETS[group]
    assert [item.name for item in query.items] == ["a", "b", "n", "g"]
    assert [item.type for item in query.items] == [pa.int32(), pa.string(), pa.int64(), pa.int64()]


def test_the_grouping_id_is_a_column_if_it_is_not_selected() -> None:
    assert [item.name for item in bound("a, count(*) AS n", "ROLLUP(a)").items] == ["grouping_id", "a", "n"]
    named = bound("a, count(*) AS grouping_id", "ROLLUP(a)")
    assert [item.name for item in named.items] == ["transom_grouping_id", "a", "grouping_id"]


def test_aggregates_read_the_column_and_not_the_key() -> None:
    query = bound("a, sum(a) AS s, grouping(a) AS g", "ROLLUP(a)")
    assert [call.args[0].sql for call in query.calls] == ["`a`"]
    assert query.items[-1].type == pa.int8()


def test_queries_with_as_many_sets_share_the_expanded_rows() -> None:
    one, other = bound("a, count(*) AS n", "ROLLUP(a, b)"), bound("b, sum(x) AS s", "ROLLUP(b, a)")
    assert one.stream == other.stream


def test_a_name_in_having_is_read_anew_for_constants_of_another_type() -> None:
    texts = {
        value: f"SELECT sum(x) AS a, b FROM t {WINDOW} GROUP BY ROLLUP(a, b) HAVING a > {value}"
        for value in ("5", "6", "5.5", "3000000000", "9" * 5000)
    }
    queries = bind(texts, CATALOG, InterpretedScalars())
    for value, query in queries.items():
        if value in ("5", "6"):  # the key
            assert isinstance(query, Query) and query.having == f"{key_reference(0)} > {value}"
        else:
            assert isinstance(query, SQLError), value


REFUSED = {
    "a set twice": ("a", "GROUPING SETS ((a), (a))", WINDOW, "a grouping set occurs twice"),
    "too many sets": (
        "count(*) AS n",
        "CUBE(a, b, x, a + 1, a + 2, a + 3, a + 4)",
        WINDOW,
        "128 grouping sets; the limit is 64",
    ),
    "a cube of very many keys": (
        "count(*) AS n",
        ", ".join(f"a + {number}" for number in range(60)) + " WITH CUBE",
        WINDOW,
        "grouping sets; the limit is 64",
    ),
    "very many combinations of sets": (
        "count(*) AS n",
        ", ".join(f"CUBE(a + {number}, b + {number}, x + {number})" for number in range(20)),
        WINDOW,
        "grouping sets; the limit is 64",
    ),
    "a column that is no key": ("b, count(*) AS n", "ROLLUP(a)", WINDOW, "b is neither in GROUP BY"),
    "grouping of no key": (
        "grouping(b) AS g",
        "ROLLUP(a)",
        WINDOW,
        r"grouping\(\) takes expressions of GROUP BY",
    ),
    "grouping without sets": (
        "grouping(a) AS g",
        "a",
        WINDOW,
        r"grouping\(\) needs GROUPING SETS, ROLLUP or CUBE",
    ),
    "a window that is left out": (
        "count(*) AS n",
        "ROLLUP(window(ts, '1 minute'))",
        "",
        "every grouping set must contain the window",
    ),
    "an unknown column": ("count(*) AS n", "ROLLUP(c)", WINDOW, "unknown column"),
    "ROWS": ("count(*) AS n", "ROLLUP(a)", "[ROWS 5 SLIDE 5]", "are along the event time, ts; use RANGE"),
    "sessions": (
        "count(*) AS n",
        "ROLLUP(a)",
        "[SESSION 1 minute]",
        "session windows can't have GROUPING SETS",
    ),
    "a name in HAVING whose meaning depends on casts": (
        "sum(x) AS a, b",
        "ROLLUP(a, b) HAVING a > 5.5",
        WINDOW,
        "a is both in GROUP BY and the alias of another item",
    ),
    "a place outside": ("a, count(*) AS n", "ROLLUP(7)", WINDOW, "there is no item 7 in SELECT"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    select, group, window, message = REFUSED[case]
    with pytest.raises(SQLError, match=message):
        bound(select, group, window)
