"""A program that uses every part of an engine, and that can be killed and started again at any moment.

Its batches, and what happens between them, follow a script. The number of batches that were begun, which the
checkpoint has, says where the program continues. So every run has the same outcome, however often it is killed.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.engine_factory import EngineFactory
from tests.runtime.engine_helpers import BIDS, MINUTE, SettableClock, accounted, bids_files, bids_table
from transom.plan.limits import Limits
from transom.runtime.write_ahead_log import BatchLog
from transom.storage.file_store import Store

BATCHES = 22  # more than there may be files of late rows before they are merged
NEVER = 1 << 30
BURSTS = (5, 6, 12)
PRODS = (3, 8, 13)
WINDOW = "[RANGE 2 minutes SLIDE 1 minute]"


@dataclass(frozen=True)
class Membership:
    """A query, before which batch it joins, and before which one it leaves."""

    text: str
    joins: int = 0
    leaves: int = NEVER

    def is_registered(self, begun: int) -> bool:
        """Whether it is registered when so many batches were begun."""
        return self.joins < begun <= self.leaves


QUERIES = {
    "per_site": Membership(
        f"SELECT site, sum(price) AS p, avg(price) AS a, count(*) AS n FROM bids {WINDOW} GROUP BY site"
    ),
    "named": Membership(
        f"SELECT name, count(*) AS n FROM bids {WINDOW} JOIN sites ON bids.site = sites.site GROUP BY name",
        leaves=15,
    ),
    "corrected": Membership(
        f"SELECT site, sum(price) AS p FROM bids {WINDOW} GROUP BY site EMIT CORRECTIONS WITHIN '1 hour'",
        joins=1,
    ),
    "from_the_past": Membership(
        f"SELECT site, sum(price) AS p, count(*) AS n FROM bids {WINDOW} GROUP BY site BACKFILL", joins=10
    ),
    "failing": Membership(  # its first batch looks for it, and suspends it
        f"SELECT count(*) AS n FROM bids {WINDOW} WHERE string(price) RLIKE concat('(', string(price))",
        joins=6,
    ),
    "by_rows": Membership("SELECT max(price) AS top FROM bids [ROWS 5 SLIDE 3]", joins=4),
    "above": Membership(
        "SELECT count(*) AS groups, max(p) AS top FROM per_site [RANGE 4 minutes SLIDE 2 minutes]", joins=2
    ),
    "alerting": Membership(
        f"SELECT site, count(*) AS n FROM bids {WINDOW} GROUP BY site HAVING count(*) > 2 "
        "ALERT FOR 2 WINDOWS RESOLVE AFTER 2 WINDOWS"
    ),
    "short_stay": Membership(f"SELECT count(*) AS n FROM bids {WINDOW}", joins=7, leaves=16),
    "on_demand": Membership(
        "SELECT site, sum(price) AS p, max(price) AS m, count(*) AS n FROM bids [RANGE 3 minutes] GROUP BY site"
    ),
    "late_on_demand": Membership("SELECT min(price) AS least FROM bids [RANGE 1 minute]", joins=9, leaves=19),
    "preferred": Membership(
        "SELECT site, price FROM bids WITH PREFERENCE desc SUMMARY.Estimate.Count(site) BUDGET 4 PROBES"
    ),
}
LOOKUPS = (
    "SELECT site, sum(price) AS p FROM bids [RANGE 1 minute] GROUP BY site",
    "SELECT site, max(price) AS m, count(*) AS n FROM bids [RANGE 3 minutes] GROUP BY site",
)
AT_ONCE = ("per_site", "by_rows", "on_demand", "alerting")  # few, because Spark is slow
SINKS = ("per_site", "named", "by_rows", "short_stay")


def rows_of(batch: int) -> list[tuple[Any, Any, str | None]]:
    """The rows of a batch: most in time, one late, one without a time."""
    draw = Random(batch)
    count = 24 if batch in BURSTS else 5
    rows: list[tuple[Any, Any, str | None]] = [
        (
            draw.choice([0, 1, 2, 3, None]),
            float(draw.randrange(100)),
            f"12:{batch:02d}:{draw.randrange(60):02d}",
        )
        for _ in range(count)
    ]
    return [*rows, (draw.randrange(4), 1.0, f"11:{30 + batch:02d}:00"), (draw.randrange(4), 2.0, None)]


@dataclass(frozen=True)
class Workload:
    """The program over one kind of source (`files`, `feed` or `streaming`); its state is on the driver or executors.

    Its clock goes a minute with each batch, or jumps back and forth by hours. If all queries join `at_once`, before the
    first batch, it follows no script: that is what a stream of Spark's, which brings its batches itself, can do.
    """

    source: str
    state: str = "driver"
    clock_jumps: bool = False
    at_once: bool = False
    batches: int = BATCHES
    backend: str = "local"

    def prepare(self, place: Path) -> None:
        """Write the files that it reads."""
        if self.source != "feed":
            bids_files(place / "in", *(rows_of(batch) for batch in range(self.batches)))

    def time_of(self, batch: int) -> int:
        """What the clock reads when a batch begins."""
        jump = Random(batch).randrange(-6 * 60, 6 * 60) if self.clock_jumps else 0
        return SettableClock().now + (batch + jump) * MINUTE

    def queries(self, begun: int) -> list[str]:
        """The queries that are registered when so many batches were begun."""
        if self.at_once:
            return list(AT_ONCE)
        there = [name for name, query in QUERIES.items() if query.is_registered(begun)]
        return [name for name in there if self.has(name)]

    def has(self, name: str) -> bool:
        """Whether it registers a query: results over groups on the executors can't be corrected."""
        return self.state == "driver" or name != "corrected"

    @property
    def limits(self) -> Limits:
        """Late and rejected rows of a feed are written by the driver, those of files by the backend."""
        limits = Limits(process_ends=NEVER, backfill_share=0.0)
        return limits if self.source == "feed" else replace(limits, pushed_rows=0)

    def run(self, place: Path) -> None:
        """Do all that is still to do, and write the outcome."""
        session = new_session(place) if self.backend == "spark" else None
        run = _Run(self, place, EngineFactory(self.backend, session))
        run.finish()
        unfinished = place / "outcome.unfinished"
        unfinished.write_text(json.dumps(run.outcome(), sort_keys=True))
        unfinished.rename(place / "outcome.json")


