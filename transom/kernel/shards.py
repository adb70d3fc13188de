"""Shards: cells of (slice, fragment, group) that stay where they were made until windows close.

The slices of a selection with too many groups for a sheet are on the executors. The cells of its family are
not folded into slices of each member; they are stored unchanged, in files by partition of the groups. So a
batch costs as much as its own rows, however large the state is. A file names the selections of its fragments,
so that families may change from batch to batch. Files are immutable: small ones are merged into a new one.
Paper: On-the-Fly Sharing, section 5 (shards).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator, CountRows
from transom.columns.arrays import Ints, Mask, one_array
from transom.columns.groups import group
from transom.columns.hashes import mix_bits, row_hashes
from transom.columns.table_columns import FRAGMENT, ROWS, SELECTION, SLICE, STOP, group_column, groups_in
from transom.kernel.rows import FamilyTuples, Ranges
from transom.plan.compiled_query import Slot
from transom.plan.families import Family
from transom.plan.layout import state_columns, with_slots
from transom.storage.shard_refs import ShardRef
from transom.windows.slices import Progressions

_HEAD = b"transom"  # the key of the head in the metadata of a table


@dataclass(frozen=True)
class Head:
    """The fragments of a shard: the ranges of them that each of the `homes` wants; and the slots it keeps."""

    homes: tuple[int, ...]  # ids of selections
    ranges: Ranges  # the owners are places in `homes`
    slots: tuple[str, ...]  # ids

    @property
    def count(self) -> int:
        """One more than the highest fragment that a selection wants."""
        return int(self.ranges.stops.max(initial=0))

    def wanted(self, home: int, count: int) -> Mask:
        """Which of `count` fragments a selection wants."""
        mine = np.isin(self.ranges.owners, [i for i, owner in enumerate(self.homes) if owner == home])
        borders = np.zeros(count + 1, np.int64)
        np.add.at(borders, self.ranges.starts[mine], 1)
        np.add.at(borders, self.ranges.stops[mine], -1)
        return np.cumsum(borders)[:-1] > 0


@dataclass(frozen=True)
class Shard:
    """Cells: the table has the slice's start and stop, the fragment, the group columns, rows and states."""

    head: Head
    table: pa.Table

    @property
    def key_names(self) -> list[str]:
        return groups_in(self.table.column_names)

    def packed(self) -> pa.Table:
        """The table with the head in its metadata, as files store it."""
        ranges = self.head.ranges
        head = {
            "selections": list(self.head.homes),
            "ranges": {
                "owner": ranges.owners.tolist(),
                "start": ranges.starts.tolist(),
                "stop": ranges.stops.tolist(),
            },
            "slots": list(self.head.slots),
        }
        return self.table.replace_schema_metadata({_HEAD: json.dumps(head)})

    @classmethod
    def unpacked(cls, table: pa.Table) -> Shard:
        """The shard that `packed` made into a table."""
        stored = json.loads(table.schema.metadata[_HEAD])
        ranges = Ranges(*(np.array(stored["ranges"][name], np.int64) for name in ("owner", "start", "stop")))
        head = Head(tuple(stored["selections"]), ranges, tuple(stored["slots"]))
        return cls(head, table.replace_schema_metadata(None))


class ShardStore(Protocol):
    """Where shards are stored: the files of a checkpoint, or the memory of a test."""

    def put(self, name: str, table: pa.Table) -> int:
        """Store a table under a new name; returns its size in bytes."""
        ...

    def get(self, name: str) -> pa.Table:
        """The table of that name."""
        ...


@dataclass(frozen=True)
class Shelf:
    """Where a batch stores its shards, and the number of partitions of their groups."""

    store: ShardStore
    directory: str
    partitions: int

    def put(self, shard: Shard) -> ShardRef:
        """Store a shard. Names are never used twice: a task that is tried again leaves a stray file."""
        name = f"{self.directory}/{uuid.uuid4().hex}"
        ref = ShardRef(name, (), held(shard))
        parts = []
        for place, table in dealt(shard, self.partitions):
            size = self.store.put(ref.file(place), Shard(shard.head, table).packed())
            parts.append((place, table.num_rows, size))
        return replace(ref, parts=tuple(parts))


def fetched(store: ShardStore, refs: Iterable[ShardRef], partition: int) -> Iterator[Shard]:
    """The shards of one partition."""
    for ref in refs:
        if any(place == partition for place, _, _ in ref.parts):
            yield Shard.unpacked(store.get(ref.file(partition)))


