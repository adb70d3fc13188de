"""Closing windows: slices combined, against a recomputation of every window from the rows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.plan.bids import SEQ, compiled, planned
from transom.elements import WindowSpec
from transom.kernel.aggregate import BatchPlan, aggregate_rows
from transom.kernel.sheets import combine
from transom.plan.compiled_query import CompiledQuery, Slot
from transom.plan.layout import Layout
from transom.plan.slot_sources import in_layout_order
from transom.results.close import Boundary, Reader, close, windows_open
from transom.results.lower import lower_windows, slot_columns
from transom.windows.closed_time import Closed
from transom.windows.intervals import LOWEST, IntervalSet

Row = tuple[int, int | None, int | None]  # seq, site, price
Range = tuple[int, int | None, tuple[tuple[str, Any], ...]]
Cell = tuple[int, int | None]  # window id, site

ROWS = st.lists(
    st.tuples(st.integers(-15, 30), st.sampled_from([1, 2, None]), st.none() | st.integers(-5, 5)),
    max_size=14,
)
WHERE = st.sampled_from([(), (("site", 1),), (("site", 2),), (("site", None),), (("kind", "a"),)])
RANGES = st.lists(st.tuples(st.integers(-10, 40), st.none() | st.integers(-15, 20), WHERE), max_size=4)
FORCED = st.none() | st.integers(-5, 20)


def query_over(size: int, slide: int, origin: int, naive: bool) -> CompiledQuery:
    bracket = f"[RANGE {size} SLIDE {slide} WATTR seq ORIGIN {origin}]"
    text = f"SELECT site, count(*), sum(price), min(price), avg(price) FROM bids {bracket} GROUP BY site"
    return compiled(text, naive=naive)


def partials(query: CompiledQuery, rows: list[Row], parts: int) -> pa.Table:
    """The rows' slices, made in as many tasks and put together."""
    columns = {"`site`": "site", "`price`": "price"}
    plan = BatchPlan(planned(query).families, (), columns, {SEQ: "seq"}, "seq")
    (layout,) = plan.layouts.values()
    tables = []
    for start in range(parts):
        own = rows[start::parts]
        table = pa.table(
            {
                "seq": pa.array([seq for seq, _, _ in own], pa.int64()),
                "site": pa.array([site for _, site, _ in own], pa.int32()),
                "price": pa.array([price for _, _, price in own], pa.float64()),
            }
        )
        tables += aggregate_rows(table, plan).partials.values()
    return combine(layout, tables)


def extent(spec: WindowSpec, wid: int) -> range:
    end = spec.phase + (wid + 1) * spec.slide
    return range(end - spec.range, end)


def is_closed(spec: WindowSpec, ranges: list[Range], forced: int | None, wid: int, site: int | None) -> bool:
    """Whether each time of the window is closed for the site; no group is pinned to a kind."""
    if forced is not None and wid < forced:
        return True
    applying = [(until, since) for until, since, where in ranges if where in ((), (("site", site),))]
    return all(
        any((since is None or since <= time) and time < until for until, since in applying)
        for time in extent(spec, wid)
    )


def by_window(spec: WindowSpec, rows: list[Row]) -> dict[Cell, list[int | None]]:
    """The prices of each window and site that has rows."""
    found: dict[Cell, list[int | None]] = defaultdict(list)
    for seq, site, price in rows:
        for wid in range(-60, 60):
            if seq in extent(spec, wid):
                found[wid, site].append(price)
    return found


def closed_by(
    query: CompiledQuery, sheet: pa.Table, before: Boundary, after: Boundary
) -> tuple[dict[Cell, tuple[Any, ...]], pa.Table]:
    """The answers of the windows that closed in between, and the slices that are kept."""
    layout = Layout.of(query, ordered_slots(query).values())
    found = close(layout, sheet, [Reader(query, 1, before, after)])
    return answers(query, layout, found.table), sheet.filter(pa.array(found.kept))


def ordered_slots(query: CompiledQuery) -> dict[str, Slot]:
    """The slots of a query's selection, as its sheet has them."""
    return in_layout_order({slot.id: slot for slot in query.slots})


def answers(query: CompiledQuery, layout: Layout, closed: pa.Table) -> dict[Cell, tuple[Any, ...]]:
    places = slot_columns(query, {key: place for place, key in enumerate(ordered_slots(query))})
    table = lower_windows(layout, closed, [query], np.zeros(closed.num_rows, np.int64), places)
    names = ["k0", "a0", "a1", "a2", "a3", "rows"]
    rows = zip(closed["wid"].to_pylist(), *(table[name].to_pylist() for name in names), strict=True)
    found = {(wid, site): tuple(rest) for wid, site, *rest in rows}
    assert len(found) == closed.num_rows, "a window and group comes once"
    return found


def expected_answer(prices: list[int | None]) -> tuple[Any, ...]:
    known = [price for price in prices if price is not None]
    if not known:
        return len(prices), None, None, None, len(prices)
    return len(prices), float(sum(known)), float(min(known)), sum(known) / len(known), len(prices)


@example([(0, 1, None)], 1, 1, 0, [], [(1, 0, ())], None, None, 1, False)  # closed time with a hole
@settings(max_examples=80)
@given(ROWS, st.integers(1, 12), st.integers(1, 9), st.integers(0, 5), RANGES, RANGES, FORCED, FORCED,
       st.integers(1, 3), st.booleans())  # fmt: skip
