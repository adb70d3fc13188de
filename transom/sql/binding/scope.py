"""Name resolution: the stream and the tables of a query, and their columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Mapping, NoReturn

import pyarrow as pa
from sqlglot import exp

from transom.errors import SQLError, near_miss
from transom.sql.catalog import Catalog, Relation
from transom.sql.syntax.canonical import quote
from transom.sql.syntax.parsed_query import Parsed, span

_WITHOUT_PARENTHESES = {"current_timestamp", "current_date"}


@dataclass
class FromItem:
    """A relation of the FROM clause. A table gets its id when it is joined, a stream has none."""

    alias: str
    relation: Relation
    node: exp.Expr
    table: bool
    id: str | None = None
    hidden: set[str] = field(default_factory=set)  # columns that USING merged with an earlier relation's
    used: set[str] = field(default_factory=set)
    folded: dict[str, list[str]] = field(default_factory=dict)
    prefix: str | None = None  # of its columns in a pair, if two streams are joined
    is_membership: bool = False  # of a semi or anti join: only its condition reads its columns
    is_closed: bool = False  # its condition was read, so its columns can't be read any more
    shown: str = ""  # its name in errors
    occurrence: int = 0  # how many relations before it in FROM are the same

    def __post_init__(self) -> None:
        self.shown = self.shown or self.alias
        for name in self.relation.columns:
            self.folded.setdefault(name.casefold(), []).append(name)


@dataclass(frozen=True)
class ResolvedColumn:
    """The column that a name resolves to, with fields of a struct if the name has them."""

    source: FromItem
    name: str
    fields: tuple[str, ...]
    type: pa.DataType

    @property
    def plain(self) -> bool:
        return not self.fields and not self.source.table

    @property
    def row_name(self) -> str:
        """The name of the column in the rows that the query reads."""
        prefix = self.source.id if self.source.table else self.source.prefix
        return self.name if prefix is None else f"{prefix}.{self.name}"

    @property
    def sql(self) -> str:
        return self.upto(len(self.fields))

    def upto(self, depth: int) -> str:
        """The text of the column with only its first fields."""
        return ".".join([quote(self.row_name), *map(quote, self.fields[:depth])])


@lru_cache(maxsize=1_000)
def _near_query(name: str, queries: frozenset[str]) -> str:
    """A hint that names a similar query; cached, because there may be thousands of names and errors."""
    return near_miss(name, queries)


class Scope:
    """The relations of one query; resolves column names among them."""

    def __init__(self, parsed: Parsed, catalog: Catalog):
        self.parsed, self.catalog = parsed, catalog
        self.sources: list[FromItem] = []
        self.pairs: FromItem | None = None  # the stream of pairs, if two streams are joined
        self._found: dict[int, ResolvedColumn] = {}  # by the id of the node, which outlives the scope

    @property
    def stream(self) -> FromItem:
        if self.pairs is not None:
            return self.pairs
        return next(source for source in self.sources if not source.table)

    @property
    def streams(self) -> list[FromItem]:
        """The streams of FROM, without the static tables."""
        return [source for source in self.sources if not source.table]

    def add(self, node: exp.Expr) -> FromItem:
        """Add a relation of the FROM clause."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            self.parsed.fail("expected the name of a stream or a table", node)
        extra = [key for key, value in node.args.items() if value and key not in ("this", "alias")]
        if extra:
            self.parsed.fail("expected the plain name of a stream or a table", node)
        relation, table = self._relation(node)
        self._admit(node, relation, table)
        source = FromItem(node.alias or node.name, relation, node, table)
        source.occurrence = sum(other.relation.name == relation.name for other in self.sources)
        if any(source.alias.casefold() == other.alias.casefold() for other in self.sources):
            self.parsed.fail(f"{source.alias} is in FROM twice; give one an alias", node)
        if source.alias.casefold() in self.parsed.inlined:
            source.hidden |= set(relation.columns)
        self.sources.append(source)
        return source

    def add_searched(self, node: exp.Expr) -> FromItem:
        """Add the static table that a subquery in WHERE searches, under a name that no other relation has."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            self.parsed.fail("a subquery in WHERE reads a static table by its name", node)
        relation, is_table = self._relation(node)
        if not is_table:
            message = (
                f"a subquery in WHERE reads a static table, and {node.name} is a stream; write LEFT SEMI JOIN or "
                "LEFT ANTI JOIN within a time bound"
            )
            self.parsed.fail(message, node)
        alias = f"{relation.name} in subquery {len(self.sources)}"
        source = FromItem(
            alias, relation, node, table=True, is_membership=True, shown=node.alias or node.name
        )
        self.sources.append(source)
        return source

    def _admit(self, node: exp.Table, relation: Relation, table: bool) -> None:
        """Refuse a relation that can't be joined with those before it."""
        streams = [] if table else [source for source in self.sources if not source.table]
        if len(streams) > 1:
            self.parsed.fail("a query can join two streams, not more", node)
        named = [
            *((source.alias, source.relation) for source in streams),
            (node.alias or node.name, relation),
        ]
        for alias, one in named if streams else ():
            if one.unjoinable is not None:
                self.parsed.fail(f"{alias} can't be joined with a stream: {one.unjoinable}", node)

    def _relation(self, node: exp.Table) -> tuple[Relation, bool]:
        name = node.name.casefold()
        for table, relations in ((False, self.catalog.streams), (True, self.catalog.tables)):
            if node.name in relations:
                return relations[node.name], table
            for key, relation in relations.items():
                if key.casefold() == name:
                    return relation, table
        self._unknown_relation(node.name, node.this)

    def _unknown_relation(self, name: str, place: exp.Expr) -> NoReturn:
        if name.casefold() in {view.casefold() for view in self.catalog.views}:
            self.parsed.fail(f"{name} is a view; a query WITH PREFERENCE reads streams only", place)
        known, queries = [*self.catalog.streams, *self.catalog.tables], self.catalog.queries
        hint = self._needs_backticks(place, known) or near_miss(name, known) or _near_query(name, queries)
        what = "stream, table or query" if queries else "stream or table"
        self.parsed.fail(f"unknown {what} {name}{hint}", place)

    def column(self, node: exp.Column) -> ResolvedColumn:
        """The column of a name; unknown and ambiguous names are errors."""
        column = self.find(node)
        if column is None:
            self._unknown(node)
        column.source.used.add(column.name)
        return column

    def once(self, node: exp.Column) -> ResolvedColumn:
        """The column of a name, without caching: the scope may outlive the node, and another node could get its id."""
        column = self.column(node)
        self._found.pop(id(node), None)
        return column

    def find(self, node: exp.Column) -> ResolvedColumn | None:
        """The column of a name, or None."""
        remembered = self._found.get(id(node))
        if remembered is None:
            remembered = self._lookup(node, tuple(part.name for part in node.parts))
            if remembered is not None:
                self._found[id(node)] = remembered
        return remembered

    def _lookup(self, node: exp.Column, parts: tuple[str, ...]) -> ResolvedColumn | None:
        if len(parts) > 1:
            for source in self._named():
                if source.alias.casefold() == parts[0].casefold():
                    if source.is_closed:
                        message = (
                            f"columns of {source.shown} can't be read here, only in the condition of its semi "
                            "join, anti join, IN or EXISTS"
                        )
                        self.parsed.fail(message, node)
                    names = source.folded.get(parts[1].casefold(), [])
                    return self._only_match(node, [(source, name) for name in names], parts[2:])
        first = parts[0].casefold()
        matches = [
            (source, name)
            for source in self.sources
            for name in source.folded.get(first, [])
            if name not in source.hidden and not source.is_closed
        ]
        if not matches and self.pairs is not None and first == self.pairs.relation.time:
            matches = [(self.pairs, first)]
        return self._only_match(node, matches, parts[1:])

    def _named(self) -> list[FromItem]:
        return self.sources if self.pairs is None else [*self.sources, self.pairs]

    def _only_match(
        self, node: exp.Column, matches: list[tuple[FromItem, str]], fields: tuple[str, ...]
    ) -> ResolvedColumn | None:
        if not matches:
            return None
        if len(matches) > 1:
            options = " or ".join(f"{source.alias}.{name}" for source, name in matches)
            self.parsed.fail(f"{matches[0][1]} is ambiguous: {options}", node)
        source, name = matches[0]
        kind, spelled = source.relation.columns[name], []
        for part in fields:
            if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):  # m.key is m['key']
                kind = kind.item_type
                spelled.append(part)
                continue
            is_list = pa.types.is_list(kind)  # of structs: a field of each
            struct = kind.value_type if is_list else kind
            children = (
                [struct.field(at) for at in range(struct.num_fields)] if pa.types.is_struct(struct) else []
            )
            child = next((child for child in children if child.name.casefold() == part.casefold()), None)
            if child is None:
                hint = near_miss(part, [child.name for child in children])
                self.parsed.fail(f"{name} has no field {part}{hint}", node)
            kind = pa.list_(child.type) if is_list else child.type
            spelled.append(child.name)
        return ResolvedColumn(source, name, tuple(spelled), kind)

    def _unknown(self, node: exp.Column) -> NoReturn:
        parts = [part.name for part in node.parts]
        sources = [source for source in self.sources if source.alias.casefold() == parts[0].casefold()]
        if len(parts) > 1 and not sources and len(self.sources) > 0:
            aliases = [source.alias for source in self.sources]
            hint = near_miss(parts[0], aliases) or f"; there is {', '.join(aliases)}"
            self.parsed.fail(f"unknown name {parts[0]} in {'.'.join(parts)}{hint}", node)
        qualified = len(parts) > 1
        name, place = (parts[1], node.parts[1]) if qualified else (parts[0], node.parts[0])
        known = [
            column
            for source in (sources or self.sources)
            for column in source.relation.columns
            if not source.is_closed and (qualified or column not in source.hidden)
        ]
        unsupported = {
            column.casefold(): kind
            for source in (sources or self.sources)
            for column, kind in source.relation.unsupported.items()
        }
        if name.casefold() in unsupported:
            message = f"the column {name} is {unsupported[name.casefold()]}, a type that is not supported"
            self.parsed.fail(f"{message}: cast it before the stream is declared", place)
        hint = self._needs_backticks(place, known) or near_miss(name, known)
        raise SQLError(f"unknown column {name}{hint}", self.parsed.text, *span(self.parsed.text, place))

    def _needs_backticks(self, place: exp.Expr, names: list[str]) -> str:
        """A hint for `auction-site`, which is a subtraction unless it is quoted."""
        if "start" not in place.meta:
            return ""
        before = re.search(r"[\w-]*$", self.parsed.text[: place.meta["start"]])
        after = re.match(r"[\w-]*", self.parsed.text[place.meta["start"] :])
        whole = (before[0] if before else "") + (after[0] if after else "")
        match = next((name for name in names if name.casefold() == whole.casefold()), None)
        return f"; a name with a hyphen needs backticks: `{match}`" if match and "-" in match else ""

    def without_parentheses(self, node: exp.Column) -> str | None:
        """A name such as `current_date` as the function call that it is, unless there is a column of this name."""
        name = node.name.lower()
        known = len(node.parts) > 1 or name not in _WITHOUT_PARENTHESES or self.find(node)
        return None if known else f"{name}()"

    def reads(self, node: exp.Expr) -> set[int]:
        """The positions of the relations whose columns an expression reads."""
        found = (self.find(part) for part in node.find_all(exp.Column))
        sources = {id(column.source): column.source for column in found if column is not None}
        if self.pairs is not None and sources.pop(id(self.pairs), None) is not None:  # of both rows
            sources |= {id(source): source for source in self.sources if not source.table}
        return {place for place, source in enumerate(self.sources) if id(source) in sources}

    def inputs(self) -> Mapping[str, pa.DataType]:
        """All columns of a row after the tables are joined to the stream."""
        columns: dict[str, pa.DataType] = dict(self.stream.relation.columns)
        for source in self.sources:
            if source.table and source.id is not None:
                columns[source.id] = pa.bool_()
                columns |= {f"{source.id}.{name}": kind for name, kind in source.relation.columns.items()}
        return columns
