"""The clauses that can stand at the end of a query. A new one is added to this tuple."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.clauses.alert import ALERT_CLAUSE
from transom.sql.clauses.confidence import WITH_CONFIDENCE
from transom.sql.clauses.corrections import EMIT_CORRECTIONS
from transom.sql.clauses.emit import EMIT_EARLY
from transom.sql.clauses.empty_windows import EMIT_EMPTY
from transom.sql.clauses.overload import ON_OVERLOAD
from transom.sql.clauses.past_times import AS_OF, BACKFILL
from transom.sql.clauses.preference import WITH_PREFERENCE
from transom.sql.clauses.using import USING
from transom.sql.syntax.parsed_query import EndClause, EndClauseReader
from transom.sql.syntax.spark_parser import query_tokens
from transom.sql.syntax.token_reader import EXPRESSION_ENDS, FROM_ENDS, word_of

END_CLAUSES: tuple[EndClauseReader, ...] = (
    WITH_CONFIDENCE,
    ON_OVERLOAD,
    EMIT_EMPTY,
    EMIT_CORRECTIONS,
    EMIT_EARLY,
    ALERT_CLAUSE,
    USING,
    WITH_PREFERENCE,
    BACKFILL,
    AS_OF,
)
_MISTAKEN_FOR_ALIASES = ("ALERT", "BACKFILL", "EMIT")
_WHOLE_CLAUSES = {  # clauses that are often written without their first word
    "FOR": "ALERT FOR 3 WINDOWS",
    "SINCE": "BACKFILL SINCE '24 hours ago'",
    "CONFIDENCE": "WITH CONFIDENCE 95%",
}
_LAST = (BACKFILL, AS_OF)  # other clauses read the text before them
_BY_FIRST_WORD = {
    word: tuple(each for each in END_CLAUSES if word in each.first_words)
    for reader in END_CLAUSES
    for word in reader.first_words
}


def end_clause_at(tokens: Sequence[Token], at: int) -> EndClauseReader | None:
    """The reader of the clause that begins at a token; None if no clause begins there."""
    readers = _BY_FIRST_WORD.get(word_of(tokens[at]), ())
    return next((reader for reader in readers if reader.opens(tokens, at)), None)


def read_clause(
    reader: EndClauseReader, text: str, tokens: Sequence[Token], at: int
) -> tuple[EndClause, int]:
    """Read the clause that begins at a token, and the place of the token that follows it."""
    if reader in _LAST:
        return reader.read(text, tokens, at)
    following = range(at + 1, len(tokens))
    end = next((place for place in following if end_clause_at(tokens, place) in _LAST), len(tokens))
    return reader.read(text, tokens[:end], at)


def misplaced_clause(tokens: Sequence[Token], at: int) -> str:
    """The error for the word of a clause right before WHERE, GROUP BY and so on; nothing for other tokens.

    The word would be an alias there. It is one after AS, in quotes, and if a column such as `emit.site` has it.
    """
    word = word_of(tokens[at])
    if word not in _MISTAKEN_FOR_ALIASES or at == 0 or tokens[at - 1].token_type not in EXPRESSION_ENDS:
        return ""
    if at + 1 == len(tokens) or tokens[at + 1].token_type not in FROM_ENDS:
        return ""
    if any(word_of(name) == word and dot.token_type == TokenType.DOT for name, dot in pairwise(tokens)):
        return ""
    return (
        f"{word} comes at the end of a query, after WHERE, GROUP BY and HAVING; "
        f"an alias is written AS {word.lower()}"
    )


def missing_word(tokens: Sequence[Token], start: int | None) -> str:
    """What was probably meant, if a clause without its first word is at or before the place of an error."""
    at = next((at for at, token in enumerate(tokens) if token.start == start), None)
    if at is None:
        return ""
    words = (word_of(tokens[at]), word_of(tokens[max(at - 1, 0)]))
    return next((f"write {_WHOLE_CLAUSES[word]}" for word in words if word in _WHOLE_CLAUSES), "")


def read_end_clauses(text: str) -> tuple[EndClause, ...]:
    """The clauses in a text that holds nothing else."""
    tokens, at = query_tokens(text), 0
    clauses: list[EndClause] = []
    while at < len(tokens):
        reader = _first_reader(tokens, at)
        if reader is None:
            raise SQLError("this is not a clause", text, tokens[at].start, tokens[at].end + 1)
        clause, at = read_clause(reader, text, tokens, at)
        clauses.append(clause)
    return tuple(clauses)


def _first_reader(tokens: Sequence[Token], at: int) -> EndClauseReader | None:
    """The reader of the clause that must begin at a token: by both words of its opening, or by the first."""
    readers = [each for each in END_CLAUSES if word_of(tokens[at]) in each.first_words]
    words = " ".join(word_of(token) for token in tokens[at : at + 2])
    return next((each for each in readers if words in each.openings), readers[-1] if readers else None)
