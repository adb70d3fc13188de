"""Queries over queries: what a query's results are to another, and in which order they are bound."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.sql.trades_catalog import CATALOG, UTC, Rules, bound
from transom.elements import Clock, ClockKind, Emit, WindowSpec
from transom.errors import SQLError
from transom.sql import Query, Relation, bind, bind_all, relation_of, sources_of
from transom.sql.clauses.end_clauses import END_CLAUSES

PER_SENSOR = (
    "SELECT sensor_id, sum(volume) AS n, avg(speed) AS v FROM S [RANGE 60 SLIDE 20] GROUP BY sensor_id"
)
PER_SYMBOL = "SELECT symbol, sum(volume) AS n FROM Trades [RANGE 5 min SLIDE 1 min] GROUP BY symbol"
OUTER = "SELECT max(n) AS top FROM {} [RANGE 60 SLIDE 60]"


def bound_all(texts: dict[str, str], known: dict[str, Query] | None = None) -> dict[str, Query | SQLError]:
    return bind_all(texts, CATALOG, Rules(), known or {})


def the_query(outcome: Query | SQLError) -> Query:
    assert isinstance(outcome, Query), str(outcome)
    return outcome


# --- results as a stream -----------------------------------------------------------------------


def test_results_are_a_stream_of_windows_items_and_row_counts() -> None:
    assert relation_of("per_symbol", bound(PER_SYMBOL)) == Relation(
        "per_symbol",
        {
            "window_start": UTC,
            "window_end": UTC,
            "window_time": UTC,
            "symbol": pa.string(),
            "n": pa.int64(),
            "rows": pa.int64(),
        },
        "window_time",
        "it is a query; join the streams themselves",
        is_declared=False,
    )


def test_a_system_column_gets_a_prefix_if_an_item_has_its_name() -> None:
    text = "SELECT min(price) AS window_time, max(price) AS rows, window_start FROM Trades [RANGE 5 min SLIDE 1 min]"
    relation = relation_of("q", bound(text))
    assert list(relation.columns) == [
        "transom_window_start",
        "window_end",
        "transom_window_time",
        "window_time",
        "rows",
        "window_start",
        "transom_rows",
    ]
    assert relation.time == "transom_window_time"
    assert relation.columns["transom_window_time"] == UTC
    assert relation.columns["window_time"] == pa.float64()


def test_keys_that_are_not_selected_are_columns_too() -> None:
    query = bound("SELECT max(price) AS m FROM Trades [ROWS 9 SLIDE 3] GROUP BY site")
    assert list(relation_of("q", query).columns)[3:] == ["site", "m", "rows"]


@pytest.mark.parametrize(
    ("inner", "kind", "type"),
    [
        ("Trades [RANGE 5 min SLIDE 1 min]", ClockKind.TIME, UTC),
        ("Trades [RANGE 5 min SLIDE 1 min WATTR local]", ClockKind.TIME, pa.timestamp("us")),
        ("Trades [RANGE 1 day SLIDE 1 day WATTR day]", ClockKind.TIME, UTC),
        ("S [RANGE 60 SLIDE 20]", ClockKind.INTEGER, pa.int64()),
        ("Trades [ROWS 100 SLIDE 10]", ClockKind.INTEGER, pa.int64()),
    ],
)
def test_the_outer_clock_follows_from_the_inner(inner: str, kind: ClockKind, type: pa.DataType) -> None:
    length = "1 hour" if kind == ClockKind.TIME else "600"
    outer = f"SELECT max(n) FROM q [RANGE {length} SLIDE {length}]"
    query = the_query(bound_all({"outer": outer, "q": f"SELECT count(*) AS n FROM {inner}"})["outer"])
    assert (query.stream, query.clock, query.clock_type) == ("q", Clock("q", "window_time", kind), type)


def test_a_max_of_sums_binds_over_the_items_of_the_inner_query() -> None:
    outcome = bound_all({"top": OUTER.format("per_sensor"), "per_sensor": PER_SENSOR})
    top = the_query(outcome["top"])
    assert list(outcome) == ["top", "per_sensor"]
    assert (top.stream, top.window) == ("per_sensor", WindowSpec(60, 60))
    assert [(call.function, call.args[0].column, call.type) for call in top.calls] == [
        ("max", "n", pa.int64())
    ]
    assert outcome["per_sensor"] == bound(PER_SENSOR)


OVER_RESULTS = {
    "with a bracket": "SELECT max(n) FROM per_symbol [RANGE '1 hour' SLIDE '1 hour']",
    "with window()": "SELECT max(n) FROM per_symbol GROUP BY window(window_time, '1 hour')",
    "with window() and its start": "SELECT window_start, max(n) FROM per_symbol GROUP BY window(window_time, '1 hour')",
    "with a bracket and the window's start": "SELECT window.start, max(n) FROM per_symbol [RANGE '1 hour' SLIDE '1 hour']",
    "along the inner window's end": "SELECT max(n) FROM per_symbol [RANGE '1 hour' SLIDE '1 hour' WATTR window_end]",
    "with an alias, in another case": "SELECT sum(rows) AS rows FROM PER_Symbol P [RANGE '1 hour' SLIDE '1 hour'] WHERE P.rows > 3",
    "with windows of rows": "SELECT max(n) FROM per_symbol [ROWS 100 SLIDE 10]",
    "joined by WHERE": "SELECT sector, max(n) FROM per_symbol P [RANGE '1 hour' SLIDE '1 hour'], Close C WHERE P.symbol = C.symbol GROUP BY sector",
    "with a left join": "SELECT sector, max(n) FROM per_symbol P [RANGE '1 hour' SLIDE '1 hour'] LEFT JOIN Close C ON P.symbol = C.symbol GROUP BY sector",
    "with early results": "SELECT max(n) FROM per_symbol [RANGE '1 hour' SLIDE '1 hour'] EMIT EARLY AT 75%, 90% OF SLIDE",
    "grouped by the inner window's start": "SELECT window_start, max(n) FROM per_symbol [RANGE '1 hour' SLIDE '1 hour'] GROUP BY window_start",
}  # fmt: skip


@pytest.mark.parametrize("text", OVER_RESULTS.values(), ids=OVER_RESULTS)
def test_results_are_read_like_any_stream(text: str) -> None:
    known = {"per_symbol": bound(PER_SYMBOL)}
    assert the_query(bound_all({"outer": text}, known)["outer"]).stream == "per_symbol"


def test_the_windows_of_the_inner_query_are_not_those_of_the_outer() -> None:
    text = "SELECT window_start, max(n) FROM q [RANGE 60 SLIDE 60]"
    error = bound_all({"outer": text}, {"q": bound(PER_SENSOR)})["outer"]
    assert isinstance(error, SQLError)
    assert error.message.endswith("; write window.start for this query's own window")


# --- the order of binding ------------------------------------------------------------------------


def test_a_cascade_is_bound_in_any_order_of_its_texts() -> None:
    texts = {"q0": PER_SENSOR} | {
        f"q{n}": f"SELECT max(n) AS n FROM q{n - 1} [RANGE 60 SLIDE 60]" for n in range(1, 6)
    }
    straight = bound_all(texts)
    for seed in range(5):
        shuffled = random.Random(seed).sample(list(texts.items()), len(texts))
        assert bound_all(dict(shuffled)) == straight, f"seed {seed}"
    assert [the_query(straight[f"q{n}"]).stream for n in range(1, 6)] == [f"q{n}" for n in range(5)]


def test_a_bound_query_is_read_like_one_that_is_bound_now() -> None:
    known = {"per_sensor": bound(PER_SENSOR)}
    text = OUTER.format("per_sensor")
    assert bound_all({"top": text}, known)["top"] == bound_all({"top": text, "per_sensor": PER_SENSOR})["top"]


def test_a_text_takes_precedence_over_a_bound_query_of_its_name() -> None:
    known = {"q": bound("SELECT count(*) AS other FROM S [RANGE 60 SLIDE 20]")}
    assert isinstance(bound_all({"top": OUTER.format("q"), "q": PER_SENSOR}, known)["top"], Query)


@pytest.mark.parametrize("name", ["Trades", "TRADES", "trades"])
def test_a_stream_takes_precedence_over_a_query_of_its_name(name: str) -> None:
    texts = {name: "SELECT max(price) AS m FROM Trades [RANGE 5 min SLIDE 1 min]"}
    assert the_query(bound_all(texts)[name]) == bound(texts[name])


def test_a_table_takes_precedence_over_a_query_of_its_name() -> None:
    text = "SELECT max(cp) FROM Trades T [ROWS 9 SLIDE 3], close C WHERE T.symbol = C.symbol"
    outcome = bound_all({"close": PER_SENSOR, "outer": text})
    assert the_query(outcome["outer"]) == bound(text)


def test_names_ignore_case_but_an_exact_match_takes_precedence() -> None:
    known = {"q": bound(PER_SENSOR), "Q": bound(PER_SYMBOL)}
    texts = {
        "lower": "SELECT max(v) FROM q [RANGE 6 SLIDE 6]",
        "upper": "SELECT max(symbol) FROM Q [RANGE 6 s SLIDE 6 s]",
    }
    outcome = bound_all(texts, known)
    assert [the_query(query).stream for query in outcome.values()] == ["q", "Q"]
    assert (
        the_query(
            bound_all({"other": OUTER.format("`PER sensor`")}, {"per Sensor": bound(PER_SENSOR)})["other"]
        ).stream
        == "per Sensor"
    )


def test_queries_over_streams_are_bound_as_without_cascades() -> None:
    texts = {
        "a": PER_SENSOR,
        "b": PER_SYMBOL,
        "c": "SELEC",
        "d": "SELECT max(nothing) FROM S [RANGE 6 SLIDE 6]",
    }
    assert list(map(str, bound_all(texts).values())) == list(map(str, bind(texts, CATALOG, Rules()).values()))


def test_emit_early_is_allowed_at_every_level() -> None:
    texts = {"q": f"{PER_SENSOR} EMIT EARLY EVERY 1 s", "top": f"{OUTER.format('q')} EMIT EARLY ON DEMAND"}
    emits = [the_query(query).emit for query in bound_all(texts).values()]
    assert emits == [Emit(every=1_000_000), Emit()]


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "said", "place"),
    [
        ({"a": OUTER.format("a")}, "a can't read its own results", "a"),
        (
            {"a": OUTER.format("bb"), "bb": OUTER.format("cc"), "cc": OUTER.format("a")},
            "a can't read its own results: it reads bb, which reads cc, which reads a",
            "bb",
        ),
        (
            {"a": OUTER.format("bb"), "bb": OUTER.format("cc"), "cc": OUTER.format("bb")},
            "bb has an error of its own: bb can't read its own results: it reads cc, which reads bb",
            "bb",
        ),
        (
            {"a": OUTER.format("per_senser"), "per_sensor": PER_SENSOR},
            "unknown stream, table or query per_senser; did you mean per_sensor?",
            "per_senser",
        ),
        ({"a": OUTER.format("Trads")}, "unknown stream, table or query Trads; did you mean Trades?", "Trads"),
        (
            {"a": OUTER.format("`in ner`"), "in ner": "SELECT max(prise) FROM Trades [ROWS 6 SLIDE 6]"},
            "in ner has an error of its own: unknown column prise; did you mean price?",
            "`in ner`",
        ),
        (
            {"a": "SELECT max(nn) FROM q [RANGE 60 SLIDE 60]", "q": PER_SENSOR},
            "unknown column nn; did you mean n?",
            "nn",
        ),
        (
            {"a": "SELECT max(n) FROM q [RANGE 60 SLIDE 60], Trades", "q": PER_SENSOR},
            "q can't be joined with a stream: it is a query",
            "Trades",
        ),
        (
            {"a": "SELECT max(n) FROM q [RANGE 5 min SLIDE 5 min]", "q": PER_SENSOR},
            "RANGE over an integer column is a plain number",
            "5 min",
        ),
    ],
)  # fmt: skip
def test_errors_between_queries_have_a_place(texts: dict[str, str], said: str, place: str) -> None:
    error = bound_all(texts)["a"]
    assert isinstance(error, SQLError)
    assert said in error.message
    assert error.text == texts["a"]
    assert texts["a"][error.start : error.end] == place


def test_a_circle_does_not_affect_other_queries() -> None:
    texts = {"a": OUTER.format("b"), "b": OUTER.format("a"), "q": PER_SENSOR, "top": OUTER.format("q")}
    assert [isinstance(one, Query) for one in bound_all(texts).values()] == [False, False, True, True]


# --- the names in FROM -------------------------------------------------------------------------------


NAMES_IN_FROM: dict[str, tuple[str, tuple[str, ...]]] = {
    "a query": ("SELECT max(n) FROM q [RANGE 5 s SLIDE 1 s]", ("q",)),
    "in lower case, with an alias": ("select max(n) from Q q [range=5 s, slide=1 s] where x in (1, 2)", ("Q",)),
    "a name in backticks": ("SELECT max(n) FROM `my query` AS m [ROWS 5 SLIDE 1]", ("my query",)),
    "three names after commas": ("SELECT max(n) FROM q[ROWS 5 SLIDE 1],t,`u v` w WHERE q.a = t.a", ("q", "t", "u v")),
    "names of joins": ("SELECT max(n) FROM q [ROWS 5 SLIDE 1] LEFT OUTER JOIN t USING (a, b) JOIN u ON q.a = u.a GROUP BY x, y", ("q", "t", "u")),
    "FROM in extract": ("SELECT extract(year FROM ts) AS y, max(n) FROM q GROUP BY window(ts, '5 s')", ("q",)),
    "FROM in IS DISTINCT": ("SELECT a IS DISTINCT FROM b AS c, max(n) FROM q [ROWS 5 SLIDE 1]", ("q",)),
    "FROM after a comment": ("SELECT a IS NOT DISTINCT /* from x */ FROM b AS c, max(n) FROM q [ROWS 5 SLIDE 1]", ("q",)),
    "FROM in strings, names and comments": ("SELECT max(CASE WHEN a = ' FROM ''x' THEN `from` END) FROM /* no */ q -- , r\n [ROWS 5 SLIDE 1]", ("q",)),
    "FROM after an escaped quote": (r"SELECT count(*) FILTER (WHERE a = 'it\'s FROM x') FROM q [ROWS 5 SLIDE 1]", ("q",)),
    "before EMIT EARLY": ("SELECT max(n) FROM q [ROWS 5 SLIDE 1] EMIT EARLY AT 50%, 75% OF SLIDE", ("q",)),
    "no FROM": ("SELECT 1", ()),
    "nothing after FROM": ("SELECT max(n) FROM", ()),
    "an empty text": ("", ()),
}  # fmt: skip


@pytest.mark.parametrize(("text", "names"), NAMES_IN_FROM.values(), ids=NAMES_IN_FROM)
def test_the_names_in_from_are_read_without_parsing(text: str, names: tuple[str, ...]) -> None:
    assert sources_of(text) == names


@pytest.mark.parametrize("opening", [opening for reader in END_CLAUSES for opening in reader.openings])
def test_no_clause_at_the_end_is_read_as_a_part_of_from(opening: str) -> None:
    first = "FOR" if opening == "ALERT" else ""  # before any other word, `alert` is a name
    text = f"SELECT max(n) FROM q [RANGE 5] JOIN t ON q.a = t.a {opening} {first} x, y"
    assert sources_of(text) == ("q", "t")
    assert sources_of(text.replace(" ", " /* , z */ ")) == ("q", "t")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT max(n) FROM q [RANGE 5] JOIN t USING (a), u",
        "SELECT max(n) FROM q [RANGE 5] JOIN t ON overload = q.a, u",
        "SELECT max(n) FROM q emit [RANGE 5], t within, u",
    ],
)
def test_words_of_clauses_are_names_and_conditions_of_joins_in_from(text: str) -> None:
    assert sources_of(text) == ("q", "t", "u")


def test_tables_are_left_out() -> None:
    assert sources_of("SELECT max(n) FROM q [ROWS 5 SLIDE 1], Sites WHERE q.a = sites.a", {"sites"}) == ("q",)


def test_thousands_of_mistakes_are_reported_quickly_among_thousands_of_queries() -> None:
    texts = {f"per_sensor_{n}": OUTER.format(f"nothing_{n % 3}") for n in range(2_000)}
    asked = replace(CATALOG, tables={})
    assert all(isinstance(one, SQLError) for one in bind_all(texts, asked, Rules(), {}).values())