class _Run:
    """One process's part of the program."""

    def __init__(self, workload: Workload, place: Path, make_engine: EngineFactory):
        self.workload, self.place = workload, place
        self.clock = SettableClock()
        self.engine = make_engine(
            place / "checkpoint",
            clock=self.clock,
            state=workload.state,
            retention=6,
            limits=workload.limits,
        )
        stream: dict[str, Any] = {"time": "ts", "slack": "30 s", "retain": "6 minutes"}
        if workload.source == "feed":
            stream |= {"slack": "80%", "slack_start": "30 s", "slack_max": "40 s"}
        if not workload.at_once:
            stream |= {"overload": "sideline", "budget": 12, "share": 1}
        if workload.source == "feed":
            self.feed = self.engine.feed("bids", BIDS, **stream)
        elif workload.source == "files":
            self.engine.stream("bids", str(place / "in"), **stream)
        else:
            reader = make_engine.session.readStream.schema(BIDS).option("maxFilesPerTrigger", 1)
            self.engine.stream("bids", reader.parquet(str(place / "in")), **stream)
        self.engine.table("sites", [{"site": site, "name": f"site {site}"} for site in range(3)])
        begun = self.begun()
        if begun and not workload.at_once:
            self.summarize()
        for name in workload.queries(begun):
            self.register(name)
        self.engine.sink("parquet", str(place / "out" / "all"))
        self.engine.alerting.file_sink("files", str(place / "out" / "alerts"))
        self.engine.sink("parquet", str(place / "out" / "days"), partition_by="day", merge_files=3)

    def begun(self) -> int:
        """The number of batches that were begun; one of rows comes after the other until all of them were."""
        return max(_numbers(self.place / "checkpoint" / "log"), default=0)

    def committed(self) -> int:
        return max(_numbers(self.place / "checkpoint" / "state"), default=0)

    def summarize(self) -> None:
        self.engine.execute(
            "CREATE SUMMARY by_site ON bids(site) WITH GRANULARITY '10 seconds' AND COLLAPSE(4, 3)"
        )

    def register(self, name: str) -> None:
        query = self.engine.register(QUERIES[name].text, name)
        if name in SINKS:
            query.sink("json", str(self.place / "out" / name))
            query.subscribe(self.subscriber(name))

    def subscriber(self, name: str) -> Any:
        """Notes the results that it gets: each at least once."""
        directory = self.place / "subscribed"
        directory.mkdir(exist_ok=True)

        def note(results: pa.Table) -> None:
            lines = "".join(f"{line}\n" for line in _finals(name, results.to_pylist()))
            (directory / uuid.uuid4().hex).write_text(lines)

        return note

    def finish(self) -> None:
        if self.workload.at_once:
            self.engine.step(1)
        else:
            self.follow_script()
        if not self.has_ended():
            self.engine.drain(close=True)

    def follow_script(self) -> None:
        while (begun := self.begun()) < BATCHES or self.committed() < begun:
            self.clock.now = self.workload.time_of(begun)
            if self.committed() == begun:
                self.engine._loop.backfill(
                    NEVER
                )  # a query that joined with the last batch takes part in the next one
                self.prepare_batch(begun)
            self.engine.step(1)
        while self.engine.step():
            pass

    def has_ended(self) -> bool:
        """Whether the last batch closed the stream."""
        intent = BatchLog(Store(self.place / "checkpoint")).intent(self.begun())
        return intent is not None and "bids" in intent.ended

    def prepare_batch(self, batch: int) -> None:
        """What the script says before a batch."""
        if batch == 0:
            self.summarize()
        for name, query in QUERIES.items():
            if query.joins == batch and self.workload.has(name):
                self.register(name)
            if query.leaves == batch:
                self.engine.query(name).drop()
        if batch in PRODS:
            self.engine.query("per_site").prod()
            self.engine.query("on_demand").lookup()
        if self.workload.source == "feed":
            self.feed.push(bids_table(*rows_of(batch)))
            if batch in PRODS:
                self.feed.prod()
            if batch % 5 == 4:
                self.feed.punctuate(until=f"2013-01-01 12:{batch:02d}:00")

    def outcome(self) -> dict[str, Any]:
        """All that came out, as JSON."""
        engine = self.engine
        noted = (file.read_text().splitlines() for file in (self.place / "subscribed").iterdir())
        living = [name for name in self.workload.queries(NEVER) if name not in ("on_demand", "failing")]
        return {
            "sinks": {name: sorted(self.written(name)) for name in SINKS},
            "sink of all": sorted(_finals("all", pq.read_table(self.place / "out" / "all").to_pylist())),
            "sink by day": sorted(_finals("all", self.days())),
            "subscribed": sorted({line for lines in noted for line in lines}),
            "results": {
                name: sorted(_finals(name, engine.query(name).results().to_pylist())) for name in living
            },
            "alerts": _lines([event.to_json() for event in engine.alerting.events()[0]]),
            "sink of alerts": _lines(self.alerts()),
            "late": _lines(engine.late("bids").to_pylist()),
            "rejected": _lines(engine.rejected("bids").to_pylist()),
            "retained": sorted(self.retained()),
            "lookups": [_lines(engine.lookup(text).to_pylist()) for text in LOOKUPS],
            "accounted": accounted(engine),
            "queries": sorted(engine.queries()),
            "suspended": sorted(engine.progress().suspended),
        }

    def retained(self) -> Iterator[str]:
        """The rows that the stream retains."""
        history = self.engine._loop.history.rows
        for file in history.committed["bids"].files:
            _, table = history.read(file)
            yield from () if table is None else _lines(table.to_pylist())

    def written(self, name: str) -> Iterator[str]:
        """The results of a query that its sink has."""
        for file in (self.place / "out" / name).glob("batch=*/*.json"):
            batch = int(file.parent.name.removeprefix("batch="))
            yield from _finals(
                name, [{**json.loads(line), "batch": batch} for line in file.read_text().splitlines()]
            )

    def alerts(self) -> list[dict[str, Any]]:
        """The events that the sink of alerts has."""
        files = (self.place / "out" / "alerts").glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def days(self) -> list[dict[str, Any]]:
        """The results that the sink by day has. The day is left out: some results have the day when they were made."""
        rows: list[dict[str, Any]] = pq.read_table(self.place / "out" / "days", partitioning=None).to_pylist()
        return rows


def new_session(place: Path) -> Any:
    """A small Spark session of this process."""
    from transom.backends.spark.session import start_session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(place / "warehouse")}
    return start_session("faults", "local[2]", settings)


def _numbers(directory: Path) -> Iterator[int]:
    names = os.listdir(directory) if directory.exists() else ()
    return (int(name.split(".")[0]) for name in names if not name.endswith(".unfinished"))


def _finals(name: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """The final results of a query, each as a text."""
    for row in rows:
        if row.get("kind", "final") == "final":
            yield f"{name} {_text(row)}"


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(_text(row) for row in rows)


def _text(row: dict[str, Any]) -> str:
    """A row without the moment at which it was made."""
    shown = {column: str(value) for column, value in row.items() if column not in ("made", "latency")}
    return json.dumps(shown, sort_keys=True)
