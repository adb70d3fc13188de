"""The newest results of closed windows, and what a correction changes of them.

They are a query's result rows with a further column, that says whether the row holds: a group that HAVING rules out
after a correction is remembered, so that its next result has a later revision.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group
from transom.columns.readable_values import readable_column
from transom.elements import Kind
from transom.plan.compiled_query import CompiledQuery
from transom.results.close import Boundary
from transom.results.result_rows import SYSTEM_COLUMNS, result_schema
from transom.windows.intervals import LOWEST

HOLDS = "transom_holds"  # the last column of reported results
END = 1  # the place of window_end
MOST_CHUNKS = 32  # of reported results: a batch adds one
_FEWEST_GONE = 1024  # results that are forgotten at once: fewer wait for a later batch


def _revision_place(schema: pa.Schema) -> int:
    """The place of the revision among the columns of results."""
    return len(schema) - len(SYSTEM_COLUMNS) - 1


def reported_schema(query: CompiledQuery) -> pa.Schema:
    """The columns of a query's reported results."""
    return result_schema(query.query).append(pa.field(HOLDS, pa.bool_()))


def group_values(query: CompiledQuery, lowered: pa.Table) -> pa.Table:
    """The ends and groups of lowered windows, in the form that they have in results."""
    columns = [lowered["window_end"]]
    for item in query.query.items:
        if item.is_key:
            column = lowered[item.sql.strip("`")]
            columns.append(readable_column(column if column.type == item.type else column.cast(item.type)))
    return pa.table(columns, names=[str(place) for place in range(len(columns))])


def _groups_in(query: CompiledQuery, results: pa.Table) -> pa.Table:
    """The same of results."""
    places = [2 + place for place, item in enumerate(query.query.items) if item.is_key]
    columns = [results.column(END), *map(results.column, places)]
    return pa.table(columns, names=[str(place) for place in range(len(columns))])


def with_finals(
    query: CompiledQuery, known: pa.Table | None, finals: pa.Table, passed: Boundary | None
) -> pa.Table:
    """Reported results with a batch's final results; those of windows that can't be corrected any more are gone."""
    added = finals.append_column(HOLDS, pa.repeat(pa.scalar(True), finals.num_rows)).replace_schema_metadata()
    if known is None or not known.num_rows:
        return added.combine_chunks()
    general = None if passed is None else passed.view.general
    if general and general.pairs[0][0] <= LOWEST:
        is_left = np.asarray(known.column(END).cast(pa.int64())) > general.pairs[0][1]
        gone = len(is_left) - int(np.count_nonzero(is_left))
        if gone > _FEWEST_GONE or 2 * gone > len(is_left):
            known = known.filter(pa.array(is_left))
    table = pa.concat_tables([known, added])
    return table.combine_chunks() if table.column(END).num_chunks > MOST_CHUNKS else table


