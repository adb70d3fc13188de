"""The planner's passes, in the order in which they run: one decision a file.

A pass is a name and a function from a `PlanContext` to a `Decision` with its reasons, or None where the context
asks nothing of it. A program adds passes of its own: `Engine(passes=(*PASSES, Pass("my_pass", my_function)))`.
"""

from transom.plan.context import Pass
from transom.plan.passes.admission import admission
from transom.plan.passes.families import families
from transom.plan.passes.generations import generations
from transom.plan.passes.placement import PLACEMENT, placement
from transom.plan.passes.reshare import reshare
from transom.plan.passes.rollups import rollups
from transom.plan.passes.stores import stores

PASSES: tuple[Pass, ...] = (
    Pass("admission", admission),
    Pass("reshare", reshare),
    Pass("generations", generations),
    Pass("families", families),
    Pass("rollups", rollups),
    Pass(PLACEMENT, placement),
    Pass("stores", stores),
)

__all__ = ["PASSES", "Pass"]
