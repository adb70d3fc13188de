"""Where the cursor is in the text of a query: its clause and its brackets, and what FROM names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from transom.sql.clauses.window_bracket import BRACKET_WORDS
from transom.sql.editor.scanned_text import PieceKind, ScannedPiece, scan


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLAUSES = {
    "SELECT": "SELECT",
    "FROM": "FROM",
    "JOIN": "JOIN",
    "ON": "ON",
    "WHERE": "WHERE",
    "HAVING": "HAVING",
    "LIMIT": "LIMIT",
    "EMIT": "EMIT",
    "USING": "USING",
    "GROUP": "GROUP BY",
    "ORDER": "ORDER BY",
    "UNION": "UNION",
    "WITH": "WITH",
    "LATERAL": "LATERAL",
    "PREFER": "PREFER",
}
# Words after which a value follows, not an operator.
_VALUE_FOLLOWS = _word_set(
    """SELECT FROM JOIN ON WHERE HAVING BY AND OR NOT IN LIKE ILIKE RLIKE BETWEEN CASE WHEN THEN ELSE DISTINCT
    PREFER WATTR DIV FILTER EXISTS ALL ANY"""
)


@dataclass
class CursorPlace:
    """Where the cursor is: the clause, what is before it, and what brackets are open."""

    clause: str = ""
    opener: str = ""  # what opened the innermost bracket: (, [ for an index, or [] for a window
    pieces: list[ScannedPiece] = field(default_factory=list)  # since the clause or the bracket began
    last: ScannedPiece | None = None  # before the cursor
    qualifier: tuple[str, ...] = ()  # the names before a dot

    @classmethod
    def of(cls, pieces: Sequence[ScannedPiece]) -> CursorPlace:
        """The place after some pieces."""
        stack = [cls()]
        for at, piece in enumerate(pieces):
            place = stack[-1]
            word = piece.word
            if piece.text in ("(", "["):
                opener = piece.text
                if opener == "[" and place.clause in ("FROM", "JOIN", "ON") and _opens_window(pieces, at):
                    opener = "[]"
                place.pieces.append(piece)
                stack.append(cls(place.clause, opener))
            elif piece.text in (")", "]"):
                if len(stack) > 1:
                    stack.pop()
                stack[-1].pieces.append(piece)
            elif word in _CLAUSES and place.opener != "[]" and _opens_clause(pieces, at, place):
                place.clause, place.pieces = _CLAUSES[word], [piece]
            else:
                place.pieces.append(piece)
        place = stack[-1]
        place.last = pieces[-1] if pieces else None
        place.qualifier = _qualifier(pieces)
        return place

    @property
    def words(self) -> tuple[str, ...]:
        """The words since the clause or the bracket began, and the symbols between them."""
        return tuple(piece.word or piece.text for piece in self.pieces)

    @property
    def expects_value(self) -> bool:
        """Whether a value follows, such as a column; otherwise a value has ended, and an operator follows."""
        last = self.last
        if last is None or last.word in _VALUE_FOLLOWS:
            return True
        if last.kind is PieceKind.SYMBOL:
            is_star = last.text == "*" and len(self.pieces) > 1 and self.pieces[-2].text in ("(", ",", ".")
            return not (last.text in (")", "]") or is_star)
        return False


def _opens_window(pieces: Sequence[ScannedPiece], at: int) -> bool:
    """Whether the bracket at a piece is a window's, and not an index."""
    following = pieces[at + 1].word if at + 1 < len(pieces) else ""
    return pieces[at].spaced or following in (*BRACKET_WORDS, "PARTITION") or at + 1 == len(pieces)


def _opens_clause(pieces: Sequence[ScannedPiece], at: int, place: CursorPlace) -> bool:
    """Whether a word opens a clause; `WITHIN GROUP`, `EMIT EARLY ON DEMAND` and `WITH ACCURACY` do not."""
    word = pieces[at].word
    before = pieces[at - 1].word if at else ""
    if at and pieces[at - 1].text == ".":
        return False
    if place.clause == "EMIT" and word in ("ON", "WITH"):
        return False
    if word == "GROUP":
        return before != "WITHIN"
    if word == "WITH":
        return place.clause not in ("LIMIT", "GROUP BY")
    if word == "FROM":
        return before != "DISTINCT"
    return True


def _qualifier(pieces: Sequence[ScannedPiece]) -> tuple[str, ...]:
    """The names before a dot at the end of some pieces: `b.spot.` is (b, spot)."""
    names: list[str] = []
    at = len(pieces) - 1
    while at > 0 and pieces[at].text == "." and pieces[at - 1].name is not None:
        names.insert(0, str(pieces[at - 1].name))
        at -= 2
    return tuple(names)


# --- what FROM names -------------------------------------------------------------------------------

_NO_ALIAS = _word_set(
    """AS ON USING WHERE GROUP HAVING ORDER LIMIT JOIN INNER LEFT RIGHT FULL CROSS SEMI ANTI LATERAL UNION EMIT WITH
    WITHIN WINDOW OUTER SELECT FROM"""
)


def read_relations(text: str) -> dict[str, str]:
    """The relations that a text reads, by the names that columns can be qualified with, lowercase."""
    pieces = [piece for piece in scan(text) if piece.kind is not PieceKind.COMMENT]
    found: dict[str, str] = {}
    at = 0
    in_from = False
    while at < len(pieces):
        word = pieces[at].word
        if word in ("FROM", "JOIN", "TABLE") and (at == 0 or pieces[at - 1].word != "DISTINCT"):
            in_from, at = True, at + 1
            at = _read_relation(pieces, at, found)
        elif in_from and pieces[at].text == ",":
            at = _read_relation(pieces, at + 1, found)
        else:
            if word in ("WHERE", "GROUP", "HAVING", "ORDER", "SELECT", "ON", "EMIT") or pieces[at].text in (
                "(",
                ")",
            ):
                in_from = False
            if pieces[at].text == "[":  # commas in a window separate its parts
                while at < len(pieces) and pieces[at].text != "]":
                    at += 1
            at += 1
    return found


def _read_relation(pieces: Sequence[ScannedPiece], at: int, found: dict[str, str]) -> int:
    """Read a relation and its alias, if one is at a piece; where to go on."""
    if at >= len(pieces) or pieces[at].name is None or pieces[at].word in _NO_ALIAS:
        return at
    name = str(pieces[at].name)
    found[name.casefold()] = name
    at += 1
    if at < len(pieces) and pieces[at].text == "[":
        while at < len(pieces) and pieces[at].text != "]":
            at += 1
        at += 1
    if at < len(pieces) and pieces[at].word == "AS":
        at += 1
    if at < len(pieces) and pieces[at].name is not None and pieces[at].word not in _NO_ALIAS:
        found[str(pieces[at].name).casefold()] = name
        at += 1
    return at


def select_aliases(text: str) -> list[str]:
    """The names that a text gives with AS, outside of FROM."""
    pieces = [piece for piece in scan(text) if piece.kind is not PieceKind.COMMENT]
    found, clause, depth = [], "", 0
    for at, piece in enumerate(pieces):
        depth += (piece.text == "(") - (piece.text == ")")
        clause = piece.word if piece.word in ("SELECT", "FROM", "WHERE", "GROUP", "WITH") else clause
        name = pieces[at + 1].name if at + 1 < len(pieces) else None
        if piece.word == "AS" and clause == "SELECT" and name is not None and depth == 0:
            found.append(name)
    return found
