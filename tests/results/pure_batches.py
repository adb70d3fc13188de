"""An engine of pure functions over one stream, for tests that script its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.results.in_process import advance, folded
from transom.elements import Clock, ClockKind, Prod, Punctuation
from transom.kernel.aggregate import Outcome
from transom.ondemand.cache import LookupCache
from transom.ondemand.lookup import Lookup, look_up, lookup_result
from transom.ondemand.stores import lookup_end
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership
from transom.plan.passes.stores import store_sets
from transom.plan.planner import Planner
from transom.plan.strategy import Strategy
from transom.results.batch_input import BatchInput
from transom.sql import Catalog, Query, Relation
from transom.sql.binding.cascades import bind_all
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.state import snapshot
from transom.state.commit_record import CommitRecord
from transom.state.state import State
from transom.windows.stream_rules import StreamRules

SCALARS = InterpretedScalars()
Row = dict[str, Any]


class Pure:
    """Queries over a stream `s` with an integer time `t`, batch by batch."""

    def __init__(
        self,
        texts: Mapping[str, str],
        columns: Mapping[str, pa.DataType],
        slack: int | None = None,
        strategy: Strategy | None = None,
        restart: bool = False,
    ):
        self.columns = {"t": pa.int64(), **columns}
        self.clock = Clock("s", "t", ClockKind.INTEGER)
        self.rules, self.restart = StreamRules(self.clock, slack), restart
        self.planner, self.state = Planner(strategy or Strategy()), State()
        self.living: dict[str, CompiledQuery] = {}
        self.results: list[tuple[str, Row]] = []
        self.now, self.lookup_cache = 0, LookupCache()
        self.register(texts)

    def register(self, texts: Mapping[str, str], partial: Sequence[str] = ()) -> None:
        catalog = Catalog({"s": Relation("s", self.columns, "t")})
        known = {name: query.query for name, query in self.living.items()}
        joining = []
        for name, query in bind_all(texts, catalog, SCALARS, known).items():
            assert isinstance(query, Query), query
            joining.append(compile_query(name, query))
        self.living |= {query.name: query for query in joining}
        results = {query.query.stream for query in joining} - {"s"}
        standing = [query for query in joining if query.is_standing]
        kept = self.planner.all_store_sets(self.looking())
        membership = Membership(self._standing(), standing, (), partial, kept, results)
        self.state = self.planner.begin(self.state, membership)

    def drop(self, *names: str) -> None:
        for name in names:
            del self.living[name]
        kept = self.planner.all_store_sets(self.looking())
        membership = Membership(self._standing(), leaving=names, store_sets=kept)
        self.state = self.planner.begin(self.state, membership)

    def _standing(self) -> dict[str, CompiledQuery]:
        return {name: query for name, query in self.living.items() if query.is_standing}

    def looking(self, stream: str | None = None) -> list[CompiledQuery]:
        """The on-demand queries, of one stream or of all."""
        everyone = self.living.values()
        return [q for q in everyone if q.is_on_demand and stream in (None, q.query.stream)]

    def batch(
        self,
        rows: Sequence[tuple[Any, ...]] = (),
        prods: Sequence[Prod] = (),
        until: int | None = None,
        where: Mapping[str, Any] | None = None,
        ended: bool = False,
        now: int | None = None,
    ) -> list[tuple[str, Row]]:
        """Run a batch; what it tells, as (query, row)."""
        self.now = self.now if now is None else now
        queries = [query for query in self._standing().values() if query.query.stream == "s"]
        kept = store_sets(self.looking("s"))
        outcome = Outcome()
        if rows:
            columns = zip(*rows, strict=True)
            table = pa.table(
                {
                    name: pa.array(list(values), kind)
                    for (name, kind), values in zip(self.columns.items(), columns, strict=True)
                }
            )
            outcome = folded(table, queries, self.rules, self.state, self.planner, SCALARS, kept)
        said = [] if until is None else [Punctuation(self.clock, until, where=tuple((where or {}).items()))]
        given = BatchInput(self.rules, queries, outcome, said, ended, clock=self.now, store_sets=kept)
        living = list(self.living.values())
        done = advance(
            self.state, [given], SCALARS, clock=self.now, prods=prods, living=living, planner=self.planner
        )
        self.state = done.state
        self.lookup_cache.batch_committed(self.state, outcome.runs, store_sets(self.looking()))
        if self.restart:
            self.state, _ = snapshot.loads(snapshot.dumps(self.state, CommitRecord("local")))
            self.lookup_cache = LookupCache()
        told = [(name, row) for name, table in done.results.items() for row in table.to_pylist()]
        self.results += told
        return told

    def lookup(self, name: str, length: int | None = None, at: int | None = None, **where: Any) -> list[Row]:
        """What a query is answered now, for its own window or a shorter one."""
        query = self.living[name]
        end = at or lookup_end(query.clock, self.state.stream(query.query.stream))
        if end is None:
            return []
        pattern = tuple((query.key_columns[column], (value,)) for column, value in where.items())
        asked = Lookup.over(query, length or query.query.window.range, end, pattern, at is not None)
        answer = look_up(asked, self.lookup_cache.reader(asked, self.state))
        return lookup_result(answer, self.state, SCALARS).to_pylist()

    def prod(self, until: int | None = None, exactly: bool = False, **where: Any) -> Prod:
        return Prod(self.clock, until, exactly, tuple(where.items()))
