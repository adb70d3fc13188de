"""A state as bytes and back: an Arrow file with a row for each sheet and for what was learned of each query,
and the rest as JSON beside it.

The format carries its version. Values inside punctuation patterns keep their types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from transom.elements import Clock, ClockKind, Summary
from transom.errors import StateError
from transom.estimates.learned import Learned
from transom.ondemand.structures.runs import Run
from transom.ondemand.structures.tiers import RunTiers
from transom.overload.bursts import Chunk
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.state.promising import Coverage, PreferredState, Preferring, SummaryState, TupleRun
from transom.state.shards import ShardRef
from transom.state.state import (
    ClockState,
    ProdderState,
    QueryState,
    SelectionState,
    State,
    StoreState,
    StreamState,
    Totals,
    Work,
)
from transom.windows.arrivals import Arrivals
from transom.windows.closed import Closed
from transom.windows.intervals import IntervalSet

VERSION = 5

Place = list[Any]  # where a run is kept, as JSON


class RunShelf(Protocol):
    """Where runs are kept beside snapshots: written once, however many snapshots they are part of."""

    def place(self, run: Run | TupleRun) -> Place:
        """Where a run is kept."""
        ...

    def run(self, place: Place) -> Run:
        """The run that is kept there."""
        ...

    def tuples(self, place: Place) -> TupleRun:
        """The tuples of a summary that are kept there."""
        ...


class Inside:
    """Runs that are kept in the snapshot itself."""

    def __init__(self, parts: Mapping[str, bytes] | None = None):
        self.parts = dict(parts or {})

    def place(self, run: Run | TupleRun) -> Place:
        name = f"run {len(self.parts)}"
        self.parts[name] = run.packed()
        return [name]

    def run(self, place: Place) -> Run:
        return Run.unpacked(self.parts[place[0]])

    def tuples(self, place: Place) -> TupleRun:
        return TupleRun.unpacked(self.parts[place[0]])


def dumps(state: State, extra: Mapping[str, Any], shelf: RunShelf | None = None) -> bytes:
    """A snapshot, with whatever JSON the caller wants to find beside the state.

    The runs of stores are on the shelf; without one, they are in the snapshot.
    """
    inside = Inside()
    kept = inside if shelf is None else shelf
    meta = {
        "batch": state.batch_id,
        "streams": {name: _stream_out(stream) for name, stream in state.streams.items()},
        "queries": {
            name: [q.homes, None if q.unseen is None else q.unseen.pairs, q.forced]
            for name, q in state.queries.items()
        },
        "selections": [
            [home, own.name, own.sheet, own.slots, own.floor, own.far, own.apart]
            for home, own in state.selections.items()
        ],
        "shards": [_shard_out(ref) for ref in state.shards],
        "partitions": state.partitions,
        "numbered": state.numbered,
        "prodders": {name: list(vars(own).values()) for name, own in state.prodders.items()},
        "stores": {name: _store_out(store, kept) for name, store in state.stores.items()},
        "preferring": _preferring_out(state.preferring, kept),
        "extra": dict(extra),
    }
    parts = {"state": json.dumps(meta).encode()} | inside.parts
    parts |= {f"sheet {name}": _table_out(sheet) for name, sheet in state.sheets.items()}
    parts |= {f"learned {name}": own.packed for name, own in state.learned.items()}
    parts |= dict(_preferring_parts(state.preferring))
    table = pa.table(
        {"part": pa.array(parts, pa.string()), "packed": pa.array(parts.values(), pa.large_binary())}
    )
    head = {"transom": json.dumps({"version": VERSION})}
    return _table_out(table.replace_schema_metadata(head), compression="lz4")


def loads(packed: bytes, shelf: RunShelf | None = None) -> tuple[State, dict[str, Any]]:
    """The state of a snapshot, and what the caller left beside it."""
    table = _table_in(packed)
    version = json.loads(table.schema.metadata[b"transom"])["version"]
    if version != VERSION:
        raise StateError(f"the checkpoint has format {version}, this version of transom reads {VERSION}")
    parts = dict(zip(table["part"].to_pylist(), table["packed"].to_pylist(), strict=True))
    meta = json.loads(parts["state"])
    queries = {
        name: QueryState(tuple(homes), _intervals(unseen), forced)
        for name, (homes, unseen, forced) in meta["queries"].items()
    }
    selections = {
        home: SelectionState(name, sheet, tuple(slots), floor, far, apart)
        for home, name, sheet, slots, floor, far, apart in meta["selections"]
    }
    shards = tuple(_shard_in(*stored) for stored in meta["shards"])
    streams = {name: _stream_in(stream) for name, stream in meta["streams"].items()}
    tables = {name: _table_in(packed) for name, packed in _named("sheet", parts)}
    learned = {name: Learned.loads(packed) for name, packed in _named("learned", parts)}
    prodders = {name: ProdderState(*own) for name, own in meta["prodders"].items()}
    kept = Inside(parts) if shelf is None else shelf
    stores = {name: _store_in(stored, kept) for name, stored in meta["stores"].items()}
    counts = meta["partitions"], meta["numbered"]
    found = State(
        meta["batch"], streams, queries, selections, tables, shards, *counts, prodders, learned, stores
    )
    return replace(found, preferring=_preferring_in(meta["preferring"], parts, kept)), meta["extra"]


def _store_out(store: StoreState, shelf: RunShelf) -> list[Any]:
    unseen = None if store.unseen is None else store.unseen.pairs
    places = [shelf.place(run) for run in store.kept.runs]
    return [places, store.floor, unseen, store.tuples, store.far, [_shard_out(ref) for ref in store.refs]]


def _store_in(stored: list[Any], shelf: RunShelf) -> StoreState:
    places, floor, unseen, tuples, far, refs = stored
    kept = RunTiers(tuple(shelf.run(place) for place in places))
    return StoreState(kept, floor, _intervals(unseen), tuples, far, tuple(_shard_in(*ref) for ref in refs))


def _preferring_out(known: Preferring, shelf: RunShelf) -> dict[str, Any]:
    summaries = {
        name: [
            vars(own.representation.shape),
            [shelf.place(run) for run in own.near],
            [_shard_out(ref) for ref in own.far],
            [own.since, own.came, own.late, own.review],
        ]
        for name, own in known.summaries.items()
    }
    queries = {
        name: [len(own.pending), own.since, list(vars(own.done).values()), own.lost, own.missed]
        for name, own in known.queries.items()
    }
    return {"summaries": summaries, "queries": queries}


def _preferring_parts(known: Preferring) -> Iterator[tuple[str, bytes]]:
    for name, summary in known.summaries.items():
        yield f"summary {name}", summary.representation.packed()
    for name, query in known.queries.items():
        for side, regions in enumerate(query.pending):
            yield f"pending {side} {name}", _table_out(regions.table())
        if query.selected is not None:
            yield f"selected {name}", _table_out(query.selected)


def _preferring_in(stored: dict[str, Any], parts: Mapping[str, bytes], shelf: RunShelf) -> Preferring:
    summaries = {}
    for name, (shape, near, far, counts) in stored["summaries"].items():
        between = shape["between"] and tuple(shape["between"])
        known = Representation.unpacked(Summary(**shape | {"between": between}), parts[f"summary {name}"])
        runs, refs = tuple(map(shelf.tuples, near)), tuple(_shard_in(*ref) for ref in far)
        since, *counted = counts
        summaries[name] = SummaryState(known, since, runs, refs, *counted)
    queries = {}
    for name, (sides, since, done, lost, missed) in stored["queries"].items():
        tables = (_table_in(parts[f"pending {side} {name}"]) for side in range(sides))
        packed = parts.get(f"selected {name}")
        selected = None if packed is None else _table_in(packed)
        queries[name] = PreferredState(
            tuple(map(Regions.of_table, tables)), since, Coverage(*done), lost, missed, selected
        )
    return Preferring(summaries, queries)


def _named(kind: str, parts: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    for name, packed in parts.items():
        if name.startswith(f"{kind} "):
            yield name.removeprefix(f"{kind} "), packed


def value_out(value: Any) -> Any:
    """A pattern's value as JSON."""
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case date():
            return {"date": value.isoformat()}
        case bytes():
            return {"bytes": value.hex()}
    return value


