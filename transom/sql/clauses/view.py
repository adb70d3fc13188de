"""CREATE VIEW and DROP VIEW: a name for a SELECT that filters and projects a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from transom.errors import SQLError
from transom.sql.syntax.spark_parser import tokens_of
from transom.sql.syntax.token_reader import TokenReader, word_of

_GAP = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_VIEW = re.compile(
    rf"{_GAP}*(?:CREATE(?:{_GAP}+OR{_GAP}+REPLACE)?|DROP){_GAP}+(?:(?:GLOBAL|TEMP|TEMPORARY|MATERIALIZED){_GAP}+)*VIEW\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class CreateViewStatement:
    """CREATE VIEW as it was read: the name, the text of the SELECT, and the position of the name."""

    name: str
    select: str
    start: int
    end: int
    replaces: bool = False  # OR REPLACE
    if_missing: bool = False  # IF NOT EXISTS


@dataclass(frozen=True)
class DropViewStatement:
    """DROP VIEW as it was read, and the position of the name."""

    name: str
    start: int
    end: int
    if_exists: bool = False


ViewStatement = CreateViewStatement | DropViewStatement


def is_view_statement(text: str) -> bool:
    """Whether a text is CREATE VIEW or DROP VIEW, by the words that it begins with.

    >>> is_view_statement("create or replace view v as select 1"), is_view_statement("DROP SUMMARY view")
    (True, False)
    """
    return _VIEW.match(text) is not None


def read_view_statement(text: str) -> ViewStatement:
    """The CREATE VIEW or DROP VIEW in a text, before names are resolved.

    >>> read_view_statement("CREATE VIEW big AS SELECT * FROM bids WHERE price > 10;").select
    'SELECT * FROM bids WHERE price > 10'
    """
    tokens = tokens_of(text)
    if not tokens:
        raise SQLError("the statement is empty", text)
    return _Statement(text, tokens, 0).read()


class _Statement(TokenReader):
    """Reads a statement from left to right."""

    def read(self) -> ViewStatement:
        verb = self.take()
        if word_of(verb) not in ("CREATE", "DROP"):
            self.fail("expected CREATE VIEW or DROP VIEW", verb)
        replaces = word_of(verb) == "CREATE" and self.word() == "OR"
        if replaces:
            self.take()
            self.expect("REPLACE")
        if self.word() in ("GLOBAL", "TEMP", "TEMPORARY", "MATERIALIZED"):
            kind = self.take()
            self.fail(f"leave out {word_of(kind)}: an engine has only one kind of view", kind)
        self.expect("VIEW")
        return self._create(replaces) if word_of(verb) == "CREATE" else self._drop()

    def _drop(self) -> DropViewStatement:
        if_exists = self._condition("EXISTS")
        name, start, end = self._name()
        if (token := self.token()) is not None:
            self.fail(f"expected the end of the statement, found {self.written(token)}", token)
        return DropViewStatement(name, start, end, if_exists)

    def _create(self, replaces: bool) -> CreateViewStatement:
        if_missing = self._condition("NOT", "EXISTS")
        name, start, end = self._name()
        if self.is_next(TokenType.L_PAREN):
            self.fail(
                "a list of columns is not supported; rename columns with AS in the SELECT of the view",
                self.take(),
            )
        self.expect("AS", "write CREATE VIEW name AS SELECT ...")
        if (first := self.token()) is None:
            self.fail("expected SELECT after AS", self.tokens[-1])
        select = self.text[first.start : self.tokens[-1].end + 1]
        return CreateViewStatement(name, select, start, end, replaces, if_missing)

    def _condition(self, *words: str) -> bool:
        """Read IF and these words, if they are next."""
        following = (self.token(ahead) for ahead in range(1, len(words) + 1))
        is_next = self.word() == "IF" and words == tuple(word_of(each) if each else "" for each in following)
        self.at += 1 + len(words) if is_next else 0
        return is_next

    def _name(self) -> tuple[str, int, int]:
        token = self.token()
        if token is None:
            self.fail(f"expected the name of a view after {self.tokens[-1].text.upper()}", self.tokens[-1])
        if not self.is_name():
            self.fail(f"expected the name of a view, found {self.written(token)}", token)
        self.at += 1
        return token.text, token.start, token.end + 1
