"""Which of a batch's results hold, and which retractions a sink gets."""

from __future__ import annotations

from itertools import zip_longest

import pyarrow as pa

from tests.results.orders import ORDERS
from transom.results.newest_results import ResultPlaces, newest_results, without_replaced_retractions

PLACES = ResultPlaces(kind=3, key=(1, 2))


def test_retractions_are_left_out_if_a_later_result_of_the_batch_replaces_them() -> None:
    """A group for each order; their results alternate."""
    turns = zip_longest(*(kinds for kinds, _, _ in ORDERS))
    rows = [(site, kind) for turn in turns for site, kind in enumerate(turn) if kind is not None]
    sites = [None if site == 0 else site for site, _ in rows]
    table = pa.table(
        {"start": [0] * len(rows), "end": [60] * len(rows), "site": sites, "kind": [kind for _, kind in rows]}
    )

    def kinds_of(results: pa.Table) -> list[list[str]]:
        found = results.to_pylist()
        return [
            [row["kind"] for row in found if row["site"] == (site or None)] for site in range(len(ORDERS))
        ]

    assert kinds_of(without_replaced_retractions(table, PLACES)) == [expected for _, expected, _ in ORDERS]
    newest = [[] if kind in (None, "early") else [kind] for _, _, kind in ORDERS]
    assert kinds_of(newest_results(table, PLACES)) == newest
