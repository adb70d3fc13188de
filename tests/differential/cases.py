"""Random streams and random query sets, from whatever draws the dice: a seed, or Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from transom.elements import Clock, ClockKind, Punctuation

SECOND = 1_000_000
COLUMNS = {
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "site": pa.int32(),
    "kind": pa.string(),
    "price": pa.float64(),
    "qty": pa.int64(),
    "amount": pa.decimal128(10, 2),
}
NAN = float("nan")


@dataclass
class PageCase:
    """A page: its rows, the queries that join and leave before it, and what is said at its end."""

    rows: list[dict[str, Any]]
    joining: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    punctuations: list[Punctuation] = field(default_factory=list)
    ended: bool = False
    splits: int = 1  # tasks that share the page


@dataclass
class Case:
    """A stream in pages, and the queries over it."""

    queries: dict[str, str]
    partial: set[str]
    pages: list[PageCase]
    slack: int | None
    horizon: int | None


def often(rng: Random, usual: Any, *rare: Any) -> Any:
    """Mostly the usual."""
    return rng.choice(rare) if rng.randint(0, 4) == 0 else usual


def stream(rng: Random) -> list[dict[str, Any]]:
    """Rows with disorder, ties, nulls and gaps, around the year 1970 as well as after it."""
    now = rng.choice([0, -70 * SECOND, 1_357_041_600 * SECOND])
    rows = []
    for number in range(rng.randint(1, 24)):
        now += often(rng, rng.randint(0, 4), 15, 60) * SECOND
        jitter = often(rng, 0, -12 * SECOND, -3 * SECOND - 1, 1)
        rows.append(
            {
                "ts": often(rng, now + jitter, now, None),
                "seq": often(rng, number * 2, None, number - 5),
                "site": often(rng, rng.randint(1, 3), None),
                "kind": often(rng, rng.choice("ab"), None),
                "price": often(rng, rng.choice([1.5, 10.0, 99.25, -3.0]), None, NAN, -0.0, 0.0),
                "qty": often(rng, rng.randint(-5, 200), None),
                "amount": often(rng, rng.choice([Decimal("1.10"), Decimal("20.05"), Decimal("-7.00")]), None),
            }
        )
    return rows


def window(rng: Random) -> tuple[str, str]:
    """A bracket, or a call of window(): one of the two is empty."""
    form = rng.choice(["ends", "ends", "starts", "integer", "rows"])
    size, slide = rng.randint(1, 20), rng.randint(1, 15)
    if form == "starts":
        length = max(size, slide)  # Spark's window() wants the slide within the range
        return "", f"window(ts, '{length} seconds', '{slide} seconds', '{rng.randint(0, slide - 1)} seconds')"
    if form == "integer":
        return f"[RANGE {size} SLIDE {slide} WATTR seq]", ""
    if form == "rows":
        return f"[ROWS {size} SLIDE {slide}]", ""
    origin = often(rng, "", " ORIGIN '1 second'")
    unit, scale = often(rng, ("seconds", 1), ("ms", 1000))
    return f"[RANGE '{size * scale} {unit}' SLIDE '{slide * scale} {unit}'{origin}]", ""


CONDITIONS = [
    "price > 5", "price <= 10", "price != 10", "price >= 99.25", "qty BETWEEN 10 AND 100", "qty > 50.5",
    "site = 1", "site IN (1, 2)", "site IS NOT NULL", "kind = 'a'", "kind IN ('a', NULL)", "NOT kind = 'b'",
    "amount > 1.105", "amount <= 20.05", "qty > seq", "price <=> NULL", "kind <=> 'b'", "qty % 2 = 0",
    "coalesce(site, 9) > 2", "site NOT IN (1)", "amount < 3",
]  # fmt: skip
AGGREGATES = [
    "count(*)", "count(price)", "sum(price)", "sum(qty)", "avg(price)", "avg(qty)", "min(price)",
    "max(price)", "min(kind)", "max(kind)", "max(qty)", "sum(amount)", "avg(amount)", "min(amount)",
    "stddev(qty)", "var_pop(qty)", "sum(qty * 2 + 1)", "count(*) FILTER (WHERE price > 5)",
    "sum(qty) FILTER (WHERE kind = 'a')", "sum(qty) / count(*)", "max(seq) - min(seq)", "max(ts)",
    "sum(price * qty)", "coalesce(sum(qty), 0) + 1", "approx_count_distinct(kind)",
    "approx_percentile(qty, 0.5)",
]  # fmt: skip
KEYS = ["site", "kind", "price", "qty % 3", "amount"]
HAVINGS = ["count(*) > 1", "sum(qty) > 20", "max(price) > 5 OR count(*) = 1"]


def some(rng: Random, choices: list[Any], most: int, least: int = 0) -> list[Any]:
    return rng.sample(choices, rng.randint(least, most))


def query(rng: Random) -> str:
    """A query over the stream, with a window, groups, predicates and aggregates of its own."""
    bracket, call = window(rng)
    aggregates, keys = some(rng, AGGREGATES, 3, 1), some(rng, KEYS, 2)
    parts, joiner = some(rng, CONDITIONS, 3), rng.choice([" AND ", " AND ", " OR "])
    having = rng.choice(["", "", *HAVINGS])
    selected = [*keys, *(f"{text} AS x{i}" for i, text in enumerate(aggregates))]
    text = f"SELECT {', '.join(selected)} FROM s {bracket}"
    if parts:
        text += f" WHERE {joiner.join(parts)}"
    groups = [call, *keys] if call else keys
    if groups:
        text += f" GROUP BY {', '.join(groups)}"
    return f"{text} HAVING {having}" if having else text


def punctuation(rng: Random, rows: list[dict[str, Any]]) -> Punctuation:
    """A punctuation somewhere in the stream's time, for all rows or for some groups."""
    times = [row["ts"] for row in rows if row["ts"] is not None] or [0]
    until = rng.randint(min(times) // SECOND, max(times) // SECOND + 10) * SECOND
    since = often(rng, None, until - 8 * SECOND, until - 20 * SECOND)
    where = rng.choice(
        [(), (), (("site", 1),), (("site", 2),), (("kind", "a"),), (("site", 1), ("kind", "b"))]
    )
    return Punctuation(Clock("s", "ts", ClockKind.TIME), until, since, where)


def case(rng: Random) -> Case:
    """A stream cut into pages at random, with queries that join and leave between them."""
    rows = stream(rng)
    named = {f"q{i}": query(rng) for i in range(rng.randint(1, 4))}
    bounds = [0, *sorted(rng.randint(0, len(rows)) for _ in range(rng.randint(0, 5))), len(rows)]
    pages = []
    for start, stop in pairwise(bounds):
        said = [punctuation(rng, rows)] if rng.randint(0, 3) == 0 else []
        ended = rng.randint(0, 9) == 0
        pages.append(PageCase(rows[start:stop], punctuations=said, ended=ended, splits=rng.randint(1, 3)))
    for name in named:
        joins = often(rng, 0, 1, 2) % len(pages)
        pages[joins].joining.append(name)
        leaves = joins + often(rng, len(pages), 1, 2)
        if leaves < len(pages):
            pages[leaves].leaving.append(name)
    if any("WATTR seq" in text for text in named.values()):
        # A clock that nobody follows is not recorded: who joins it later can't be told what it missed.
        named["first"] = "SELECT count(*) FROM s [RANGE 10 SLIDE 10 WATTR seq]"
        pages[0].joining.append("first")
    pages[-1].ended = pages[-1].ended or rng.randint(0, 1) == 0
    partial = {name for name in named if rng.randint(0, 3) == 0}
    slack = rng.choice([0, 0, 5 * SECOND, 30 * SECOND, None])
    return Case(named, partial, pages, slack, rng.choice([None, None, 366 * 86_400 * SECOND, 20 * SECOND]))
