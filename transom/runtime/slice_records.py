"""Records of sealed slices: what a file of them holds, and which queries it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.aggregates.python_aggregates import PythonAggregate
from transom.backends.expressions import at_clock
from transom.columns.arrays import one_array
from transom.elements import WindowSpec
from transom.errors import SettingError
from transom.ingest.streams import Stream
from transom.kernel.predicates import evaluate
from transom.plan.compiled_query import CompiledQuery
from transom.plan.layout import with_slots
from transom.plan.slot_sources import is_answered
from transom.runtime.batch_replay import BatchReplay
from transom.runtime.past_queries import refuse_past
from transom.runtime.slice_tiers import TierRecord, combined_groups, fits
from transom.sql.query import Scalar, scalars_of


@dataclass(frozen=True)
class SliceRecord:
    """What a file of sealed slices holds: its WHERE, group columns and slots, as texts, and its tiers.

    `columns` are the types of the stream's columns when it was made, `zone` the time zone of expressions.
    """

    where: tuple[str, ...]
    keys: tuple[str, ...]
    slots: tuple[str, ...]
    columns: Mapping[str, str]
    zone: str
    tiers: tuple[TierRecord, ...] = ()

    @classmethod
    def of(cls, query: CompiledQuery, replay: BatchReplay, zone: str) -> SliceRecord:
        """The record of a selection without tiers, given one of its queries."""
        keys = tuple(key.scalar.sql for key in query.query.keys)
        types = {name: str(replay.stream.columns[name]) for name in replay.columns}
        where = tuple(sorted(query.conjunct_texts))
        return cls(where, keys, tuple(slot.id for slot in replay.selection.slots), types, zone)

    def answers(self, query: CompiledQuery, stream: Stream, zone: str) -> bool:
        """Whether a query can be answered from the slices: of the same rows, or of those with some group values."""
        texts, keys = set(query.conjunct_texts), {key.scalar.sql for key in query.query.keys}
        if not set(self.where) <= texts or not is_answered(query, self.slots) or zone != self.zone:
            return False
        compared = {scalar.sql for one in self.conditions(query) for scalar in scalars_of(one)}
        if not keys | compared <= set(self.keys):
            return False
        return all(str(stream.columns.get(name)) == kind for name, kind in self.columns.items())

    def conditions(self, query: CompiledQuery) -> list[Any]:
        """The parts of a query's WHERE that the slices do not have."""
        pairs = zip(query.conjuncts, query.conjunct_texts, strict=True)
        return [part for part, text in pairs if text not in self.where]

    def tier(self, window: WindowSpec) -> int | None:
        """The place of the coarsest tier of which windows are made; None if there is none."""
        places = [place for place, one in enumerate(self.tiers) if fits(window, one.unit)]
        return places[-1] if places else None

    def read(self, table: pa.Table, replay: BatchReplay) -> pa.Table:
        """The slices of a tier as those of a replayed query."""
        selection, query = replay.selection, replay.query
        places = {sql: f"k{place}" for place, sql in enumerate(self.keys)}

        def column(scalar: Scalar) -> pa.Array:
            return one_array(table[places[scalar.sql]])

        for condition in self.conditions(query):
            table = table.filter(evaluate(condition, column).fill_null(False))
        rows = with_slots(table, self.slots, selection.slots)
        own_keys = [table[places[key.scalar.sql]] for key in query.query.keys]
        columns = dict(zip(selection.layout.key_names, own_keys, strict=True))
        schema = selection.layout.schema
        rows = pa.table({name: columns[name] if name in columns else rows[name] for name in schema.names})
        own = pa.repeat(pa.scalar(selection.id, pa.int64()), rows.num_rows)
        rows = rows.set_column(0, rows.schema.field(0), own)
        return rows if len(query.query.keys) == len(self.keys) else combined_groups(selection.layout, rows)

    def packed(self) -> bytes:
        tiers = [one.to_json() for one in self.tiers]
        return json.dumps({**vars(self), "tiers": tiers}).encode()

    @classmethod
    def unpacked(cls, packed: bytes) -> SliceRecord:
        stored = json.loads(packed)
        lists = {name: tuple(stored[name]) for name in ("where", "keys", "slots")}
        return cls(**{**stored, **lists, "tiers": tuple(map(TierRecord.from_json, stored["tiers"]))})


def may_have_slices(query: CompiledQuery, stream: Stream) -> bool:
    """Whether slices can answer a query: their size does not grow with the rows, and they are the same at any time."""
    bound = query.query
    try:
        refuse_past("", bound, stream)
    except SettingError:
        return False
    if query.naive or query.reads_earlier_windows or bound.joins or bound.functions:
        return False
    if any(isinstance(function, PythonAggregate) for function in query.functions):
        return False
    grows = any(slot.accumulator.traits.growth is not None for slot in query.slots)
    return not grows and not any(at_clock(text, 0) != text for text in bound.scalar_texts)
