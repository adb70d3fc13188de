"""Outer joins WITH PREFERENCE, by trying every pair of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from transom.oracle.batches import OracleRow
from transom.sql.catalog import Scalars
from transom.sql.interpreter.values import table_of, table_rows


@dataclass
class OraclePreferenceJoin:
    """An outer join of two streams within a window, and its rows so far.

    `columns` are those of each side's rows, `keys` the joined ones. `on` are the conditions of ON beside their
    equality: on each side alone, then on a pair; `where` is the whole condition of WHERE. All are over a pair, whose
    columns are called `0.item` and `1.item`. A row is late when it is older than the `reach` of its side's summary,
    counted from the newest row of the stream that is behind.
    """

    streams: tuple[str, str]
    columns: tuple[Mapping[str, pa.DataType], Mapping[str, pa.DataType]]
    keys: tuple[str, str]
    time: str
    window: int
    reach: tuple[int, int]
    preserved: tuple[bool, bool]
    scalars: Scalars
    on: tuple[str | None, str | None, str | None] = (None, None, None)
    where: str | None = None
    rows: tuple[list[OracleRow], list[OracleRow]] = field(default_factory=lambda: ([], []))
    waiting: tuple[list[OracleRow], list[OracleRow]] = field(default_factory=lambda: ([], []))
    matched: set[tuple[int, int]] = field(default_factory=set)  # sides and identities of rows
    gone: set[tuple[int, int]] = field(default_factory=set)  # returned when both streams ended
    highs: list[int | None] = field(default_factory=lambda: [None, None])
    late_before: list[int | None] = field(default_factory=lambda: [None, None])
    unseen: list[int | None] = field(
        default_factory=lambda: [None, None]
    )  # newest times before the query joined

    def join(self) -> None:
        """Begin: earlier rows are not in the join, and rows whose partner may be one of them are not returned alone."""
        self.unseen = list(self.highs)
        for known in (*self.rows, *self.waiting, self.matched, self.gone):  # identities are used again
            known.clear()

    def batch(self, stream: str, rows: Sequence[OracleRow]) -> list[OracleRow]:
        """The rows of the join that a batch of a stream adds: its pairs, and rows that stay without a partner."""
        new: tuple[list[OracleRow], list[OracleRow]] = ([], [])
        returned: list[OracleRow] = []
        for side in range(2):
            if self.streams[side] != stream:
                continue
            late = self.late_before[side]
            new[side].extend(dict(row) for row in rows if late is None or row[self.time] >= late)
            self.rows[side].extend(new[side])
            times = [row[self.time] for row in new[side]]
            known = self.highs[side]
            self.highs[side] = max([*times, *([] if known is None else [known])], default=None)
            for row in new[side]:
                if (
                    row[self.keys[side]] is None
                    or not self._holds(self.on[side], [self._alone(side, row)])[0]
                ):
                    returned += [self._alone(side, row)] if self.preserved[side] else []
                elif (unseen := self.unseen[1 - side]) is None or row[self.time] - self.window > unseen:
                    self.waiting[side].append(row)
        pairs = self._new_pairs(new)
        for side in range(2):
            high = min((known for known in self.highs if known is not None), default=None)
            if high is not None and None not in self.highs:
                before = self.late_before[side]
                now = high - self.reach[side]
                self.late_before[side] = now if before is None else max(before, now)
        return self._meeting_where([*pairs, *returned, *self._decided(has_ended=False)])

    def end(self) -> list[OracleRow]:
        """The rows that are returned when both streams end: those that have no partner so far."""
        return self._meeting_where(self._decided(has_ended=True))

    def _new_pairs(self, new: tuple[list[OracleRow], list[OracleRow]]) -> list[OracleRow]:
        fresh = {id(row) for rows in new for row in rows}
        both = [
            (one, other)
            for one in self.rows[0]
            for other in self.rows[1]
            if (id(one) in fresh or id(other) in fresh)
            and one[self.keys[0]] is not None
            and one[self.keys[0]] == other[self.keys[1]]
            and abs(one[self.time] - other[self.time]) <= self.window
            and (0, id(one)) not in self.gone
            and (1, id(other)) not in self.gone
        ]
        pairs = [self._pair(one, other) for one, other in both]
        for condition in self.on:
            holds = self._holds(condition, pairs)
            both = [rows for rows, is_match in zip(both, holds, strict=True) if is_match]
            pairs = [pair for pair, is_match in zip(pairs, holds, strict=True) if is_match]
        self.matched |= {(side, id(row)) for rows in both for side, row in enumerate(rows)}
        return pairs

    def _decided(self, has_ended: bool) -> list[OracleRow]:
        returned = []
        for side in range(2):
            late, still = self.late_before[1 - side], []
            for row in self.waiting[side]:
                is_decided = late is not None and row[self.time] + self.window < late
                is_alone = (side, id(row)) not in self.matched
                if is_alone and self.preserved[side] and (is_decided or has_ended):
                    returned.append(self._alone(side, row))
                    self.gone.add((side, id(row)))
                elif not is_decided:
                    still.append(row)
            self.waiting[side][:] = still
        return returned

    def _meeting_where(self, pairs: list[OracleRow]) -> list[OracleRow]:
        return [pair for pair, holds in zip(pairs, self._holds(self.where, pairs), strict=True) if holds]

    def _holds(self, condition: str | None, pairs: Sequence[OracleRow]) -> list[bool]:
        if condition is None or not pairs:
            return [True] * len(pairs)
        types = {
            f"{side}.{name}": kind for side, known in enumerate(self.columns) for name, kind in known.items()
        }
        projected = self.scalars.project(table_of(list(pairs), types), {"holds": condition})
        return [row["holds"] is True for row in table_rows(projected)]

    def _alone(self, side: int, row: OracleRow) -> OracleRow:
        empty: OracleRow = {}
        return self._pair(row, empty) if side == 0 else self._pair(empty, row)

    def _pair(self, *rows: OracleRow) -> OracleRow:
        return {
            f"{side}.{name}": row.get(name) for side, row in enumerate(rows) for name in self.columns[side]
        }
