"""What EXPLAIN says of on-demand queries, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transom.plan.explain.records import Answered, GatheringPlan, LookupPlan, StorePlan, StreamPlan
from transom.plan.explain.words import Limits, counted, first, indented, named, queries_text


def stores_text(stream: StreamPlan, limits: Limits) -> Iterator[str]:
    """The stores of a stream's on-demand queries, gathering by gathering."""
    if not stream.on_demand:
        return
    stores = sum(len(gathering.stores) for gathering in stream.gatherings)
    yield (
        f"on demand: {queries_text(stream.on_demand)}, {counted(stores, 'store')} "
        f"in {counted(len(stream.gatherings), 'gathering')}"
    )
    yield from indented(
        first(stream.gatherings, limits.families, lambda own: _gathering(own, limits), "gatherings")
    )


def gathering_title(gathering: GatheringPlan) -> str:
    """Which tuples and groups the stores are over, and how far back."""
    parts = ["every tuple" if gathering.where is None else f"where {gathering.where}"]
    if gathering.group_by:
        parts.append(f"group by {', '.join(gathering.group_by)}")
    return f"{', '.join(parts)}; {gathering.longest}"


def _gathering(gathering: GatheringPlan, limits: Limits) -> Iterator[str]:
    yield f"gathering {gathering.id}: {limits.short(gathering_title(gathering))}"
    others = named([query.name for query in gathering.queries[limits.queries :]], limits.names)
    yield from indented(
        first(gathering.queries, limits.queries, lambda own: _query(own, limits), f"queries: {others}")
    )
    yield from indented(
        first(
            gathering.stores,
            limits.stores,
            lambda own: _store(own, len(gathering.queries), limits),
            "stores",
        )
    )


def _query(query: LookupPlan, limits: Limits) -> Iterator[str]:
    waits = " (joins with the next batch)" if query.waits and limits.waiting else ""
    having = "" if query.having is None else f"; having {limits.short(query.having)}"
    answers = "; ".join(map(_answer, query.answers)) or "groups"
    yield f"query {query.name}: {query.window}, {query.structure}: {limits.short(answers)}{having}{waits}"


def _answer(answer: Answered) -> str:
    return f"{answer.aggregate} by {answer.by} of store {', '.join(map(str, answer.stores))}"


def _store(store: StorePlan, queries: int, limits: Limits) -> Iterator[str]:
    if store.kind == "groups":
        yield f"store {store.id}: {store.keeps}, to tell whether a window has any"
    else:
        told = [f"{read.aggregate}{_whose(read.queries, queries, limits)}" for read in store.readers]
        yield f"store {store.id}: {limits.short(store.keeps)}, for {named(told, limits.names)}"
    yield f"  {_holding(store)}"


def _whose(names: Sequence[str], queries: int, limits: Limits) -> str:
    if queries == 1:
        return ""
    return " of all of them" if len(names) == queries else f" of {named(names, limits.names)}"


def _holding(store: StorePlan) -> str:
    if not store.tuples:
        return "holds nothing yet"
    held = f"holds {counted(store.entries, 'entry', 'entries')}{_groups(store)}, {store.bytes:,} bytes"
    where = "far: in files on the executors" if store.place == "far" else "near: on the driver"
    pieces = counted(store.runs, "file" if store.place == "far" else "run")
    return f"{held} in {pieces}, {where}; {counted(store.tuples, 'tuple')} ever; {_complete(store)}"


def _groups(store: StorePlan) -> str:
    if store.groups is None or (store.groups < 2 and store.kind != "timegram"):
        return ""
    return f" of {counted(store.groups, 'bucket' if store.kind == 'timegram' else 'group')}"


def _complete(store: StorePlan) -> str:
    if store.complete_since is None:
        return "the next batch tells what it has missed" if store.waits else "complete"
    is_late = store.kept_since is None or store.complete_since > store.kept_since
    return f"complete since {store.complete_since_text}" if is_late else "complete"


# --- one query ---


def lookup_text(
    stream: StreamPlan, gathering: GatheringPlan, query: LookupPlan, limits: Limits
) -> Iterator[str]:
    """How one on-demand query is answered, from which stores, and with whom it shares them."""
    waits = " (joins with the next batch)" if query.waits else ""
    yield f"query {query.name} over {stream.name}, on demand{waits}"
    yield from indented(_one(gathering, query, limits))


def _one(gathering: GatheringPlan, query: LookupPlan, limits: Limits) -> Iterator[str]:
    yield f"looked up for {query.window}, or for less"
    if gathering.where is not None:
        yield f"where {limits.short(gathering.where)}"
    if gathering.group_by:
        yield f"group by {', '.join(gathering.group_by)}"
    if query.having is not None:
        yield f"having {query.having}"
    yield f"structure {query.structure}"
    yield from indented(map(_answer, query.answers))
    others = [other.name for other in gathering.queries if other.name != query.name]
    shared = named(others, limits.names) if others else "nobody"
    yield f"gathering {gathering.id}, shared with {shared}; it keeps {gathering.longest}"
    read = {number for answer in query.answers for number in answer.stores}
    for store in gathering.stores:
        if store.id in read or store.kind == "groups":
            yield from indented(_store(store, len(gathering.queries), limits))
