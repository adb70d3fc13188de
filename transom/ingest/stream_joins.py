"""Joins of two streams in a batch: new rows are paired with the kept rows of the other stream, and then kept too.

    bound: the second row is at most 10 minutes later than the first      clock of the join: 12:10

         12:00      12:05      12:10      12:15
           |          |          |          |
  first         a           b    |   c             kept: b and c. a is further back than the bound reaches
  second                  d      |     e           kept: e. d would be the later row of its pairs, which are closed

A pair is produced with the row that arrives second, so exactly once. Its time is the later time of its two rows. The
clock of the join is the earlier one of the two streams' clocks, so every row that is in time for its own stream finds
all of its partners. Pairs whose time is before the clock are not produced: their windows may be closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.backends.expressions import quoted
from transom.columns.arrays import Ints
from transom.ingest.batch import IngestRun
from transom.kernel.join_pairs import PairSearch, spans, with_hashes
from transom.plan.limits import Limits
from transom.results.join_clock import pair_times
from transom.sql.query import JOIN_TIME, JoinSide, StreamJoin
from transom.state.stream_joins import HASH, TIME, JoinRun, JoinState, kept_name, key_name
from transom.windows.intervals import IntervalSet

USEFUL = "useful"  # whether a row satisfies the conditions of some query


@dataclass(frozen=True)
class JoinArrival:
    """What a batch adds to a join: new pairs, rows to keep, and the times of pairs that came too late."""

    join: StreamJoin
    pairs: pa.Table
    state: JoinState
    lost: IntervalSet


class JoinLimitError(Exception):
    """A join has more pairs or more rows than the limits allow."""


def join_rows(
    run: IngestRun, limit: int | None, joins: Sequence[StreamJoin]
) -> dict[str, dict[int, pa.Table]]:
    """A batch's accepted rows as each join keeps them, by join and side; all are read at once."""
    stream, names = run.batch.rules.clock.stream, dict[str, str]()
    wanted: dict[tuple[str, int], dict[str, str]] = {}
    for join in joins:
        for place, side in enumerate(join.sides):
            if side.stream == stream:
                texts = _texts(side) | {TIME: run.time}
                if side.filters is not None:
                    texts[USEFUL] = (
                        f"coalesce({' OR '.join(f'({text})' for text in sorted(side.filters))}, false)"
                    )
                wanted[join.id, place] = {
                    name: names.setdefault(text, f"c{len(names)}") for name, text in texts.items()
                }
    if not wanted:
        return {}
    scalars = {name: text for text, name in names.items()}
    frame = run.batch.frame.filter(run.is_accepted(limit)).project(run.at_clock(scalars))
    table = frame.to_table(few=run.batch.on_driver)
    rows: dict[str, dict[int, pa.Table]] = {}
    for (id, place), columns in wanted.items():
        own = pa.table({name: table[computed] for name, computed in columns.items()})
        rows.setdefault(id, {})[place] = own
    return rows


def _texts(side: JoinSide) -> dict[str, str]:
    texts = {key_name(place): key.sql for place, key in enumerate(side.keys)}
    return texts | {kept_name(name): quoted(name) for name, _ in side.columns}


def arrive(
    join: StreamJoin, rows: Mapping[int, pa.Table], before: JoinState, closed: int | None, limits: Limits
) -> JoinArrival:
    """Let rows of one stream (or, of a stream that is joined with itself, of both sides) meet those of the other.

    `closed` is the join's clock before the batch.
    """
    keys, state, lost = len(join.first.keys), before, IntervalSet()
    pairs = [_schema(join).empty_table()]
    count = 0
    for place in sorted(rows):
        table = with_hashes(rows[place], keys)
        times, other = table[TIME].to_numpy(), state.runs[1 - place]
        since, until = _partners(join, place, times)
        earliest, latest = pair_times(join, place, times)
        late = 0
        if closed is not None:
            since = np.where(times < closed, np.maximum(since, closed), since)
            is_late = earliest < closed
            late = int(is_late.sum())
            lost |= spans(earliest[is_late], np.minimum(latest[is_late] + 1, closed))
        if (
            USEFUL in table.column_names
        ):  # rows that no query can use are late, too: results don't depend on filters
            is_useful = table[USEFUL].to_numpy()
            table = table.filter(pa.array(is_useful)).drop_columns([USEFUL])
            times, since, until = times[is_useful], since[is_useful], until[is_useful]
        search = PairSearch(table[HASH].to_numpy(), since, until, other)
        count += search.count
        if count > limits.joined_pairs:
            raise JoinLimitError(
                f"its join {join.id} has more than {limits.joined_pairs:,} pairs in a batch: some keys have many "
                "rows; use a shorter time bound or more keys, or raise the setting joined_pairs"
            )
        pairs += [
            _pairs(join, place, table, run, mine, theirs) for run, (mine, theirs) in search.pairs(table, keys)
        ]
        columns = [HASH, TIME, *_texts(join.sides[place])]
        state = state.with_rows(place, table, late, columns)
    if sum(state.rows) > limits.join_rows:
        raise JoinLimitError(
            f"its join {join.id} keeps more than {limits.join_rows:,} rows; use a shorter time bound, "
            "or raise the setting join_rows"
        )
    return JoinArrival(join, pa.concat_tables(pairs).combine_chunks(), state, lost)


def _partners(join: StreamJoin, place: int, times: Ints) -> tuple[Ints, Ints]:
    """The first and the last time that the partners of rows can have."""
    return (times + join.low, times + join.high) if place == 0 else (times - join.high, times - join.low)


def _schema(join: StreamJoin) -> pa.Schema:
    return pa.schema(list(join.pair_columns.items()))


def _pairs(join: StreamJoin, place: int, table: pa.Table, run: JoinRun, mine: Ints, theirs: Ints) -> pa.Table:
    """Pairs of rows of a batch and rows of a run."""
    sources = [(table, mine), (run.table, theirs)]
    if place:
        sources.reverse()
    columns: dict[str, pa.Array | pa.ChunkedArray] = {}
    for side, (source, places) in zip(join.sides, sources, strict=True):
        for name, kind in side.columns:
            own = kept_name(name)
            # A column that no query read when the row came: no query that reads it reports windows of its time.
            columns[f"{side.prefix}.{name}"] = (
                source[own].take(pa.array(places))
                if own in source.column_names
                else pa.nulls(len(places), kind)
            )
    times = np.maximum(table[TIME].to_numpy()[mine], run.times[theirs])
    columns[JOIN_TIME] = pa.array(times).cast(join.time_type)
    return pa.table(columns, schema=_schema(join))
