"""The SQL front: text in, bound queries out."""

from transom.sql.bind import Binding, bind, bind_one
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.derived import bind_all, relation_of, sources_of
from transom.sql.query import Query

__all__ = [
    "Binding",
    "Catalog",
    "Query",
    "Relation",
    "Scalars",
    "bind",
    "bind_all",
    "bind_one",
    "relation_of",
    "sources_of",
]