def changelog(
    query: CompiledQuery,
    known: pa.Table | None,
    found: pa.Table | None,
    changed: pa.Table,
    batch_id: int,
    made: int,
) -> tuple[pa.Table, pa.Table]:
    """The reported results after a correction, and the rows that correct them: retractions, then new results.

    `found` are the results of the groups and windows in `changed` as they are now: those that are not found have none.
    """
    schema = result_schema(query.query)
    known = reported_schema(query).empty_table() if known is None else known
    found = schema.empty_table() if found is None else found
    ends = one_array(changed.column(0))
    near = pc.is_in(known.column(END), value_set=ends)
    others, rivals = known.filter(pc.invert(near)), known.filter(near).combine_chunks()
    codes = _codes(query, rivals, found, changed)
    of_rivals, of_found, of_changed = np.split(codes, [len(rivals), len(rivals) + len(found)])
    room = int(codes.max(initial=-1)) + 1
    rival_of, found_of = np.full(room, -1), np.full(room, -1)
    rival_of[of_rivals], found_of[of_found] = np.arange(len(rivals)), np.arange(len(found))
    keys = np.unique(of_changed)
    old, new = rival_of[keys], found_of[keys]
    holds = np.zeros(room, bool)
    holds[of_rivals] = _flags(rivals)
    held = (old >= 0) & holds[keys]
    both = np.flatnonzero(held & (new >= 0))
    is_same = np.zeros(len(keys), bool)
    is_same[both] = _is_same(rivals.take(pa.array(old[both])), found.take(pa.array(new[both])), schema)
    retracted = np.flatnonzero(held & ~is_same)
    corrected = np.flatnonzero((new >= 0) & ~is_same)
    place = _revision_place(schema)
    revisions = np.zeros(len(keys), np.int64)
    was_known = np.flatnonzero(old >= 0)
    revisions[was_known] = one_array(rivals.column(place)).to_numpy()[old[was_known]]
    retractions = rivals.take(pa.array(old[retracted]))
    corrections = found.take(pa.array(new[corrected]))
    numbers = pa.array(revisions[corrected] + 1)
    corrections = corrections.set_column(place, schema.field(place), numbers)
    is_gone = np.isin(old[retracted], old[corrected], invert=True)
    kept = np.ones(len(rivals), bool)
    kept[old[retracted]] = False
    kept[old[corrected][old[corrected] >= 0]] = False
    parts = [others, rivals.filter(pa.array(kept))]
    withdrawn = retractions.filter(pa.array(is_gone))
    parts.append(_with_flag(withdrawn.drop_columns([HOLDS]), False))
    parts.append(_with_flag(corrections, True))
    newest = pa.concat_tables(parts).combine_chunks()
    retraction_rows = _as_retractions(retractions.drop_columns([HOLDS]), schema, batch_id, made)
    return newest, pa.concat_tables([_by_end(retraction_rows), _by_end(corrections)]).combine_chunks()


def _by_end(results: pa.Table) -> pa.Table:
    """Results in the order in which their windows end."""
    ends = one_array(results.column(END)).cast(pa.int64()).to_numpy()
    return results.take(pa.array(np.argsort(ends, kind="stable")))


def _codes(query: CompiledQuery, rivals: pa.Table, found: pa.Table, changed: pa.Table) -> Ints:
    """The same number for the same window and group, over the rows of three tables."""
    tables = [_groups_in(query, rivals), _groups_in(query, found), changed]
    rows = pa.concat_tables([table.cast(tables[0].schema) for table in tables])
    return group([one_array(column) for column in rows.columns], rows.num_rows).codes


def _flags(reported: pa.Table) -> Mask:
    flags: Mask = one_array(reported.column(HOLDS)).to_numpy(zero_copy_only=False)
    return flags


def _with_flag(results: pa.Table, holds: bool) -> pa.Table:
    return results.append_column(HOLDS, pa.repeat(pa.scalar(holds), results.num_rows))


def _is_same(old: pa.Table, new: pa.Table, schema: pa.Schema) -> Mask:
    """Which rows have the same values, are as complete, and come from as many rows."""
    place = _revision_place(schema)
    complete, rows = place + 2, place + 3
    is_same = np.ones(len(old), bool)
    for number in (*range(2, place), complete, rows):
        one, other = (one_array(table.column(number)) for table in (old, new))
        try:
            codes = group([pa.concat_arrays([one, other])], 2 * len(old)).codes
            is_same &= codes[: len(old)] == codes[len(old) :]
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, structs and maps
            is_same &= np.array(
                [a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], bool
            )
    return is_same


def _as_retractions(rows: pa.Table, schema: pa.Schema, batch_id: int, made: int) -> pa.Table:
    """Results that do not hold any more, as the retractions of a batch."""
    first = len(schema) - len(SYSTEM_COLUMNS)
    values = {"kind": Kind.RETRACTION.value, "batch": batch_id, "made": made, "latency": None}
    for place, (name, kind) in enumerate(SYSTEM_COLUMNS, first):
        if name in values:
            value = values[name]
            scalar = pa.scalar(value, pa.int64()).cast(kind) if name == "made" else pa.scalar(value, kind)
            rows = rows.set_column(place, schema.field(place), pa.repeat(scalar, rows.num_rows))
    return rows
