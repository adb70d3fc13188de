"""The second half of a page: windows closed near and far; what fails in one query suspends that query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from transom.elements import Kind
from transom.errors import PageError
from transom.final.page import PageOutput, conclude
from transom.final.results import Lowered, Results, finish
from transom.final.streams import PageInput
from transom.spark.far import Far
from transom.spark.outputs import Outputs
from transom.spark.registry import Registry
from transom.spark.scalars import SparkScalars, short_message
from transom.spark.suspending import suspend_failed, suspend_failing
from transom.state.state import State


class SecondHalf:
    """Turns what a page's rows came to into results and the next state."""

    def __init__(self, scalars: SparkScalars, outputs: Outputs, far: Far):
        self.scalars, self.outputs, self.far = scalars, outputs, far

    def process(self, state: State, inputs: Sequence[PageInput], registry: Registry) -> PageOutput:
        """Close the windows that close with a page."""
        done = conclude(state, inputs, self.far.shelf(state))
        page = done.state.page
        self.outputs.clear_results(page)
        far = self.far.close(page, done.far, lambda name: registry[name].identity)
        suspend_failed(registry, far.failed)
        results = self._finished(done.closed, page, registry)
        after = self.far.rolled_up(done.state, registry.living())
        return PageOutput(after, Results(results.batches, far.stored), done.finals + far.steps)

    def _finished(self, closed: Sequence[Lowered], page: int, registry: Registry) -> Results:
        """Apply the SELECT lists; a query that can't because of a function of its own is suspended."""
        try:
            return finish(closed, page, Kind.FINAL, self.scalars)
        except Exception as error:
            tried = {
                query.name: partial(finish, [one], page, Kind.FINAL, self.scalars)
                for one in closed
                for query in one.queries
                if query.query.functions
            }
            if not suspend_failing(registry, tried):
                raise PageError(f"page {page} failed: {short_message(error)}") from error
        living = [one for one in closed if registry[one.queries[0].name].suspended is None]
        return finish(living, page, Kind.FINAL, self.scalars)
