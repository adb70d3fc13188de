"""The intermediate representation of a stream: granularities of zones, with summaries of their cells (3)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from transom.columns import array_bytes
from transom.columns.arrays import Floats, Ints, Keys
from transom.elements import Summary
from transom.promising.pyramid import Pyramid
from transom.promising.step_summaries import StepSummaries, empty_cells, summarize_steps
from transom.promising.summary_kinds import concat_summaries, unpack_summaries
from transom.promising.summary_protocol import CellSummaries
from transom.promising.tuples import KeptTuples
from transom.promising.zones import ZoneReach, buckets_of, step_of

THETA = 0.75  # a zone ends when its summary describes the next tuples with less confidence than this
ZONES_PER_CELL = 4  # a zone of G1 is a quarter of it; an adjusting one is at most that long (MAXLENGTH)


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones of a representation, newest first, and the counts of their cells."""

    granularity: Ints
    since: Ints
    until: Ints
    counts: Ints


@dataclass(frozen=True, eq=False)
class Zone:
    """Consecutive steps of a granularity; `number` is its place in the pyramid."""

    granularity: int
    number: int
    since: int
    until: int
    summaries: CellSummaries

    def with_more(self, more: CellSummaries) -> Zone:
        return replace(self, summaries=self.summaries.add(more))


