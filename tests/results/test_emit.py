"""A batch's second half: what is known after it, without any Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.plan.bids import SCALARS, SEQ, admitted, compiled, planned
from tests.results.in_process import advance
from transom.elements import Clock, ClockKind, Punctuation
from transom.kernel.aggregate import BatchPlan, aggregate_rows
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.results.batch_input import BatchInput, clocks_of
from transom.results.emit import BatchOutput
from transom.state.state import State, StreamState, Totals
from transom.windows.intervals import IntervalSet
from transom.windows.stream_rules import StreamRules

COUNT = "SELECT count(*) AS n FROM bids [RANGE 10 SLIDE 10 WATTR seq]"
PER_SITE = "SELECT site, count(*) AS n FROM bids [RANGE 10 SLIDE 10 WATTR seq] GROUP BY site"


class Engine:
    """Batches over one query on an integer clock, rows given as (seq, site)."""

    def __init__(self, text: str, slack: int | None = 0, naive: bool = False):
        self.query: CompiledQuery = compiled(text, naive=naive)
        self.rules = StreamRules(SEQ, slack)
        self.state = State()
        self.join()

    def join(self) -> None:
        """Let the query join, after having left if it was there."""
        membership = Membership({"q": self.query}, [self.query], ["q"])
        self.state = Planner().begin(self.state, membership)

    def batch(self, *rows: tuple[int, int], **more: Any) -> list[tuple[int, ...]]:
        """What a batch reports, as (window end, site if grouped, count)."""
        stream = self.state.stream("bids")
        table = pa.table(
            {
                "seq": pa.array([seq for seq, _ in rows], pa.int64()),
                "site": pa.array([site for _, site in rows], pa.int32()),
            }
        )
        shared = Planner().plan(self.state, [self.query])
        plan = BatchPlan(
            shared.families, shared.interests, {"`site`": "site"}, {SEQ: "seq"}, "seq",
            {SEQ: stream.clock(SEQ).closed},
        )  # fmt: skip
        self.output: BatchOutput = advance(
            self.state, [BatchInput(self.rules, [self.query], aggregate_rows(table, plan), **more)], SCALARS
        )
        self.state = self.output.state
        found = self.output.results.get("q")
        names = [
            name for name in ("window_end", "site", "n") if found is not None and name in found.column_names
        ]
        return [] if found is None else sorted(zip(*(found[name].to_pylist() for name in names), strict=True))

    @property
    def totals(self) -> Totals:
        return self.state.stream("bids").totals

    @property
    def slices(self) -> int:
        return sum(sheet.num_rows for sheet in self.state.sheets.values())


def until(time: int, since: int | None = None, **where: Any) -> Punctuation:
    return Punctuation(SEQ, time, since, tuple(where.items()))


@pytest.mark.parametrize("naive", [False, True])
def test_the_watermark_closes_windows_at_the_end_of_the_batch_that_moves_it(naive: bool) -> None:
    engine = Engine(COUNT, slack=5, naive=naive)
    assert engine.batch((1, 1), (9, 1), (14, 1)) == []
    assert engine.batch((3, 1), (15, 1)) == [(10, 3)], "the watermark reaches 10; 3 came in the same batch"
    assert engine.batch((4, 1)) == []
    assert engine.totals == Totals(rows=6, counted=5, late=1)
    assert engine.slices == (2 if naive else 1), "closed slices are forgotten"


def test_without_slack_only_punctuations_close() -> None:
    engine = Engine(COUNT, slack=None)
    assert engine.batch((1, 1), (500, 1)) == []
    assert engine.batch(punctuations=[until(9)]) == []
    assert engine.batch(punctuations=[until(10)]) == [(10, 1)]
    assert engine.batch(punctuations=[until(510, 500)]) == [(510, 1)], "a range in the middle"


def test_a_punctuation_for_a_group_closes_that_group() -> None:
    engine = Engine(PER_SITE, slack=None)
    assert engine.batch((1, 1), (2, 2), punctuations=[until(10, site=1)]) == [(10, 1, 1)]
    assert engine.batch((3, 1), (4, 2)) == []
    assert engine.totals == Totals(rows=4, counted=3, late=1)
    assert engine.batch(punctuations=[until(10)]) == [(10, 2, 2)], (
        "and what was reported is not reported again"
    )


def test_ranges_that_touch_close_a_window_together() -> None:
    engine = Engine(COUNT, slack=None)
    assert engine.batch((5, 1), punctuations=[until(6, 0)]) == []
    assert engine.batch(punctuations=[until(10, 6)]) == [(10, 1)]


def test_the_end_closes_every_window_that_holds_rows_and_late_rows_stay_late() -> None:
    engine = Engine("SELECT count(*) AS n FROM bids [RANGE 20 SLIDE 10 WATTR seq]", slack=None)
    assert engine.batch((5, 1), (12, 1), ended=True) == [(10, 1), (20, 2), (30, 1)]
    assert engine.slices == 0
    assert engine.batch((7, 1)) == [], "all its windows were closed by the end"
    assert engine.totals.late == 1
    assert engine.batch((29, 1), ended=True) == [(40, 1)], "29 still counts in the window that no end closed"


def test_an_idle_batch_closes_and_the_stream_goes_on() -> None:
    engine = Engine(COUNT)
    assert engine.batch((3, 1)) == []
    assert engine.batch(ended=True) == [(10, 1)]
    assert engine.batch(ended=True) == [], "nothing is reported twice"
    assert engine.batch((15, 1)) == []
    assert engine.batch((25, 1)) == [(20, 1)]
    assert engine.state.batch_id == 5


def test_an_end_without_rows_forces_nothing() -> None:
    engine = Engine(COUNT)
    engine.batch(ended=True)
    assert engine.state.queries["q"].forced is None
    assert engine.batch((3, 1), (15, 1)) == [(10, 1)]


def test_a_query_that_joins_late_reports_from_the_first_window_it_saw_whole() -> None:
    engine = Engine(COUNT)
    engine.batch((3, 1))
    engine.join()
    assert engine.batch((5, 1), (12, 1), (22, 1)) == [(20, 1)], "[0, 10) held a row before it joined"


def test_on_request_it_reports_what_it_saw_in_part_and_says_so() -> None:
    engine = Engine(COUNT)
    engine.batch((3, 1))
    engine.join()
    assert engine.batch((5, 1), (12, 1), (22, 1), partial=frozenset({"q"})) == [(10, 1), (20, 1)]
    assert engine.output.results["q"]["complete"].to_pylist() == [False, True]


def test_rows_are_closed_as_far_as_they_were_numbered() -> None:
    numbered = compiled("SELECT count(*) AS n FROM bids [ROWS 3 SLIDE 3]")
    rows = Clock("bids", "", ClockKind.ROWS)
    rules = StreamRules(SEQ, None)
    state, families = admitted(numbered), planned(numbered).families
    reported = []
    for start in (0, 2, 4):
        table = pa.table(
            {"seq": pa.array([9, 9], pa.int64()), "row": pa.array([start, start + 1], pa.int64())}
        )
        plan = BatchPlan(families, (), {}, {SEQ: "seq", rows: "row"}, "seq")
        output = advance(state, [BatchInput(rules, [numbered], aggregate_rows(table, plan))], SCALARS)
        state = output.state
        reported.append(
            output.results["q"].select(["window_start", "n"]).to_pylist() if output.results else []
        )
    assert reported == [[], [{"window_start": 0, "n": 3}], [{"window_start": 3, "n": 3}]]
    assert clocks_of([numbered], rules) == [SEQ, rows]


def test_a_query_on_a_clock_that_nobody_followed_learns_from_its_first_batch_what_it_missed() -> None:
    engine = Engine(COUNT, slack=2)
    unfollowed = StreamState(totals=Totals(rows=1, counted=1))
    engine.state = replace(engine.state, streams={"bids": unfollowed})
    engine.join()
    assert engine.state.queries["q"].unseen is None
    assert engine.batch() == []
    assert engine.state.queries["q"].unseen is None, "a batch without rows tells nothing"
    assert engine.batch((5, 1), (12, 1), (25, 1)) == [(20, 1)], "what came before may lie up to 5 + 2"
    unseen = engine.state.queries["q"].unseen
    assert isinstance(unseen, IntervalSet) and unseen.pairs[-1][1] == 8
