"""GROUPING SETS, ROLLUP and CUBE: the query reads each row of the stream once for every set, as in Spark's Expand.

`GROUP BY ROLLUP(a, b)` becomes a query over `SELECT *, explode(array(0, 1, 3)) AS g`, where g is a set's grouping id.
A key is null in the sets that leave it out, and g is a key, too, so that these nulls differ from those of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from math import prod

import pyarrow as pa
from sqlglot import exp

from transom.aggregates.table import is_aggregate_name
from transom.sql.binding.window import is_window
from transom.sql.syntax.canonical import bare, whole_number
from transom.sql.syntax.parsed_query import NAME_OF, NAMED, OF_COLUMN, OF_ITEM, Parsed
from transom.sql.syntax.spark_forms import COPIED
from transom.sql.syntax.spark_parser import OF_IS_NOT

EXPANDED = "expanded"  # marks a query whose rows are expanded
MOST_SETS = 64  # each row counts once for every set
_GROUPING_ID = "the grouping id"  # the column of the expanded rows; no stream has one of this name
_Set = tuple[int, ...]  # the places of its keys
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod)


def has_grouping_sets(group: exp.Expr | None) -> bool:
    """Whether GROUP BY has GROUPING SETS, ROLLUP or CUBE, in one of their forms."""
    return group is not None and group.find(exp.GroupingSets, exp.Rollup, exp.Cube) is not None


def expand_grouping_sets(parsed: Parsed, columns: Mapping[str, Mapping[str, pa.DataType]]) -> None:
    """Rewrite the query to one over expanded rows, in place. `columns` are those of streams and tables, by name."""
    if has_grouping_sets(parsed.select.args.get("group")):
        _Expansion(parsed, columns).rewrite()


class _Expansion:
    """The keys and sets of one query."""

    def __init__(self, parsed: Parsed, columns: Mapping[str, Mapping[str, pa.DataType]]):
        self.parsed, self.select = parsed, parsed.select
        source = self.select.args["from_"].this if self.select.args.get("from_") is not None else None
        if source is None:
            parsed.fail("GROUPING SETS, ROLLUP and CUBE need FROM", self.select.args["group"])
        self.source: exp.Expr = source
        named = source.name if isinstance(source, exp.Table) else ""
        self.own = source.alias or named or "expanded"
        self.aliases = {
            item.alias.casefold(): bare(item.this).copy()
            for item in self.select.expressions
            if isinstance(item, exp.Alias)
        }
        self.columns = self._known_columns({name.casefold(): each for name, each in columns.items()})
        taken = {part.name.casefold() for part in self.select.find_all(exp.Identifier)}
        self.id_name = "transom_grouping_id" if "grouping_id" in taken else "grouping_id"
        self.keys: list[exp.Expr] = []
        self.sets = self._sets(self.select.args["group"])

    def rewrite(self) -> None:
        group = self.select.args["group"]
        ids = [self._grouping_id(one) for one in self.sets]
        if len(set(ids)) < len(ids):
            self.parsed.fail("a grouping set occurs twice", group)
        self._check_number(len(ids), group)
        for clause in ("expressions", "having", "order"):
            value = self.select.args.get(clause)
            for node in value if isinstance(value, list) else [value] if value is not None else []:
                self._replace_keys(node, clause)
        keys = [self._key(place) for place in range(len(self.keys))]
        self.select.set("group", exp.Group(expressions=[*keys, self._id_column()]))
        array = exp.Anonymous(this="array", expressions=[_cast(_number(each), "BIGINT") for each in ids])
        exploded = exp.Alias(
            this=exp.Anonymous(this="explode", expressions=[array]),
            alias=exp.to_identifier(_GROUPING_ID, quoted=True),
        )
        inner = exp.Select(expressions=[exp.Star(), exploded], from_=exp.From(this=self.source))
        alias = exp.TableAlias(this=exp.to_identifier(self.own, quoted=True))
        self.select.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))
        self.select.meta[EXPANDED] = True

    def _known_columns(
        self, columns: Mapping[str, Mapping[str, pa.DataType]]
    ) -> dict[str, pa.DataType] | None:
        """The columns of the stream and the tables, in lower case; None if the query reads something else."""
        sources = [self.source, *(join.this for join in self.select.args.get("joins") or ())]
        names = [source.name.casefold() if isinstance(source, exp.Table) else "" for source in sources]
        if not all(name in columns for name in names):
            return None
        return {column.casefold(): kind for name in names for column, kind in columns[name].items()}

    # --- the sets ---

    def _sets(self, group: exp.Expr) -> list[_Set]:
        """The grouping sets: every combination of the parts of GROUP BY, as in Spark."""
        for kind in ("rollup", "cube", "grouping_sets"):
            for written in group.args.get(kind) or ():
                plain = [self._place(node) for node in group.expressions]
                if kind == "grouping_sets":
                    return list(chain.from_iterable(self._part(each) for each in written.expressions))
                if kind == "rollup":
                    return _rolled_up(plain)
                self._check_number(2 ** len(plain), group)
                return _cubed(plain)
        parts = [list(self._part(node)) for node in group.expressions]
        self._check_number(prod(map(len, parts)), group)
        return [tuple(dict.fromkeys(chain.from_iterable(chosen))) for chosen in product(*parts)]

    def _check_number(self, number: int, place: exp.Expr) -> None:
        """Refuse too many sets, before they are listed: their number is exponential in the text."""
        if number > MOST_SETS:
            shown = f"{number:,}" if number < 2**64 else "too many"
            self.parsed.fail(f"{shown} grouping sets; the limit is {MOST_SETS}", place)

    def _part(self, node: exp.Expr) -> Iterator[_Set]:
        """The sets of one part of GROUP BY, or of GROUPING SETS."""
        if isinstance(node, exp.GroupingSets):
            yield from chain.from_iterable(self._part(each) for each in node.expressions)
        elif isinstance(node, exp.Rollup | exp.Cube):
            if len(node.expressions) > MOST_SETS:
                self.parsed.fail(f"more than {MOST_SETS} grouping sets", node)
            whole = [self._together(each) for each in node.expressions]
            if isinstance(node, exp.Cube):
                self._check_number(2 ** len(whole), node)
            chosen = (
                _rolled_up(range(len(whole))) if isinstance(node, exp.Rollup) else _cubed(range(len(whole)))
            )
            yield from (tuple(chain.from_iterable(whole[i] for i in one)) for one in chosen)
        else:
            yield self._together(node)

    def _together(self, node: exp.Expr) -> _Set:
        """The keys of `(a, b)`, which are in the same sets, or of one expression."""
        nodes = node.expressions if isinstance(node, exp.Tuple) else [node]
        return tuple(self._place(each) for each in nodes)

    def _place(self, node: exp.Expr) -> int:
        """The number of a key, in the order of their first occurrence."""
        key = self._expression(bare(node))
        for place, known in enumerate(self.keys):
            if self._is_same(known, key):
                return place
        self.keys.append(key)
        return len(self.keys) - 1

    def _expression(self, node: exp.Expr) -> exp.Expr:
        """The expression of a key: a number is the place of an item of SELECT, a name may be its alias."""
        items = self.select.expressions
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            if not 1 <= whole_number(node.name) <= len(items):
                self.parsed.fail(f"there is no item {node.name} in SELECT", node)
            return bare(items[whole_number(node.name) - 1].unalias()).copy()
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            for item in items:
                is_alias = isinstance(item, exp.Alias) and item.alias.casefold() == node.name.casefold()
                if is_alias and self._hides_column(node, item):
                    return bare(item.this).copy()
        return node.copy()

    def _hides_column(self, node: exp.Column, item: exp.Alias) -> bool:
        """Whether a name in GROUP BY is the alias of an item: columns of the stream come first."""
        if self.columns is None:
            is_aggregate = any(_is_aggregate(part) for part in item.this.walk())
            return not is_aggregate and not isinstance(bare(item.this), exp.Column)
        return node.name.casefold() not in self.columns

    def _grouping_id(self, one: _Set) -> int:
        """A bit for each key, the first key's the highest; it is set if the key is left out."""
        last = len(self.keys) - 1
        return sum(1 << (last - place) for place in range(len(self.keys)) if place not in one)

    # --- the query over expanded rows ---

    def _key(self, place: int) -> exp.Expr:
        """A key of the expanded rows: null in the sets that leave it out."""
        key = self.keys[place].copy()
        for literal in key.find_all(exp.Literal):
            literal.meta[COPIED] = True
        for column in key.find_all(exp.Column):
            column.meta[NAME_OF] = OF_COLUMN
        holding = [self._grouping_id(one) for one in self.sets if place in one]
        if len(holding) == len(self.sets):
            return key
        if is_window(key):
            self.parsed.fail("every grouping set must contain the window", key)
        case = exp.Case(ifs=[exp.If(this=self._is_one_of(holding), true=exp.Paren(this=key))])
        if isinstance(key, exp.Column):
            case.meta[NAMED] = key.name
        return case

    def _is_one_of(self, ids: Sequence[int]) -> exp.Expr:
        return exp.In(this=self._id_column(), expressions=[exp.Literal.number(each) for each in ids])

    def _id_column(self) -> exp.Column:
        column = exp.Column(
            this=exp.to_identifier(_GROUPING_ID, quoted=True), table=exp.to_identifier(self.own, quoted=True)
        )
        column.meta[NAMED] = self.id_name
        return column

    def _replace_keys(self, node: exp.Expr, clause: str) -> None:
        """Put the keys of the expanded rows in the place of keys, outside of aggregates.

        Names in ORDER BY are first of all those of items, and so are names in HAVING if it has calls. As in Spark,
        ORDER BY reads the expanded rows: keys that are columns are null there in aggregates, too.
        """
        whole = exp.Paren(this=node.copy())
        is_order = clause == "order"
        items_first = is_order or (clause == "having" and self._reads_items_first(whole.this))
        self._replace_in(whole.this, set(self.aliases) if items_first else set(), is_order)
        replacement = whole.this
        replacement.pop()
        node.replace(replacement)

    def _replace_in(self, node: exp.Expr, items: set[str], is_order: bool) -> None:
        """`items` are the aliases that are read as items before they can be columns."""
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("grouping", "grouping_id"):
            node.replace(self._grouping(node, node.name.lower()))
            return
        if _is_aggregate(node):
            for column in list(node.find_all(exp.Column)) if is_order else ():
                if not _is_one_of_names(column, items) and (place := self._place_of(column)) is not None:
                    column.replace(self._key(place))
            return
        place = self._place_of(node)
        is_hidden = any(_is_one_of_names(column, items) for column in node.find_all(exp.Column))
        if place is not None and not is_hidden and not (is_order and self._is_made_of_keys(node)):
            key = self._key(place)
            if isinstance(node, exp.Column) and not isinstance(key, exp.Column):
                key.meta[NAMED] = node.name
            node.replace(key)
            return
        if isinstance(node, exp.Column) and is_hidden:
            node.meta[NAME_OF] = OF_ITEM
        for child in list(node.iter_expressions()):
            self._replace_in(child, items, is_order)

    def _place_of(self, node: exp.Expr) -> int | None:
        """The number of the key that an expression is."""
        if OF_IS_NOT in (node._meta or {}) and any(
            _is_one_of_names(column, set(self.aliases)) for column in node.find_all(exp.Column)
        ):
            return None  # `a IS NULL` in `a IS NOT NULL`, and a can be an item instead
        return next((place for place, key in enumerate(self.keys) if self._is_same(key, node)), None)

    def _is_made_of_keys(self, node: exp.Expr) -> bool:
        """Whether an expression reads keys that are columns and nothing else: ORDER BY computes it from them."""
        columns = list(node.find_all(exp.Column))
        return (
            not isinstance(node, exp.Column)
            and bool(columns)
            and all(self._place_of(column) is not None for column in columns)
        )

    # --- names in HAVING ---

    def _reads_items_first(self, having: exp.Expr) -> bool:
        """Whether names in HAVING that are both a key's and an item's are the item's.

        Spark reads HAVING over the rows first, if it has its types without calls and casts. Otherwise it forgets what
        the names are, except in aggregates, and finds the items.
        """
        ambiguous = next(self._ambiguous(having), None)
        if ambiguous is None or having.find(exp.Anonymous, exp.Filter) is not None:
            return ambiguous is not None
        if self._type_of(having.this) is None:
            self.parsed.fail(
                f"{ambiguous.name} is both in GROUP BY and the alias of another item, and which of them it is in "
                "HAVING depends on the types that it is compared with; give the item another alias",
                ambiguous,
            )
        return False

    def _ambiguous(self, node: exp.Expr) -> Iterator[exp.Column]:
        """Columns in keys outside of aggregates whose names are aliases of other expressions."""
        if _is_aggregate(node):
            return
        if self._place_of(node) is not None:
            for column in node.find_all(exp.Column):
                item = self.aliases.get(column.name.casefold()) if len(column.parts) == 1 else None
                if item is not None and not (column is node and self._is_same(item, node)):
                    yield column
        for child in node.iter_expressions():
            yield from self._ambiguous(child)

    def _type_of(self, node: exp.Expr) -> pa.DataType | None:
        """The type that an expression has without any cast, as far as it is simple; None if that is not known."""
        node = bare(node)
        if isinstance(node, exp.Column):
            parts = [part.name.casefold() for part in node.parts]
            own = parts[1:] if len(parts) == 2 and parts[0] == self.own.casefold() else parts
            return self.columns.get(own[0]) if self.columns is not None and len(own) == 1 else None
        if isinstance(node, exp.Literal):
            node.meta[COPIED] = True  # another constant could have another type
            if node.is_string:
                return pa.string()
            is_whole = node.name.isdigit() and len(node.name) <= 10
            return pa.int32() if is_whole and int(node.name) < 2**31 else None
        if isinstance(node, exp.Boolean):
            return pa.bool_()
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            operand = bare(node.this)
            is_known = isinstance(operand, exp.Column) or self._type_of(operand) is not None
            return pa.bool_() if is_known else None
        if not isinstance(
            node, (exp.Not, exp.Neg, exp.And, exp.Or, exp.In, exp.Like, *_COMPARISONS, *_ARITHMETIC)
        ):
            return None
        types = [self._type_of(operand) for operand in node.iter_expressions()]
        if not types or None in types or len(set(types)) > 1:
            return None
        kind = types[0]
        if isinstance(node, exp.Neg | exp.Add | exp.Sub | exp.Mul | exp.Mod):
            return kind if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None
        is_logical = isinstance(node, exp.Not | exp.And | exp.Or)
        return pa.bool_() if not is_logical or pa.types.is_boolean(kind) else None

    def _grouping(self, node: exp.Anonymous, name: str) -> exp.Expr:
        """grouping(a) is 1 if a set leaves a out; grouping_id() has the bits of all keys, or of those that it names."""
        if name == "grouping_id" and not node.expressions:
            return self._id_column()
        if name == "grouping" and len(node.expressions) != 1:
            self.parsed.fail("grouping() takes one expression of GROUP BY", node)
        bits: list[exp.Expr] = []
        for argument in node.expressions:
            place = self._place_of(bare(argument))
            if place is None:
                self.parsed.fail(f"{name}() takes expressions of GROUP BY", argument)
            holding = [self._grouping_id(one) for one in self.sets if place in one]
            bits.append(
                exp.Case(ifs=[exp.If(this=self._is_one_of(holding), true=_number(0))], default=_number(1))
                if holding
                else _number(1)
            )
        if name == "grouping":
            return _cast(bits[0], "TINYINT")
        total: exp.Expr = bits[0]
        for bit in bits[1:]:
            double = exp.Mul(this=exp.Paren(this=total), expression=_number(2))
            total = exp.Add(this=double, expression=bit)
        return _cast(exp.Paren(this=total), "BIGINT")

    def _is_same(self, key: exp.Expr, node: exp.Expr) -> bool:
        """Whether an expression is a key; a column may be written with and without the stream's alias."""
        if isinstance(key, exp.Column) and isinstance(node, exp.Column):
            one, other = ([part.name.casefold() for part in each.parts] for each in (key, node))
            own = self.own.casefold()
            return (one[1:] if one[0] == own and len(one) > 1 else one) == (
                other[1:] if other[0] == own and len(other) > 1 else other
            )
        return type(key) is type(node) and key == node


def _is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression is an aggregate, with its FILTER or its order."""
    is_call = isinstance(node, exp.Anonymous) and is_aggregate_name(node.name.lower())
    return is_call or isinstance(node, exp.Filter | exp.WithinGroup)


def _is_one_of_names(column: exp.Column, names: set[str]) -> bool:
    return len(column.parts) == 1 and column.name.casefold() in names


def _rolled_up(places: Sequence[int]) -> list[_Set]:
    """All of them, all but the last, and so on, down to none.

    >>> _rolled_up([0, 1])
    [(0, 1), (0,), ()]
    """
    return [tuple(places[:length]) for length in range(len(places), -1, -1)]


def _cubed(places: Sequence[int]) -> list[_Set]:
    """All subsets.

    >>> _cubed([0, 1])
    [(0, 1), (0,), (1,), ()]
    """
    return [one for length in range(len(places), -1, -1) for one in combinations(places, length)]


def _number(number: int) -> exp.Expr:
    literal = exp.Literal.number(number)
    literal.meta[COPIED] = True
    return literal


def _cast(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kind, dialect="spark"))
