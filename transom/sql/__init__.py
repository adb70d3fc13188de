"""The SQL front: text in, bound queries out."""

from transom.sql.bind import Binding, bind, bind_one
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.derived import bind_all, relation_of, sources_of
from transom.sql.dialect import is_preferred
from transom.sql.prefer import bind_all_preferred, bind_preferred
from transom.sql.preferred import Preferred
from transom.sql.query import Query
from transom.sql.summary import bind_drop, bind_summary, is_statement, parse_summary, read_statement

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
