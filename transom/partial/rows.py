"""Rows of a page, with what is evaluated on them kept while they are at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transom.algorithms.grouping import Encoded, Groups, encoded, group, normalized
from transom.partial.fold import Fragmented, Ranges, Tuples
from transom.partial.predicates import evaluate
from transom.partial.sheets import one_array
from transom.plan.families import Family
from transom.plan.text import predicate_text
from transom.sql.query import Predicate, Scalar

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_ALL = Ranges(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.int64))


class Rows:
    """A table whose columns carry scalars; masks and codes are found once, however many queries use them."""

    def __init__(self, table: pa.Table, columns: Mapping[str, str]):
        self.table, self.columns = table.combine_chunks(), columns
        self._codes: dict[str, Encoded] = {}
        self._masks: dict[int, Mask] = {}
        self._texts: dict[str, Mask] = {}
        self._numbers: dict[str, tuple[Numbers, Mask]] = {}
        self._chosen: dict[object, Numbers] = {}
        self._groups: dict[object, tuple[Groups, list[pa.Array]]] = {}
        self._taken: dict[object, pa.Array] = {}

    def taken(self, at: Numbers) -> Rows:
        """Some of the rows."""
        return Rows(self.table.take(pa.array(at)), self.columns)

    def column(self, scalar: Scalar) -> pa.Array:
        return one_array(self.table[self.columns[scalar.sql]])

    def numbers(self, name: str) -> tuple[Numbers, Mask]:
        """An int64 column as numbers (0 where null) and where it is not null."""
        if name not in self._numbers:
            array = one_array(self.table[name])
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            numbers = array.fill_null(0) if array.null_count else array
            self._numbers[name] = numbers.to_numpy(zero_copy_only=False), valid
        return self._numbers[name]

    def truth(self, predicate: Predicate) -> Mask:
        """Where a predicate is true, not false and not null."""
        known = self._masks.get(id(predicate))
        if known is None:
            text = predicate_text(predicate)
            if text not in self._texts:
                truth = evaluate(predicate, self.column)
                self._texts[text] = truth.fill_null(False).to_numpy(zero_copy_only=False)
            known = self._masks[id(predicate)] = self._texts[text]
        return known

    def all_true(self, conjuncts: Sequence[Predicate]) -> Mask:
        """Where all of some predicates are true."""
        mask = np.ones(self.table.num_rows, bool)
        for part in conjuncts:
            mask &= self.truth(part)
        return mask

    def tuples(self, family: Family, clock: str, accepted: Mask) -> tuple[Numbers, Tuples]:
        """The rows that may belong to a family, by number and as its tuples."""
        known = clock, tuple(map(predicate_text, family.rest))
        if known not in self._chosen:
            self._chosen[known] = np.flatnonzero(
                accepted & self.numbers(clock)[1] & self.all_true(family.rest)
            )
        at = self._chosen[known]
        groups, keys = self._grouped(family.keys, at, known)
        whole = len(at) == self.table.num_rows
        values, shown = [], []
        for slot in family.slots:
            if slot.argument is None:
                values.append(pa.nulls(len(at)))
            else:
                values.append(self._values(slot.argument, at, known, whole))
            shown.append(None if slot.where is None else self.truth(slot.where)[at])
        times = self.numbers(clock)[0]
        times = times if whole else times[at]
        return at, Tuples(times, self._fragmented(family, at, known), groups, keys, values, shown)

    def _values(self, scalar: Scalar, at: Numbers, known: object, whole: bool) -> pa.Array:
        if whole:
            return self.column(scalar)
        if (known, scalar.sql) not in self._taken:
            self._taken[known, scalar.sql] = self.column(scalar).take(pa.array(at))
        return self._taken[known, scalar.sql]

    def _grouped(
        self, keys: Sequence[Scalar], at: Numbers, known: object
    ) -> tuple[Groups | None, list[pa.Array]]:
        if not keys:
            return None, []
        name = known, tuple(key.sql for key in keys)
        if name not in self._groups:
            groups = group([self._encoded(key).take(at) for key in keys], len(at))
            firsts = pa.array(at[groups.firsts])
            self._groups[name] = groups, [normalized(self.column(key).take(firsts)) for key in keys]
        return self._groups[name]

    def _encoded(self, scalar: Scalar) -> Encoded:
        """A key column's codes, found once for all queries that group by it."""
        if scalar.sql not in self._codes:
            self._codes[scalar.sql] = encoded(self.column(scalar))
        return self._codes[scalar.sql]

    def _fragmented(self, family: Family, at: Numbers, known: object) -> Fragmented:
        if family.signed:
            return self._signed(family, at)
        if family.axis is None:
            return Fragmented(None, 1, _ALL)
        values = self._values(family.axis.scalar, at, known, len(at) == self.table.num_rows)
        codes = family.axis.codes(values)
        return Fragmented(codes, family.axis.size, Ranges(*family.range_arrays))

    def _signed(self, family: Family, at: Numbers) -> Fragmented:
        """Signatures: bit i of a tuple is whether the i-th distinct conjunct of all members is true."""
        parts = {predicate_text(part): part for member in family.members for part in member.conjuncts}
        places = {text: i for i, text in enumerate(parts)}
        masks = [self.truth(part)[at] for part in parts.values()]
        words = []
        for start in range(0, len(masks), 62):
            word = np.zeros(len(at), np.int64)
            for i, mask in enumerate(masks[start : start + 62]):
                word |= mask.astype(np.int64) << i
            words.append(word)
        found = group(words, len(at))
        truths = np.array([mask[found.firsts] for mask in masks]).reshape(len(masks), found.count)
        owners, fragments = [], []
        for i, member in enumerate(family.members):
            rows = [places[predicate_text(part)] for part in member.conjuncts]
            matched = np.flatnonzero(truths[rows].all(axis=0))
            owners.append(np.full(len(matched), i))
            fragments.append(matched)
        starts = np.concatenate(fragments).astype(np.int64)
        return Fragmented(
            found.codes, found.count, Ranges(np.concatenate(owners).astype(np.int64), starts, starts + 1)
        )
