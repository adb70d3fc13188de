"""Nexmark's queries over windows, compared with plain Python over the same rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.nexmark import QUERIES, START, Site, generate, run
from tests.engine_factory import EngineFactory

SECOND, DAY = 1_000_000, 86_400_000_000
Row = dict[str, Any]


def rows_of(table: Any) -> list[Row]:
    rows: list[Row] = table.to_pylist()
    for row in rows:
        for name in ("ts", "arrived"):
            if name in row:
                row[name] = micros(row[name])
    return rows


def micros(moment: Any) -> int:
    return round(moment.timestamp() * SECOND)


def windows_of(time: int, length: int, slide: int) -> list[int]:
    """The ends of all windows that hold a time."""
    first = time - time % slide + slide
    return list(range(first, time + length + 1, slide))


def by_window(rows: list[Row], length: int, slide: int, *keys: str, time: str = "ts") -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        for end in windows_of(row[time], length, slide):
            groups[end, *(row[key] for key in keys)].append(row)
    return groups


def hot_items(site: Site) -> list[tuple[Any, ...]]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for (end, auction), rows in by_window(rows_of(site.bids), 10 * SECOND, 2 * SECOND, "auction").items():
        counts[end][auction] = len(rows)
    most = {end: max(found.values()) for end, found in counts.items()}
    return [
        (end, auction, n) for end, found in counts.items() for auction, n in found.items() if n == most[end]
    ]


def highest_bids(site: Site) -> list[tuple[Any, ...]]:
    found = []
    for (end,), rows in by_window(rows_of(site.bids), 10 * SECOND, 10 * SECOND).items():
        price = max(row["price"] for row in rows)
        best = [row for row in rows if row["price"] == price]
        found.append((end, price, max(row["auction"] for row in best), max(row["bidder"] for row in best)))
    return found


def new_users(site: Site) -> list[tuple[Any, ...]]:
    auctions = by_window(rows_of(site.auctions), 10 * SECOND, 10 * SECOND, "seller")
    found = []
    for person in rows_of(site.persons):
        (end,) = windows_of(person["ts"], 10 * SECOND, 10 * SECOND)
        if (end, person["id"]) in auctions:
            found.append((end, person["id"], person["name"], len(auctions[end, person["id"]])))
    return found


def sessions(site: Site) -> list[tuple[Any, ...]]:
    by_bidder: dict[int, list[int]] = defaultdict(list)
    for row in rows_of(site.bids):
        by_bidder[row["bidder"]].append(row["ts"])
    found = []
    for bidder, times in by_bidder.items():
        session: list[int] = []
        for time in [*sorted(times), None]:
            if session and (time is None or time - session[-1] > 10 * SECOND):
                found.append((session[-1] + 10 * SECOND, bidder, len(session)))
                session = []
            session += [] if time is None else [time]
    return found


def by_arrival(site: Site) -> list[tuple[Any, ...]]:
    groups = by_window(rows_of(site.bids), 10 * SECOND, 10 * SECOND, "bidder", time="arrived")
    return [(end, bidder, len(rows)) for (end, bidder), rows in groups.items()]


def distinct(rows: list[Row], name: str, low: int = 0, high: int = 10**18) -> int:
    return len({row[name] for row in rows if low <= row["price"] < high})


def ranked(rows: list[Row], low: int, high: int = 10**18) -> int:
    return sum(low <= row["price"] < high for row in rows)


def of_days(site: Site) -> list[tuple[Any, ...]]:
    return [
        (
            end,
            len(rows),
            ranked(rows, 0, 10_000),
            ranked(rows, 10_000, 1_000_000),
            ranked(rows, 1_000_000),
            distinct(rows, "bidder"),
            distinct(rows, "bidder", 0, 10_000),
            distinct(rows, "auction"),
        )
        for (end,), rows in by_window(rows_of(site.bids), DAY, DAY).items()
    ]


def of_channels(site: Site) -> list[tuple[Any, ...]]:
    found = []
    for (end, channel), rows in by_window(rows_of(site.bids), DAY, DAY, "channel").items():
        last = max(row["ts"] for row in rows) % DAY // (60 * SECOND)
        counts = ranked(rows, 0, 10_000), distinct(rows, "bidder"), distinct(rows, "auction", 1_000_000)
        found.append((end, channel, last, len(rows), *counts))
    return found


def of_auctions(site: Site) -> list[tuple[Any, ...]]:
    found = []
    for (end, auction), rows in by_window(rows_of(site.bids), DAY, DAY, "auction").items():
        prices = [row["price"] for row in rows]
        mean = pytest.approx(sum(prices) / len(prices))
        counts = len(rows), ranked(rows, 0, 10_000)
        found.append((end, auction, *counts, min(prices), max(prices), mean, sum(prices)))
    return found


def last_bids(site: Site) -> list[tuple[Any, ...]]:
    found = []
    for (end, bidder, auction), rows in by_window(rows_of(site.bids), DAY, DAY, "bidder", "auction").items():
        last = max(rows, key=lambda row: (row["ts"], row["price"]))
        found.append((end, bidder, auction, last["price"], last["ts"]))
    return found


EXPECTED: dict[str, Callable[[Site], list[tuple[Any, ...]]]] = {
    "q5": hot_items,
    "q7": highest_bids,
    "q8": new_users,
    "q11": sessions,
    "q12": by_arrival,
    "q15": of_days,
    "q16": of_channels,
    "q17": of_auctions,
    "q18": last_bids,
}


@pytest.fixture(scope="module")
def site() -> Site:
    return generate(6_000)


def results(query: Any) -> list[tuple[Any, ...]]:
    system = ("kind", "complete", "rows", "late", "batch", "made", "latency", "window_start", "window_end")
    found = []
    for row in query.results().to_pylist():
        items = [
            micros(value) if name == "ts" else value for name, value in row.items() if name not in system
        ]
        found.append((micros(row["window_end"]), *items))
    return sorted(found)


def check(engine: Any, site: Site, names: list[str]) -> None:
    run(engine, site, names, batches=6)
    for name in names:
        expected = sorted(EXPECTED[name](site), key=lambda row: row[:3])
        found = sorted(results(engine.query(name)), key=lambda row: row[:3])
        assert found == expected, name
        assert len(found) > 1, name


def test_every_query_over_windows_has_the_answers_of_plain_python(
    make_engine: EngineFactory, tmp_path: Path, site: Site
) -> None:
    check(make_engine(tmp_path), site, list(QUERIES))


def test_streams_have_nexmarks_proportions(site: Site) -> None:
    sizes = [table.num_rows for table in (site.persons, site.auctions, site.bids)]
    assert sizes == [120, 360, 5520]
    assert site.bids.equals(generate(6_000).bids) and not site.bids.equals(generate(6_000, seed=8).bids)
    assert micros(site.persons["ts"][0].as_py()) == START
    busiest = Counter(site.bids["auction"].to_pylist()).most_common(1)[0][1]
    assert busiest > 20 * 5520 / 360  # hot auctions
