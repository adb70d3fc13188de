"""Folding: whichever way tuples are aggregated, each selection gets the slices of its tuples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.bids import SCALARS, SEQ, compiled, planned
from transom.kernel.aggregate import BatchPlan, aggregate_rows
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout
from transom.plan.limits import Limits
from transom.plan.strategy import FragmentSharing, Strategy

SCHEMA = {"seq": pa.int64(), "site": pa.int32(), "kind": pa.string(), "price": pa.float64()}
Row = tuple[Any, ...]
Found = dict[tuple[str, int, Any], tuple[Any, ...]]  # (WHERE, slice, group) -> (stop, tuples, states)

BY_FAMILY = Limits(matrix_cells=0)  # as if there were many rows
WAYS: dict[str, Limits] = {
    "as it chooses": Limits(),
    "family by family": BY_FAMILY,
    "in arrays": replace(BY_FAMILY, dense_cells_per_tuple=1 << 20),
    "in arrays of few members": replace(BY_FAMILY, dense_cells_per_tuple=1 << 20, block_members=2),
    "by a tree wherever two ends differ": replace(BY_FAMILY, short_range=0),
    "pair by pair": replace(BY_FAMILY, dense_cells=0),
    "few pairs at a time": replace(BY_FAMILY, dense_cells=0, pairs=2),
    "each member by itself": replace(BY_FAMILY, edges_per_tuple=0, spare_edges=-1),
}
GRIDS = replace(BY_FAMILY, range_members=9, grids_per_range=1)
GRID_WAYS: dict[str, Limits] = {
    "as it chooses": Limits(),
    "grids of few rows": replace(GRIDS, matrix_cells=1 << 20),
    "grids by cells": replace(GRIDS, grid_fold="cells"),
    "grids by cells of few members": replace(GRIDS, dense_cells=200),
    "grids by member": replace(GRIDS, grid_fold="members"),
    "grids whose edges are not listed": replace(GRIDS, edges_per_tuple=0, spare_edges=-1),
    "no grids": Limits(grid_axes=0),
}
WHERES = {
    "one side": ["price > {}", "price >= {}"],
    "the other side": ["price < {}", "price <= {}"],
    "two sides": ["price BETWEEN {} AND 5", "price > -2 AND price <= {}"],
    "several runs": ["price != {}", "price IN ({}, 1, 4)", "price < {} OR price > 3 OR price IS NULL"],
    "null": ["price IS NULL", "price = {} OR price IS NULL", "price IS NOT NULL"],
    "opaque": ["price > seq + {}", "kind LIKE 'a%' AND price > {}"],
}
GRID_WHERES = {
    "two scalars": ["price > {} AND seq < {}", "price <= {} AND seq >= {}"],
    "two sides of two scalars": ["price > -2 AND price <= {} AND seq BETWEEN {} AND 30"],
    "three scalars": ["price > {} AND seq > {} AND site != {}", "price < {} AND seq < {} AND site IS NULL"],
    "four scalars": ["price > {} AND seq > {} AND site IN ({}, 1) AND kind >= 'a'"],
    "one of several scalars": ["price > {} OR seq < {}", "price IS NULL OR seq = {} OR site = {}"],
    "not both": ["NOT (price > {} AND seq < {})", "NOT (price IS NULL OR seq <= {}) AND seq != {}"],
    "and of ors": ["(price > {} OR site = 1) AND (seq < {} OR site IS NULL)"],
    "a text and a number": [
        "kind = 'a' AND price > {}",
        "kind != 'b' AND price < {}",
        "kind > 'a' OR price = {}",
    ],
    "a common part": ["kind = 'a' AND price > {} AND seq < {}", "kind = 'a' AND seq > {} AND price < {}"],
}
ITEMS = ["count(*), sum(price)", "min(price), max(seq), count(price)", "sum(seq) FILTER (WHERE kind = 'a')"]
SKETCHED = "stddev(seq), max(kind)"  # not plain numbers: never in arrays
ROWS = st.lists(
    st.tuples(
        st.integers(-20, 40), st.sampled_from([1, 2, None]), st.sampled_from(["a", "b", None]),
        st.sampled_from([-3.0, 0.0, 1.0, 2.5, 4.0, 1e300, math.nan, None]),
    ),
    min_size=1, max_size=20,
)  # fmt: skip


def table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        {
            n: pa.array(list(v), t, from_pandas=False)
            for (n, t), v in zip(SCHEMA.items(), columns, strict=True)
        }
    )


def folded(
    queries: list[CompiledQuery],
    rows: list[Row],
    fragments: FragmentSharing = FragmentSharing.FAMILIES,
    paned: bool = False,
    limits: Limits | None = None,
) -> Found:
    """The slices that some rows come to, by what they are of."""
    limits = limits or Limits()
    shared = planned(*queries, strategy=Strategy(fragments=fragments, paned=paned, limits=limits))
    columns = {f"`{name}`": name for name in SCHEMA}
    opaque = {s.sql: s.sql for query in queries for s in query.query.scalars() if s.sql not in columns}
    batch_id = with_opaque(table(rows), list(opaque))
    clocks = {SEQ: "seq"}
    plan = BatchPlan(shared.families, shared.interests, columns | opaque, clocks, "seq", limits=limits)
    names = {member.id: member.name for member in shared.selections}
    layouts = {member.id: (member.layout, [s.id for s in member.slots]) for member in shared.selections}
    slices_by_place: Found = {}
    for sheet in aggregate_rows(batch_id, plan).partials.values():
        for row in sheet.to_pylist():
            layout, slots = layouts[row["selection"]]
            states = tuple(sorted(zip(slots, _states(layout, row), strict=True)))
            place = names[row["selection"]], row["slice"], row.get("k0")
            assert place not in slices_by_place, "a slice comes once"
            slices_by_place[place] = row["stop"], row["rows"], states
    return slices_by_place


def _states(layout: Layout, row: dict[str, Any]) -> list[str]:
    """Each slot's state, floats to nine digits."""
    return [
        repr([f"{v:.9g}" if isinstance(v, float) else v for v in (row[name] for name in layout.columns(i))])
        for i in range(len(layout.accumulators))
    ]


