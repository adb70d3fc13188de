"""What can go wrong, under one root."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Iterable


class TransomError(Exception):
    """The root of every error that Transom raises on purpose."""


class SettingError(TransomError, ValueError):
    """An option, a duration or a pipeline file says something that can't be meant."""


class MissingPackage(TransomError, ImportError):
    """A package that this needs is not installed."""


class BackendLimitError(SettingError):
    """This backend can't do what is asked for; another one may."""


class StateError(TransomError, RuntimeError):
    """The engine or its checkpoint is not in a state in which this can be done."""


class FeedFullError(StateError):
    """So many pushed rows wait to be processed that a feed takes no more for now."""


class CheckpointError(StateError):
    """A file of the checkpoint is damaged or missing, and nothing can take its place."""


class WriteError(StateError):
    """A file can't be written: the disk is full, broken or read-only. The batch is not committed, and runs again."""


class BatchError(TransomError, RuntimeError):
    """A batch could not be processed; nothing of it was committed."""


class DeadlineError(BatchError):
    """A batch, a prod or a lookup took longer than its deadline."""


class CostError(TransomError, ValueError):
    """A query or a summary would cost more than the limits allow."""


class SQLError(TransomError, ValueError):
    """A query's text is wrong at a place that can be pointed at.

    ```pycon
    >>> print(SQLError("unknown column prise", "SELECT sum(prise) FROM bids", 11, 16))
    unknown column prise
      SELECT sum(prise) FROM bids
                 ^^^^^

    ```
    """

    def __init__(self, message: str, text: str = "", start: int | None = None, end: int | None = None):
        self.message, self.text, self.start = message, text, start
        self.end = start + 1 if end is None and start is not None else end
        super().__init__(message)

    @property
    def line(self) -> int | None:
        """The line of the place, counted from 1."""
        return None if self.start is None else self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int | None:
        """The column of the place, counted from 1."""
        return None if self.start is None else self.start - self.text.rfind("\n", 0, self.start)

    def __str__(self) -> str:
        if self.start is None or self.column is None or self.line is None:
            return self.message
        shown = self.text.split("\n")[self.line - 1]
        width = max(1, min((self.end or 0) - self.start, len(shown) - self.column + 1))
        where = f" (line {self.line})" if "\n" in self.text else ""
        return f"{self.message}{where}\n  {shown}\n  {' ' * (self.column - 1)}{'^' * width}"


def near_miss(word: str, candidates: Iterable[str]) -> str:
    """A clause that suggests what was probably meant, or nothing.

    >>> near_miss("prise", ["price", "site"])
    '; did you mean price?'
    """
    folded = {name.casefold(): name for name in candidates}
    close = get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]}?" if close else ""
