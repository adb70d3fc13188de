"""Placement: which slices are kept on the driver, and which on the executors.

Selections over the same groups are placed together. New ones follow those that are there; the others stay on
the driver until a batch shows that they are too many for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from transom.kernel.stacked_sheets import Sheets
from transom.plan.compiled_query import CompiledQuery
from transom.plan.context import Membership, Observed, PlanContext
from transom.plan.decisions import Choice, PlacementDecision
from transom.plan.strategy import Place, Strategy
from transom.plan.subject import Subject
from transom.state.state import State, StoreState

PLACEMENT = "placement"  # the name of the pass; the planner also records moved stores under it
EXECUTORS, ON_EXECUTORS = "kept on the executors", "on_executors"  # a choice as text, and its kind
DRIVER, ON_DRIVER = "kept on the driver", "on_driver"
SESSIONS_STAY = "open sessions are merged there with the rows of each batch"
ROWS_STAY = "the rows of each key are numbered there"
Group = tuple[object, ...]


def placement_group(query: CompiledQuery) -> Group:
    """What queries have in common whose slices are kept in the same place: mostly, their groups."""
    bound = query.query
    return (
        bound.stream,
        tuple(key.scalar.sql for key in bound.keys),
        query.naive,
        bound.window.is_shared_by_groups,
    )


def placement(context: PlanContext) -> PlacementDecision | None:
    """Place new selections, and move those that a batch showed to be too large for the driver."""
    if context.observed is not None:
        return _moved(context, context.observed)
    if context.membership is None:
        return None
    return _placed(context, context.membership)


def driver_rows(strategy: Strategy) -> int | None:
    """How many rows of the same groups may be on the driver; None if size decides nothing."""
    return strategy.limits.driver_rows if strategy.place is Place.AUTO else None


# --- selections that are new ---


def _placed(context: PlanContext, membership: Membership) -> PlacementDecision | None:
    new = set(context.new_selections)
    if not new:
        return None
    state, queries, results = context.state, membership.queries, set(membership.result_streams)
    there = _on_executors(context.before, membership)
    selections, choices = dict(state.selections), []
    for name, own in state.queries.items():
        home, query = own.homes[0], queries.get(name)
        if home not in new or query is None:
            continue
        new.discard(home)
        reason = None
        if not query.query.window.is_shared_by_groups:
            stream, about = query.query.stream, Subject.selections([home])
            choices.append(
                Choice(
                    stream, about, DRIVER, SESSIONS_STAY if query.gap is not None else ROWS_STAY, ON_DRIVER
                )
            )
            continue
        if query.naive or query.query.stream in results:
            continue
        if context.strategy.place is Place.EXECUTORS:
            reason = "the setting state is executors"
        elif placement_group(query) in there:
            reason = "other slices of the same groups are there"
        if reason is not None:
            selections[home] = replace(selections[home], on_executors=True)
            choices.append(
                Choice(query.query.stream, Subject.selections([home]), EXECUTORS, reason, ON_EXECUTORS)
            )
    if not choices:
        return None
    return PlacementDecision(choices, state=replace(state, selections=selections))


def _on_executors(state: State, membership: Membership) -> set[Group]:
    """The groups whose slices are on the executors."""
    # A query that joins may have the name of one that leaves: the state is that of the one that leaves.
    joining = {query.name for query in membership.joining}
    return groups_on_executors(state, membership.queries, joining)


def groups_on_executors(
    state: State, queries: Mapping[str, CompiledQuery], left_out: Collection[str] = ()
) -> set[Group]:
    """The groups of queries, without some, whose slices are on the executors."""
    if not any(selection.on_executors for selection in state.selections.values()):
        return set()
    return {
        placement_group(queries[name])
        for name, query_state in state.queries.items()
        if name in queries and name not in left_out and state.selections[query_state.homes[0]].on_executors
    }


# --- selections that a batch added to ---


def _moved(context: PlanContext, observed: Observed) -> PlacementDecision | None:
    """Move the groups of which a batch brought shards, or which have more rows than the driver may keep."""
    limit = driver_rows(context.strategy)
    at_once = None if limit is None else limit // context.limits.batches_to_limit
    if not observed.shards and not _exceeds(observed, limit, at_once):
        return None  # the usual case, decided by a few sums
    groups: dict[int, Group] = {
        home: placement_group(query)
        for query in context.observed_queries
        if not query.naive and query.query.window.is_shared_by_groups
        for home in context.state.queries[query.name].homes
    }
    on_driver = {home for home in groups if not context.state.selections[home].on_executors}
    reasons: dict[Group, str] = {}
    for group, count in _larger(observed.held, groups, limit):
        reasons[group] = f"{count:,} rows on the driver, more than {limit:,}"
    for group, count in _larger(observed.brought, groups, at_once):
        reasons.setdefault(group, f"one batch brought {count:,} rows, more than {at_once:,}")
    for home in (home for ref in observed.shards for home in ref.held if home in on_driver):
        most = context.limits.driver_groups
        reasons[groups[home]] = f"a task found more than {most:,} groups, or others of them are there"
    moving = {home: groups[home] for home in sorted(on_driver) if groups[home] in reasons}
    if not moving:
        return None
    choices = [
        Choice(str(group[0]), Subject.selections([home]), EXECUTORS, reasons[group], ON_EXECUTORS)
        for home, group in moving.items()
    ]
    return PlacementDecision(choices, moved=frozenset(moving.values()))


def _exceeds(observed: Observed, limit: int | None, at_once: int | None) -> bool:
    """Whether all slices together have more rows than those of one group may have."""
    if limit is None or at_once is None:
        return False
    return Sheets.of(observed.brought).cells > at_once or Sheets.of(observed.held).cells > limit


def _larger(
    sheets: Mapping[str, pa.Table], groups: Mapping[int, Group], most: int | None
) -> Iterator[tuple[Group, int]]:
    """The groups whose selections have more rows than so many, with their rows; None: none has."""
    if most is None or Sheets.of(sheets).cells <= most:
        return
    counts: dict[Group, int] = defaultdict(int)
    for selections in Sheets.of(sheets).selections():
        homes, rows = np.unique(selections, return_counts=True)
        for home, count in zip(homes.tolist(), rows.tolist(), strict=True):
            if home in groups:
                counts[groups[home]] += count
    yield from ((group, count) for group, count in counts.items() if count > most)


# --- stores of on-demand queries ---


def stores_that_move(stores: Sequence[StoreState], strategy: Strategy) -> str | None:
    """Why stores over the same groups, the first of the groups themselves, move to the executors now.

    None: they stay where they are.
    """
    if any(store.on_executors for store in stores):
        left = any(store.tiers.runs or not store.on_executors for store in stores)
        return "other stores of the same groups are there" if left else None
    limit = driver_rows(strategy)
    if limit is None:
        return None
    most = limit // strategy.limits.rows_per_store_group
    groups = max((run.groups for run in stores[0].tiers.runs), default=0)
    return f"{groups:,} groups, more than {most:,}" if groups > most else None


# --- tuples of summaries ---


def summary_that_moves(tuples: int, strategy: Strategy) -> str | None:
    """Why the tuples of a summary move to the executors now; None: they stay on the driver."""
    most = strategy.limits.driver_tuples
    if strategy.place is not Place.AUTO or tuples <= most:
        return None
    return f"{tuples:,} tuples on the driver, more than {most:,}"
