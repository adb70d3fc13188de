"""How an engine, a query, a feed, progress and a plan show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from transom.durations import format_instant
from transom.plan.explain import Explanation
from transom.plan.explain.text_parts import readable
from transom.results.newest_results import ResultPlaces, newest_results
from transom.results.result_rows import result_schema
from transom.runtime.inline_charts import Point, bar_chart, line_chart
from transom.sql.query import Query

SHOWN_ROWS = 10
SHOWN_QUERIES = 50
CHARTED_ROWS = 2_000  # the newest results that a chart has
CHARTED_GROUPS = 6
CHARTED_SELECTIONS = 12


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts; null is empty.

    >>> html_table(["a<b"], [[1]])
    '<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def titled(title: str, *parts: str) -> str:
    """Some HTML below a title."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def text_block(text: str) -> str:
    """A text whose lines stay as they are."""
    return f"<pre>{escape(text)}</pre>"


class PlanText(str):
    """The text of a plan, which a notebook shows with a chart of how many queries share each selection."""

    html: str

    @classmethod
    def of(cls, text: str, plan: Explanation) -> PlanText:
        """The text and the chart of a plan."""
        shown = cls(text)
        shown.html = sharing_chart(plan) + text_block(text)
        return shown

    def _repr_html_(self) -> str:
        return self.html


def sharing_chart(plan: Explanation) -> str:
    """A bar for each selection: how many queries share it. The largest come first."""
    selections = [
        (f"{stream.name}: {readable(selection.where or 'all rows')}", len(selection.queries))
        for stream in plan.streams
        for _, selection in stream.selections()
    ]
    largest = sorted(selections, key=lambda one: -one[1])[:CHARTED_SELECTIONS]
    return bar_chart(largest, "queries that share each selection")


def result_chart(table: pa.Table, query: Query) -> str:
    """A line for each of the largest groups: the first number that the query selects, by the end of the window.

    Only final results are drawn. There is no chart if the query selects no number.
    """
    schema = result_schema(query)
    numbers = [item.name for item in query.items if not item.is_key and _is_number(item.type)]
    if query.is_row_query or not numbers or table.schema != schema:
        return ""
    # By place: a system column has another name if the query selects one of that name.
    end, value = schema.names[1], numbers[0]
    keys = [item.name for item in query.items if item.is_key]
    newest = newest_results(table.slice(max(0, table.num_rows - CHARTED_ROWS)), ResultPlaces.of(query))
    newest = newest.sort_by(end)
    if not newest.num_rows:
        return ""
    series: dict[str, list[Point]] = {}
    times = newest.column(end).cast(pa.int64()).to_pylist()
    groups = (
        zip(*(newest.column(key).to_pylist() for key in keys), strict=True) if keys else ((),) * len(times)
    )
    values = newest.column(value).cast(pa.float64(), safe=False).to_pylist()
    for time, group, number in zip(times, groups, values, strict=True):
        name = ", ".join(map(str, group)) or value
        series.setdefault(name, []).append((time, float("nan") if number is None else number))
    largest = sorted(series, key=lambda name: -len(series[name]))[:CHARTED_GROUPS]
    is_time = pa.types.is_timestamp(schema.field(1).type)
    first, last = (format_instant(time) if is_time else f"{time:,}" for time in (times[0], times[-1]))
    return line_chart({name: series[name] for name in largest}, f"{value} by window", first, last)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
