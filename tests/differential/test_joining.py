"""Joining on the fly: what a newcomer is answered from slices that others kept, and what it is not.

Rows of all scripts, in seconds; batches are what lies between bars, and the newcomer joins at the second:

    1         12     |  25
    |----.----|----.----|----.----|----.
    0        10        20        30
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.differential.cases import SECOND, BatchCase, Case
from tests.differential.engine import PureEngine, bound
from tests.differential.oracle_comparison import same_as_oracle
from transom.plan.strategy import Place, Strategy

OLD = "SELECT sum(qty) AS x, count(*) AS n FROM s [RANGE '10 seconds' SLIDE '10 seconds']"
TWICE = "SELECT sum(qty) AS x FROM s [RANGE '20 seconds' SLIDE '10 seconds']"
LEAST = "SELECT min(qty) AS x FROM s [RANGE '10 seconds' SLIDE '10 seconds']"


def row(second: float, qty: int = 1, **more: Any) -> dict[str, Any]:
    values = {
        "ts": int(second * SECOND),
        "seq": int(second),
        "site": 1,
        "kind": "a",
        "price": 1.5,
        "qty": qty,
    }
    return {**values, "amount": None, **more}


@dataclass
class Script:
    """Batches by hand; a query that joins is given with its text, one that leaves by its name."""

    slack: int | None = None
    strategy: Strategy = field(default_factory=Strategy)
    case: Case = field(init=False)

    def __post_init__(self) -> None:
        self.case = Case({}, set(), [], self.slack, None)

    def batch(
        self,
        *seconds: float,
        join: dict[str, str] | None = None,
        leave: tuple[str, ...] = (),
        ended: bool = False,
    ) -> Script:
        """A batch of rows at some seconds, each with a quantity of its second."""
        self.case.queries |= join or {}
        rows = [row(second, int(second)) for second in seconds]
        self.case.batches.append(BatchCase(rows, list(join or {}), list(leave), ended=ended))
        return self

    def reported(self, *names: str) -> dict[str, list[tuple[int, int]]]:
        """The windows that queries reported, in seconds, once all that came out was found right."""
        queries = bound(self.case.queries)
        engine = PureEngine(self.case, queries, self.strategy)
        for batch_id in self.case.batches:
            engine.batch(batch_id)
        same_as_oracle(self.case, queries, engine.results, engine.late, engine.state.stream("s").totals)
        return {
            name: sorted(
                (r["window_start"] // SECOND, r["window_end"] // SECOND) for r in engine.results[name]
            )
            for name in names
        }


def newcomer(text: str, old: str = OLD, **options: Any) -> list[tuple[int, int]]:
    """The windows that a newcomer reports."""
    script = Script(**options).batch(1, 12, join={"old": old}).batch(25, join={"new": text}).batch(ended=True)
    return script.reported("new")["new"]


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        pytest.param(TWICE,
                     [(-10, 10), (0, 20), (10, 30), (20, 40)], id="its edges are edges of the slices"),
        pytest.param("SELECT avg(qty) AS x FROM s [RANGE '10 seconds' SLIDE '10 seconds']",
                     [(20, 30)], id="an average of integers keeps another sum"),
        pytest.param("SELECT count(*) AS x FROM s [RANGE '40 seconds' SLIDE '40 seconds']",
                     [(0, 40)], id="one of the aggregates is enough"),
        pytest.param(f"{TWICE} HAVING sum(qty) > 12",
                     [(0, 20), (10, 30), (20, 40)], id="HAVING is no matter"),
    ],
)  # fmt: skip
def test_a_newcomer_is_answered_from_slices_that_were_kept(text: str, windows: list[tuple[int, int]]) -> None:
    assert newcomer(text) == windows


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        pytest.param("SELECT sum(qty) AS x FROM s [RANGE '10 seconds' SLIDE '5 seconds']",
                     [(20, 30), (25, 35)], id="a slice lies across its edge"),
        pytest.param("SELECT min(qty) AS x FROM s [RANGE '20 seconds' SLIDE '10 seconds']",
                     [(20, 40)], id="an aggregate was not kept"),
        pytest.param(f"{TWICE} WHERE qty > 0",
                     [(20, 40)], id="nobody asked for these rows"),
        pytest.param(f"{TWICE} GROUP BY site",
                     [(20, 40)], id="nobody had these groups"),
        pytest.param(TWICE.replace("sum(qty)", "sum(qty) FILTER (WHERE qty > 0)"),
                     [(20, 40)], id="an aggregate was shown other rows"),
    ],
)  # fmt: skip
def test_a_newcomer_is_not_answered_where_slices_cannot(text: str, windows: list[tuple[int, int]]) -> None:
    assert newcomer(text) == windows


SPREAD = "SELECT stddev(price) AS x FROM s [RANGE '10 seconds' SLIDE '10 seconds']"
AVERAGE = TWICE.replace("sum(qty) AS x", "avg(price) AS x, sum(price) AS y, count(price) AS z")


@pytest.mark.parametrize("place", Place)
def test_an_average_is_answered_from_moments_that_were_kept_for_another(place: Place) -> None:
    strategy = Strategy(place=place)
    assert newcomer(AVERAGE, SPREAD, strategy=strategy) == [(-10, 10), (0, 20), (10, 30), (20, 40)]
    assert newcomer(SPREAD, AVERAGE, strategy=strategy) == [(20, 30)], "sums hold no spread"


@pytest.mark.parametrize("place", Place)
def test_moments_stay_as_long_as_somebody_is_served_by_them(place: Place) -> None:
    """Whoever kept them leaves, and others come who read the same, or the moments themselves."""
    script = Script(strategy=Strategy(place=place)).batch(1, 12, join={"spread": SPREAD})
    script.batch(14, join={"average": AVERAGE}).batch(15, 21, leave=("spread",))
    script.batch(25, join={"again": SPREAD, "sum": AVERAGE}).batch(31, leave=("average",)).batch(ended=True)
    found = script.reported("average", "again", "sum")
    assert found["again"] == [(0, 10), (10, 20), (20, 30), (30, 40)]
    assert found["sum"] == [(-10, 10), (0, 20), (10, 30), (20, 40), (30, 50)]


@pytest.mark.parametrize("place", Place)
def test_an_average_goes_on_reading_its_sum_when_a_variance_joins_and_leaves(place: Place) -> None:
    script = Script(strategy=Strategy(place=place)).batch(1, 12, join={"average": AVERAGE})
    script.batch(14, join={"spread": SPREAD}).batch(25, leave=("spread",)).batch(31, ended=True)
    assert script.reported("average")["average"] == [(-10, 10), (0, 20), (10, 30), (20, 40), (30, 50)]


def test_slices_that_were_let_go_answer_nothing() -> None:
    assert newcomer(TWICE, slack=0) == [(10, 30), (20, 40)], "[0, 10) was let go when 12 came"
    assert newcomer(TWICE, slack=60 * SECOND) == [(-10, 10), (0, 20), (10, 30), (20, 40)]


def test_a_slice_is_kept_as_long_as_some_window_needs_it() -> None:
    long = "SELECT sum(qty) AS x FROM s [RANGE '30 seconds' SLIDE '10 seconds']"
    script = Script(slack=0).batch(1, 12, join={"short": OLD, "long": long})
    script.batch(25, join={"new": TWICE})
    assert script.batch(ended=True).reported("new") == {"new": [(0, 20), (10, 30), (20, 40)]}


@pytest.mark.parametrize("slide", [5, 1], ids=["few windows", "windows by the dozen"])
@pytest.mark.parametrize("place", Place)
def test_part_of_a_slice_that_nobody_had_rows_in_is_not_missed(place: Place, slide: int) -> None:
    """The slice [0, 60) holds rows up to 12, and is cut at 25 and 30 by the newcomer only."""
    old = "SELECT sum(qty) AS x FROM s [RANGE '60 seconds' SLIDE '60 seconds']"
    new = f"SELECT sum(qty) AS x FROM s [RANGE '5 seconds' SLIDE '{slide} seconds']"
    windows = [(start, start + 5) for start in range(21, 26) if start % slide == 0]
    assert newcomer(new, old, strategy=Strategy(place=place)) == windows


def test_nothing_is_shared_when_nothing_is_to_be() -> None:
    assert newcomer(TWICE, strategy=Strategy(shared=False)) == [(20, 40)]


def test_panes_answer_what_pairs_cannot() -> None:
    old = "SELECT sum(qty) AS x FROM s [RANGE '15 seconds' SLIDE '10 seconds']"
    new = "SELECT sum(qty) AS x FROM s [RANGE '5 seconds' SLIDE '5 seconds']"
    assert newcomer(new, old) == [(0, 5), (10, 15), (25, 30)], "pairs are cut at 5, 10, 15, as it happens"
    assert newcomer(new, old, strategy=Strategy(paned=True)) == [(0, 5), (10, 15), (25, 30)]
    old, new = old.replace("'15", "'12"), new.replace("'5", "'2")
    assert newcomer(new, old) == [(24, 26)]
    assert newcomer(new, old, strategy=Strategy(paned=True)) == [(0, 2), (12, 14), (24, 26)]


def test_who_comes_back_has_missed_what_came_in_between_unless_others_kept_it() -> None:
    script = Script().batch(1, join={"a": OLD}).batch(12, leave=("a",)).batch(25, join={"again": OLD})
    assert script.batch(ended=True).reported("again") == {"again": [(20, 30)]}
    script = (
        Script().batch(1, join={"a": OLD, "b": OLD}).batch(12, leave=("a",)).batch(25, join={"again": OLD})
    )
    assert script.batch(ended=True).reported("again") == {"again": [(0, 10), (10, 20), (20, 30)]}


@pytest.mark.parametrize("apart", [False, True])
def test_a_selection_that_opened_late_does_not_know_what_was_before(apart: bool) -> None:
    joins: list[dict[str, str]] = [{"a": OLD}, {"b": OLD}] if apart else [{"a": OLD, "b": OLD}, {}]
    script = Script().batch(1, join={"other": f"{OLD} WHERE qty > 5"})
    script.batch(2, join=joins[0]).batch(12, join=joins[1]).batch(25, ended=True)
    assert script.reported("a", "b") == {"a": [(10, 20), (20, 30)], "b": [(10, 20), (20, 30)]}


def test_an_aggregate_that_was_added_late_is_not_known_from_before() -> None:
    script = Script().batch(1, join={"old": OLD}).batch(12, join={"a": LEAST})
    script.batch(13, join={"b": LEAST}).batch(14, leave=("a",)).batch(25, join={"c": LEAST}).batch(ended=True)
    assert script.reported("old", "b", "c") == {
        "old": [(0, 10), (10, 20), (20, 30)],
        "b": [(10, 20), (20, 30)],
        "c": [(10, 20), (20, 30)],
    }


def test_an_aggregate_that_no_query_wants_is_dropped() -> None:
    script = (
        Script().batch(1, join={"old": OLD, "a": LEAST}).batch(12, leave=("a",)).batch(25, join={"b": LEAST})
    )
    assert script.batch(ended=True).reported("old", "b") == {
        "old": [(0, 10), (10, 20), (20, 30)],
        "b": [(20, 30)],
    }


def test_a_window_between_the_rows_of_a_slice_across_its_edge_is_seen_whole() -> None:
    """The slice [0, 10) holds only the row at 1: the window [5, 15) had none before the newcomer joined."""
    script = Script().batch(1, join={"old": OLD})
    script.batch(7, join={"new": "SELECT sum(qty) AS x FROM s [RANGE '10 seconds' SLIDE '5 seconds']"})
    assert script.batch(ended=True).reported("new") == {"new": [(5, 15)]}


def test_a_newcomer_that_wants_windows_seen_in_part_keeps_to_itself() -> None:
    script = Script().batch(1, 12, join={"old": OLD}).batch(13, 25, join={"new": TWICE}).batch(ended=True)
    script.case.partial.add("new")
    assert script.reported("new") == {"new": [(0, 20), (10, 30), (20, 40)]}


@pytest.mark.parametrize("text", [TWICE.replace("'20", "'10"), LEAST], ids=["known", "another aggregate"])
def test_a_slice_across_an_edge_is_in_no_window_that_it_is_only_partly_in(text: str) -> None:
    """The slice [0, 10) holds only the row at 7: the window [-5, 5) has no row at all, or only later ones."""
    text = text.replace("SLIDE '10", "SLIDE '5")
    script = Script().batch(7, join={"old": OLD}).batch(16, join={"new": text}).batch(ended=True)
    assert script.reported("new") == {"new": [(10, 20), (15, 25)]}
    script = Script().batch(7, join={"old": OLD}).batch(3, 16, join={"new": text}).batch(ended=True)
    assert script.reported("new") == {"new": [(-5, 5), (10, 20), (15, 25)]}
