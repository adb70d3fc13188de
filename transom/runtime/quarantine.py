"""Quarantine: find the queries that make a batch fail, and complete the batch without them.

A batch is a function of its intent, so it can be run again with fewer queries, and what an attempt wrote is
overwritten by the next one. The search needs no knowledge of what a query does:

1. The batch runs again as it is: a failure that does not repeat has no culprit.
2. It runs without the newest query, which is the culprit most of the time.
3. It runs without any query. If that fails too, no query is the cause.
4. Bisection finds the shortest list of the oldest queries that fails: the last one in it is a culprit.

One culprit among n costs at most log2(n) + 4 reruns. After each culprit the batch runs without it; further
culprits are looked for behind it only, because the queries before it pass.

An attempt that misses the deadline proves little: the machine may be busy. A query is accused of it only if the
batch was late with the query more than once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

log = logging.getLogger("transom")

FRUITLESS_SEARCHES = 3  # for a query that makes the batch late, until the machine is said to be too slow

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Quarantine(Generic[_Result]):
    """A batch that can be run without some of its queries.

    `candidates` lists what can be left out, oldest first. `attempt` runs the batch without some of them,
    given with the reason; its second argument is True where it may take only a bit longer than batches usually
    take. `suspend` leaves one out of all further attempts. `reason` says in one line what is wrong. `is_external`
    recognises failures of the source, the disk or the cluster: no query is their cause, so they are raised as they
    are. `is_late` recognises attempts that took too long.
    """

    candidates: Callable[[], Sequence[str]]
    attempt: Callable[[Mapping[str, str], bool], _Result]
    suspend: Callable[[str, str], None]
    reason: Callable[[Exception], str]
    is_external: Callable[[Exception], bool]
    is_late: Callable[[Exception], bool] = lambda error: False

    def run(self) -> _Result:
        """The result without the culprits; raises the error of the batch if no query is its cause."""
        try:
            return self.attempt({}, False)
        except Exception as error:
            failure = self._refused(error)
        try:
            return self.attempt({}, self.is_late(failure))
        except Exception as error:
            failure = self._refused(error)
        passing: int | None = None  # so many of the oldest candidates are known to pass
        searches_left = FRUITLESS_SEARCHES
        while True:
            candidates = list(self.candidates())
            if passing is None and candidates:
                newest, reason = candidates[-1], self.reason(failure)
                try:
                    result = self.attempt({newest: reason}, True)
                except Exception as error:
                    failing, failure = len(candidates) - 1, self._refused(error)
                else:
                    self.suspend(newest, reason)
                    return result
                passing = self._none_passes(candidates, failure)
            else:
                failing = len(candidates)
            if passing is None or not failing:
                raise failure
            place, failure = self._first_failing(candidates, min(passing, failing - 1), failing, failure)
            if place is not None:
                self.suspend(candidates[place], self.reason(failure))
                passing = place
            elif not searches_left:
                raise failure
            else:
                searches_left -= 1
            try:
                return self.attempt({}, False)
            except Exception as error:
                failure = self._refused(error)

    def _refused(self, error: Exception) -> Exception:
        """An error that a query may have caused; any other is raised."""
        if self.is_external(error):
            raise error
        return error

    def _none_passes(self, candidates: Sequence[str], failure: Exception) -> int | None:
        """0 if the batch passes without any candidate, else None."""
        passes, last = self._tried(candidates, failure, in_search=False)
        if not passes and self.is_late(last):
            passes, _ = self._tried(candidates, last, in_search=False)
        return 0 if passes else None

    def _first_failing(
        self, candidates: Sequence[str], low: int, high: int, failure: Exception
    ) -> tuple[int | None, Exception]:
        """The place of a candidate that fails together with those before it, and its error.

        The first `low` candidates pass, the first `high` fail. If they were late, they must be late once more before
        the last of them is accused; the place is None if none is late any more.
        """
        last, is_confirmed = high, not self.is_late(failure)
        while True:
            while high - low > 1:
                middle = (low + high) // 2
                passes, failure = self._tried(candidates[middle:], failure)
                low, high = (middle, high) if passes else (low, middle)
            if is_confirmed:
                return high - 1, failure
            passes, failure = self._tried(candidates[high:], failure)
            if not passes:
                return high - 1, failure
            if high == last:
                return None, failure
            low, high = high, last

    def _tried(
        self, excluded: Sequence[str], failure: Exception, in_search: bool = True
    ) -> tuple[bool, Exception]:
        """Whether the batch passes without some candidates, and the last failure."""
        try:
            self.attempt(dict.fromkeys(excluded, self.reason(failure)), in_search)
        except Exception as error:
            return False, self._refused(error)
        return True, failure
