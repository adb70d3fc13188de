"""Binds the texts of queries, thousands at a time."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Hashable, Iterator, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from transom.columns.types import has_sort_order
from transom.elements import Emit, Using
from transom.errors import SettingError, SQLError
from transom.gc_pause import pause_garbage_collection
from transom.sql.alert_checks import check_alert_clause
from transom.sql.binding.aggregate_calls import Draft, result_type
from transom.sql.binding.combined_pairs import combine_pairs
from transom.sql.binding.corrections import check_corrections
from transom.sql.binding.early_conditions import EarlyConditionBinder
from transom.sql.binding.empty_windows import check_empty_windows
from transom.sql.binding.expression_types import ScalarBinder, Steps, Typer, TypeTable, run_steps
from transom.sql.binding.grouping_sets import EXPANDED
from transom.sql.binding.inlined_queries import inline_derived_streams
from transom.sql.binding.joins import bind_joins
from transom.sql.binding.predicates import bind_predicate, conjunction
from transom.sql.binding.promises import summarized_promise
from transom.sql.binding.select import WINDOW_STRUCT, SelectBinder
from transom.sql.binding.stream_joins import PairStream
from transom.sql.binding.structure_checks import check_structure
from transom.sql.binding.templates import Cut, Template, cut
from transom.sql.binding.unions_and_explode import relation_of_derived
from transom.sql.catalog import Catalog, Scalars
from transom.sql.clauses.alert import AlertClause
from transom.sql.clauses.confidence import ConfidenceClause
from transom.sql.clauses.end_clauses import read_end_clauses
from transom.sql.clauses.preference import PreferenceClause
from transom.sql.clauses.query_parser import parse
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.early_decision import EarlyDecision
from transom.sql.item_columns import item_columns
from transom.sql.query import Call, Item, Key, Lag, OrderKey, Predicate, Query, Scalar, StreamJoin
from transom.sql.syntax.canonical import bare
from transom.sql.syntax.parsed_query import EndClause, Parsed

MAX_ALIKE = 8  # templates per text without constants; more would rarely be used again
MAX_TEMPLATES = 1_000
MAX_ENDS = 1_000  # different end clauses (EMIT EARLY, USING and so on) per template
MAX_TYPES = 100_000  # cached; short-lived queries must not fill the memory


def bind(texts: Mapping[str, str], catalog: Catalog, scalars: Scalars) -> dict[str, Query | SQLError]:
    """Bind named queries; each gives a query or its own error."""
    return Binding(catalog, scalars).bind(texts)


def bind_one(text: str, catalog: Catalog, scalars: Scalars) -> Query:
    """Bind one query, or raise its error."""
    bound = bind({"": text}, catalog, scalars)[""]
    if isinstance(bound, SQLError):
        raise bound
    return bound


class Binding:
    """Binds queries over one catalog, and caches what they share: templates and types."""

    def __init__(self, catalog: Catalog, scalars: Scalars):
        self.catalog, self.table = catalog, TypeTable(scalars)
        self._readers: dict[Hashable, list[_Reader]] = {}
        self._lock = threading.Lock()  # a template holds one query's constants at a time

    def bind(self, texts: Mapping[str, str]) -> dict[str, Query | SQLError]:
        """Bind named queries; each gives a query or its own error."""
        with self._lock, pause_garbage_collection():
            outcome = self._bind(texts)
            self.table.evict(MAX_TYPES)
        return {name: outcome[name] for name in texts}

    def _bind(self, texts: Mapping[str, str]) -> dict[str, Query | SQLError]:
        running = {name: self._steps(text) for name, text in texts.items()}
        return run_steps(running, texts, self.table)

    def _steps(self, text: str) -> Steps[Query]:
        whole = cut(text)
        alike = self._readers.get(whole.key, [])
        reader = next((one for one in alike if one.template.fits(whole.constants)), None)
        if reader is not None:
            if not reader.is_typed:
                yield  # the first query of a template requests the types that all of them need
            try:
                return (yield from reader.steps(text, whole))
            except SQLError:  # without the template, the error points into the query's own text
                return (yield from _Reader(text, whole, self.catalog, self.table).steps(text, whole))
        reader = _Reader(text, whole, self.catalog, self.table)
        if len(self._readers) >= MAX_TEMPLATES:
            self._readers.clear()
        self._readers[whole.key] = [*alike[1 - MAX_ALIKE :], reader]
        return (yield from reader.steps(text, whole))


def _refuse_preference(parsed: Parsed) -> None:
    for clause in parsed.clauses:
        if isinstance(clause, PreferenceClause):
            parsed.fail_at("a query WITH PREFERENCE is no window query, and can't be used here", clause)


def _window_clauses(clauses: Sequence[EndClause]) -> list[WindowQueryClause]:
    return [clause for clause in clauses if isinstance(clause, WindowQueryClause)]


class _Reader(ScalarBinder):
    """A template that is read once and bound in steps, for its own query and for similar queries.

    Between two steps the missing types are resolved, and other queries may fill in their constants.
    """

    def __init__(self, text: str, whole: Cut, catalog: Catalog, table: TypeTable):
        super().__init__(inline_derived_streams(parse(text), catalog, table.scalars), catalog.utc)
        _refuse_preference(self.parsed)
        if (derived := self.parsed.derived) is not None:
            streams = {**catalog.streams, derived.name: relation_of_derived(derived)}
            catalog = replace(catalog, streams=streams)
        self.table = table
        self.selection = SelectBinder(self.parsed, catalog)
        self.scope = self.selection.scope
        with self.selection.inside("ON"):
            self.joined = bind_joins(self.scope, self.selection.rows)
        self.selection.read()
        if derived is not None and self.selection.windowing.clock.attribute != derived.time:
            self.parsed.fail(
                f"windows over UNION ALL, explode and grouping sets are along the event time, {derived.time}; "
                "use RANGE without WATTR"
            )
        if self.selection.windowing.spec.is_session and self.parsed.select.meta.get(EXPANDED):
            self.parsed.fail(
                "session windows can't have GROUPING SETS, ROLLUP or CUBE; register a query for each set"
            )
        for clause in _window_clauses(self.parsed.clauses):
            clause.check(self.parsed, self.selection.windowing.on_demand)
            if not self.selection.windowing.spec.is_shared_by_groups:
                clause.check_groups(self.parsed)
        ids = tuple(source.id for source in self.scope.sources if source.table)
        inputs = table.over((self.scope.stream.relation.name, ids), self.scope.inputs)
        self.row = Typer(self.parsed, inputs)
        self.template = Template(whole, self.parsed, self.selection, self.joined)
        self._context = ClauseContext(
            self.selection.windowing.clock.kind,
            catalog.qualities,
            lambda promise: summarized_promise(self.parsed, self.scope, promise),
        )
        self._ends = {"": self._bound_clauses(text, ())}  # by the text of the clauses
        if self.parsed.clauses:
            self._ends[self.template.end_text(whole)] = self._bound_clauses(text, self.parsed.clauses)
        self.is_typed = False

    def steps(self, text: str, whole: Cut) -> Steps[Query]:
        """Bind a query that fits the template."""
        where, keys, calls = yield from self.row.build_until_typed(lambda: self._rows(whole))
        end = dict(self._end(whole))
        using, confidence = end.pop("using", None), end.pop(ConfidenceClause.field, None)
        if self.joined.pairs is not None and end.get("overload") is not None:
            self.parsed.fail(
                "ON OVERLOAD is not supported in a join of streams: joined streams have no budget"
            )
        if using is not None:
            check_structure(self.parsed, self.selection, using, calls)
        lags = self.selection.lags.bound(self.selection.windowing)
        columns = self._result_columns(keys, calls, lags)
        signature = tuple((name, str(kind)) for name, kind in columns.items())
        results = Typer(self.parsed, self.table.over(signature, lambda: columns))
        result = _Result(self, results, columns)
        items, having, order = yield from results.build_until_typed(lambda: result.build(whole))
        if confidence is not None:
            condition = yield from results.build_until_typed(result.early_condition)
            assert condition is not None
            end["early_decision"] = self.table.shared(EarlyDecision(confidence, condition))
            end.setdefault("emit", Emit(confidence=confidence))
        self.is_typed = True
        check_empty_windows(self.parsed, self.selection, end.get("empty"), calls, having)
        check_corrections(
            self.parsed,
            self.selection,
            end.get("corrections"),
            end.get("empty") is not None,
            self.joined.pairs is not None,
            confidence is not None,
        )
        windowing = self.selection.windowing
        query = Query(
            text=text,
            stream=self.scope.stream.relation.name,
            clock=self.table.shared(windowing.clock),
            clock_type=windowing.type,
            window=self.table.shared(windowing.spec),
            joins=self.table.shared(self.joined.finish()),
            where=where,
            keys=self.table.shared(keys),
            calls=self.table.shared(calls),
            items=self.table.shared(items),
            having=self.selection.having_text(),
            kept=having,
            stream_join=self._stream_join(has_empty_windows=end.get("empty") is not None),
            top=self.selection.top(order),
            lags=self.table.shared(lags),
            functions=self.table.shared(frozenset(self.selection.called() | self._derivation_functions())),
            derived=None if self.parsed.derived is None else self.table.shared(self.parsed.derived),
            **end,
        )
        if query.alert is not None:
            self._check_alert(query)
        if windowing.of_rows:
            return query.row_query()
        if (pairs := self.joined.pairs) is not None:
            nodes = [node for _, node in self.selection.named_keys()]
            printer, drafts = self.selection.rows, self.selection.drafts
            query = combine_pairs(query, self.scope, pairs, printer, drafts, nodes)
        return query if using is None else query.on_demand(using)

    def _check_alert(self, query: Query) -> None:
        if self.selection.windowing.of_rows:
            self.parsed.fail("ALERT needs a window: [RANGE 10 minutes SLIDE 1 minute]")
        try:
            check_alert_clause(query)
        except SettingError as error:
            clause = next(clause for clause in self.parsed.clauses if isinstance(clause, AlertClause))
            self.parsed.fail_at(str(error), clause)

    def _derivation_functions(self) -> frozenset[str]:
        """The user-defined functions that the definition of a derived stream calls."""
        return frozenset() if self.parsed.derived is None else self.parsed.derived.functions

    def _stream_join(self, has_empty_windows: bool) -> StreamJoin | None:
        """The join of two streams. EMIT EMPTY also reports windows in which no pair satisfies WHERE: it reads all."""
        if self.joined.pairs is None:
            return None
        join = self.joined.pairs.finish(self.selection.rows)
        if has_empty_windows:
            first, second = (replace(side, filters=None) for side in join.sides)
            join = replace(join, first=first, second=second)
        return self.table.shared(join)

    def _end(self, whole: Cut) -> Mapping[str, Any]:
        """The values of the clauses at the end; many queries have the same."""
        text = self.template.end_text(whole)
        if text not in self._ends:
            if len(self._ends) >= MAX_ENDS:
                self._ends = {"": self._ends[""]}
            self._ends[text] = self._bound_clauses(text, read_end_clauses(text))
        return self._ends[text]

    def _bound_clauses(self, text: str, clauses: Sequence[EndClause]) -> Mapping[str, Any]:
        """The values of clauses by the attributes of a query that they set; USING has a default."""
        bound: dict[str, Any] = {"using": Using()} if self.selection.windowing.on_demand else {}
        bound |= {each.field: each.bound(text, self._context) for each in _window_clauses(clauses)}
        return {field: self.table.shared(value) for field, value in bound.items()}

    def scalar(self, node: exp.Expr) -> Scalar | None:
        node = bare(node)
        if isinstance(node, exp.Column) and (column := self.scope.find(node)) is not None:
            self.scope.column(node)
            name = column.row_name if column.plain else None
            return self.table.shared(Scalar(column.sql, column.type, name))
        text = self.selection.row_text(node)
        kind = self.row.type(text, node)
        return None if kind is None else self.table.shared(Scalar(text, kind))

    def _rows(self, whole: Cut) -> tuple[Predicate | None, tuple[Key, ...], tuple[Call, ...]]:
        self.template.fill(whole.constants)
        with self.selection.inside("WHERE"):
            parts = [bind_predicate(node, self) for node in self.joined.where]
        with self.selection.inside("GROUP BY"):
            keys = [self._key(name, node) for name, node in self.selection.named_keys()]
        calls = [self._call(draft) for draft in self.selection.drafts]
        if self.joined.pairs is not None and not self.joined.pairs.types:
            self._type_join_keys(self.joined.pairs)
        return conjunction([*self.joined.flags, *parts]), tuple(keys), tuple(calls)

    def _type_join_keys(self, pairs: PairStream) -> None:
        """Find the types in which a join of streams compares its keys; pairs have no columns for them."""
        used = [set(side.used) for side in pairs.sides]
        scalars = [[self.scalar(node) for node in nodes] for nodes in pairs.keys]
        for node in pairs.matched_by:
            condition = self.scalar(node)
            if condition is not None and not pa.types.is_boolean(condition.type):
                self.parsed.fail(
                    f"a condition of ON must be true or false, not of type {condition.type}", node
                )
        for side, columns in zip(pairs.sides, used, strict=True):
            side.used = columns
        types = [(one.type, other.type) for one, other in scalars if one is not None and other is not None]
        if len(types) == len(scalars):
            pairs.set_types(self.scope, types)

    def _key(self, name: str, node: exp.Expr) -> Key:
        scalar = self.scalar(node)
        if scalar is None:
            return Key(name, Scalar("", pa.null()))
        if pa.types.is_map(scalar.type) and not self.selection.windowing.of_rows:
            self.parsed.fail("a map can't be grouped by", node)
        return Key(name, scalar)

    def _call(self, draft: Draft) -> Call:
        with self.selection.inside("another aggregate"):
            args = [self.scalar(arg) for arg in draft.args]
        with self.selection.inside("FILTER"):
            where = None if draft.where is None else bind_predicate(draft.where, self)
        typed = tuple(arg for arg in args if arg is not None)
        if len(typed) < len(args):
            return Call(draft.function, typed, pa.null())
        kind = result_type(draft.function, [arg.type for arg in typed], draft.parameters)
        if isinstance(kind, str):
            self.parsed.fail(kind, draft.args[0])
        return Call(draft.function, typed, kind, where, draft.parameters)

    def _result_columns(
        self, keys: tuple[Key, ...], calls: tuple[Call, ...], lags: tuple[Lag, ...]
    ) -> dict[str, pa.DataType]:
        kind = self.selection.windowing.type
        earlier = (pa.bool_() if lag.call is None else calls[lag.call].type for lag in lags)
        return item_columns((key.scalar.type for key in keys), (call.type for call in calls), kind, earlier)


class _Result(ScalarBinder):
    """Binds the expressions of a result: the SELECT list and HAVING."""

    def __init__(self, reader: _Reader, typer: Typer, columns: Mapping[str, pa.DataType]):
        super().__init__(reader.parsed, reader.utc)
        self.selection, self.template, self.table = reader.selection, reader.template, reader.table
        self.typer = typer
        self.types = {f"`{name}`": kind for name, kind in columns.items()}
        window = columns["window_start"]
        self.types[WINDOW_STRUCT] = pa.struct([("start", window), ("end", window)])

    def build(self, whole: Cut) -> tuple[tuple[Item, ...], Predicate | None, tuple[OrderKey, ...]]:
        """The result's columns, HAVING as a predicate over them, and ORDER BY."""
        self.template.fill(whole.constants)
        made = []
        for name, sql, node in self.selection.result_items():
            kind = self._type(sql, node)
            made.append(Item(name, sql, kind if kind is not None else pa.null()))
        having = self.selection.having
        with self.selection.inside("HAVING"):
            kept = None if having is None else bind_predicate(having, self)
        return tuple(made), kept, tuple(self._order())

    def early_condition(self) -> Predicate | None:
        """HAVING in the form in which it is decided early."""
        having = self.selection.having
        if having is None:
            return None
        with self.selection.inside("HAVING"):
            return EarlyConditionBinder(self.parsed, self, self._type).bind(having)

    def _order(self) -> Iterator[OrderKey]:
        for term, node, text in self.selection.order_texts():
            kind = self._type(text, node)
            if kind is not None and not has_sort_order(kind):
                self.parsed.fail(f"can't order by values of type {kind}", node)
            nulls_first = bool(term.args.get("nulls_first"))
            yield OrderKey(
                text, pa.null() if kind is None else kind, bool(term.args.get("desc")), nulls_first
            )

    def scalar(self, node: exp.Expr) -> Scalar | None:
        text = self.selection.results.root(node)
        kind = self._type(text, node)
        return None if kind is None else self.table.shared(Scalar(text, kind))

    def is_whole(self, node: exp.Expr) -> bool:
        return self.selection.is_key(node)

    def _type(self, text: str, node: exp.Expr) -> pa.DataType | None:
        return self.types.get(text) or self.typer.type(text, node)
