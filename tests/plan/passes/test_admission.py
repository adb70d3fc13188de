"""Joining and leaving: which selections there are, what they keep, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.plan.bids import SCALARS, SEQ, compiled
from tests.results.in_process import advance
from transom.kernel.aggregate import BatchPlan, aggregate_rows
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.passes.admission import is_kept, release, release_suspended
from transom.plan.planner import Planner
from transom.plan.strategy import Strategy
from transom.results.batch_input import BatchInput
from transom.state.state import State
from transom.windows.intervals import IntervalSet
from transom.windows.stream_rules import StreamRules

TEN, TWENTY = "[RANGE 10 SLIDE 10 WATTR seq]", "[RANGE 20 SLIDE 10 WATTR seq]"


def asking(items: str, rest: str = "", bracket: str = TEN, name: str = "") -> CompiledQuery:
    return compiled(f"SELECT {items} FROM bids {bracket} {rest}", name or f"{items} {rest} {bracket}")


class Members:
    """A state with queries that come and go; rows are (seq, site, price), and nothing closes by itself."""

    def __init__(self, *queries: CompiledQuery, strategy: Strategy | None = None):
        self.strategy = strategy or Strategy()
        self.state, self.living = State(), dict[str, CompiledQuery]()
        self.join(*queries)

    def join(self, *queries: CompiledQuery, partial: bool = False) -> None:
        self.living |= {query.name: query for query in queries}
        names = [query.name for query in queries] if partial else []
        membership = Membership(self.living, queries, partial=names)
        self.state = Planner(self.strategy).begin(self.state, membership)

    def leave(self, *queries: CompiledQuery) -> None:
        for query in queries:
            del self.living[query.name]
        membership = Membership(self.living, leaving=[query.name for query in queries])
        self.state = Planner(self.strategy).begin(self.state, membership)

    def batch(self, *rows: tuple[int, int | None, float | None], **more: Any) -> dict[str, list[Any]]:
        """Batch some rows; what each query reports, as (window end, its first item)."""
        queries = list(self.living.values())
        plan = Planner(self.strategy).plan(self.state, queries)
        table = pa.table(
            {
                "seq": pa.array([seq for seq, _, _ in rows], pa.int64()),
                "site": pa.array([site for _, site, _ in rows], pa.int32()),
                "price": pa.array([price for _, _, price in rows], pa.float64()),
            }
        )
        columns = {"`seq`": "seq", "`site`": "site", "`price`": "price"}
        closed = {SEQ: self.state.stream("bids").clock(SEQ).closed}
        outcome = aggregate_rows(
            table, BatchPlan(plan.families, plan.interests, columns, {SEQ: "seq"}, "seq", closed)
        )
        done = advance(self.state, [BatchInput(StreamRules(SEQ, None), queries, outcome, **more)], SCALARS)
        self.state = done.state
        return {
            name: sorted(zip(found["window_end"].to_pylist(), found.column(2).to_pylist(), strict=True))
            for name, found in done.results.items()
        }

    @property
    def kept(self) -> list[tuple[str, list[str]]]:
        """The selections and what they keep, in few words."""
        return [
            (own.name.removeprefix("bids by seq").strip(), [_short(slot) for slot in own.slots])
            for own in self.state.selections.values()
        ]

    @property
    def slices(self) -> int:
        return sum(sheet.num_rows for sheet in self.state.sheets.values())


def _short(slot: str) -> str:
    accumulator, argument = slot.split(" of ", 1)
    name = accumulator if accumulator == "count(*)" else accumulator.split("(")[0]
    return f"{name} {argument.replace('`', '')}"


TOTAL, COUNT, LEAST = asking("sum(price)"), asking("count(*)"), asking("min(price)", bracket=TWENTY)


def test_queries_that_ask_for_the_same_rows_share_a_selection_with_all_they_accumulate() -> None:
    above = asking("sum(price)", "WHERE price > 5")
    members = Members(TOTAL, COUNT, above, LEAST, asking("sum(price)", "GROUP BY site"))
    assert members.kept == [
        ("", ["sum price", "min price", "count(*) *"]),
        ("where `price` > 5.0", ["sum price"]),
        ("group by `site`", ["sum price"]),
    ]


def test_the_order_of_conjuncts_is_no_matter_and_that_of_groups_is() -> None:
    members = Members(
        asking("sum(price)", "WHERE price > 5 AND site = 1"),
        asking("min(price)", "WHERE site = 1 AND price > 5"),
        asking("sum(price)", "GROUP BY site, kind"),
        asking("min(price)", "GROUP BY kind, site"),
    )
    assert [slots for _, slots in members.kept] == [["sum price", "min price"], ["sum price"], ["min price"]]


def test_unshared_and_naive_queries_have_a_selection_each() -> None:
    assert len(Members(TOTAL, COUNT, strategy=Strategy(shared=False)).kept) == 2
    naive = [compiled(f"SELECT sum(price) FROM bids {TEN}", name, naive=True) for name in "ab"]
    assert len(Members(*naive).kept) == 2


def test_selections_of_the_same_types_lie_on_one_sheet() -> None:
    members = Members(TOTAL, asking("sum(price)", "WHERE price > 5"), asking("sum(seq)"))
    members.batch((1, 1, 9.0))
    assert sorted(sheet.num_rows for sheet in members.state.sheets.values()) == [1, 1], "one keeps two sums"
    members = Members(TOTAL, asking("sum(price)", "WHERE price > 5"))
    members.batch((1, 1, 9.0))
    assert [sheet.num_rows for sheet in members.state.sheets.values()] == [2]


# --- aggregates come and go ------------------------------------------------------------------


def test_an_aggregate_that_joins_moves_the_slices_and_leaves_the_others_as_they_are() -> None:
    members = Members(TOTAL)
    members.batch((1, 1, 2.0), (12, 1, 3.0))
    members.join(LEAST)
    assert members.kept == [("", ["sum price", "min price"])]
    (sheet,) = members.state.sheets.values()
    assert sheet["s0_0"].to_pylist() == [2.0, 3.0]
    assert sheet["s1_0"].to_pylist() == [None, None]
    assert members.batch((13, 1, 1.0), (25, 1, 7.0), ended=True) == {
        TOTAL.name: [(10, 2.0), (20, 4.0), (30, 7.0)],
        LEAST.name: [(40, 7.0)],
    }


def test_an_aggregate_that_leaves_is_forgotten_and_the_others_stay() -> None:
    members = Members(TOTAL, LEAST, COUNT)
    members.batch((1, 1, 2.0), (12, 1, 3.0))
    members.leave(LEAST)
    assert members.kept == [("", ["sum price", "count(*) *"])]
    assert members.batch((13, 1, 1.0), ended=True) == {
        TOTAL.name: [(10, 2.0), (20, 4.0)],
        COUNT.name: [(10, 1), (20, 2)],
    }


def test_an_aggregate_that_another_query_wants_stays() -> None:
    members = Members(TOTAL, asking("avg(price)"))
    members.leave(TOTAL)
    assert members.kept == [("", ["sum price", "count price"])]


def test_a_selection_that_is_moved_to_a_sheet_with_others_is_kept_in_order() -> None:
    above = asking("sum(price), min(price)", "WHERE price > 5")
    members = Members(TOTAL, above)
    members.batch((1, 1, 2.0), (12, 1, 9.0))
    members.join(asking("min(price)", bracket=TWENTY))
    (sheet,) = members.state.sheets.values()
    assert sheet["selection"].to_pylist() == [1, 1, 2]
    assert sheet["slice"].to_pylist() == [0, 10, 10]
    assert members.batch(ended=True)[above.name] == [(20, 9.0)]


# --- leaving ---------------------------------------------------------------------------------


def test_the_last_one_to_leave_takes_the_slices_along() -> None:
    other = asking("sum(price)", "WHERE price > 5")
    members = Members(TOTAL, COUNT, other)
    members.batch((1, 1, 9.0), (12, 1, 9.0))
    members.leave(TOTAL)
    assert (len(members.state.selections), members.slices) == (2, 4)
    members.leave(COUNT)
    assert (len(members.state.selections), members.slices) == (1, 2)
    assert members.batch(ended=True) == {other.name: [(10, 9.0), (20, 9.0)]}
    members.leave(other)
    assert (members.state.selections, members.state.sheets, members.state.queries) == ({}, {}, {})


def test_a_number_is_not_given_to_a_selection_twice() -> None:
    members = Members(TOTAL)
    members.leave(TOTAL)
    members.join(asking("sum(price)", "WHERE price > 5"))
    assert list(members.state.selections) == [2]


def test_releasing_who_is_not_there_changes_nothing() -> None:
    members = Members(TOTAL)
    assert release(members.state, ["nobody"], members.living) == members.state


def test_settling_lets_suspended_queries_go() -> None:
    members = Members(TOTAL, LEAST)
    members.batch((1, 1, 2.0))
    state = release_suspended(members.state, {TOTAL.name: TOTAL})
    assert list(state.queries) == [TOTAL.name]
    assert [own.slots for own in state.selections.values()] == [(TOTAL.slots[0].id,)]
    assert release_suspended(state, {TOTAL.name: TOTAL}) is state


def test_a_query_whose_slices_have_other_types_is_not_kept() -> None:
    members = Members(TOTAL)
    own = members.state.queries[TOTAL.name]
    assert is_kept(members.state, own, TOTAL)
    assert not is_kept(members.state, own, LEAST)


# --- what newcomers have missed --------------------------------------------------------------


def test_who_joins_before_any_row_has_missed_nothing() -> None:
    members = Members(TOTAL)
    members.join(LEAST)
    assert members.state.queries[LEAST.name].unseen == IntervalSet()


def test_what_slices_answer_has_not_been_missed() -> None:
    members = Members(TOTAL)
    members.batch((1, 1, 2.0), (12, 1, 3.0))
    twice = asking("sum(price)", bracket=TWENTY)
    members.join(twice)
    assert members.state.queries[twice.name].unseen == IntervalSet()
    assert members.batch(ended=True)[twice.name] == [(10, 2.0), (20, 5.0), (30, 3.0)]


def test_who_wants_windows_seen_in_part_keeps_slices_of_its_own() -> None:
    members = Members(TOTAL)
    members.batch((1, 1, 2.0))
    twice = asking("sum(price)", bracket=TWENTY)
    members.join(twice, partial=True)
    assert len(members.state.selections) == 2
    assert members.state.queries[twice.name].unseen == IntervalSet.of((1, 2))


def test_the_state_before_is_not_changed() -> None:
    members = Members(TOTAL)
    members.batch((1, 1, 2.0))
    before = members.state
    sheets = {name: table.to_pylist() for name, table in before.sheets.items()}
    members.join(LEAST)
    members.leave(TOTAL)
    assert {name: table.to_pylist() for name, table in before.sheets.items()} == sheets
    assert list(before.queries) == [TOTAL.name]
