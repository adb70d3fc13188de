"""EXPLAIN of on-demand queries, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transom.plan.explain.records import Answered, LookupPlan, StorePlan, StoreSetPlan, StreamPlan
from transom.plan.explain.text_parts import Detail, counted, first, indented, name_list, queries_text


def stores_text(stream: StreamPlan, detail: Detail) -> Iterator[str]:
    """The stores of a stream's on-demand queries, by store set."""
    if not stream.on_demand:
        return
    stores = sum(len(store_set.stores) for store_set in stream.store_sets)
    yield (
        f"on demand: {queries_text(stream.on_demand)}, {counted(stores, 'store')} "
        f"in {counted(len(stream.store_sets), 'store set')}"
    )
    yield from indented(
        first(stream.store_sets, detail.families, lambda own: _store_set(own, detail), "store sets")
    )


def store_set_title(store_set: StoreSetPlan) -> str:
    """Which tuples and groups the stores are over, and how far back."""
    parts = ["every tuple" if store_set.where is None else f"where {store_set.where}"]
    if store_set.group_by:
        parts.append(f"group by {', '.join(store_set.group_by)}")
    return f"{', '.join(parts)}; {store_set.longest}"


def _store_set(store_set: StoreSetPlan, detail: Detail) -> Iterator[str]:
    yield f"store set {store_set.id}: {detail.short(store_set_title(store_set))}"
    others = name_list([query.name for query in store_set.queries[detail.queries :]], detail.names)
    yield from indented(
        first(store_set.queries, detail.queries, lambda own: _query(own, detail), f"queries: {others}")
    )
    yield from indented(
        first(
            store_set.stores,
            detail.stores,
            lambda own: _store(own, len(store_set.queries), detail),
            "stores",
        )
    )


def _query(query: LookupPlan, detail: Detail) -> Iterator[str]:
    joins_later = " (joins with the next batch)" if query.pending and detail.waiting else ""
    having = "" if query.having is None else f"; having {detail.short(query.having)}"
    answers = "; ".join(map(_answer, query.answers)) or "groups"
    yield f"query {query.name}: {query.window}, {query.structure}: {detail.short(answers)}{having}{joins_later}"


def _answer(answer: Answered) -> str:
    return f"{answer.aggregate} by {answer.by} of store {', '.join(map(str, answer.stores))}"


def _store(store: StorePlan, queries: int, detail: Detail) -> Iterator[str]:
    if store.kind == "groups":
        yield f"store {store.id}: {store.keeps}, which says whether a window has any"
    else:
        readers = [f"{read.aggregate}{_whose(read.queries, queries, detail)}" for read in store.readers]
        yield f"store {store.id}: {detail.short(store.keeps)}, for {name_list(readers, detail.names)}"
    yield f"  {_holding(store)}"


def _whose(names: Sequence[str], queries: int, detail: Detail) -> str:
    if queries == 1:
        return ""
    return " of all of them" if len(names) == queries else f" of {name_list(names, detail.names)}"


def _holding(store: StorePlan) -> str:
    if not store.tuples:
        return "holds nothing yet"
    held = f"holds {counted(store.entries, 'entry', 'entries')}{_groups(store)}, {store.bytes:,} bytes"
    where = "in files on the executors" if store.place == "executors" else "on the driver"
    pieces = counted(store.runs, "file" if store.place == "executors" else "run")
    return f"{held} in {pieces}, {where}; {counted(store.tuples, 'tuple')} ever; {_complete(store)}"


def _groups(store: StorePlan) -> str:
    if store.groups is None or (store.groups < 2 and store.kind != "timegram"):
        return ""
    return f" of {counted(store.groups, 'bucket' if store.kind == 'timegram' else 'group')}"


def _complete(store: StorePlan) -> str:
    if store.complete_since is None:
        return "the next batch determines what it missed" if store.pending else "complete"
    is_late = store.kept_since is None or store.complete_since > store.kept_since
    return f"complete since {store.complete_since_text}" if is_late else "complete"


# --- one query ---


def lookup_plan_text(
    stream: StreamPlan, store_set: StoreSetPlan, query: LookupPlan, detail: Detail
) -> Iterator[str]:
    """How one on-demand query is answered, from which stores, and with whom it shares them."""
    joins_later = " (joins with the next batch)" if query.pending else ""
    yield f"query {query.name} over {stream.name}, on demand{joins_later}"
    yield from indented(_lookup_lines(store_set, query, detail))


def _lookup_lines(store_set: StoreSetPlan, query: LookupPlan, detail: Detail) -> Iterator[str]:
    yield f"looked up for {query.window}, or for less"
    if store_set.where is not None:
        yield f"where {detail.short(store_set.where)}"
    if store_set.group_by:
        yield f"group by {', '.join(store_set.group_by)}"
    if query.having is not None:
        yield f"having {query.having}"
    yield f"structure {query.structure}"
    yield from indented(map(_answer, query.answers))
    others = [other.name for other in store_set.queries if other.name != query.name]
    shared = f"shared with {name_list(others, detail.names)}" if others else "not shared"
    yield f"store set {store_set.id}, {shared}; it keeps {store_set.longest}"
    read = {number for answer in query.answers for number in answer.stores}
    for store in store_set.stores:
        if store.id in read or store.kind == "groups":
            yield from indented(_store(store, len(store_set.queries), detail))
