"""Joins of two streams, by trying every pair of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transom.columns.types import Columns
from transom.elements import Clock, Punctuation
from transom.oracle.batches import OracleRow, OracleStreamRules
from transom.oracle.window_close import WindowBounds
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import order, table_of, table_rows
from transom.sql.query import JOIN_TIME, JoinForm, JoinSide, StreamJoin

Closings = Callable[[str, Clock], Sequence[Punctuation]]


def rules_of_pairs(join: StreamJoin) -> OracleStreamRules:
    """The stream of pairs: only the clock of the join closes its windows."""
    columns = join.pair_columns
    return OracleStreamRules(JOIN_TIME, join.kind, slack=None, horizon=None, columns=columns)


def with_columns(joins: Sequence[StreamJoin]) -> StreamJoin:
    """One of some equal joins, with the columns that any of them reads."""
    first, second = (
        replace(sides[0], columns=tuple(dict.fromkeys(column for side in sides for column in side.columns)))
        for sides in zip(*(join.sides for join in joins), strict=True)
    )
    return replace(joins[0], first=first, second=second)


@dataclass
class OracleJoin:
    """A join so far: how far its clock has come, which streams have ended, and the pairs that it can't make.

    `undecided` are the rows of each side that may still find a first partner, `matched` those that have one, and
    `gone` those that were returned without a partner when both streams ended. The latter two hold the side and the
    identity of a row.
    """

    join: StreamJoin
    closed: int | None = None
    ended: list[bool] = field(default_factory=lambda: [False, False])
    lost: list[tuple[int, int]] = field(
        default_factory=list
    )  # first and last times of pairs that came too late
    undecided: tuple[list[OracleRow], list[OracleRow]] = field(default_factory=lambda: ([], []))
    matched: set[tuple[int, int]] = field(default_factory=set)
    gone: set[tuple[int, int]] = field(default_factory=set)
    brought: list[OracleRow] = field(default_factory=list)  # rows of the result that are not counted yet

    def unseen_before(self, rows: Sequence[Sequence[OracleRow]]) -> int | None:
        """The time from which on no pair has a row that is here already."""
        last = [
            latest + 1
            for place, side in enumerate(self.join.sides)
            for row in rows[place]
            for _, latest in [self._times(place, row[side.time])]
        ]
        return max(last, default=None)

    def _times(self, place: int, time: int) -> tuple[int, int]:
        """The earliest and the latest time that pairs of a row can have."""
        partners = self._partner_times(place, time)
        return max(time, partners[0]), max(time, partners[1])

    def _partner_times(self, place: int, time: int) -> tuple[int, int]:
        low, high = self.join.low, self.join.high
        return (time + low, time + high) if place == 0 else (time - high, time - low)

    def pairs(
        self,
        stream: str,
        new: Sequence[OracleRow],
        before: Mapping[str, Sequence[OracleRow]],
        columns: Mapping[str, Columns],
        scalars: Scalars,
    ) -> list[OracleRow]:
        """The pairs of a batch: at least one row is new, and the pair's time was not closed before.

        Of other joins than inner ones: the rows of the result that the batch brings.
        """
        join, sides = self.join, self.join.sides
        here = [(new if side.stream == stream else []) for side in sides]
        everything = [[(row, False) for row in before[side.stream]] for side in sides]
        returned: list[OracleRow] = []
        for place, rows in enumerate(here):
            everything[place] += [(row, True) for row in rows]
            for row in rows:
                first, last = self._times(place, row[sides[place].time])
                keys = self._keys(sides[place], [row], columns[stream], scalars)[0]
                if None in keys:
                    if join.preserved[place] and join.form is not JoinForm.SEMI:
                        returned.append(self._alone(place, row))
                    continue
                if self.closed is None or last >= self.closed:
                    self.undecided[place].append(row)
                if self.closed is not None and first < self.closed:
                    low, _ = self._partner_times(place, row[sides[place].time])
                    first = min(first, low) if join.preserved[1 - place] else first
                    first = min(first, row[sides[place].time]) if join.preserved[place] else first
                    self.lost.append((first, min(last, self.closed - 1)))
        keyed = [
            self._keys(side, [row for row, _ in rows], columns[side.stream], scalars)
            for side, rows in zip(sides, everything, strict=True)
        ]
        found = []
        rows_found = []
        for (one, one_is_new), one_keys in zip(everything[0], keyed[0], strict=True):
            for (other, other_is_new), other_keys in zip(everything[1], keyed[1], strict=True):
                apart = other[sides[1].time] - one[sides[0].time]
                time = max(one[sides[0].time], other[sides[1].time])
                if not (one_is_new or other_is_new) or not join.low <= apart <= join.high:
                    continue
                if self.closed is not None and time < self.closed:
                    continue
                if all(
                    a is not None and b is not None and order(a, b) == 0
                    for a, b in zip(one_keys, other_keys, strict=True)
                ):
                    found.append(self._pair(one, other) | {JOIN_TIME: time})
                    rows_found.append((one, other))
        if join.form is JoinForm.INNER:
            return found
        return [*returned, *self._matched(found, rows_found, scalars)]

    def _matched(
        self, found: Sequence[OracleRow], rows: Sequence[tuple[OracleRow, OracleRow]], scalars: Scalars
    ) -> list[OracleRow]:
        """Note the rows of new pairs; the pairs of an outer join, or the rows of a semi join with a first partner."""
        if not found:
            return []
        truth = [True] * len(found)
        if self.join.condition is not None:
            table = table_of(list(found), self.join.pair_columns)
            projected = table_rows(scalars.project(table, {"holds": self.join.condition}))
            truth = [row["holds"] is True for row in projected]
        made = []
        for pair, both, is_pair in zip(found, rows, truth, strict=True):
            if not is_pair or any((place, id(row)) in self.gone for place, row in enumerate(both)):
                continue
            if self.join.form is JoinForm.OUTER:
                made.append(pair)
            for place, row in enumerate(both):
                is_first = (place, id(row)) not in self.matched
                self.matched.add((place, id(row)))
                if is_first and self.join.form is JoinForm.SEMI and self.join.preserved[place]:
                    made.append(self._alone(place, row))
        return made

    def _alone(self, place: int, row: OracleRow) -> OracleRow:
        """A row without its partners."""
        empty: OracleRow = {}
        both = (row, empty) if place == 0 else (empty, row)
        return self._pair(*both) | {JOIN_TIME: row[self.join.sides[place].time]}

    def unmatched(self, has_ended: bool) -> list[OracleRow]:
        """The rows without a partner that can't find one any more, or that the end of both streams returns."""
        made = []
        for place, side in enumerate(self.join.sides):
            open_rows = []
            for row in self.undecided[place]:
                latest = self._times(place, row[side.time])[1]
                is_decided = self.closed is not None and latest < self.closed
                if not is_decided and not has_ended:
                    open_rows.append(row)
                    continue
                if (place, id(row)) in self.matched:
                    open_rows += [] if is_decided else [row]
                elif self.join.preserved[place] and self.join.form in (JoinForm.OUTER, JoinForm.ANTI):
                    made.append(self._alone(place, row))
                    self.gone.add((place, id(row)))
                elif not is_decided:
                    open_rows.append(row)
            self.undecided[place][:] = open_rows
        return made

    def _pair(self, *rows: OracleRow) -> OracleRow:
        return {
            f"{side.prefix}.{name}": row.get(name)
            for side, row in zip(self.join.sides, rows, strict=True)
            for name, _ in side.columns
        }

    @staticmethod
    def _keys(
        side: JoinSide, rows: Sequence[OracleRow], columns: Columns, scalars: Scalars
    ) -> list[tuple[Any, ...]]:
        if not rows:
            return []
        names = [f"{place}" for place in range(len(side.keys))]
        texts = {name: key.sql for name, key in zip(names, side.keys, strict=True)}
        if side.condition is not None:  # a row that does not satisfy it has no partner, as if a key was null
            texts["condition"] = side.condition
        projected = table_rows(scalars.project(table_of(list(rows), columns), texts))
        return [
            tuple(row[name] for name in names) if row.get("condition", True) is True else (None,) * len(names)
            for row in projected
        ]

    def advance(self, stream: str, has_rows: bool, has_ended: bool, closings: Closings) -> bool:
        """Move the clock after a batch of a stream; whether the join ended with it."""
        for place, side in enumerate(self.join.sides):
            if side.stream == stream:
                self.ended[place] = has_ended or (self.ended[place] and not has_rows)
        marks = []
        for side, ended in zip(self.join.sides, self.ended, strict=True):
            if ended and not all(self.ended):
                continue
            clock = Clock(side.stream, side.time, self.join.kind)
            whole = [
                each.until for each in closings(side.stream, clock) if each.since is None and not each.where
            ]
            marks.append(max(whole, default=None))
        if None not in marks:
            reached = min(mark for mark in marks if mark is not None)
            self.closed = reached if self.closed is None else max(reached, self.closed)
        return all(self.ended) and has_ended

    def is_whole(self, window: WindowBounds) -> bool:
        """Whether no pair that came too late could lie in a window."""
        return not any(first < window[1] and last >= window[0] for first, last in self.lost)
