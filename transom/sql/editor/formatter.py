"""Formats the text of a query: one clause a line, keywords in capitals, long lists and conditions broken.

Only white space and the case of keywords change, so the query stays the same. Comments stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transom.errors import SQLError
from transom.sql.clauses.end_clauses import END_CLAUSES
from transom.sql.clauses.window_bracket import BRACKET_WORDS
from transom.sql.editor.scanned_text import PieceKind, ScannedPiece, scan

LONGEST_LINE = 88
INDENT = "  "


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words that no expression has as a name. Others are keywords only in certain places.
_KEYWORDS = _word_set(
    """SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT AS AND OR NOT IN IS NULL BETWEEN LIKE ILIKE RLIKE CASE WHEN
    THEN ELSE END JOIN INNER LEFT RIGHT OUTER SEMI ANTI CROSS ON USING UNION ALL WITH DISTINCT ASC DESC LATERAL VIEW
    EXISTS"""
)
_END_WORDS = frozenset(
    word
    for reader in END_CLAUSES
    for word in " ".join((*reader.openings, *reader.keywords)).upper().split()
    if word.isalpha() and word not in ("EXACT", "NAIVE", "TIMEGRAM")
)
_SPACE_BEFORE_PARENTHESIS = _KEYWORDS | _word_set("FILTER OVER SETS GROUP BUDGET PARTITION")
_JOIN_WORDS = _word_set("INNER LEFT RIGHT FULL OUTER SEMI ANTI CROSS")
_LISTS = ("SELECT", "GROUP", "ORDER")
_CONDITIONS = ("WHERE", "HAVING", "ON", "JOIN", *_JOIN_WORDS)
_ALSO_FUNCTIONS = _word_set("LEFT RIGHT LIKE ILIKE RLIKE EXISTS FILTER")


def format_sql(text: str) -> str:
    """The text of a query in the usual form.

    >>> print(format_sql("select site, avg(price) as mean from bids [range 1 minute slide 1 minute] group by site"))
    SELECT site, avg(price) AS mean
    FROM bids [RANGE 1 minute SLIDE 1 minute]
    GROUP BY site
    """
    pieces = scan(text)
    for piece in pieces:
        if piece.is_open and not piece.text.startswith("--"):
            what = "comment" if piece.kind is PieceKind.COMMENT else "quote"
            raise SQLError(f"the {what} is not closed", text, piece.start, piece.start + 1)
    words = _Words(pieces)
    return "\n".join(line.rstrip() for line in _query_lines(words, 0, len(pieces), "")).strip()


class _Words:
    """The pieces of a text as they are written out, and where brackets close."""

    def __init__(self, pieces: Sequence[ScannedPiece]):
        self.pieces = pieces
        self.closing = _closing(pieces)
        self.texts = [piece.text for piece in pieces]
        self.in_window: set[int] = set()
        self.in_type: set[int] = set()
        self._mark()
        self._capitalize()

    def word(self, at: int) -> str:
        """The keyword at a piece, in capitals; nothing if the piece is no word, or follows a dot or a colon."""
        if not 0 <= at < len(self.pieces):
            return ""
        piece, before = self.pieces[at], self.pieces[at - 1].text if at else ""
        is_name = before == "." or (before == ":" and not piece.spaced)
        return "" if is_name else piece.word

    def ends_value(self, at: int) -> bool:
        """Whether a piece is the end of a value, so that an operator follows."""
        if at < 0:
            return False
        piece = self.pieces[at]
        if piece.kind is PieceKind.SYMBOL:
            return piece.text in (")", "]")
        return self.word(at) not in _KEYWORDS - {"NULL", "END"}

    def _mark(self) -> None:
        """Find the pieces inside of windows and of types such as ARRAY<INT>."""
        for at, piece in enumerate(self.pieces):
            follows = self.word(at + 1)
            if piece.text == "[" and (follows in BRACKET_WORDS or follows == "PARTITION"):
                close = self.closing.get(at)
                if close is not None and close > at + 2:
                    self.in_window.update(range(at, close + 1))
            if piece.text == "<" and not piece.spaced and self.word(at - 1) in ("ARRAY", "MAP", "STRUCT"):
                depth = 0
                for place in range(at, len(self.pieces)):
                    symbol = self.pieces[place].text
                    depth += (symbol == "<") - (set(symbol) == {">"}) * len(symbol)
                    self.in_type.add(place)
                    if depth <= 0:
                        break

    def _capitalize(self) -> None:
        in_end = False
        for at, piece in enumerate(self.pieces):
            word = self.word(at)
            opens_end = _opens_end_clause(self, at)
            in_end = in_end or opens_end
            if not word or (self.pieces[at - 1].word == "AS" and at):
                continue
            before = self.word(at - 1)
            is_keyword = (
                (word in _KEYWORDS and not _is_call(self, at))
                or (at in self.in_window and _is_window_word(self, at))
                or (in_end and word in _END_WORDS and not _is_call(self, at))
                or (word in ("FILTER", "OVER", "WITHIN") and self.pieces[at - 1].text == ")" and at > 0)
                or (word == "TIES" and before == "WITH")
                or (word in ("ROLLUP", "CUBE") and before in ("WITH", "BY"))
                or (word in ("FIRST", "LAST") and before == "NULLS")
                or (word == "NULLS" and before in ("ASC", "DESC"))
                or (word == "WINDOWS" and before == "OVER")
                or (word == "SETS" and before == "GROUPING")
                or (word == "GROUPING" and self.word(at + 1) == "SETS")
            )
            if is_keyword and not piece.text.isupper():
                self.texts[at] = word


def _closing(pieces: Sequence[ScannedPiece]) -> dict[int, int]:
    """By the place of an opening bracket, that of the bracket that closes it."""
    closing, opened = {}, []
    for at, piece in enumerate(pieces):
        if piece.text in ("(", "["):
            opened.append(at)
        elif piece.text in (")", "]") and opened:
            closing[opened.pop()] = at
    return closing


def _is_call(words: _Words, at: int) -> bool:
    """Whether a word is the name of a function, as left in left(text, 3)."""
    word = words.word(at)
    if word not in _ALSO_FUNCTIONS or at + 1 >= len(words.pieces) or words.pieces[at + 1].text != "(":
        return False
    if word in ("LEFT", "RIGHT"):
        return True
    if word in ("FILTER", "EXISTS"):
        return not (at and words.pieces[at - 1].text == ")") and not _opens_query(words, at + 1)
    return words.ends_value(at - 1) is False


def _is_window_word(words: _Words, at: int) -> bool:
    """Whether a word in a window's bracket is a keyword, and not a column or a unit."""
    word, before = words.word(at), words.word(at - 1)
    if before == "WATTR" or words.pieces[at - 1].text == "=":
        return False
    follows = words.word(at + 1)
    return (
        word in BRACKET_WORDS
        or (word == "PARTITION" and follows == "BY")
        or (word, follows) in (("UP", "TO"), ("IN", "TIME"), ("TIME", "ZONE"))
        or (before, word) in (("UP", "TO"), ("TIME", "ZONE"))
    )


