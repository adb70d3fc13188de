"""The parts of a state as JSON, with field names that are spelled out here.

Tables, runs and packed summaries are not JSON: the snapshot stores them beside it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from transom.columns.arrays import one_array
from transom.columns.packed_tables import packed_stream, unpacked_stream
from transom.overload.chunks import SidelinedChunk
from transom.state.json_forms import (
    decode_clock,
    decode_known_intervals,
    decode_pattern,
    encode_clock,
    encode_intervals,
    encode_pattern,
)
from transom.state.promising import Coverage
from transom.state.state import (
    ClockState,
    ProdderState,
    StreamState,
    Totals,
    Work,
)
from transom.storage.shard_refs import ShardRef
from transom.windows.arrivals import Arrivals
from transom.windows.closed_time import Closed
from transom.windows.group_closings import GroupClosings
from transom.windows.intervals import IntervalSet

Json = dict[str, Any]

TIMES_IN_PART = 512  # intervals


def encode_prodder(prodder: ProdderState) -> Json:
    return {
        "position": prodder.position,
        "prodded": prodder.prodded,
        "fresh": prodder.fresh,
        "point": prodder.point,
    }


def decode_prodder(stored: Json) -> ProdderState:
    return ProdderState(stored["position"], stored["prodded"], stored["fresh"], stored["point"])


def encode_shard(ref: ShardRef) -> Json:
    partitions, rows, sizes = zip(*ref.parts, strict=True) if ref.parts else ((), (), ())
    return {
        "name": ref.name,
        "parts": {"partition": list(partitions), "rows": list(rows), "bytes": list(sizes)},
        "held": [{"selection": home, "slices": list(slices)} for home, slices in ref.held.items()],
    }


def decode_shard(stored: Json) -> ShardRef:
    parts = stored["parts"]
    return ShardRef(
        stored["name"],
        tuple(zip(parts["partition"], parts["rows"], parts["bytes"], strict=True)),
        {
            held["selection"]: tuple((start, stop) for start, stop in held["slices"])
            for held in stored["held"]
        },
    )


def encode_coverage(coverage: Coverage) -> Json:
    return {
        "probes": coverage.probes,
        "produced": coverage.produced,
        "skipped": coverage.skipped,
        "left": coverage.left,
    }


def decode_coverage(stored: Json) -> Coverage:
    return Coverage(stored["probes"], stored["produced"], stored["skipped"], stored["left"])


def encode_stream(stream: StreamState) -> Json:
    return {
        "clocks": [
            {"clock": encode_clock(clock), **encode_clock_state(state)}
            for clock, state in stream.clocks.items()
        ],
        "totals": encode_totals(stream.totals),
        "work": encode_work(stream.work),
        "sidelined": [encode_chunk(chunk) for chunk in stream.sidelined],
        "credit": stream.credit,
    }


def decode_stream(stored: Json, times: Iterator[IntervalSet]) -> StreamState:
    """A stream, given the times of the rows on its clocks, in parts."""
    return StreamState(
        {decode_clock(clock["clock"]): decode_clock_state(clock, times) for clock in stored["clocks"]},
        decode_totals(stored["totals"]),
        decode_work(stored["work"]),
        tuple(map(decode_chunk, stored["sidelined"])),
        stored["credit"],
    )


def times_in_parts(times: IntervalSet) -> list[tuple[tuple[int, int], ...]]:
    """Times of rows in parts: those of earlier batches stay as they are for many batches."""
    pairs = times.pairs
    return [pairs[start : start + TIMES_IN_PART] for start in range(0, len(pairs), TIMES_IN_PART)]


def encode_clock_state(state: ClockState) -> Json:
    """A clock without the times of its rows, which are many: the snapshot stores them as a table."""
    starts, stops, clocks = (
        zip(*state.arrivals.pieces, strict=True) if state.arrivals.pieces else ((), (), ())
    )
    return {
        "high": state.high,
        "newest": state.newest,
        "occupied_parts": None if state.occupied is None else len(times_in_parts(state.occupied)),
        "arrivals": {"start": starts, "stop": stops, "clock": clocks},
        "shed": encode_intervals(state.arrivals.shed),
        "closed": encode_closed(state.closed),
        "promised": None if state.promised is None else encode_closed(state.promised),
    }


def decode_clock_state(stored: Json, times: Iterator[IntervalSet]) -> ClockState:
    """A clock, given the times of the rows of this and the following clocks, in parts."""
    count = stored["occupied_parts"]
    occupied = None if count is None else IntervalSet(tuple(chain.from_iterable(islice(times, count))))
    pieces = tuple(zip(*(stored["arrivals"][name] for name in ("start", "stop", "clock")), strict=True))
    return ClockState(
        stored["high"],
        decode_closed(stored["closed"]),
        occupied,
        Arrivals(pieces, decode_known_intervals(stored["shed"])),
        None if stored["promised"] is None else decode_closed(stored["promised"]),
        stored["newest"],
    )


def encode_closed(closed: Closed) -> Json:
    return {
        "general": encode_intervals(closed.general),
        "patterned": [
            {"where": encode_pattern(sorted(pattern, key=str)), "ranges": encode_intervals(ranges)}
            for pattern, ranges in closed.patterned
        ],
        **({} if closed.groups is None else {"groups": _encode_groups(closed.groups)}),
    }


def decode_closed(stored: Json) -> Closed:
    patterned = tuple(
        (frozenset(decode_pattern(part["where"])), decode_known_intervals(part["ranges"]))
        for part in stored["patterned"]
    )
    groups = _decode_groups(stored["groups"]) if "groups" in stored else None
    return Closed(decode_known_intervals(stored["general"]), patterned, groups)


def _encode_groups(groups: GroupClosings) -> Json:
    table = pa.table({"value": groups.values, "until": groups.until})
    return {"column": groups.column, "packed": b64encode(packed_stream(table)).decode()}


def _decode_groups(stored: Json) -> GroupClosings:
    table = unpacked_stream(b64decode(stored["packed"]))
    values, until = one_array(table["value"]), one_array(table["until"]).to_numpy()
    return GroupClosings(stored["column"], values, until)


def encode_totals(totals: Totals) -> Json:
    return {
        "rows": totals.rows,
        "counted": totals.counted,
        "unwanted": totals.unwanted,
        "late": totals.late,
        "rejected": totals.rejected,
        "sidelined": totals.sidelined,
        "shed": totals.shed,
    }


def decode_totals(stored: Json) -> Totals:
    return Totals(
        rows=stored["rows"],
        counted=stored["counted"],
        unwanted=stored["unwanted"],
        late=stored["late"],
        rejected=stored["rejected"],
        sidelined=stored["sidelined"],
        shed=stored["shed"],
    )


def encode_work(work: Work) -> Json:
    return {
        "partials": work.partials,
        "finals": work.finals,
        "unshared_partials": work.unshared_partials,
        "unshared_finals": work.unshared_finals,
    }


def decode_work(stored: Json) -> Work:
    return Work(stored["partials"], stored["finals"], stored["unshared_partials"], stored["unshared_finals"])


def encode_chunk(chunk: SidelinedChunk) -> Json:
    ranges = [
        {"clock": encode_clock(clock), "first": first, "last": last}
        for clock, (first, last) in chunk.ranges.items()
    ]
    return {"name": chunk.name, "rows": chunk.rows, "since": chunk.since, "ranges": ranges}


def decode_chunk(stored: Json) -> SidelinedChunk:
    ranges = {decode_clock(part["clock"]): (part["first"], part["last"]) for part in stored["ranges"]}
    return SidelinedChunk(stored["name"], stored["rows"], stored["since"], ranges)
