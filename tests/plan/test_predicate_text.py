"""Predicates as text."""

from __future__ import annotations

import pytest

from tests.plan.bids import bound
from transom.plan.predicate_text import predicate_text


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("site = 1 AND (kind = 'a' OR kind = 'b')", "`site` = 1 AND (`kind` = 'a' OR `kind` = 'b')"),
        ("NOT (site = 1 AND seq = 2)", "NOT (`site` = 1 AND `seq` = 2)"),
        ("kind IS NOT NULL", "NOT `kind` IS NULL"),
        ("price > seq", "`price` > `seq`"),
        ("NOT site = 1", "NOT `site` = 1"),
    ],
)
def test_predicates_read_as_they_are_written(where: str, text: str) -> None:
    query = bound(f"SELECT count(*) FROM bids [RANGE 4 minutes SLIDE 1 minute] WHERE {where}")
    assert query.where is not None
    assert predicate_text(query.where) == text
