"""The baseline recomputes every answer at every arrival from the query's own queue, as in the paper's figure."""

from __future__ import annotations

import random

from reproduce.algorithms.naive_windows import NaiveWindows


def test_no_answer_before_the_first_arrival() -> None:
    assert NaiveWindows([(3, max)]).lookup(0) is None


def test_every_query_folds_its_own_window_at_every_arrival() -> None:
    rng = random.Random(5)
    queries = [(1, max), (4, min), (30, sum), (30, len)]
    naive = NaiveWindows(queries)
    tuples: list[tuple[int, int]] = []
    time = 0
    for _ in range(200):
        time += rng.choice([0, 1, 1, 2, 9])
        tuples.append((time, rng.randrange(100)))
        naive.insert(*tuples[-1])
        for at, (size, fold) in enumerate(queries):
            assert naive.lookup(at) == fold([value for when, value in tuples if when > time - size])
