"""WITH PREFERENCE and ON OVERLOAD PREFER, at the end of a query: which tuples it wants most.

WITH PREFERENCE is the clause of "Stream Query Processing Using Promising Tuples", Figure 3b, with a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from transom.elements import Preference
from transom.errors import near_miss
from transom.sql.promise import Number
from transom.sql.syntax.clause_reader import EARLIER, Clause, Piece, is_after_from, word_of

ORDERS = ("desc", "asc", "weighted")
COUNT = "SUMMARY.Estimate.Count"
_PARTS = ("FADE", "WINDOW", "BUDGET")
_FORMS = ("FADE FACTOR", "WINDOW", "BUDGET")
_OTHERS = ("EMIT", "USING", "WITHIN")  # the last clauses of window queries
_SUMS = {TokenType.PLUS: "+", TokenType.DASH: "-"}
_PRODUCTS = {TokenType.STAR: "*", TokenType.SLASH: "/"}
_MOST_NAMES = 4  # in a dotted path; a column takes no more


@dataclass(frozen=True)
class Leaf:
    """A column of a promise as it was written, or the estimated count of its value."""

    column: exp.Column
    counted: bool


@dataclass(frozen=True)
class Operation:
    """Two parts of a promise with one of `+ - * /` between them."""

    op: str
    left: Written
    right: Written


Written = Leaf | Number | Operation


@dataclass(frozen=True)
class PreferenceClause:
    """WITH PREFERENCE as it was read, where it stands, and where the length of its WINDOW does."""

    preference: Preference
    promise: Written
    start: int
    end: int
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class OverloadClause:
    """ON OVERLOAD PREFER as it was read, and where it stands."""

    order: str
    promise: Written
    start: int
    end: int


def opens_preference(tokens: Sequence[Token], at: int) -> bool:
    """Whether WITH PREFERENCE begins here."""
    return (
        tokens[at].token_type == TokenType.WITH
        and at + 1 < len(tokens)
        and word_of(tokens[at + 1]) == "PREFERENCE"
        and is_after_from(tokens, at)
    )


def near_preference(tokens: Sequence[Token], at: int) -> str:
    """A hint for a WITH after FROM whose next word was probably meant to be PREFERENCE."""
    if at + 1 == len(tokens) or not is_after_from(tokens, at):
        return ""
    return near_miss(tokens[at + 1].text, ["PREFERENCE"])


def opens_overload(tokens: Sequence[Token], at: int) -> bool:
    """Whether ON OVERLOAD begins here; otherwise ON is a join's, and `overload` a name like any other."""
    if tokens[at].token_type != TokenType.ON or at + 1 == len(tokens):
        return False
    if word_of(tokens[at + 1]) != "OVERLOAD" or not is_after_from(tokens, at):
        return False
    return at + 2 == len(tokens) or tokens[at + 2].token_type in (
        TokenType.VAR,
        TokenType.DESC,
        TokenType.ASC,
    )


def read_preference(text: str, tokens: Sequence[Token], at: int) -> PreferenceClause:
    """Read WITH PREFERENCE, up to the end of the query; an error points at its part."""
    return _Preference(text, tokens, at).read()


def read_overload(text: str, tokens: Sequence[Token], at: int) -> tuple[OverloadClause, int]:
    """Read ON OVERLOAD PREFER, and tell which token follows it: the end of the query, or EMIT."""
    clause = _Overload(text, tokens, at)
    return clause.read(), clause.at


class _Promising(Clause):
    """Reads the order and the promise, which both clauses have."""

    name: str
    ends: tuple[str, ...]  # words that may follow the promise

    def order(self) -> str:
        """Read the order, `desc` unless given."""
        order = self.word().lower()
        if order not in ORDERS:
            return ORDERS[0]
        self.at += 1
        return order

    def promise(self) -> Written:
        """Read the expression that says what tuples promise: a sum of products."""
        return self._chain(_SUMS, lambda: self._chain(_PRODUCTS, self._operand))

    def _chain(self, operators: dict[TokenType, str], part: Any) -> Written:
        left: Written = part()
        while (token := self.token()) is not None and token.token_type in operators:
            self.at += 1
            left = Operation(operators[token.token_type], left, part())
        return left

    def _operand(self) -> Written:
        token = self.token()
        if token is None or self._is_part():
            before = self.tokens[self.at - 1]
            self.fail(f"expected an expression after {before.text}, like {COUNT}(item)", before)
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
    def _signed(sign: Token, operand: Written) -> Written:
        if sign.token_type == TokenType.PLUS:
            return operand
        return Number(-operand.value) if isinstance(operand, Number) else Operation("-", Number(0.0), operand)

    def _is_part(self) -> bool:
        """Whether a part after the promise begins here, not a column of that name."""
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
            self.outside(f"the one function of a promise is {COUNT}, not {written}{hint}", first)
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
            self.fail("this is no column of a stream", names[0], names[-1])
        parts = [
            exp.Identifier(this=name.text, quoted=name.token_type == TokenType.IDENTIFIER).update_positions(
                name
            )
            for name in names
        ]
        keys = ("this", "table", "db", "catalog")
        return exp.Column(**dict(zip(keys, reversed(parts), strict=False)))

    def misplaced(self, token: Token, promise: Written, forms: Sequence[str]) -> NoReturn:
        """Refuse what follows the promise, or a part after it."""
        found = self.written(token)
        if token.token_type == TokenType.DOT:
            self.fail("a product is written with *", token)
        if token.token_type in EARLIER:
            self.fail(f"{self.name} comes at the very end of a query, and this is after it", token)
        if isinstance(promise, Leaf) and not promise.counted and len(promise.column.parts) == 1:
            written = promise.column.name
            if hint := near_miss(written, ORDERS):
                self.fail(f"expected desc, asc or weighted, found {written}{hint}", self.tokens[self.at - 1])
        hint = near_miss(token.text, [form.split()[0] for form in forms])
        self.fail(f"expected + - * /, {', '.join(forms)} or the end of the query, found {found}{hint}", token)


