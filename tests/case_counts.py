"""How many random cases the tests draw.

`make test` draws a third of the cases, from a new seed in each run. `make test-differential` draws all of them.
"""

from __future__ import annotations

import os

PERCENT = int(os.environ.get("TRANSOM_CASES", "33"))


def case_count(number: int) -> int:
    """The share of `number` that this run draws; at least one."""
    return max(1, number * PERCENT // 100)


def case_seeds(start: int, number: int) -> range:
    """The seeds of this run's share of `number` cases."""
    return range(start, start + case_count(number))
