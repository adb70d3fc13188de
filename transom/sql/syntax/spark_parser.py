"""sqlglot's parser for Spark SQL, set up so that it keeps every function call as the user wrote it.

sqlglot knows many functions and rewrites some of them into others. Here only the evaluator (Spark, or the
interpreter) decides what a function means, so each call stays a name with arguments.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import SQLError
from transom.sql.syntax.json_paths import is_path, path_call, with_paths

OF_IS_NOT = "of_is_not"  # marks `a IS NULL` in the tree of `a IS NOT NULL`: Spark has no such part


class LocatedParseError(ParseError):
    """sqlglot's error, with the position of the token at which parsing failed."""

    def __init__(self, message: str, start: int, end: int):
        super().__init__(message)
        self.message, self.start, self.end = message, start, end


def _with_position(parse: Any) -> Any:
    return lambda self, token: parse(self, token).update_positions(token)


class TransomParser(SparkParser):
    """Spark's parser, without interpretation of functions and with the positions of constants."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: SparkParser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "SUBSTRING")
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Any]] = SparkParser.PRIMARY_PARSERS | {
        kind: _with_position(SparkParser.PRIMARY_PARSERS[kind])
        for kind in (TokenType.NULL, TokenType.TRUE, TokenType.FALSE)
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse
        for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name not in ("ANY", "TRANSFORM")  # any(x) is an aggregate, and transform() takes a lambda
    }
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # array(a, b)[1] is an index, not a constructor
    STRICT_CAST = True

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """ROLLUP and CUBE of any expressions; sqlglot reads no comparisons there."""
        if with_prefix or self._curr.token_type not in (TokenType.CUBE, TokenType.ROLLUP):
            return super()._parse_cube_or_rollup(with_prefix)
        kind = exp.Cube if self._curr.token_type == TokenType.CUBE else exp.Rollup
        self._advance()
        return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

    def _parse_grouping_set(self) -> exp.Expr | None:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        """`a IS NULL` and its relatives; the test in `a IS NOT NULL` is marked as a part of it."""
        parsed = super()._parse_is(this)
        if isinstance(parsed, exp.Not) and isinstance(parsed.this, exp.Is):
            parsed.this.meta[OF_IS_NOT] = True
        return parsed

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        """What follows a column: fields, indexes, casts, and a path into JSON text."""
        parsed = super()._parse_column_ops(this)
        if parsed is None or self._curr is None or not is_path(self._curr):
            return parsed
        token = self._curr
        self._advance()
        return self._parse_column_ops(path_call(parsed, token))

    def raise_error(self, message: str, token: Token | None = None) -> None:
        token = token or self._curr or self._prev
        raise LocatedParseError(message, token.start, token.end + 1)


class TransomDialect(Spark):
    """The part of Spark SQL that Transom reads."""

    Parser = TransomParser


_DIALECT = TransomDialect()
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")  # without the suffix of its type
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END}
_PART_ENDS = {  # what ends an expression
    TokenType.COMMA,
    TokenType.FROM,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    TokenType.ON,
    TokenType.ORDER_BY,
    TokenType.SELECT,
    TokenType.WHERE,
}
_CONSTRUCTORS = {TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT}


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, without the semicolons at its end; a path into JSON text is one token."""
    try:
        tokens: list[Token] = _DIALECT.tokenize(text)
    except TokenError:
        raise SQLError("a quote or a comment is not closed", text, max(0, len(text) - 1)) from None
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    for token in tokens:
        if token.token_type == TokenType.NUMBER and not _NUMBER.fullmatch(token.text):
            written = text[token.start : token.end + 1]
            raise SQLError(f"{written} is not a number", text, token.start, token.end + 1)
    return with_paths(text, tokens)


def query_tokens(text: str) -> list[Token]:
    """The tokens of a query, none of which names a variable."""
    tokens = tokens_of(text)
    _refuse_variables(text, tokens)
    return tokens


def _refuse_variables(text: str, tokens: list[Token]) -> None:
    """Refuse `${env:HOME}`: Spark substitutes variables in any text, so a query could read the environment."""
    if "${" in text or "\\" in text:  # a literal may spell it with escapes
        for token in tokens:
            if "${" in token.text or "${" in text[token.start : token.end + 1]:
                raise SQLError(
                    "${ is not taken: Spark would put a variable there", text, token.start, token.end + 1
                )


