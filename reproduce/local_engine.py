"""The engine without Spark, for experiments: one stream, Arrow tables as batches, the clock given with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from reproduce.in_process import advance, folded
from transom.durations import format_duration, parse_duration
from transom.elements import Clock, ClockKind, Prod, Punctuation
from transom.errors import SettingError, SQLError
from transom.kernel.aggregate import Outcome
from transom.ondemand.cache import LookupCache
from transom.ondemand.lookup import Lookup, group_pattern, look_up, lookup_result, lookup_schema
from transom.ondemand.store_specs import store_sets
from transom.ondemand.stores import lookup_end
from transom.overload.chunks import NO_BURST, BurstOutcome
from transom.overload.settings import Overload
from transom.plan.compiled_query import CompiledQuery, compile_query
from transom.plan.context import Membership
from transom.plan.planner import Planner
from transom.plan.strategy import Strategy
from transom.results.emit import BatchOutput
from transom.results.result_rows import result_schema
from transom.results.stream_progress import BatchInput
from transom.sql import bind
from transom.sql.catalog import Catalog, Relation
from transom.sql.interpreter.scalars import InterpretedScalars
from transom.state.state import State
from transom.windows.stream_rules import StreamRules

INSTANT = pa.timestamp("us", tz="UTC")


class LocalEngine:
    """Standing queries over one stream, batch by batch, in this process.

    Every query joins before the first batch. `slack` None means that windows close by punctuations. With
    `live`, marks of EMIT EARLY are passed by the clock that batches are given, not by their rows alone.

    >>> engine = LocalEngine("s", {"v": pa.int64(), "ts": INSTANT}, "ts",
    ...     {"n": "SELECT count(*) AS n FROM s [RANGE 1 minute SLIDE 1 minute]"})
    >>> rows = pa.table({"v": [1, 2], "ts": pa.array([0, 59_000_000]).cast(INSTANT)})
    >>> _ = engine.batch(rows, ended=True)
    >>> engine.results("n")["n"].to_pylist()
    [2]

    Queries without SLIDE are looked up, for their own window or a shorter one:

    >>> engine = LocalEngine("s", {"v": pa.int64(), "ts": INSTANT}, "ts",
    ...     {"top": "SELECT max(v) AS top FROM s [RANGE 1 minute]"})
    >>> _ = engine.batch(rows)
    >>> engine.lookup("top")["top"].to_pylist(), engine.lookup("top", "30 seconds")["window_start"][0].value
    ([2], 29000001)
    """

    def __init__(
        self,
        stream: str,
        columns: Mapping[str, pa.DataType],
        time: str,
        queries: Mapping[str, str],
        *,
        slack: str | int | None = 0,
        live: bool = False,
        overload: Overload | None = None,
        strategy: Strategy | None = None,
    ):
        self.scalars = InterpretedScalars()
        self.time = Clock(stream, time, ClockKind.TIME)
        waits = None if slack is None else parse_duration(slack)
        self.rules = StreamRules(self.time, waits, live=live, overload=overload)
        self.planner = Planner(strategy or Strategy())
        catalog = Catalog({stream: Relation(stream, columns, time)})
        compiled = list(self._compiled(queries, catalog))
        self.queries = [query for query in compiled if query.is_standing]
        self.looking = {query.name: query for query in compiled if query.is_on_demand}
        self.store_sets = store_sets(list(self.looking.values()))
        living = {query.name: query for query in self.queries}
        membership = Membership(living, self.queries, store_sets=self.store_sets)
        self.state, self.lookup_cache = self.planner.begin(State(), membership), LookupCache()
        self._results: dict[str, list[pa.Table]] = {name: [] for name in queries}

    def _compiled(self, texts: Mapping[str, str], catalog: Catalog) -> Iterator[CompiledQuery]:
        for name, bound in bind(dict(texts), catalog, self.scalars).items():
            if isinstance(bound, SQLError):
                raise bound
            if bound.joins or bound.clock.kind is ClockKind.ROWS:
                raise SettingError(f"{name}: joins and ROWS windows need the whole engine")
            yield compile_query(name, bound, False)

    def batch(
        self,
        rows: pa.Table | None = None,
        *,
        clock: int = 0,
        punctuations: Sequence[Punctuation] = (),
        prods: Sequence[Prod] = (),
        ended: bool = False,
        burst: BurstOutcome = NO_BURST,
    ) -> BatchOutput:
        """Process a batch; its early and final results are also added to those of before.

        `burst` says which of the rows were resumed, and which others are sidelined.
        """
        outcome = Outcome()
        if rows is not None and rows.num_rows:
            outcome = folded(
                rows, self.queries, self.rules, self.state, self.planner, self.scalars, self.store_sets
            )
        given = BatchInput(
            self.rules,
            self.queries,
            outcome,
            punctuations,
            ended,
            clock=clock,
            burst=burst,
            store_sets=self.store_sets,
        )
        output = advance(self.state, [given], self.scalars, clock=clock, prods=prods)
        for name, table in output.results.items():
            self._results[name].append(table)
        self.state = output.state
        self.lookup_cache.batch_committed(self.state, outcome.runs, self.store_sets)
        return output

    def lookup(
        self, name: str, length: str | int | None = None, where: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """The current answer of an on-demand query, for its window or a shorter one."""
        query = self.looking[name]
        end = lookup_end(query.clock, self.state.stream(self.time.stream))
        if end is None:
            return lookup_schema(query.query).empty_table()
        whole = query.query.window.range
        reach = whole if length is None else parse_duration(length)
        if not 0 < reach <= whole:
            most = format_duration(whole)
            raise SettingError(f"{name} has a window of {most}: it can't be looked up for {length}")
        asked = Lookup.over(query, reach, end, group_pattern(query, where))
        answer = look_up(asked, self.lookup_cache.reader(asked, self.state))
        return lookup_result(answer, self.state, self.scalars)

    def results(self, name: str) -> pa.Table:
        """All results of a query so far, in the order in which they were made."""
        found = self._results[name]
        schema = result_schema(next(query.query for query in self.queries if query.name == name))
        return pa.concat_tables(found) if found else schema.empty_table()

    def punctuation(self, until: int, where: tuple[tuple[str, Any], ...] = ()) -> Punctuation:
        """No more rows up to there, of a group or of all."""
        return Punctuation(self.time, until, None, where)
