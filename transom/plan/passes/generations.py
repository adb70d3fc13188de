"""Generations: which selections are young, so that families of their own are planned for them.

Young selections cost a few more families in the kernel. In exchange, a query that joins does not make the families of
all others anew. All selections become one generation when too many are young, and always while there are few: then a
plan of all costs little.
"""

from __future__ import annotations

from dataclasses import replace

from transom.plan.context import PlanContext
from transom.plan.decisions import Decision


def generations(context: PlanContext) -> Decision | None:
    """Let all selections be planned together when too many are young, or all of them are few."""
    state, limits = context.state, context.limits
    if state.selections is context.before.selections or state.young_after >= state.last_selection:
        return None
    young = sum(home > state.young_after for home in state.selections)
    are_few = len(state.selections) < limits.old_per_young * limits.young_selections
    if young <= limits.young_selections and not are_few:
        return None
    return Decision(state=replace(state, young_after=state.last_selection))
