"""Emit for selections on the executors, as the driver sees it: which shards are needed, and for which queries.

The driver knows of each shard only which slices it holds. That is enough to decide whether a closing window needs
it, and whether an open window will. The executors read the cells (`transom.results.shard_windows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.columns.arrays import Ints, Mask
from transom.elements import WindowSpec
from transom.plan.compiled_query import CompiledQuery
from transom.results.close import Boundary, Reader
from transom.storage.shard_refs import ShardRef
from transom.windows import ids as windows
from transom.windows.arrivals import Arrivals
from transom.windows.intervals import IntervalSet


@dataclass(frozen=True)
class ShardWork:
    """Windows over the same groups that close, and the shards that hold their slices.

    A reader may read several selections, `homes`: its query has slices in all of them.
    """

    readers: tuple[Reader, ...]
    homes: tuple[tuple[int, ...], ...]  # of each reader
    refs: tuple[ShardRef, ...]
    unseen: tuple[IntervalSet, ...]  # of each reader
    partial: frozenset[str]  # queries that also want windows seen only in part
    arrivals: tuple[Arrivals, ...]  # when rows came on each reader's clock
    late: tuple[int, ...]  # the rows that each reader's query missed so far

    def of(self, readers: Sequence[int]) -> ShardWork:
        """The work for some of the readers."""
        return replace(
            self,
            readers=tuple(self.readers[i] for i in readers),
            homes=tuple(self.homes[i] for i in readers),
            unseen=tuple(self.unseen[i] for i in readers),
            arrivals=tuple(self.arrivals[i] for i in readers),
            late=tuple(self.late[i] for i in readers),
        )


@dataclass(frozen=True)
class SplitWork:
    """The work for queries whose results executors finish; for those whose results the driver needs: with LIMIT it
    compares the groups of all partitions, with EMIT EARLY it learns from them; and for those whose results depend on
    earlier windows, which the driver remembers."""

    plain: list[ShardWork]
    to_driver: list[ShardWork]
    following: list[ShardWork]


def split_work(works: Sequence[ShardWork]) -> SplitWork:
    """The work by what its queries need."""
    split = SplitWork([], [], [])
    for work in works:
        kinds: dict[str, list[int]] = {}
        for i, reader in enumerate(work.readers):
            query = reader.query
            kind = (
                "following"
                if query.reads_earlier_windows
                else "to_driver"
                if query.needs_all_groups or query.query.is_projected
                else "plain"
            )
            kinds.setdefault(kind, []).append(i)
        for kind, chosen in kinds.items():
            getattr(split, kind).append(work.of(chosen))
    return split


@dataclass(frozen=True)
class ShardNeeds:
    """Which readers have windows to close, from which shards, and which shards are kept.

    `floors` say up to where slices of a selection were evicted.
    """

    closing: tuple[int, ...]
    read: tuple[ShardRef, ...]
    kept: tuple[ShardRef, ...]
    floors: dict[int, int]


def shard_needs(refs: Sequence[ShardRef], readers: Sequence[Reader]) -> ShardNeeds:
    """Determine from the slices that shards hold which shards are needed now, and which later.

    Slices of selections that no reader reads are kept as they are.
    """
    by_home: dict[int, list[int]] = {}
    for i, reader in enumerate(readers):
        by_home.setdefault(reader.home, []).append(i)
    is_read, closing = np.zeros(len(refs), bool), []
    held = [dict(ref.held) for ref in refs]
    floors: dict[int, int] = {}
    for home, numbers in by_home.items():
        at, slices = _slices(refs, home)
        needed = np.zeros(len(at), bool)
        seen: dict[object, Mask] = {}
        for i in numbers:
            reader = readers[i]
            key = _closing_key(reader)
            if key not in seen:
                seen[key], open_still = _touched(reader, slices[:, 0])
                needed |= open_still
            if seen[key].any():
                closing.append(i)
                is_read[at[seen[key]]] = True
        if not needed.all():
            floors[home] = int(slices[~needed, 1].max())
        for place in np.unique(at[~needed]):
            left = slices[needed & (at == place)]
            held[place][home] = tuple((start, stop) for start, stop in left.tolist())
            if not len(left):
                del held[place][home]
    refs_kept = tuple(replace(ref, held=numbers) for ref, numbers in zip(refs, held, strict=True) if numbers)
    return ShardNeeds(
        tuple(closing),
        tuple(ref for ref, is_wanted in zip(refs, is_read, strict=True) if is_wanted),
        refs_kept,
        floors,
    )


def _slices(refs: Sequence[ShardRef], home: int) -> tuple[Ints, Ints]:
    """The slices of a selection in some shards: which shard, and start and stop."""
    found = [(i, start, stop) for i, ref in enumerate(refs) for start, stop in ref.held.get(home, ())]
    rows = np.array(found, np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1:]


def _closing_key(reader: Reader) -> tuple[object, ...]:
    """Readers of a selection with equal keys have the same windows closed."""
    views = tuple(id(side.view.general) if side.view.uniform else id(side) for side in _sides(reader))
    spec: WindowSpec = reader.query.query.window
    return spec, *views, *(side.forced for side in _sides(reader))


def _sides(reader: Reader) -> tuple[Boundary, Boundary]:
    return reader.before, reader.after


def _touched(reader: Reader, starts: Ints) -> tuple[Mask, Mask]:
    """Which slices lie in a window that closed for some group, and which in one that is open for some."""
    query, spec = reader.query, reader.query.query.window
    firsts, lasts = windows.wid_from(spec, starts), windows.wid_to(spec, starts)
    inside = firsts <= lasts
    surely_after = _surely(reader.after, query)
    still = inside & ~surely_after.covers(firsts, lasts)
    if reader.before == reader.after:
        return np.zeros(len(starts), bool), still
    fresh = _perhaps(reader.after, query) - _surely(reader.before, query)
    return inside & fresh.meets(firsts, lasts + 1), still


def _surely(boundary: Boundary, query: CompiledQuery) -> IntervalSet:
    """The windows that are closed for every group."""
    view = boundary.view
    return boundary.wids(query, view.general if view.columns else view.of({}))


def _perhaps(boundary: Boundary, query: CompiledQuery) -> IntervalSet:
    """The windows that may be closed for some group."""
    return boundary.wids(query, boundary.view.anywhere)