def value_in(value: Any) -> Any:
    """The value again."""
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
    return value


def clock_out(clock: Clock) -> list[str]:
    return [clock.stream, clock.attribute, clock.kind.value]


def clock_in(parts: list[str]) -> Clock:
    return Clock(parts[0], parts[1], ClockKind(parts[2]))


def _stream_out(stream: StreamState) -> dict[str, Any]:
    clocks = [
        {
            "clock": clock_out(clock),
            "high": own.high,
            "newest": own.newest,
            "occupied": None if own.occupied is None else own.occupied.pairs,
            "arrivals": own.arrivals.pieces,
            "shed": own.arrivals.shed.pairs,
            **_closed_out(own.closed),
            "promised": None if own.promised is None else _closed_out(own.promised),
        }
        for clock, own in stream.clocks.items()
    ]
    aside = [
        [chunk.name, chunk.rows, chunk.since, [[clock_out(c), *ends] for c, ends in chunk.ranges.items()]]
        for chunk in stream.aside
    ]
    counts = {"totals": vars(stream.totals), "work": vars(stream.work)}
    return {"clocks": clocks, **counts, "aside": aside, "credit": stream.credit}


def _closed_out(closed: Closed) -> dict[str, Any]:
    patterned = [
        [[[column, value_out(value)] for column, value in sorted(pattern, key=str)], ranges.pairs]
        for pattern, ranges in closed.patterned
    ]
    return {"closed": closed.general.pairs, "patterned": patterned}


