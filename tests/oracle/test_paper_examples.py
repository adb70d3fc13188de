"""The worked examples of the papers on window ids, panes and prodding."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.oracle.query_helpers import batch, call, column, query, reported, run, until
from transom.elements import Clock, WindowSpec
from transom.oracle import OracleBatch, OracleStreamRules, answer, windows_of
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.sql.interpreter.types import TIMESTAMP
from transom.sql.interpreter.values import microseconds
from transom.sql.query import Key, Query

MINUTE = 60_000_000
NOON = microseconds(datetime(2005, 6, 14, 12, tzinfo=UTC))
FOUR_BY_ONE = WindowSpec.ending(range=4 * MINUTE, slide=MINUTE)


# --- Window Aggregates over Data Streams, Query 1: RANGE 4 minutes SLIDE 1 minute -------------
#
#           12:03 12:04 12:05 12:06 12:07 12:08 12:09 12:10 12:11
#     6       [-----------------------)
#     7             [-----------------------)
#     8                   [-----------------------)
#     9                         [-----------------------)
#    10                               [-----------------------)
#                                ^ 12:06:04
#
# The paper starts Query 1 at 12:00 and gives the id 0 to the first window that ends after the start,
# [11:57, 12:01): window w ends at 12:00 + (w + 1) minutes, as in `window w ends at (w + 1) * slide`.


def paper_id(window: tuple[int, int]) -> int:
    return (window[1] - NOON) // MINUTE - 1


@pytest.mark.parametrize(("wid", "start", "end"), [(6, 3, 7), (7, 4, 8), (8, 5, 9), (9, 6, 10), (10, 7, 11)])
def test_windows_6_to_10_have_the_extents_of_the_table(wid: int, start: int, end: int) -> None:
    window = NOON + start * MINUTE, NOON + end * MINUTE
    assert window in windows_of(window[0], FOUR_BY_ONE)
    assert paper_id(window) == wid


def test_the_tuple_of_12_06_04_belongs_to_windows_6_to_9() -> None:
    tuple_time = NOON + 6 * MINUTE + 4_000_000
    assert [paper_id(window) for window in windows_of(tuple_time, FOUR_BY_ONE)] == [6, 7, 8, 9]


def test_query_1_counts_bids_per_site_and_p1_closes_window_6_for_site_3_alone() -> None:
    clock = Clock("bids", "ts")
    counts = Query(
        "", "bids", clock, TIMESTAMP, FOUR_BY_ONE,
        keys=(Key("site", column("site")),), calls=(call("count_rows", None),),
    )  # fmt: skip
    bids = [{"site": site, "ts": NOON + 6 * MINUTE + second * 1_000_000} for site, second in
            [(3, 4), (3, 30), (5, 10)]]  # fmt: skip
    batches = [OracleBatch("bids", bids, after=until(NOON + 7 * MINUTE, clock=clock, site=3))]
    outcome = answer(
        {"q": counts}, batches, {"bids": OracleStreamRules("ts", slack=None)}, InterpretedScalars()
    )
    (only,) = outcome.results["q"]
    assert (paper_id((only["window_start"], only["window_end"])), only["site"], only["rows"]) == (6, 3, 2)


# --- thesis, section 2.2, query Q2-1: RANGE 60 SLIDE 20 over (timestamp, sensor, speed, volume) ----
#
#            160  180  200  220  240  260  280
#     10      [--------------)                   wid_from = ts / 20
#     11           [--------------)              wid_to   = (ts + 60) / 20 - 1
#     12                [--------------)
#     13                     [--------------)
#                         ^211 ^230

SIXTY_BY_TWENTY = WindowSpec.ending(range=60, slide=20)


@pytest.mark.parametrize(("ts", "wids"), [(211, [10, 11, 12]), (230, [11, 12, 13]), (0, [0, 1, 2])])
def test_bucket_gives_a_tuple_the_windows_from_wid_from_to_wid_to(ts: int, wids: list[int]) -> None:
    assert [end // 20 - 1 for _, end in windows_of(ts, SIXTY_BY_TWENTY)] == wids
    assert wids == list(range(ts // 20, (ts + 60) // 20))


Q2_1 = query(SIXTY_BY_TWENTY)
S = [(211, 1, 54, 25), (215, 1, 55, 20), (216, 2, 50, 30), (230, 2, 51, 40)]


def test_the_punctuation_240_closes_windows_up_to_11() -> None:
    # window 10 = [160, 220): 25 + 20 + 30; window 11 = [180, 240): and 40
    outcome = run(Q2_1, batch(*S, after=until(240)))
    assert reported(outcome) == [(160, 220, 75), (180, 240, 115)]
    assert [end // 20 - 1 for _, end, _ in reported(outcome)] == [10, 11]


def test_the_pane_200_to_220_holds_75_before_the_windows_share_it() -> None:
    panes = query(WindowSpec.ending(range=20, slide=20))
    assert reported(run(panes, batch(*S, after=until(220)))) == [(200, 220, 75)]


def test_a_group_wise_punctuation_closes_sensor_1_only() -> None:
    by_sensor = query(SIXTY_BY_TWENTY, by=["sensor"])
    outcome = run(
        {"by_sensor": by_sensor, "over_all": Q2_1},
        batch(*S, after=until(240, sensor=1)),
        batch((235, 1, 50, 7), (235, 2, 50, 8), after=until(240)),
    )
    seen = reported(outcome, "by_sensor", "batch", "window_start", "sensor", "x0")
    assert seen == [(0, 160, 1, 45), (0, 180, 1, 45), (1, 160, 2, 30), (1, 180, 2, 78)]
    assert reported(outcome, "over_all", "batch", "window_start", "x0") == [(1, 160, 75), (1, 180, 130)]


# --- thesis, section 3.1, query Q3-1: the volume in windows of 50 seconds ---------------------
#
#    0    11 23 32 45   50 52
#    [     40 20 30 20  |  26 ...      110 so far; 25 more come after the prod {50}: 135
#
# The thesis calls the window [0, 50) number 1; its own formula gives 0. Its text does not list the tuples
# between the prod and the punctuation: (48, 2, 47, 25) stands for them.

Q3_1 = query(WindowSpec.ending(range=50, slide=50))
FIRST = [(11, 1, 45, 40), (23, 2, 46, 20), (32, 3, 44, 30), (45, 4, 45, 20)]


def test_q3_1_is_110_when_the_prod_comes() -> None:
    assert reported(run(Q3_1, batch(*FIRST, after=until(50)))) == [(0, 50, 110)]


def test_q3_1_is_135_when_the_punctuation_comes() -> None:
    outcome = run(Q3_1, batch(*FIRST), batch((52, 1, 48, 26), (48, 2, 47, 25), after=until(50)))
    assert reported(outcome) == [(0, 50, 135)]


def test_q3_1_never_revises_a_final_result() -> None:
    outcome = run(Q3_1, batch(*FIRST, after=until(50)), batch((49, 2, 47, 25)))
    assert reported(outcome) == [(0, 50, 110)]
    assert [row["ts"] for row, *_ in outcome.late["traffic"]] == [49]


# --- thesis, section 3.3, query Q3-3: the largest volume, RANGE 30 SLIDE 10, by panes of 10 ----
#
#    pane     10         11         12
#         100 [  55      | 52       | 45  54  58 )130
#    window 10 = [80, 110) ... window 12 = [100, 130): panes 10, 11 and 12
#
# The thesis forgets that window 12 also holds pane 10: what it shows as the early result 54 is 55. Its
# text gives the maxima of panes 10 and 11 but not their tuples: one in each stands for them.

Q3_3 = query(WindowSpec.ending(range=30, slide=10), call("max"))
PANES = [(101, 1, 50, 55), (113, 2, 50, 52), (125, 2, 46, 45)]


@pytest.mark.parametrize(
    ("more", "largest"),
    [
        ([(126, 1, 50, 54)], 55),
        ([(126, 1, 50, 54), (126, 1, 40, 58)], 58),
    ],
    ids=["at the prod it is pane 10's 55", "at the punctuation it is 58"],
)
def test_window_12_takes_the_largest_of_three_panes(more: list[tuple[int, ...]], largest: int) -> None:
    outcome = run(Q3_3, batch(*PANES, after=[*until(110), *until(120)]), batch(*more, after=until(130)))
    seen = reported(outcome, "q", "batch", "window_end", "x0")
    assert seen == [(0, 110, 55), (0, 120, 55), (1, 130, largest)]
    assert [end // 10 - 1 for _, end, _ in seen] == [10, 11, 12]
