"""What the planner derives from the conditions of a WHERE clause."""

from __future__ import annotations

import pytest

from tests.plan.bids import bound
from transom.plan.boxes import own_boxes
from transom.plan.conjunction import Conjunction


def conjunction(where: str) -> Conjunction:
    text = f"SELECT count(*) FROM bids [RANGE 10 SLIDE 10 WATTR seq] {where and 'WHERE '}{where}"
    return Conjunction.of(bound(text).where)


@pytest.mark.parametrize(
    ("where", "rest"),
    [
        ("", {}),
        ("price > 2 AND price < 9", {"`price`": set()}),
        ("price > 2 AND site = 1", {"`price`": {"`site` = 1"}, "`site`": {"`price` > 2.0"}}),
        ("price > 2 AND (site = 1 OR seq = 2)", {"`price`": {"`site` = 1 OR `seq` = 2"}}),
    ],
)
def test_each_scalar_has_the_texts_of_the_conditions_on_everything_else(
    where: str, rest: dict[str, set[str]]
) -> None:
    assert conjunction(where).rest_of == rest


@pytest.mark.parametrize(
    "where",
    [
        "price > 2", "price <= 0", "price > double('Infinity')", "price >= double('NaN')", "seq < 3", "seq >= 3",
        "seq > 9223372036854775807", "kind > 'a'", "kind <= ''", "day < DATE '2013-01-01'", "amount >= 1.5",
        "price > 2 AND price < 9", "seq IN (1, 5)", "kind IS NULL",
    ],
)  # fmt: skip
def test_ranges_of_one_scalar_are_its_boxes(where: str) -> None:
    conditions = conjunction(where)
    (sql,) = conditions.by_scalar[0]
    ranges = conditions.own_ranges(sql)
    assert ranges == own_boxes((conditions.by_scalar[0][sql],), (conditions.scalars[sql],), 1_000)
    assert conditions.own_ranges(sql) is ranges, "they are derived once"
