"""Tables with a row for each query or selection: rows of those that did not change are taken from the last table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

RowSource = TypeVar("RowSource")


class LastingTable(Generic[RowSource]):
    """A table of objects by key. `encode` makes the rows of some of them; the others have rows in the last table."""

    def __init__(self, encode: Callable[[Mapping[str, RowSource]], pa.Table]):
        self._encode = encode
        self._rows: Mapping[str, RowSource] = {}
        self._table: pa.Table | None = None

    def of(self, rows: Mapping[str, RowSource]) -> pa.Table:
        """The table of some objects, in their order. A row is taken for an object that is the very same."""
        table = self._taken(rows)
        self._rows, self._table = dict(rows), table
        return table

    def _taken(self, rows: Mapping[str, RowSource]) -> pa.Table:
        if self._table is None:
            return self._encode(rows)
        places = {key: place for place, key in enumerate(self._rows)}
        taken: list[int] = []
        new: dict[str, RowSource] = {}
        for key, row in rows.items():
            if self._rows.get(key) is not row:
                new[key] = row
            elif new:  # as a rule, new objects come last
                return self._encode(rows)
            else:
                taken.append(places[key])
        if not taken:
            return self._encode(rows)
        kept = self._table.take(pa.array(np.array(taken, np.int64)))
        if not new:
            return kept
        added = self._encode(new)
        if added.schema != kept.schema:
            return self._encode(rows)
        return pa.concat_tables([kept, added]).combine_chunks()
