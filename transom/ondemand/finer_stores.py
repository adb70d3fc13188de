"""Stores of finer groups: they answer a query with fewer group columns, or with conditions on group columns.

A store by site and item also answers a query by site (the states of its items are combined), and a query
`WHERE item = 7` (its other groups are left out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator
from transom.columns.arrays import Ints
from transom.columns.groups import group
from transom.kernel.predicates import evaluate
from transom.ondemand.store_specs import StoreSet
from transom.ondemand.structures.runs import GroupAnswers, GroupPattern, Structure
from transom.ondemand.structures.window_entries import combine_states
from transom.plan.compiled_query import CompiledQuery
from transom.sql.query import Comparison, Member, Predicate, Scalar, scalars_of


@dataclass(frozen=True)
class FinerStores:
    """How a query reads the stores of a `selection` whose groups, by `keys`, are finer than its own.

    `places` are the query's group columns among the keys. `conditions` are the parts of its WHERE that the stores
    do not have; they compare keys.
    """

    selection: str
    keys: tuple[Scalar, ...]
    places: tuple[int, ...]
    conditions: tuple[Predicate, ...]

    @property
    def combines(self) -> bool:
        """Whether several groups of the stores belong to one group of the query."""
        return len(self.places) < len(self.keys)

    def pattern(self, where: GroupPattern) -> GroupPattern:
        """A pattern on the query's groups, and conditions that name values, as a pattern on the stores' groups."""
        return (*((self.places[place], values) for place, values in where), *self._named(where))

    def _named(self, where: GroupPattern) -> GroupPattern:
        taken = {self.places[place] for place, _ in where}
        return tuple((place, values) for place, values in self._values.items() if place not in taken)

    @cached_property
    def _values(self) -> dict[int, tuple[Any, ...]]:
        """The values that conditions allow for a key, if they list them."""
        found: dict[int, tuple[Any, ...]] = {}
        for condition in self.conditions:
            match condition:
                case Comparison(scalar, "=", value):
                    values = (value,)
                case Member(scalar, values):
                    pass
                case _:
                    continue
            if all(_is_of_type(value, scalar.type) for value in values):
                found.setdefault(self._place(scalar), tuple(values))
        return found

    def _place(self, scalar: Scalar) -> int:
        return next(place for place, key in enumerate(self.keys) if key.sql == scalar.sql)

    def regrouped(self, answers: GroupAnswers, structure: Structure) -> GroupAnswers:
        """The answers for the query's groups, from those for the stores' groups."""
        chosen = self._chosen(answers)
        if not len(chosen):
            return GroupAnswers(tuple(pa.nulls(0, self.keys[place].type) for place in self.places), 0, {})
        columns = {name: column.take(pa.array(chosen)) for name, column in answers.columns.items()}
        keys = tuple(answers.keys[place].take(pa.array(chosen)) for place in self.places)
        taken = GroupAnswers(keys, len(chosen), columns)
        return combine_answers(taken, structure) if self.combines else taken

    def _chosen(self, answers: GroupAnswers) -> Ints:
        is_chosen = np.ones(answers.count, bool)
        for condition in self.conditions if answers.count else ():
            truth = evaluate(condition, lambda scalar: answers.keys[self._place(scalar)])
            is_chosen &= truth.fill_null(False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(is_chosen)


def concatenate_answers(parts: Sequence[GroupAnswers]) -> GroupAnswers:
    """Answers for different groups as one."""
    filled = [part for part in parts if part.count] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    keys = [pa.concat_arrays(columns) for columns in zip(*(part.keys for part in filled), strict=True)]
    columns = {name: pa.concat_arrays([part.columns[name] for part in filled]) for name in filled[0].columns}
    return GroupAnswers(tuple(keys), sum(part.count for part in filled), columns)


def combine_answers(answers: GroupAnswers, structure: Structure) -> GroupAnswers:
    """Answers in which groups occur repeatedly, with the states of each group combined."""
    if not answers.count:
        return answers
    groups = group(answers.keys, answers.count)
    accumulator: Accumulator = structure.accumulator  # type: ignore[attr-defined]
    states = [answers.columns[f"s{i}"] for i in range(len(accumulator.types()))]
    states = combine_states(accumulator, states, groups.codes, groups.count)
    firsts = pa.array(groups.firsts)
    by_name = {f"s{i}": state for i, state in enumerate(states)}
    return GroupAnswers(tuple(key.take(firsts) for key in answers.keys), groups.count, by_name)


def finer_stores(query: CompiledQuery, store_set: StoreSet, reader: CompiledQuery) -> FinerStores | None:
    """How a query can read the stores of a store set, of which `reader` is a query; None if it can't."""
    mine, theirs = query.query, reader.query
    if (mine.stream, query.clock, _joins(query)) != (theirs.stream, reader.clock, _joins(reader)):
        return None
    if not set(reader.conjunct_texts) <= set(query.conjunct_texts):
        return None
    places: Mapping[str, int] = {key.sql: place for place, key in enumerate(store_set.keys)}
    pairs = zip(query.conjuncts, query.conjunct_texts, strict=True)
    conditions = tuple(part for part, text in pairs if text not in reader.conjunct_texts)
    compared = {scalar.sql for part in conditions for scalar in scalars_of(part)}
    wanted = [key.scalar.sql for key in mine.keys]
    if not (compared | set(wanted)) <= places.keys() or len(set(wanted)) < len(wanted):
        return None
    return FinerStores(store_set.selection, store_set.keys, tuple(places[sql] for sql in wanted), conditions)


def _joins(query: CompiledQuery) -> frozenset[str]:
    return frozenset(join.id for join in query.query.joins)


def _is_of_type(value: Any, type: pa.DataType) -> bool:
    try:
        return bool(pa.scalar(value, type).as_py() == value)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return False
