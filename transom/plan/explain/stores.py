"""From the on-demand queries of a stream and the state to what EXPLAIN shows of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from transom.elements import ClockKind, Using
from transom.ondemand.store_specs import (
    QueryStores,
    StoreRead,
    StoreSet,
    StoreSpec,
    stores_read_by,
)
from transom.ondemand.structures.block_tree import BlockTree
from transom.ondemand.structures.prefix_sums import PrefixSums
from transom.ondemand.structures.runs import Structure
from transom.ondemand.structures.staircase import Staircase
from transom.ondemand.structures.timegram import TimeGram
from transom.ondemand.structures.value_structures import RawTuples
from transom.plan.compiled_query import CompiledQuery
from transom.plan.explain.element_text import call_text, having_text, instant, length_text
from transom.plan.explain.records import Answered, LookupPlan, StorePlan, StoreReader, StoreSetPlan
from transom.plan.predicate_text import predicate_text
from transom.state.state import State, StoreState
from transom.windows.intervals import LOWEST

NEWEST = "the newest row"  # what the store of the groups is read for
_KINDS: dict[type[Structure], str] = {Staircase: "staircase", TimeGram: "timegram"}


def store_set_plans(
    store_sets: Sequence[StoreSet],
    looking: Sequence[CompiledQuery],
    state: State,
    joined: State,
    is_pending: Callable[[str], bool],
) -> tuple[StoreSetPlan, ...]:
    """The stores of a stream's on-demand queries; `joined` is the state after all of them have joined."""
    named = {query.name: query for query in looking}
    largest = sorted(store_sets, key=lambda one: -len(one.queries))
    return tuple(
        _Describing(one, [named[name] for name in one.queries], state, joined, is_pending).store_set(number)
        for number, one in enumerate(largest, 1)
    )


@dataclass
class _Describing:
    """A store set being described."""

    planned: StoreSet
    queries: Sequence[CompiledQuery]
    state: State
    joined: State
    is_pending: Callable[[str], bool]

    def store_set(self, number: int) -> StoreSetPlan:
        first, clock = self.queries[0].query, self.planned.clock
        return StoreSetPlan(
            number,
            " AND ".join(map(predicate_text, self.planned.conjuncts)) or None,
            clock.attribute or "rows",
            tuple(key.sql for key in self.planned.keys),
            tuple(join.id for join in first.joins),
            span_text(self.planned.range, clock.kind, clock.attribute),
            self.planned.range,
            tuple(self._store(key, spec) for key, spec in self.planned.stores.items()),
            tuple(map(self._query, self.queries)),
        )

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The numbers of the stores, by the ids of their specifications."""
        return {spec.id: number for number, spec in enumerate(self.planned.stores.values(), 1)}

    @cached_property
    def _answered(self) -> dict[str, tuple[Answered, ...]]:
        """The stores that answer each query's aggregates; queries with equal aggregates share one tuple."""
        alike: dict[object, tuple[Answered, ...]] = {}
        answers = {}
        for query in self.queries:
            calls = tuple(map(call_text, query.query.calls))
            kind = query.using, query.slot_ids, query.reads, calls
            if kind not in alike:
                alike[kind] = tuple(self._answers(query, stores_read_by(query)))
            answers[query.name] = alike[kind]
        return answers

    def _answers(self, query: CompiledQuery, query_stores: QueryStores) -> Iterator[Answered]:
        for i, (call, slots) in enumerate(zip(query.query.calls, query.reads, strict=True)):
            reads = (
                [query_stores.reads[i]]
                if query_stores.has_bounds
                else [query_stores.reads[slot] for slot in slots]
            )
            by = dict.fromkeys(self._by(store_read, query_stores) for store_read in reads)
            stores = dict.fromkeys(self._numbers[store_read.spec.id] for store_read in reads)
            yield Answered(call_text(call), ", ".join(by), tuple(stores))

    def _by(self, store_read: StoreRead, query_stores: QueryStores) -> str:
        if query_stores.uses_ordered_sharing:
            return "OrderedSharing"
        match store_read.structure:
            case PrefixSums():
                return "prefix sums"
            case Staircase():
                return "staircase"
            case BlockTree():
                return "tree of blocks"
            case RawTuples():
                return "scan"
        return "buckets"

    def _store(self, key: str, spec: StoreSpec) -> StorePlan:
        store, number = self.joined.stores[key], self._numbers[spec.id]
        since, clock = _complete_since(store), self.planned.clock
        runs = store.tiers.runs
        return StorePlan(
            number,
            "groups" if spec.keeps_times else _KINDS.get(type(spec.structure), "values"),
            keeps_text(self.planned, spec),
            tuple(self._readers(number, spec)),
            "executors" if store.on_executors else "driver",
            store.tiers.entries + sum(ref.rows for ref in store.refs),
            store.tiers.nbytes + sum(ref.bytes for ref in store.refs),
            len(runs) + sum(len(ref.parts) for ref in store.refs),
            None if store.on_executors else max((run.groups for run in runs), default=0),
            store.tuples,
            key not in self.state.stores or store.unseen is None,
            None if store.floor == LOWEST else store.floor,
            since,
            None if since is None else instant(since, clock),
        )

    def _readers(self, number: int, spec: StoreSpec) -> Iterator[StoreReader]:
        if spec.keeps_times:
            yield StoreReader(NEWEST, "staircase", tuple(query.name for query in self.queries))
            return
        readers: dict[tuple[str, str], list[str]] = {}
        for query in self.queries:
            for answer in self._answered[query.name]:
                if number in answer.stores:
                    names = readers.setdefault((answer.aggregate, answer.by), [])
                    if not names or names[-1] != query.name:
                        names.append(query.name)
        for (aggregate, by), names in readers.items():
            yield StoreReader(aggregate, by, tuple(names))

    def _query(self, query: CompiledQuery) -> LookupPlan:
        bound, clock = query.query, self.planned.clock
        using = query.using
        if query.naive and using.structure != "timegram":
            using = Using("naive")
        return LookupPlan(
            query.name,
            span_text(bound.window.range, clock.kind, clock.attribute),
            bound.window.range,
            structure_text(using, clock.kind),
            self._answered[query.name],
            having_text(bound),
            self.is_pending(query.name) or any(key not in self.state.stores for key in self.planned.stores),
        )


