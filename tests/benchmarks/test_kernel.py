"""The kernel benchmarks: what they count, and that every form of predicate runs."""

from __future__ import annotations

import pytest

from benchmarks import predicates
from benchmarks.kernel import measure


def test_partial_aggregations_are_the_tuples_lifted_in_all_families() -> None:
    """Two families read each tuple: a tuple that both lift counts twice."""
    window = "[RANGE 600000 milliseconds SLIDE 300000 milliseconds]"
    texts = {
        "all": f"SELECT sum(price * vol) AS value FROM trades {window}",
        "by symbol": f"SELECT symbol, sum(price * vol) AS value FROM trades {window} WHERE vol > 0 GROUP BY symbol",
    }
    table = predicates.rows(500)
    assert measure([table], texts, "shared_paired", "families").partials == 1_000


@pytest.mark.parametrize("own_windows", [False, True], ids=["one window", "own windows"])
@pytest.mark.parametrize("form", predicates.FORMS)
def test_every_form_of_predicate_is_measured(form: str, own_windows: bool) -> None:
    run = predicates.measured(form, 3, own_windows, predicates.rows(400), repeats=1)
    assert run.partials > 0 and run.finals > 0
