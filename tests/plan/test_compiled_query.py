"""What a query needs: accumulators each once, the columns of its state, and what its WHERE pins."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.plan.bids import CATALOG, SCALARS, compiled
from transom.aggregates import table
from transom.aggregates.table import aggregate_function
from transom.plan.compiled_query import compile_query, pattern_value
from transom.plan.layout import Layout
from transom.sql import Query, bind

WINDOW = "FROM bids [RANGE 4 minutes SLIDE 1 minute]"


@pytest.mark.parametrize(
    ("items", "slots", "reads"),
    [
        pytest.param("avg(price), sum(price), count(price)", ["Sum", "Count"], ((0, 1), (0,), (1,)),
                     id="AVG reads what SUM and COUNT keep"),
        pytest.param("stddev(price), var_pop(price), variance(price)", ["Moments"], ((0,), (0,), (0,)),
                     id="all spreads read the same moments"),
        pytest.param("variance(price), avg(price), count(price)", ["Moments", "Sum", "Count"],
                     ((0,), (1, 2), (2,)), id="what VARIANCE serves is read by its own name"),
        pytest.param("variance(seq), avg(seq)", ["Moments", "Sum", "Count"], ((0,), (1, 2)),
                     id="an average of integers is added up exactly all the same"),
        pytest.param("sum(price), sum(seq)", ["Sum", "Sum"], ((0,), (1,)), id="other arguments, other sums"),
        pytest.param("sum(seq), sum(seq) FILTER (WHERE site = 1)", ["Sum", "Sum"], ((0,), (1,)),
                     id="a FILTER keeps apart"),
        pytest.param("min(price), max(price)", ["Extreme", "Extreme"], ((0,), (1,)), id="both ends"),
        pytest.param("approx_percentile(seq, 0.5), approx_percentile(seq, array(0.1, 0.9))", ["Quantiles"],
                     ((0,), (0,)), id="percentiles share a sketch"),
        pytest.param("approx_count_distinct(seq), approx_count_distinct(seq, 0.01)", ["Distinct", "Distinct"],
                     ((0,), (1,)), id="sketches of other sizes are others"),
        pytest.param("count(*), count(1)", ["CountRows"], ((0,),), id="equal calls are one call"),
    ],
)  # fmt: skip
def test_aggregates_share_accumulators(
    items: str, slots: list[str], reads: tuple[tuple[int, ...], ...]
) -> None:
    query = compiled(f"SELECT {items} {WINDOW}")
    assert [type(slot.accumulator).__name__ for slot in query.slots] == slots
    assert query.reads == reads


def test_queries_that_differ_in_constants_share_their_aggregates() -> None:
    keyed = "FROM bids [ROWS 5, SLIDE 1, PARTITION BY site]"
    texts = {f"plain{i}": f"SELECT avg(price) {WINDOW} WHERE site = {i}" for i in range(3)}
    texts |= {f"keyed{i}": f"SELECT site, avg(price) {keyed} WHERE seq = {i} GROUP BY site" for i in range(2)}
    aggregates = {
        name: compile_query(name, query).aggregates
        for name, query in bind(texts, CATALOG, SCALARS).items()
        if isinstance(query, Query)
    }
    assert aggregates["plain0"] is aggregates["plain1"] is aggregates["plain2"]
    assert aggregates["keyed0"] != aggregates["keyed1"], "WHERE is a condition of their slots"


def test_a_function_that_is_registered_again_has_its_own_accumulators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"SELECT max(price) {WINDOW}"
    before = compiled(text)
    minimum = replace(aggregate_function("max"), accumulators=aggregate_function("min").accumulators)
    monkeypatch.setitem(table._table, "max", minimum)
    assert compiled(text).slots != before.slots


def test_a_sheet_has_a_column_for_each_part() -> None:
    query = compiled(f"SELECT site, day, avg(amount), stddev(price) {WINDOW} GROUP BY site, day")
    assert [f"{field.name}: {field.type}" for field in Layout.of(query, query.slots).schema] == [
        "selection: int64",
        "slice: int64",
        "stop: int64",
        "k0: int32",
        "k1: date32[day]",
        "rows: int64",
        "s0_0: decimal128(38, 2)",
        "s1_0: int64",
        "s2_0: int64",
        "s2_1: double",
        "s2_2: double",
        "s2_3: double",
    ]


@pytest.mark.parametrize(
    ("where", "pinned"),
    [
        ("site = 3", {"site": (3,)}),
        ("3 = site", {"site": (3,)}),
        ("site IN (3, 4)", {"site": (3, 4)}),
        ("site = 3 AND kind = 'a'", {"site": (3,), "kind": ("a",)}),
        ("site IN (3, 4) AND site IN (4, 5)", {"site": (4,)}),
        ("site = 3 OR kind = 'a'", {}),
        ("NOT site = 3", {}),
        ("site > 3", {}),
        ("site + 1 = 3", {}),
        ("amount = 1.5", {"amount": (Decimal("1.5"),)}),
        ("day = DATE '2013-01-01'", {"day": (date(2013, 1, 1),)}),
    ],
)
def test_where_pins_columns_that_it_equates(where: str, pinned: dict[str, Any]) -> None:
    assert compiled(f"SELECT count(*) {WINDOW} WHERE {where}").pinned == pinned


def test_only_plain_columns_in_group_by_can_be_punctuated() -> None:
    query = compiled(f"SELECT count(*) {WINDOW} GROUP BY seq % 2, kind, site")
    assert query.key_columns == {"kind": 1, "site": 2}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1_000_000),
        (date(2013, 1, 1), date(2013, 1, 1)),
        ("a", "a"),
        (None, None),
    ],
)
def test_instants_are_compared_as_microseconds(value: Any, plain: Any) -> None:
    assert pattern_value(value) == plain
