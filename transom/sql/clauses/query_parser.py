"""A query's text to its syntax tree: Spark's grammar by sqlglot, Transom's own clauses by their readers.

The window's bracket and the clauses at the end are cut out of the token stream before sqlglot parses the rest, so
that every position still points into the user's text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Mapping, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.clauses.corrections import EMIT_CORRECTIONS
from transom.sql.clauses.end_clauses import end_clause_at, misplaced_clause, missing_word, read_clause
from transom.sql.clauses.preference import near_preference, opens_preference
from transom.sql.clauses.window_bracket import opens_bracket, read_bracket
from transom.sql.clauses.window_table import opens_window_table, read_window_table
from transom.sql.syntax.json_paths import is_path, type_colons
from transom.sql.syntax.lag_calls import cut_over
from transom.sql.syntax.parsed_query import Bracket, EndClause, EndClauseReader, Parsed
from transom.sql.syntax.spark_forms import FORM_TOKENS, rewrite_spark_forms
from transom.sql.syntax.spark_parser import add_token, parse_tokens, query_tokens
from transom.sql.syntax.token_reader import FROM_ENDS

_REFUSED = {
    TokenType.SORT_BY: "SORT BY is not supported: results come window by window",
    TokenType.CLUSTER_BY: "CLUSTER BY is not supported",
    TokenType.DISTRIBUTE_BY: "DISTRIBUTE BY is not supported",
    TokenType.OFFSET: "OFFSET is not supported",
    TokenType.UNION: "UNION ALL is supported in subqueries, WITH and views only",
    TokenType.EXCEPT: "EXCEPT is not supported",
    TokenType.INTERSECT: "INTERSECT is not supported",
    TokenType.WITH: "WITH is not supported here",
    TokenType.QUALIFY: "QUALIFY is not supported",
    TokenType.LATERAL: "LATERAL is supported as LATERAL VIEW explode(...) only",
    TokenType.PIVOT: "PIVOT is not supported; write sum(x) FILTER (WHERE k = 1) AS k1 for each column",
    TokenType.CROSS: "CROSS JOIN is not supported; join a table on an equality",
    TokenType.NATURAL: "NATURAL JOIN is not supported; write ON or USING",
}
_PREFERENCE = re.compile(r"\bpreference\b", re.IGNORECASE)


def parse(text: str) -> Parsed:
    """The syntax tree of one query, or an error that points at the wrong token."""
    return _parse(text, is_view=False)


def parse_view(text: str) -> Parsed:
    """The syntax tree of the SELECT of a view; one of UNION ALL becomes a subquery."""
    return _parse(text, is_view=True)


def _parse(text: str, is_view: bool) -> Parsed:
    tokens = query_tokens(text)
    if not tokens:
        raise SQLError("the query is empty", text)
    pieces = _Tokens(text, tokens, is_view).split()
    try:
        tree = parse_tokens(text, pieces.kept)
    except SQLError as error:
        hint = missing_word(pieces.kept, error.start)
        if not hint:
            raise
        raise SQLError(f"{error.message}; {hint}", text, error.start, error.end) from None
    if any(token.token_type in FORM_TOKENS for token in pieces.kept):
        rewrite_spark_forms(text, tree)
    if is_view and isinstance(tree, exp.Union):
        named = tree.args.get("with_")
        tree.set("with_", None)
        tree = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=tree)))
        tree.set("with_", named)
    if not isinstance(tree, exp.Select):
        raise SQLError("expected SELECT", text, tokens[0].start, tokens[0].end + 1)
    if not tree.expressions:
        raise SQLError("SELECT needs something to select", text, tokens[0].start, tokens[0].end + 1)
    return Parsed(text, tree, pieces.bracket, tuple(pieces.clauses.values()), with_ties=pieces.with_ties)


def split_by_preference(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split named texts into window queries and queries with a preference."""
    with_preference = {name: text for name, text in texts.items() if has_preference(text)}
    return {name: text for name, text in texts.items() if name not in with_preference}, with_preference


@lru_cache(maxsize=4096)
def has_preference(text: str) -> bool:
    """Whether a query has WITH PREFERENCE, found without parsing it.

    >>> has_preference("SELECT a FROM s WITH PREFERENCE desc a"), has_preference("SELECT a AS preference FROM s")
    (True, False)
    """
    if _PREFERENCE.search(text) is None:  # the fast path for most queries
        return False
    try:
        tokens = query_tokens(text)
    except SQLError:
        return False
    return any(opens_preference(tokens, at) for at in range(len(tokens)))