def parse_tokens(text: str, tokens: list[Token]) -> exp.Expr:
    """The syntax tree of a text's tokens, or an error that points at the wrong token."""
    try:
        parser = TransomParser(dialect=_DIALECT, error_level=ErrorLevel.IMMEDIATE)
        tree = parser.parse(tokens, text)[0]
    except LocatedParseError as error:
        raise SQLError(_plain(error.message), text, error.start, error.end) from None
    except ParseError as error:
        raise SQLError(str(error).split("\n")[0], text) from None
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
        # Of the parser's own, on strange names and numbers.
        tree = None
    if tree is None:
        raise SQLError("this can't be parsed as SQL", text)
    return tree


def parse_expression(text: str) -> exp.Expr:
    """The syntax tree of a scalar expression."""
    tokens = tokens_of(text)
    if not tokens:
        raise SQLError("the expression is empty", text)
    return parse_tokens(text, spark_tokens(text, tokens))


def _plain(message: str) -> str:
    """sqlglot's message without its internal names."""
    if message.startswith("Required keyword"):
        return "an expression is missing before this"
    if message.startswith("Expected table name"):
        return "expected the name of a stream, or a subquery (SELECT ...)"
    if message.startswith("Expected TYPE"):
        return "this is not a type; expected one such as INT, DOUBLE or STRING"
    plain = message.replace("Invalid expression / Unexpected token", "this was not expected here")
    plain = re.sub(r" but got <Token .*", "", plain)
    return plain[:1].lower() + plain[1:]


def nested_too_deeply(text: str) -> SQLError:
    """The error for an expression that is too deep for the parser, with the place where it is deepest.

    >>> print(nested_too_deeply("SELECT ((a)) FROM s"))
    the query is nested too deeply: 2 parentheses are open here
      SELECT ((a)) FROM s
              ^
    """
    depth, deepest, place = 0, 0, 0
    longest, longest_place, run, run_place = 0, 0, 0, 0
    for token in tokens_of(text):
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
            if depth > deepest:
                deepest, place = depth, token.start
        elif kind in _CLOSING:
            depth -= 1
        if kind in _PART_ENDS:
            run, run_place = 0, token.end + 1
        else:
            run_place = token.start if run == 0 else run_place
            run += 1
        if run > longest:
            longest, longest_place = run, run_place
    if deepest >= longest // 8:
        message = f"the query is nested too deeply: {deepest} parentheses are open here"
        return SQLError(message, text, place, place + 1)
    message = "this expression has too many operators in a row; for many values write x IN (...)"
    return SQLError(message, text, longest_place)


def spark_tokens(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens with the corrections that make sqlglot read them as Spark 4 does."""
    corrected: list[Token] = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1].token_type if at + 1 < len(tokens) else None
        add_token(text, corrected, token, following)
    return corrected


def add_token(text: str, tokens: list[Token], token: Token, following: TokenType | None) -> None:
    """Append a token as Spark reads it; two adjacent string literals become one."""
    last = tokens[-1] if tokens else None
    constructor = token.token_type in (*_CONSTRUCTORS, TokenType.SESSION) and following == TokenType.L_PAREN
    if token.token_type == TokenType.WINDOW or constructor:
        # A keyword or the name of a type for sqlglot; Transom reads it as a name.
        token = _retyped(token, TokenType.VAR)
    elif (
        last is not None
        and token.token_type == TokenType.STRING
        and last.token_type in (TokenType.STRING, TokenType.RAW_STRING)
        and token.start == last.end + 1
        and text[token.start] == text[last.end]
    ):
        # Since version 4 Spark reads 'it''s' as one string.
        tokens.pop()
        whole = f"{last.text}{text[last.end]}{token.text}"
        token = Token(TokenType.STRING, whole, token.line, token.col, last.start, token.end)
    if token.token_type == TokenType.STRING and "\\" in text[token.start : token.end + 1]:
        # Only the evaluator decides what a backslash means: the string keeps its spelling.
        token = _retyped(token, TokenType.RAW_STRING)
    tokens.append(token)


def _retyped(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end, token.comments)