def _opens_end_clause(words: _Words, at: int) -> bool:
    """Whether one of the clauses at the end of a query begins at a piece."""
    word, follows = words.word(at), words.word(at + 1)
    if f"{word} {follows}" in (
        "EMIT EARLY",
        "EMIT EMPTY",
        "EMIT CORRECTIONS",
        "ON OVERLOAD",
        "WITH PREFERENCE",
        "AS OF",
    ):
        return True
    if word == "ALERT":
        return (
            follows in ("", "FOR", "RESOLVE", "REPEAT", "SEVERITY", "SUMMARY", "BACKFILL")
            and words.word(at - 1) != "BY"
        )
    if word == "BACKFILL":
        return follows in ("SINCE", "")
    if word == "EMIT":
        return follows in ("EVERY", "AT", "WITH", "ON")
    if word == "WITHIN":
        return follows != "GROUP" and words.word(at - 1) != "CORRECTIONS"
    is_join = at + 1 < len(words.pieces) and words.pieces[at + 1].text == "("
    return word == "USING" and not is_join


# --- lines ---------------------------------------------------------------------------------------


def _query_lines(words: _Words, start: int, end: int, indent: str) -> Iterator[str]:
    """The lines of the pieces of a query, or of anything else."""
    for first, last in _clauses(words, start, end):
        while first < last and words.pieces[first].kind is PieceKind.COMMENT:
            yield indent + words.texts[first]
            first += 1
        if first < last:
            yield from _clause_lines(words, first, last, indent)


