"""The second half of a page: windows closed near and far; what fails in one query suspends that query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from transom.elements import Kind, Prod
from transom.errors import PageError
from transom.final.early import sweep
from transom.final.page import PageOutput, conclude
from transom.final.prodder import look, only_told
from transom.final.results import Lowered, Moment, Results, finish
from transom.final.streams import PageInput
from transom.spark.far import Far
from transom.spark.outputs import Outputs, results_of
from transom.spark.registry import Registry
from transom.spark.scalars import SparkScalars, short_message
from transom.spark.suspending import suspend_failed, suspend_failing
from transom.state.state import State


class SecondHalf:
    """Turns what a page's rows came to into results and the next state."""

    def __init__(self, scalars: SparkScalars, outputs: Outputs, far: Far):
        self.scalars, self.outputs, self.far = scalars, outputs, far

    def process(
        self,
        state: State,
        inputs: Sequence[PageInput],
        registry: Registry,
        prods: Sequence[Prod],
        clock: int,
        made: int,
    ) -> PageOutput:
        """Close the windows that close with a page, and read those that are prodded.

        `clock` is the page's, the same if it is run again; `made` is the time now.
        """
        done = conclude(state, inputs, self.far.shelf(state))
        page = done.state.page
        self.outputs.clear_results(page)
        telling = look(done.state, inputs, prods, clock)
        partial = frozenset().union(*(one.partial for one in inputs))
        swept = sweep(done.state, telling.asks, registry.living(), partial)
        final, early = Moment(page, Kind.FINAL, made), Moment(page, Kind.EARLY, made)
        works = {final: done.far, early: swept.far}
        far = self.far.close(works, lambda name: registry[name].identity, results_of(page))
        suspend_failed(registry, far.failed)
        results = self._finished(done.closed, final, registry)
        told = only_told(self._finished(swept.open, early, registry), telling, registry.compiled())
        after = self.far.rolled_up(done.state, registry.living())
        after = replace(after, prodders=telling.prodders or {})
        batches = [*results.batches, *told.batches]
        return PageOutput(after, Results(batches, far.stored), done.finals + far.steps)

    def _finished(self, closed: Sequence[Lowered], moment: Moment, registry: Registry) -> Results:
        """Apply the SELECT lists; a query that can't because of a function of its own is suspended."""
        living = [one for one in closed if registry[one.queries[0].name].suspended is None]
        try:
            return finish(living, moment, self.scalars)
        except Exception as error:
            tried = {
                query.name: partial(finish, [one], moment, self.scalars)
                for one in living
                for query in one.queries
                if query.query.functions
            }
            if not suspend_failing(registry, tried):
                raise PageError(f"page {moment.page} failed: {short_message(error)}") from error
        return self._finished(living, moment, registry)
