"""The results of a query WITH PREFERENCE: their columns, and the stream that they are to queries that read them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from transom.sql.catalog import Relation
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import free_name

_INSTANT = pa.timestamp("us", tz="UTC")
_ABOUT_ROWS = (("complete", pa.bool_()), ("share", pa.float64()), ("skipped", pa.float64()))
ANSWER_SYSTEM_COLUMNS = (("batch", pa.int64()), ("made", _INSTANT), *_ABOUT_ROWS)
BEHIND = ("rows", pa.int64())  # how many tuples or pairs an aggregate is over
EXPIRED = ("expired", pa.bool_())  # whether a selected tuple has left the window
RESULT_TIME = "result_time"  # the column of a stream of results with the event time of each


def preference_schema(query: PreferenceQuery) -> pa.Schema:
    """The columns of a preference query's results; a system column gets a prefix if an item has its name.

    A row is `complete` if its batch skipped no probes; `share` is the part of the batch's estimated output that
    was produced, and `skipped` the estimated number of tuples that were skipped. A selection with a window reports
    each tuple again, as `expired`, when it leaves the window. The aggregates of an even sample
    have bounds, named like those of early results.
    """
    expired = [EXPIRED] if query.expires else []
    return pa.schema([*_item_columns(query), *_free(query, [*expired, *ANSWER_SYSTEM_COLUMNS])])


def result_stream(name: str, query: PreferenceQuery) -> Relation:
    """The results of a query as a stream: their event time, the SELECT list, and how much of the output they are."""
    time = [(RESULT_TIME, _INSTANT)]
    columns = dict([*_free(query, time), *_item_columns(query), *_free(query, _ABOUT_ROWS)])
    return Relation(
        name,
        columns,
        result_time_column(query),
        "it is a query; join the streams themselves",
        is_declared=False,
    )


def result_time_column(query: PreferenceQuery) -> str:
    """The name of the column with the event time of a result."""
    return _free(query, [(RESULT_TIME, _INSTANT)])[0][0]


def complete_column(query: PreferenceQuery) -> str:
    """The name of the column that says whether the batch of a result skipped nothing."""
    return _free(query, _ABOUT_ROWS)[0][0]


def result_stream_rows(query: PreferenceQuery, results: pa.Table, times: pa.Array) -> pa.Table:
    """Results with their event times as rows of the stream that others read."""
    read = [*_item_columns(query), *_free(query, _ABOUT_ROWS)]
    time = {result_time_column(query): times.cast(_INSTANT)}
    return pa.table(time | {name: results[name] for name, _ in read})


def _item_columns(query: PreferenceQuery) -> list[tuple[str, pa.DataType]]:
    """The SELECT list, the bounds of estimates, and the number of rows behind aggregates."""
    types = {output.name: output.type for output in query.outputs}
    types |= {figure.name: figure.type for figure in query.reported}
    items = [(name, types[name]) for name, _ in query.selected]
    if query.samples:
        bounds = [
            (f"{item.name}_{bound}", pa.float64()) for item in query.reported for bound in ("low", "high")
        ]
        items += _free(query, bounds)
    return items + (_free(query, [BEHIND]) if query.figures else [])


def _free(
    query: PreferenceQuery, columns: Iterable[tuple[str, pa.DataType]]
) -> list[tuple[str, pa.DataType]]:
    """Columns under names that no item has."""
    taken = {name for name, _ in query.selected}
    return [(free_name(name, taken), kind) for name, kind in columns]
