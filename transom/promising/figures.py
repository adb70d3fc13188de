"""Aggregates over the tuples or pairs that a preference query found: what is kept of them, and figures by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from transom.aggregates.table import aggregate_function
from transom.columns.arrays import Floats, Ints, one_array
from transom.columns.groups import Groups, group
from transom.columns.table_columns import aggregate_column, group_column
from transom.promising.batch_tuples import as_numbers, column_name
from transom.promising.found_tuples import TupleReading, selected_rows, truth_of
from transom.promising.probes import Draws
from transom.promising.sample_estimates import ESTIMATED_FUNCTIONS, EvenSample, GroupedSample
from transom.sql.catalog import Scalars
from transom.sql.preference_query import Figure, PreferenceQuery
from transom.sql.query import Scalar
from transom.state.promising import PreferenceState, SummaryState

BATCH, DRAWN, TOTAL = "batch", "drawn", "total"  # of the tuples of a sample
SIDE_TIMES = ("time", "time1")  # of the tuples of each side


@dataclass(frozen=True)
class FigureColumns:
    """The keys and figures of each group, the bounds of each figure, and how many tuples or pairs a group has."""

    keys: Sequence[pa.Array]
    values: Sequence[pa.Array]
    rows: Ints
    bounds: Sequence[tuple[pa.Array, pa.Array]] = ()


# --- what is kept -----------------------------------------------------------------------------


def window_starts(query: PreferenceQuery, summaries: Sequence[SummaryState]) -> list[int | None]:
    """The time from which on aggregates cover the tuples of each side; None: all of them.

    The window ends with the newest tuple, in a join with that of the stream that is furthest behind.
    """
    window, highs = query.preference.window, [summary.representation.high for summary in summaries]
    known = [high for high in highs if high is not None]
    if window is None or len(known) < len(highs):
        return [summary.representation.floor for summary in summaries]
    return [min(known) - window + 1] * len(summaries)


def selected_arguments(
    query: PreferenceQuery,
    table: pa.Table | None,
    query_state: PreferenceState,
    summaries: Sequence[SummaryState],
    scalars: Scalars,
    draws: Draws | None,
) -> pa.Table | None:
    """What an aggregate reads of the tuples or pairs that it selected, now and before, and that are in its window.

    Those of a sample have the number of their batch, and how many tuples of how many it drew.
    """
    selected = query_state.selected
    if draws is not None and selected is not None:
        selected = _with_draws(selected, draws)
    if table is not None:
        new = _arguments(query, table, scalars)
        if draws is not None:
            batches = [table[f"{side}batch"].to_numpy() for side in range(len(query.sides))]
            new = _drawn(new, np.maximum(batches[0], batches[-1]), draws, selected)
        selected = new if selected is None else pa.concat_tables([selected, new], promote_options="default")
    if selected is None:
        return None
    selected, inside = selected.combine_chunks(), None
    for name, start in zip(SIDE_TIMES, window_starts(query, summaries), strict=False):
        if start is not None:
            is_recent = selected[name].to_numpy() >= start
            inside = is_recent if inside is None else inside & is_recent
    return selected if inside is None or inside.all() else selected.filter(pa.array(inside))


def _arguments(query: PreferenceQuery, table: pa.Table, scalars: Scalars) -> pa.Table:
    """The times, keys and arguments of tuples or pairs; expressions over pairs are computed."""
    wanted: dict[str, tuple[Scalar, int | None]] = {
        group_column(place): (key.scalar, key.side) for place, key in enumerate(query.keys)
    }
    wanted |= {
        aggregate_column(place): (figure.argument, figure.side)
        for place, figure in enumerate(query.figures)
        if figure.argument is not None
    }
    texts = {name: scalar.sql for name, (scalar, side) in wanted.items() if side is None}
    computed = scalars.project(table, texts) if texts and table.num_rows else None
    columns = {SIDE_TIMES[side]: table[f"{side}time"] for side in range(len(query.sides))}
    for name, (scalar, side) in wanted.items():
        if side is not None:
            columns[name] = table[f"{side}{column_name(scalar)}"]
        elif computed is not None:
            columns[name] = computed[name].cast(scalar.type)
        else:
            columns[name] = pa.chunked_array([], scalar.type)
    return pa.table(columns)


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


def cut_batches(query: PreferenceQuery, since: int, summary: SummaryState) -> dict[int, int]:
    """The batches that are partly in the window of a sample, and how many selected tuples of each are in it.

    They are counted where the tuples of a selection are at hand. On the executors and in joins, the sample itself has
    to estimate them.
    """
    window, high = query.preference.window, summary.representation.high
    if window is None or high is None or summary.files or len(query.sides) > 1:
        return {}
    floor, counts = high - window + 1, dict[int, int]()
    reading = TupleReading(query, 0, (summary.representation.shape.column,), since)
    for tuples in (run.tuples for run in summary.runs):
        if tuples.times[0] >= floor or tuples.times[1] < floor:
            continue
        inside = tuples.of_cut_batches(floor)
        selected = inside.batch_id[selected_rows(reading, inside)]
        for batch_id, count in zip(*np.unique(selected, return_counts=True), strict=True):
            counts[int(batch_id)] = int(count)
    return counts


# --- figures ----------------------------------------------------------------------------------


def aggregated(
    query: PreferenceQuery, selected: pa.Table | None, cut: Mapping[int, int] | None = None
) -> FigureColumns:
    """The aggregates of each group; `cut` has the tuples of batches that are partly in the window of a sample."""
    if selected is None:
        return _of_nothing(query)
    keys = [one_array(selected[group_column(place)]) for place in range(len(query.keys))]
    groups = key_groups(query, keys, selected.num_rows)
    keys = [key.take(pa.array(groups.firsts)) for key in keys]
    columns = [
        None if figure.argument is None else one_array(selected[aggregate_column(place)])
        for place, figure in enumerate(query.figures)
    ]
    size = groups.count if query.keys else 1
    sample = _grouped_sample(query, selected, groups, size, cut or {}) if query.samples else None
    values, bounds = [], []
    for figure, column in zip(query.figures, columns, strict=True):
        estimated = None if sample is None else _estimates(figure, column, sample)
        if estimated is not None:
            value, low, high = estimated
        else:
            value = _figure(figure, column, groups, size)
            low = high = _exact_bounds(figure, column, value, sample)
        values.append(value)
        bounds.append((low, high))
    rows = np.bincount(groups.codes, minlength=size)
    return FigureColumns(keys, values, rows, bounds if query.samples else ())


def key_groups(query: PreferenceQuery, keys: Sequence[pa.Array], rows: int) -> Groups:
    """The groups of rows by their keys; without GROUP BY, all rows are one group."""
    return group(keys, rows) if query.keys else Groups(np.zeros(rows, np.int64), np.zeros(1, np.int64))


def _of_nothing(query: PreferenceQuery) -> FigureColumns:
    """The aggregates over no tuples: NULL, or 0 for a count; with GROUP BY, no rows."""
    size = 0 if query.keys else 1
    values = [
        pa.array([aggregate_function(figure.function).empty] * size, figure.type) for figure in query.figures
    ]
    unknown = pa.nulls(size, pa.float64())
    bounds = [(unknown, unknown) for _ in query.figures] if query.samples else []
    keys = [pa.array([], key.scalar.type) for key in query.keys]
    return FigureColumns(keys, values, np.zeros(size, np.int64), bounds)


def _figure(figure: Figure, column: pa.Array | None, groups: Groups, size: int) -> pa.Array:
    """The value of an aggregate for each group, as in a window query; over no tuples NULL, or 0 for a count."""
    if column is None:
        return pa.array(np.bincount(groups.codes, minlength=size).astype(np.int64))
    function = aggregate_function(figure.function)
    accumulators = function.accumulators(column.type, ())
    states = [accumulator.lift(column, groups.codes, size) for accumulator in accumulators]
    return function.lower(states, figure.type, ()).cast(figure.type, safe=False)


# --- estimates --------------------------------------------------------------------------------


def _grouped_sample(
    query: PreferenceQuery, selected: pa.Table, groups: Groups, size: int, cut: Mapping[int, int]
) -> GroupedSample | None:
    """The sample with the group of each tuple; None if no tuple was drawn."""
    if not selected.num_rows:
        return None
    numbers = (selected[name].to_numpy() for name in (BATCH, DRAWN, TOTAL))
    counts_all = not query.keys and query.rest is None
    return GroupedSample(EvenSample(*numbers).within_window(cut), groups.codes, size, counts_all)


def _is_estimated(figure: Figure, column: pa.Array | None) -> bool:
    """Whether an aggregate of a sample is an estimate for all tuples."""
    counts = figure.argument is None or figure.function == "count"
    return counts or (
        column is not None and _is_number(column.type) and figure.function in ESTIMATED_FUNCTIONS
    )


def _exact_bounds(
    figure: Figure, column: pa.Array | None, exact: pa.Array, sample: GroupedSample | None
) -> pa.Array:
    """The bounds of an aggregate that is not estimated: its value if all tuples were drawn, otherwise NULL."""
    if sample is None or not _is_estimated(figure, column):
        return pa.nulls(len(exact), pa.float64())
    return exact.cast(pa.float64(), safe=False)


def _estimates(
    figure: Figure, column: pa.Array | None, sample: GroupedSample
) -> tuple[pa.Array, pa.Array, pa.Array] | None:
    """The estimates of an aggregate for all tuples of each group, and their bounds; None if it needs none."""
    if sample.sample.is_complete or not _is_estimated(figure, column):
        return None
    chosen = np.ones(len(sample.codes), bool) if column is None else truth_of(column.is_valid())
    numbers = as_numbers(column) if column is not None and _is_number(column.type) else None
    made = sample.estimates(figure.function, numbers, chosen)
    low, high = (pa.array(part, mask=np.isnan(part)) for part in (made.low, made.high))
    return _of_type(made.value, figure.type), low, high


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _of_type(values: Floats, kind: pa.DataType) -> pa.Array:
    """Estimated numbers as values of an aggregate's type; NaN is NULL."""
    unknown = np.isnan(values)
    if pa.types.is_floating(kind):
        return pa.array(values, mask=unknown).cast(kind)
    if pa.types.is_integer(kind) and np.abs(values, where=~unknown, out=np.zeros(len(values))).max(
        initial=0
    ) < (2**53):
        whole = np.rint(np.where(unknown, 0, values)).astype(np.int64)
        return pa.array(whole, mask=unknown).cast(kind)
    scale = kind.scale if pa.types.is_decimal(kind) else None
    rounded = (None if np.isnan(one) else round(Decimal(one), scale) for one in values.tolist())
    return pa.array([one if one is None or scale is not None else int(one) for one in rounded], kind)
