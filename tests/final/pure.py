"""An engine of pure functions over one stream, for tests that script its pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from transom import oracle
from transom.control.rules import StreamRules
from transom.elements import Clock, ClockKind, Prod, Punctuation
from transom.final.inprocess import advance, folded
from transom.final.members import Strategy, admit, release
from transom.final.planning import Planner
from transom.final.streams import PageInput
from transom.partial.kernel import Outcome
from transom.plan.compiled import CompiledQuery, compile_query
from transom.sql import Catalog, Query, Relation
from transom.sql.derived import bind_all
from transom.state import snapshot
from transom.state.state import State

SCALARS = oracle.PythonScalars()
Row = dict[str, Any]


class Pure:
    """Queries over a stream `s` with an integer time `t`, page by page."""

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
        self.now = 0
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
        strategy = self.planner.strategy
        self.state = admit(self.state, joining, self.living, strategy, partial, results)

    def drop(self, *names: str) -> None:
        for name in names:
            del self.living[name]
        self.state = release(self.state, names, self.living)

    def page(
        self,
        rows: Sequence[tuple[Any, ...]] = (),
        prods: Sequence[Prod] = (),
        until: int | None = None,
        where: Mapping[str, Any] | None = None,
        ended: bool = False,
        now: int | None = None,
    ) -> list[tuple[str, Row]]:
        """Run a page; what it tells, as (query, row)."""
        self.now = self.now if now is None else now
        queries = [query for query in self.living.values() if query.query.stream == "s"]
        outcome = Outcome()
        if rows:
            columns = zip(*rows, strict=True)
            table = pa.table(
                {
                    name: pa.array(list(values), kind)
                    for (name, kind), values in zip(self.columns.items(), columns, strict=True)
                }
            )
            outcome = folded(table, queries, self.rules, self.state, self.planner, SCALARS)
        said = [] if until is None else [Punctuation(self.clock, until, where=tuple((where or {}).items()))]
        given = PageInput(self.rules, queries, outcome, said, ended, clock=self.now)
        living = list(self.living.values())
        done = advance(
            self.state, [given], SCALARS, clock=self.now, prods=prods, living=living, planner=self.planner
        )
        self.state = done.state
        if self.restart:
            self.state, _ = snapshot.loads(snapshot.dumps(self.state, {}))
        told = [(name, row) for name, table in done.results.items() for row in table.to_pylist()]
        self.results += told
        return told

    def prod(self, until: int | None = None, exactly: bool = False, **where: Any) -> Prod:
        return Prod(self.clock, until, exactly, tuple(where.items()))
