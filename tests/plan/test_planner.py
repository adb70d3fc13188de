"""The planner runs its passes in order, remembers what they decided, and plans nothing where nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pytest

from tests.plan.bids import RULES, admitted, compiled
from transom.errors import SettingError
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership, Observed, Pass, PlanContext
from transom.plan.decisions import Choice, Decision
from transom.plan.explain import Explained, gather, plan_text, query_text
from transom.plan.limits import Limits
from transom.plan.passes import PASSES
from transom.plan.planner import Planner
from transom.plan.strategy import FragmentSharing, Place, Strategy
from transom.plan.subject import Subject
from transom.state.state import State

WINDOW, LONGER = "[RANGE 10 SLIDE 10 WATTR seq]", "[RANGE 20 SLIDE 10 WATTR seq]"


def query(name: str, rest: str = "", window: str = WINDOW, naive: bool = False) -> CompiledQuery:
    return compiled(f"SELECT count(*) AS n FROM bids {window} {rest}", name, naive)


def decided(
    queries: Sequence[CompiledQuery], strategy: Strategy | None = None, **membership: object
) -> dict[str, list[str]]:
    """What every pass decides about queries that join before the first row."""
    planner = Planner(strategy)
    change = Membership({own.name: own for own in queries}, queries, **membership)  # type: ignore[arg-type]
    planner.plan(planner.begin(State(), change), queries)
    return {name: list(map(str, choices)) for name, choices in planner.decisions("bids")}


def test_the_passes_are_one_ordered_tuple() -> None:
    names = ["admission", "reshare", "generations", "families", "rollups", "placement", "stores"]
    assert [own.name for own in PASSES] == names
    assert list(decided([query("a")])) == names, "also those with nothing to decide"


@pytest.mark.parametrize(
    ("strategy", "of", "expected"),
    [
        pytest.param(
            Strategy(), "admission",
            ["query a: opens selection 1 (no other query has the same WHERE, joins and GROUP BY)",
             "query b: shares selection 1 (same WHERE, joins and GROUP BY as 1 other query)",
             "query c: opens selection 2 (no other query has the same WHERE, joins and GROUP BY)"],
            id="queries over the same rows share a selection",
        ),
        pytest.param(
            Strategy(shared=False), "admission",
            [f"query {name}: opens selection {i} (the setting strategy shares no slices)"
             for i, name in enumerate("abc", 1)],
            id="a strategy without sharing",
        ),
        pytest.param(
            Strategy(), "families",
            ["family 1: one binary search of `price` for 2 selections "
             "(they differ only in what they ask of it: 4 fragments)"],
            id="a range family",
        ),
        pytest.param(
            Strategy(fragments=FragmentSharing.UNSHARED), "families",
            ["family 1: selection 1 alone (the setting fragments is unshared)",
             "family 2: selection 2 alone (the setting fragments is unshared)"],
            id="fragments that are not shared",
        ),
        pytest.param(
            Strategy(place=Place.EXECUTORS), "placement",
            ["selection 1: kept on the executors (the setting state is executors)",
             "selection 2: kept on the executors (the setting state is executors)"],
            id="state on the executors",
        ),
        pytest.param(Strategy(), "placement", [], id="the driver needs no reason"),
    ],
)  # fmt: skip
def test_a_decision_says_what_was_chosen_and_why(strategy: Strategy, of: str, expected: list[str]) -> None:
    queries = [
        query("a", "WHERE price > 1"),
        query("b", "WHERE price > 1", LONGER),
        query("c", "WHERE price > 2"),
    ]
    assert decided(queries, strategy)[of] == expected


def test_families_that_differ_in_groups_are_rolled_up_together() -> None:
    queries = [query("a", "GROUP BY site"), query("b", "GROUP BY kind")]
    (choice,) = decided(queries)["rollups"]
    assert choice.startswith("families 1, 2: rolled up from groups by `site`, `kind`")
    assert decided(queries, Strategy(rolls=False))["rollups"] == []


def test_on_demand_queries_over_the_same_rows_share_stores() -> None:
    looking = [compiled(f"SELECT max(price) FROM bids [RANGE {i} minutes]", f"q{i}") for i in (1, 2)]
    found = decided([], store_sets=Planner().all_store_sets(looking))
    (choice,) = found["stores"]
    assert choice.endswith("2 stores on the driver (2 on-demand queries over the same tuples and groups)")


# --- placement by what a batch brought ---


def brought(rows: int, selection: int = 1) -> Observed:
    table = pa.table({"selection": pa.array([selection] * rows, pa.int64())})
    return Observed({"sheet": table}, {"sheet": table}, ())


@pytest.mark.parametrize(
    ("rows", "limits", "reason"),
    [
        pytest.param(10, Limits(driver_rows=10, batches_to_limit=1), None, id="as many as are allowed"),
        pytest.param(
            11,
            Limits(driver_rows=10, batches_to_limit=1),
            "11 rows on the driver, more than 10",
            id="too many",
        ),
        pytest.param(
            11, Limits(driver_rows=40), "one batch brought 11 rows, more than 10", id="too many in one batch"
        ),
    ],
)
def test_slices_move_to_the_executors_by_their_rows(rows: int, limits: Limits, reason: str | None) -> None:
    own = query("a", "GROUP BY site")
    planner, state = Planner(Strategy(limits=limits)), admitted(own)
    moved = planner.place(state, [own], brought(rows))
    placed = {name: list(map(str, choices)) for name, choices in planner.decisions("bids")}["placement"]
    assert bool(moved) == (reason is not None)
    assert placed == ([] if reason is None else [f"selection 1: kept on the executors ({reason})"])


@pytest.mark.parametrize("place", [Place.DRIVER, Place.EXECUTORS])
def test_rows_do_not_matter_unless_the_place_is_auto(place: Place) -> None:
    own = query("a", "GROUP BY site")
    planner = Planner(Strategy(place=place, limits=Limits(driver_rows=1)))
    assert not planner.place(admitted(own), [own], brought(100))


# --- what is remembered ---


class Counting:
    """Passes that count how often they run."""

    def __init__(self) -> None:
        self.runs = 0

    def counted(self, context: PlanContext) -> Decision | None:
        self.runs += 1
        return None


def test_a_batch_at_which_no_query_joins_or_leaves_plans_nothing() -> None:
    counting, queries = Counting(), [query("a", "WHERE price > 1"), query("b", "WHERE price > 2")]
    planner, state = Planner(passes=(*PASSES, Pass("counted", counting.counted))), admitted(*queries)
    first = planner.plan(state, queries)
    assert counting.runs == 1
    assert planner.plan(state, queries) is first and counting.runs == 1
    fewer = planner.plan(state, queries[:1])
    assert fewer is not first and counting.runs == 2


def test_a_choice_about_a_query_holds_until_the_query_leaves() -> None:
    one, other = query("a"), query("b", "WHERE price > 1")
    planner = Planner()
    state = planner.begin(State(), Membership({"a": one}, [one]))
    state = planner.begin(state, Membership({"a": one, "b": other}, [other]))
    assert [str(own.about) for own in dict(planner.decisions("bids"))["admission"]] == ["query a", "query b"]
    planner.begin(state, Membership({"b": other}, leaving=["a"]))
    assert [str(own.about) for own in dict(planner.decisions("bids"))["admission"]] == ["query b"]


def test_asking_what_if_changes_nothing() -> None:
    one, other = query("a", "WHERE price > 1"), query("b", "WHERE price > 2")
    planner = Planner()
    state = planner.begin(State(), Membership({"a": one}, [one]))
    plan = planner.plan(state, [one])
    before = dict(planner.decisions("bids"))
    shown = plan_text(
        gather(Explained({"bids": RULES}, state, {"a": one, "b": other}, planner)), verbose=True
    )
    assert "query b: opens selection 2" in shown
    assert dict(planner.decisions("bids")) == before and planner.plan(state, [one]) is plan


def test_explain_shows_the_plan_that_was_made() -> None:
    queries = [query("a", "WHERE price > 1"), query("b", "WHERE price > 2")]
    counting = Counting()
    planner = Planner(passes=(*PASSES, Pass("counted", counting.counted)))
    state = planner.begin(State(), Membership({own.name: own for own in queries}, queries))
    planner.plan(state, queries)
    runs = counting.runs
    gather(Explained({"bids": RULES}, state, {own.name: own for own in queries}, planner))
    assert counting.runs == runs + 1, "only to find that nobody waits"


# --- extensions ---


def warn_of_large(context: PlanContext, most: int) -> Decision | None:
    """A pass that warns of selections with many queries."""
    if context.selections is None:
        return None
    choices = [
        Choice(one.clock.stream, Subject.selections([one.id]), "is large", f"{len(one.queries)} queries")
        for one in context.selections
        if len(one.queries) > most
    ]
    return Decision(choices, replaces=context.selections[0].clock.stream)


WARN_OF_LARGE = Pass("warn_of_large", partial(warn_of_large, most=1))


def test_a_program_can_add_a_pass_and_sees_its_decision_in_explain() -> None:
    queries = [query("a"), query("b", window=LONGER), query("c", "WHERE price > 1")]
    planner = Planner(passes=(*PASSES, WARN_OF_LARGE))
    plan = gather(Explained({"bids": RULES}, State(), {own.name: own for own in queries}, planner))
    lines = plan_text(plan, verbose=True).splitlines()
    at = lines.index("    8. warn_of_large")
    assert lines[at + 1] == "      selection 1: is large (2 queries)"
    assert "is large" in query_text(plan, "a", verbose=True)
    assert "is large" not in query_text(plan, "c", verbose=True)
    assert plan.as_dict()["streams"][0]["decisions"][-1] == {
        "name": "warn_of_large",
        "choices": [{"about": "selection 1", "chosen": "is large", "reason": "2 queries"}],
    }
    assert "warn_of_large" not in plan_text(plan), "only verbose shows decisions"


@pytest.mark.parametrize(
    ("added", "message"),
    [
        pytest.param(
            partial(warn_of_large, most=1), "not a planner pass: functools.partial", id="a bare function"
        ),
        pytest.param(
            Pass("families", lambda context: None), "have the name 'families'", id="a name that is taken"
        ),
    ],
)
def test_a_pass_has_a_name_of_its_own(added: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Planner(passes=(*PASSES, added))  # type: ignore[arg-type]
