"""Random batches of tuples, and plain answers for them."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from transom.aggregates.accumulators import Accumulator
from transom.columns.groups import group
from transom.ondemand.structures.runs import GroupAnswers, TupleBatch

NAN, INF = float("nan"), float("inf")
EDGES = [0.0, -0.0, NAN, INF, -INF, 1e300, -1e300, 5e-324, 1e-300, 7.0]


def random_values(
    rng: np.random.Generator, type: pa.DataType | None, count: int, nulls: float
) -> pa.Array | None:
    """A column of some type, with ties and that type's oddities."""
    if type is None:
        return None
    if pa.types.is_floating(type):
        plain: list[Any] = np.round(rng.normal(0, 10, count), 1).tolist()
        plain = [
            rng.choice(EDGES) if odd else value
            for odd, value in zip(rng.random(count) < 0.05, plain, strict=True)
        ]
    elif pa.types.is_boolean(type):
        plain = (rng.random(count) < 0.5).tolist()
    elif pa.types.is_integer(type):
        limit = 2 ** (type.bit_width - 1)
        plain = rng.choice([-limit, -3, 0, 1, 2, 3, limit - 1], count).tolist()
    elif pa.types.is_decimal(type):
        plain = [Decimal(int(n)).scaleb(-type.scale) for n in rng.integers(-10_000, 10_000, count)]
    elif pa.types.is_date(type):
        plain = [date(2026, 1, 1) + timedelta(days=int(n)) for n in rng.integers(0, 300, count)]
    else:
        plain = ["".join(rng.choice(list(string.ascii_letters + "é😀"), 2)) for _ in range(count)]
    return pa.array(plain, type, mask=rng.random(count) < nulls)


@dataclass(frozen=True)
class Tuples:
    """Tuples in all: a time, a group's keys and a value each."""

    times: np.ndarray
    keys: tuple[pa.Array, ...]
    values: pa.Array | None

    def batch(self, rows: np.ndarray) -> TupleBatch:
        """Some of them as a batch."""
        at = pa.array(rows)
        keys = [key.take(at) for key in self.keys]
        groups = group(keys, len(rows))
        firsts = pa.array(groups.firsts)
        values = None if self.values is None else self.values.take(at)
        return TupleBatch(self.times[rows], groups.codes, tuple(key.take(firsts) for key in keys), values)

    def batches(self, rng: np.random.Generator, count: int) -> list[TupleBatch]:
        """All of them, in batches cut at random."""
        cuts = np.sort(rng.integers(0, len(self.times) + 1, count - 1))
        return [self.batch(rows) for rows in np.split(np.arange(len(self.times)), cuts)]

    def answers(self, accumulator: Accumulator, since: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The states of the groups that have a value in the window, by reading all tuples."""
        rows = np.flatnonzero(self.times >= since)
        values = pa.nulls(len(self.times)) if self.values is None else self.values
        if self.values is not None:
            rows = rows[values.take(pa.array(rows)).is_valid().to_numpy(zero_copy_only=False)]
        keys = [key.take(pa.array(rows)) for key in self.keys]
        groups = group(keys, len(rows))
        states = accumulator.lift(values.take(pa.array(rows)), groups.codes, groups.count)
        return _by_key([key.take(pa.array(groups.firsts)) for key in keys], groups.count, states)


def random_tuples(
    rng: np.random.Generator,
    count: int,
    type: pa.DataType | None,
    grouped: str = "",
    jitter: int = 0,
    nulls: float = 0.1,
) -> Tuples:
    """Tuples whose times rise but for a jitter, with ties; `grouped`: none, some or many groups."""
    times = np.sort(rng.integers(0, 3 * count, count)) - 1000
    times = times + rng.integers(-jitter, jitter + 1, count)
    keys: tuple[pa.Array, ...] = ()
    if grouped == "some":
        words = pa.array(rng.choice(["a", "b", ""], count), mask=rng.random(count) < 0.2)
        keys = (words, pa.array(rng.choice([0.0, -0.0, NAN, 1.5], count)))
    elif grouped == "many":
        keys = (pa.array(rng.integers(0, count // 3, count)),)
    return Tuples(times, keys, random_values(rng, type, count, nulls))


def found_by_key(found: GroupAnswers, names: Sequence[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """A lookup's answers, each key once."""
    states = [found.columns[name] for name in names]
    assert all(len(column) == found.count for column in (*states, *found.keys))
    known = _by_key(found.keys, found.count, states)
    assert len(known) == found.count
    return known


def _by_key(
    keys: Sequence[pa.Array], count: int, states: Sequence[pa.Array]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    labels = list(zip(*(map(_plain, key.to_pylist()) for key in keys), strict=True)) if keys else [()] * count
    return dict(zip(labels, zip(*(state.to_pylist() for state in states), strict=True), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