def test_windows_that_become_closed_are_those_of_the_definition(
    rows: list[Row], size: int, slide: int, origin: int, first: list[Range], then: list[Range],
    forced: int | None, more: int | None, parts: int, naive: bool,
) -> None:  # fmt: skip
    query = query_over(size, slide, origin, naive)
    spec = query.query.window
    all_ranges = [*first, *then]
    later = max((f for f in (forced, more) if f is not None), default=None)

    def boundary(ranges: list[Range], upto: int | None) -> Boundary:
        view = Closed().close_all(ranges).view(query.key_columns, query.pinned)
        return Boundary(view, IntervalSet() if upto is None else IntervalSet.of((LOWEST, upto)))

    before, after = boundary(first, forced), boundary(all_ranges, later)
    slices = partials(query, rows, parts)
    found, kept = closed_by(query, slices, before, after)

    windows = by_window(spec, rows)
    closed_now = {
        (wid, site)
        for wid, site in windows
        if is_closed(spec, all_ranges, later, wid, site) and not is_closed(spec, first, forced, wid, site)
    }
    assert found == {cell: expected_answer(windows[cell]) for cell in closed_now}

    # What was kept is enough for all that is still open, and nothing else is kept.
    everything = Boundary(Closed().view(query.key_columns, query.pinned), IntervalSet.of((LOWEST, 1000)))
    rest, nothing = closed_by(query, kept, after, everything)
    still_open = {cell for cell in windows if not is_closed(spec, all_ranges, later, *cell)}
    assert rest == {cell: expected_answer(windows[cell]) for cell in still_open}
    assert nothing.num_rows == 0
    assert kept.num_rows or not still_open
    # Where closed time has holes, slices behind a hole are kept until it is closed, too.
    has_holes = any(since is not None for _, since, _ in all_ranges)
    assert has_holes or bool(kept.num_rows) == bool(still_open)


def test_open_windows_are_counted_over_all_groups_together() -> None:
    query = query_over(10, 5, 0, naive=False)
    sheet = partials(query, [(0, 1, 1), (3, 2, 1), (12, 1, 1)], 1)  # windows 0 and 1, then 2 and 3
    starts = sheet["slice"].to_numpy()
    view = Closed().close(5).view(query.key_columns, query.pinned)
    assert windows_open(query, starts, Boundary(view, IntervalSet())) == 3
    assert windows_open(query, starts, Boundary(view, IntervalSet.of((LOWEST, 3)))) == 1
    assert windows_open(query, starts[:0], Boundary(view, IntervalSet())) == 0


# --- many readers at once --------------------------------------------------------------------

WINDOWS = [(10, 5), (12, 5), (4, 7), (10, 10), (3, 1)]


def readers_of(
    kinds: list[tuple[int, int]], until: tuple[int, int], forced: tuple[int | None, int | None]
) -> tuple[list[Reader], list[CompiledQuery]]:
    """Readers of two selections, by windows and which of the two; closed are all times before some."""
    queries = []
    for i, (window, selection) in enumerate(kinds):
        size, slide = WINDOWS[window]
        items, where = (
            "site, count(*), sum(price), min(price), avg(price)",
            "WHERE seq > 3" if selection else "",
        )
        bracket = f"[RANGE {size} SLIDE {slide} WATTR seq]"
        queries.append(compiled(f"SELECT {items} FROM bids {bracket} {where} GROUP BY site", f"q{i}"))
    homes = {name: member.id for member in planned(*queries).selections for name in member.queries}
    edges = [
        Boundary(
            Closed().close(time).view({"site": 0}, {}),
            IntervalSet() if wid is None else IntervalSet.of((LOWEST, wid)),
        )
        for time, wid in zip(sorted(until), forced, strict=True)
    ]
    return [Reader(query, homes[query.name], *edges) for query in queries], queries


@settings(max_examples=60)
@given(
    ROWS,
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=5),
    st.tuples(st.integers(-10, 40), st.integers(-10, 60)),
    st.tuples(st.none() | st.integers(-5, 4), st.integers(4, 9)),
)
def test_closing_all_readers_in_one_sweep_is_closing_them_one_by_one(
    rows: list[Row],
    kinds: list[tuple[int, int]],
    until: tuple[int, int],
    forced: tuple[int | None, int | None],
) -> None:
    readers, queries = readers_of(kinds, until, forced)
    plan = BatchPlan(
        planned(*queries).families,
        (),
        {"`site`": "site", "`price`": "price", "`seq`": "seq"},
        {SEQ: "seq"},
        "seq",
    )
    (layout,) = {layout.id: layout for layout in plan.layouts.values()}.values()
    columns = zip(*rows, strict=True) if rows else [[], [], []]
    types = {"seq": pa.int64(), "site": pa.int32(), "price": pa.float64()}
    table = pa.table({n: pa.array(list(v), t) for (n, t), v in zip(types.items(), columns, strict=True)})
    sheet = combine(layout, aggregate_rows(table, plan).partials.values())
    together = close(layout, sheet, readers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Boundary, "is_simple", False)
        singly = close(layout, sheet, readers)
    order = [("reader", "ascending"), ("wid", "ascending"), ("k0", "ascending")]
    assert together.table.sort_by(order).to_pylist() == singly.table.sort_by(order).to_pylist()
    assert together.steps == singly.steps
    assert (together.kept | ~singly.kept).all(), "what somebody needs is kept"
