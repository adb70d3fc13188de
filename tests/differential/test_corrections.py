"""Queries with EMIT CORRECTIONS against the oracle: every final result, correction and retraction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.case_counts import case_count, case_seeds
from tests.differential.cases import AGGREGATES, KEYS, SECOND, BatchCase, Case, query_of, some
from tests.differential.correction_cases import correcting
from tests.differential.engine import TIME, PureEngine, Row, bound
from tests.differential.oracle_comparison import check, identity, same_row
from transom.plan.strategy import FragmentSharing, Strategy
from transom.sql import Query

pytestmark = pytest.mark.any_worker

STRATEGIES: dict[str, dict[str, Any]] = {
    "unshared": {"strategy": Strategy(shared=False)},
    "unshared and paned": {"strategy": Strategy(shared=False, paned=True)},
    "naive": {"naive": True, "strategy": Strategy(shared=False)},
    **{
        f"shared by {sharing.value}": {"strategy": Strategy(fragments=sharing)} for sharing in FragmentSharing
    },
}


@settings(max_examples=case_count(20), deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_correction_is_the_oracles_on_cases_that_shrink(dice: Random) -> None:
    check(correcting(dice), Strategy(shared=False))


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
@pytest.mark.parametrize("options", STRATEGIES.values(), ids=STRATEGIES)
def test_every_strategy_gives_the_oracles_corrections(
    options: dict[str, Any], restart: bool, seed: int
) -> None:
    start = seed + 10_000 * list(STRATEGIES.values()).index(options) + 5_000 * restart
    for number in case_seeds(start, 6):
        check(correcting(Random(number)), restart=restart, seed=number, **options)


def newest(query: Query, rows: list[Row]) -> dict[Any, Row]:
    """The newest result of each window and group: what a reader has who replaces and deletes by key."""
    found: dict[Any, Row] = {}
    for row in rows:
        where = identity(replace(query, corrections=None), row, 0)
        if row.get("transom_kind", row["kind"]) == "retraction":
            del found[where]
        else:
            assert where not in found, "a correction without the retraction of what it replaces"
            found[where] = row
    return found


def consolidated(query: Query, rows: list[Row]) -> Counter[Any]:
    """The rows of a changelog: those that were inserted less those that were retracted."""
    counts: Counter[Any] = Counter()
    for row in rows:
        values = repr([row[name] for name in ("window_end", "rows", *(item.name for item in query.items))])
        counts[values] += -1 if row.get("transom_kind", row["kind"]) == "retraction" else 1
    return counts


@pytest.mark.parametrize("restart", [False, True], ids=["in one go", "restarted at every batch"])
def test_the_newest_results_are_those_of_a_stream_with_more_slack(restart: bool, seed: int) -> None:
    """After any prefix of the batches, of all windows that are closed."""
    for number in case_seeds(seed + 1_000 * restart, 12):
        rng = Random(number)
        drawn = correcting(rng)
        size, slide, bound_of = rng.randint(1, 20), rng.randint(1, 15), rng.choice([1, 7, 20, 3600])
        over = f"[RANGE '{size} seconds' SLIDE '{slide} seconds']", ""
        plain = query_of(rng, over, some(rng, KEYS, 2), "", AGGREGATES)
        texts = {"q": f"{plain} EMIT CORRECTIONS WITHIN '{bound_of} seconds'"}
        batches = [BatchCase(batch.rows, splits=batch.splits) for batch in drawn.batches]
        batches[0].joining = ["q"]
        slack = rng.choice([0, 5]) * SECOND
        patient = slack + bound_of * SECOND
        cases = [
            Case(own, set(), batches, each, None, {})
            for own, each in ((texts, slack), ({"q": plain}, patient))
        ]
        queries = [bound(case.queries) for case in cases]
        engines = [PureEngine(case, own, Strategy()) for case, own in zip(cases, queries, strict=True)]
        for batch in batches:
            for engine in engines:
                engine.batch(batch)
                if restart:
                    engine.restart()
            # What the stream with more slack has closed at this prefix, and what it would close if it ended now.
            ended = PureEngine(cases[1], queries[1], Strategy())
            ended.state, ended.living, ended.keys = engines[1].state, engines[1].living, engines[1].keys
            ended.batch(BatchCase([], ended=True))
            expected = {
                identity(queries[1]["q"], row, 0): row
                for row in [*engines[1].results["q"], *ended.results["q"]]
            }
            query, rows = queries[0]["q"], engines[0].results["q"]
            ours = newest(query, rows)
            high = engines[0].state.stream("s").clock(TIME).high
            closed = [where for where in expected if high is not None and where[1] <= high - slack]
            assert ours.keys() == set(closed), f"{texts}, drawn by Random({number})"
            for where, row in ours.items():
                same_row(query, where, row, expected[where])
            counts = consolidated(query, rows)
            assert (
                +counts == consolidated(query, list(ours.values())) and min(counts.values(), default=0) >= 0
            )
            assert engines[0].state.accounts.unaccounted == 0
