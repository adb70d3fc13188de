"""The planner's passes, in the order in which they run: one decision a file.

A pass is a function from a `PlanContext` to a `Decision` with its reasons, or None where the context asks
nothing of it. A program adds passes of its own behind these: `Planner(passes=(*PASSES, my_pass))`.
"""

from transom.plan.context import Pass
from transom.plan.passes.admission import admission
from transom.plan.passes.families import families
from transom.plan.passes.placement import placement
from transom.plan.passes.reshare import reshare
from transom.plan.passes.rollups import rollups
from transom.plan.passes.stores import stores

PASSES: tuple[Pass, ...] = (admission, reshare, families, rollups, placement, stores)

__all__ = ["PASSES", "Pass"]
