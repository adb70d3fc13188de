"""Which names a typed word can mean, also if it is misspelt."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

_TIERS = (0, 0, 1, 1, 2)  # by rank: a worse tier is for words that match nothing in a better one
_CLOSE = 0.72  # how similar a misspelt word must be
_LEAST_CLOSE = 4  # characters of a word that may be misspelt


def tier_of(rank: int) -> int:
    """How far a match of a rank may be from what was typed: beginnings of words, parts of words, guesses."""
    return _TIERS[rank]


def match_rank(typed: str, label: str) -> int | None:
    """How well a label matches a typed word: the lower the better, None if it does not.

    >>> [match_rank("orig", label) for label in ("origin", "flight_origin", "aboriginal", "foreign")]
    [0, 1, 2, None]
    >>> match_rank("orign", "origin"), match_rank("orign", "foreign"), match_rank("pirce", "price")
    (3, None, 4)
    """
    word, name = typed.casefold(), label.casefold()
    if name.startswith(word):
        return 0
    parts = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", label).casefold())
    if any(part.startswith(word) for part in parts[1:]):
        return 1
    if len(word) > 1 and word in name:
        return 2
    if len(word) > 1 and name[0] == word[0] and _is_subsequence(word, name):
        return 3
    if (
        len(word) >= _LEAST_CLOSE
        and name[:1] == word[:1]
        and SequenceMatcher(None, word, name).ratio() >= _CLOSE
    ):
        return 4
    return None


def _is_subsequence(word: str, name: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in word) and len(word) * 2 >= len(name)
