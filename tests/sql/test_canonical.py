"""Canonical text: equal expressions are equal strings, and each means what the user wrote."""

from __future__ import annotations

import pytest

from tests.sql.trades_catalog import over_trades
from transom.errors import SQLError


def text_of(expression: str) -> str:
    (call,) = over_trades(f"min({expression})").calls
    return call.args[0].sql


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        # names
        ("price", "`price`"),
        ("T.PRICE", "`price`"),
        ("`Price`", "`price`"),
        ("`auction-site`", "`auction-site`"),
        ("spot.ZONE.Name", "`spot`.`Zone`.`name`"),
        ("t.spot.lat", "`spot`.`lat`"),
        ("ABS( Price )", "abs(`price`)"),
        ("score(price)", "`Score`(`price`)"),
        # parentheses
        ("((price))", "`price`"),
        ("(price) * (volume)", "`price` * `volume`"),
        ("(price + 1) * 2", "(`price` + 1) * 2"),
        ("abs((price + 1))", "abs(`price` + 1)"),
        ("price - (volume - 1)", "`price` - (`volume` - 1)"),
        # literals
        ("price + 1e3", "`price` + 1e3"),
        ("price + 1E3", "`price` + 1e3"),
        ("volume + 1L", "`volume` + CAST(1 AS BIGINT)"),
        ("price + 1.5D", "`price` + CAST(1.5 AS DOUBLE)"),
        ("concat(symbol, 'it''s')", "concat(`symbol`, 'it''s')"),
        ('concat(symbol, "x")', "concat(`symbol`, 'x')"),
        ('concat(symbol, "it\'s")', 'concat(`symbol`, "it\'s")'),
        (r"concat(symbol, 'a\'b\%')", r"concat(`symbol`, 'a\'b\%')"),
        (r"concat(symbol, r'\d')", r"concat(`symbol`, r'\d')"),
        ("if(live, TRUE, null)", "if(`live`, true, NULL)"),
        ("DATE '2020-01-01'", "CAST('2020-01-01' AS DATE)"),
        # operators, in the order of the source
        ("volume % 2", "`volume` % 2"),
        ("volume DIV 2", "`volume` DIV 2"),
        ("symbol || 'a' || 'b'", "`symbol` || 'a' || 'b'"),
        ("site | volume & 3 ^ 1", "`site` | `volume` & 3 ^ 1"),
        ("- -price", "- -`price`"),
        ("-price", "-`price`"),
        ("~site", "~`site`"),
        ("price == 1", "`price` = 1"),
        ("price <> 1", "`price` != 1"),
        ("!live", "NOT `live`"),
        ("symbol not in ('a')", "`symbol` NOT IN ('a')"),
        ("NOT symbol IN ('a')", "`symbol` NOT IN ('a')"),
        ("symbol like 'x' escape '/'", "`symbol` LIKE 'x' ESCAPE '/'"),
        ("symbol regexp 'x'", "`symbol` RLIKE 'x'"),
        # constructs
        ("cast(price AS Decimal(10,2))", "CAST(`price` AS DECIMAL(10, 2))"),
        ("price::int", "CAST(`price` AS INT)"),
        ("try_cast(symbol as timestamp)", "TRY_CAST(`symbol` AS TIMESTAMP)"),
        ("case when live then 1 else (2) end", "CASE WHEN `live` THEN 1 ELSE 2 END"),
        ("case site when 1 then 2 end", "CASE `site` WHEN 1 THEN 2 END"),
        ("tags[0]", "`tags`[0]"),
        ("extra['a']", "`extra`['a']"),
        ("array(price, 2)[1]", "array(`price`, 2)[1]"),
        ("named_struct('a', price).a", "named_struct('a', `price`).`a`"),
        ("ts + INTERVAL 5 minutes", "`ts` + INTERVAL '5' MINUTES"),
        ("ts - interval 1 day 2 hours", "`ts` - (INTERVAL '1' DAY + INTERVAL '2' HOURS)"),
        ("extract(year FROM ts)", "extract(YEAR FROM `ts`)"),
        ("dateadd(hour, 1, ts)", "dateadd(HOUR, 1, `ts`)"),
        ("trim(both 'x' from symbol)", "trim(BOTH 'x' FROM `symbol`)"),
        ("position('b' in symbol)", "position('b', `symbol`)"),
        ("substring(symbol from 2 for 1)", "substring(`symbol`, 2, 1)"),
        ("CURRENT_TIMESTAMP", "current_timestamp()"),
        ("current_date()", "current_date()"),
        ("price + /* more */ 1", "`price` + 1"),
    ],
)  # fmt: skip
def test_an_expression_has_one_spelling(written: str, canonical: str) -> None:
    assert text_of(written) == canonical
    assert text_of(canonical) == canonical


@pytest.mark.parametrize(
    ("written", "said", "place"),
    [
        ("rand()", "rand is not supported", "rand"),
        ("reflect('a', 'b')", "unknown function reflect", "reflect"),
        ("sqrtt(price)", "unknown function sqrtt; did you mean sqrt?", "sqrtt"),
        ("scor(price)", "unknown function scor; did you mean Score?", "scor"),
        ("explode(tags)", "explode() is allowed only in a subquery, in a view, or after LATERAL VIEW", None),
        ("prise + 1", "unknown column prise; did you mean price?", "prise"),
        ("T.prise", "unknown column prise; did you mean price?", "prise"),
        ("X.price", "unknown name X in X.price; there is T", "X.price"),
        ("spot.latt", "spot has no field latt; did you mean lat?", "spot.latt"),
        ("auction-site", "unknown column auction; a name with a hyphen needs backticks: `auction-site`", "auction"),
        ("(price, volume)", "TUPLE is not supported here", "price, volume"),
        ("'a' 'b'", "CONCAT is not supported here", None),
        ("price +", "an expression is missing before this", ")"),
        ("to_number(symbol)", "to_number takes two arguments", "to_number(symbol)"),
    ],
)  # fmt: skip
def test_a_wrong_expression_is_pointed_at(written: str, said: str, place: str | None) -> None:
    with pytest.raises(SQLError) as refused:
        text_of(written)
    error = refused.value
    assert said in error.message
    assert error.start is not None
    assert place is None or error.text[error.start : error.end] == place
