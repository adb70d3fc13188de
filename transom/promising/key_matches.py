"""Matches that are looked up by key: the cheapest exact plan, where the tuples are at hand.

Tuples are sorted by key and time. So the partners of an arriving tuple are a range of the sorted tuples, and
counting them takes two searches. Only matches that a budget covers are produced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transom.columns.arrays import Ints, Keys
from transom.columns.hashes import mix_bits
from transom.promising.tuples import run_positions

EARLIEST, LATEST = -(2**62), 2**62  # beyond all times; sums with a window fit 64 bits
_GOLDEN = (5**0.5 - 1) / 2
_ROUNDS = 6  # of a permutation


@dataclass(frozen=True)
class TupleRows:
    """Some rows of a table of tuples, with their keys, their times and, if they differ, their batches."""

    rows: Ints
    key: Keys
    time: Ints
    batch_id: Ints | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Lines:
    """Wanted matches as lines: line n has those of `key[n]` whose partner is from `since[n]` to before `until[n]`."""

    key: Keys
    since: Ints
    until: Ints

    @classmethod
    def of_keys(cls, key: Keys, since: int = EARLIEST, until: int = LATEST) -> Lines:
        """A line for each key, all with the same times."""
        return cls(key, np.full(len(key), since), np.full(len(key), until))


@dataclass(frozen=True)
class KeyMatches:
    """The matches of lines, as strips: an arriving tuple, and its range of partners.

    `line` ascends; `mine` are rows of arriving tuples, and the partners of a strip are `order[start:stop]`, rows
    of the other stream. A selection has no arriving tuples: `mine` is empty, and each line is one strip.
    """

    lines: int
    line: Ints
    mine: Ints
    order: Ints
    start: Ints
    stop: Ints

    @property
    def counts(self) -> Ints:
        """The matches of each line."""
        return np.bincount(self.line, self.stop - self.start, self.lines).astype(np.int64)

    @property
    def total(self) -> int:
        return int((self.stop - self.start).sum())

    def all(self) -> tuple[Ints, Ints]:
        """All matches: the rows of arriving tuples, and of their partners."""
        return self._expanded(np.arange(len(self.line)), self.start, self.stop)

    def as_one_line(self) -> KeyMatches:
        """The same matches as a single line."""
        return replace(self, lines=1, line=np.zeros_like(self.line))

    def next(
        self, done: Ints, taken: Ints, spread: bool = False, seed: int | None = None
    ) -> tuple[Ints, Ints]:
        """The next `taken` matches of each line after `done`.

        They are taken in the line's order, or spread evenly over it, or with a seed by a permutation of it.
        """
        counts = self.stop - self.start
        before = np.cumsum(counts) - counts  # of the strip, among all matches
        first = np.zeros(self.lines, np.int64)
        first[self.line[::-1]] = before[::-1]  # of the line
        if spread or seed is not None:
            line, place = run_positions(taken)
            length = self.counts
            if seed is None:
                place = (done[line] + place) * spread_steps(length)[line] % length[line]
            else:
                place = permuted(done[line] + place, length[line], seed)
            place += first[line]
            strip = np.searchsorted(before + counts, place, side="right")
            start = self.start[strip] + place - before[strip]
            return self._expanded(strip, start, start + 1)
        inside = before - first[self.line]
        low = np.clip(done[self.line] - inside, 0, counts)
        high = np.clip((done + taken)[self.line] - inside, 0, counts)
        some = np.flatnonzero(high > low)
        return self._expanded(some, self.start[some] + low[some], self.start[some] + high[some])

    def _expanded(self, strip: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        counts = stop - start
        places = np.repeat(start - (np.cumsum(counts) - counts), counts)
        places += np.arange(len(places))
        mine = np.repeat(self.mine[strip], counts) if len(self.mine) else self.mine
        return mine, self.order[places]


def spread_steps(lengths: Ints) -> Ints:
    """A step for each line: n steps from its start, modulo its length, are each place once, spread evenly.

    >>> (np.arange(5) * spread_steps(np.array([5])) % 5).tolist()
    [0, 3, 1, 4, 2]
    """
    step = np.maximum(np.rint(lengths * _GOLDEN).astype(np.int64), 1)
    while (shared := np.gcd(step, lengths) > 1).any():
        step = step + shared
    return step


def permuted(places: Ints, lengths: Ints, seed: int) -> Ints:
    """The places of a permutation of each line, which is never listed as a whole.

    A Feistel network permutes the numbers below a power of four. Numbers beyond the line's length are permuted again
    until they are inside of it (Black and Rogaway, 2002).

    >>> sorted(permuted(np.arange(10), np.full(10, 10), seed=3).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    half = np.ceil(np.log2(np.maximum(lengths, 2)) / 2).astype(np.uint64)
    mask = (np.uint64(1) << half) - np.uint64(1)
    keys = [mix_bits(np.array([seed], np.uint64) ^ np.uint64(number << 32)) for number in range(_ROUNDS)]
    made, outside = places.astype(np.uint64), np.arange(len(places))
    while len(outside):
        left, right = made[outside] >> half[outside], made[outside] & mask[outside]
        for key in keys:
            left, right = right, left ^ (mix_bits(right ^ key) & mask[outside])
        made[outside] = (left << half[outside]) | right
        outside = outside[made[outside] >= lengths[outside].astype(np.uint64)]
    return made.astype(np.int64)


def join_matches(lines: Lines, arriving: TupleRows, others: TupleRows, window: int | None) -> KeyMatches:
    """The matches of arriving tuples with `others` of the same key that are at most a window apart.

    A line's strips are in order of the arriving tuples' times, a strip's partners in order of their own. Partners of
    the same time are in order of their batches: their rows may be in another order when the line is resumed.
    """
    keys = np.unique(lines.key)
    number = np.minimum(np.searchsorted(keys, others.key), max(len(keys) - 1, 0))
    here = np.flatnonzero(keys[number] == others.key) if len(keys) else np.zeros(0, np.int64)
    number, time = number[here], others.time[here]
    codes = _Codes.of(len(keys), time)
    coded = codes.at(number, time)
    by_code = np.argsort(coded, kind="stable")
    if others.batch_id is not None:
        by_code = _with_ties_by_batch(by_code, coded, others.batch_id[here])
    own = np.lexsort((arriving.time, arriving.key))
    own_key = arriving.key[own]
    first = np.searchsorted(own_key, lines.key)
    line, place = run_positions(np.searchsorted(own_key, lines.key, side="right") - first)
    mine = own[first[line] + place]
    since, until = lines.since[line], lines.until[line]
    if window is not None:
        since = np.maximum(since, arriving.time[mine] - window)
        until = np.minimum(until, arriving.time[mine] + window + 1)
    of_line = np.searchsorted(keys, lines.key)[line]
    ordered = coded[by_code]
    start = np.searchsorted(ordered, codes.at(of_line, since))
    stop = np.searchsorted(ordered, codes.at(of_line, until))
    return KeyMatches(
        len(lines.key), line, arriving.rows[mine], others.rows[here[by_code]], start, np.maximum(start, stop)
    )


def _with_ties_by_batch(order: Ints, coded: Ints, batch_id: Ints) -> Ints:
    """The order of some codes, with equal codes in order of their batches; they mostly are already."""
    code, batch = coded[order], batch_id[order]
    is_tied = code[1:] == code[:-1]
    if not is_tied.any() or not (batch[1:] < batch[:-1])[is_tied].any():
        return order
    return np.lexsort((batch_id, coded))


def partner_counts(wanted: tuple[Ints, Ints], others: tuple[Ints, Ints], window: int | None) -> Ints:
    """How many of the `others` each wanted tuple has as partners: those of its number, at most a window apart.

    Tuples are given as the numbers of their values, and their times.

    >>> seven, eight = (np.array([0, 0]), np.array([10, 20])), (np.array([0, 0, 1]), np.array([12, 15, 10]))
    >>> partner_counts(seven, eight, 5).tolist()
    [2, 1]
    """
    (number, time), (other_number, other_time) = wanted, others
    codes = _Codes.of(int(other_number.max(initial=0)) + 1, other_time)
    ordered = np.sort(codes.at(other_number, other_time))
    since = np.full(len(time), EARLIEST) if window is None else time - window
    until = np.full(len(time), LATEST) if window is None else time + window + 1
    first, last = (np.searchsorted(ordered, codes.at(number, times)) for times in (since, until))
    return last - first


def selection_matches(keys: Keys, tuples: TupleRows, seed: int | None = None) -> KeyMatches:
    """The tuples of each key, by time, or with a seed in an order that has nothing to do with time or value."""
    order = np.lexsort((tuples.time, tuples.key))
    ordered = tuples.key[order]
    if seed is not None:  # by place among the tuples of the key, which eviction does not change
        new = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]) != 0)
        place = np.arange(len(order)) - np.repeat(new, np.diff(new, append=len(order)))
        order = order[
            np.lexsort(
                (mix_bits(place.view(np.uint64) ^ ordered ^ mix_bits(np.array([seed], np.uint64))), ordered)
            )
        ]
    start, stop = np.searchsorted(ordered, keys), np.searchsorted(ordered, keys, side="right")
    none = np.zeros(0, np.int64)
    return KeyMatches(len(keys), np.arange(len(keys)), none, tuples.rows[order], start, stop)


@dataclass(frozen=True)
class _Codes:
    """Numbers that ascend with the number of a key, then with time; they always fit 64 bits."""

    first: int
    span: int
    times: Ints | None  # the different times, if the times themselves take too many bits

    @classmethod
    def of(cls, keys: int, time: Ints) -> _Codes:
        first = int(time.min()) if len(time) else 0
        span = int(time.max()) - first + 2 if len(time) else 2
        if (keys + 1) * span < 2**63:
            return cls(first, span, None)
        times = np.unique(time)
        return cls(0, len(times) + 1, times)

    def at(self, number: Ints, time: Ints) -> Ints:
        """The code of a key's time; of a time that no tuple has, that of the next one."""
        if self.times is not None:
            return number * self.span + np.searchsorted(self.times, time)
        return number * self.span + (np.clip(time, self.first, self.first + self.span - 1) - self.first)
