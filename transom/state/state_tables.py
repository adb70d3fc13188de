"""The parts of a snapshot that grow with the number of queries, as tables.

As JSON, ten thousand queries took 0.15 s of every commit. Selections of one kind have the same sheet, slots and group
types: there are few kinds, which are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from transom.state.commit_record import QueryRecord
from transom.state.state import QueryState, SelectionState
from transom.state.state_json import decode_closed, encode_closed
from transom.windows.intervals import IntervalSet

QUERY_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "selections": pa.list_(pa.int64()),
        "unseen": pa.list_(pa.int64()),  # start, stop, start, stop, ...; null: not known yet
        "forced_until": pa.int64(),
    }
)
CLOSED_FIELD = pa.field("closed_before", pa.string())  # JSON; a column only if a query has some
REGISTERED_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "text": pa.string(),
        "partial": pa.bool_(),
        "since_batch": pa.int64(),
        "suspended": pa.string(),
        "failing_batches": pa.int64(),
        "summaries": pa.list_(pa.string()),
        "origin": pa.string(),
        "edited_batch": pa.int64(),
        "paused": pa.bool_(),
        "description": pa.string(),
        "tags": pa.list_(pa.string()),
    }
)
UNITS_FIELD = pa.field("units", pa.map_(pa.string(), pa.string()))  # a column only if a query has some
SELECTION_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "kind": pa.int32(),
        "on_executors": pa.bool_(),
        "alone_until": pa.int64(),
    }
)


def encode_queries(queries: Mapping[str, QueryState]) -> pa.Table:
    """A row for each query."""
    states = queries.values()
    columns: list[Any] = [
        list(queries),
        [state.homes for state in states],
        [
            None if state.unseen is None else [end for pair in state.unseen for end in pair]
            for state in states
        ],
        [state.forced for state in states],
    ]
    table = _table(columns, QUERY_SCHEMA)
    if all(state.closed_before is None for state in states):
        return table
    closed = [
        None if state.closed_before is None else json.dumps(encode_closed(state.closed_before))
        for state in states
    ]
    return table.append_column(CLOSED_FIELD, pa.array(closed, CLOSED_FIELD.type))


def decode_queries(table: pa.Table) -> dict[str, QueryState]:
    """The queries of a table."""
    columns = [table[name].to_pylist() for name in QUERY_SCHEMA.names]
    has_closed = CLOSED_FIELD.name in table.column_names
    columns.append(table[CLOSED_FIELD.name].to_pylist() if has_closed else [None] * table.num_rows)
    return {
        name: QueryState(
            tuple(homes),
            None if ends is None else IntervalSet(tuple(zip(ends[0::2], ends[1::2], strict=True))),
            forced,
            None if closed is None else decode_closed(json.loads(closed)),
        )
        for name, homes, ends, forced, closed in zip(*columns, strict=True)
    }


def encode_registered(queries: Sequence[QueryRecord]) -> pa.Table:
    """A row for each registered query."""
    columns: list[Any] = [
        [query.name for query in queries],
        [query.text for query in queries],
        [query.partial for query in queries],
        [query.since for query in queries],
        [query.suspended for query in queries],
        [query.failing for query in queries],
        [query.summaries for query in queries],
        [query.origin for query in queries],
        [query.edited for query in queries],
        [query.paused for query in queries],
        [query.description for query in queries],
        [query.tags for query in queries],
    ]
    table = _table(columns, REGISTERED_SCHEMA)
    if not any(query.units for query in queries):
        return table
    return table.append_column(UNITS_FIELD, pa.array([query.units for query in queries], UNITS_FIELD.type))


def decode_registered(table: pa.Table) -> tuple[QueryRecord, ...]:
    """The registered queries of a table."""
    columns = [table[name].to_pylist() for name in REGISTERED_SCHEMA.names]
    has_units = UNITS_FIELD.name in table.column_names
    columns.append(table[UNITS_FIELD.name].to_pylist() if has_units else [()] * table.num_rows)
    return tuple(
        QueryRecord(
            name,
            text,
            partial,
            since,
            suspended,
            failing,
            tuple(summaries),
            origin,
            edited,
            paused,
            description,
            tuple(tags),
            tuple(units),
        )
        for (
            name,
            text,
            partial,
            since,
            suspended,
            failing,
            summaries,
            origin,
            edited,
            paused,
            description,
            tags,
            units,
        ) in zip(*columns, strict=True)
    )


def encode_selections(selections: Mapping[int, SelectionState]) -> pa.Table:
    """A row for each selection; its kind is a place in `selection_kinds`."""
    states = selections.values()
    kinds = _kinds(selections)
    columns: list[Any] = [
        list(selections),
        [state.name for state in states],
        [kinds[kind] for kind in map(_kind, states)],
        [state.on_executors for state in states],
        [state.alone_until for state in states],
    ]
    return _table(columns, SELECTION_SCHEMA)


def selection_kinds(selections: Mapping[int, SelectionState]) -> list[dict[str, Any]]:
    """The kinds of selections, as JSON."""
    return [
        {"sheet": sheet, "slots": slots, "group_types": types} for sheet, slots, types in _kinds(selections)
    ]


_kind = attrgetter("sheet", "slots", "group_types")


def _kinds(
    selections: Mapping[int, SelectionState],
) -> dict[tuple[str, tuple[str, ...], tuple[str, ...]], int]:
    """The kinds that occur, numbered."""
    return {kind: number for number, kind in enumerate(dict.fromkeys(map(_kind, selections.values())))}


def decode_selections(table: pa.Table, kinds: list[dict[str, Any]]) -> dict[int, SelectionState]:
    """The selections of a table and their kinds."""
    parts = [(kind["sheet"], tuple(kind["slots"]), tuple(kind["group_types"])) for kind in kinds]
    columns = (table[name].to_pylist() for name in SELECTION_SCHEMA.names)
    selections = {}
    for selection, name, kind, on_executors, alone_until in zip(*columns, strict=True):
        sheet, slots, group_types = parts[kind]
        selections[selection] = SelectionState(name, sheet, slots, on_executors, alone_until, group_types)
    return selections


def encode_floors(floors: Mapping[int, int]) -> pa.Table:
    """A row for each selection that has a floor."""
    return pa.table(
        {"selection": _numbers(floors, len(floors)), "floor": _numbers(floors.values(), len(floors))}
    )


def decode_floors(table: pa.Table) -> dict[int, int]:
    """The floors of a table."""
    return dict(zip(table["selection"].to_pylist(), table["floor"].to_pylist(), strict=True))


def encode_times(pairs: Sequence[tuple[int, int]]) -> pa.Table:
    """A row for each interval."""
    ends = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)
    return pa.table({"start": ends[:, 0], "stop": ends[:, 1]})


def decode_times(table: pa.Table) -> IntervalSet:
    """The intervals of a table."""
    return IntervalSet(tuple(zip(table["start"].to_pylist(), table["stop"].to_pylist(), strict=True)))


def _numbers(numbers: Iterable[int], count: int) -> pa.Array:
    return pa.array(np.fromiter(numbers, np.int64, count))


def _table(columns: list[Any], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
