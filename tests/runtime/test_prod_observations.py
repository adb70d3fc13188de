"""What prods reported waits for the next batch, which forgets what it has seen or made void."""

from __future__ import annotations

import numpy as np
import pytest

from transom.elements import Control, Edit, Rename
from transom.estimates.early_values import Estimates
from transom.estimates.estimator_stack import EarlyRows
from transom.estimates.feedback import Observation
from transom.runtime.prod_observations import MAX_OBSERVATIONS, ProdObservations
from transom.runtime.registry import Registry, identity
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import QueryRecord

TEXT = "SELECT count(*) AS n FROM s"


def observed(query: str) -> Observation:
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    rows = EarlyRows(whole, whole, whole, none, none, 0, np.zeros(0, bool))
    return Observation(query, rows, Estimates(none, none, none, none))


def registry_of(*names: str) -> Registry:
    return Registry(QueryRecord(name, TEXT, since=1) for name in names)


def test_a_batch_learns_from_each_observation_once() -> None:
    observations, registry, intent = ProdObservations(), registry_of("a", "b"), BatchIntent(2, 0)
    first, second, later = observed("a"), observed("b"), observed("a")
    observations.add(identity("a", 1), first)
    observations.add(identity("b", 1), second)
    seen = observations.for_batch(intent, registry)
    assert seen == [first, second]
    observations.add(identity("a", 1), later)  # while the batch runs
    observations.batch_committed(intent, registry, seen)
    (left,) = observations.for_batch(BatchIntent(3, 0), registry)
    assert left is later


def test_only_the_newest_observations_of_a_query_are_kept() -> None:
    observations, registry = ProdObservations(), registry_of("a")
    made = [observed("a") for _ in range(MAX_OBSERVATIONS + 3)]
    for each in made:
        observations.add(identity("a", 1), each)
    kept = observations.for_batch(BatchIntent(2, 0), registry)
    assert [id(each) for each in kept] == [id(each) for each in made[3:]]


@pytest.mark.parametrize(
    "control, after",
    [
        pytest.param(Edit("a", "SELECT sum(x) AS n FROM s"), ["a"], id="another text"),
        pytest.param(Rename("b", "a"), ["a"], id="another name"),
        pytest.param(None, [], id="the query left"),
    ],
)
def test_observations_of_a_query_that_a_batch_changes_or_drops_are_forgotten(
    control: Control | None, after: list[str]
) -> None:
    observations, registry = ProdObservations(), registry_of(*after)
    observations.add(identity("a", 1), observed("a"))
    intent = BatchIntent(2, 0, control=() if control is None else (control,))
    assert observations.for_batch(intent, registry) == []
    observations.batch_committed(intent, registry, [])
    assert observations.for_batch(BatchIntent(3, 0), registry_of("a")) == []
