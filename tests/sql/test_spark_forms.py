"""Forms that people bring from Spark: LIKE ANY, tuples in IN, GROUP BY ALL, aliases in SELECT, lambdas, fields of maps."""

# ruff: noqa: E501 -- a case of a table is a line

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import CATALOG, Rules, bound, over_trades
from transom.errors import SQLError
from transom.sql import bind

WINDOW = "[RANGE 5 min SLIDE 1 min]"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("symbol LIKE ANY ('a%', 'b')", "symbol LIKE 'a%' OR symbol LIKE 'b'"),
        ("symbol LIKE ALL ('a%', 'b')", "symbol LIKE 'a%' AND symbol LIKE 'b'"),
        ("symbol LIKE ANY ('a%')", "symbol LIKE 'a%'"),
        ("symbol ILIKE ANY ('a%', 'b')", "symbol ILIKE 'a%' OR symbol ILIKE 'b'"),
        ("symbol NOT LIKE ANY ('a', 'b')", "symbol NOT LIKE 'a' OR symbol NOT LIKE 'b'"),
        ("symbol NOT LIKE ALL ('a', 'b')", "symbol NOT LIKE 'a' AND symbol NOT LIKE 'b'"),
        ("NOT symbol LIKE ANY ('a', 'b')", "NOT (symbol LIKE 'a' OR symbol LIKE 'b')"),
        ("live AND symbol LIKE ANY ('a', 'b')", "live AND (symbol LIKE 'a' OR symbol LIKE 'b')"),
        (
            "trim(symbol) LIKE ANY ('a', 'b', 'c')",
            "trim(symbol) LIKE 'a' OR trim(symbol) LIKE 'b' OR trim(symbol) LIKE 'c'",
        ),
        (
            "(site, symbol) IN ((1, 'a'), (2, 'b'))",
            "site <=> 1 AND symbol <=> 'a' OR site <=> 2 AND symbol <=> 'b'",
        ),
        ("(site, symbol) NOT IN ((1, 'a'))", "NOT (site <=> 1 AND symbol <=> 'a')"),
        ("(site + 1, volume) IN ((1, 2))", "(site + 1) <=> 1 AND volume <=> 2"),
    ],
)
def test_a_form_of_spark_is_written_with_simpler_ones(written: str, meant: str) -> None:
    assert over_trades(rest=f"WHERE {written}").where == over_trades(rest=f"WHERE {meant}").where


def test_a_list_of_thousands_of_patterns_is_not_nested_deeply() -> None:
    patterns = ", ".join(f"'{number}%'" for number in range(5_000))
    assert len(over_trades(rest=f"WHERE symbol LIKE ANY ({patterns})").where.parts) == 5_000  # type: ignore[union-attr]
    tuples = ", ".join(f"({number}, {number})" for number in range(2_000))
    assert len(over_trades(rest=f"WHERE (site, volume) IN ({tuples})").where.parts) == 2_000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("condition", "message", "place"),
    [
        ("(site, volume) IN ((1, 2, 3))", "expected a tuple of 2 values", None),
        ("(site, volume) IN (1)", "expected a tuple of 2 values", "1"),
        ("(site, volume) IN ((1, NULL))", "NULL in a tuple is not supported", None),
    ],
)
def test_an_incomplete_form_is_an_error_at_its_place(condition: str, message: str, place: str | None) -> None:
    with pytest.raises(SQLError, match=message) as caught:
        over_trades(rest=f"WHERE {condition}")
    assert place is None or caught.value.text[caught.value.start : caught.value.end] == place


def test_templates_fill_the_constants_of_lists_and_not_those_that_were_copied() -> None:
    text = f"SELECT count(*) FROM Trades {WINDOW} WHERE (site + #0, volume) IN ((#1, #2), (#3, #4)) AND symbol || '#5' LIKE ANY ('#6', '#7')"
    texts = {}
    for name, numbers in {"a": "12345678", "b": "12345699", "c": "92345678", "d": "12345178"}.items():
        texts[name] = text
        for place, number in enumerate(numbers):
            texts[name] = texts[name].replace(f"#{place}", number)
    assert bind(texts, CATALOG, Rules()) == {name: bound(one) for name, one in texts.items()}