def gathered(family: Family, tuples: FamilyTuples) -> Shard:
    """The cells of a family's tuples, without those that no member wants."""
    fragments = tuples.fragments
    fine, starts, stops = _fine(family.cut, tuples.times)
    columns = [fine] if fragments.codes is None else [fragments.codes, fine]
    if tuples.groups is not None:
        columns.append(tuples.groups.codes)
    cells = group(columns, len(tuples))
    firsts = cells.firsts
    fragment = np.zeros(cells.count, np.int64) if fragments.codes is None else fragments.codes[firsts]
    at = pa.array(np.zeros(cells.count, np.int64) if tuples.groups is None else tuples.groups.codes[firsts])
    columns_by_name = {SLICE: pa.array(starts[fine[firsts]]), STOP: pa.array(stops[fine[firsts]])}
    columns_by_name[FRAGMENT] = pa.array(fragment)
    columns_by_name |= {group_column(i): key.take(at) for i, key in enumerate(tuples.keys)}
    columns_by_name[ROWS] = pa.array(tuples.counted(cells.codes, cells.count))
    for i, slot in enumerate(family.slots):
        states = tuples.states(i, slot, cells.codes, cells.count)
        columns_by_name |= dict(zip(state_columns(slot.accumulator, i), states, strict=True))
    head = Head(tuple(family.ids.tolist()), fragments.ranges, tuple(slot.id for slot in family.slots))
    table = pa.table(columns_by_name)
    is_wanted = fragments.among(np.ones(len(fragments.ranges.owners), bool), len(tuples))[firsts]
    return Shard(head, table if is_wanted.all() else table.filter(pa.array(is_wanted)))


def _fine(cut: Progressions, times: Ints) -> tuple[Ints, Ints, Ints]:
    """The number of each time's slice between two edges, and where the slices start and stop."""
    low, high = int(times.min()), int(times.max())
    if cut.count(low, high) <= 8 * len(times) + (1 << 16):
        edges = np.unique(cut.between(low, high)[1])
        starts = np.r_[cut.before(low, _owners(cut)).max(), edges]
        stops = np.r_[edges, cut.after(high, _owners(cut)).min()]
        return np.searchsorted(edges, times, side="right"), starts, stops
    # The times are so scattered that listing all edges between them costs more than one step per progression.
    distinct, places = np.unique(times, return_inverse=True)
    starts, stops = cut.around(distinct)
    at, codes = np.unique(starts, return_inverse=True)
    return codes[places], at, stops[np.searchsorted(starts, at)]


def _owners(cut: Progressions) -> int:
    return int(cut.owners.max()) + 1


def spilled(sheet: pa.Table, slots: Mapping[int, tuple[str, ...]]) -> Iterator[Shard]:
    """The slices of some selections of a sheet as shards: each selection is a fragment, with its `slots`."""
    selections = one_array(sheet[SELECTION]).to_numpy()
    alike: dict[tuple[str, ...], list[int]] = {}
    for home in sorted(slots):
        alike.setdefault(slots[home], []).append(home)
    for names, homes in alike.items():
        chosen = np.flatnonzero(np.isin(selections, homes))
        if not len(chosen):
            continue
        table = sheet.take(pa.array(chosen))
        places = np.arange(len(homes))
        fragment = pa.array(np.searchsorted(homes, selections[chosen]))
        head = Head(tuple(homes), Ranges(places, places, places + 1), names)
        yield Shard(head, table.drop_columns(SELECTION).add_column(2, FRAGMENT, fragment))


def held(shard: Shard) -> dict[int, tuple[tuple[int, int], ...]]:
    """The slices (start, stop) that hold tuples of each selection."""
    starts, stops, fragments = (one_array(shard.table[n]).to_numpy() for n in (SLICE, STOP, FRAGMENT))
    slices = group([starts, stops], len(starts))
    ranges = shard.head.ranges
    present = np.zeros((shard.head.count + 1, slices.count), np.int64)
    present[fragments + 1, slices.codes] = 1
    summed = np.cumsum(present, axis=0)
    pairs = list(zip(starts[slices.firsts].tolist(), stops[slices.firsts].tolist(), strict=True))
    slices_of: dict[int, set[int]] = {}
    filled = summed[ranges.stops] > summed[ranges.starts]
    for owner, is_filled in zip(ranges.owners.tolist(), filled, strict=True):
        if is_filled.any():
            slices_of.setdefault(shard.head.homes[owner], set()).update(np.flatnonzero(is_filled).tolist())
    return {home: tuple(pairs[i] for i in sorted(numbers)) for home, numbers in slices_of.items()}


def dealt(shard: Shard, partitions: int) -> Iterator[tuple[int, pa.Table]]:
    """The cells by partition of their groups: a group is in the same partition in every shard."""
    table = shard.table.combine_chunks()
    keys = [one_array(table[name]) for name in shard.key_names]
    places = (row_hashes(keys, table.num_rows) % np.uint64(partitions)).astype(np.int64)
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(partitions + 1))
    sorted_by_place = table.take(pa.array(order))
    for place in range(partitions):
        start, stop = int(bounds[place]), int(bounds[place + 1])
        if start < stop:
            yield place, sorted_by_place.slice(start, stop - start)


@dataclass(frozen=True)
class Together:
    """Cells of several shards in one table, with fragments renumbered one shard after the other."""

    table: pa.Table
    heads: Sequence[Head]
    offsets: Sequence[int]

    @property
    def fragments(self) -> Ints:
        return one_array(self.table[FRAGMENT]).to_numpy()

    def wanted(self, home: int) -> Mask:
        """Which fragments a selection wants."""
        parts = [head.wanted(home, head.count) for head in self.heads]
        return np.concatenate([*parts, np.zeros(0, bool)])