@dataclass(frozen=True, eq=False)
class Representation:
    """Summaries of a stream's kept tuples; immutable. `every` holds all zones, oldest first.

    Tuples that are at hand may be inserted lazily: they are `waiting` until a zone is first needed, which may be
    never. Then those that were evicted meanwhile cost nothing.

    >>> from transom.promising.step_summaries import summarize_steps
    >>> shape = Summary("s", "stream", "column", 16, structure="cells", buckets=2, kind="histogram")
    >>> keys = np.array([7, 7, 9], np.uint64)
    >>> some = summarize_steps(shape, np.array([1, 2, 6]), keys, np.array([0, 0, 1]))
    >>> now = Representation.new(shape).inserted(some, 6)
    >>> now.zones().since.tolist()[:2], now.zones().counts.tolist()[:2]
    ([4, 0], [[0, 1], [2, 0]])
    >>> now.estimate(keys[:1], np.array([0])).tolist()[0][:2]
    [0.0, 2.0]
    """

    shape: Summary
    settled: tuple[Zone, ...] = ()  # without the waiting tuples
    built: tuple[Pyramid, ...] = ()  # over the zones of an earlier representation, to build on
    high: int | None = None
    since: int | None = None
    waiting: tuple[KeptTuples, ...] = ()

    @classmethod
    def new(cls, shape: Summary) -> Representation:
        return cls(shape, built=(Pyramid(),) * max(shape.depth, 2))

    @cached_property
    def every(self) -> tuple[Zone, ...]:
        """All zones, oldest first; the waiting tuples are inserted now."""
        if not self.waiting or self.high is None:
            return self.settled
        time, key, bucket = (
            np.concatenate([getattr(part, name) for part in self.waiting])
            for name in ("time", "key", "bucket")
        )
        more = summarize_steps(self.shape, time, key, bucket, self.floor)
        return _Insertion(self.shape, self.settled, more, self._reach(self.high, self.since)).zones()

    def settle(self) -> Representation:
        """The same tuples in zones, none of them waiting; this representation stays as it is.

        Whether a user looks at the zones must not change what the next batch starts from.
        """
        return replace(self, settled=replace(self).every, waiting=()) if self._still_waiting else self

    @property
    def zone_count(self) -> int:
        """How many zones there are so far; this inserts no tuple."""
        return len(self._settled_zones)

    @property
    def tuples(self) -> int:
        """How many tuples are kept; this inserts none."""
        floor, step = self.floor, step_of(self.shape)
        if floor is None:
            return 0
        zones = (zone.summaries.counts for zone in self._settled_zones if zone.until * step > floor)
        waiting = (part.count_since(floor) for part in self._still_waiting)
        return sum(int(counts.sum()) for counts in zones) + sum(waiting)

    @property
    def _settled_zones(self) -> tuple[Zone, ...]:
        return self.__dict__.get("every", self.settled)

    @property
    def _still_waiting(self) -> tuple[KeptTuples, ...]:
        return () if "every" in self.__dict__ else self.waiting

    @cached_property
    def pyramids(self) -> tuple[Pyramid, ...]:
        """A pyramid over the zones of each granularity, built when it is first needed."""
        return tuple(
            pyramid.over({zone.number: zone.summaries for zone in self.every if zone.granularity == i})
            for i, pyramid in enumerate(self.built, 1)
        )

    @cached_property
    def floor(self) -> int | None:
        """The first time that is kept; None before the first tuple."""
        if self.high is None:
            return None
        return self._reach(self.high, self.since).floor * step_of(self.shape)

    def _reach(self, high: int, since: int | None) -> ZoneReach:
        step = step_of(self.shape)
        return ZoneReach.of(self.shape, high // step + 1, None if since is None else since // step)

    def inserted(self, more: StepSummaries, high: int, since: int | None = None) -> Representation:
        """This representation with more tuples up to the newest time `high`; old zones collapse (figure 5).

        All tuples from `since` on are kept, even if that is longer than the granularities reach.
        """
        if len(more.steps):
            high = max(high, int(more.steps[-1]) * step_of(self.shape))
        high = high if self.high is None else max(high, self.high)
        every = _Insertion(self.shape, self.every, more, self._reach(high, since)).zones()
        return Representation(self.shape, every, self.__dict__.get("pyramids", self.built), high, since)

    def awaiting(self, tuples: KeptTuples, since: int | None = None) -> Representation:
        """This representation with more tuples, which are inserted when a zone is first needed."""
        if not len(tuples):
            return self
        high = tuples.times[1] if self.high is None else max(tuples.times[1], self.high)
        return self._with_waiting((*self._still_waiting, tuples), high, since)

    def _with_waiting(self, waiting: tuple[KeptTuples, ...], high: int, since: int | None) -> Representation:
        pyramids = self.__dict__.get("pyramids", self.built)
        return Representation(self.shape, self._settled_zones, pyramids, high, since, waiting)

    def advanced(self, since: int | None = None) -> Representation:
        """The representation without the tuples before `since`, as far as the granularities allow."""
        if self.high is None:
            return self
        if not self._still_waiting:
            return self.inserted(StepSummaries.none(self.shape), self.high, since)
        later = self._with_waiting(self._still_waiting, self.high, since)
        floor = later.floor
        kept = tuple(part for part in later.waiting if floor is None or part.times[1] >= floor)
        return later if len(kept) == len(later.waiting) else replace(later, waiting=kept)

    def granularity_starts(self) -> list[int]:
        """The time from which on each granularity reaches back, the newest first."""
        if self.high is None:
            return []
        reach = self._reach(self.high, self.since)
        return [start * step_of(self.shape) for start in (reach.g1_start, *reach.backs)]

    def zones(self) -> Zones:
        step, newest = step_of(self.shape), self.every[::-1]
        return Zones(
            np.array([zone.granularity for zone in newest], np.int64),
            np.array([zone.since * step for zone in newest], np.int64),
            np.array([zone.until * step for zone in newest], np.int64),
            np.array([zone.summaries.counts for zone in newest], np.int64).reshape(
                len(newest), buckets_of(self.shape)
            ),
        )

    def estimate(self, keys: Keys, buckets: Ints) -> Floats:
        """The estimated count of each key in each zone; 0 where the pyramid rules the key out."""
        found = [pyramid.estimate(keys, buckets) for pyramid in self.pyramids]
        columns = [found[zone.granularity - 1][zone.number] for zone in self.every[::-1]]
        return np.stack(columns, 1) if columns else np.zeros((len(keys), 0))

    def total(self, keys: Keys, buckets: Ints, since: int | None = None) -> Floats:
        """The estimated count of each key in all zones, or in those that end after a time."""
        step = step_of(self.shape)
        zones = [zone for zone in self.every if since is None or zone.until * step > since]
        if not zones:
            return np.zeros(len(keys))
        first, *others = [zone.summaries for zone in zones]
        counts = sum((one.counts[buckets] for one in others), first.counts[buckets])
        return np.clip(first.read_sum(others, buckets, first.places(keys)), 0, counts)

    def flat(self) -> Representation:
        """The representation with a single zone: `total` is the same, and it is small enough to send to tasks."""
        if not self.every:
            return self
        whole = _added([zone.summaries for zone in self.every])
        zone = replace(self.every[-1], since=self.every[0].since, summaries=whole)
        return replace(self, settled=(zone,), built=(), waiting=())

    @property
    def nbytes(self) -> int:
        distinct = {id(zone.summaries): zone.summaries.nbytes for zone in self._settled_zones}
        return sum(distinct.values()) + sum(pyramid.nbytes for pyramid in self.__dict__.get("pyramids", ()))

    def packed(self) -> bytes:
        """The representation as bytes, without pyramids, which are rebuilt from the zones.

        Waiting tuples are not among them. They are those of the batch `waiting` and later ones.
        """
        zones, waiting = self._settled_zones, self._still_waiting
        parts = {
            name: np.array([getattr(zone, name) for zone in zones], np.int64)
            for name in ("granularity", "number", "since", "until")
        }
        if zones:
            whole = concat_summaries([zone.summaries for zone in zones]).packed()
            parts["summaries"] = np.frombuffer(whole, np.uint8)
        meta = {"high": self.high, "since": self.since}
        if waiting:
            meta["waiting"] = min(int(part.batch_id.min()) for part in waiting)
        return array_bytes.pack(meta, parts)

    def __reduce__(self) -> tuple:
        return Representation.unpacked, (self.shape, self.settle().packed())

    @classmethod
    def unpacked(cls, shape: Summary, data: bytes, tuples: Sequence[KeptTuples] = ()) -> Representation:
        """The inverse of `packed`; the waiting ones are among `tuples`."""
        meta, parts = array_bytes.unpack(data)
        new, buckets = cls.new(shape), buckets_of(shape)
        if meta["high"] is None:
            return new
        every: tuple[Zone, ...] = ()
        if "summaries" in parts:
            whole = unpack_summaries(parts["summaries"].tobytes())
            spans = (parts[name].tolist() for name in ("granularity", "number", "since", "until"))
            every = tuple(
                Zone(
                    i,
                    number,
                    since,
                    until,
                    _known(shape, whole.copy_range(row * buckets, (row + 1) * buckets)),
                )
                for row, (i, number, since, until) in enumerate(zip(*spans, strict=True))
            )
        first = meta.get("waiting")
        if first is None:
            return replace(new, settled=every, high=meta["high"]).advanced(meta["since"])
        later = (part.where(part.batch_id >= first) for part in tuples)
        waiting = tuple(part for part in later if len(part))
        return replace(new, settled=every, high=meta["high"], since=meta["since"], waiting=waiting)


def _added(parts: Sequence[CellSummaries]) -> CellSummaries:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.add(part)
    return whole


@lru_cache(64)
def _blank(shape: Summary) -> CellSummaries:
    """A zone without tuples; always the same object, by which pyramids detect that nothing changed."""
    return empty_cells(shape)


def _known(shape: Summary, zone: CellSummaries) -> CellSummaries:
    return zone if zone.counts.any() else _blank(shape)


class _Insertion:
    """One insertion: new steps become zones of G1, late steps go to their zones, and old zones collapse."""

    def __init__(self, shape: Summary, before: Sequence[Zone], more: StepSummaries, reach: ZoneReach) -> None:
        self._more, self._reach, self._blank = more, reach, _blank(shape)
        self._adjusting = shape.structure == "adjusting"
        self._g1 = [zone for zone in before if zone.granularity == 1]
        self._number = self._g1[-1].number + 1 if self._g1 else 0
        self._new: dict[int, CellSummaries] = {}  # by step
        self._coarse: dict[tuple[int, int], list[CellSummaries]] = {}  # by granularity and start
        for zone in before:
            if zone.granularity > 1:
                self._push(zone.since, zone.summaries)

    def zones(self) -> tuple[Zone, ...]:
        end = self._g1[-1].until if self._g1 else self._reach.block_start
        self._place(end)
        if end < self._reach.block_start:  # all zones of G1 are too old
            self._collapse(self._g1)
            self._g1, end = [], self._reach.block_start
        for step in range(end, self._reach.end):
            self._open(step, self._new.get(step, self._blank))
        old = [zone for zone in self._g1 if zone.until <= self._reach.g1_start]
        self._collapse(old)
        self._g1 = self._g1[len(old) :]
        return (*self._coarser(), *self._g1)

    def _place(self, end: int) -> None:
        """Add each step that arrived to its zone, or hold it until its zone of G1 is opened."""
        starts = [zone.since for zone in self._g1]
        cells = len(self._blank.counts)
        for i, step in enumerate(self._more.steps.tolist()):
            piece = self._more.summaries.copy_range(i * cells, (i + 1) * cells)
            if step >= max(end, self._reach.block_start):
                self._new[step] = piece
            elif starts and starts[0] <= step < end:
                at = bisect_right(starts, step) - 1
                self._g1[at] = self._g1[at].with_more(piece)
            else:
                self._push(step, piece)

    def _open(self, step: int, piece: CellSummaries) -> None:
        """Open a zone for a step; it may be merged into the zone before it when the step is complete."""
        last = self._g1[-1] if self._g1 else None
        if last and not self._adjusting and self._quarter(last.since) == self._quarter(step):
            self._g1[-1] = self._grown(last, step + 1, piece)
            return
        if self._adjusting:
            self._settle()
        self._g1.append(Zone(1, self._number, step, step + 1, piece))
        self._number += 1

    def _quarter(self, step: int) -> tuple[int, int]:
        steps = self._reach.steps
        return step // steps, step % steps * ZONES_PER_CELL // steps

    def _settle(self) -> None:
        """Merge the newest step into the zone before it if that zone describes it (3.3)."""
        if len(self._g1) < 2:
            return
        zone, fresh = self._g1[-2:]
        steps = self._reach.steps
        same_block = zone.since // steps == fresh.since // steps
        if (
            same_block
            and zone.until - zone.since < max(steps // ZONES_PER_CELL, 1)
            and self._describes(zone, fresh)
        ):
            self._g1[-2:] = [self._grown(zone, fresh.until, fresh.summaries)]
            self._number -= 1

    def _describes(self, zone: Zone, fresh: Zone) -> bool:
        """Whether a zone describes a step, over all buckets: a single bucket has too few tuples in a step."""
        if zone.summaries is self._blank or fresh.summaries is self._blank:
            return True
        group = np.zeros(self._blank.cells, np.int64)
        one, other = (some.summaries.sum_groups(group, 1) for some in (zone, fresh))
        return float(one.confidence(other)[0]) >= THETA

    def _grown(self, zone: Zone, until: int, more: CellSummaries) -> Zone:
        return replace(zone, until=until, summaries=self._sum([zone.summaries, more]))

    def _sum(self, parts: Sequence[CellSummaries]) -> CellSummaries:
        return _added([part for part in parts if part is not self._blank] or [self._blank])

    def _collapse(self, zones: Sequence[Zone]) -> None:
        """COLLAPSE of figure 5: zones that a granularity no longer reaches are added to coarser ones."""
        for zone in zones:
            self._push(zone.since, zone.summaries)

    def _push(self, step: int, piece: CellSummaries) -> None:
        home = self._reach.coarse(step)
        if home is not None and piece is not self._blank:
            self._coarse.setdefault(home, []).append(piece)

    def _coarser(self) -> list[Zone]:
        """The zones of G2 and up that have tuples, oldest first, cut off where a finer granularity begins."""
        coarser: list[Zone] = []
        upper = self._g1[0].since
        for i, (length, back) in enumerate(zip(self._reach.lengths, self._reach.backs, strict=True), 2):
            zones = [
                Zone(
                    i,
                    start // length,
                    start,
                    min(start + length, upper),
                    self._sum(self._coarse.get((i, start), [])),
                )
                for start in sorted(start for number, start in self._coarse if number == i)
                if back <= start < upper
            ]
            coarser, upper = zones + coarser, back
        return coarser
