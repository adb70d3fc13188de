"""The SQL front: text in, bound queries out."""

from transom.sql.bind import Binding, bind, bind_one
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.query import Query

__all__ = ["Binding", "Catalog", "Query", "Relation", "Scalars", "bind", "bind_one"]
