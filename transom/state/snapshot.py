"""A state as bytes and back: an Arrow table with one row a part.

The part `state` is JSON, and so are the parts `decisions`, one for each pass of the planner and stream. The
other parts are tables (queries, selections, slices, accounts) and packed summaries. A part is found by its kind,
the name of what it belongs to, and a number. The table's metadata carries the version of the format.

Most batches change few parts. Each of the others is compressed by itself, once for many snapshots; those that a
batch changes are in one row of the table, compressed together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, groupby, takewhile
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.alerts.alerts_state import AlertsState
from transom.alerts.stored_form import decode_alerts, encode_alerts
from transom.columns.packed_tables import packed_stream, unpacked_stream
from transom.estimates import Estimator
from transom.ondemand.structures.runs import Run
from transom.ondemand.structures.tiers import RunTiers
from transom.promising.regions import Regions
from transom.promising.representation import Representation
from transom.state import state_json
from transom.state.accounts import Accounts
from transom.state.checkpoint_format import FORMAT_VERSION, check_format
from transom.state.commit_record import CommitRecord, QueryRecord
from transom.state.json_forms import decode_intervals, decode_summary, encode_intervals, encode_summary
from transom.state.lasting_tables import LastingTable
from transom.state.pass_decisions import PassDecisions
from transom.state.past_windows import PastWindows
from transom.state.promising import (
    BatchRanking,
    PreferenceState,
    PromisingState,
    SummaryState,
    TupleRun,
    UnmatchedTuples,
)
from transom.state.state import QueryState, State, StoreState
from transom.state.state_tables import (
    decode_floors,
    decode_queries,
    decode_registered,
    decode_selections,
    decode_times,
    encode_floors,
    encode_queries,
    encode_registered,
    encode_selections,
    encode_times,
    selection_kinds,
)
from transom.state.stream_joins import JoinRun, JoinState
from transom.windows.intervals import IntervalSet

RunLocation = dict[str, Any]  # where a run is stored, as JSON
PartKey = tuple[str, str, int]  # the kind of a part, the name of what it belongs to, and a number
Parts = Mapping[PartKey, bytes]

STATE, RUN, SHEET, ESTIMATOR, PAST, REPORTED = "state", "run", "sheet", "estimator", "past", "reported"
SUMMARY, PENDING, SELECTED, DECISIONS = "summary", "pending", "selected", "decisions"
RANKING, ALERTS = "ranking", "alerts"
WAITING, RETURNED = "waiting", "returned"  # tuples of outer joins WITH PREFERENCE
GROUP_PROFILES, EARLY_DECISIONS = "group_profiles", "early_decisions"
ACCOUNTS, QUERY_STATES, SELECTION_STATES, REGISTERED = "accounts", "queries", "selections", "registered"
ACCOUNT_NAMES, SELECTION_KINDS, FLOORS, TIMES, CHANGED, JOINED, MATCHED = (
    "account_names", "selection_kinds", "floors", "times", "changed", "joined", "matched",
)  # fmt: skip
ZSTD = pa.Codec("zstd")


class LastingParts:
    """Parts of the last snapshot with the objects that they were made of: they are the same while these are."""

    def __init__(self) -> None:
        self._parts: dict[PartKey, tuple[object, int, bytes]] = {}
        self._wanted: dict[PartKey, tuple[object, int, bytes]] = {}
        self.registered: LastingTable[QueryRecord] = LastingTable(
            lambda records: encode_registered(tuple(records.values()))
        )
        self.queries: LastingTable[QueryState] = LastingTable(encode_queries)

    def add(self, key: PartKey, source: object, make: Callable[[], bytes]) -> None:
        """Add a part to the next snapshot; `make` is called if the last one had another source.

        Times may be an equal tuple of the same pairs, which is compared fast.
        """
        known = self._parts.get(key)
        if known is None or not (known[0] is source or (key[0] == TIMES and known[0] == source)):
            packed = make()
            known = source, len(packed), ZSTD.compress(packed, asbytes=True)
        self._wanted[key] = known

    def take(self) -> Iterator[tuple[PartKey, int, bytes]]:
        """The parts of the next snapshot, compressed, with their sizes; others are forgotten."""
        self._parts, self._wanted = self._wanted, {}
        return ((key, size, packed) for key, (_, size, packed) in self._parts.items())


class RunShelf(Protocol):
    """Where runs are stored beside snapshots: written once, however many snapshots refer to them."""

    def place(self, run: Run | TupleRun) -> RunLocation:
        """Where a run is stored."""
        ...

    def run(self, place: RunLocation) -> Run:
        """The run at a place."""
        ...

    def tuples(self, place: RunLocation) -> TupleRun:
        """The tuples of a summary at a place."""
        ...


class EmbeddedRuns:
    """Runs that are stored in the snapshot itself."""

    def __init__(self, parts: Parts | None = None):
        self.parts = dict(parts or {})

    def place(self, run: Run | TupleRun) -> RunLocation:
        number = len(self.parts)
        self.parts[RUN, "", number] = run.packed()
        return {"part": number}

    def run(self, place: RunLocation) -> Run:
        return Run.unpacked(self.parts[RUN, "", place["part"]])

    def tuples(self, place: RunLocation) -> TupleRun:
        return TupleRun.unpacked(self.parts[RUN, "", place["part"]])


def dumps(
    state: State, record: CommitRecord, shelf: RunShelf | None = None, lasting: LastingParts | None = None
) -> bytes:
    """A snapshot of a state and a commit record; without a shelf, runs are stored in the snapshot.

    `lasting` has parts of the snapshot before, and then those of this one.
    """
    embedded = EmbeddedRuns()
    stored = encode_state(state, embedded if shelf is None else shelf) | {"commit": record.to_json()}
    parts: dict[PartKey, bytes] = {(STATE, "", 0): json.dumps(stored).encode(), **embedded.parts}
    parts[FLOORS, "", 0] = packed_stream(encode_floors(state.floors))
    parts |= {(SHEET, name, 0): packed_stream(sheet) for name, sheet in state.sheets.items()}
    parts |= {(ESTIMATOR, name, 0): estimator.packed for name, estimator in state.estimators.items()}
    decided = ((name, one.decisions) for name, one in state.estimators.items())
    parts |= {(EARLY_DECISIONS, name, 0): own.dumps() for name, own in decided if own is not None}
    parts |= {(PAST, kind, 0): packed_stream(table) for kind, table in state.past.tables.items()}
    parts |= {(REPORTED, name, 0): packed_stream(table) for name, table in state.reported.items()}
    parts |= dict(_promising_parts(state.promising))
    for number, table in enumerate(state.accounts.tables()):
        parts[ACCOUNTS, "", number] = packed_stream(table)
    lasting = LastingParts() if lasting is None else lasting
    _add_lasting(lasting, state, record)
    changed = packed_stream(_table_of_parts(list(parts), list(parts.values())))
    rows = [((CHANGED, "", 0), len(changed), ZSTD.compress(changed, asbytes=True)), *lasting.take()]
    keys, sizes, packed = zip(*rows, strict=True)
    table = _table_of_parts(keys, packed).append_column("size", pa.array(sizes, pa.int64()))
    return packed_stream(table.replace_schema_metadata({"transom": json.dumps({"version": FORMAT_VERSION})}))


def _add_lasting(lasting: LastingParts, state: State, record: CommitRecord) -> None:
    """The parts that only batches change in which queries join or leave, or plans change."""
    registered, queries, selections, names = (
        record.queries,
        state.queries,
        state.selections,
        state.accounts.names,
    )
    lasting.add(
        (REGISTERED, "", 0),
        registered,
        lambda: packed_stream(lasting.registered.of({each.name: each for each in registered})),
    )
    lasting.add((QUERY_STATES, "", 0), queries, lambda: packed_stream(lasting.queries.of(queries)))
    lasting.add((SELECTION_STATES, "", 0), selections, lambda: packed_stream(encode_selections(selections)))
    lasting.add(
        (SELECTION_KINDS, "", 0), selections, lambda: json.dumps(selection_kinds(selections)).encode()
    )
    lasting.add(
        (ACCOUNT_NAMES, "", 0),
        names,
        lambda: packed_stream(pa.table({"query": pa.array(names, pa.string())})),
    )
    for name, stream in state.streams.items():
        known = (clock.occupied for clock in stream.clocks.values() if clock.occupied is not None)
        times = (part for occupied in known for part in state_json.times_in_parts(occupied))
        for number, part in enumerate(times):
            lasting.add((TIMES, name, number), part, partial(_pack_times, part))
    for name, join in state.joins.items():
        for number, run in enumerate(run for runs in join.runs for run in runs):
            lasting.add((JOINED, name, number), run.table, partial(packed_stream, run.table))
            if run.matched is not None:
                lasting.add((MATCHED, name, number), run.matched, partial(_pack_bits, run.matched))
    for name, estimator in state.estimators.items():
        if estimator.has_many_groups:
            lasting.add((GROUP_PROFILES, name, 0), estimator.groups, estimator.pack_groups)
    for name, summary in state.promising.summaries.items():
        for ranking in summary.rankings:
            key = RANKING, json.dumps([name, ranking.name]), ranking.batch_id
            lasting.add(key, ranking, partial(_pack_ranking, ranking))
    for name, preferred in state.promising.queries.items():
        unmatched = preferred.unmatched
        for kind, tables in ((WAITING, unmatched.waiting), (RETURNED, unmatched.returned)):
            for side, table in enumerate(tables):
                if table is not None:
                    lasting.add((kind, name, side), table, partial(packed_stream, table))
    if state.alerts:
        lasting.add((ALERTS, "", 0), state.alerts, lambda: json.dumps(encode_alerts(state.alerts)).encode())
    for number, one in enumerate(record.decisions):
        lasting.add((DECISIONS, one.stream, number), one, partial(attrgetter("packed"), one))


def _pack_times(pairs: Sequence[tuple[int, int]]) -> bytes:
    return packed_stream(encode_times(pairs))


def _table_of_parts(keys: Sequence[PartKey], packed: Sequence[bytes]) -> pa.Table:
    kinds, names, numbers = zip(*keys, strict=True)
    return pa.table(
        {
            "kind": pa.array(kinds, pa.string()),
            "name": pa.array(names, pa.string()),
            "number": pa.array(numbers, pa.int64()),
            "packed": pa.array(packed, pa.large_binary()),
        }
    )


def _parts_of_table(table: pa.Table) -> dict[PartKey, bytes]:
    names = zip(*(table[name].to_pylist() for name in ("kind", "name", "number")), strict=True)
    return dict(zip(names, table["packed"].to_pylist(), strict=True))


def loads(packed: bytes, shelf: RunShelf | None = None) -> tuple[State, CommitRecord]:
    """The state and the commit record of a snapshot."""
    parts = parts_of(packed)
    stored = json.loads(parts[STATE, "", 0])
    state = decode_state(stored, parts, EmbeddedRuns(parts) if shelf is None else shelf)
    decisions = tuple(PassDecisions.unpacked(packed) for _, packed in _of_kind(DECISIONS, parts))
    registered = decode_registered(unpacked_stream(parts[REGISTERED, "", 0]))
    return state, CommitRecord.from_json(stored["commit"], registered, decisions)


def parts_of(packed: bytes) -> Parts:
    """The parts of a snapshot."""
    table = unpacked_stream(packed)
    check_format(json.loads(table.schema.metadata[b"transom"])["version"])
    rows = zip(_parts_of_table(table).items(), table["size"].to_pylist(), strict=True)
    parts = {key: ZSTD.decompress(packed, size, asbytes=True) for (key, packed), size in rows}
    return _parts_of_table(unpacked_stream(parts.pop((CHANGED, "", 0)))) | parts


def encode_state(state: State, shelf: RunShelf) -> dict[str, Any]:
    """The JSON part of a state, without queries and selections; its runs are put on a shelf."""
    young = {"young_after": state.young_after} if state.young_after else {}
    return young | {
        "batch": state.batch_id,
        "streams": {name: state_json.encode_stream(stream) for name, stream in state.streams.items()},
        "shards": [state_json.encode_shard(ref) for ref in state.shards],
        "partitions": state.partitions,
        "last_selection": state.last_selection,
        "unaccounted": state.accounts.unaccounted,
        "first_windows": dict(state.past.starts),
        "prodders": {name: state_json.encode_prodder(prodder) for name, prodder in state.prodders.items()},
        "stores": {name: _encode_store(store, shelf) for name, store in state.stores.items()},
        "summaries": {
            name: _encode_summary_state(summary, shelf) for name, summary in state.promising.summaries.items()
        },
        "preferences": {
            name: _encode_preference_query(query) for name, query in state.promising.queries.items()
        },
        "joins": {name: _encode_join(join) for name, join in state.joins.items()},
    }


def decode_state(stored: dict[str, Any], parts: Parts, shelf: RunShelf) -> State:
    """The state of its JSON part and its other parts."""
    pending = _decode_pending(parts)
    return State(
        batch_id=stored["batch"],
        streams={
            name: state_json.decode_stream(stream, _times(name, parts))
            for name, stream in stored["streams"].items()
        },
        queries=decode_queries(unpacked_stream(parts[QUERY_STATES, "", 0])),
        selections=decode_selections(
            unpacked_stream(parts[SELECTION_STATES, "", 0]), json.loads(parts[SELECTION_KINDS, "", 0])
        ),
        floors=decode_floors(unpacked_stream(parts[FLOORS, "", 0])),
        sheets={name: unpacked_stream(packed) for name, packed in _of_kind(SHEET, parts)},
        shards=tuple(map(state_json.decode_shard, stored["shards"])),
        partitions=stored["partitions"],
        last_selection=stored["last_selection"],
        young_after=stored.get("young_after", 0),
        prodders={name: state_json.decode_prodder(prodder) for name, prodder in stored["prodders"].items()},
        estimators={
            name: Estimator.loads(
                packed,
                groups_data=parts.get((GROUP_PROFILES, name, 0)),
                decisions=parts.get((EARLY_DECISIONS, name, 0)),
            )
            for name, packed in _of_kind(ESTIMATOR, parts)
        },
        stores={name: _decode_store(store, shelf) for name, store in stored["stores"].items()},
        accounts=Accounts.of_tables(
            unpacked_stream(parts[ACCOUNT_NAMES, "", 0])["query"].to_pylist(),
            unpacked_stream(parts[ACCOUNTS, "", 0]),
            unpacked_stream(parts[ACCOUNTS, "", 1]),
            stored["unaccounted"],
        ),
        past=PastWindows(
            {kind: unpacked_stream(packed) for kind, packed in _of_kind(PAST, parts)}, stored["first_windows"]
        ),
        reported={name: unpacked_stream(packed) for name, packed in _of_kind(REPORTED, parts)},
        promising=PromisingState(
            {
                name: _decode_summary_state(summary, parts[SUMMARY, name, 0], _rankings(name, parts), shelf)
                for name, summary in stored["summaries"].items()
            },
            {
                name: _decode_preference_query(
                    name,
                    query,
                    tuple(pending.get((number, side), Regions.none()) for side in range(query["sides"])),
                    parts,
                )
                for number, (name, query) in enumerate(stored["preferences"].items())
            },
        ),
        joins={name: _decode_join(name, join, parts) for name, join in stored["joins"].items()},
        alerts=decode_alerts(json.loads(parts[ALERTS, "", 0])) if (ALERTS, "", 0) in parts else AlertsState(),
    )


def _times(stream: str, parts: Parts) -> Iterator[IntervalSet]:
    """The times of the rows on the clocks of a stream, in parts."""
    numbers = takewhile(lambda number: (TIMES, stream, number) in parts, count())
    return (decode_times(unpacked_stream(parts[TIMES, stream, number])) for number in numbers)


def _encode_store(store: StoreState, shelf: RunShelf) -> dict[str, Any]:
    return {
        "runs": [shelf.place(run) for run in store.tiers.runs],
        "floor": store.floor,
        "unseen": encode_intervals(store.unseen),
        "tuples": store.tuples,
        "on_executors": store.on_executors,
        "files": [state_json.encode_shard(ref) for ref in store.refs],
    }


def _decode_store(stored: dict[str, Any], shelf: RunShelf) -> StoreState:
    return StoreState(
        RunTiers(tuple(map(shelf.run, stored["runs"]))),
        stored["floor"],
        decode_intervals(stored["unseen"]),
        stored["tuples"],
        stored["on_executors"],
        tuple(map(state_json.decode_shard, stored["files"])),
    )


def _encode_summary_state(summary: SummaryState, shelf: RunShelf) -> dict[str, Any]:
    return {
        "shape": encode_summary(summary.representation.shape),
        "runs": [shelf.place(run) for run in summary.runs],
        "files": [state_json.encode_shard(ref) for ref in summary.files],
        "since_batch": summary.since,
        "arrived": summary.arrived,
        "late": summary.late,
        "review_batch": summary.review,
        "late_before": summary.late_before,
    }


def _decode_summary_state(
    stored: dict[str, Any], packed: bytes, rankings: tuple[BatchRanking, ...], shelf: RunShelf
) -> SummaryState:
    runs = tuple(map(shelf.tuples, stored["runs"]))
    return SummaryState(
        Representation.unpacked(decode_summary(stored["shape"]), packed, [run.tuples for run in runs]),
        since=stored["since_batch"],
        runs=runs,
        files=tuple(map(state_json.decode_shard, stored["files"])),
        arrived=stored["arrived"],
        late=stored["late"],
        review=stored["review_batch"],
        late_before=stored["late_before"],
        rankings=rankings,
    )


def _encode_preference_query(query: PreferenceState) -> dict[str, Any]:
    unseen = query.unmatched.unseen
    rare: dict[str, Any] = {} if unseen is None else {"unseen": list(unseen)}
    rare |= {} if query.registered is None else {"registered_with_batch": query.registered}
    return rare | {
        "sides": len(query.pending),
        "since_batch": query.since,
        "done": state_json.encode_coverage(query.done),
        "lost": query.lost,
        "missed": query.missed,
    }


def _decode_preference_query(
    name: str, stored: dict[str, Any], pending: tuple[Regions, ...], parts: Parts
) -> PreferenceState:
    packed = parts.get((SELECTED, name, 0))
    return PreferenceState(
        pending,
        stored["since_batch"],
        state_json.decode_coverage(stored["done"]),
        stored["lost"],
        stored["missed"],
        None if packed is None else unpacked_stream(packed),
        UnmatchedTuples(
            _tables_by_side(WAITING, name, parts),
            _tables_by_side(RETURNED, name, parts),
            None if (unseen := stored.get("unseen")) is None else (unseen[0], unseen[1]),
        ),
        stored.get("registered_with_batch"),
    )


def _tables_by_side(kind: str, name: str, parts: Parts) -> tuple[pa.Table | None, pa.Table | None]:
    first, second = (
        None if (packed := parts.get((kind, name, side))) is None else unpacked_stream(packed)
        for side in range(2)
    )
    return first, second


def _encode_join(join: JoinState) -> dict[str, Any]:
    stored: dict[str, Any] = {
        "runs": [len(runs) for runs in join.runs],
        "ended": list(join.ended),
        "late": list(join.late),
    }
    return stored if join.unseen == (None, None) else stored | {"unseen": list(join.unseen)}


def _decode_join(name: str, stored: dict[str, Any], parts: Parts) -> JoinState:
    count, others = stored["runs"]
    runs = [_decode_join_run(name, number, parts) for number in range(count + others)]
    first, second = stored["ended"]
    unseen_first, unseen_second = stored.get("unseen", (None, None))
    return JoinState(
        (tuple(runs[:count]), tuple(runs[count:])),
        (first, second),
        (stored["late"][0], stored["late"][1]),
        (unseen_first, unseen_second),
    )


def _decode_join_run(name: str, number: int, parts: Parts) -> JoinRun:
    table, bits = unpacked_stream(parts[JOINED, name, number]), parts.get((MATCHED, name, number))
    if bits is None:
        return JoinRun(table)
    return JoinRun(table, np.unpackbits(np.frombuffer(bits, np.uint8), count=table.num_rows).astype(bool))


def _pack_bits(flags: NDArray[np.bool_]) -> bytes:
    return bytes(np.packbits(flags))


def _promising_parts(promising: PromisingState) -> Iterator[tuple[PartKey, bytes]]:
    for name, summary in promising.summaries.items():
        yield (SUMMARY, name, 0), summary.representation.packed()
    if promising.queries:
        yield (PENDING, "", 0), packed_stream(_encode_pending(promising))
    for name, query in promising.queries.items():
        if query.selected is not None:
            yield (SELECTED, name, 0), packed_stream(query.selected)


def _encode_pending(promising: PromisingState) -> pa.Table:
    """The deferred regions of all queries in one table, with the number of the query and the side of each."""
    deferred = [
        (number, side, regions)
        for number, query in enumerate(promising.queries.values())
        for side, regions in enumerate(query.pending)
        if len(regions)
    ]
    counts = [len(regions) for _, _, regions in deferred]
    table = Regions.concatenated([regions for _, _, regions in deferred]).table()
    for column, place in (("side", 1), ("query", 0)):
        numbers = np.repeat(np.array([one[place] for one in deferred], np.int64), counts)
        table = table.add_column(0, column, pa.array(numbers))
    return table


def _decode_pending(parts: Parts) -> dict[tuple[int, int], Regions]:
    """The deferred regions by query and side."""
    if (PENDING, "", 0) not in parts:
        return {}
    table = unpacked_stream(parts[PENDING, "", 0])
    regions = Regions.of_table(table)
    owners = zip(table["query"].to_pylist(), table["side"].to_pylist(), strict=True)
    deferred, first = {}, 0
    for owner, mine in groupby(owners):
        last = first + len(list(mine))
        deferred[owner] = regions.where(slice(first, last))
        first = last
    return deferred


def _pack_ranking(ranking: BatchRanking) -> bytes:
    metadata = {"since": str(ranking.since), "name": ranking.name}
    return packed_stream(pa.table({"key": ranking.key}).replace_schema_metadata(metadata))


def _decode_ranking(batch_id: int, table: pa.Table) -> BatchRanking:
    metadata = table.schema.metadata
    key = table["key"].combine_chunks().to_numpy()
    return BatchRanking(batch_id, metadata[b"name"].decode(), int(metadata[b"since"]), key)


def _rankings(summary: str, parts: Parts) -> tuple[BatchRanking, ...]:
    """The rankings of a summary's batches, in order."""
    mine = (
        _decode_ranking(batch_id, unpacked_stream(packed))
        for (kind, name, batch_id), packed in parts.items()
        if kind == RANKING and json.loads(name)[0] == summary
    )
    return tuple(sorted(mine, key=lambda ranking: (ranking.batch_id, ranking.name)))


def _of_kind(kind: str, parts: Parts) -> Iterator[tuple[str, bytes]]:
    return ((name, packed) for (own_kind, name, _), packed in parts.items() if own_kind == kind)
