"""The SQL reference lists what there is, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sql.stores_catalog import CATALOG as STORES
from tests.sql.stores_catalog import ITEMS, SUMMARIES, preference_query
from tests.sql.trades_catalog import CATALOG, Rules
from transom.aggregates.table import window_function_names
from transom.elements import Forget
from transom.sql import (
    Catalog,
    Query,
    Relation,
    bind_all,
    bind_drop,
    bind_one,
    bind_summary,
    relation_of,
)
from transom.sql.binding.preference_aggregates import preference_functions
from transom.sql.clauses import summary
from transom.sql.clauses.using import MAX_BUCKETS, STORE_STRUCTURES
from transom.sql.functions import ALLOWED
from transom.sql.interpreter.function_table import FUNCTIONS

DOCS = Path(__file__).parents[2] / "docs"
BIDS = {"site": pa.int32(), "price": pa.float64(), "kind": pa.string(), "ts": pa.timestamp("us", "UTC")}
REFERENCE = (DOCS / "reference" / "sql.md").read_text()


def section(title: str) -> str:
    return REFERENCE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_aggregates_are_those_of_the_table() -> None:
    rows = [line.split("|")[1] for line in section("Aggregates").splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)\(", " ".join(rows))) == set(window_function_names())


def test_the_functions_are_those_of_the_lists() -> None:
    lists = [part.split("\n\n")[1] for part in section("Scalar functions").split("\n### ")[1:]]
    assert set(re.findall(r"`(\w+)`", " ".join(lists))) == ALLOWED


def test_the_example_can_be_run() -> None:
    catalog = Catalog({"bids": Relation("bids", BIDS)})
    (example,) = re.findall(r"```sql\n(.*?)```", REFERENCE, re.DOTALL)
    assert isinstance(bind_one(example, catalog, Rules()), Query)


@pytest.mark.parametrize("clause", re.findall(r"^\| `(.*?)`", section("ALERT"), re.MULTILINE))
def test_every_form_of_alert_can_be_written(clause: str) -> None:
    text = f"SELECT count(*) AS n FROM Trades [RANGE 5 min SLIDE 1 min] HAVING n > 1 {clause}"
    query = bind_one(text, CATALOG, Rules())
    assert isinstance(query, Query) and query.alert is not None


@pytest.mark.parametrize("clause", re.findall(r"^\| `(.*?)`", section("EMIT EARLY"), re.MULTILINE))
def test_every_form_of_emit_early_can_be_written(clause: str) -> None:
    text = f"SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] {clause}"
    query = bind_one(text, replace(CATALOG, qualities=frozenset({"hamming"})), Rules())
    assert query.emit is not None


@pytest.mark.parametrize("clause", re.findall(r"^\| `(.*?)`", section("EMIT EMPTY"), re.MULTILINE))
def test_every_form_of_emit_empty_can_be_written(clause: str) -> None:
    query = bind_one(f"SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] {clause}", CATALOG, Rules())
    assert query.empty is not None


@pytest.mark.parametrize("clause", re.findall(r"^\| `(.*?)`", section("BACKFILL"), re.MULTILINE))
def test_every_form_of_backfill_can_be_written(clause: str) -> None:
    query = bind_one(f"SELECT count(*) FROM Trades [RANGE 5 min SLIDE 1 min] {clause}", CATALOG, Rules())
    assert query.backfill is not None


@pytest.mark.parametrize("call", re.findall(r"^\| `(.*?)`", section("LAG over windows"), re.MULTILINE))
def test_every_form_of_lag_can_be_written(call: str) -> None:
    query = bind_one(f"SELECT {call} AS before FROM Trades [RANGE 5 min SLIDE 1 min]", CATALOG, Rules())
    assert query.lags


@pytest.mark.parametrize("clause", re.findall(r"^\| `(.*?)`", section("On-demand queries"), re.MULTILINE))
def test_every_form_of_using_and_within_can_be_written(clause: str) -> None:
    query = bind_one(f"SELECT max(price) FROM Trades [RANGE 5 min] {clause}", CATALOG, Rules())
    assert query.is_on_demand
    assert (
        query.using.structure
        == (clause.split()[1] if clause.startswith("USING ") else "timegram").split("(")[0]
    )


def test_the_structures_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| `USING (\w+)", section("On-demand queries"), re.MULTILINE)
    assert set(rows) == set(STORE_STRUCTURES)
    assert f"1 to {MAX_BUCKETS:,} buckets" in " ".join(section("On-demand queries").split())


def test_the_on_demand_queries_can_be_registered() -> None:
    columns = {
        "site": pa.int32(),
        "price": pa.float64(),
        "kind": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
    }
    catalog = Catalog({"bids": Relation("bids", columns, "ts")})
    texts = re.findall(r"`(SELECT .*?)`", section("On-demand queries"))
    assert len(texts) == 2
    for text in texts:
        assert bind_one(text, catalog, Rules()).is_on_demand


def test_the_results_of_a_query_have_the_columns_of_the_table() -> None:
    inner, outer = re.findall(r"`(SELECT .*?)`", section("Queries over queries"))
    streams = {"s": Relation("s", {"t": pa.int64(), "sensor": pa.int32(), "volume": pa.int64()}, "t")}
    bound = bind_all({"per_sensor": inner, "top": outer}, Catalog(streams), Rules(), {})
    assert isinstance(bound["top"], Query)
    assert isinstance(bound["per_sensor"], Query)
    preferred = preference_query(
        "SELECT avg(price) AS n FROM store1 WITH PREFERENCE weighted SUMMARY.Estimate.Count(item)"
    )
    of_windows, with_preference = section("Queries over queries").split(
        "The results of a query [`WITH PREF", 1
    )
    for text, query in ((of_windows, bound["per_sensor"]), (with_preference, preferred)):
        have = list(relation_of("per_sensor", query).columns)
        rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
        shown = re.findall(r"`(\w+)`", " ".join(rows))
        assert [name for name in have if name not in ("sensor", "n", "n_low", "n_high")] == shown


def test_the_queries_of_the_guide_to_early_results_can_be_registered() -> None:
    streams = {
        "bids": {"site": pa.int32(), "price": pa.float64(), "ts": pa.timestamp("us", "UTC")},
        "parts": {"code": pa.string(), "ts": pa.timestamp("us", "UTC")},
        "s": {"sensor": pa.int32(), "volume": pa.int64(), "ts": pa.int64()},
    }
    relations = {name: Relation(name, columns, "ts") for name, columns in streams.items()}
    catalog = Catalog(relations, qualities=frozenset({"hamming"}))
    texts = re.findall(r'"(SELECT .*?)"(?:, "(\w+)")?', (DOCS / "early-results.md").read_text())
    named = {name or f"q{at}": text for at, (text, name) in enumerate(texts)}
    assert len(named) >= 6
    for query in bind_all(named, catalog, Rules(), {}).values():
        assert isinstance(query, Query), str(query)


@pytest.mark.parametrize("option", re.findall(r"^\| `(.*?)`", section("Summaries"), re.MULTILINE))
def test_every_option_of_a_summary_can_be_written(option: str) -> None:
    granularity = "" if option.startswith("GRANULARITY") else " AND GRANULARITY 1 s"
    text = f"CREATE SUMMARY items ON store1(item) WITH {option}{granularity}"
    assert bind_summary(text, STORES).column == "item"


def test_the_options_and_limits_of_a_summary_are_those_of_the_reference() -> None:
    text = " ".join(section("Summaries").split())
    assert set(re.findall(r"\| `([A-Z]+)", text)) == set(summary.OPTIONS)
    assert set(re.findall(r"`STRUCTURE (\w+)`", text)) == set(summary.CHOICES)
    assert set(re.findall(r"`(T\d)`", text)) == set(summary.STRUCTURE_OF_SHORT_NAME)
    (rates, depths, buckets, rows, widths) = (
        f"{low:,} to {high:,}"
        for low, high in (
            summary.RATES,
            summary.DEPTHS,
            summary.HISTOGRAM_BUCKETS,
            summary.SKETCH_ROWS,
            summary.SKETCH_WIDTHS,
        )
    )
    assert f"A rate is {rates} and a depth {depths}; buckets are {buckets};" in text
    assert f"an odd number of rows, {rows}, and {widths} counters" in text


def test_the_statements_of_the_reference_can_be_run() -> None:
    create, drop = re.findall(r"`((?:CREATE|DROP) SUMMARY [a-z].*?)`", section("Summaries"))
    assert bind_summary(create, STORES) == ITEMS
    assert bind_drop(drop, SUMMARIES) == Forget("items")


FORMS_OF_PREFERENCES = re.findall(r"^\| `(.*?)`", section("WITH PREFERENCE"), re.MULTILINE)


@pytest.mark.parametrize("clause", [form for form in FORMS_OF_PREFERENCES if " JOIN " not in form])
def test_every_form_of_a_preference_can_be_written(clause: str) -> None:
    assert preference_query(f"SELECT item FROM store1 WHERE price > 5 {clause}").sides[0].summary == "items"


@pytest.mark.parametrize("join", [form for form in FORMS_OF_PREFERENCES if " JOIN " in form])
def test_every_form_of_an_outer_join_with_preference_can_be_written(join: str) -> None:
    streams = re.sub(r"^a (\w+) JOIN b", r"store1 a \1 JOIN store2 b", join)
    promise = "SUMMARY.Estimate.Count(a.item) * SUMMARY.Estimate.Count(b.item)"
    query = preference_query(
        f"SELECT a.item AS x, b.item AS y FROM {streams} WITH PREFERENCE desc {promise} WINDOW '1 second'"
    )
    assert query.outer is not None


def test_the_queries_with_a_preference_can_be_registered() -> None:
    texts = re.findall(r"^- `(SELECT .*?)`", section("WITH PREFERENCE"), re.MULTILINE)
    bound = [preference_query(text) for text in texts]
    assert [(len(one.sides), bool(one.figures)) for one in bound] == [
        (1, False),
        (1, True),
        (2, False),
        (2, True),
    ]


def test_the_aggregates_of_a_preference_are_those_of_the_reference() -> None:
    (listed,) = re.findall(r"The aggregates are (.*?) \(double", " ".join(section("WITH PREFERENCE").split()))
    names = dict.fromkeys(function.sql_name for function in preference_functions())
    assert re.findall(r"`(\w+)`", listed) == list(names)


def test_the_query_with_a_preference_on_overload_can_be_registered() -> None:
    (text,) = re.findall(r"`(SELECT .*?)`", section("ON OVERLOAD PREFER"))
    assert bind_one(text, replace(STORES, summaries=SUMMARIES), Rules()).overload is not None


def test_the_functions_without_spark_are_those_of_the_reference() -> None:
    listed = set(
        re.findall(r"`([a-z0-9_]+)`", section("Scalar functions without Spark").split("Times are")[0])
    )
    by_syntax = {"struct", "trim", "extract", "cast", "try_cast"}
    assert listed == {*FUNCTIONS, *by_syntax}
    assert listed <= ALLOWED
