"""What holds after corrections: the newest result of each window and group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints, one_array
from transom.columns.groups import group
from transom.elements import Kind
from transom.results.result_rows import REVISION, SYSTEM_COLUMNS, ResultBatch, result_schema
from transom.sql.query import Query


@dataclass(frozen=True)
class ResultPlaces:
    """The places of columns in results: of the kind, and of the window and group that a result is of."""

    kind: int
    key: tuple[int, ...]

    @classmethod
    def of(cls, query: Query) -> ResultPlaces:
        """The places in the results of a window query."""
        keys = (2 + place for place, item in enumerate(query.items) if item.is_key)
        return cls(len(result_schema(query)) - len(SYSTEM_COLUMNS), (1, *keys))


def newest_results(results: pa.Table, places: ResultPlaces) -> pa.Table:
    """Of results in the order of their batches, the newest of each window and group that still holds.

    Early results are left out, and so are windows and groups whose last result was retracted.
    """
    results = results.filter(pc.not_equal(results.column(places.kind), Kind.EARLY.value))
    if not results.num_rows:
        return results
    codes = _codes(results, places)
    last = np.zeros(int(codes.max()) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of equal codes, the last one stays
    newest = results.take(pa.array(np.sort(last)))
    return newest.filter(pc.not_equal(newest.column(places.kind), Kind.RETRACTION.value))


def without_replaced_retractions(results: pa.Table, places: ResultPlaces) -> pa.Table:
    """A batch's results without the retractions after which the batch has another result of the window and group."""
    kinds = results.column(places.kind)
    is_retraction = np.asarray(pc.equal(kinds, Kind.RETRACTION.value))
    if not is_retraction.any():
        return results
    codes = _codes(results, places)
    numbers, is_early = np.arange(len(codes)), np.asarray(pc.equal(kinds, Kind.EARLY.value))
    last = np.full(int(codes.max()) + 1, -1)
    last[codes[~is_early]] = numbers[~is_early]
    return results.filter(pa.array(~is_retraction | (last[codes] == numbers)))


def corrections_by_query(results: ResultBatch) -> dict[str, int]:
    """How many corrections the results of a batch have, by query."""
    names, first = results.table.schema.names, len(SYSTEM_COLUMNS)
    if len(names) <= first or names[-first - 1].removeprefix("transom_") != REVISION:
        return {}
    kinds = results.table.column(len(names) - first)
    is_correction = np.asarray(pc.equal(kinds, Kind.CORRECTION.value)).astype(np.int64)
    counts = np.diff(np.append(0, np.cumsum(is_correction))[results.bounds])
    return {name: count for name, count in zip(results.names, counts.tolist(), strict=True) if count}


def _codes(results: pa.Table, places: ResultPlaces) -> Ints:
    """The same number for the same window and group."""
    return group([one_array(results.column(place)) for place in places.key], results.num_rows).codes
