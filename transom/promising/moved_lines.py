"""Deferred tuples of selections when tuples move to the executors: a line for each batch becomes lines by value.

A task has the tuples of some values, so it can't follow a line through all values of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from transom.promising.found_tuples import TupleReading
from transom.promising.probe_planner import reachable_regions
from transom.promising.probes import TupleReader, found_again
from transom.promising.regions import WHOLE_BATCH, Regions
from transom.sql.preference_query import PreferenceQuery
from transom.state.promising import PreferenceState, PromisingState


def with_lines_by_value(
    state: PromisingState,
    queries: Mapping[str, PreferenceQuery],
    summaries: Collection[str],
    read: TupleReader,
) -> PromisingState:
    """The state after the deferred lines of selections over some summaries are divided by value.

    The order of a sample mixes the values, so its deferred tuples are not resumed: they count as skipped.
    """
    moved = {
        name: _by_value(name, query, state, read)
        for name, query in queries.items()
        if len(query.sides) == 1 and query.sides[0].summary in summaries and state.queries[name].waits
    }
    return replace(state, queries={**state.queries, **moved}) if moved else state


def _by_value(name: str, query: PreferenceQuery, state: PromisingState, read: TupleReader) -> PreferenceState:
    before = state.queries[name]
    (pending,) = before.pending
    kept = reachable_regions(state, query, 0, pending)
    parts = [kept.where(kept.bucket != WHOLE_BATCH)]
    if query.ranking is not None:
        column = state.summaries[query.sides[0].summary].representation.shape.column
        reading = TupleReading(query, 0, (column,), before.since)
        whole = kept.where(kept.bucket == WHOLE_BATCH)
        parts += [_divided(reading, whole.at(number), read) for number in range(len(whole))]
    after = Regions.concatenated(parts)
    return replace(
        before,
        pending=(after,),
        lost=before.lost + float(pending.expected_left.sum() - after.expected_left.sum()),
        missed=before.missed + int(pending.left.sum() - after.left.sum()),
    )


def _divided(reading: TupleReading, region: Regions, read: TupleReader) -> Regions:
    """What is left of a line, as lines for each value."""
    batch_id = int(region.batch_id[0])
    rows = found_again(reading, region, batch_id, read).matches.order
    tuples = read.batches(reading.query.sides[0].summary, np.array([batch_id]))
    key, time = tuples.key[rows], tuples.time[rows]
    first = np.flatnonzero(np.diff(key, prepend=~key[:1]))
    counts = np.diff(first, append=len(rows))
    since = time[first]  # a value's tuples are in order of time
    size = len(first)
    regions = Regions.of_matches(
        key[first],
        tuples.bucket[rows[first]],
        batch_id,
        (since, time[first + counts - 1] + 1),
        since,
        counts,
        np.full(size, region.promise[0]),
    )
    done = np.clip(int(region.done[0]) - first, 0, counts)
    return replace(regions, done=done).after(np.zeros(size, np.int64))
