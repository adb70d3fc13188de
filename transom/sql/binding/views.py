"""Views: the columns that one has, with their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from transom.errors import SQLError
from transom.sql.binding.cascades import ReadableQuery, bind_all, relation_of, sources_of
from transom.sql.binding.inlined_queries import view_columns
from transom.sql.catalog import Catalog, Scalars
from transom.sql.syntax.canonical import quote

_WITH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*WITH\b", re.IGNORECASE | re.DOTALL)
_PROBE = "(view)"  # the name of the query that binds a view; no query has a name like it


@dataclass(frozen=True)
class BoundView:
    """A view whose names are resolved: the declared stream below it, and its columns."""

    name: str
    stream: str
    columns: Mapping[str, pa.DataType]


def bind_view(
    name: str, catalog: Catalog, scalars: Scalars, registered: Mapping[str, ReadableQuery]
) -> BoundView:
    """Bind a view of the catalog; an error points into its text.

    A query that returns each of its rows is bound, because a view has the expressions and types of its readers.
    """
    text = catalog.views[name]
    read = {source.casefold() for source in sources_of(text, views=catalog.views)}
    results = {
        query: relation_of(query, bound) for query, bound in registered.items() if query.casefold() in read
    }
    columns = view_columns(name, replace(catalog, streams={**results, **catalog.streams}), scalars)
    # There are none if the stream is unknown.
    before = f"SELECT {', '.join(map(quote, columns)) or '*'} FROM "
    is_inner = _WITH.match(text) is None
    source = (
        f"({text}\n) AS {quote(name)}" if is_inner else quote(name)
    )  # in parentheses, an error has a place
    query = bind_all({_PROBE: f"{before}{source}"}, catalog, scalars, registered)[_PROBE]
    if isinstance(query, SQLError):
        start, end = (at - len(before) - 1 for at in (query.start or 0, query.end or 0))
        is_inside = is_inner and (query.text or "").startswith(before) and 0 <= start < end <= len(text)
        raise SQLError(query.message, text, *((start, end) if is_inside else (0, len(text))))
    return BoundView(name, query.stream, {item.name: item.type for item in query.items})