def together(shards: Iterable[Shard], slots: Sequence[Slot]) -> Together | None:
    """Shards over the same groups in one table, with the given slots; None without any cells."""
    tables, heads, offsets, count = [], [], [], 0
    for shard in shards:
        if not shard.table.num_rows:
            continue
        table = with_slots(shard.table, shard.head.slots, slots)
        place = table.schema.get_field_index(FRAGMENT)
        moved = one_array(table[FRAGMENT]).to_numpy() + count
        tables.append(table.set_column(place, FRAGMENT, pa.array(moved)))
        heads.append(shard.head)
        offsets.append(count)
        count += shard.head.count
    return Together(pa.concat_tables(tables).combine_chunks(), heads, offsets) if tables else None


def rolled(
    shards: Iterable[Shard], slots: Sequence[Slot], homes: Collection[int], starts: Collection[int] | None
) -> Shard | None:
    """Shards over the same groups as one shard: fragments that the same selections want become one.

    It keeps only the fragments that some of `homes` want, and only slices with one of these `starts`, if given.
    """
    cells = together(shards, slots)
    if cells is None:
        return None
    codes, ranges, is_wanted = _signed(cells, tuple(homes))
    fragments = codes[cells.fragments]
    chosen = is_wanted[fragments]
    if starts is not None:
        chosen &= np.isin(one_array(cells.table[SLICE]).to_numpy(), list(starts))
    at = np.flatnonzero(chosen)
    head = Head(tuple(homes), ranges, tuple(slot.id for slot in slots))
    table = cells.table.take(pa.array(at)).combine_chunks()
    table = table.set_column(2, FRAGMENT, pa.array(fragments[at]))
    return Shard(head, merged(table, [slot.accumulator for slot in slots]))


def merged(table: pa.Table, accumulators: Sequence[Accumulator]) -> pa.Table:
    """The cells, combined by slice, fragment and group."""
    keys = groups_in(table.column_names)
    heads = [SLICE, STOP, FRAGMENT, *keys]
    columns = [one_array(table[name]) for name in heads]
    groups = group([*(column.to_numpy() for column in columns[:3]), *columns[3:]], table.num_rows)
    if groups.count == table.num_rows:
        return table
    at = pa.array(groups.firsts)
    combined = {name: column.take(at) for name, column in zip(heads, columns, strict=True)}
    combined[ROWS] = CountRows().combine([one_array(table[ROWS])], groups.codes, groups.count)[0]
    for i, accumulator in enumerate(accumulators):
        names = state_columns(accumulator, i)
        states = accumulator.combine([one_array(table[name]) for name in names], groups.codes, groups.count)
        combined |= dict(zip(names, states, strict=True))
    return pa.table(combined)


def _signed(cells: Together, homes: tuple[int, ...]) -> tuple[Ints, Ranges, Mask]:
    """New numbers for the fragments by the set of selections that want them; the ranges of each home; and
    which fragments any selection wants.

    The signature of a fragment is a sum with two random numbers per selection: equal sets have equal sums, and
    different sets almost certainly do not. New numbers keep the order of the old ones, so that ranges stay
    contiguous.
    """
    count = sum(head.count for head in cells.heads)
    borders = np.zeros((2, count + 1), np.uint64)
    places = {home: i for i, home in enumerate(homes)}
    weights = np.stack([mix_bits(np.array(homes, np.uint64) + np.uint64(seed)) for seed in (1, 1 << 40)])
    for head, offset in zip(cells.heads, cells.offsets, strict=True):
        new_owners = np.array([places.get(home, -1) for home in head.homes])[head.ranges.owners]
        living = new_owners >= 0
        for row, weight in zip(borders, weights, strict=True):
            np.add.at(row, head.ranges.starts[living] + offset, weight[new_owners[living]])
            np.subtract.at(row, head.ranges.stops[living] + offset, weight[new_owners[living]])
    signatures = np.cumsum(borders, axis=1)[:, :-1]
    classes = group([part.view(np.int64) for part in signatures], count)
    ranks = np.empty(classes.count, np.int64)
    ranks[np.argsort(classes.firsts)] = np.arange(classes.count)
    firsts = np.sort(classes.firsts)
    is_wanted = (signatures[:, firsts] != 0).any(axis=0)
    owners, starts, stops = [], [], []
    for i, home in enumerate(homes):
        wanted = cells.wanted(home)[firsts]
        edges = np.flatnonzero(np.diff(np.r_[False, wanted, False]))
        starts.append(edges[0::2])
        stops.append(edges[1::2])
        owners.append(np.full(len(edges) // 2, i))
    ranges = Ranges(*(np.concatenate(part).astype(np.int64) for part in (owners, starts, stops)))
    return ranks[classes.codes], ranges, is_wanted
