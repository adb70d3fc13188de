"""The intermediate representation of a stream: granularities of zones, with summaries of their cells (3)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from transom.columns import packing
from transom.elements import Summary
from transom.promising.pyramid import Pyramid
from transom.promising.step_summaries import StepSummaries, empty_cells
from transom.promising.summary_kinds import concat_summaries, unpack_summaries
from transom.promising.summary_protocol import CellSummaries, Floats, Ints, Keys
from transom.promising.zones import ZoneReach, buckets_of, step_of

THETA = 0.75  # a zone whose summary describes what arrives with less confidence than this has ended
QUARTERS = 4  # a zone of G1 is at most (MAXLENGTH), or if it doesn't adjust itself always, a 4th of it


@dataclass(frozen=True, eq=False)
class Zones:
    """The zones of a representation, newest first, and the tuples of their cells."""

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
    """What is known of a stream's kept tuples; immutable. `every` zone there is, oldest first.

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
    every: tuple[Zone, ...] = ()
    pyramids: tuple[Pyramid, ...] = ()
    high: int | None = None
    since: int | None = None

    @classmethod
    def new(cls, shape: Summary) -> Representation:
        return cls(shape, pyramids=(Pyramid(),) * max(shape.depth, 2))

    @property
    def floor(self) -> int | None:
        """The first time that is kept; None before anything came."""
        if self.high is None:
            return None
        return self._reach(self.high, self.since).floor * step_of(self.shape)

    def _reach(self, high: int, since: int | None) -> ZoneReach:
        step = step_of(self.shape)
        return ZoneReach.of(self.shape, high // step + 1, None if since is None else since // step)

    def inserted(self, more: StepSummaries, high: int, since: int | None = None) -> Representation:
        """With more tuples, when `high` is the newest time; zones that are too old collapse (figure 5).

        All that came from `since` on is kept, if that is longer than the granularities reach.
        """
        if len(more.steps):
            high = max(high, int(more.steps[-1]) * step_of(self.shape))
        high = high if self.high is None else max(high, self.high)
        every = _Insertion(self, more, self._reach(high, since)).zones()
        pyramids = tuple(
            pyramid.over({zone.number: zone.summaries for zone in every if zone.granularity == i})
            for i, pyramid in enumerate(self.pyramids, 1)
        )
        return Representation(self.shape, every, pyramids, high, since)

    def advanced(self, since: int | None = None) -> Representation:
        """With nothing more, and what came before `since` let go as far as the granularities allow it."""
        return self if self.high is None else self.inserted(StepSummaries.none(self.shape), self.high, since)

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
        """How often each key, of a bucket, occurs in each zone: 0 where the pyramid rules it out."""
        found = [pyramid.estimate(keys, buckets) for pyramid in self.pyramids]
        columns = [found[zone.granularity - 1][zone.number] for zone in self.every[::-1]]
        return np.stack(columns, 1) if columns else np.zeros((len(keys), 0))

    def total(self, keys: Keys, buckets: Ints, since: int | None = None) -> Floats:
        """How often each key occurs in all the zones, or in those that reach beyond a time."""
        step = step_of(self.shape)
        zones = [zone for zone in self.every if since is None or zone.until * step > since]
        if not zones:
            return np.zeros(len(keys))
        whole = _added([zone.summaries for zone in zones])
        return np.clip(whole.estimate(buckets, keys), 0, whole.counts[buckets])

    def flat(self) -> Representation:
        """With one zone, for which `total` is the same: small enough to be sent about."""
        if not self.every:
            return self
        whole = _added([zone.summaries for zone in self.every])
        zone = replace(self.every[-1], since=self.every[0].since, summaries=whole)
        return replace(self, every=(zone,), pyramids=())

    @cached_property
    def nbytes(self) -> int:
        distinct = {id(zone.summaries): zone.summaries.nbytes for zone in self.every}
        return sum(distinct.values()) + sum(pyramid.nbytes for pyramid in self.pyramids)

    def packed(self) -> bytes:
        """As bytes; the pyramids are made anew of the zones."""
        parts = {
            name: np.array([getattr(zone, name) for zone in self.every], np.int64)
            for name in ("granularity", "number", "since", "until")
        }
        if self.every:
            whole = concat_summaries([zone.summaries for zone in self.every]).packed()
            parts["summaries"] = np.frombuffer(whole, np.uint8)
        return packing.pack({"high": self.high, "since": self.since}, parts)

    def __reduce__(self) -> tuple:
        return Representation.unpacked, (self.shape, self.packed())

    @classmethod
    def unpacked(cls, shape: Summary, data: bytes) -> Representation:
        meta, parts = packing.unpack(data)
        new, buckets = cls.new(shape), buckets_of(shape)
        if meta["high"] is None:
            return new
        whole = unpack_summaries(parts["summaries"].tobytes())
        spans = (parts[name].tolist() for name in ("granularity", "number", "since", "until"))
        every = tuple(
            Zone(i, number, since, until, _known(shape, whole.copy_range(row * buckets, (row + 1) * buckets)))
            for row, (i, number, since, until) in enumerate(zip(*spans, strict=True))
        )
        same = replace(new, every=every, high=meta["high"])
        return same.advanced(meta["since"])


def _added(parts: Sequence[CellSummaries]) -> CellSummaries:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.add(part)
    return whole


@lru_cache(64)
def _blank(shape: Summary) -> CellSummaries:
    """A zone without tuples; always the same object, which is how pyramids see that nothing changed."""
    return empty_cells(shape)


def _known(shape: Summary, zone: CellSummaries) -> CellSummaries:
    return zone if zone.counts.any() else _blank(shape)


class _Insertion:
    """One insertion: new steps become zones of G1, older ones go where they belong, old zones collapse."""

    def __init__(self, before: Representation, more: StepSummaries, reach: ZoneReach) -> None:
        self._more, self._reach, self._blank = more, reach, _blank(before.shape)
        self._adjusting = before.shape.structure == "adjusting"
        self._near = [zone for zone in before.every if zone.granularity == 1]
        self._number = self._near[-1].number + 1 if self._near else 0
        self._new: dict[int, CellSummaries] = {}  # by step
        self._coarse: dict[tuple[int, int], list[CellSummaries]] = {}  # by granularity and start
        for zone in before.every:
            if zone.granularity > 1:
                self._push(zone.since, zone.summaries)

    def zones(self) -> tuple[Zone, ...]:
        end = self._near[-1].until if self._near else self._reach.blocks
        self._place(end)
        if end < self._reach.blocks:  # all of G1 is too old
            self._collapse(self._near)
            self._near, end = [], self._reach.blocks
        for step in range(end, self._reach.end):
            self._open(step, self._new.get(step, self._blank))
        old = [zone for zone in self._near if zone.until <= self._reach.near]
        self._collapse(old)
        self._near = self._near[len(old) :]
        return (*self._coarser(), *self._near)

    def _place(self, end: int) -> None:
        """Every step that arrived finds its zone, or waits for one of G1 to be opened."""
        starts = [zone.since for zone in self._near]
        cells = len(self._blank.counts)
        for i, step in enumerate(self._more.steps.tolist()):
            piece = self._more.summaries.copy_range(i * cells, (i + 1) * cells)
            if step >= max(end, self._reach.blocks):
                self._new[step] = piece
            elif starts and starts[0] <= step < end:
                at = bisect_right(starts, step) - 1
                self._near[at] = self._near[at].with_more(piece)
            else:
                self._push(step, piece)

    def _open(self, step: int, piece: CellSummaries) -> None:
        """A step is a zone of its own, until it is over and turns out to be like those before it."""
        last = self._near[-1] if self._near else None
        if last and not self._adjusting and self._quarter(last.since) == self._quarter(step):
            self._near[-1] = self._grown(last, step + 1, piece)
            return
        if self._adjusting:
            self._settle()
        self._near.append(Zone(1, self._number, step, step + 1, piece))
        self._number += 1

    def _quarter(self, step: int) -> tuple[int, int]:
        steps = self._reach.steps
        return step // steps, step % steps * QUARTERS // steps

    def _settle(self) -> None:
        """The newest step joins the zone before it if that describes it (3.3)."""
        if len(self._near) < 2:
            return
        zone, fresh = self._near[-2:]
        steps = self._reach.steps
        same_block = zone.since // steps == fresh.since // steps
        if (
            same_block
            and zone.until - zone.since < max(steps // QUARTERS, 1)
            and self._describes(zone, fresh)
        ):
            self._near[-2:] = [self._grown(zone, fresh.until, fresh.summaries)]
            self._number -= 1

    def _describes(self, zone: Zone, fresh: Zone) -> bool:
        """All buckets together: a bucket alone has too few tuples in a step to tell."""
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
        """The zones of G2 and up that hold tuples, oldest first, as far as G1 and each other leave time."""
        found: list[Zone] = []
        upper = self._near[0].since
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
            found, upper = zones + found, back
        return found
