"""The results of preference queries: from the tuples that probes found to the rows of SELECT lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import aggregate_column, group_column
from transom.promising.figures import FigureColumns, aggregated, cut_batches, selected_arguments
from transom.promising.probes import Draws, Probe
from transom.results.result_rows import Moment
from transom.sql.catalog import Scalars
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import ANSWER_SYSTEM_COLUMNS, BEHIND, preference_schema
from transom.state.promising import Coverage, PromisingState

_REFERENCE = re.compile(r"`([01]\.[^`]+)`")


@dataclass(frozen=True)
class QueryAnswer:
    """The results of a query's probes, the number of rows or pairs found, and the tuples that an aggregate keeps.

    The first results are those of the rows or pairs `tuples`, unless they are aggregates.
    """

    table: pa.Table
    found: int
    selected: pa.Table | None = None
    tuples: pa.Table | None = None

    def times(self) -> Ints:
        """The event times of the results that are new: of a pair, the later time of its two tuples."""
        if self.tuples is None:
            return np.zeros(0, np.int64)
        names = [name for name in ("0time", "1time") if name in self.tuples.column_names]
        latest = pc.max_element_wise(
            *(self.tuples[name] for name in names)
        )  # of one tuple, if it has no partner
        return np.asarray(latest.to_numpy())


def answer_query(
    query: PreferenceQuery,
    probes: Sequence[Probe],
    table: pa.Table | None,
    promising_state: PromisingState,
    moment: Moment,
    scalars: Scalars,
    draws: Draws | None = None,
    alone: pa.Table | None = None,
) -> QueryAnswer:
    """The results of a query's probes; `table` is None if they found nothing.

    `alone` are the tuples that an outer join returns without a partner, as pairs. They are not among the pairs found,
    since no budget is spent on them.
    """
    if query.rest is not None and table is not None and table.num_rows:
        keep = scalars.project(table, {"keep": query.rest})["keep"]
        table = table.filter(keep.cast(pa.bool_()).fill_null(False))
    rows = 0 if table is None else table.num_rows
    skipped, left = zip(*(probe.not_probed() for probe in probes), strict=True)
    coverage = Coverage(produced=rows, skipped=sum(skipped), left=sum(left))
    if query.figures:
        own = promising_state.queries[probes[0].name]
        summaries = [promising_state.summaries[side.summary] for side in query.sides]
        selected = selected_arguments(query, table, own, summaries, scalars, draws)
        if not rows and probes[0].resumes:  # the last result still holds
            return QueryAnswer(preference_schema(query).empty_table(), 0, selected)
        cut = cut_batches(query, own.since, summaries[0]) if query.samples else {}
        return QueryAnswer(
            presented_figures(query, aggregated(query, selected, cut), moment, coverage, scalars),
            rows,
            selected,
        )
    if query.expires:
        own = promising_state.queries[probes[0].name]
        high = promising_state.summaries[query.sides[0].summary].representation.high
        new = None
        if table is not None and rows:
            new = selected_outputs(table["0time"].to_numpy(), _outputs(query, table, scalars))
        answer = answer_in_window(query, own.selected, new, high)
        shown = presented(query, answer.columns, answer.rows, moment, coverage)
        return QueryAnswer(shown, rows, answer.selected, table if rows else None)
    if alone is not None:
        table = _with_tuples_alone(table, alone)
    if table is None or not table.num_rows:
        return QueryAnswer(preference_schema(query).empty_table(), 0)
    shown = presented(query, _outputs(query, table, scalars), table.num_rows, moment, coverage)
    return QueryAnswer(shown, rows, tuples=table)


def answer_alone(query: PreferenceQuery, alone: pa.Table, moment: Moment, scalars: Scalars) -> QueryAnswer:
    """The results of an outer join that made no probes: the tuples that it returns without a partner, as pairs."""
    shown = presented(query, _outputs(query, alone, scalars), alone.num_rows, moment, Coverage())
    return QueryAnswer(shown, 0, tuples=alone)


def _with_tuples_alone(pairs: pa.Table | None, alone: pa.Table) -> pa.Table:
    """Pairs, and then tuples without a partner."""
    if pairs is None or not pairs.num_rows:
        return alone
    columns = {name: alone[name].cast(pairs.schema.field(name).type) for name in alone.column_names}
    return pa.concat_tables([pairs.select(alone.column_names), pa.table(columns)])


def _outputs(query: PreferenceQuery, table: pa.Table, scalars: Scalars) -> list[pa.ChunkedArray]:
    """The columns of the SELECT list; plain columns need no computation."""
    texts = {
        f"x{i}": output.sql for i, output in enumerate(query.outputs) if not _REFERENCE.fullmatch(output.sql)
    }
    computed = scalars.project(table, texts) if texts else table
    columns = []
    for i, output in enumerate(query.outputs):
        reference = _REFERENCE.fullmatch(output.sql)
        column = table[reference.group(1)] if reference else computed[f"x{i}"]
        columns.append(column.cast(output.type))
    return columns


def presented(
    query: PreferenceQuery,
    columns: Sequence[pa.ChunkedArray | pa.Array],
    rows: int,
    moment: Moment,
    coverage: Coverage,
) -> pa.Table:
    """Results with the system columns about their batch."""
    system = [moment.batch_id, moment.made, coverage.complete, coverage.share, coverage.skipped]
    constant = [
        pa.repeat(pa.scalar(value, kind), rows)
        for value, (_, kind) in zip(system, ANSWER_SYSTEM_COLUMNS, strict=True)
    ]
    return pa.Table.from_arrays([*columns, *constant], schema=preference_schema(query))


def presented_figures(
    query: PreferenceQuery,
    figures: FigureColumns,
    moment: Moment,
    coverage: Coverage,
    scalars: Scalars,
) -> pa.Table:
    """The rows of aggregates, one for each group that HAVING selects, with the system columns about their batch."""
    columns = {output.name: figures.keys[output.key] for output in query.outputs if output.key is not None}
    shown = len(query.reported)
    columns |= dict(
        zip((figure.name for figure in query.reported), figures.values[:shown], strict=True)
    )  # hidden ones are the last
    items = [columns[name] for name, _ in query.selected]
    if query.samples:
        items += [bound for bounds in figures.bounds[:shown] for bound in bounds]
    behind = pa.array(figures.rows, BEHIND[1])
    table = presented(query, [*items, behind], len(figures.rows), moment, coverage)
    if query.having is None or not table.num_rows:
        return table
    groups = {group_column(place): column for place, column in enumerate(figures.keys)}
    groups |= {aggregate_column(place): column for place, column in enumerate(figures.values)}
    keep = scalars.project(pa.table(groups), {"keep": query.having})["keep"]
    return table.filter(keep.cast(pa.bool_()).fill_null(False))


# --- selections with a window -----------------------------------------------------------------


@dataclass(frozen=True)
class SelectionAnswer:
    """The rows that a selection with a window reports, as columns, and the selected tuples that are in the window."""

    columns: Sequence[pa.ChunkedArray | pa.Array]
    rows: int
    selected: pa.Table


def selected_outputs(times: Ints, columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Table:
    """Selected tuples as a selection with a window keeps them: their times, and the columns of the SELECT list."""
    names = [aggregate_column(number) for number in range(len(columns))]
    return pa.Table.from_arrays([pa.array(times), *columns], names=["time", *names])


def answer_in_window(
    query: PreferenceQuery, selected: pa.Table | None, new: pa.Table | None, high: int | None
) -> SelectionAnswer:
    """The new tuples, and the tuples that have expired: those that are a window older than the newest tuple.

    A new tuple may have expired already; it is reported twice, as if it had been found in time (section 4.2).
    """
    window = query.preference.window
    assert window is not None
    if new is None:
        kinds = [pa.field(aggregate_column(i), output.type) for i, output in enumerate(query.outputs)]
        new = pa.schema([pa.field("time", pa.int64()), *kinds]).empty_table()
    kept = new if selected is None else pa.concat_tables([selected, new])
    expired = new.slice(0, 0)
    if high is not None and kept.num_rows:
        is_old = np.asarray(kept["time"].to_numpy() <= high - window)
        if is_old.any():
            kept, expired = kept.filter(pa.array(~is_old)), kept.filter(pa.array(is_old))
    shown = pa.concat_tables([new, expired])
    marks = pa.array(np.arange(shown.num_rows) >= new.num_rows)
    return SelectionAnswer([*shown.columns[1:], marks], shown.num_rows, kept.combine_chunks())


@dataclass(frozen=True)
class Shown:
    """How many tuples each of several selections produced, and how many it skipped."""

    produced: Ints
    skipped: Ints


def outputs_of(
    query: PreferenceQuery, table: pa.Table, rows: Ints, scalars: Scalars
) -> list[pa.ChunkedArray]:
    """The columns of a selection's SELECT list for some rows of a batch's tuples."""
    places = pa.array(rows)
    columns = {f"0.{name}": one_array(table[f".{name}"]).take(places) for name in query.sides[0].columns}
    return _outputs(query, pa.table(columns), scalars)


def shown_together(
    query: PreferenceQuery, table: pa.Table, rows: Ints, shown: Shown, moment: Moment, scalars: Scalars
) -> pa.Table:
    """The results of selections with the same SELECT list as `query`: rows of the batch's tuples, one selection after
    the other."""
    outputs = outputs_of(query, table, rows, scalars)
    whole = shown.produced + shown.skipped
    values = (shown.skipped == 0, shown.produced / whole, shown.skipped.astype(np.float64))
    coverage = [pa.array(np.repeat(numbers, shown.produced)) for numbers in values]
    constant = [
        pa.repeat(pa.scalar(value, kind), len(rows))
        for value, (_, kind) in zip((moment.batch_id, moment.made), ANSWER_SYSTEM_COLUMNS, strict=False)
    ]
    return pa.Table.from_arrays([*outputs, *constant, *coverage], schema=preference_schema(query))
