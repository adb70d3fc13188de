"""GROUPING SETS, ROLLUP and CUBE against the oracle, which answers one query for each set."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count
from tests.differential.test_unions_and_explode import (
    SCALARS,
    SCHEMAS,
    WINDOWS,
    drawn_batches,
    engine_answers,
)
from tests.differential.test_views import SECOND, of_kind, shown
from transom import oracle
from transom.elements import Clock, Prod
from transom.sql import Catalog, Relation, bind_one

KEYS = ("a", "size(items)")
NAMES = ("a", "k")
Sets = list[tuple[int, ...]]
FORMS: dict[str, Sets] = {
    f"ROLLUP({', '.join(KEYS)})": [(0, 1), (0,), ()],
    f"CUBE({', '.join(KEYS)})": [one for size in (2, 1, 0) for one in combinations((0, 1), size)],
    f"GROUPING SETS (({KEYS[0]}), ({KEYS[1]}), ())": [(0,), (1,), ()],
    f"{KEYS[0]}, ROLLUP({KEYS[1]})": [(0, 1), (0,)],
    f"{', '.join(KEYS)} WITH ROLLUP": [(0, 1), (0,), ()],
}


def id_of(chosen: tuple[int, ...]) -> int:
    return sum(2 - place for place in (0, 1) if place not in chosen)


@given(st.randoms(use_true_random=False))
@settings(max_examples=case_count(10), deadline=None)
def test_each_set_has_the_answer_of_a_query_of_its_own(draw: Random) -> None:
    batches, slack, prodded = drawn_batches(draw), draw.choice([0, 2, 5]), draw.random() < 0.5
    form = draw.choice(list(FORMS))
    window, where = draw.choice(WINDOWS), draw.choice(["", "WHERE a > 1 OR items IS NOT NULL"])
    having = draw.choice(["", "HAVING count(*) > 1"])
    aggregates = "count(*) AS n, sum(a) AS s"
    items = f"{KEYS[0]} AS a, {KEYS[1]} AS k, grouping_id() AS g, grouping(a) AS ga, {aggregates}"
    text = f"SELECT {items} FROM t {window} {where} GROUP BY {form} {having}"
    catalog = Catalog({"t": Relation("t", SCHEMAS["t"], "ts")})
    bound = {}
    for chosen in FORMS[form]:
        keys = [KEYS[place] for place in chosen]
        named = ", ".join([*(f"{KEYS[place]} AS {NAMES[place]}" for place in chosen), aggregates])
        group = f"GROUP BY {', '.join(keys)}" if keys else ""
        bound[str(id_of(chosen))] = bind_one(
            f"SELECT {named} FROM t {window} {where} {group} {having}", catalog, SCALARS
        )
    made = [
        oracle.OracleBatch(
            "t", rows if stream == "t" else [], prods=[Prod(Clock("t", "ts"))] if prodded else []
        )
        for stream, rows in batches
    ]
    made.append(oracle.OracleBatch("t", [], end_of_stream=True))
    rules = oracle.OracleStreamRules("ts", slack=slack * SECOND, columns=SCHEMAS["t"])
    expected = oracle.answer(bound, made, {"t": rules}, SCALARS)

    def together(of: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [
            {"a": None, "k": None, **row, "g": int(number), "ga": int(number) // 2}
            for number, rows in of.items()
            for row in rows
        ]

    results, early, accounts = engine_answers({"q": text}, {}, batches, {"t": slack, "u": 0}, draw, prodded)
    names = ["a", "k", "g", "ga", "n", "s"]
    assert shown(of_kind(results["q"], "final"), names) == shown(together(expected.results), names), text
    assert shown(early["q"], names) == shown(together(expected.early), names), text
    total = {
        what: sum(one[what] for one in expected.accounts.values()) for what in ("counted", "unwanted", "late")
    }
    account = accounts["q"]
    assert (account.counted, account.unwanted, account.late) == tuple(total.values()), text
    assert pa.types.is_int64(results["q"].schema.field("g").type)
