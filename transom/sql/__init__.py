"""The SQL front: text in, bound queries out."""

from transom.sql.binding.bind import Binding, bind, bind_one
from transom.sql.binding.bind_preferred import bind_all_preferred, bind_preferred
from transom.sql.binding.cascades import bind_all, relation_of, sources_of
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.clauses.summary import bind_drop, bind_summary, is_statement, parse_summary, read_statement
from transom.sql.preferred_query import Preferred
from transom.sql.query import Query
from transom.sql.syntax.dialect import is_preferred

__all__ = [
    "Binding",
    "Catalog",
    "Preferred",
    "Query",
    "Relation",
    "Scalars",
    "bind",
    "bind_all",
    "bind_all_preferred",
    "bind_drop",
    "bind_one",
    "bind_preferred",
    "bind_summary",
    "is_preferred",
    "is_statement",
    "parse_summary",
    "read_statement",
    "relation_of",
    "sources_of",
]
