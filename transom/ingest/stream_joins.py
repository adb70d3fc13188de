"""Joins of two streams in a batch: new rows are paired with the kept rows of the other stream, and then kept too.

    bound: the second row is at most 10 minutes later than the first      clock of the join: 12:10

         12:00      12:05      12:10      12:15
           |          |          |          |
  first         a           b    |   c             kept: b and c. a is further back than the bound reaches
  second                  d      |     e           kept: e. d would be the later row of its pairs, which are closed

A pair is produced with the row that arrives second, so exactly once. Its time is the later time of its two rows. The
clock of the join is the earlier one of the two streams' clocks, so every row that is in time for its own stream finds
all of its partners. Pairs whose time is before the clock are not produced: their windows may be closed.

Outer, semi and anti joins also note which rows have a partner. `results/join_clock.py` returns the rows without one,
when the clock has passed the latest time of their pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.backends.expressions import quoted
from transom.columns.arrays import Ints, Mask
from transom.ingest.batch import IngestRun
from transom.kernel.combined_pairs import combined_rows, combined_singly
from transom.kernel.join_pairs import PairPlaces, PairSearch, are_whole, spans, with_hashes
from transom.plan.limits import Limits
from transom.results.join_clock import lone_rows, pair_schema, pair_times
from transom.sql.query import JOIN_TIME, JoinForm, StreamJoin
from transom.state.stream_joins import HASH, TIME, JoinRun, JoinState, kept_name, key_name, value_name
from transom.windows.intervals import IntervalSet

USEFUL = "useful"  # whether a row satisfies the conditions of some query
MATCHABLE = "matchable"  # whether a row can have a partner, by the conditions of ON that read its stream only

Holds = Callable[[pa.Table, str], Mask]  # the rows of a table that satisfy a condition


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
                texts = _texts(join, place) | {TIME: run.time}
                if side.filters is not None:
                    texts[USEFUL] = (
                        f"coalesce({' OR '.join(f'({text})' for text in sorted(side.filters))}, false)"
                    )
                if side.condition is not None:
                    texts[MATCHABLE] = f"coalesce({side.condition}, false)"
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


def _texts(join: StreamJoin, place: int) -> dict[str, str]:
    side = join.sides[place]
    texts = {key_name(number): key.sql for number, key in enumerate(side.keys)}
    texts |= {kept_name(name): quoted(name) for name, _ in side.columns}
    return texts | {value_name(value.sql): value.sql for value in join.values or () if value.place == place}


def arrive(
    join: StreamJoin,
    rows: Mapping[int, pa.Table],
    before: JoinState,
    closed: int | None,
    limits: Limits,
    holds: Holds,
) -> JoinArrival:
    """Let rows of one stream (or, of a stream that is joined with itself, of both sides) meet those of the other.

    `closed` is the join's clock before the batch.
    """
    keys, state, lost = len(join.first.keys), before, IntervalSet()
    pairs = [pair_schema(join).empty_table()]
    count = 0
    for place in sorted(rows):
        matchable, lone = _matchable(join, place, rows[place])
        pairs += lone
        table = with_hashes(matchable, keys)
        times, other = table[TIME].to_numpy(), state.runs[1 - place]
        since, until = join.partner_times(place, times)
        late = 0
        if closed is not None:
            earliest, latest = pair_times(join, place, times)
            is_late = earliest < closed
            late = int(is_late.sum())
            # Rows without a partner are in results with their own times: the late row's, and those of its partners.
            if join.preserved[place]:
                earliest = np.minimum(earliest, times)
            if join.preserved[1 - place]:
                earliest = np.minimum(earliest, since)
            lost |= spans(earliest[is_late], np.minimum(latest[is_late] + 1, closed))
            since = np.where(times < closed, np.maximum(since, closed), since)
        if (
            USEFUL in table.column_names
        ):  # rows that no query can use are late, too: results don't depend on filters
            is_useful = table[USEFUL].to_numpy()
            table = table.filter(pa.array(is_useful)).drop_columns([USEFUL])
            times, since, until = times[is_useful], since[is_useful], until[is_useful]
        columns = [HASH, TIME, *_texts(join, place)]
        if join.is_combined:
            batch = JoinRun.of(table)
            for run in other:
                made, more = _combined(join, place, table, (since, until), closed, run, batch, limits)
                pairs, count = pairs + made, count + more
            state = state.with_rows(place, table, late, columns)
            continue
        search = PairSearch(table[HASH].to_numpy(), since, until, other)
        count += search.count
        _check_pairs(join, count, limits)
        if join.form is JoinForm.INNER:
            pairs += [_pairs(join, place, table, *found) for found in search.pairs(table, keys)]
            state = state.with_rows(place, table, late, columns)
            continue
        matches = _Matches(join, place, table, other)
        for found in search.pairs(table, keys):
            pairs += matches.add(found, holds)
        pairs += matches.first_matches()
        state = state.with_matches(1 - place, matches.theirs)
        state = state.with_rows(place, table, late, columns, matches.mine if join.preserved[place] else None)
    if sum(state.rows) > limits.join_rows:
        raise JoinLimitError(
            f"its join {join.id} keeps more than {limits.join_rows:,} rows; use a shorter time bound, "
            "or raise the setting join_rows"
        )
    return JoinArrival(join, pa.concat_tables(pairs).combine_chunks(), state, lost)


def _check_pairs(join: StreamJoin, count: int, limits: Limits) -> None:
    if count > limits.joined_pairs:
        raise JoinLimitError(
            f"its join {join.id} has more than {limits.joined_pairs:,} pairs in a batch: some keys have many "
            "rows; use a shorter time bound or more keys, or raise the setting joined_pairs"
        )


def _combined(
    join: StreamJoin,
    place: int,
    table: pa.Table,
    bounds: tuple[Ints, Ints],
    closed: int | None,
    run: JoinRun,
    batch: JoinRun,
    limits: Limits,
) -> tuple[list[pa.Table], int]:
    """The combined pairs of a batch's rows with a run, and how many pairs had to be produced for them."""
    found, count = combined_rows(join, place, table, bounds, closed, run, batch), 0
    if found is None:
        search = PairSearch(table[HASH].to_numpy(), *bounds, [run])
        count = search.count
        _check_pairs(join, count, limits)
        found = combined_singly(join, place, table, search.pairs(table, len(join.first.keys)))
    schema = pair_schema(join)
    return [rows.table(join, schema) for rows in found], count


