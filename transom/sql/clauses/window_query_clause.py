"""The interface of the clauses at the end of a window query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from transom.elements import ClockKind
from transom.sql.clauses.promise_reader import WrittenPromise
from transom.sql.promise import Promise
from transom.sql.syntax.parsed_query import Parsed


@dataclass(frozen=True)
class ClauseContext:
    """The properties of a query that its clauses need when they are bound."""

    clock: ClockKind  # of the query's window
    qualities: frozenset[str]  # quality functions that the program registered
    promise: Callable[[WrittenPromise], Promise]  # binds the names in a promise


class WindowQueryClause(ABC):
    """A clause at the end of a window query; its bound value is the query's attribute `field`."""

    field: ClassVar[str]
    start: int
    end: int

    @abstractmethod
    def check(self, parsed: Parsed, on_demand: bool) -> None:
        """Raise an error if the clause does not go with the kind of the query."""

    def check_groups(self, parsed: Parsed) -> None:
        """Raise an error if the clause does not go with windows that groups don't share."""

    @abstractmethod
    def bound(self, text: str, context: ClauseContext) -> Any:
        """The value of the clause; errors point into `text`, from which it was read."""