class _Preference(_Promising):
    """Reads WITH PREFERENCE from left to right."""

    name = "WITH PREFERENCE"
    ends = _PARTS

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        super().__init__(text, tokens, at)
        self.values: dict[str, Any] = {}
        self.window: tuple[int, int] | None = None

    def read(self) -> PreferenceClause:
        opening = self.take()
        self.expect("PREFERENCE")
        order, promise = self.order(), self.promise()
        given = set[str]()
        while (token := self.token()) is not None:
            word = word_of(token)
            if word in _OTHERS:
                self.fail(f"{word} is for window queries; a query WITH PREFERENCE takes WINDOW", token)
            if word == "WITH":
                self.fail("WITH PREFERENCE is given twice", token)
            if word not in _PARTS:
                self.misplaced(token, promise, _FORMS)
            if word in given:
                self.fail(f"{word} is given twice", token)
            given.add(word)
            self._read_part(self.take(), word)
        end = self.tokens[-1].end + 1
        return PreferenceClause(Preference(order, **self.values), promise, opening.start, end, self.window)

    def _read_part(self, token: Token, word: str) -> None:
        first = self.at
        match word:
            case "FADE":
                self.expect("FACTOR")
                first = self.at
                fade = self.number("FADE FACTOR", "a number like 0.8")
                if not 0 < fade <= 1:
                    self.outside("FADE FACTOR is above 0 and at most 1", first)
                self.values["fade"] = fade
            case "WINDOW":
                self._check_bracket()
                self.values["window"] = self.duration(token, "'1 minute'", (*_PARTS, *_OTHERS))
                self.window = self.tokens[first].start, self.tokens[self.at - 1].end + 1
            case "BUDGET":
                self._read_budget(token)

    def _check_bracket(self) -> None:
        if self.is_next(TokenType.L_BRACKET):
            self.fail("WINDOW takes a duration like '1 minute' here, and no bracket", self.take())

    def _read_budget(self, word: Token) -> None:
        first, ends = self.at, (*_PARTS, *_OTHERS)
        if self.is_number():
            number = self.number("BUDGET")
            written = Piece.of(self.text, self.tokens[first : self.at]).text
            unit = self.token()
            if unit is None or word_of(unit) in ends:
                self.outside(f"a BUDGET has a unit: write {written} PROBES, or '{written} ms'", first)
            if word_of(unit) in ("PROBES", "PROBE"):
                self._read_probes(number, first)
                return
            if hint := near_miss(unit.text, ["PROBES"]):
                self.fail(
                    f"a BUDGET is in probes or a duration, and this is {self.written(unit)}{hint}", unit
                )
            self.at = first
        self.values["time"] = self.duration(word, "'200 ms', or 50000 PROBES", ends)

    def _read_probes(self, number: float, first: int) -> None:
        if number != int(number) or not 1 <= number < 2**53:
            self.outside("a BUDGET is a whole number of probes, at least 1", first)
        self.at += 1
        self.values["probes"] = int(number)


class _Overload(_Promising):
    """Reads ON OVERLOAD PREFER from left to right."""

    name = "ON OVERLOAD PREFER"
    ends = ("EMIT",)

    def read(self) -> OverloadClause:
        opening = self.take()
        self.at += 1
        self.expect("PREFER")
        order, promise = self.order(), self.promise()
        token = self.token()
        if token is not None and word_of(token) != "EMIT":
            self._refuse_after(token, promise)
        return OverloadClause(order, promise, opening.start, self.tokens[self.at - 1].end + 1)

    def _refuse_after(self, token: Token, promise: Written) -> NoReturn:
        word = word_of(token)
        if word in _PARTS:
            self.fail(f"{word} belongs to WITH PREFERENCE; ON OVERLOAD PREFER takes an order only", token)
        if word == "WITH":
            self.fail("ON OVERLOAD PREFER is for window queries, and WITH PREFERENCE for others", token)
        if word in _OTHERS:
            self.fail(f"ON OVERLOAD PREFER is for queries with SLIDE, and {word} for those without", token)
        if word == "ON":
            self.fail("ON OVERLOAD PREFER is given twice", token)
        self.misplaced(token, promise, ("EMIT EARLY",))
