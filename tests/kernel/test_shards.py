"""Far selections without Spark: shards kept in memory give the answers that sheets give."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.case_counts import case_seeds
from tests.differential.cases import COLUMNS, SECOND, BatchCase, Case, alike, case
from tests.differential.engine import MemoryShards
from tests.differential.oracle_comparison import check, drawn_case
from transom.aggregates.accumulators import CountRows, Sum
from transom.columns.hashes import row_hashes
from transom.elements import Clock, ClockKind, Punctuation
from transom.kernel.rows import Ranges
from transom.kernel.shards import Head, Shard, Shelf, dealt, fetched, held, merged, rolled, spilled
from transom.plan.compiled_query import Slot
from transom.plan.strategy import FragmentSharing, Place, Strategy
from transom.sql.query import Scalar

FAR = Strategy(place=Place.EXECUTORS)
COUNT = Slot(CountRows(), None, None)
TOTAL = Slot(Sum(pa.float64()), Scalar("`price`", pa.float64()), None)


@pytest.mark.parametrize("cases", [case, alike], ids=["any queries", "queries that have much in common"])
@pytest.mark.parametrize("fragments", list(FragmentSharing), ids=lambda kind: kind.value)
def test_far_state_gives_the_oracles_answers(cases: Any, fragments: FragmentSharing, seed: int) -> None:
    strategy = Strategy(place=Place.EXECUTORS, fragments=fragments)
    for number in case_seeds(seed, 25):
        check(drawn_case(cases, number), strategy, restart=number % 3 == 0, seed=number)


@pytest.mark.parametrize("cases", [case, alike], ids=["any queries", "queries that have much in common"])
def test_selections_that_go_far_on_the_way_give_the_oracles_answers(cases: Any, seed: int) -> None:
    for number in case_seeds(seed, 35):
        check(drawn_case(cases, number), restart=number % 3 == 0, seed=number, executor_rows=number % 7)


def test_queries_that_keep_every_tuple_stay_near(seed: int) -> None:
    for number in case_seeds(seed, 20):
        check(drawn_case(case, number), FAR, naive=True, seed=number)


@pytest.mark.parametrize("place", [Place.DRIVER, Place.EXECUTORS], ids=lambda place: place.value)
def test_what_is_late_for_one_group_closes_nothing_for_others_when_the_stream_ends(place: Place) -> None:
    """The tuple at 9 comes too late for [-5, 15) of kind a: kind b, at 10, is in time for it all the same."""
    text = "SELECT kind, count(*) AS n FROM s [RANGE '20 seconds' SLIDE '15 seconds'] GROUP BY kind"
    said = Punctuation(Clock("s", "ts", ClockKind.TIME), 17 * SECOND, None, (("kind", "a"),))
    batches = [
        BatchCase([], ["q"], punctuations=[said]),
        BatchCase([at(9, "a")], ended=True),
        BatchCase([at(10, "b")]),
        BatchCase([], ended=True),
    ]
    check(Case({"q": text}, set(), batches, None, None), Strategy(place=place))


def test_a_query_that_replaces_one_of_its_name_is_placed_by_its_own_groups() -> None:
    """The first query is on the executors; its slices are not those of the query that takes its name."""
    window = "[RANGE '9 seconds' SLIDE '3 seconds']"
    queries = {
        "by both": f"SELECT site, kind, count(*) AS n FROM s {window} WHERE seq <> 3 GROUP BY site, kind",
        "few": f"SELECT kind, count(*) AS n FROM s {window} WHERE seq = 20 GROUP BY kind",
        "old": f"SELECT site, kind, count(*) AS n FROM s {window} WHERE seq = 20 GROUP BY site, kind",
        "new": f"SELECT kind, count(*) AS n FROM s {window} WHERE seq <> 3 GROUP BY kind",
    }
    batches = [
        BatchCase([at(66, "a"), at(69, "b")], ["by both", "few", "old"]),
        BatchCase([at(152, "b")], ["new"], leaving=["old"]),
        BatchCase([], ended=True),
    ]
    check(Case(queries, set(), batches, None, None, {"old": "q", "new": "q"}), executor_rows=6)


def at(second: int, kind: str) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | {"ts": second * SECOND, "kind": kind, "seq": second}


# --- one shard ---


def ranges(*runs: tuple[int, int, int]) -> Ranges:
    owners, starts, stops = np.array(runs, np.int64).reshape(-1, 3).T
    return Ranges(owners, starts, stops)


def shard(head: Head, *cells: tuple[int, int, int, str | None, int, float | None]) -> Shard:
    """Cells of (slice, stop, fragment, key, rows, total)."""
    columns = list(zip(*cells, strict=True)) if cells else [()] * 6
    types = [pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.float64()]
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    return Shard(head, pa.table(arrays, ["slice", "stop", "fragment", "k0", "rows", "s0_0"]))


def cells(found: Shard) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.table.to_pylist())


# Selection 5 asks for fragments 0 and 1, selection 7 for 1 and 2.
HEAD = Head((5, 7), ranges((0, 0, 2), (1, 1, 3)), (TOTAL.id,))
ONE = shard(HEAD, (0, 10, 0, "a", 1, 1.0), (10, 20, 1, "b", 2, 2.0), (20, 30, 2, None, 3, None))


def test_a_head_is_stored_by_field_names() -> None:
    stored = json.loads(ONE.packed().schema.metadata[b"transom"])
    assert stored == {
        "selections": [5, 7],
        "ranges": {"owner": [0, 1], "start": [0, 1], "stop": [2, 3]},
        "slots": ["sum(double) of `price`"],
    }


def test_a_packed_shard_says_itself_what_it_holds() -> None:
    found = Shard.unpacked(ONE.packed())
    assert cells(found) == cells(ONE)
    assert (found.head.homes, found.head.slots) == (HEAD.homes, HEAD.slots)
    assert found.head.wanted(5, 3).tolist() == [True, True, False]
    assert found.head.wanted(7, 3).tolist() == [False, True, True]
    assert found.head.wanted(6, 3).tolist() == [False, False, False]


def test_a_shard_knows_which_slices_hold_tuples_of_whom() -> None:
    assert held(ONE) == {5: ((0, 10), (10, 20)), 7: ((10, 20), (20, 30))}


def test_a_written_shard_is_found_again_in_its_partition() -> None:
    shelf = Shelf(MemoryShards(), "batch 1", 4)
    ref = shelf.put(ONE)
    assert (ref.rows, ref.held) == (3, held(ONE))
    found = [cell for place in range(4) for one in fetched(shelf.store, [ref], place) for cell in cells(one)]
    assert sorted(found, key=str) == sorted(cells(ONE), key=str)
    assert [place for place, _, _ in ref.parts] == sorted({place for place, _ in dealt(ONE, 4)})


def test_slices_of_a_sheet_become_shards_of_selections_with_the_same_slots() -> None:
    sheet = pa.table(
        {"selection": [1, 2, 3], "slice": [0, 0, 5], "stop": [5, 5, 9], "rows": [1, 2, 3], "s0_0": [1, 2, 3]}
    )
    found = list(spilled(sheet, {1: ("n",), 3: ("n",), 2: ("m",), 9: ("m",)}))
    assert [(one.head.homes, held(one)) for one in found] == [
        ((1, 3), {1: ((0, 5),), 3: ((5, 9),)}),
        ((2, 9), {2: ((0, 5),)}),
    ]


# --- rolling up ---


def test_shards_of_different_families_are_rolled_up_by_the_queries_that_read_them() -> None:
    other = Head((7, 9), ranges((0, 0, 1), (1, 0, 1), (0, 3, 4)), (TOTAL.id,))
    two = shard(other, (20, 30, 3, None, 1, 0.5), (20, 30, 0, "c", 1, 4.0))
    found = rolled([ONE, two], [TOTAL], [5, 7, 9], None)
    assert found is not None
    sums = {home: asked_by(found, home) for home in (5, 7, 9)}
    assert sums == {
        5: {(0, "a"): (1, 1.0), (10, "b"): (2, 2.0)},
        7: {(10, "b"): (2, 2.0), (20, None): (4, 0.5), (20, "c"): (1, 4.0)},
        9: {(20, "c"): (1, 4.0)},
    }
    assert found.table.num_rows == 4, "cells of the same slice, selections and group are one"


def asked_by(found: Shard, home: int) -> dict[tuple[int, str | None], tuple[int, float | None]]:
    asked = found.head.wanted(home, found.head.count)
    chosen = [cell for cell in cells(found) if asked[cell[2]]]
    return {(cell[0], cell[3]): cell[4:] for cell in chosen}


def test_cells_that_no_query_needs_are_not_rolled_up() -> None:
    found = rolled([ONE], [TOTAL], [5], [10])
    assert found is not None
    assert [cell[:2] for cell in cells(found)] == [(10, 20)]
    assert held(found) == {5: ((10, 20),)}


def test_a_slot_that_a_shard_does_not_have_begins_with_nothing() -> None:
    found = rolled([ONE], [COUNT, TOTAL], [5], [0])
    assert found is not None
    assert found.table.select(["s0_0", "s1_0"]).to_pylist() == [{"s0_0": 0, "s1_0": 1.0}]


def test_cells_that_are_alike_are_combined() -> None:
    twice = pa.concat_tables([ONE.table, ONE.table]).combine_chunks()
    found = merged(twice, [TOTAL.accumulator])
    assert found["rows"].to_pylist() == [2, 4, 6]
    assert found["s0_0"].to_pylist() == [2.0, 4.0, None]


# --- hashes ---

NAN = float("nan")


@pytest.mark.parametrize(
    ("type", "same", "other"),
    [
        pytest.param(pa.float64(), [0.0, -0.0], 1.0, id="zeros are one"),
        pytest.param(pa.float64(), [NAN, -NAN], None, id="NaNs are one, and not null"),
        pytest.param(pa.int32(), [7, 7], 8, id="integers"),
        pytest.param(pa.string(), ["", ""], None, id="an empty text is not null"),
        pytest.param(pa.string(), ["ab", "ab"], "ba", id="the order of letters matters"),
        pytest.param(pa.binary(), [b"\0", b"\0"], b"\0\0", id="the number of zero bytes matters"),
        pytest.param(pa.bool_(), [True, True], False, id="truth values"),
        pytest.param(pa.decimal128(10, 2), [Decimal("1.1"), Decimal("1.10")], None, id="decimals by value"),
        pytest.param(pa.date32(), [3, 3], 4, id="dates"),
        pytest.param(pa.list_(pa.int64()), [[1], [1]], [1, 2], id="lists"),
    ],
)
def test_rows_that_group_together_have_one_hash(type: pa.DataType, same: list[Any], other: Any) -> None:
    values = pa.array([*same, other], type, from_pandas=False)
    first, second, third = row_hashes([values], 3)
    assert first == second != third


def test_hashes_are_the_same_in_every_process() -> None:
    columns = [pa.array(["Köln", None, "b"]), pa.array([1, 2, None])]
    assert [f"{one:x}" for one in row_hashes(columns, 3)] == HASHES
    sliced = [pa.concat_arrays([column.slice(2), column]).slice(1) for column in columns]
    assert [f"{one:x}" for one in row_hashes(sliced, 3)] == HASHES


HASHES = ["10d987adeb5f3f4b", "66914a5e0575bfaa", "e5838a491a8f74aa"]


def test_groups_are_dealt_out_evenly() -> None:
    places = row_hashes([pa.array(range(100_000))], 100_000) % np.uint64(16)
    counts = np.bincount(places.astype(np.int64), minlength=16)
    assert counts.min() > 5_900 and counts.max() < 6_600
