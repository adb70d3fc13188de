"""Parts of EXPLAIN's text: counted nouns, shortened lists, and expressions as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

Thing = TypeVar("Thing")

_JOINED = re.compile(r"`([^`#]+)#[0-9a-f]{8}(?:\.([^`]+))?`")
_PLAIN = re.compile(r"`(\w+)`")


@dataclass(frozen=True)
class Detail:
    """How much of a plan is shown; None is all of it."""

    families: int | None = 6
    selections: int | None = 3  # of a family
    queries: int | None = 4  # of a selection
    stores: int | None = 8  # of a store set
    names: int | None = 6  # in a list
    width: int | None = 120  # of an expression
    waiting: bool = True  # whether to say of each query that waits that it does

    def short(self, expression: str) -> str:
        if self.width is None or len(expression) <= self.width:
            return expression
        return f"{expression[: self.width]} ..."


BRIEF = Detail()
ALL = Detail(None, None, None, None, None, None)


def readable(sql: str) -> str:
    """Canonical SQL as people write it; the flag of a joined table reads `TABLE matched`.

    >>> readable("`closing#053b41f0` AND `price` > `closing#053b41f0.cp`")
    'closing matched AND price > closing.cp'
    """
    named = _JOINED.sub(lambda found: f"{found[1]}.{found[2]}" if found[2] else f"{found[1]} matched", sql)
    return _PLAIN.sub(r"\1", named)


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "query", "queries"), counted(1200, "slice")
    ('1 query', '1,200 slices')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def name_list(names: Sequence[str], most: int | None) -> str:
    """A list of at most so many names, and the number of the others.

    >>> name_list(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    if most is None or len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


def queries_text(number: int) -> str:
    return counted(number, "query", "queries")


def first(
    things: Sequence[Thing], most: int | None, show: Callable[[Thing], Iterable[str]], rest: str
) -> Iterator[str]:
    """The lines of the first things, and the number of the others."""
    shown = things if most is None or len(things) <= most + 1 else things[:most]
    for thing in shown:
        yield from show(thing)
    if len(shown) < len(things):
        yield f"... and {len(things) - len(shown):,} more {rest}"


def indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