def _stream_in(stored: dict[str, Any]) -> StreamState:
    clocks = {}
    for own in stored["clocks"]:
        promised = own["promised"]
        pieces = tuple((start, stop, clock) for start, stop, clock in own["arrivals"])
        clocks[clock_in(own["clock"])] = ClockState(
            own["high"],
            _closed_in(own),
            _intervals(own["occupied"]),
            Arrivals(pieces, _intervals(own["shed"]) or IntervalSet()),
            None if promised is None else _closed_in(promised),
            own["newest"],
        )
    aside = tuple(
        Chunk(name, rows, since, {clock_in(clock): (first, last) for clock, first, last in ranges})
        for name, rows, since, ranges in stored["aside"]
    )
    totals, work = Totals(**stored["totals"]), Work(**stored["work"])
    return StreamState(clocks, totals, work, aside, stored["credit"])


def _closed_in(stored: dict[str, Any]) -> Closed:
    patterned = tuple(
        (
            frozenset((column, value_in(value)) for column, value in pattern),
            _intervals(ranges) or IntervalSet(),
        )
        for pattern, ranges in stored["patterned"]
    )
    return Closed(_intervals(stored["closed"]) or IntervalSet(), patterned)


def _shard_out(ref: ShardRef) -> list[Any]:
    return [ref.name, ref.parts, list(ref.held.items())]


def _shard_in(name: str, parts: list[list[int]], held: list[Any]) -> ShardRef:
    slices = {home: tuple((start, stop) for start, stop in pairs) for home, pairs in held}
    return ShardRef(name, tuple((place, rows, size) for place, rows, size in parts), slices)


def _intervals(pairs: list[list[int]] | None) -> IntervalSet | None:
    return None if pairs is None else IntervalSet(tuple((start, stop) for start, stop in pairs))


def _table_out(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _table_in(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
