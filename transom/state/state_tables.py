"""The parts of a snapshot that grow with the number of queries, as tables.

As JSON, ten thousand queries took 0.15 s of every commit. Selections of one kind have the same sheet, slots and group
types: there are few kinds, which are JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from transom.state.commit_record import QueryRecord
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
REGISTERED_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "text": pa.string(),
        "partial": pa.bool_(),
        "since_batch": pa.int64(),
        "suspended": pa.string(),
        "failing_batches": pa.int64(),
        "summaries": pa.list_(pa.string()),
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
    ]
    return _table(columns, REGISTERED_SCHEMA)


def decode_registered(table: pa.Table) -> tuple[QueryRecord, ...]:
    """The registered queries of a table."""
    columns = (table[name].to_pylist() for name in REGISTERED_SCHEMA.names)
    return tuple(
        QueryRecord(name, text, partial, since, suspended, failing, tuple(summaries))
        for name, text, partial, since, suspended, failing, summaries in zip(*columns, strict=True)
    )


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
