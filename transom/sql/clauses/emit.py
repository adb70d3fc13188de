"""EMIT EARLY, at the end of a query: when a query emits results of open windows (thesis 3.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from transom.durations import parse_duration
from transom.elements import Emit
from transom.errors import SettingError, SQLError, near_miss
from transom.sql.clauses.window_query_clause import ClauseContext, WindowQueryClause
from transom.sql.syntax.parsed_query import EndClauseReader, Parsed
from transom.sql.syntax.token_reader import (
    EARLIER_CLAUSES,
    EXPRESSION_ENDS,
    LONGEST_LENGTH,
    TokenReader,
    is_after_from,
    word_of,
)

_SOURCES = {"EVERY": "EVERY", "AT": "AT", "WITH": "WITH ACCURACY", "ON": "ON DEMAND"}
_PARTS = (*_SOURCES.values(), "CONFIDENCE", "QUALITY")
_STARTS = {*_SOURCES, "CONFIDENCE", "QUALITY", "EMIT", "ALERT"}
_OTHERS = ("USING", "WITHIN")  # the clause of queries without SLIDE
_ELSEWHERE = {
    ("WITH", "PREFERENCE"): "a query WITH PREFERENCE has no early results",
    ("WITH", "CONFIDENCE"): "WITH CONFIDENCE comes after HAVING, before EMIT EARLY",
    ("ON", "OVERLOAD"): "ON OVERLOAD PREFER comes before EMIT EARLY",
}
_NAME = re.compile(r"[^\W\d]\w*")
_FORMS = "EVERY '1 second', AT 75% OF SLIDE, WITH ACCURACY 95% or ON DEMAND"


@dataclass(frozen=True)
class EmitClause(WindowQueryClause):
    """The clause as it was read, its position, and the position of its quality function's name."""

    field: ClassVar[str] = "emit"

    emit: Emit
    start: int
    end: int  # of the word EMIT
    quality: tuple[int, int] | None = None

    def check(self, parsed: Parsed, on_demand: bool) -> None:
        if on_demand:
            message = "EMIT EARLY needs SLIDE: a query without it is looked up, and reports nothing by itself"
            parsed.fail_at(message, self)

    def check_groups(self, parsed: Parsed) -> None:
        """Refuse what needs a slide that all groups share, for a query with sessions or windows of keys."""
        if self.emit.at or self.emit.accuracy is not None:
            message = "these windows have no common slide; write EMIT EARLY EVERY '1 minute', or EMIT EARLY ON DEMAND"
            parsed.fail_at(message, self)

    def bound(self, text: str, context: ClauseContext) -> Emit:
        """The value of the clause, with the registered spelling of its quality function."""
        written, qualities = self.emit.quality, context.qualities
        if written is None or self.quality is None:
            return self.emit
        for name in sorted(qualities):
            if name.casefold() == written.casefold():
                return replace(self.emit, quality=name)
        raise SQLError(
            f"unknown quality function {written}{near_miss(written, qualities)}", text, *self.quality
        )


