"""Queries that come and go with a page: what the registry and the state are then."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from transom.elements import Drop, Register
from transom.final.demanding import opened
from transom.final.members import admit, release
from transom.final.planning import Planner
from transom.plan.compiled import CompiledQuery
from transom.spark.log import Begun
from transom.spark.registry import Registry
from transom.sql.query import Query
from transom.state.state import State


def joined_and_left(
    begun: Begun,
    registry: Registry,
    bound: Mapping[str, Query],
    state: State,
    planner: Planner,
    declared: Collection[str],
) -> State:
    """The state after the page's queries joined and left; the registry is changed.

    `bound` are the queries that join, by their texts, and `declared` the streams that are there: all others
    that queries read are results.
    """
    joining: dict[str, CompiledQuery] = {}
    leaving: dict[str, None] = {}
    for element in begun.control:
        match element:
            case Register(name, text):
                joining[name] = registry.add(element, bound[text], begun.page)
            case Drop(name):
                registry.remove(element)
                if joining.pop(name, None) is None:
                    leaving[name] = None
    living, strategy = registry.compiled(), planner.strategy
    gone = (name for name in state.queries if name not in living)  # suspended since they joined
    state = release(state, dict.fromkeys([*leaving, *gone]), living)
    partial = [name for name in joining if registry[name].partial]
    results = {query.query.stream for query in registry.everyone()} - set(declared)
    standing = [query for query in joining.values() if query.query.demand is None]
    state = admit(state, standing, living, strategy, partial, results)
    return opened(state, planner.gathered(registry.demanding()), strategy.place, results)
