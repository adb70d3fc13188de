"""A query's newest finals as numbers to draw small."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.types import is_number
from transom.server.query_description import Described


@dataclass(frozen=True)
class Trend:
    """The newest final results of a query as a small series: one value per window."""

    name: str  # of the column
    ends: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


def trend(query: Described, results: pa.Table, points: int) -> Trend | None:
    """The first numeric value of a query with windows, one point each; over groups, counts and sums are added
    up, and of others it is the mean."""
    roles = [column.role for column in query.columns]
    numeric = (
        place
        for place, role in enumerate(roles)
        if role == "value" and is_number(results.schema.field(place).type)
    )
    place = next(numeric, None)
    if place is None:
        return None
    kind = roles.index("system")  # the first of them tells early from final
    finals = results.filter(pc.equal(results.column(kind), "final"))
    drawn = pa.table(
        {"end": finals.column(1).cast(pa.int64()), "value": finals.column(place).cast(pa.float64())}
    )
    drawn = drawn.filter(pc.is_valid(drawn["value"])).group_by("end")
    how = "sum" if query.columns[place].name in query.sums else "mean"
    drawn = drawn.aggregate([("value", how)]).sort_by("end")
    drawn = drawn.slice(max(drawn.num_rows - points, 0))
    name, values = query.columns[place].name, drawn[f"value_{how}"].to_pylist()
    return Trend(name, tuple(drawn["end"].to_pylist()), tuple(values))