def _clauses(words: _Words, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The clauses between two places; comments on lines of their own belong to the clause after them."""
    begun, at = start, start
    while at < end:
        if at > begun and _opens_clause(words, at, start):
            comments = at
            while comments > begun and _is_own_line(words.pieces[comments - 1]):
                comments -= 1
            if comments > begun:
                yield begun, comments
                begun = comments
        at = words.closing[at] + 1 if at in words.closing and words.closing[at] < end else at + 1
    if begun < end:
        yield begun, end


def _is_own_line(piece: ScannedPiece) -> bool:
    return piece.kind is PieceKind.COMMENT and (piece.on_new_line or piece.start == 0)


def _opens_clause(words: _Words, at: int, start: int) -> bool:
    word, before, follows = words.word(at), words.word(at - 1), words.word(at + 1)
    if at == start:
        return False
    if word in ("SELECT", "FROM", "WHERE", "HAVING", "LIMIT"):
        return word != "FROM" or before != "DISTINCT"
    if word in ("GROUP", "ORDER"):
        return follows == "BY" and before != "WITHIN"
    if word == "JOIN" or word in _JOIN_WORDS:
        return before not in _JOIN_WORDS and not _is_call(words, at) and _leads_to_join(words, at)
    if word == "UNION" or (word == "LATERAL" and follows == "VIEW"):
        return True
    return _opens_end_clause(words, at) and not (word in ("ON", "WITH") and _in_emit(words, at))


def _leads_to_join(words: _Words, at: int) -> bool:
    while words.word(at) in _JOIN_WORDS:
        at += 1
    return words.word(at) == "JOIN"


def _in_emit(words: _Words, at: int) -> bool:
    """Whether ON DEMAND or WITH ACCURACY belongs to EMIT EARLY."""
    return words.word(at - 1) in ("EARLY", "EMIT")


def _clause_lines(words: _Words, first: int, last: int, indent: str) -> Iterator[str]:
    """The lines of a clause: one if it is short and has no subquery."""
    flat = _joined(words, first, last, indent)
    has_query = any(_opens_query(words, at) for at in range(first, last))
    if not has_query and "\n" not in flat and len(indent) + len(flat) <= LONGEST_LINE:
        yield indent + flat
        return
    word = words.word(first)
    if word in _LISTS:
        head = first + (2 if word != "SELECT" else 1)
        yield from _list_lines(words, first, head, last, indent)
    elif word in _CONDITIONS:
        yield from _broken_lines(words, first, last, indent, _conjunctions(words, first, last))
    else:
        yield from _broken_lines(words, first, last, indent)


def _list_lines(words: _Words, first: int, head: int, last: int, indent: str) -> Iterator[str]:
    """A list with one item a line."""
    if _flat_width(words, first, last, indent) <= LONGEST_LINE and not _has_line_break(words, first, last):
        yield from _broken_lines(words, first, last, indent)
        return
    yield indent + _joined(words, first, head, indent)
    begun = head
    inner = indent + INDENT
    for at in _at_depth(words, head, last):
        if words.pieces[at].text == ",":
            behind = at + 1
            while (
                behind < last
                and words.pieces[behind].kind is PieceKind.COMMENT
                and not words.pieces[behind].on_new_line
            ):
                behind += 1
            yield from _broken_lines(words, begun, behind, inner)
            begun = behind
    if begun < last:
        yield from _broken_lines(words, begun, last, inner)


def _flat_width(words: _Words, first: int, last: int, indent: str) -> int:
    """The width of a clause on one line, subqueries left out: they have lines of their own."""
    width, at = len(indent), first
    while at < last:
        width += len(words.texts[at]) + 1
        at = words.closing[at] if _opens_query(words, at) else at + 1
    return width - 1


def _has_line_break(words: _Words, first: int, last: int) -> bool:
    return any(piece.kind is PieceKind.COMMENT for piece in words.pieces[first : last - 1])


def _broken_lines(
    words: _Words, first: int, last: int, indent: str, breaks: Sequence[int] = ()
) -> Iterator[str]:
    """Pieces with line breaks at some places, and with subqueries on lines of their own."""
    prefix, line, at = indent, "", first
    while at < last:
        is_broken = (
            at in breaks or _is_own_line(words.pieces[at]) or (at and _ends_line(words.pieces[at - 1]))
        )
        if line and is_broken:
            yield prefix + line
            prefix, line = indent + INDENT, ""
        glue = _glue(words, at - 1, at) if line else ""
        if _opens_query(words, at):
            yield f"{prefix}{line}{glue}("
            yield from _query_lines(words, at + 1, words.closing[at], prefix + INDENT)
            line, at = ")", words.closing[at] + 1
        else:
            line, at = line + glue + words.texts[at], at + 1
    if line:
        yield prefix + line


def _conjunctions(words: _Words, first: int, last: int) -> list[int]:
    """The places of AND, OR and ON outside of parentheses; not the AND of BETWEEN."""
    places, between, cases = [], 0, 0
    for at in _at_depth(words, first, last):
        word = words.word(at)
        cases += (word == "CASE") - (word == "END")
        if word == "BETWEEN":
            between += 1
        elif word == "AND" and between:
            between -= 1
        elif word in ("AND", "OR") and not cases:
            places.append(at)
    return places


def _at_depth(words: _Words, first: int, last: int) -> Iterator[int]:
    """The places outside of brackets."""
    at = first
    while at < last:
        yield at
        at = words.closing[at] + 1 if at in words.closing else at + 1


def _opens_query(words: _Words, at: int) -> bool:
    """Whether a parenthesis opens a subquery."""
    return words.pieces[at].text == "(" and at in words.closing and words.word(at + 1) in ("SELECT", "WITH")


def _ends_line(piece: ScannedPiece) -> bool:
    return piece.kind is PieceKind.COMMENT and piece.text.startswith("--")


# --- spaces --------------------------------------------------------------------------------------


def _joined(words: _Words, first: int, last: int, indent: str) -> str:
    """Pieces on one line; a comment to the end of the line breaks it."""
    parts = []
    for at in range(first, last):
        if at > first:
            broken = _is_own_line(words.pieces[at]) or _ends_line(words.pieces[at - 1])
            parts.append(f"\n{indent}{INDENT}" if broken else _glue(words, at - 1, at))
        parts.append(words.texts[at])
    return "".join(parts)


def _glue(words: _Words, left: int, right: int) -> str:
    """What is between two pieces: a space or nothing."""
    before, after = words.pieces[left], words.pieces[right]
    as_written = " " if after.spaced else ""
    if PieceKind.COMMENT in (before.kind, after.kind):
        return " "
    if (left in words.in_type and right in words.in_type) or (right in words.in_type and after.text == "<"):
        return as_written
    if ":" in (before.text, after.text) or (
        after.kind is PieceKind.STRING and not after.spaced and before.kind is PieceKind.WORD
    ):
        return as_written
    if before.text in ("(", "[", ".", "::", "~", "!", "@", "$") or after.text in (
        ")",
        "]",
        ",",
        ".",
        "::",
        ";",
    ):
        return "" if before.text not in ("@", "$") else as_written
    if after.text == "(":
        return _before_parenthesis(words, left)
    if after.text == "[":
        return " " if right in words.in_window else ""
    if (
        after.text == "%"
        and before.kind is PieceKind.NUMBER
        and not after.spaced
        and not _is_modulo(words, right)
    ):
        return ""
    if before.text in ("-", "+") and _is_unary(words, left):
        return " " if after.text[:1] in ("-", "+") else ""  # two minus signs would begin a comment
    return " "


def _before_parenthesis(words: _Words, at: int) -> str:
    piece = words.pieces[at]
    if piece.kind is PieceKind.SYMBOL:
        return "" if piece.text in (")", "]") else " "
    if piece.kind is not PieceKind.WORD or words.word(at) == "":
        return ""
    is_spaced = words.word(at) in _SPACE_BEFORE_PARENTHESIS and not _is_call(words, at)
    return " " if is_spaced else ""


def _is_modulo(words: _Words, at: int) -> bool:
    """Whether % is an operator: `10%3`, and not a percentage."""
    following = words.pieces[at + 1] if at + 1 < len(words.pieces) else None
    return following is not None and not following.spaced and following.kind is not PieceKind.SYMBOL


def _is_unary(words: _Words, at: int) -> bool:
    return not words.ends_value(at - 1)
