"""A small checkpoint with a value for every stored field; the test compares what is written today with it.

After an intended change of the format, raise `FORMAT_VERSION` and write the files anew:

    python -m tests.state.golden_checkpoint
"""

from __future__ import annotations

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Extreme, Sum
from transom.elements import (
    Clock,
    ClockKind,
    CreateView,
    Describe,
    Drop,
    DropView,
    Edit,
    Emit,
    Forget,
    Pause,
    Prod,
    Punctuation,
    Register,
    Rename,
    Summarize,
    Summary,
    Tune,
)
from transom.estimates import Estimator, ItemKind
from transom.kernel.sheets import combine
from transom.ondemand.structures.runs import TupleBatch
from transom.ondemand.structures.tiers import RunTiers
from transom.ondemand.structures.value_structures import RawTuples
from transom.overload.chunks import SidelinedChunk
from transom.plan.layout import Layout
from transom.promising.regions import DTYPES, Regions
from transom.promising.representation import Representation
from transom.promising.step_summaries import summarize_steps
from transom.promising.tuples import KeptTuples
from transom.runtime.write_ahead_log import BatchLog
from transom.state.accounts import Accounts
from transom.state.batch_intent import BatchIntent
from transom.state.commit_record import CommitRecord, QueryRecord, ResultFiles, RowFiles, SummaryRecord
from transom.state.pass_decisions import PassDecisions
from transom.state.past_windows import PastWindows
from transom.state.promising import (
    BatchRanking,
    Coverage,
    PreferenceState,
    PromisingState,
    SummaryState,
    TupleRun,
)
from transom.state.state import (
    ClockState,
    ProdderState,
    QueryState,
    SelectionState,
    State,
    StoreState,
    StreamState,
    Totals,
    Work,
)
from transom.state.stream_joins import JoinRun, JoinState
from transom.storage.file_store import Store
from transom.storage.shard_refs import ShardRef
from transom.windows.arrivals import Arrivals
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

DIRECTORY = Path(__file__).parent / "golden"

TIME, SEQ = Clock("bids", "ts"), Clock("bids", "seq", ClockKind.INTEGER)
LAYOUT = Layout("bids", (pa.int32(), pa.string()), (Sum(pa.float64()), Extreme(pa.decimal128(10, 2), "max")))
SHAPE = Summary(
    "items", "bids", "item", 16, structure="cells", kind="histogram", buckets=2, between=(0.0, 9.5)
)


def state() -> State:
    """A state with a value for every field, and both forms of those that may be absent."""
    closed = Closed().close(20, None).close(30, 20, (("site", 3), ("price", Decimal("1.50"))))
    closed = closed.close(40, 20, (("day", date(2013, 1, 1)), ("tag", b"\x00\xff"), ("name", "é")))
    clocks = {
        TIME: ClockState(
            high=90,
            closed=closed,
            occupied=IntervalSet.of((0, 50), (60, 91)),
            arrivals=Arrivals(((0, 50, 1000), (60, 91, 2000)), IntervalSet.of((70, 75))),
            promised=Closed().close(60),
            newest=88,
        ),
        SEQ: ClockState(occupied=None),
    }
    sidelined = (
        SidelinedChunk("sidelined/bids/0000000006/chunk=1", 25, 1500, {TIME: (60, 69), SEQ: (1, 9)}),
    )
    streams = {
        "bids": StreamState(clocks, Totals(100, 60, 5, 4, 3, 25, 3), Work(80, 12, 160, 48), sidelined, 7),
        "idle": StreamState(),
    }
    queries = {
        "total": QueryState((1,)),
        "late": QueryState((2, 1), IntervalSet.of((LOWEST, 8)), 12),
        "new": QueryState((2,), None),
    }
    slots = ("sum(double) of `price`", "max(decimal(10,2)) of `amount` where `site` = 3")
    selections = {
        1: SelectionState(
            "bids by ts group by `site`, `kind`", LAYOUT.id, slots, False, 9, LAYOUT.group_types
        ),
        2: SelectionState(
            "bids by ts", "slices of bids by [] with [count(*)]", ("count(*) of *",), on_executors=True
        ),
    }
    accounts = Accounts().plus(
        ["total", "late"],
        np.array([[75, 75], [70, 60], [1, 2], [2, 11], [2, 2]]),
        np.array([[1], [3], [4], [11]]),
    )
    return State(
        batch_id=7,
        accounts=accounts,
        past=PastWindows(
            {
                "int32 -> double": pa.table(
                    {
                        "query": pa.array(["late", "late"]),
                        "window": pa.array([11, 12]),
                        "kind": pa.array([1, 2], pa.int8()),
                        "k0": pa.array([3, None], pa.int32()),
                        "v0": pa.array([1.5, None]),
                    }
                )
            },
            {"late": 7},
        ),
        streams=streams,
        queries=queries,
        floors={1: 10},
        selections=selections,
        sheets={LAYOUT.id: _sheet()},
        shards=(ShardRef("shards/0000000005/a1b2", ((0, 10, 900), (3, 2, 400)), {2: ((0, 20), (20, 40))}),),
        partitions=4,
        last_selection=2,
        prodders={"total": ProdderState(80, 1200, True, 0.75), "new": ProdderState()},
        estimators={
            "total": Estimator.of(Emit(at=(0.5,), accuracy=0.9), [ItemKind("total", True, True)], 2.0)
        },
        stores=_stores(),
        promising=_promising(),
        joins={"auth JOIN settle #1a2b3c4d": JoinState(((_join_run(),), ()), (False, True), (2, 0))},
    )


