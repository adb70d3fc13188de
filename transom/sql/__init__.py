"""The SQL front: text in, bound queries out.

Read `syntax/` (text to tokens and a tree), `clauses/` (the clauses that Spark does not have), `binding/` (names and
types resolved), then `query.py` and `preference_query.py`, the bound queries. `interpreter/` evaluates scalar
expressions without Spark.
"""

from transom.sql.binding.bind import Binding, bind, bind_one
from transom.sql.binding.bind_preference_query import bind_preference_queries, bind_preference_query
from transom.sql.binding.cascades import bind_all, relation_of, sources_of
from transom.sql.catalog import Catalog, Relation, Scalars
from transom.sql.clauses.query_parser import has_preference
from transom.sql.clauses.summary import bind_drop, bind_summary, is_statement, parse_summary, read_statement
from transom.sql.preference_query import PreferenceQuery
from transom.sql.query import Query

__all__ = [
    "Binding",
    "Catalog",
    "PreferenceQuery",
    "Query",
    "Relation",
    "Scalars",
    "bind",
    "bind_all",
    "bind_drop",
    "bind_one",
    "bind_preference_queries",
    "bind_preference_query",
    "bind_summary",
    "has_preference",
    "is_statement",
    "parse_summary",
    "read_statement",
    "relation_of",
    "sources_of",
]
