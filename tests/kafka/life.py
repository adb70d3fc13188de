"""One life of an engine that reads a topic and writes results to another, to files and to a table of Delta Lake.

It may be killed at a failpoint.

usage: python -m tests.kafka.life CHECKPOINT SERVERS TOPIC RESULTS JARS [FAILPOINT BATCH]
"""

from __future__ import annotations

import os
import signal
import sys

import transom
from transom.backends.spark.session import start_session
from transom.storage.failpoints import arm

SCHEMA = "site int, price double, ts timestamp"
SQL = (
    "SELECT site, count(*) AS n, sum(price) AS total FROM bids [RANGE 1 minute SLIDE 1 minute] GROUP BY site"
)


def main() -> None:
    checkpoint, servers, topic, results, jars, *kill = sys.argv[1:]
    session = start_session("life", "local[2]", {"spark.jars": jars, "spark.driver.memory": "700m"})
    passes = [0]

    def die(point: str) -> None:
        if kill and point == kill[0]:
            passes[0] += 1
            if passes[0] == int(kill[1]):
                os.kill(os.getpid(), signal.SIGKILL)

    engine = transom.Engine(session, checkpoint)
    read = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    engine.stream(
        "bids",
        format="kafka",
        options={**read, "maxOffsetsPerTrigger": 60},
        decode="json",
        schema=SCHEMA,
        time="ts",
    )
    query = engine.register(SQL, "counts")
    query.sink("kafka", **{"kafka.bootstrap.servers": servers}, topic=results)
    query.sink("parquet", f"{checkpoint}-files")
    query.sink("delta", f"{checkpoint}-table", mode="upsert", partition_by="day")
    arm(die)
    engine.drain(close=True)
    for row in query.results().sort_by([("window_end", "ascending"), ("site", "ascending")]).to_pylist():
        print(f"{row['window_end']:%H:%M} {row['site']} {row['n']} {row['total']}")
    progress = engine.progress().streams["bids"]
    print(f"rows {progress.rows} late {progress.late} rejected {progress.rejected}")
    engine.stop()


if __name__ == "__main__":
    main()
