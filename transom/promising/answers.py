"""The results of preference queries: from the tuples that probes found to SELECT lists and aggregates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.table import aggregate_function
from transom.columns.table_columns import aggregate_column
from transom.kernel.sheets import one_array
from transom.promising.batch_tuples import column_name
from transom.promising.probes import Probe
from transom.promising.representation import Representation
from transom.results.result_rows import Moment
from transom.sql.catalog import Scalars
from transom.sql.preference_query import Figure, PreferenceQuery
from transom.sql.query import free_name
from transom.state.promising import Coverage, PreferenceState, PromisingState

_REFERENCE = re.compile(r"`([01]\.[^`]+)`")
_INSTANT = pa.timestamp("us", tz="UTC")
ANSWER_SYSTEM_COLUMNS = (
    ("batch", pa.int64()),
    ("made", _INSTANT),
    ("complete", pa.bool_()),
    ("share", pa.float64()),
    ("skipped", pa.float64()),
)
BEHIND = ("rows", pa.int64())  # how many tuples an aggregate is over


def preference_schema(query: PreferenceQuery) -> pa.Schema:
    """The columns of a preference query's results; a system column gets a prefix if an item has its name.

    A row is `complete` if its batch skipped no probes; `share` is the part of the batch's estimated output that
    was produced, and `skipped` the estimated number of tuples that were skipped.
    """
    items = [(item.name, item.type) for item in query.outputs]
    items += [(item.name, item.type) for item in query.figures]
    taken = {name for name, _ in items}
    system = [BEHIND, *ANSWER_SYSTEM_COLUMNS] if query.figures else ANSWER_SYSTEM_COLUMNS
    return pa.schema(items + [(free_name(name, taken), kind) for name, kind in system])


@dataclass(frozen=True)
class QueryAnswer:
    """The results of a query's probes, the number of rows or pairs found, and the tuples that an aggregate keeps."""

    table: pa.Table
    found: int
    selected: pa.Table | None = None


def answer_query(
    query: PreferenceQuery,
    probes: Sequence[Probe],
    table: pa.Table | None,
    promising_state: PromisingState,
    moment: Moment,
    scalars: Scalars,
) -> QueryAnswer:
    """The results of a query's probes; `table` is None if they found nothing."""
    if query.rest is not None and table is not None and table.num_rows:
        keep = scalars.project(table, {"keep": query.rest})["keep"]
        table = table.filter(keep.cast(pa.bool_()).fill_null(False))
    rows = 0 if table is None else table.num_rows
    skipped, left = zip(*(probe.not_probed() for probe in probes), strict=True)
    coverage = Coverage(produced=rows, skipped=sum(skipped), left=sum(left))
    if query.figures:
        own = promising_state.queries[probes[0].name]
        selected = _selected(
            query, table, own, promising_state.summaries[query.sides[0].summary].representation
        )
        if not rows and probes[0].resumes:  # the last result still holds
            return QueryAnswer(preference_schema(query).empty_table(), 0, selected)
        return QueryAnswer(_aggregated(query, selected, moment, coverage), rows, selected)
    if table is None or not rows:
        return QueryAnswer(preference_schema(query).empty_table(), 0)
    return QueryAnswer(_presented(query, _outputs(query, table, scalars), rows, moment, coverage), rows)


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


def _presented(
    query: PreferenceQuery,
    columns: Sequence[pa.ChunkedArray | pa.Array],
    rows: int,
    moment: Moment,
    coverage: Coverage,
) -> pa.Table:
    system = [moment.batch_id, moment.made, coverage.complete, coverage.share, coverage.skipped]
    constant = [
        pa.repeat(pa.scalar(value, kind), rows)
        for value, (_, kind) in zip(system, ANSWER_SYSTEM_COLUMNS, strict=True)
    ]
    return pa.Table.from_arrays([*columns, *constant], schema=preference_schema(query))


# --- aggregates -------------------------------------------------------------------------------


def _selected(
    query: PreferenceQuery, table: pa.Table | None, query_state: PreferenceState, summary: Representation
) -> pa.Table | None:
    """The tuples that an aggregate selected, now and before, that are still in its window."""
    selected = query_state.selected
    if table is not None:
        columns = {"time": table["0time"]}
        for i, figure in enumerate(query.figures):
            if figure.argument is not None:
                columns[aggregate_column(i)] = table[f"0{column_name(figure.argument)}"]
        new = pa.table(columns)
        selected = new if selected is None else pa.concat_tables([selected, new])
    window, high = query.preference.window, summary.high
    floor = summary.floor if window is None or high is None else high - window + 1
    if selected is None or floor is None:
        return selected
    return selected.filter(pc.greater_equal(selected["time"], floor)).combine_chunks()


def _aggregated(
    query: PreferenceQuery, selected: pa.Table | None, moment: Moment, coverage: Coverage
) -> pa.Table:
    """The aggregates over the selected tuples."""
    items = [pa.array([_figure(figure, i, selected)], figure.type) for i, figure in enumerate(query.figures)]
    behind = pa.array([0 if selected is None else selected.num_rows], BEHIND[1])
    return _presented(query, [*items, behind], 1, moment, coverage)


def _figure(figure: Figure, number: int, selected: pa.Table | None) -> object:
    """The value of an aggregate, as in a window query; over no tuples NULL, or 0 for a count."""
    function = aggregate_function(figure.function)
    if selected is None:
        return function.empty
    if figure.argument is None:
        return selected.num_rows
    return function.over(one_array(selected[aggregate_column(number)]), figure.type)
