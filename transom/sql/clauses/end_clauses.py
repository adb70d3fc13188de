"""The clauses that can stand at the end of a query. A new one is added to this tuple."""

from __future__ import annotations

from transom.errors import SQLError
from transom.sql.clauses.emit import EMIT_EARLY
from transom.sql.clauses.overload import ON_OVERLOAD
from transom.sql.clauses.preference import WITH_PREFERENCE
from transom.sql.clauses.using import USING
from transom.sql.syntax.parsed_query import EndClause, EndClauseReader
from transom.sql.syntax.spark_parser import query_tokens
from transom.sql.syntax.token_reader import word_of

END_CLAUSES: tuple[EndClauseReader, ...] = (ON_OVERLOAD, EMIT_EARLY, USING, WITH_PREFERENCE)


def read_end_clauses(text: str) -> tuple[EndClause, ...]:
    """The clauses in a text that holds nothing else."""
    tokens, at = query_tokens(text), 0
    clauses: list[EndClause] = []
    while at < len(tokens):
        reader = next((each for each in END_CLAUSES if word_of(tokens[at]) in each.words), None)
        if reader is None:
            raise SQLError("this is not a clause", text, tokens[at].start, tokens[at].end + 1)
        clause, at = reader.read(text, tokens, at)
        clauses.append(clause)
    return tuple(clauses)
