"""The early decisions of a batch: finals confirm or withdraw them, and looks at open windows make new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.columns.arrays import Floats, Ints, one_array
from transom.elements import Kind
from transom.estimates.condition_margins import ConditionValues, certain, estimated_places, margins
from transom.estimates.early_decisions import ClosedRows, DecisionOutcome, EarlyDecisions, LookRows
from transom.estimates.early_values import Estimates
from transom.estimates.estimator import Estimator
from transom.estimates.marks import marks
from transom.estimates.result_values import ResultValues, compared_items, estimate_columns
from transom.estimates.rising_values import rises
from transom.plan.compiled_query import CompiledQuery
from transom.results.condition_columns import DECISION, condition_items, having_truth
from transom.results.result_rows import ResultBatch, Results, result_schema
from transom.sql.query import Query, Scalar, free_name

_ANNOUNCED, MISSED = "early", "missed"  # in the column of decisions
_WORDS = {
    DecisionOutcome.CONFIRMED: "confirmed",
    DecisionOutcome.WITHDRAWN: "withdrawn",
    DecisionOutcome.MISSED: MISSED,
}


def is_decided(query: CompiledQuery) -> bool:
    """Whether HAVING of a query is decided early."""
    return query.query.early_decision is not None


def undecided(results: Results, queries: Mapping[str, CompiledQuery]) -> list[ResultBatch]:
    """The results of all other queries."""
    return [batch for batch in results.batches if not is_decided(queries[batch.names[0]])]


class BatchDecisions:
    """The decisions of the queries WITH CONFIDENCE while a batch is processed."""

    def __init__(self, before: Mapping[str, Estimator], queries: Mapping[str, CompiledQuery]):
        self._before, self._queries = before, queries
        self.changed: dict[str, EarlyDecisions] = {}

    def settle(
        self, finals: Iterable[ResultValues], made: int, closed: Mapping[str, int]
    ) -> list[ResultBatch]:
        """The finals with what they say about the decisions, and a row for each decision that is withdrawn."""
        batches = []
        for values in finals:
            for name, start, stop in _parts(values):
                if is_decided(self._queries[name]):
                    rows = _Rows(self._queries[name], values, start, stop)
                    decisions, outcome = self._of(name).with_finals(
                        ClosedRows(rows.window, rows.group, rows.truth), rows.final_margin, made
                    )
                    self.changed[name] = decisions
                    batches += _finals(rows, name, outcome)
        for name, window in closed.items():
            if name in self._queries and is_decided(self._queries[name]) and self._known(name) is not None:
                self.changed[name] = self._of(name).since(window)
        return batches

    def announce(
        self, looks: Iterable[tuple[ResultValues, Estimates]], now: Mapping[str, int], made: int
    ) -> list[ResultBatch]:
        """Early results of the windows of which HAVING is decided now."""
        batches = []
        for values, estimates in looks:
            slides_left = values.slides_left(now)
            for name, start, stop in _parts(values):
                rows = _Rows(self._queries[name], values, start, stop)
                own = estimates.take(slice(start, stop))
                look = rows.look(own, slides_left[start:stop], is_final=self._is_final(name))
                self.changed[name], announced = self._of(name).with_looks(look, made)
                if announced.any():
                    batches.append(_announced(rows, name, own, announced))
        return batches

    def _is_final(self, name: str) -> bool:
        """Whether rows that arrived stay: early results of a query below are replaced."""
        return self._queries[name].query.stream not in self._queries

    def _known(self, name: str) -> EarlyDecisions | None:
        if name in self.changed:
            return self.changed[name]
        estimator = self._before.get(name)
        return None if estimator is None else estimator.decisions

    def _of(self, name: str) -> EarlyDecisions:
        known = self._known(name)
        return new_decisions(self._queries[name].query) if known is None else known


def new_decisions(query: Query) -> EarlyDecisions:
    """The decisions of a query about which nothing is known yet."""
    decision = query.early_decision
    assert decision is not None
    return EarlyDecisions.empty(decision.confidence, len(_leaf_places(query)))


def _leaf_places(query: Query) -> list[int]:
    """The place of what each comparison of the condition compares, among the items with estimates."""
    assert query.early_decision is not None
    selected = {item.name for item in query.estimated}
    items = [
        item for item in compared_items(query) if item.name in selected or item in condition_items(query)
    ]
    return estimated_places(
        query.early_decision.condition, {item.sql: place for place, item in enumerate(items)}
    )


@dataclass
class _Rows:
    """The results of one query among those of several."""

    query: CompiledQuery
    values: ResultValues
    start: int
    stop: int

    def __post_init__(self) -> None:
        bound = self.query.query
        mine = slice(self.start, self.stop)
        assert bound.early_decision is not None
        self.condition = bound.early_decision.condition
        self.window, self.group = self.values.window[mine], self.values.group[mine]
        self.numbers: Floats = self.values.numbers[mine][:, _leaf_places(bound)]
        self.table = self.values.batch.table.slice(self.start, self.stop - self.start)
        self.truth = one_array(having_truth(bound, self.table)).to_numpy(zero_copy_only=False)
        self._names = {item.sql: item.name for item in (*condition_items(bound), *bound.items)}

    def column(self, scalar: Scalar) -> pa.Array:
        """The values of an expression that the condition reads."""
        return one_array(self.table[self._names[scalar.sql]])

    def final_margin(self, at: Ints, spread: Floats) -> Floats:
        """The margins of some of the rows, which are finals, in the units of earlier looks."""
        places = pa.array(at)

        def column(scalar: Scalar) -> pa.Array:
            return self.column(scalar).take(places)

        return margins(self.condition, ConditionValues(column, self.numbers[at], spread))

    def look(self, estimates: Estimates, slides_left: Floats, is_final: bool) -> LookRows:
        """The rows as open windows."""
        places = _leaf_places(self.query.query)
        projected, spread = estimates.projected[:, places], estimates.spread[:, places]
        margin = margins(self.condition, ConditionValues(self.column, projected, spread))
        is_certain = np.zeros(len(margin), np.bool_)
        if is_final:
            is_certain = certain(self.condition, self.column, rises(self.query.query))
        mark = marks(slides_left)
        return LookRows(self.window, self.group, slides_left, mark, margin, is_certain, spread)


def _parts(values: ResultValues) -> list[tuple[str, int, int]]:
    bounds = values.batch.bounds.tolist()
    return list(zip(values.batch.names, bounds[:-1], bounds[1:], strict=True))


def _finals(rows: _Rows, name: str, outcome: Ints) -> list[ResultBatch]:
    bound = rows.query.query
    words = np.array([_WORDS.get(DecisionOutcome(code), "") for code in range(len(DecisionOutcome))], object)[
        outcome
    ]
    kind = np.where(outcome == DecisionOutcome.WITHDRAWN, Kind.EARLY.value, Kind.FINAL.value)
    return _batch(bound, name, rows.table, words, kind, np.flatnonzero(outcome != DecisionOutcome.NOTHING))


def _announced(rows: _Rows, name: str, estimates: Estimates, announced: np.ndarray) -> ResultBatch:
    bound = rows.query.query
    words, kind = (
        np.full(len(announced), _ANNOUNCED, object),
        np.full(len(announced), Kind.EARLY.value, object),
    )
    table = estimate_columns(bound, rows.table, estimates)
    return _batch(bound, name, table, words, kind, np.flatnonzero(announced))[0]


def _batch(
    bound: Query, name: str, table: pa.Table, words: np.ndarray, kind: np.ndarray, chosen: Ints
) -> list[ResultBatch]:
    """Some of the results with the word of each, as results of the query."""
    if not len(chosen):
        return []
    schema, taken = result_schema(bound), {item.name for item in bound.items}
    at = pa.array(chosen)
    columns = dict(
        zip(schema.names, (column.take(at) for column in table.columns[: len(schema)]), strict=True)
    )
    columns[free_name(DECISION, taken)] = pa.array(words[chosen].tolist(), pa.string())
    columns[free_name("kind", taken)] = pa.array(kind[chosen].tolist(), pa.string())
    result = pa.Table.from_arrays(list(columns.values()), schema=schema)
    return [ResultBatch([name], np.array([0, len(chosen)]), result)]
