"""SELECT, GROUP BY and HAVING: keys, aggregate calls, and the result's columns as text over them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterable, Iterator

from sqlglot import exp

from transom.aggregates.table import is_aggregate_name
from transom.errors import SQLError, near_miss
from transom.sql.binding.aggregate_calls import AROUND_CALLS, Draft, call_of, read_call
from transom.sql.binding.lag_drafts import LagDrafts
from transom.sql.binding.scope import Scope
from transom.sql.binding.window import (
    WINDOW_CALLS,
    Windowing,
    check_place,
    is_window,
    rows_without_window,
    windowing,
)
from transom.sql.catalog import Catalog
from transom.sql.clauses.past_times import BackfillClause
from transom.sql.item_columns import aggregate_reference, key_reference
from transom.sql.query import OrderKey, Top
from transom.sql.syntax.canonical import ATOMS, Printer, bare, quote, whole_number
from transom.sql.syntax.lag_calls import is_lag
from transom.sql.syntax.parsed_query import NAME_OF, NAMED, OF_COLUMN, OF_ITEM, OR_ITEM, Bracket, Parsed
from transom.sql.syntax.spark_parser import OF_IS_NOT, parse_expression

WINDOW_STRUCT = "named_struct('start', `window_start`, 'end', `window_end`)"
_WINDOW_PARTS = {"start": "`window_start`", "end": "`window_end`"}
_OWN_WINDOW = {"window_start": "window.start", "window_end": "window.end"}
_OF_WINDOWS = {"group": "GROUP BY", "having": "HAVING", "order": "ORDER BY", "limit": "LIMIT"}
_REFERENCE = re.compile("`[^`]*`")
_LONGEST_ALIAS = 20_000  # characters
# These operators have another precedence in sqlglot than in Spark, so a part of such a chain is not read alone.
_CHAINS = (
    exp.DPipe,
    exp.BitwiseAnd,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.BitwiseLeftShift,
    exp.BitwiseRightShift,
)
# In every chain, these are read alone.
_TIGHT = (*ATOMS, exp.Bracket, exp.Dot, exp.Extract, exp.If, exp.StrPosition, exp.Substring, exp.Trim)


def is_cut_from_chain(node: exp.Expr) -> bool:
    """Whether an expression is a part of a chain of operators that Spark may divide in another way."""
    chained = isinstance(node, _CHAINS) and isinstance(node.parent, exp.Binary)
    return chained or (isinstance(node.parent, _CHAINS) and not isinstance(node, _TIGHT))


class SelectBinder:
    """Reads SELECT, GROUP BY and HAVING. `rows` prints over a row, `results` over keys and aggregates."""

    def __init__(self, parsed: Parsed, catalog: Catalog):
        self.parsed = parsed
        self.scope = Scope(parsed, catalog)
        self.functions = {name.casefold() for name in catalog.functions}
        self._settings = {"collected_values": catalog.collected_values}
        self.rows = Printer(parsed, catalog.functions, self._row_leaf)
        self.results = Printer(parsed, catalog.functions, self._result_leaf)
        self.names = Printer(parsed, catalog.functions, self._name_leaf)
        self.keys: dict[str, exp.Expr] = {}  # canonical text -> the expression
        self.drafts: list[Draft] = []
        self.lags = LagDrafts(parsed)
        self.items: list[tuple[str, str, exp.Expr]] = []
        self.windowing: Windowing
        self._place = "SELECT"
        self._texts: dict[int, str] = {}
        self.window_call: exp.Expr | None = None
        self.repeats = False  # whether two equal calls became one aggregate
        self._calls: dict[object, int] = {}
        self._read_drafts: list[Draft] = []  # held, so that the ids of their nodes stay their own
        self._numbers: dict[int, int] = {}  # of the aggregates, by the node's id
        self._made_columns: list[exp.Expr] = []  # of *; held, so that the ids of their nodes stay their own
        self._in_having = False
        self._in_order = False  # names are first of all those of items
        self._before: dict[str, exp.Expr] = {}  # the items before the one that is read, by their aliases

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Set the clause that errors name."""
        before, self._place = self._place, place
        yield
        self._place = before

    def read(self) -> None:
        """Read the clauses in the order of their dependencies."""
        select = self.parsed.select
        aliased = (item for item in select.expressions if isinstance(item, exp.Alias))
        self._aliases: dict[str, exp.Expr] = {item.alias.casefold(): item.this for item in aliased}
        with self.inside("GROUP BY"):
            self._read_group(select.args.get("group"))
        if self.parsed.bracket is not None:
            check_place(self.scope, self.parsed.bracket)
        self.read_window(self.parsed.bracket)
        if self.windowing.of_rows:
            self._read_row_items()
            return
        for item in select.expressions:
            self._read_item(item)
        self._in_having = True
        self.having_text()
        self.limit = self._read_limit()
        self.order_texts()
        if not self.drafts and not self.keys:
            self.parsed.fail("a window query needs an aggregate or GROUP BY", select.expressions[0])

    def read_window(self, bracket: Bracket | None) -> None:
        """Read the window; a query that selects columns of rows and nothing more needs none."""
        of_rows = rows_without_window(self.scope) if self._selects_rows() else None
        reader = next(
            (word for clause, word in _OF_WINDOWS.items() if self.parsed.select.args.get(clause)), None
        )
        self.windowing = of_rows or windowing(self.scope, self.window_call, bracket, self.rows.root, reader)

    def _selects_rows(self) -> bool:
        """Whether the query has no window, and nothing that needs one."""
        parsed, select = self.parsed, self.parsed.select
        clauses = [clause for clause in parsed.clauses if not isinstance(clause, BackfillClause)]
        if parsed.bracket is not None or self.window_call is not None or clauses or parsed.with_ties:
            return False
        if any(select.args.get(clause) is not None for clause in _OF_WINDOWS):
            return False
        parts = (exp.Anonymous, exp.Filter, exp.Column, *AROUND_CALLS)
        for node in (node for item in select.expressions for node in item.find_all(*parts)):
            if isinstance(node, exp.Column):
                is_own = node.parts[0].name.lower() in (*_OWN_WINDOW, *WINDOW_CALLS)
                if is_own and self.scope.find(node) is None:
                    return False
            elif self.is_aggregate(node) or is_window(node) or is_lag(node):
                return False
        return True

    def _read_row_items(self) -> None:
        """Read the SELECT list of a query without a window: expressions over rows, which are its keys."""
        self.limit = None
        items = [part for item in self.parsed.select.expressions for part in self._written_out(item)]
        for item in items:
            node = bare(item.this if isinstance(item, exp.Alias) else item)
            text = self.row_text(node)
            self.keys.setdefault(text, node)
            name = item.alias if isinstance(item, exp.Alias) else self._auto_name(node)
            self._add_item(name, key_reference(list(self.keys).index(text)), node, item)

    def _written_out(self, item: exp.Expr) -> list[exp.Expr]:
        """The columns that `*` stands for, or the item itself."""
        node = bare(item.unalias())
        is_qualified = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if not isinstance(node, exp.Star) and not is_qualified:
            return [item]
        if isinstance(node, exp.Star) and any(node.args.values()):
            self.parsed.fail("* takes no EXCEPT and no REPLACE; name the columns", node)
        sources = [source for source in self.scope.sources if not source.is_membership]
        if is_qualified:
            alias = str(node.args["table"].name)
            sources = [source for source in sources if source.alias.casefold() == alias.casefold()]
            if not sources:
                self.parsed.fail(f"unknown name {alias} in {alias}.*", node)
        columns: list[exp.Expr] = [
            exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(source.alias, quoted=True))
            for source in sources
            for name in source.relation.columns
            if name not in source.hidden
        ]
        self._made_columns += columns
        return columns

    @property
    def having(self) -> exp.Expr | None:
        """The condition of HAVING."""
        clause = self.parsed.select.args.get("having")
        return None if clause is None else clause.this

    def having_text(self) -> str | None:
        """The text of HAVING over keys and aggregates."""
        if self.having is None:
            return None
        with self.inside("HAVING"):
            return self.results.root(self.having)

    def _read_limit(self) -> int | None:
        """The number of LIMIT; it comes with ORDER BY."""
        order, limit = (self.parsed.select.args.get(kind) for kind in ("order", "limit"))
        if self.parsed.with_ties and order is None:
            self.parsed.fail("WITH TIES needs ORDER BY", limit)
        if limit is None and order is not None:
            message = "ORDER BY needs LIMIT: ORDER BY ... LIMIT 10 gives the first 10 rows of each window"
            self.parsed.fail(message, order)
        if limit is None:
            return None
        if order is None:
            message = "LIMIT needs ORDER BY: ORDER BY ... LIMIT 10 gives the first 10 rows of each window"
            self.parsed.fail(message, limit)
        if not self.windowing.spec.is_shared_by_groups:
            message = (
                "LIMIT gives the first rows of each window, and each of these windows has one row; use HAVING"
            )
            if self.windowing.spec.is_session:
                message += ", or ORDER BY ... LIMIT in a query over the results of this one"
            self.parsed.fail(message, limit)
        number = limit.expression
        if not isinstance(number, exp.Literal) or not number.name.isdigit() or whole_number(number.name) == 0:
            self.parsed.fail("LIMIT takes a positive whole number", number)
        return whole_number(number.name)

    def top(self, order: tuple[OrderKey, ...]) -> Top | None:
        """The first rows of each window that are results; None: all are."""
        return None if self.limit is None else Top(self.limit, order, self.parsed.with_ties)

    def order_texts(self) -> list[tuple[exp.Expr, exp.Expr, str]]:
        """The terms of ORDER BY, each with its expression and its text over keys and aggregates."""
        order = self.parsed.select.args.get("order")
        with self.inside("ORDER BY"):
            terms = [] if order is None else order.expressions
            if len(terms) == 1 and _is_all(terms[0].this):  # all items, in the order of SELECT
                found = [(terms[0], bare(item.unalias()), True) for item in self.parsed.select.expressions]
            else:
                written = [(term, bare(term.this)) for term in terms]
                selected = [(term, node, self._selected(node, "ORDER BY")) for term, node in written]
                found = [(term, item, item is not node) for term, node, item in selected]
            return [(term, node, self._order_text(node, is_item)) for term, node, is_item in found]

    def _order_text(self, node: exp.Expr, is_item: bool) -> str:
        """The text of a term. Names in it are first of all those of items; in an item itself they are not."""
        before, self._in_order = self._in_order, not is_item
        text = self.results.root(node)
        self._in_order = before
        return text

    def called(self) -> set[str]:
        """The user-defined functions that the query calls."""
        return self.rows.called | self.results.called

    def row_text(self, node: exp.Expr) -> str:
        """The canonical text of an expression over a row."""
        text = self._texts.get(id(node))
        if text is None:
            text = self._texts[id(node)] = self.rows.root(node)
        return text

    def forget(self, nodes: set[int]) -> None:
        """Drop the cached texts of nodes, by their ids, because literals in them have changed."""
        for node in nodes:
            self._texts.pop(node, None)

    def are_distinct(self) -> bool:
        """Whether no two aggregate calls have the same text."""
        return len(set(map(self._identity, self.drafts))) == len(self.drafts)

    # --- GROUP BY ----------------------------------------------------------------------------

    def _read_group(self, group: exp.Expr | None) -> None:
        if group is not None:
            for node in group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets):
                kind = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE"}.get(type(node), "GROUPING SETS")
                self.parsed.fail(f"{kind} is not supported; register a query for each set of keys", node)
        bracket, nodes = self.parsed.bracket, [] if group is None else list(group.expressions)
        if group is not None and group.args.get("all"):
            nodes = list(self._all_keys())
        elif bracket is not None and bracket.table_function is not None:
            nodes = self._without_window_ends(nodes, bracket)
        for node in nodes:
            key = bare(self._grouped(bare(node)))
            if is_window(key):
                if self.window_call is not None and self._same_window(key) is False:
                    self.parsed.fail("a query has one window", node)
                self.window_call = key
            else:
                self.keys.setdefault(self.row_text(key), key)
        is_keyed = bracket is not None and bracket.partition and bracket.table_function is None
        if bracket is not None and is_keyed and not self._is_partition(bracket, self.keys.values()):
            message = "GROUP BY must have the columns of PARTITION BY, and no others"
            raise SQLError(message, self.parsed.text, bracket.start, bracket.end)

    def _is_partition(self, bracket: Bracket, keys: Iterable[exp.Expr]) -> bool:
        """Whether keys are the columns or expressions of PARTITION BY.

        Over a subquery or a view, keys have the names of its columns, and are no columns of the stream any more.
        """
        if self.parsed.inlined:
            names = {text.replace("`", "").rpartition(".")[2].casefold() for text in bracket.partition}
            return names == {str((key._meta or {}).get(NAMED, key.name)).casefold() for key in keys}
        texts = set()
        for written in bracket.partition:
            try:
                node = parse_expression(written)
                if node.find(exp.Literal) is not None:  # queries that differ in constants are bound together
                    message = f"PARTITION BY takes no constants: {written}; compute the key in a subquery"
                    raise SQLError(message, written)
                texts.add(self.row_text(bare(node)))
            except SQLError as error:
                raise SQLError(error.message, self.parsed.text, bracket.start, bracket.end) from None
        return texts == {self.row_text(key) for key in keys}

    def _all_keys(self) -> Iterator[exp.Expr]:
        """The keys of GROUP BY ALL: the items without aggregates that read a row."""
        for item in self.parsed.select.expressions:
            node = bare(item.unalias())
            if is_window(node.this if isinstance(node, exp.Dot) else node):
                yield node.this if isinstance(node, exp.Dot) else node
            elif any(
                self.is_aggregate(part) or is_lag(part) for part in node.find_all(exp.Anonymous, exp.Filter)
            ):
                continue
            elif node.find(exp.Column) is not None and self._reads_a_row(node):
                yield node  # otherwise it is a constant, or reads the window or an item before it

    def _without_window_ends(self, nodes: list[exp.Expr], bracket: Bracket) -> list[exp.Expr]:
        """The keys besides window_start and window_end, by which a query over a window table function groups."""
        ends = [node for node in nodes if isinstance(node, exp.Column) and node.name.lower() in _OWN_WINDOW]
        if {node.name.lower() for node in ends} != _OWN_WINDOW.keys():
            message = f"a query over {bracket.table_function} needs GROUP BY window_start, window_end"
            raise SQLError(message, self.parsed.text, bracket.start, bracket.end)
        keys = [node for node in nodes if not any(node is end for end in ends)]
        written = [bare(self._grouped(bare(node))) for node in keys]
        if bracket.session is not None and not self._is_partition(bracket, written):
            message = "PARTITION BY in SESSION must have the columns of GROUP BY besides the window's ends"
            raise SQLError(message, self.parsed.text, bracket.start, bracket.end)
        return keys

    def _grouped(self, node: exp.Expr) -> exp.Expr:
        """The expression to group by: a position or an alias refers to a SELECT item."""
        node = self._selected(node, "GROUP BY")
        if isinstance(node, exp.Column) and len(node.parts) == 1 and self.scope.find(node) is None:
            return self._aliases.get(node.name.casefold(), node)
        return node

    def _selected(self, node: exp.Expr, clause: str) -> exp.Expr:
        """The SELECT item at a position, or the expression itself."""
        if not isinstance(node, exp.Literal) or node.is_string or NAMED in node.meta:
            return node
        items = self.parsed.select.expressions
        if not node.name.isdigit() or not 1 <= whole_number(node.name) <= len(items):
            self.parsed.fail(f"{clause} position {node.name} is not in the SELECT list", node)
        selected: exp.Expr = items[whole_number(node.name) - 1].unalias()
        return selected

    def _same_window(self, call: exp.Expr) -> bool:
        known = self.window_call
        if known is None or known.name.lower() != call.name.lower():
            return False
        return [self.names.root(arg) for arg in call.expressions] == [
            self.names.root(arg) for arg in known.expressions
        ]

    def named_keys(self) -> list[tuple[str, exp.Expr]]:
        """The keys with the names that their columns have in the result."""
        selected: dict[str, str] = {}
        for name, sql, _ in self.items:
            selected.setdefault(sql, name)
        taken = {name.casefold() for name, _, _ in self.items}
        named = []
        for at, node in enumerate(self.keys.values()):
            name = selected.get(key_reference(at)) or self._unused(self._auto_name(node), taken)
            taken.add(name.casefold())
            named.append((name, node))
        return named

    @staticmethod
    def _unused(name: str, taken: set[str]) -> str:
        number, candidate = 1, name
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{name}_{number}"
        return candidate

    # --- SELECT ------------------------------------------------------------------------------

    def _read_item(self, item: exp.Expr) -> None:
        node = bare(item.this if isinstance(item, exp.Alias) else item)
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            self.parsed.fail("SELECT * is not supported; name the columns", node)
        sql = self.results.root(node)
        name = item.alias if isinstance(item, exp.Alias) else self._auto_name(node)
        self._add_item(name, sql, node, item)
        if isinstance(item, exp.Alias):
            self._before[name.casefold()] = item.this

    def _add_item(self, name: str, sql: str, node: exp.Expr, item: exp.Expr) -> None:
        if any(name.casefold() == other.casefold() for other, _, _ in self.items):
            self.parsed.fail(f"two columns of the result are called {name}; give one another alias", item)
        self.items.append((name, sql, node))

    def result_items(self) -> list[tuple[str, str, exp.Expr]]:
        """The columns of the result: keys that are not selected, then the SELECT list."""
        selected = {sql for _, sql, _ in self.items}
        keys = [(name, key_reference(at), node) for at, (name, node) in enumerate(self.named_keys())]
        return [key for key in keys if key[1] not in selected] + self.items

    def _auto_name(self, node: exp.Expr) -> str:
        if isinstance(node, (exp.Column, exp.Dot)):
            name = self.names.text(node).rpartition(".")[2].strip("`")
            return name.lower() if is_window(node.this) else name
        return self.names.root(node)

    # --- leaves: columns, aggregates and window() by position --------------------------------------

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node is a call of an aggregate, with its FILTER if it has one."""
        if isinstance(node, exp.Filter):
            return True
        node = call_of(node)
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        return is_aggregate_name(name) and name not in self.functions

    def _row_leaf(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            return self.scope.without_parentheses(node) or self.scope.column(node).sql
        if isinstance(node, (exp.Anonymous, exp.Filter, *AROUND_CALLS)):
            if self.is_aggregate(node):
                self.parsed.fail(f"an aggregate is not allowed in {self._place}", node)
            if is_window(node):
                self.parsed.fail(f"{node.name.lower()}() belongs in GROUP BY", node)
            self.lags.refuse(node, self._place)
        return None

    def _result_leaf(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Column):
            return self._result_column(node)
        if isinstance(node, (exp.Anonymous, exp.Filter, *AROUND_CALLS)):
            if is_lag(node):
                return self.lags.text(node, self.results)
            self.lags.check_over(node, self.functions)
            if self.is_aggregate(node):
                number = self._call(node)
                return self.lags.reference(number) if self.lags.is_inside else aggregate_reference(number)
            if is_window(node):
                self._check_window(node)
                return WINDOW_STRUCT
        if isinstance(node, exp.Dot) and is_window(node.this):
            self._check_window(node.this)
            return self._window_part(node.expression.name, node)
        return self._as_key(node) or self._or_item(node)

    def is_key(self, node: exp.Expr) -> bool:
        """Whether an expression, and not just a column, equals a GROUP BY key or stands for an item."""
        if isinstance(node, exp.Column):
            return False
        return OR_ITEM in (node._meta or {}) or self._as_key(node) is not None

    def _as_key(self, node: exp.Expr) -> str | None:
        """The GROUP BY key that an expression equals, if any."""
        if not any(type(node) is type(key) for key in self.keys.values()):
            return None
        if is_cut_from_chain(node) or not self._reads_a_row(node) or self._is_not_of_item(node):
            return None
        if self._in_order and any(
            len(part.parts) == 1
            and part.name.casefold() in self._aliases
            and (part._meta or {}).get(NAME_OF) != OF_COLUMN
            for part in node.find_all(exp.Column)
        ):
            return None
        text = self.row_text(node)
        return key_reference(list(self.keys).index(text)) if text in self.keys else None

    def _is_not_of_item(self, node: exp.Expr) -> bool:
        """Whether an expression is the test in `a IS NOT NULL`, which is no key if `a` can be an item instead."""
        return OF_IS_NOT in (node._meta or {}) and any(
            OR_ITEM in (part._meta or {})
            or (
                isinstance(part, exp.Column)
                and len(part.parts) == 1
                and part.name.casefold() in self._aliases
            )
            for part in node.walk()
        )

    def _reads_a_row(self, node: exp.Expr) -> bool:
        """Whether an expression can be read over a row: it has no aggregate, no window and no alias of an item."""
        return all(
            self.scope.find(part) is not None or self.scope.without_parentheses(part) is not None
            if isinstance(part, exp.Column)
            else not (self.is_aggregate(part) or is_window(part) or is_lag(part))
            for part in node.find_all(exp.Column, exp.Anonymous, exp.Filter)
        )

    def _result_column(self, node: exp.Column) -> str:
        column = self.scope.find(node)
        if (item := self._item_before(node)) is not None:
            return item
        if column is not None:
            for depth in range(len(column.fields), -1, -1):
                if (whole := column.upto(depth)) in self.keys:
                    key = key_reference(list(self.keys).index(whole))
                    return ".".join([key, *map(quote, column.fields[depth:])])
        if (item := self._or_item(node)) is not None:
            return item
        if (window := self._window_column(node, column is not None)) is not None:
            return window
        alias = self._alias(node, column is not None)
        if alias is not None:
            return self._alias_text(alias)
        if column is not None:
            name = ".".join(part.name for part in node.parts)
            own = _OWN_WINDOW.get(name.lower())
            hint = f"; write {own} for this query's own window" if own else ""
            self.parsed.fail(f"{name} is neither in GROUP BY nor inside an aggregate{hint}", node)
        if (function := self.scope.without_parentheses(node)) is not None:
            return function
        if self._in_having and len(node.parts) == 1 and (hint := near_miss(node.name, self._aliases)):
            self.parsed.fail(f"unknown column {node.name}{hint}", node)
        return self.scope.column(node).sql

    def _item_before(self, node: exp.Column) -> str | None:
        """The text of the item that a name refers to before it can be a key or the window.

        As in Spark, names in ORDER BY are those of items first. An alias `window` hides the window of a bracket.
        """
        alias = self._aliases.get(node.name.casefold()) if len(node.parts) == 1 else None
        if alias is not None and (node._meta or {}).get(NAME_OF) == OF_ITEM:
            return self._alias_text(alias)
        hides_window = self._in_having and self.window_call is None and node.name.lower() in WINDOW_CALLS
        if alias is None or not (self._in_order or (hides_window and self.scope.find(node) is None)):
            return None
        return self._alias_text(alias)

    def _or_item(self, node: exp.Expr) -> str | None:
        """The text of the item whose alias was the name of a column of an inlined query, which is no key."""
        name = (node._meta or {}).get(OR_ITEM)
        return None if name is None else self._alias_text(self._aliases[name])

    def _alias_text(self, alias: exp.Expr) -> str:
        text = self._order_text(alias, is_item=True)
        if len(text) > _LONGEST_ALIAS:  # aliases that name the one before twice double their text
            self.parsed.fail(
                f"the expression is longer than {_LONGEST_ALIAS:,} characters when its aliases are written out",
                alias,
            )
        return text if _REFERENCE.fullmatch(text) else f"({text})"

    def _alias(self, node: exp.Column, shadowed: bool) -> exp.Expr | None:
        """The item that a name refers to: in HAVING any item, in SELECT one before, unless there is such a column."""
        if len(node.parts) > 1:
            return None
        known = self._aliases if self._in_having else {} if shadowed else self._before
        return known.get(node.name.casefold())

    def _window_column(self, node: exp.Column, shadowed: bool) -> str | None:
        """`window`, `window.start` and `window.end`; also `window_start` and `window_end`."""
        window = self._window_of(node, shadowed)
        if window is not None:
            self.lags.refuse_window(node)
        return window

    def _window_of(self, node: exp.Column, shadowed: bool) -> str | None:
        parts = [part.name.lower() for part in node.parts]
        bracket = self.parsed.bracket
        if shadowed and self.window_call is None and (bracket is None or bracket.table_function is None):
            return None
        if parts[0] in WINDOW_CALLS and len(parts) <= 2:
            return WINDOW_STRUCT if len(parts) == 1 else self._window_part(parts[1], node)
        return quote(parts[0]) if parts in (["window_start"], ["window_end"]) else None

    def _window_part(self, name: str, node: exp.Expr) -> str:
        if name.lower() not in _WINDOW_PARTS:
            self.parsed.fail(f"window has start and end, not {name}", node)
        return _WINDOW_PARTS[name.lower()]

    def _check_window(self, call: exp.Expr) -> None:
        self.lags.refuse_window(call)
        if not self._same_window(call):
            self.parsed.fail(f"this {call.name.lower()}() is not the one of GROUP BY", call)

    def _call(self, node: exp.Expr) -> int:
        """The number of an aggregate call; equal calls have the same number."""
        if id(node) not in self._numbers:
            draft = read_call(self.parsed, node, self._time_column(), self._settings)
            self._read_drafts.append(draft)
            number = self._calls.setdefault(self._identity(draft), len(self.drafts))
            if number == len(self.drafts):
                self.drafts.append(draft)
            else:
                self.repeats = True
            self._numbers[id(node)] = number
        return self._numbers[id(node)]

    def _time_column(self) -> exp.Expr | None:
        """The column that orders rows: the window's clock, or the stream's time for windows of rows."""
        stream = self.scope.stream
        name = self.windowing.clock.attribute or stream.relation.time
        return None if not name else exp.column(exp.to_identifier(name, quoted=True), stream.alias)

    def _identity(self, draft: Draft) -> object:
        with self.inside("another aggregate"):
            args = tuple(self.row_text(arg) for arg in draft.args)
        with self.inside("FILTER"):
            where = None if draft.where is None else self.row_text(draft.where)
        return draft.function, args, where, draft.parameters

    def _name_leaf(self, node: exp.Expr) -> str | None:
        """The name of a result's column without an alias: its text, without quotes."""
        if (name := (node._meta or {}).get(NAMED)) is not None:
            return str(name)
        if isinstance(node, exp.Column):
            column = self.scope.find(node)
            return ".".join(
                [column.name, *column.fields] if column else [part.name.lower() for part in node.parts]
            )
        if isinstance(node, exp.Star):
            return "*"
        if isinstance(node, exp.Filter):
            return f"{self.names.root(node.this)} FILTER (WHERE {self.names.root(node.expression.this)})"
        if isinstance(node, exp.WithinGroup):
            return f"{self.names.root(node.this)} WITHIN GROUP (ORDER BY {self._order_name(node.expression)})"
        if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
            return f"{self.names.root(node.this)}{' IGNORE NULLS' * isinstance(node, exp.IgnoreNulls)}"
        if isinstance(node, exp.Distinct):
            return f"DISTINCT {', '.join(map(self.names.root, node.expressions))}"
        if is_window(node):
            return str(node.name.lower())
        if is_lag(node):
            return self.lags.name(node, self.names)
        if isinstance(node, exp.Anonymous) and self.is_aggregate(node):
            return f"{node.name.lower()}({', '.join(self.names.root(arg) for arg in node.expressions)})"
        return None

    def _order_name(self, order: exp.Expr) -> str:
        parts = (
            self.names.root(part.this) + " DESC" * bool(part.args.get("desc")) for part in order.expressions
        )
        return ", ".join(parts)


def _is_all(node: exp.Expr) -> bool:
    """Whether a term is the word ALL."""
    return isinstance(node, exp.Var) and node.name.upper() == "ALL"