def keeps_text(store_set: StoreSet, spec: StoreSpec) -> str:
    """What a store keeps."""
    if spec.keeps_times:
        return "the newest row of each group" if store_set.keys else "the newest row"
    if not isinstance(spec.structure, TimeGram):
        return spec.text
    made = spec.structure
    using = Using("timegram", made.buckets, made.between, made.bounds, made.within, made.slice)
    what = "rows" if spec.attribute is None else spec.attribute.sql
    shown = "" if spec.where is None else f" where {predicate_text(spec.where)}"
    return f"{structure_text(using, store_set.clock.kind)} of {what}{shown}"


def _complete_since(store: StoreState) -> int | None:
    """The time from which on the store has all accepted tuples; None: it has all, or that is not determined yet."""
    missed = max((stop for _, stop in store.unseen or ()), default=LOWEST)
    since = max(missed, store.floor)
    return None if since == LOWEST else since


def span_text(range: int, kind: ClockKind, attribute: str) -> str:
    """A window that ends now.

    >>> span_text(600_000_000, ClockKind.TIME, "ts"), span_text(50, ClockKind.ROWS, "")
    ('the last 10 minutes of ts', 'the last 50 rows')
    """
    if kind is ClockKind.ROWS:
        return f"the last {range:,} rows"
    return f"the last {length_text(range, kind)} of {attribute}"


def structure_text(using: Using, kind: ClockKind) -> str:
    """The structure of a query's store, written as in USING and WITHIN.

    >>> structure_text(Using("timegram", 64, slice=1_000_000), ClockKind.TIME)
    "timegram(64, SLICE '1 second')"
    >>> structure_text(Using("timegram", within=0.05), ClockKind.TIME)
    'timegram within 5%'
    """
    if using.structure != "timegram":
        return using.structure
    arguments = []
    if using.within is None and using.bounds:
        arguments.append(f"BOUNDS {', '.join(map(_number, using.bounds))}")
    elif using.within is None:
        between = "" if using.between is None else f" BETWEEN {' AND '.join(map(_number, using.between))}"
        arguments.append(f"{using.buckets}{between}")
    if using.slice is not None:
        arguments.append(f"SLICE '{length_text(using.slice, kind)}'")
    shown = f"timegram({', '.join(arguments)})" if arguments else "timegram"
    return shown if using.within is None else f"{shown} within {using.within * 100:g}%"


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")
