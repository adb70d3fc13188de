"""The results of preference queries: from the tuples that probes found to SELECT lists and aggregates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.aggregates.table import aggregate_function
from transom.columns.arrays import Ints, one_array
from transom.columns.table_columns import aggregate_column
from transom.promising.batch_tuples import as_numbers, column_name
from transom.promising.found_tuples import TupleReading, selected_rows, truth_of
from transom.promising.probes import Draws, Probe
from transom.promising.representation import Representation
from transom.promising.sample_estimates import ESTIMATED_FUNCTIONS, EvenSample
from transom.results.result_rows import Moment
from transom.sql.catalog import Scalars
from transom.sql.preference_query import Figure, PreferenceQuery
from transom.sql.query import free_name
from transom.state.promising import Coverage, PreferenceState, PromisingState, SummaryState

_REFERENCE = re.compile(r"`([01]\.[^`]+)`")
_INSTANT = pa.timestamp("us", tz="UTC")
ANSWER_SYSTEM_COLUMNS = (
    ("batch", pa.int64()),
    ("made", _INSTANT),
    ("complete", pa.bool_()),
    ("share", pa.float64()),
    ("skipped", pa.float64()),
)
BATCH, DRAWN, TOTAL = "batch", "drawn", "total"  # of the tuples of a sample
BEHIND = ("rows", pa.int64())  # how many tuples an aggregate is over
EXPIRED = ("expired", pa.bool_())  # whether a selected tuple has left the window


def preference_schema(query: PreferenceQuery) -> pa.Schema:
    """The columns of a preference query's results; a system column gets a prefix if an item has its name.

    A row is `complete` if its batch skipped no probes; `share` is the part of the batch's estimated output that
    was produced, and `skipped` the estimated number of tuples that were skipped. A selection with a window reports
    each tuple again, as `expired`, when it leaves the window. The aggregates of an even sample
    have bounds, named like those of early results.
    """
    items = [(item.name, item.type) for item in query.outputs]
    items += [(item.name, item.type) for item in query.figures]
    taken = {name for name, _ in items}
    if query.samples:
        bounds = [
            (f"{item.name}_{bound}", pa.float64()) for item in query.figures for bound in ("low", "high")
        ]
        items += [(free_name(name, taken), kind) for name, kind in bounds]
    own = [BEHIND] if query.figures else [EXPIRED] if query.expires else []
    system = [*own, *ANSWER_SYSTEM_COLUMNS]
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
    draws: Draws | None = None,
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
            query, table, own, promising_state.summaries[query.sides[0].summary].representation, draws
        )
        if not rows and probes[0].resumes:  # the last result still holds
            return QueryAnswer(preference_schema(query).empty_table(), 0, selected)
        summary = promising_state.summaries[query.sides[0].summary]
        cut = cut_batches(query, own.since, summary) if query.samples else {}
        return QueryAnswer(_aggregated(query, selected, cut, moment, coverage), rows, selected)
    if query.expires:
        own = promising_state.queries[probes[0].name]
        high = promising_state.summaries[query.sides[0].summary].representation.high
        new = None
        if table is not None and rows:
            new = selected_outputs(table["0time"].to_numpy(), _outputs(query, table, scalars))
        answer = answer_in_window(query, own.selected, new, high)
        return QueryAnswer(
            presented(query, answer.columns, answer.rows, moment, coverage), rows, answer.selected
        )
    if table is None or not rows:
        return QueryAnswer(preference_schema(query).empty_table(), 0)
    return QueryAnswer(presented(query, _outputs(query, table, scalars), rows, moment, coverage), rows)


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


# --- aggregates -------------------------------------------------------------------------------


def _selected(
    query: PreferenceQuery,
    table: pa.Table | None,
    query_state: PreferenceState,
    summary: Representation,
    draws: Draws | None,
) -> pa.Table | None:
    """The tuples that an aggregate selected, now and before, that are still in its window.

    Those of a sample have the number of their batch, and how many tuples of how many it drew.
    """
    selected = query_state.selected
    if draws is not None and selected is not None:
        selected = _with_draws(selected, draws)
    if table is not None:
        columns = {"time": table["0time"]}
        for i, figure in enumerate(query.figures):
            if figure.argument is not None:
                columns[aggregate_column(i)] = table[f"0{column_name(figure.argument)}"]
        new = pa.table(columns)
        if draws is not None:
            new = _drawn(new, table["0batch"].to_numpy(), draws, selected)
        selected = new if selected is None else pa.concat_tables([selected, new], promote_options="default")
    window, high = query.preference.window, summary.high
    floor = summary.floor if window is None or high is None else high - window + 1
    if selected is None or floor is None:
        return selected
    return selected.filter(pc.greater_equal(selected["time"], floor)).combine_chunks()


def _with_draws(selected: pa.Table, draws: Draws) -> pa.Table:
    """The tuples of a sample after its batches have drawn more."""
    if BATCH not in selected.column_names:  # of a checkpoint from before samples were scaled
        none = pa.array(np.zeros(selected.num_rows, np.int64))
        return selected.append_column(BATCH, none).append_column(DRAWN, none).append_column(TOTAL, none)
    drawn = selected[DRAWN].to_numpy() + _looked_up(draws.drawn, selected[BATCH].to_numpy())
    return selected.set_column(selected.column_names.index(DRAWN), DRAWN, pa.array(drawn))


def _drawn(new: pa.Table, batch_id: Ints, draws: Draws, selected: pa.Table | None) -> pa.Table:
    """The new tuples of a sample, with what their batches have drawn, now and before."""
    drawn = {number: count + draws.earlier.get(number, 0) for number, count in draws.drawn.items()}
    total = dict(draws.total)
    if selected is not None:  # earlier draws of a batch are known by its tuples
        before, first = np.unique(selected[BATCH].to_numpy(), return_index=True)
        drawn |= dict(zip(before.tolist(), selected[DRAWN].to_numpy()[first].tolist(), strict=True))
        total |= dict(zip(before.tolist(), selected[TOTAL].to_numpy()[first].tolist(), strict=True))
    columns = {BATCH: batch_id, DRAWN: _looked_up(drawn, batch_id), TOTAL: _looked_up(total, batch_id)}
    for name, numbers in columns.items():
        new = new.append_column(name, pa.array(numbers))
    return new


def _looked_up(numbers: Mapping[int, int], keys: Ints) -> Ints:
    """The number of each key; 0 if it has none."""
    distinct, place = np.unique(keys, return_inverse=True)
    return np.array([numbers.get(key, 0) for key in distinct.tolist()], np.int64)[place]


def _aggregated(
    query: PreferenceQuery,
    selected: pa.Table | None,
    cut: Mapping[int, int],
    moment: Moment,
    coverage: Coverage,
) -> pa.Table:
    """The aggregates over the selected tuples; `cut` has the tuples of batches that are partly in the window."""
    sample = None
    if query.samples and selected is not None and selected.num_rows:
        numbers = (selected[name].to_numpy() for name in (BATCH, DRAWN, TOTAL))
        sample = EvenSample(*numbers).within_window(cut)
    figures = [_estimated(query, i, selected, sample) for i in range(len(query.figures))]
    items = [
        pa.array([value], figure.type) for (value, _, _), figure in zip(figures, query.figures, strict=True)
    ]
    if query.samples:
        items += [pa.array([bound], pa.float64()) for _, *bounds in figures for bound in bounds]
    behind = pa.array([0 if selected is None else selected.num_rows], BEHIND[1])
    return presented(query, [*items, behind], 1, moment, coverage)


def cut_batches(query: PreferenceQuery, since: int, summary: SummaryState) -> dict[int, int]:
    """The batches that are partly in the window of a sample, and how many selected tuples of each are in it.

    They are counted where the tuples are at hand. On the executors, the sample itself has to estimate them.
    """
    window, high = query.preference.window, summary.representation.high
    if window is None or high is None or summary.files:
        return {}
    floor, counts = high - window + 1, dict[int, int]()
    reading = TupleReading(query, 0, (summary.representation.shape.column,), since)
    for tuples in (run.tuples for run in summary.runs):
        if tuples.times[0] >= floor or tuples.times[1] < floor:
            continue
        is_old = tuples.time < floor
        cut = np.unique(tuples.batch_id[is_old])
        inside = tuples.where(~is_old & np.isin(tuples.batch_id, cut))
        selected = inside.batch_id[selected_rows(reading, inside)]
        for batch_id, count in zip(*np.unique(selected, return_counts=True), strict=True):
            counts[int(batch_id)] = int(count)
    return counts


def _figure(figure: Figure, number: int, selected: pa.Table | None) -> object:
    """The value of an aggregate, as in a window query; over no tuples NULL, or 0 for a count."""
    function = aggregate_function(figure.function)
    if selected is None:
        return function.empty
    if figure.argument is None:
        return selected.num_rows
    return function.over(one_array(selected[aggregate_column(number)]), figure.type)


def _estimated(
    query: PreferenceQuery, number: int, selected: pa.Table | None, sample: EvenSample | None
) -> tuple[object, float | None, float | None]:
    """The value of an aggregate; over a sample, its estimate for all tuples, and its bounds."""
    figure = query.figures[number]
    value = _figure(figure, number, selected)
    if sample is None or selected is None:
        return value, None, None
    column = None if figure.argument is None else one_array(selected[aggregate_column(number)])
    is_number = column is not None and _is_number(column.type)
    counts = figure.argument is None or figure.function == "count"
    if not counts and not (is_number and figure.function in ESTIMATED_FUNCTIONS):
        return value, None, None
    if sample.is_complete:
        exact = None if value is None else float(str(value))
        return value, exact, exact
    chosen = np.ones(selected.num_rows, bool) if column is None else truth_of(column.is_valid())
    values = as_numbers(column) if column is not None and is_number else None
    estimate = sample.estimate(figure.function, values, chosen)
    return _of_type(estimate.value, figure.type), estimate.low, estimate.high


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _of_type(value: float | None, kind: pa.DataType) -> object:
    """An estimated number as a value of an aggregate's type."""
    if value is None or pa.types.is_floating(kind):
        return value
    if pa.types.is_decimal(kind):
        return round(Decimal(value), kind.scale)
    return round(value)
