"""The SQL front: text in, bound queries out."""

from transom.sql.bind import bind, bind_one
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.query import Query

__all__ = ["Catalog", "Query", "Relation", "Scalars", "bind", "bind_one"]
