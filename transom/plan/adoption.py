"""Adoption: a query with a state of its own, made of replayed batches, joins the queries of the live state."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from transom.columns.table_columns import SELECTION
from transom.kernel.sheets import combine
from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import CompiledQuery
from transom.plan.passes.admission import selections
from transom.state.state import SelectionState, State
from transom.windows.intervals import LOWEST


def adopt(state: State, replayed: State, query: CompiledQuery) -> State:
    """The state in which a query continues with what replayed batches made of it.

    Its slices become a selection of the live state. Other queries can share it if no live selection has its name.
    They see from its floor that it lacks slices of rows that were not replayed.
    """
    own = replayed.queries[query.name]
    chosen, floors, added = dict(state.selections), dict(state.floors), dict[str, pa.Table]()
    names = {selection.name for selection in chosen.values()}
    homes, last = [], state.last_selection
    unseen_until = max((stop for _, stop in own.unseen or ()), default=LOWEST)
    for planned in selections(replayed, [query]):
        last += 1
        homes.append(last)
        selection = replayed.selections[planned.id]
        chosen[last] = replace(selection, name=_free_name(selection, query, names), alone_until=0)
        floor = max(replayed.floors.get(planned.id, LOWEST), unseen_until)
        if floor > LOWEST:
            floors[last] = floor
        if (rows := replayed.sheets.get(selection.sheet)) is not None and rows.num_rows:
            place = rows.schema.get_field_index(SELECTION)
            numbers = pa.repeat(pa.scalar(last, pa.int64()), rows.num_rows)
            moved = rows.set_column(place, rows.schema.field(place), numbers)
            held = added.get(selection.sheet, state.sheets.get(selection.sheet))
            added[selection.sheet] = combine(planned.layout, [moved] if held is None else [held, moved])
    queries = {**state.queries, query.name: replace(own, homes=tuple(homes))}
    place = replayed.accounts.places.get(query.name)
    accounts = state.accounts.without([query.name])
    if place is not None:
        windows = replayed.accounts.windows[:, replayed.accounts.windows[0] == place].copy()
        windows[0] = 0
        accounts = accounts.plus([query.name], replayed.accounts.counts[:, [place]], windows)
    return replace(
        state,
        queries=queries,
        selections=chosen,
        floors=floors,
        sheets=Sheets.of(state.sheets).with_tables(added),
        last_selection=last,
        accounts=accounts,
        reported={**state.reported, **replayed.reported},
        past=state.past.without([query.name]).with_all(replayed.past),
    )


def _free_name(selection: SelectionState, query: CompiledQuery, names: set[str]) -> str:
    """The name of a selection, or one of the query's own if there is a live selection with that name."""
    return f"{query.selection} for {query.name}" if selection.name in names else selection.name