# --- GROUP BY ALL and aliases -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "keys"),
    [
        ("site, count(*)", ["`site`"]),
        ("site, symbol AS s, sum(price)", ["`site`", "`symbol`"]),
        ("lower(symbol), count(*)", ["lower(`symbol`)"]),
        ("site, site + volume AS both, sum(price)", ["`site`", "`site` + `volume`"]),
        ("count(*), sum(price) / 2", []),
        ("5 AS five, site, window.start, window_end, count(*)", ["`site`"]),
        ("site, sum(price) + site AS mixed", ["`site`"]),
        ("lower(symbol) AS l, l || '!' AS m, count(*) AS n", ["lower(`symbol`)"]),
    ],
)
def test_group_by_all_groups_by_the_items_without_aggregates(items: str, keys: list[str]) -> None:
    assert [key.scalar.sql for key in over_trades(items, "GROUP BY ALL").keys] == keys


def test_group_by_all_finds_the_window() -> None:
    query = bound("SELECT window(ts, '5 minutes', '1 minute'), site, count(*) FROM Trades GROUP BY ALL")
    assert (query.window, [key.name for key in query.keys]) == (over_trades().window, ["site"])


def test_group_by_all_does_not_guess_columns_beside_aggregates() -> None:
    with pytest.raises(SQLError, match="site is neither in GROUP BY nor inside an aggregate"):
        over_trades("sum(price) + site AS mixed", "GROUP BY ALL")


def test_an_item_can_use_the_aliases_of_those_before_it() -> None:
    query = over_trades(
        "sum(price) AS s, count(*) AS n, s / n AS mean, mean * 2 AS twice, lower(symbol) AS l, l || '!'",
        "GROUP BY lower(symbol)",
    )
    assert [item.sql for item in query.items] == [
        "`a0`",
        "`a1`",
        "`a0` / `a1`",
        "(`a0` / `a1`) * 2",
        "`k0`",
        "`k0` || '!'",
    ]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("n + 1 AS more, count(*) AS n", "unknown column n"),
        ("sum(price) AS volume, volume + 1 AS more", "volume is neither in GROUP BY nor inside an aggregate"),
        ("lower(symbol) AS l, count(l) AS n", "unknown column l"),
    ],
)
def test_an_alias_is_no_column_and_not_known_before_its_item(items: str, message: str) -> None:
    with pytest.raises(SQLError, match=message):
        over_trades(items, "GROUP BY lower(symbol)")


# --- lambdas and fields ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("max(size(filter(tags, t -> t LIKE 'a%')))", "size(filter(`tags`, `t` -> `t` LIKE 'a%'))"),
        (
            "sum(aggregate(tags, 0, (acc, t) -> acc + length(t)))",
            "aggregate(`tags`, 0, (`acc`, `t`) -> `acc` + length(`t`))",
        ),
        (
            "max(size(transform(tags, (t, i) -> t || symbol)))",
            "size(transform(`tags`, (`t`, `i`) -> `t` || `symbol`))",
        ),
        ("max(EXISTS(tags, price -> price = 'a'))", "exists(`tags`, `price` -> `price` = 'a')"),
        ("max(extra.a)", "`extra`.`a`"),
        ("max(T.extra.`A b`)", "`extra`.`A b`"),
    ],
)
def test_lambdas_and_fields_have_one_spelling(written: str, canonical: str) -> None:
    assert over_trades(f"{written} AS x").calls[0].args[0].sql == canonical


def test_a_lambda_reads_known_columns_and_calls_known_functions() -> None:
    with pytest.raises(SQLError, match="unknown column nothing"):
        over_trades("max(size(filter(tags, t -> t = nothing)))")
    with pytest.raises(SQLError, match="a lambda can't call functions that the program registered"):
        over_trades("max(size(filter(tags, t -> midcap(t))))")
