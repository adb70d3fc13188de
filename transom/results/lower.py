"""Lower windows: from the partial aggregates of closed windows to the columns that SELECT lists read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.columns.table_columns import aggregate_column
from transom.kernel.sheets import one_array, regroup
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import Layout, source_columns
from transom.results.close import specs_of
from transom.results.result_rows import LoweredWindows
from transom.windows import ids as windows
from transom.windows.arrivals import Arrivals
from transom.windows.intervals import IntervalSet

Places = tuple[tuple[str, ...], ...]  # the columns of a query's slots in a sheet


def lower_by_shape(
    layout: Layout,
    closed: pa.Table,
    asking: Sequence[CompiledQuery],
    places: Mapping[int, Places] | Sequence[Places],
    unseen: Callable[[str], IntervalSet],
    arrivals: Callable[[CompiledQuery], Arrivals],
    late: Callable[[Sequence[str]], Sequence[int]],
    partial: frozenset[str],
) -> Iterator[LoweredWindows]:
    """A sheet's closed windows by the shape of their queries; `places` are the columns of each query's slots."""
    numbers, which = np.unique(closed["reader"].to_numpy(), return_inverse=True)
    present = numbers.tolist()
    alike: dict[object, list[int]] = {}
    for i, number in enumerate(present):
        alike.setdefault((asking[number].shape, places[number]), []).append(i)
    shapes = np.empty(len(present), np.int64)
    for shape, members in enumerate(alike.values()):
        shapes[members] = shape
    order = np.lexsort((which, shapes[which]))  # all rows of a shape together, query by query
    bounds = np.searchsorted(shapes[which[order]], np.arange(len(alike) + 1)).tolist()
    for members, start, stop in zip(alike.values(), bounds[:-1], bounds[1:], strict=True):
        chosen = order[start:stop]
        members_of_rows = np.searchsorted(members, which[chosen])
        queries = [asking[present[i]] for i in members]
        # A sheet has the states of all queries: only those that these queries read are copied.
        read = [name for names in places[present[members[0]]] for name in names]
        rows = closed.select(list(dict.fromkeys(("wid", *layout.key_names, "rows", *read))))
        table = lower_windows(
            layout, rows.take(pa.array(chosen)), queries, members_of_rows, places[present[members[0]]]
        )
        names = [query.name for query in queries]
        came = {clock: arrivals(query) for clock, query in {id(each.clock): each for each in queries}.items()}
        yield LoweredWindows(
            queries,
            members_of_rows,
            table,
            [unseen(name) for name in names],
            [name in partial for name in names],
            [came[id(query.clock)] for query in queries],
            late(names),
        )


def lower_windows(
    layout: Layout, closed: pa.Table, queries: Sequence[CompiledQuery], which: Ints, places: Places
) -> pa.Table:
    """The columns that a SELECT list reads: `k0`.., `a0`.., `window_start`, `window_end`; and `rows`."""
    bound, closed = queries[0].query, closed.combine_chunks()
    specs = specs_of(queries)[which]
    ends = windows.window_end(specs, closed["wid"].to_numpy())
    columns = {name: closed[name] for name in layout.key_names}
    calls = zip(bound.calls, queries[0].functions, queries[0].reads, strict=True)
    for i, (call, function, slots) in enumerate(calls):
        states = [[one_array(closed[name]) for name in places[slot]] for slot in slots]
        columns[aggregate_column(i)] = function.lower(states, call.type, call.parameters)
    columns["window_start"] = pa.array(windows.start_of(specs, ends)).cast(bound.clock_type)
    columns["window_end"] = pa.array(ends).cast(bound.clock_type)
    columns["rows"] = closed["rows"]
    return pa.table(columns)


def combine_parts(
    query: CompiledQuery, parts: Sequence[tuple[Layout, pa.Table, Places]]
) -> tuple[Layout, pa.Table]:
    """The closed windows of one query whose slices lie on several sheets, combined into one table."""
    layout = Layout.of(query, query.slots)
    tables = []
    for own, table, places in parts:
        columns = {name: table[name] for name in ("reader", "wid", *own.key_names, "rows")}
        for i, names in enumerate(places):
            columns |= {new: table[old] for new, old in zip(layout.columns(i), names, strict=True)}
        tables.append(pa.table(columns))
    table = pa.concat_tables(tables).combine_chunks()
    keys = [one_array(table[name]) for name in layout.key_names]
    groups = group([one_array(table["wid"]).to_numpy(), *keys], table.num_rows)
    return layout, regroup(layout, table, groups.codes, groups.firsts, ["reader", "wid"])


def slot_columns(query: CompiledQuery, slots: Mapping[str, int]) -> Places:
    """The columns of a query's slots in a sheet, given the places of the slots that its selection keeps."""
    return tuple(source_columns(slot, slots) for slot in query.slots)