def _matchable(join: StreamJoin, place: int, rows: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """The rows that can have a partner; and, as results, those of a preserved stream that can have none."""
    if join.form is JoinForm.INNER:
        return rows, []
    is_matchable = are_whole(rows, len(join.first.keys))
    if MATCHABLE in rows.column_names:
        is_matchable &= rows[MATCHABLE].to_numpy()
        rows = rows.drop_columns([MATCHABLE])
    lone = rows.filter(pa.array(~is_matchable))
    if USEFUL in lone.column_names:
        lone = lone.filter(lone[USEFUL])
    is_returned = join.preserved[place] and join.form is not JoinForm.SEMI and lone.num_rows
    return rows.filter(pa.array(is_matchable)), [lone_rows(join, place, lone)] if is_returned else []


class _Matches:
    """The rows of a batch and of the other stream's runs that find partners."""

    def __init__(self, join: StreamJoin, place: int, table: pa.Table, runs: Sequence[JoinRun]):
        self.join, self.place, self.table, self.runs = join, place, table, runs
        self.mine = np.zeros(table.num_rows, bool)
        self.theirs: list[Mask | None] = [None] * len(runs)

    def add(self, found: tuple[JoinRun, PairPlaces], holds: Holds) -> list[pa.Table]:
        """Note the rows of some pairs; the pairs themselves, if the join returns them."""
        run, (mine, theirs) = found
        made = []
        if self.join.condition is not None or self.join.form is JoinForm.OUTER:
            pairs = _pairs(self.join, self.place, self.table, run, (mine, theirs))
            if self.join.condition is not None:
                is_pair = holds(pairs, self.join.condition)
                pairs, mine, theirs = pairs.filter(pa.array(is_pair)), mine[is_pair], theirs[is_pair]
            made = [pairs] if self.join.form is JoinForm.OUTER else []
        self.mine[mine] = True
        if self.join.preserved[1 - self.place]:
            have_partners = np.zeros(len(run), bool)
            have_partners[theirs] = True
            self.theirs[next(at for at, each in enumerate(self.runs) if each is run)] = have_partners
        return made

    def first_matches(self) -> list[pa.Table]:
        """The rows of a semi join: those that have a partner now and had none before."""
        if self.join.form is not JoinForm.SEMI:
            return []
        made = []
        if self.join.preserved[self.place]:
            made.append((self.place, self.table.filter(pa.array(self.mine))))
        for run, found in zip(self.runs, self.theirs, strict=True):
            if found is not None and run.matched is not None:
                made.append((1 - self.place, run.table.filter(pa.array(found & ~run.matched))))
        return [lone_rows(self.join, place, table) for place, table in made if table.num_rows]


def _pairs(join: StreamJoin, place: int, table: pa.Table, run: JoinRun, found: PairPlaces) -> pa.Table:
    """Pairs of rows of a batch and rows of a run."""
    mine, theirs = found
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
    return pa.table(columns, schema=pair_schema(join))
