"""A query's newest final results as a small series of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.server.query_description import QueryDescription


@dataclass(frozen=True)
class Trend:
    """One value per window."""

    name: str  # of the column
    ends: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


def trend(query: QueryDescription, results: pa.Table, points: int) -> Trend | None:
    """The first numeric value of a query, one point per window.

    Over the groups of a window, counts and sums are added; other values are averaged.
    """
    roles = [column.role for column in query.columns]
    numeric = (
        index
        for index, role in enumerate(roles)
        if role == "value" and _is_number(results.schema.field(index).type)
    )
    index = next(numeric, None)
    if index is None:
        return None
    kind = roles.index("system")  # the first system column is `kind`: early or final
    finals = results.filter(pc.equal(results.column(kind), "final"))
    series = pa.table(
        {"end": finals.column(1).cast(pa.int64()), "value": finals.column(index).cast(pa.float64())}
    )
    groups = series.filter(pc.is_valid(series["value"])).group_by("end")
    function = "sum" if query.columns[index].name in query.additive else "mean"
    windows = groups.aggregate([("value", function)]).sort_by("end")
    windows = windows.slice(max(windows.num_rows - points, 0))
    name, values = query.columns[index].name, windows[f"value_{function}"].to_pylist()
    return Trend(name, tuple(windows["end"].to_pylist()), tuple(values))


def _is_number(kind: pa.DataType) -> bool:
    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)