class _Tokens:
    """One pass over the tokens: refuses unsupported SQL, cuts out Transom's clauses, corrects what sqlglot misreads."""

    def __init__(self, text: str, tokens: list[Token], is_view: bool = False):
        self.text, self.tokens, self.is_view = text, _whole_group_by(tokens), is_view
        self.kept: list[Token] = []
        self.bracket: Bracket | None = None
        self.clauses: dict[EndClauseReader, EndClause] = {}
        self.with_ties = False

    def split(self) -> _Tokens:
        at, in_from, after_on, selects = 0, False, False, 0
        outside: list[
            tuple[bool, bool, bool]
        ] = []  # of the parentheses around: both flags, and whether SELECT follows
        while at < len(self.tokens):
            token = self.tokens[at]
            kind = token.token_type
            if kind == TokenType.L_BRACKET and opens_bracket(self.tokens, at, in_from, after_on):
                if any(is_query for _, _, is_query in outside):
                    self._fail("the window belongs to the outer query: write it after the subquery", token)
                at = self._read_bracket(at)
                continue
            if opens_window_table(self.tokens, at):
                at = self._read_window_table(at)
                continue
            if (reader := self._opened(at)) is not None:
                self.clauses[reader], at = read_clause(reader, self.text, self.tokens, at)
                continue
            if self._opens_ties(at):
                self.with_ties, at = True, at + 2
                continue
            if kind == TokenType.OVER and self._kind(at - 1) != TokenType.DOT:
                at = cut_over(self.text, self.tokens, at, self.kept)
                continue
            if kind == TokenType.L_PAREN:
                outside.append((in_from, after_on, self._kind(at + 1) == TokenType.SELECT))
            elif kind == TokenType.R_PAREN and outside:
                in_from, after_on, _ = outside.pop()
            elif kind == TokenType.FROM:
                in_from = True
            elif kind in FROM_ENDS:
                in_from = False
            elif kind in (TokenType.ON, TokenType.JOIN):
                after_on = kind == TokenType.ON
            elif kind == TokenType.SELECT:
                selects += 1
            if message := misplaced_clause(self.tokens, at):
                self._fail(message, token)
            self._check(at, selects)
            add_token(self.text, self.kept, token, self._kind(at + 1))
            at += 1
        return self

    def _opened(self, at: int) -> EndClauseReader | None:
        """The reader of the clause that begins at a token."""
        reader = end_clause_at(self.tokens, at)
        if reader is EMIT_CORRECTIONS and reader in self.clauses:
            self._fail("EMIT CORRECTIONS is given twice", self.tokens[at])
        return None if reader in self.clauses else reader

    def _opens_ties(self, at: int) -> bool:
        """Whether `LIMIT 3 WITH TIES` has its last two words here."""
        has_words = self._kind(at) == TokenType.WITH and at + 1 < len(self.tokens)
        if not has_words or self.tokens[at + 1].text.upper() != "TIES":
            return False
        if self._kind(at - 2) != TokenType.LIMIT:
            self._fail("WITH TIES follows ORDER BY ... LIMIT k", self.tokens[at], self.tokens[at + 1])
        return True

    def _read_bracket(self, at: int) -> int:
        if self.bracket is not None:
            self._fail("a query has one window", self.tokens[at])
        if self.kept and self.kept[-1].text.upper() == "WINDOW":
            self.kept.pop()
        self.bracket, at = read_bracket(self.text, self.tokens, at)
        return at

    def _read_window_table(self, at: int) -> int:
        if self.bracket is not None:
            self._fail("a query has one window", self.tokens[at])
        self.bracket, name, at = read_window_table(self.text, self.tokens, at)
        self.kept += name
        return at

    def _kind(self, at: int) -> TokenType | None:
        return self.tokens[at].token_type if 0 <= at < len(self.tokens) else None

    def _fail(self, message: str, first: Token, last: Token | None = None) -> NoReturn:
        raise SQLError(message, self.text, first.start, (last or first).end + 1)

    def _check(self, at: int, selects: int) -> None:
        token, kind = self.tokens[at], self.tokens[at].token_type
        if kind == TokenType.COLON and not is_path(token) and at not in type_colons(self.tokens):
            self._refuse_colon(at)
        if kind == TokenType.PLACEHOLDER:
            self._fail("parameters have names: write :name, and give parameters={'name': ...}", token)
        if kind == TokenType.WITH and at == 0:
            return
        of_keys = kind == TokenType.WITH and self._kind(at + 1) in (TokenType.ROLLUP, TokenType.CUBE)
        if (
            kind in _REFUSED
            and self._kind(at - 1) != TokenType.DOT
            and not of_keys
            and not self._is_allowed(at)
        ):
            hint = near_preference(self.tokens, at) if kind == TokenType.WITH else ""
            self._fail(f"WITH is not supported here{hint}" if hint else _REFUSED[kind], token)
        if token.text.upper() == "MATCH_RECOGNIZE" and self._kind(at + 1) == TokenType.L_PAREN:
            self._fail(
                "MATCH_RECOGNIZE is not supported: queries aggregate windows and match no patterns", token
            )
        if kind == TokenType.SELECT and selects > 1 and not self._is_inner_query(at):
            self._fail("a subquery is supported in FROM, and after IN and EXISTS in WHERE", token)
        is_searched = self._kind(at - 3) in (TokenType.IN, TokenType.EXISTS)  # where equal rows do not matter
        if kind == TokenType.DISTINCT and self._kind(at - 1) == TokenType.SELECT and not is_searched:
            self._fail("SELECT DISTINCT is not supported; GROUP BY gives distinct rows", token)
        if kind == TokenType.SEMICOLON:
            self._fail("one query at a time: nothing may follow the semicolon", token)
        if (
            kind == TokenType.DASH
            and self.text[max(0, token.start - 5) : token.end + 3].upper() == "GROUP-BY"
        ):
            self._fail("write GROUP BY, without the hyphen", self.tokens[at - 1], self.tokens[at + 1])

    def _is_allowed(self, at: int) -> bool:
        """Whether a refused token is in an allowed place: UNION ALL in a subquery, or LATERAL VIEW."""
        kind = self._kind(at)
        if kind == TokenType.LATERAL:
            return at + 1 < len(self.tokens) and self.tokens[at + 1].text.upper() == "VIEW"
        if kind != TokenType.UNION:
            return False
        if self._kind(at + 1) != TokenType.ALL:
            self._fail(
                "UNION removes duplicate rows, which needs the whole stream; write UNION ALL",
                self.tokens[at],
            )
        return self.is_view or self._depth(at) > 0

    def _depth(self, at: int) -> int:
        """How many parentheses are open before a token."""
        opened = [self._kind(place) for place in range(at)]
        return opened.count(TokenType.L_PAREN) - opened.count(TokenType.R_PAREN)

    def _is_inner_query(self, at: int) -> bool:
        """Whether a SELECT begins a subquery in FROM, a part of UNION ALL, a definition of WITH, or the query after
        the definitions."""
        if self._kind(at - 1) == TokenType.ALL and self._kind(at - 2) == TokenType.UNION:
            return True
        if self.tokens[0].token_type == TokenType.WITH and self._kind(at - 1) in (
            TokenType.R_PAREN,
            TokenType.L_PAREN,
        ):
            return self._depth(at) == 0 or self._kind(at - 2) in (
                TokenType.ALIAS,
                TokenType.FROM,
                TokenType.IN,
                TokenType.EXISTS,
            )
        return self._kind(at - 1) == TokenType.L_PAREN and self._kind(at - 2) in (
            TokenType.FROM,
            TokenType.COMMA,
            TokenType.JOIN,
            TokenType.IN,
            TokenType.EXISTS,
        )

    def _refuse_colon(self, at: int) -> None:
        """Refuse `:name`, for which no value was given, and a path that can't be read."""
        colon = self.tokens[at]
        before = self.text[: colon.start][-1:]
        if at + 1 == len(self.tokens):
            self._fail("expected the name of a parameter after :", colon)
        name = self.tokens[at + 1]
        if before.isalnum() or (before and before in "_)]`"):
            self._fail("expected a path directly after :, such as column:user.items[0]", colon)
        self._fail(
            f"the parameter :{name.text} has no value; give it with parameters={{'{name.text}': ...}}",
            colon,
            name,
        )


def _whole_group_by(tokens: list[Token]) -> list[Token]:
    """Join GROUP and BY into one token, as sqlglot does unless a comment is between them."""
    for at in range(len(tokens) - 1):
        first, second = tokens[at], tokens[at + 1]
        if first.text.upper() == "GROUP" and second.text.upper() == "BY":
            whole = Token(TokenType.GROUP_BY, "GROUP BY", first.line, first.col, first.start, second.end)
            return [*tokens[:at], whole, *tokens[at + 2 :]]
    return tokens