def with_opaque(batch: pa.Table, sqls: list[str]) -> pa.Table:
    """The batch with the scalars that Spark would compute."""
    return (
        batch
        if not sqls
        else pa.table(
            dict(zip(batch.column_names, batch.columns, strict=True))
            | {sql: SCALARS.project(batch, {"x": sql})["x"] for sql in sqls}
        )
    )


def queries_of(kind: str, items: list[str], by: str, constants: list[int]) -> list[CompiledQuery]:
    windows = [(10, 10), (12, 5), (3, 7)]
    slices_by_place = []
    for i, constant in enumerate(constants):
        forms = (WHERES | GRID_WHERES)[kind]
        where = forms[i % len(forms)]
        where = where.format(
            *(constant * (1 + 3 * place) % 7 - 3 * place for place in range(where.count("{}")))
        )
        size, slide = windows[i % len(windows)]
        bracket = f"[RANGE {size} SLIDE {slide} WATTR seq]"
        text = f"SELECT {items[i % len(items)]} FROM bids {bracket} WHERE {where} {by}"
        slices_by_place.append(compiled(text, f"q{i}"))
    return slices_by_place


CASES = [
    *((kind, way, limits) for kind in WHERES for way, limits in WAYS.items()),
    *((kind, way, limits) for kind in GRID_WHERES for way, limits in GRID_WAYS.items()),
]


@pytest.mark.parametrize(
    ("kind", "limits"),
    [(kind, limits) for kind, _, limits in CASES],
    ids=[f"{kind}, {way}" for kind, way, _ in CASES],
)
@settings(max_examples=5)
@given(
    rows=ROWS,
    items=st.sampled_from([ITEMS[:1], ITEMS, [*ITEMS, SKETCHED]]),
    by=st.sampled_from(["", "GROUP BY site"]),
    constants=st.lists(st.integers(-4, 5), min_size=2, max_size=7),
    paned=st.booleans(),
)
def test_a_family_gives_each_selection_what_it_would_have_alone(
    kind: str, limits: Limits, rows: list[Row], items: list[str], by: str, constants: list[int], paned: bool
) -> None:
    queries = queries_of(kind, items, by, constants)
    expected = folded(queries, rows, FragmentSharing.UNSHARED, paned, BY_FAMILY)
    assert folded(queries, rows, FragmentSharing.FAMILIES, paned, limits) == expected
    assert folded(queries, rows, FragmentSharing.JOINT, paned, limits) == expected


@pytest.mark.parametrize("way", WAYS)
def test_a_huge_neighbour_does_not_disturb_a_small_sum(way: str) -> None:
    """1e300 lies in the next fragment, the next slice and the next group; no sum is made by subtracting."""
    wheres = [
        "price > 0 AND price < 100",
        "price < 50",
        "price >= 3 AND price <= 4",
        "price IS NOT NULL",
        "price > 100",
    ]
    queries = [
        compiled(
            f"SELECT sum(price) FROM bids [RANGE 10 SLIDE 10 WATTR seq] WHERE {where} GROUP BY site", f"q{i}"
        )
        for i, where in enumerate(wheres)
    ]
    rows = [(1, 1, "a", 3.0), (2, 1, "a", 4.0), (3, 2, "a", 1e300), (11, 1, "a", 1e300), (12, 1, "a", -1e300)]
    slices_by_place = folded(queries, rows, limits=WAYS[way])
    sums = [
        states[0][1]
        for (_, start, site), (_, _, states) in slices_by_place.items()
        if (start, site) == (0, 1)
    ]
    assert sums == ["['7']"] * 4, "of all but the last"


def test_tuples_far_apart_in_time_are_not_given_all_the_slices_between() -> None:
    queries = [
        compiled(f"SELECT sum(price) FROM bids [RANGE 3 SLIDE 2 WATTR seq] WHERE price > {i}", f"q{i}")
        for i in range(3)
    ]
    rows = [(0, 1, "a", 9.0), (10**15, 1, "a", 9.0), (-(10**15), 1, "a", 1.5)]
    slices_by_place = folded(queries, rows)
    assert sorted((start, stop, count) for (_, start, _), (stop, count, _) in slices_by_place.items()) == [
        *[(-(10**15), -(10**15) + 1, 1)] * 2, *[(0, 1, 1)] * 3, *[(10**15, 10**15 + 1, 1)] * 3,
    ]  # fmt: skip
