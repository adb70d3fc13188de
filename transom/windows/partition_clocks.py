"""How far each partition of a source, or each group of a stream, has come: the watermark follows the slowest live one.

With a learned slack, each has a slack of its own, and the time before which its rows are late never goes back.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Ints, Mask
from transom.columns.packed_tables import packed_stream, unpacked_stream
from transom.windows.delays import DelayCounts
from transom.windows.group_closings import ClockNames, GroupClosings
from transom.windows.intervals import LOWEST
from transom.windows.learned_slack import MOST_SKETCHES, LearnedSlack, SlackRule

SHARED = ""  # the clock of rows without a partition, and of partitions beyond the limit
PARTITIONS = " partitions"  # after the name of a stream: what the checkpoint keeps of its source's partitions
MOST_PLAIN = 64  # clocks that a checkpoint stores as JSON; more are packed

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class PartitionClocks:
    """By partition, its newest time, the engine's clock when it last brought a row, and until when it is closed.

    `closed` is LOWEST without a slack.
    """

    keys: ClockNames = field(default_factory=ClockNames)
    newest: Ints = field(default_factory=lambda: _NONE)
    seen: Ints = field(default_factory=lambda: _NONE)
    closed: Ints = field(default_factory=lambda: _NONE)
    learned: LearnedSlack | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the partitions, in the order in which they came."""
        return self.keys.names

    def places(self, names: Sequence[str]) -> Ints:
        """The places of some partitions; those beyond the limit have the place of the shared clock, unknown ones -1."""
        known = self.keys.places
        return np.array([known.get(name, -1) for name in names], np.int64)

    @property
    def sketches(self) -> int:
        """How many sketches of delays the partitions have."""
        return min(len(self.names), MOST_SKETCHES + 1)

    def after(
        self,
        tops: Mapping[str, int],
        clock: int,
        slack: int | SlackRule | None = None,
        delays: DelayCounts | None = None,
        most: int | None = None,
        forgettable: Mask | None = None,
    ) -> PartitionClocks:
        """The clocks after a batch in which partitions brought rows up to these times.

        Partitions beyond `most` share a clock, unless there is room when those that are `forgettable` are forgotten.

        >>> clocks = PartitionClocks().after({"a": 7}, clock=1, slack=2).after({"a": 5, "b": 3}, clock=2, slack=2)
        >>> clocks.names, clocks.newest.tolist(), clocks.seen.tolist(), clocks.closed.tolist()
        (('a', 'b'), [7, 3], [2, 2], [5, 1])
        """
        if not tops:
            return self
        learned = self.learned
        if isinstance(slack, SlackRule):
            learned = learned or LearnedSlack.empty()
            learned = learned if delays is None else learned.after(delays, slack)
        given = list(tops)
        places, known = self.places(given), self
        fresh = [given[i] for i in np.flatnonzero(places < 0).tolist()]
        if fresh:
            if most is not None and len(self.names) + len(fresh) > most:
                if forgettable is not None and (spared := self._without(forgettable, tops)) is not self:
                    return spared.after(tops, clock, slack, delays, most)
                room = max(most - len(self.names) - (SHARED not in self.keys.places), 0)
                kept = [name for name in fresh if name != SHARED][:room]
                fresh = [*kept, *([SHARED] if SHARED not in self.keys.places else [])]
            known = self._extended(fresh)
            places = known.places(given)
            places[places < 0] = known.keys.places.get(SHARED, -1)
        newest, seen = known.newest.copy(), known.seen.copy()
        np.maximum.at(newest, places, np.fromiter(tops.values(), np.int64, len(tops)))
        seen[places] = clock
        after = replace(known, newest=newest, seen=seen, learned=learned)
        return after.with_slack(slack)

    def _without(self, forgettable: Mask, tops: Mapping[str, int]) -> PartitionClocks:
        """The clocks without those that are forgettable and bring no rows; sketches of delays keep their places."""
        kept = ~forgettable
        kept[:MOST_SKETCHES] = True
        kept[[place for name, place in self.keys.places.items() if name in tops or name == SHARED]] = True
        if kept.all():
            return self
        places = np.flatnonzero(kept)
        names = ClockNames([self.names[place] for place in places.tolist()])
        return PartitionClocks(
            names, self.newest[places], self.seen[places], self.closed[places], self.learned
        )

    def _extended(self, fresh: Sequence[str]) -> PartitionClocks:
        lowest = np.full(len(fresh), LOWEST)
        return PartitionClocks(
            ClockNames((*self.names, *fresh)),
            np.concatenate([self.newest, lowest]),
            np.concatenate([self.seen, np.zeros(len(fresh), np.int64)]),
            np.concatenate([self.closed, lowest]),
            self.learned,
        )

    def with_slack(self, slack: int | SlackRule | None) -> PartitionClocks:
        """The clocks with what a slack closes; what a learned slack has closed stays so when it grows."""
        if slack is None:
            return replace(self, closed=np.full(len(self.names), LOWEST))
        if not isinstance(slack, SlackRule):
            return replace(self, closed=np.maximum(self.newest - slack, LOWEST))
        closed = np.maximum(self.closed, self.newest - self.slacks(slack))
        return replace(self, closed=np.maximum(closed, LOWEST))

    def slacks(self, rule: SlackRule) -> Ints:
        """The slack of each partition."""
        learned = self.learned or LearnedSlack.empty()
        slacks = learned.slacks(rule, self.sketches)
        return slacks[self.sketch_numbers]

    @property
    def sketch_numbers(self) -> Ints:
        """By partition, the number of its sketch of delays."""
        return np.minimum(np.arange(len(self.names)), MOST_SKETCHES)

    def live(self, clock: int, idle: int | None, since: int = 0) -> Mask:
        """The partitions that brought a row within `idle`.

        `since` is when the engine was started, as the batch was begun: while it was down, no partition was silent.
        """
        if idle is None:
            return np.ones(len(self.names), bool)
        return clock - np.maximum(self.seen, since) <= idle

    def watermark(self, clock: int, idle: int | None, since: int = 0) -> int | None:
        """The time until which all live partitions are closed; None if there is none.

        >>> clocks = PartitionClocks().after({"a": 30}, clock=4, slack=0).after({"b": 70}, clock=9, slack=0)
        >>> clocks.watermark(10, idle=None), clocks.watermark(10, idle=5), clocks.watermark(99, idle=5)
        (30, 70, None)
        """
        closed = self.closed[self.live(clock, idle, since)]
        lowest = int(closed.min()) if len(closed) else LOWEST
        return lowest if lowest > LOWEST else None

    def group_closings(self, column: str, kind: pa.DataType) -> GroupClosings:
        """Until when each group is closed; the shared clock closes no group by itself."""
        return GroupClosings(column, self.keys.values(kind), self.closed[self.keys.grouped])

    def to_json(self) -> Any:
        """The clocks for a checkpoint."""
        learned = {} if self.learned is None else {"learned": self.learned.to_json()}
        if len(self.names) <= MOST_PLAIN:
            columns = (self.newest, self.seen, self.closed)
            newest, seen, closed = (dict(zip(self.names, column.tolist(), strict=True)) for column in columns)
            return {"newest": newest, "seen": seen, "closed": closed} | learned
        table = pa.table(
            {"name": list(self.names), "newest": self.newest, "seen": self.seen, "closed": self.closed}
        )
        return {"packed": b64encode(packed_stream(table)).decode()} | learned

    @classmethod
    def from_json(cls, stored: Any) -> PartitionClocks:
        """The clocks of a checkpoint."""
        learned = LearnedSlack.from_json(stored["learned"]) if "learned" in stored else None
        if "packed" in stored:
            table = unpacked_stream(b64decode(stored["packed"]))
            newest, seen, until = (table[name].to_numpy().copy() for name in ("newest", "seen", "closed"))
            return cls(ClockNames(table["name"].to_pylist()), newest, seen, until, learned)
        names = tuple(stored["newest"])
        closed = stored.get("closed", dict.fromkeys(names, LOWEST))  # earlier checkpoints have none
        newest, seen, until = (
            np.array([column[name] for name in names], np.int64)
            for column in (stored["newest"], stored["seen"], closed)
        )
        return cls(ClockNames(names), newest, seen, until, learned)
