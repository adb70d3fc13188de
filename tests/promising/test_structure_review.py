"""Reviews of summaries with STRUCTURE auto: equation 1 decides, now and then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.promising.pure_batches import SECOND, PureStores, join_of, rows_of, shape_of
from transom.elements import Preference
from transom.plan.limits import Limits
from transom.plan.planner import Planner
from transom.promising.batch_tuples import batch_arrival, batch_tuples, tuple_columns
from transom.promising.structure_choice import SUMMARY_STRUCTURES
from transom.promising.structure_review import ChosenStructure, ReviewInput, StructureReview, rebuilt
from transom.promising.structure_trials import MeasuredStructures
from transom.state.promising import PromisingState

ITEMS = 40


def engine_of(preference: Preference, batches: int = 6, by_cell: bool = False) -> PureStores:
    """Two stores with STRUCTURE auto, after some batches."""
    shapes = {f"items{n}": shape_of(n, structure="auto", buckets=16) for n in (1, 2)}
    engine = PureStores(shapes, {"join": join_of(preference)}, by_cell=by_cell)
    rng = np.random.default_rng(1)
    for batch_id in range(batches):
        items = rng.integers(0, ITEMS, 200).tolist()
        engine.push(batch_id % 2 + 1, rows_of(items, [batch_id * SECOND] * 200), 100)
    return engine


def review(
    engine: PureStores, budget: int | None, batch_id: int = 100, planner: Planner | None = None
) -> PromisingState:
    """The state after a review with a batch of the first store."""
    shape = engine.known.summaries["items1"].representation.shape
    want = tuple_columns(shape, engine.queries)
    rows = rows_of(list(range(ITEMS)) * 5, [6 * SECOND] * ITEMS * 5)
    arrival = batch_arrival(shape, batch_tuples(rows, shape, want, batch_id), want)
    given = ReviewInput(batch_id, {"items1": arrival}, engine.queries, {"join": budget})
    return StructureReview().apply(engine.known, engine.shapes, given, planner or Planner())


def structure(known: PromisingState, name: str = "items2") -> str:
    return known.summaries[name].representation.shape.structure


def test_with_enough_time_a_structure_with_summaries_is_chosen() -> None:
    engine = engine_of(Preference("desc", window=60 * SECOND, time=200_000))
    assert structure(review(engine, 100_000)) in ("cells", "adjusting")


def test_a_change_of_structure_is_a_decision_with_its_reason() -> None:
    engine, planner = engine_of(Preference("desc", window=60 * SECOND, time=1_000)), Planner()
    stream = engine.shapes["items2"].stream
    review(engine, ITEMS * 5 * 4, planner=planner)
    (record,) = planner.records(stream)
    assert (record.pass_name, record.about, record.kind) == ("summaries", "summary items2", "none")
    assert record.reason == "it costs query join the least per result, in a trial with 4 probes per tuple"
    planner.end_summary("items2")
    assert not planner.records(stream)


def test_without_time_for_summaries_structure_none_is_chosen() -> None:
    engine = engine_of(Preference("desc", window=60 * SECOND, time=1_000), by_cell=True)
    after = review(engine, ITEMS * 5 * 4)
    assert structure(after) == "none", "four probes a tuple don't pay for its sketch"
    assert not len(after.queries["join"].pending[0]), "cells that were deferred there are lost"
    assert after.queries["join"].lost > 0


def test_auto_loses_no_output_that_a_fixed_structure_finds() -> None:
    """Matches that are deferred by key are found in whatever structure the tuples are."""
    auto, fixed = (engine_of(Preference("desc", window=60 * SECOND, time=1_000)) for _ in range(2))
    auto.known = review(auto, ITEMS * 5 * 4)
    assert structure(auto.known) == "none" != structure(fixed.known)
    assert auto.known.queries["join"].coverage == fixed.known.queries["join"].coverage
    for engine in (auto, fixed):
        while any(map(len, engine.known.queries["join"].pending)):
            engine.idle(5_000)
    found = [
        {(row["0.row"], row["1.row"], row["0time"], row["1time"]) for row in one.found["join"]}
        for one in (auto, fixed)
    ]
    assert found[0] == found[1] and auto.known.queries["join"].coverage.complete


def test_a_budget_of_probes_is_not_charged_with_insertion() -> None:
    engine = engine_of(Preference("desc", window=60 * SECOND, probes=ITEMS * 5 * 4))
    assert structure(review(engine, ITEMS * 5 * 4)) in ("cells", "adjusting")


def test_reviews_become_rarer() -> None:
    engine = engine_of(Preference("desc", window=60 * SECOND, time=200_000))
    for batch_id, due in ((1, 1 + 4), (10, 20), (100, 200), (1000, 1000 + 256)):
        known = review(engine, 100_000, batch_id)
        assert known.summaries["items2"].review == due
        engine.known = known
        again = review(engine, 100, due - 1)
        assert again.summaries["items2"].review == due, "not before its time"


def test_a_structure_that_the_user_chose_stays() -> None:
    engine = engine_of(Preference("desc", window=60 * SECOND, time=1_000))
    engine.shapes = {name: replace(shape, structure="adjusting") for name, shape in engine.shapes.items()}
    assert review(engine, 1) == engine.known


@pytest.mark.parametrize("kind", SUMMARY_STRUCTURES)
def test_a_rebuilt_summary_has_the_same_tuples(kind: str) -> None:
    own = engine_of(Preference("desc")).known.summaries["items1"]
    again = rebuilt(own, replace(own.representation.shape, structure=kind))
    assert again.kept == own.kept
    assert again.representation.zones().counts.sum() == own.representation.zones().counts.sum()
    assert again.representation.high == own.representation.high


@pytest.mark.parametrize("truth", [{"adjusting": 1_000, "none": 100}, {"adjusting": 100, "none": 1_000}])
def test_what_was_measured_decides_where_the_constants_are_wrong(truth: dict[str, int]) -> None:
    """The trial always predicts `none`. The engine tries it, and returns if it produces less per second."""
    engine = engine_of(Preference("desc", window=60 * SECOND, time=200_000))
    reviewed = StructureReview(
        Limits(first_review=8, longest_review=8), lambda *given: ChosenStructure("none", "by the constants")
    )
    known, planner, used = engine.known, Planner(), []
    for batch_id in range(100, 180):
        present = structure(known)
        used.append(present)
        given = ReviewInput(
            batch_id, {}, engine.queries, {"join": 1_000}, {"items2": truth[present]}, seconds=0.1
        )
        known = reviewed.apply(known, engine.shapes, given, planner)
    best = max(truth, key=lambda one: truth[one])
    assert used[0] == "adjusting" and "none" in used
    assert set(used[30:]) == {best}, "it stays, although the trial predicts another structure at every review"
    if best == "adjusting":
        (record,) = planner.records(engine.shapes["items2"].stream)
        assert record.reason == "it produced the most per second when it was used; a trial predicts none"


def test_a_structure_that_is_hardly_better_does_not_replace_the_present_one() -> None:
    measured = MeasuredStructures()
    for batch_id in range(16):
        present = "none" if batch_id < 8 else "cells"
        measured.note(present, batch_id, 1_000 if present == "cells" else 1_040, 0.1)
    assert measured.judged("cells", "none", 16) == "cells"
    assert measured.judged("cells", "time", 16) == "time", "it was not measured yet"
    measured.note("cells", 3_000, 1_000, 0.1)
    assert measured.judged("cells", "none", 3_000) == "none", "what was measured long ago does not count"