def opens_emit(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause begins here; otherwise `emit` is a name."""
    if tokens[at].token_type != TokenType.VAR or tokens[at].text.upper() != "EMIT" or at == 0:
        return False
    before = tokens[at - 1].token_type
    if at + 1 == len(tokens):
        return before in EXPRESSION_ENDS
    if not is_after_from(tokens, at):
        return False
    after = tokens[at + 1].token_type
    on_demand = after == TokenType.ON and at + 2 < len(tokens) and tokens[at + 2].text.upper() == "DEMAND"
    return after in (TokenType.VAR, TokenType.WITH) or on_demand


def read_emit(text: str, tokens: Sequence[Token], at: int) -> tuple[EmitClause, int]:
    """Read the clause, up to the end of the query, EMIT EMPTY or ALERT; an error points at its part."""
    reader = _EmitReader(text, tokens, at)
    return reader.read(), reader.at


EMIT_EARLY = EndClauseReader(
    openings=("EMIT EARLY",),
    keywords=(*" ".join(_PARTS).split(), "BETWEEN", "AND", "OF", "SLIDE"),
    opens=opens_emit,
    read=read_emit,
)


class _EmitReader(TokenReader):
    """Reads the clause from left to right."""

    def __init__(self, text: str, tokens: Sequence[Token], at: int):
        super().__init__(text, tokens, at)
        self.values: dict[str, Any] = {}
        self.quality: tuple[int, int] | None = None

    def read(self) -> EmitClause:
        opening = self.take()
        following = self.token()
        hint = "" if following is None else near_miss(following.text, ["EARLY", "EMPTY", "CORRECTIONS"])
        if following is not None and ("EMPTY" in hint or "CORRECTIONS" in hint):
            self.fail(
                f"expected EARLY, EMPTY or CORRECTIONS after EMIT, found {following.text}{hint}", following
            )
        self.expect("EARLY", "finals need no asking: every window gets one" if self.word() == "FINAL" else "")
        source, given = "", set[str]()
        while (token := self.token()) is not None:
            if (word_of(token) == "EMIT" and self.word(1) in ("EMPTY", "CORRECTIONS")) or word_of(
                token
            ) == "ALERT":
                break
            first = self.take()
            word = word_of(first)
            if word not in _STARTS or word == "EMIT" or (word, self.word()) in _ELSEWHERE:
                self._misplaced(first)
            if word in given:
                self.fail(f"{_SOURCES.get(word, word)} is given twice", first)
            if word in _SOURCES and source:
                self.fail(f"EMIT EARLY takes one of {_FORMS}; {_SOURCES[source]} is given already", first)
            given.add(word)
            source = word if word in _SOURCES else source
            self._read_part(word, first)
        if not source:
            self.fail(f"EMIT EARLY needs {_FORMS}", opening, self.tokens[self.at - 1])
        return EmitClause(Emit(**self.values), opening.start, opening.end + 1, self.quality)

    def _read_part(self, word: str, first: Token) -> None:
        match word:
            case "EVERY":
                self._read_every(first)
            case "AT":
                self._read_at()
            case "WITH":
                self._read_accuracy()
            case "ON":
                self.expect("DEMAND")
            case "CONFIDENCE":
                self._read_confidence()
            case "QUALITY":
                self._read_quality(first)

    def _misplaced(self, token: Token) -> NoReturn:
        word = word_of(token)
        if word == "EMIT":
            self.fail("EMIT EARLY is given twice", token)
        if (message := _ELSEWHERE.get((word, self.word()))) is not None:
            self.fail(message, token, self.token())
        if word in _OTHERS:
            self.fail(f"EMIT EARLY is for queries with SLIDE, and {word} for those without", token)
        if token.token_type in EARLIER_CLAUSES:
            self.fail("EMIT EARLY comes at the very end of a query, and this is after it", token)
        found = self.written(token)
        self.fail(
            f"expected {', '.join(_PARTS[:-1])} or {_PARTS[-1]}, found {found}{near_miss(word, _PARTS)}",
            token,
        )

    # --- the parts -----------------------------------------------------------------------------

    def _read_every(self, word: Token) -> None:
        first = self.at
        while (token := self.token()) is not None:
            if word_of(token) in (*_STARTS, *_OTHERS) or token.token_type in EARLIER_CLAUSES:
                break
            self.at += 1
        value = self.tokens[first : self.at]
        if not value:
            self.fail("EVERY needs a duration like '1 second'", word)
        # Token by token, so that a comment in between is left out.
        written = " ".join(self.written(token) for token in value)
        try:
            every = parse_duration(value[0].text if len(value) == 1 else written)
        except SettingError as error:
            self.fail(f"EVERY: {error}", value[0], value[-1])
        if every <= 0:
            self.fail("EVERY must be positive", value[0], value[-1])
        if every > LONGEST_LENGTH:
            self.fail("EVERY is longer than any stream", value[0], value[-1])
        self.values["every"] = every

    def _read_at(self) -> None:
        points = {self._point("AT")}
        while (token := self.token()) is not None and token.token_type == TokenType.COMMA:
            self.at += 1
            first = self.at
            point = self._point("AT")
            if point in points:
                self.fail(
                    "this point of the slide is there twice", self.tokens[first], self.tokens[self.at - 1]
                )
            points.add(point)
        self._of_slide()
        self.values["at"] = tuple(sorted(points))

    def _read_accuracy(self) -> None:
        self.expect("ACCURACY")
        first = self.at
        accuracy = self.percentage("ACCURACY")
        if not 0 < accuracy < 1:
            self.outside("ACCURACY is above 0% and below 100%", first)
        self.values["accuracy"] = accuracy
        if self.word() == "BETWEEN":
            self.at += 1
            first = self.at
            low = self._point("BETWEEN")
            self.expect("AND")
            high = self._point("BETWEEN")
            if low >= high:
                self.outside("BETWEEN takes the earlier point first, and two that differ", first)
            self._of_slide()
            self.values["between"] = (low, high)

    def _read_confidence(self) -> None:
        first = self.at
        confidence = self.percentage("CONFIDENCE")
        if not 0.5 <= confidence < 1:
            self.outside("CONFIDENCE is at least 50% and below 100%", first)
        self.values["confidence"] = confidence

    def _read_quality(self, word: Token) -> None:
        token = self.token()
        if token is None or word_of(token) in _STARTS:
            self.fail("QUALITY needs the name of a function", word)
        written = self.written(token)
        if token.token_type != TokenType.IDENTIFIER and _NAME.fullmatch(written) is None:
            self.fail(f"QUALITY takes the name of a function, not {written}", token)
        self.at += 1
        self.values["quality"], self.quality = token.text, (token.start, token.end + 1)

    def _of_slide(self) -> None:
        self.expect("OF", "a point is written as a part of the slide: AT 75% OF SLIDE")
        self.expect("SLIDE", "a point is written as a part of the slide: AT 75% OF SLIDE")

    def _point(self, word: str) -> float:
        first = self.at
        point = self.percentage(word)
        if not 0 < point <= 1:
            self.outside(f"{word}: a point of the slide is above 0% and at most 100%", first)
        return point
