"""What the columns of some rows are like: how many values are null, how many differ, and what they range over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MOST_COMMON = 3


@dataclass(frozen=True)
class ColumnStatistics:
    """The values of a column in a sample of rows; None is what values of its type do not have."""

    rows: int
    nulls: int
    distinct: int | None = None
    least: Any = None
    greatest: Any = None
    common: tuple[tuple[Any, int], ...] = ()  # the most frequent values, if some value occurs twice

    @property
    def repeats(self) -> float:
        """How often a value occurs on average; 0 if that is not known."""
        return (self.rows - self.nulls) / self.distinct if self.distinct else 0.0


def column_statistics(table: pa.Table) -> Mapping[str, ColumnStatistics]:
    """The statistics of each column of a table.

    >>> found = column_statistics(pa.table({"city": ["Oslo", "Rome", "Oslo", None]}))["city"]
    >>> found.distinct, found.nulls, found.least, found.common
    (2, 1, 'Oslo', (('Oslo', 2), ('Rome', 1)))
    """
    return {name: _statistics(table[name]) for name in table.column_names}


def _statistics(column: pa.ChunkedArray) -> ColumnStatistics:
    rows, nulls = len(column), column.null_count
    values = column.drop_null()
    try:
        counts = pc.value_counts(values)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, structs and maps
        return ColumnStatistics(rows, nulls)
    distinct = len(counts)
    bounds = (
        pc.min_max(values).as_py() if distinct and _has_bounds(column.type) else {"min": None, "max": None}
    )
    common: tuple[tuple[Any, int], ...] = ()
    if distinct < len(values):
        order = pc.sort_indices(counts.field("counts"), sort_keys=[("", "descending")])[:MOST_COMMON]
        common = tuple((each["values"], each["counts"]) for each in counts.take(order).to_pylist())
    return ColumnStatistics(rows, nulls, distinct, bounds["min"], bounds["max"], common)


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_binary(kind))
