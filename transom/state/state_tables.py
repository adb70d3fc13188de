"""The parts of a state that grow with the number of queries, as tables: ten thousand JSON objects take 0.1 s a batch.

Selections of one kind have the same sheet, slots and group types: there are few kinds, which are JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from transom.state.state import QueryState, SelectionState
from transom.windows.intervals import IntervalSet

QUERY_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "selections": pa.list_(pa.int64()),
        "unseen": pa.list_(pa.int64()),  # start, stop, start, stop, ...; null: not known yet
        "forced_until": pa.int64(),
    }
)
SELECTION_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "kind": pa.int32(),
        "floor": pa.int64(),
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
    return _table(columns, QUERY_SCHEMA)


def decode_queries(table: pa.Table) -> dict[str, QueryState]:
    """The queries of a table."""
    columns = (table[name].to_pylist() for name in QUERY_SCHEMA.names)
    return {
        name: QueryState(
            tuple(homes),
            None if ends is None else IntervalSet(tuple(zip(ends[0::2], ends[1::2], strict=True))),
            forced,
        )
        for name, homes, ends, forced in zip(*columns, strict=True)
    }


def encode_selections(selections: Mapping[int, SelectionState]) -> tuple[pa.Table, list[dict[str, Any]]]:
    """A row for each selection, and the kinds of selections as JSON."""
    states = selections.values()
    kinds: dict[tuple[object, ...], int] = {}
    of_kind = [
        kinds.setdefault((state.sheet, state.slots, state.group_types), len(kinds)) for state in states
    ]
    columns: list[Any] = [
        list(selections),
        [state.name for state in states],
        of_kind,
        [state.floor for state in states],
        [state.on_executors for state in states],
        [state.alone_until for state in states],
    ]
    return _table(columns, SELECTION_SCHEMA), [
        {"sheet": sheet, "slots": slots, "group_types": types} for sheet, slots, types in kinds
    ]


def decode_selections(table: pa.Table, kinds: list[dict[str, Any]]) -> dict[int, SelectionState]:
    """The selections of a table and their kinds."""
    parts = [(kind["sheet"], tuple(kind["slots"]), tuple(kind["group_types"])) for kind in kinds]
    columns = (table[name].to_pylist() for name in SELECTION_SCHEMA.names)
    selections = {}
    for selection, name, kind, floor, on_executors, alone_until in zip(*columns, strict=True):
        sheet, slots, group_types = parts[kind]
        selections[selection] = SelectionState(
            name, sheet, slots, floor, on_executors, alone_until, group_types
        )
    return selections


def _table(columns: list[Any], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
