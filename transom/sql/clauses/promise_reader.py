"""Reads the order and the promise of WITH PREFERENCE and ON OVERLOAD PREFER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.errors import near_miss
from transom.sql.promise import Number
from transom.sql.syntax.token_reader import EARLIER_CLAUSES, TokenReader

ORDERS = ("desc", "asc", "weighted")
COUNT = "SUMMARY.Estimate.Count"
PROMISE_WORDS = (*map(str.upper, ORDERS), "SUMMARY")  # those that an editor shows as keywords
PREFERENCE_PARTS = ("FADE", "WINDOW", "BUDGET")
WINDOW_CLAUSES = ("EMIT", "USING", "WITHIN")  # the last clauses of window queries
_SUMS = {TokenType.PLUS: "+", TokenType.DASH: "-"}
_PRODUCTS = {TokenType.STAR: "*", TokenType.SLASH: "/"}
_MOST_NAMES = 4  # names in a dotted path; a column has no more
_MOST_OPERANDS = 100  # binding, EXPLAIN and evaluation recurse into a promise


@dataclass(frozen=True)
class Leaf:
    """A column of a promise as it was written, or the estimated count of its value."""

    column: exp.Column
    counted: bool


@dataclass(frozen=True)
class Operation:
    """Two operands of a promise and one of `+ - * /`."""

    op: str
    left: WrittenPromise
    right: WrittenPromise


WrittenPromise = Leaf | Number | Operation


class PromiseReader(TokenReader):
    """Reads the order and the promise of both clauses."""

    name: str
    ends: tuple[str, ...]  # words that may follow the promise
    operands = 0  # read so far; signs and parentheses count, too

    def order(self) -> str:
        """Read the order, `desc` unless given."""
        order = self.word().lower()
        if order not in ORDERS:
            return ORDERS[0]
        self.at += 1
        return order

    def promise(self) -> WrittenPromise:
        """Read the promise: a sum of products."""
        return self._chain(_SUMS, lambda: self._chain(_PRODUCTS, self._operand))

    def _chain(self, operators: dict[TokenType, str], part: Any) -> WrittenPromise:
        left: WrittenPromise = part()
        while (token := self.token()) is not None and token.token_type in operators:
            self.at += 1
            left = Operation(operators[token.token_type], left, part())
        return left

    def _operand(self) -> WrittenPromise:
        token = self.token()
        if token is None or self._is_part():
            before = self.tokens[self.at - 1]
            self.fail(f"expected an expression after {before.text}, like {COUNT}(item)", before)
        self.operands += 1
        if self.operands > _MOST_OPERANDS:
            self.fail(f"a promise has at most {_MOST_OPERANDS} operands, signs and parentheses", token)
        if token.token_type in _SUMS:
            self.at += 1
            return self._signed(token, self._operand())
        if token.token_type == TokenType.NUMBER:
            return Number(self.number(self.name))
        if token.token_type == TokenType.L_PAREN:
            self.at += 1
            inner = self.promise()
            if not self.is_next(TokenType.R_PAREN):
                self._not_closed(token)
            self.at += 1
            return inner
        if not self.is_name():
            self.fail(f"expected a number, a column or {COUNT}(column), found {self.written(token)}", token)
        return self._named()

    def _not_closed(self, opening: Token) -> NoReturn:
        token = self.token()
        if token is None:
            self.fail("this parenthesis is not closed", opening)
        self.fail(f"expected + - * / or the closing parenthesis, found {self.written(token)}", token)

    @staticmethod
    def _signed(sign: Token, operand: WrittenPromise) -> WrittenPromise:
        if sign.token_type == TokenType.PLUS:
            return operand
        return Number(-operand.value) if isinstance(operand, Number) else Operation("-", Number(0.0), operand)

    def _is_part(self) -> bool:
        """Whether a part after the promise begins here, and not a column of the same name."""
        following = self.token(1)
        if self.word() not in self.ends or following is None:
            return False
        kinds = (TokenType.STRING, TokenType.NUMBER, TokenType.INTERVAL, TokenType.VAR)
        return following.token_type in kinds

    def _named(self) -> Leaf:
        first = self.at
        names = self._path()
        if not self.is_next(TokenType.L_PAREN):
            return Leaf(self._column(names), counted=False)
        written = ".".join(name.text for name in names)
        if written.casefold() != COUNT.casefold():
            hint = near_miss(written, [COUNT]) or f"; did you mean {COUNT}?" * (
                names[-1].text.lower() == "count"
            )
            self.outside(f"a promise can call only {COUNT}, not {written}{hint}", first)
        opening = self.take()
        if not self.is_name():
            token = self.token() or opening
            self.fail(f"{COUNT} takes a summarized column, found {self.written(token)}", token)
        column = self._column(self._path())
        if not self.is_next(TokenType.R_PAREN):
            found = self.token()
            if found is None:
                self.fail("this parenthesis is not closed", opening)
            self.fail(f"{COUNT} takes one summarized column, found {self.written(found)}", found)
        self.at += 1
        return Leaf(column, counted=True)

    def _path(self) -> list[Token]:
        """Read names with dots between them."""
        names = [self.take()]
        while self.is_next(TokenType.DOT):
            self.at += 1
            if not self.is_name():
                token = self.token()
                found = "" if token is None else f", found {self.written(token)}"
                self.fail(f"expected a name after the dot{found}", token or self.tokens[-1])
            names.append(self.take())
        return names

    def _column(self, names: list[Token]) -> exp.Column:
        if len(names) > _MOST_NAMES:
            self.fail("this is not a column of a stream", names[0], names[-1])
        parts = [
            exp.Identifier(this=name.text, quoted=name.token_type == TokenType.IDENTIFIER).update_positions(
                name
            )
            for name in names
        ]
        keys = ("this", "table", "db", "catalog")
        return exp.Column(**dict(zip(keys, reversed(parts), strict=False)))

    def misplaced(self, token: Token, promise: WrittenPromise, forms: Sequence[str]) -> NoReturn:
        """Refuse an unexpected token after the promise, or after one of the parts that follow it."""
        token_text = self.written(token)
        if token.token_type == TokenType.DOT:
            self.fail("a product is written with *", token)
        if token.token_type in EARLIER_CLAUSES:
            self.fail(f"{self.name} comes at the very end of a query, and this is after it", token)
        if isinstance(promise, Leaf) and not promise.counted and len(promise.column.parts) == 1:
            written = promise.column.name
            if hint := near_miss(written, ORDERS):
                self.fail(f"expected desc, asc or weighted, found {written}{hint}", self.tokens[self.at - 1])
        hint = near_miss(token.text, [form.split()[0] for form in forms])
        self.fail(
            f"expected + - * /, {', '.join(forms)} or the end of the query, found {token_text}{hint}", token
        )
