"""The estimators of a batch, in stacks: they learn from its finals and estimate its early results in few steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.columns.arrays import Floats, Ints, Mask
from transom.estimates.early_values import Estimates
from transom.estimates.estimator import Estimator, split_stack, stack_of
from transom.estimates.estimator_stack import EarlyRows, FinalRows
from transom.estimates.marks import marks
from transom.estimates.monitor import Quality
from transom.estimates.result_values import ResultValues

log = logging.getLogger("transom")


@dataclass(frozen=True)
class _Segment:
    """Rows of some results that belong to one stack."""

    source: int  # the number of the results
    rows: Ints
    query: Ints  # of each row, its number in the stack


class BatchStacks:
    """The estimators of some queries while a batch is processed."""

    def __init__(
        self, before: Mapping[str, Estimator], names: Sequence[str], new: Callable[[str], Estimator]
    ):
        self._new = new
        members: dict[object, dict[str, Estimator]] = {}
        for name in names:
            estimator = before.get(name) or new(name)
            members.setdefault(estimator.query.stack_key, {})[name] = estimator
        self.names = [list(part) for part in members.values()]
        self._before = [list(part.values()) for part in members.values()]
        self.stacks = [stack_of(part) for part in self._before]
        self._place = {name: (i, j) for i, part in enumerate(self.names) for j, name in enumerate(part)}
        self._has_learned = [False] * len(self.stacks)

    def learn(
        self,
        finals: Sequence[ResultValues],
        made: int,
        closed: Mapping[str, int],
        qualities: Mapping[str, Quality],
    ) -> None:
        """Learn from finals; `closed` are the window ids below which a query's windows are closed."""
        for part in _rounds(finals):
            for i, segments in self._segments(part).items():
                query = np.concatenate([segment.query for segment in segments])
                rows = FinalRows(
                    query,
                    _gathered(segments, [values.group for values in part]),
                    _gathered(segments, [values.window for values in part]),
                    _gathered(segments, [values.numbers for values in part]),
                    made,
                    part[segments[0].source].items.take(segments[0].rows) if self._quality(i) else None,
                    _gathered(segments, [values.end for values in part]),
                )
                self._learn(i, rows, qualities.get(self._quality(i) or ""))
        for i, stack in enumerate(self.stacks):
            lowest = np.iinfo(np.int64).min
            self.stacks[i] = stack.since(np.array([closed.get(name, lowest) for name in self.names[i]]))

    def _quality(self, stack: int) -> str | None:
        return self.stacks[stack].queries[0].emit.quality

    def _learn(self, i: int, rows: FinalRows, quality: Quality | None) -> None:
        self._has_learned[i] = True
        try:
            self.stacks[i] = self.stacks[i].with_finals(rows, quality)
        except Exception:  # such as an error in the user's quality function; results are not affected
            learned = []
            for j, estimator in enumerate(split_stack(self.stacks[i])):
                try:
                    alone = stack_of([estimator]).with_finals(rows.of_query(j), quality)
                    learned.append(next(split_stack(alone)))
                except Exception:
                    name = self.names[i][j]
                    log.exception("the estimator of %s failed to learn from finals and starts anew", name)
                    learned.append(self._new(name))
            self.stacks[i] = stack_of(learned)

    def estimate(
        self,
        early: Sequence[ResultValues],
        now: Mapping[str, int],
        made: int,
        is_emitted: bool,
        before: Mapping[str, int] | None = None,
    ) -> list[tuple[ResultValues, Estimates]]:
        """Early results with their estimates, which are pending from now on until their finals arrive.

        With `before`, the time of each query's last look, only those are pending that have come to another mark.
        """
        found = []
        for part in _rounds(early):
            found += [(values, Estimates.none(*values.numbers.shape)) for values in part]
            estimates = [estimates for _, estimates in found[-len(part) :]]
            slides_left = [values.slides_left(now) for values in part]
            is_new = [
                _is_at_new_mark(values, left, before) for values, left in zip(part, slides_left, strict=True)
            ]
            for i, segments in self._segments(part).items():
                query = np.concatenate([segment.query for segment in segments])
                order = np.argsort(query, kind="stable")
                rows = EarlyRows(
                    query[order],
                    _gathered(segments, [values.group for values in part])[order],
                    _gathered(segments, [values.window for values in part])[order],
                    _gathered(segments, slides_left)[order],
                    _gathered(segments, [values.numbers for values in part])[order],
                    made,
                    np.full(len(order), is_emitted),
                    part[segments[0].source].items.take(segments[0].rows) if self._quality(i) else None,
                    _gathered(segments, [values.end for values in part])[order],
                )
                pending = np.flatnonzero(_gathered(segments, is_new)[order])
                self._estimate(i, rows, pending, segments, order, estimates)
        return found

    def _estimate(
        self,
        i: int,
        rows: EarlyRows,
        pending: Ints,
        segments: Sequence[_Segment],
        order: Ints,
        into: Sequence[Estimates],
    ) -> None:
        try:
            made = self.stacks[i].estimate(rows)
            if len(pending) == len(rows.query):
                self.stacks[i] = self.stacks[i].with_early(rows, made)
            elif len(pending):
                self.stacks[i] = self.stacks[i].with_early(rows.take(pending), made.take(pending))
        except Exception:  # the early results themselves are correct
            log.exception("estimates of %s failed; early results have none", ", ".join(self.names[i]))
            return
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        start = 0
        for segment in segments:
            mine = back[start : start + len(segment.rows)]
            start += len(segment.rows)
            for column in ("projected", "low", "high", "spread"):
                getattr(into[segment.source], column)[segment.rows] = getattr(made, column)[mine]

    def _segments(self, part: Sequence[ResultValues]) -> dict[int, list[_Segment]]:
        """By stack, the rows of some results."""
        segments: dict[int, list[_Segment]] = {}
        for source, values in enumerate(part):
            places = np.array([self._place[name] for name in values.batch.names])
            stack, number = places[values.which].T
            for i in dict.fromkeys(places[:, 0].tolist()):
                rows = np.flatnonzero(stack == i)
                segments.setdefault(i, []).append(_Segment(source, rows, number[rows]))
        return segments

    def estimators(self) -> Iterator[tuple[str, Estimator]]:
        """The estimators after the batch, by query."""
        for names, before, stack, has_learned in zip(
            self.names, self._before, self.stacks, self._has_learned, strict=True
        ):
            if has_learned:
                yield from zip(names, split_stack(stack), strict=True)
            else:
                for name, estimator, pending in zip(names, before, stack.pending, strict=True):
                    yield name, replace(estimator, pending=pending)


def _is_at_new_mark(values: ResultValues, slides_left: Floats, before: Mapping[str, int] | None) -> Mask:
    """Which early results are at another mark than at their query's last look."""
    if before is None:
        return np.ones(len(slides_left), np.bool_)
    seen = np.array([name in before for name in values.batch.names], np.bool_)[values.which]
    return ~seen | (marks(slides_left) != marks(values.slides_left(before)))


def _gathered(segments: Sequence[_Segment], columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([columns[segment.source][segment.rows] for segment in segments])


def _rounds(results: Sequence[ResultValues]) -> Iterator[list[ResultValues]]:
    """The results in rounds, in order: a query is in a round once."""
    rounds: list[list[ResultValues]] = []
    seen: dict[str, int] = {}
    for values in results:
        turn = max(seen.get(name, 0) for name in values.batch.names)
        seen |= dict.fromkeys(values.batch.names, turn + 1)
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(values)
    return iter(rounds)