def _join_run() -> JoinRun:
    rows = {
        "hash": pa.array([3, 2**63], pa.uint64()),
        "time": [5, 4],
        "key 0": ["a", "b"],
        ".amount": [1.5, None],
    }
    return JoinRun(pa.table(rows))


def _sheet() -> pa.Table:
    rows = {
        "selection": [1, 1],
        "slice": [0, 20],
        "stop": [20, 40],
        "k0": [3, None],
        "k1": ["a", "é"],
        "rows": [2, 1],
        "s0_0": [12.5, None],
        "s1_0": [Decimal("9.75"), None],
    }
    return combine(LAYOUT, [pa.table(rows, schema=LAYOUT.schema)])


def _stores() -> dict[str, StoreState]:
    batch = TupleBatch(
        np.array([5, 7, 9]), np.array([0, 1, 0]), (pa.array([3, 4], pa.int32()),), pa.array([1.5, 2.5, None])
    )
    run = RawTuples(Sum(pa.float64())).run(batch)
    return {
        "bids by ts group by `site` | values of `price` double": StoreState(
            RunTiers((run,)), 5, IntervalSet.of((0, 4)), 3
        ),
        "bids by ts | values of rows": StoreState(
            unseen=None, on_executors=True, refs=(ShardRef("stores/0000000006/c3d4", ((1, 5, 300),), {}),)
        ),
    }


def _promising() -> PromisingState:
    keys, buckets, times = np.array([7, 7, 9], np.uint64), np.array([0, 0, 1]), np.array([1, 2, 6])
    known = Representation.new(SHAPE).inserted(summarize_steps(SHAPE, times, keys, buckets), 6)
    columns = {
        "key": pa.array(keys),
        "bucket": pa.array(buckets, pa.int32()),
        "time": pa.array(times),
        "batch": pa.array([7, 7, 7]),
        "item": pa.array([1, 1, 2]),
    }
    run = TupleRun(KeptTuples(pa.table(columns)))
    files = ShardRef("tuples/0000000004/e5f6", ((0, 8, 512),), {})
    regions = Regions(**{name: np.arange(2).astype(dtype) for name, dtype in DTYPES.items()})
    selected = pa.table({"a0": [1.5, None]})
    ranking = BatchRanking(7, "Count(sales.item) in None", 1, np.array([9, 7], np.uint64))
    return PromisingState(
        {"items": SummaryState(known, 2, (run,), (files,), 11, 1, 20, -204, (ranking,))},
        {
            "pairs": PreferenceState((regions, Regions.none()), 3, Coverage(100, 30, 10.0, 50), 1.5, 4),
            "mean": PreferenceState((Regions.none(),), selected=selected),
        },
    )


RECORD = CommitRecord(
    backend="spark",
    queries=(
        QueryRecord("total", "SELECT sum(price) FROM bids [RANGE 4 minutes SLIDE 1 minute]", since=1),
        QueryRecord(
            "pairs",
            "SELECT 1",
            True,
            3,
            "it failed",
            2,
            ("items",),
            "joined",
            4,
            True,
            "what sold",
            ("a", "b"),
        ),
    ),
    summaries=(SummaryRecord("items", "CREATE SUMMARY items ON bids (item)", 2),),
    views={"cheap": "SELECT * FROM bids WHERE price < 1"},
    sources={"bids": ["a.csv", "b.csv"]},
    result_batches=(ResultFiles(3, 1000, 2), ResultFiles(7, 2000, None)),
    row_files={"late/bids": (RowFiles("late/bids/0000000004", 4, 6, 1500, 900, False),)},
    idle_closed={"bids": False, "idle": True},
    paces={"bids": ((1000, 0.5),)},
    probing_pace=((2048, 0.25),),
    inserting_seconds=0.125,
    decisions=(
        PassDecisions(
            "bids", "admission", (("query late", "shares selection 2", "same WHERE", "shares_selection"),)
        ),
        PassDecisions("idle", "placement", ()),
    ),
)

INTENT = BatchIntent(
    batch_id=8,
    clock=2500,
    stream="bids",
    reference={"files": ["c.csv"]},
    control=(
        Register("q", "SELECT 1", partial=True),
        Edit("q", "SELECT 2", partial=True),
        Rename("q", "r"),
        Pause("r"),
        Describe("r", "what sold", ("a", "b")),
        Drop("late"),
        Summarize("s", "CREATE SUMMARY s ON bids (item)"),
        Forget("items"),
        CreateView("big", "SELECT * FROM bids WHERE price > 5"),
        DropView("cheap"),
        Tune("total", 0.5),
        Punctuation(TIME, 50, 40, (("price", Decimal("1.50")),)),
        Prod(TIME, 60, True, (("site", 3),), ("total",)),
    ),
    ended=("idle",),
    tables={"sites": 3},
    budget=5000,
    sidelined=("sidelined/bids/0000000006/chunk=1",),
    probes={"pairs": 1024},
    resumes=True,
)


def write(directory: Path) -> None:
    """Write the checkpoint into an empty directory."""
    log = BatchLog(Store(directory))
    log.commit(state(), RECORD)
    log.begin(INTENT)


if __name__ == "__main__":
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    write(DIRECTORY)
