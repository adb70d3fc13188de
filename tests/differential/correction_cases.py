"""Cases with queries that correct the results of closed windows, beside queries that do not."""

from __future__ import annotations

from random import Random

from tests.differential.cases import (
    AGGREGATES,
    CONDITIONS,
    KEYS,
    Case,
    cut_into_batches,
    follow_numbers,
    often,
    query_of,
    ruled,
    some,
    stream,
    window,
)

FORMS = ("ends", "ends", "starts", "integer", "grows")


def correctable_window(rng: Random) -> tuple[str, str]:
    """A window that all groups share, along a time or a number."""
    form = rng.choice(FORMS)
    if form == "grows":
        slide = rng.randint(1, 5)
        return f"[RANGE UP TO '{slide * rng.randint(1, 4)} seconds' SLIDE '{slide} seconds']", ""
    return window(rng, (form,))


def within(rng: Random, bracket: str) -> str:
    """How long late rows correct the windows."""
    if "WATTR seq" in bracket:
        return str(rng.choice([1, 5, 20, 1000]))
    return rng.choice(["'1 second'", "'7 seconds'", "'20 seconds'", "'1 hour'", "1 ms"])


def correcting_query(rng: Random, over: tuple[str, str], rest: str = "") -> str:
    """A query with EMIT CORRECTIONS over a window."""
    keys, parts = some(rng, KEYS, 2), some(rng, CONDITIONS, 2)
    where = rest or rng.choice([" AND ", " OR "]).join(parts)
    text = query_of(rng, over, keys, where, AGGREGATES)
    return f"{text} EMIT CORRECTIONS WITHIN {within(rng, over[0])}"


def correcting(rng: Random) -> Case:
    """Queries that correct results, some that share slices with them and do not, that come and go."""
    batches = cut_into_batches(rng, stream(rng, 40), 8)
    named: dict[str, str] = {}
    for number in range(rng.randint(1, 4)):
        text = correcting_query(rng, correctable_window(rng))
        named[f"q{number}"] = text
        kind = rng.randint(0, 3)
        plain = text.partition(" EMIT ")[0]
        if kind == 0:
            named[f"plain {number}"] = plain
        elif kind == 1 and "WATTR seq" not in text:
            named[f"other {number}"] = f"{plain} EMIT CORRECTIONS WITHIN '3 seconds'"
    for name in named:
        joins = often(rng, 0, 1, 2) % len(batches)
        batches[joins].joining.append(name)
        leaves = joins + often(rng, len(batches), 2, 3)
        if leaves < len(batches):
            batches[leaves].leaving.append(name)
    follow_numbers(named, batches)
    return ruled(rng, named, batches)
