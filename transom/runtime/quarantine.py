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
batch was late with the query more than once. An attempt that ended an earlier process proves little, too: the process
may have been killed from outside. It is enough to narrow the search, but the last attempt before a query is accused is
confirmed: it runs again until it has ended many processes, or the query is acquitted.
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
    are. `is_late` recognises attempts that took too long, and `is_ended` those that did not run because they ended
    earlier processes. `confirm` is like `attempt`, and lets more processes end before it takes that as a failure.
    """

    candidates: Callable[[], Sequence[str]]
    attempt: Callable[[Mapping[str, str], bool], _Result]
    suspend: Callable[[str, str], None]
    reason: Callable[[Exception], str]
    is_external: Callable[[Exception], bool]
    is_late: Callable[[Exception], bool] = lambda error: False
    is_ended: Callable[[Exception], bool] = lambda error: False
    confirm: Callable[[Mapping[str, str], bool], _Result] | None = None

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
            failing = len(candidates)
            if passing is None and candidates:
                newest, reason = candidates[-1], self.reason(failure)
                try:
                    result = self.attempt({newest: reason}, True)
                except Exception as error:
                    last = self._refused(error)
                    passing, last = self._none_passes(candidates, last)
                    if passing is None or failing > 1:
                        failing, failure = failing - 1, last
                else:
                    if not self.is_ended(failure):
                        self.suspend(newest, reason)
                        return result
                    passing = failing - 1
            if passing is None or not candidates:
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

    def _none_passes(self, candidates: Sequence[str], failure: Exception) -> tuple[int | None, Exception]:
        """0 if the batch passes without any candidate, else None; and the last failure."""
        passes, last = self._tried(candidates, failure, in_search=False)
        if not passes and self._is_doubtful(last):
            passes, last = self._confirmed(candidates, last, in_search=False)
        return (0, failure) if passes else (None, last)

    def _is_doubtful(self, failure: Exception) -> bool:
        """Whether something else than a query may be the cause."""
        return self.is_late(failure) or self.is_ended(failure)

    def _first_failing(
        self, candidates: Sequence[str], low: int, high: int, failure: Exception
    ) -> tuple[int | None, Exception]:
        """The place of a candidate that fails together with those before it, and its error.

        The first `low` candidates pass, the first `high` fail. If that is in doubt, they must fail once more in the
        same way before the last of them is accused; the place is None if none fails any more.
        """
        last, last_failure = high, failure
        while True:
            while high - low > 1:
                middle = (low + high) // 2
                passes, failure = self._tried(candidates[middle:], failure)
                low, high = (middle, high) if passes else (low, middle)
            if not self._is_doubtful(failure):
                return high - 1, failure
            was_late = self.is_late(failure)
            passes, failure = self._confirmed(candidates[high:], failure)
            if passes and high == last:
                return None, failure
            if passes:
                low, high, failure = high, last, last_failure
            elif was_late or not self.is_late(failure):  # else it was late for the first time
                return high - 1, failure

    def _confirmed(
        self, excluded: Sequence[str], failure: Exception, in_search: bool = True
    ) -> tuple[bool, Exception]:
        """Whether an attempt passes whose failure is in doubt, and the last failure."""
        if self.confirm is None or not self.is_ended(failure):
            return self._tried(excluded, failure, in_search)
        return self._tried(excluded, failure, False, self.confirm)

    def _tried(
        self,
        excluded: Sequence[str],
        failure: Exception,
        in_search: bool = True,
        attempt: Callable[[Mapping[str, str], bool], _Result] | None = None,
    ) -> tuple[bool, Exception]:
        """Whether the batch passes without some candidates, and the last failure."""
        try:
            (attempt or self.attempt)(dict.fromkeys(excluded, self.reason(failure)), in_search)
        except Exception as error:
            return False, self._refused(error)
        return True, failure
