"""Sub-expressions that occur in several expressions over the same columns: each is compiled and evaluated once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlglot import exp

from transom.sql.interpreter.typed_expression import TypedExpression


@dataclass(frozen=True)
class Subtree:
    """A compiled sub-expression, and the columns that it reads."""

    typed: TypedExpression
    used: frozenset[str]


class Subtrees:
    """The compiled sub-expressions over some columns, by the syntax trees that they were written as."""

    def __init__(self) -> None:
        self._compiled: dict[int, Subtree] = {}
        self._keys: dict[Hashable, int] = {}
        self._numbers = (
            count()
        )  # not the length of `_keys`: threads that compile at once must not share a number

    def __len__(self) -> int:
        return len(self._compiled)

    def key(self, node: exp.Expr, text: str, keys: dict[int, int]) -> int:
        """A number that equal syntax trees have in common; `keys` has those of the text's other nodes by identity."""
        known = keys.get(id(node))
        if known is not None:
            return known
        if isinstance(node, exp.RawString):  # its value is in the text only
            parts: Hashable = text[node.meta["start"] : node.meta["end"] + 1]
        else:
            parts = tuple(
                (name, self._part(value, text, keys))
                for name, value in node.args.items()
                if value is not None
            )
        keys[id(node)] = key = self._keys.setdefault((type(node), parts), next(self._numbers))
        return key

    def _part(self, value: Any, text: str, keys: dict[int, int]) -> Hashable:
        if isinstance(value, exp.Expr):
            return "node", self.key(value, text, keys)
        if isinstance(value, list):
            return tuple(self._part(each, text, keys) for each in value)
        return type(value), str(value)

    def find(self, key: int) -> Subtree | None:
        """The sub-expression that was compiled for a key."""
        known = self._compiled.get(key)
        if known is not None:
            known.typed.is_shared = True
        return known

    def add(self, key: int, subtree: Subtree) -> None:
        """Keep a compiled sub-expression; not one that calls a Python function, which is called for each row."""
        if subtree.typed.vector is not None:
            self._compiled[key] = subtree
