"""New results of queries WITH PREFERENCE that other queries read, with their event times."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from transom.columns.arrays import Ints
from transom.promising.batch_tuples import BatchArrival
from transom.results.preference_input import NewResults
from transom.results.result_rows import ResultBatch
from transom.sql.preference_query import PreferenceQuery
from transom.sql.preference_results import complete_column, result_stream_rows
from transom.state.promising import PromisingState
from transom.windows.intervals import IntervalSet


@dataclass
class ReadResults:
    """Collects the new results of a batch, for the queries in `read` only."""

    read: Collection[str]
    _results: dict[str, tuple[pa.Table, Ints]] = field(default_factory=dict)

    def add(self, name: str, results: pa.Table, times: Ints) -> None:
        """Add the results of a query. The first of them are new, and have these times; others repeat expired tuples."""
        if name in self.read:
            self._results[name] = results.slice(0, len(times)), times

    def add_shared(self, batch: ResultBatch, times: Ints) -> None:
        """Add the results of selections that were answered together."""
        for place, name in enumerate(batch.names):
            if name in self.read:
                start, stop = batch.bounds[place : place + 2].tolist()
                self.add(name, batch.table.slice(start, stop - start), times[start:stop])

    def new_results(
        self,
        queries: Mapping[str, PreferenceQuery],
        before: PromisingState,
        after: PromisingState,
        arrivals: Mapping[str, BatchArrival],
    ) -> dict[str, NewResults]:
        """What the batch adds to the results of each query."""
        made = {}
        for name in self.read:
            query, rows = queries[name], None
            if name in self._results:
                results, times = self._results[name]
                rows = result_stream_rows(query, results, pa.array(times))
            is_partial = before.queries[name].coverage.left < after.queries[name].coverage.left or (
                rows is not None and not pc.all(rows[complete_column(query)]).as_py()
            )
            lacking = IntervalSet()
            if is_partial and not query.figures:  # a row of aggregates says itself how much it covers
                lacking = _times_of_new_results(query, after, arrivals)
            if rows is not None or lacking:
                made[name] = NewResults(rows, lacking)
        return made


def _times_of_new_results(
    query: PreferenceQuery, state: PromisingState, arrivals: Mapping[str, BatchArrival]
) -> IntervalSet:
    """The times that results with a tuple of the batch can have."""
    summaries = {side.summary for side in query.sides}
    lows = [arrivals[summary].low for summary in summaries if summary in arrivals]
    highs = [state.summaries[summary].representation.high for summary in summaries]
    last = max((high for high in highs if high is not None), default=None)
    return IntervalSet() if not lows or last is None else IntervalSet.of((min(lows), last + 1))
