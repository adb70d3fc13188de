"""The clauses that can stand at the end of a query. A new one is added to this tuple."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from transom.errors import SQLError
from transom.sql.clauses.emit import EMIT_EARLY
from transom.sql.clauses.empty_windows import EMIT_EMPTY
from transom.sql.clauses.overload import ON_OVERLOAD
from transom.sql.clauses.preference import WITH_PREFERENCE
from transom.sql.clauses.using import USING
from transom.sql.syntax.parsed_query import EndClause, EndClauseReader
from transom.sql.syntax.spark_parser import query_tokens
from transom.sql.syntax.token_reader import word_of

END_CLAUSES: tuple[EndClauseReader, ...] = (ON_OVERLOAD, EMIT_EMPTY, EMIT_EARLY, USING, WITH_PREFERENCE)
_BY_FIRST_WORD = {
    word: tuple(each for each in END_CLAUSES if word in each.first_words)
    for reader in END_CLAUSES
    for word in reader.first_words
}


def end_clause_at(tokens: Sequence[Token], at: int) -> EndClauseReader | None:
    """The reader of the clause that begins at a token; None if no clause begins there."""
    readers = _BY_FIRST_WORD.get(word_of(tokens[at]), ())
    return next((reader for reader in readers if reader.opens(tokens, at)), None)


def read_end_clauses(text: str) -> tuple[EndClause, ...]:
    """The clauses in a text that holds nothing else."""
    tokens, at = query_tokens(text), 0
    clauses: list[EndClause] = []
    while at < len(tokens):
        reader = _first_reader(tokens, at)
        if reader is None:
            raise SQLError("this is not a clause", text, tokens[at].start, tokens[at].end + 1)
        clause, at = reader.read(text, tokens, at)
        clauses.append(clause)
    return tuple(clauses)


def _first_reader(tokens: Sequence[Token], at: int) -> EndClauseReader | None:
    """The reader of the clause that must begin at a token: by both words of its opening, or by the first."""
    readers = [each for each in END_CLAUSES if word_of(tokens[at]) in each.first_words]
    words = " ".join(word_of(token) for token in tokens[at : at + 2])
    return next((each for each in readers if words in each.openings), readers[-1] if readers else None)
