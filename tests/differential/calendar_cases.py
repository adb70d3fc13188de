"""Random streams and queries with cumulative windows, and with calendar windows."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.differential.cases import SECOND, Case, often, window

HOUR = 3_600 * SECOND
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "UTC",
]
# Shortly before clocks change in these zones, before a leap day, and before a new year.
STARTS = [1_711_756_800, 1_729_900_800, 1_540_990_800, 1_709_100_000, 1_712_300_000, 1_735_560_000, 0]


def growing_window(rng: Random) -> tuple[str, str]:
    """A bracket of cumulative windows, or now and then another one."""
    step, count = rng.randint(1, 6), rng.randint(1, 6)
    origin = often(rng, 0, 1, step, step * count - 1)
    form = often(
        rng,
        f"[RANGE UP TO '{step * count} seconds' SLIDE '{step} seconds' ORIGIN '{origin} seconds']",
        f"[RANGE UP TO {step * count} SLIDE {step} WATTR seq ORIGIN {origin}]",
        f"[ROWS UP TO {step * count} SLIDE {step}]",
    )
    return often(rng, (form, ""), window(rng))


def calendar_window(rng: Random) -> tuple[str, str]:
    """A bracket with a time zone, or now and then another window."""
    zone = rng.choice(ZONES)
    lengths = ["1 day", "1 day", "2 days", "1 week", "1 month", "1 quarter"]
    origin = often(rng, "", " ORIGIN '2024-01-15'", " ORIGIN '2020-02-03 06:30'", " ORIGIN '6 hours'")
    sliding = f"[RANGE {rng.choice(lengths)} SLIDE {rng.choice(lengths)}{origin} IN TIME ZONE '{zone}']"
    steps = [("1 day", "4 hours"), ("1 day", "30 minutes"), ("1 month", "1 day"), ("1 week", "6 hours")]
    steps += [("1 quarter", "1 month"), ("4 days", "2 days")]
    period, step = rng.choice(steps)
    growing = f"[RANGE UP TO {period} SLIDE {step}{origin} IN TIME ZONE '{zone}']"
    fixed = f"[RANGE '{rng.choice([1, 2, 12, 24])} hours' SLIDE '{rng.choice([1, 12, 24])} hours']"
    return often(rng, rng.choice([(sliding, ""), (sliding, ""), (growing, "")]), (fixed, ""))


def in_hours(rng: Random, one: Case) -> Case:
    """The same case with hours or so in place of seconds, around days on which clocks change."""
    scale, start = rng.choice([900, 3_600, 7_200, 50_000]), rng.choice(STARTS) * SECOND
    times = [row["ts"] for batch in one.batches for row in batch.rows if row["ts"] is not None]
    first = min(times, default=0)

    def moved(time: int | None) -> int | None:
        return None if time is None else start + (time - first) * scale

    for batch in one.batches:
        batch.rows = [row | {"ts": moved(row["ts"])} for row in batch.rows]
        batch.punctuations = [
            replace(each, until=moved(each.until) or 0, since=moved(each.since))
            for each in batch.punctuations
        ]
        batch.prods = [replace(each, until=moved(each.until)) for each in batch.prods]
    one.slack = None if one.slack is None else one.slack * scale
    one.horizon = None if one.horizon is None else min(one.horizon * scale, 2**62)
    return one
